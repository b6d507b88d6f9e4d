"""Sensor networks, crowdsourcing models and networks of any factors."""

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import invgamma, norm

from skcircuits.graphical import (
    ContinuousFactor,
    ContinuousMarkovNetwork,
    CrowdsourcingModel,
    GaussianMRF,
    SensorNetwork,
)
from skcircuits.particles._diagnosis import nodes_outside_blankets
from skcircuits.particles._neighborhoods import Neighborhoods

CORNERS = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])


def sensors(prior=None, seed=0):
    positions = np.random.default_rng(seed).uniform(-1, 1, (8, 2))
    prior = {"box": (-1.0, 1.0)} if prior is None else prior
    return SensorNetwork.simulate(positions, CORNERS, radius=0.9, random_state=1, **prior)


def crowd(known=None):
    rng = np.random.default_rng(0)
    items, workers = np.nonzero(rng.random((5, 4)) < 0.7)
    return CrowdsourcingModel(
        items, workers, rng.normal(3, 2, items.size), known={1: 2.0} if known is None else known
    )


def quartic_chain():
    pull = ContinuousFactor(
        [[0, 1], [1, 2], [2, 3]],
        lambda x: -0.5 * (x[..., 0] - x[..., 1]) ** 2,
        lambda x: x[..., ::-1] - x,
    )
    well = ContinuousFactor(
        np.arange(4)[:, None],
        lambda x: -(x[..., 0] ** 4) / 4 + x[..., 0] ** 2 / 2,
        lambda x: x - x**3,
    )
    lone = ContinuousFactor([0, 3], lambda x: np.sin(x).sum(axis=-1), np.cos)
    return ContinuousMarkovNetwork([pull, well, lone])


TARGETS = {
    "sensors in a box": (sensors(), 16),
    "sensors with a prior": (sensors({"prior_scale": 1.0}), 16),
    "crowd": (crowd(), 12),
    "crowd without controls": (crowd({}), 13),
    "factors": (quartic_chain(), 4),
}


@pytest.mark.parametrize(("target", "n_coordinates"), TARGETS.values(), ids=TARGETS)
def test_scores_are_gradients(target, n_coordinates):
    X = np.random.default_rng(1).normal(scale=0.7, size=(5, n_coordinates))
    step = 1e-6 * np.eye(n_coordinates)
    numeric = [
        (target.log_prob_unnormalized(X + e) - target.log_prob_unnormalized(X - e)) / 2e-6
        for e in step
    ]
    scores = target.grad_log_prob(X)
    np.testing.assert_allclose(scores, np.transpose(numeric), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("target", "n_coordinates"), TARGETS.values(), ids=TARGETS)
def test_scores_depend_on_blankets_only(target, n_coordinates):
    graph = Neighborhoods.from_graph(target.neighbors, target.blocks)
    X = np.random.default_rng(2).normal(size=(6, n_coordinates))
    assert (
        nodes_outside_blankets(target.grad_log_prob, graph, X, np.random.default_rng(0)).size == 0
    )


def test_a_wrong_graph_is_found():
    target = quartic_chain()
    graph = Neighborhoods.from_graph([[1], [0], [3], [2]])  # the links 1-2 and 0-3 are missing
    X = np.random.default_rng(2).normal(size=(6, 4))
    found = nodes_outside_blankets(target.grad_log_prob, graph, X, np.random.default_rng(0))
    np.testing.assert_array_equal(found, [1, 2])  # the factor over 0 and 3 does not mix them


def test_factors_of_a_gaussian_make_its_field():
    precision = np.array([[2.0, -0.5], [-0.5, 1.0]])
    network = ContinuousMarkovNetwork(
        [
            ContinuousFactor(
                [0, 1],
                lambda x: -0.5 * np.einsum("ngi,ij,ngj->ng", x, precision, x),
                lambda x: -x @ precision,
            )
        ]
    )
    field = GaussianMRF(precision, [0, 0])
    X = np.random.default_rng(0).normal(size=(3, 2))
    np.testing.assert_allclose(network.grad_log_prob(X), field.grad_log_prob(X), rtol=1e-12)
    np.testing.assert_allclose(network.log_prob_unnormalized(X), field.log_prob_unnormalized(X))


def test_neighbors_of_factors_count_blocks():
    factor = ContinuousFactor([[0, 1], [2, 3]], lambda x: x.sum(axis=-1), np.ones_like)
    by_variable = ContinuousMarkovNetwork([factor], n_variables=5)
    assert [n.tolist() for n in by_variable.neighbors] == [[1], [0], [3], [2], []]
    by_block = ContinuousMarkovNetwork([factor], blocks=[[0], [1, 2], [3]])
    assert [n.tolist() for n in by_block.neighbors] == [[1], [0, 2], [1]]


@pytest.mark.parametrize("variables", [[[0, 5]], [[-1, 0]]])
def test_factors_name_existing_variables(variables):
    factor = ContinuousFactor(variables, lambda x: x, lambda x: x)
    with pytest.raises(ValueError, match=r"lie in 0\.\.2"):
        ContinuousMarkovNetwork([factor], n_variables=3)
    with pytest.raises(ValueError, match="at least one factor"):
        ContinuousMarkovNetwork([])


def test_sensor_density_is_the_sum_of_misfits():
    network = SensorNetwork([[0, 1], [0, 2]], [0.5, 1.5], [[0.0, 1.0], [0.0, -1.0]], 1, noise=0.1)
    X = np.array([[0.3, 0.5]])
    lengths = np.array([np.hypot(0.3, 0.5), np.hypot(0.3, 1.5)])
    expected = norm(lengths, 0.1).logpdf([0.5, 1.5]).sum() + np.log(2 * np.pi * 0.01)
    assert network.log_prob_unnormalized(X)[0] == pytest.approx(expected, rel=1e-9)


def test_sensors_without_an_anchor_need_a_prior():
    links, lengths = [[0, 3], [1, 2]], [0.5, 0.5]
    with pytest.raises(ValueError, match=r"path .* to an anchor; got sensors=\[1, 2\]"):
        SensorNetwork(links, lengths, [[0.0, 0.0]], 3)
    assert SensorNetwork(links, lengths, [[0.0, 0.0]], 3, prior_scale=1.0).n_sensors == 3


@pytest.mark.parametrize(
    ("pairs", "distances", "options", "message"),
    [
        ([[0, 1]], [1.0, 2.0], {}, "one per pair"),
        ([[0, 9]], [1.0], {}, "name nodes"),
        ([[0, 0]], [1.0], {}, "different nodes"),
        ([[0, 1]], [1.0], {"noise": 0.0}, "noise must be positive"),
        ([[0, 1]], [1.0], {"noise": [[1.0, np.nan]]}, "noise must be positive"),
        ([[0, 1]], [np.nan], {}, "distances must be finite"),
    ],
)
def test_wrong_measurements_are_refused(pairs, distances, options, message):
    with pytest.raises(ValueError, match=message):
        SensorNetwork(pairs, distances, [[0.0, 0.0]], 1, **options)


def test_numbers_of_sensors_are_counts():
    with pytest.raises(ValueError, match="n_sensors must be a non-negative integer"):
        SensorNetwork([[0, 1]], [1.0], [[0.0, 0.0]], sparse.csr_array(np.eye(2)))


def test_coinciding_sensors_have_a_finite_score():
    network = SensorNetwork([[0, 1], [0, 2]], [0.3, 0.3], [[0.5, 0.5]], 2, prior_scale=1.0)
    assert np.all(np.isfinite(network.grad_log_prob(np.zeros((1, 4)))))
    assert network.grad_log_prob(np.ones((1, 4), dtype=np.float32)).dtype == np.float32


def test_graph_distances_place_sensors_roughly():
    positions = np.random.default_rng(1).uniform(-1, 1, (60, 2))
    network = SensorNetwork.simulate(positions, CORNERS, noise=0.01, random_state=0)
    guess = network.estimate_positions().reshape(-1, 2)
    assert np.sqrt(np.mean(np.sum((guess - positions) ** 2, axis=1))) < 0.2


def test_unreachable_sensors_start_at_the_centre():
    network = SensorNetwork(
        [[0, 2], [0, 3], [0, 4]], [0.7, 0.7, 0.7], CORNERS[:3], 2, prior_scale=1
    )
    np.testing.assert_allclose(network.estimate_positions()[2:], CORNERS[:3].mean(axis=0))


@pytest.mark.parametrize("prior", [{"box": (-2.0, 3.0)}, {"prior_scale": 2.0}])
def test_starts_come_from_the_prior(prior):
    starts = sensors(prior).draw_start(500, np.random.default_rng(0))
    assert starts.shape == (500, 16)
    assert starts.std() == pytest.approx(5 / np.sqrt(12) if "box" in prior else 2.0, rel=0.05)


def test_crowd_density_is_the_joint_with_its_jacobian():
    model = CrowdsourcingModel([0, 0, 1], [0, 1, 1], [1.0, 2.0, 4.0], known={1: 3.0})
    theta = np.array([[0.5, -0.2, 0.3, 0.4, -0.6], [1.0, 0.0, 0.0, 0.0, 0.0]])

    def joint(x, b0, b1, log_v0, log_v1):
        scale = np.exp(np.array([log_v0, log_v1]) / 2)
        value = norm(x + b0, scale[0]).logpdf(1.0) + norm(x + b1, scale[1]).logpdf(2.0)
        value += norm(3.0 + b1, scale[1]).logpdf(4.0)
        value += norm(0, 5).logpdf([x, b0, b1]).sum()
        return value + np.sum(invgamma(3, scale=1).logpdf(scale**2) + np.log(scale**2))

    found = model.log_prob_unnormalized(theta)
    assert found[0] - found[1] == pytest.approx(joint(*theta[0]) - joint(*theta[1]), rel=1e-10)


def test_the_crowd_is_bipartite():
    model = crowd()
    n_unknown = len(model.unknown_items)
    for node, blanket in enumerate(model.neighbors):
        assert np.all((blanket >= n_unknown) == (node < n_unknown))


def test_crowds_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="equally long"):
        CrowdsourcingModel([0, 1], [0], [1.0])


def test_models_keep_no_hold_of_the_arrays_they_are_given():
    pairs, distances, anchors = np.array([[0, 1]]), np.array([0.5]), np.array([[1.0, 0.0]])
    items, workers, estimates = np.array([0, 1]), np.array([0, 1]), np.array([1.0, 2.0])
    variables, block = np.array([[0, 1]]), np.array([0, 1])
    factor = ContinuousFactor(variables, lambda x: -(x**2).sum(axis=-1), lambda x: -2 * x)
    targets = [
        (SensorNetwork(pairs, distances, anchors, 1), 2),
        (CrowdsourcingModel(items, workers, estimates), 6),
        (ContinuousMarkovNetwork([factor], 3, blocks=[block, [2]]), 3),
    ]
    points = [np.full((1, width), 0.25) for _, width in targets]
    before = [target.log_prob_unnormalized(X) for (target, _), X in zip(targets, points)]
    for array in (pairs, distances, anchors, items, workers, estimates, variables, block):
        array[...] = array[..., ::-1].copy() + 1
    for (target, _), X, expected in zip(targets, points, before):
        np.testing.assert_array_equal(target.log_prob_unnormalized(X), expected)
    assert targets[2][0].blocks[0].tolist() == [0, 1]


@pytest.mark.parametrize(("estimate", "known"), [(np.nan, {}), (1.0, {0: np.inf})])
def test_estimates_are_finite(estimate, known):
    with pytest.raises(ValueError, match="estimates and known values must be finite"):
        CrowdsourcingModel([0, 1], [0, 0], [estimate, 2.0], known=known)


@pytest.mark.parametrize("wrong", [[2**70, 0], [1e300, 0], [0.5, 0], [-1, 0], [np.nan, 0], []])
@pytest.mark.parametrize("name", ["items", "workers"])
def test_items_and_workers_are_numbered(name, wrong):
    given = {"items": [0, 1], "workers": [0, 1], "estimates": [1.0, 2.0], name: wrong}
    if not wrong:
        given = {key: [] for key in given}
    with pytest.raises(ValueError, match="items" if not wrong else name):
        CrowdsourcingModel(**given)
