import itertools

import numpy as np
import pytest

from skcircuits.circuits import Bernoulli, Circuit
from skcircuits.learning import _continuous_mixture
from skcircuits.learning._continuous_mixture import (
    ContinuousMixture,
    ContinuousSchedule,
    Decoder,
    TreeFeatures,
    _drawn_again,
    learn_continuous_mixture,
)
from skcircuits.trees._chow_liu import chow_liu_tree
from skcircuits.trees._trees import StateLayout

CARDINALITIES = [2, 3, 1, 4, 2]
PARENTS = np.array([-1, 0, 1, 1, 3])


@pytest.fixture
def features():
    return TreeFeatures(StateLayout(CARDINALITIES), PARENTS)


def every_row():
    return np.array(list(itertools.product(*map(range, CARDINALITIES))))


def test_features_are_linear_in_the_tables(features):
    log_cells = np.random.default_rng(0).normal(size=(features.n_cells, 3))
    rows = every_row()
    scores = features.of_rows(rows) @ (features.coefficients @ log_cells)
    expected = np.zeros((len(rows), 3))
    for variable, start in enumerate(features.offsets[:-1]):
        above = rows[:, PARENTS[variable]] if PARENTS[variable] >= 0 else 0
        expected += log_cells[start + above * CARDINALITIES[variable] + rows[:, variable]]
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_gradient_of_the_decoder(features):
    rng = np.random.default_rng(1)
    decoder = Decoder.drawn(features, np.zeros(features.n_cells), [2, 5, 5], rng).copy(np.float64)
    points, toward = rng.normal(size=(2, 4)), rng.normal(size=(features.n_cells, 4))
    steps = []

    class Recorder:
        def ascend(self, parameters, gradient, rate):
            steps.append((parameters, gradient))

    decoder._optimisers = [(Recorder(), Recorder())] * len(decoder.layers)
    log_cells, inputs = decoder.log_cells(points)
    decoder.ascend(inputs, log_cells, toward, 1.0)
    for parameters, gradient in steps:
        index = tuple(rng.integers(parameters.shape))
        before, values = parameters[index], []
        for change in (1e-5, -1e-5):
            parameters[index] = before + change
            values.append((decoder.log_cells(points)[0] * toward).sum())
        parameters[index] = before
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(gradient[index], rel=1e-4, abs=1e-7)


def test_mixture_is_its_circuit_and_beats_one_tree():
    rng = np.random.default_rng(2)
    position = rng.random((800, 1))
    rows = (rng.random((800, 6)) < np.where(np.arange(6) < 3, position, 1 - position)).astype(int)
    layout = StateLayout([2] * 6)
    *_, last = learn_continuous_mixture(
        rows,
        np.zeros(rows.shape, dtype=bool),
        layout,
        20,
        rng,
        sample_weight=np.ones(800),
        schedule=ContinuousSchedule(
            n_hidden_units=16, learning_rate=0.01, batch_size=64, n_epochs=8
        ),
    )
    assert last.converged
    every = np.array(list(itertools.product(*[range(2)] * 6)))
    mixture = last.mixture.in_double_precision()
    log_prob = mixture.log_prob(every)
    assert np.exp(log_prob).sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(
        mixture.circuit().log_prob(every.astype(float)), log_prob, atol=1e-12
    )
    assert mixture.log_prob(rows).mean() > chow_liu_tree(rows, layout).log_prob(rows).mean() + 0.05


def test_incomplete_rows_are_summed_as_by_the_circuit(features):
    rng = np.random.default_rng(3)
    decoder = Decoder.drawn(features, rng.normal(size=features.n_cells), [2, 4, 4], rng)
    mixture = ContinuousMixture(decoder, rng.normal(size=(2, 7))).in_double_precision()
    codes = every_row()
    codes[rng.random(codes.shape) < 0.4] = -1
    codes[0] = -1
    rows = np.where(codes < 0, np.nan, codes)
    found = mixture.log_prob(codes)
    np.testing.assert_allclose(found, mixture.circuit().log_prob(rows), atol=1e-12)
    assert found[0] == pytest.approx(0, abs=1e-12)
    assert mixture.log_prob(codes[:0]).shape == (0,)


def test_memory_of_incomplete_rows_is_bounded(features, monkeypatch):
    rng = np.random.default_rng(0)
    decoder = Decoder.drawn(features, np.zeros(features.n_cells), [2, 4], rng)
    mixture = ContinuousMixture(decoder, rng.normal(size=(2, 6)))
    codes = np.full((9, features.layout.n_variables), -1)
    codes[:, 0] = np.arange(9) % features.layout.cardinalities[0]
    expected = mixture.log_prob(codes)
    sizes = []
    evidence = ContinuousMixture._log_evidence

    def spy(self, rows, cells):
        sizes.append(len(rows))
        return evidence(self, rows, cells)

    monkeypatch.setattr(ContinuousMixture, "_log_evidence", spy)
    monkeypatch.setattr(_continuous_mixture, "_CELLS_AT_ONCE", 12)
    np.testing.assert_allclose(mixture.log_prob(codes), expected, rtol=1e-12)
    assert sum(sizes) == 9 and max(sizes) <= 2


def test_rows_that_a_mixture_rules_out_keep_their_completions():
    codes = np.array([[0, 0], [1, 0], [1, 0]])
    missing = np.array([[False, True], [False, True], [False, False]])
    circuit = Circuit(Bernoulli(0, 0.0) * Bernoulli(1, 1.0))
    drawn = _drawn_again(circuit, codes, missing, np.random.default_rng(0))
    assert drawn.tolist() == [[0, 1], [1, 0], [1, 0]]


def test_dependence_given_one_component_is_that_of_the_rows():
    # All components are the product of the marginals: nothing is explained
    rng = np.random.default_rng(4)
    layout = StateLayout([2, 3, 2])
    codes = rng.integers(layout.cardinalities, size=(300, 3))
    codes[:, 1] = np.where(rng.random(300) < 0.5, codes[:, 0] + codes[:, 2], codes[:, 1])
    weight = rng.random(300)
    shares = layout.state_counts(codes, weight) / weight.sum()
    features = TreeFeatures(layout, np.array([1, -1, 1]))
    cells = np.concatenate([np.tile(shares[:2], 3), shares[2:5], np.tile(shares[5:], 3)])
    decoder = Decoder.drawn(features, np.log(cells), [2, 4], rng).copy(np.float64)
    decoder.layers[0][0][...] = 0.0
    mixture = ContinuousMixture(decoder, rng.normal(size=(2, 5)))
    found = mixture.dependence(codes, weight, 1e-12)
    centred = (layout.one_hot(codes) - shares) * np.sqrt(weight)[:, None]
    bases = [np.linalg.qr(centred[:, own])[0] for own in ([1], [3, 4], [6])]
    for i, j in itertools.permutations(range(3), 2):
        cosines = np.linalg.svd(bases[i].T @ bases[j], compute_uv=False)
        assert found[i, j] == pytest.approx((cosines**2).sum(), rel=1e-6)
    np.testing.assert_array_equal(np.diag(found), 0.0)


def test_conditional_tree_connects_what_common_causes_do_not_explain():
    # All columns follow one number. The last two follow it less, and are dependent given it, but
    # less than each of the two is on the others
    rng = np.random.default_rng(5)
    position = rng.random((6000, 1))
    numbers = rng.random((6000, 12))
    numbers[:, 11] = np.where(rng.random(6000) < 0.075, numbers[:, 10], numbers[:, 11])
    slopes = np.repeat([1.0, 0.4], [10, 2])
    rows = (numbers < 0.5 + slopes * (position - 0.5)).astype(int)
    assert 11 not in neighbours(10, chow_liu_tree(rows, StateLayout([2] * 12)).parents)
    schedule = ContinuousSchedule(
        n_hidden_units=16,
        learning_rate=0.01,
        batch_size=200,
        n_epochs=12,
        n_points=64,
        is_conditional=True,
    )
    *_, last = learn_continuous_mixture(
        rows,
        np.zeros(rows.shape, dtype=bool),
        StateLayout([2] * 12),
        64,
        rng,
        sample_weight=np.ones(len(rows)),
        schedule=schedule,
    )
    assert 11 in neighbours(10, last.mixture.features.parents)


def neighbours(vertex, parents):
    return {*np.flatnonzero(parents == vertex).tolist(), int(parents[vertex])}
