import numpy as np
import pytest

from skcircuits.graphical import GaussianMRF
from skcircuits.particles._diagnosis import nodes_outside_blankets
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._problem import SVGDProblem
from skcircuits.particles._steps import StepSchedule, coordinate_discrepancies
from skcircuits.particles.directions import centred_rows, median_bandwidths, row_scales


class AnyNormal:
    def grad_log_prob(self, X):
        return -X


def test_rows_are_centred_and_end_with_zeros():
    coordinates = np.random.default_rng(0).normal(1e6, 1.0, (3, 50))
    rows = centred_rows(coordinates)
    np.testing.assert_allclose(rows[:3], coordinates - coordinates.mean(axis=1, keepdims=True))
    np.testing.assert_array_equal(rows[3], 0.0)
    np.testing.assert_allclose(row_scales(rows[:3]), coordinates.std(axis=1), rtol=1e-9)
    again = np.ones((4, 50))
    assert centred_rows(coordinates, out=again) is again
    np.testing.assert_array_equal(again, rows)


@pytest.mark.parametrize("blocks", [None, [[0, 2], [1], [3]]])
def test_without_a_graph_everyone_is_a_neighbor(blocks):
    problem = SVGDProblem(AnyNormal(), 4, blocks=blocks)
    assert problem.graph.n_kernels == 1
    assert problem.graph.n_nodes == (4 if blocks is None else 3)
    neighbors = [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    complete = SVGDProblem(
        AnyNormal(), 4, neighbors=neighbors if blocks is None else None, blocks=blocks
    )
    start = np.random.default_rng(0).normal(size=(9, 4))
    for one, other in zip(problem.steps(start, 0), complete.steps(start, 0)):
        np.testing.assert_array_equal(one.particles, other.particles)
        if one.n_iter == 3:
            break


@pytest.mark.parametrize("kernel", ["random", "combine"])
def test_random_scopes_without_a_graph(kernel):
    problem = SVGDProblem(AnyNormal(), 6, kernel=kernel, n_neighbors=2)
    state = next(problem.steps(np.random.default_rng(0).normal(size=(9, 6)), 0))
    assert state.particles.shape == (9, 6) and np.all(np.isfinite(state.particles))


def test_measuring_is_the_discrepancy_under_median_bandwidths():
    field = GaussianMRF([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 1.0]], [0.0, 1.0, 0.0])
    particles = field.sample(40, random_state=0)
    problem = SVGDProblem(field, 3, neighbors=field.neighbors, bandwidth_factor=2.0)
    per_node, bandwidths = problem.measure(particles)
    rows = centred_rows(np.ascontiguousarray(particles.T))
    graph = Neighborhoods.from_graph(field.neighbors)
    expected = median_bandwidths(rows, graph)
    np.testing.assert_allclose(bandwidths, expected[graph.kernel_of_node])
    scores = np.ascontiguousarray(field.grad_log_prob(particles).T)
    per_coordinate = coordinate_discrepancies(rows, scores, graph, expected)
    np.testing.assert_allclose(per_node, graph.sum_by_node(per_coordinate))
    single, _ = problem.measure(particles.astype(np.float32))
    np.testing.assert_allclose(single, per_node, rtol=1e-4)


def test_the_discrepancy_falls_with_more_exact_draws():
    field = GaussianMRF(np.eye(5), np.zeros(5))
    problem = SVGDProblem(field, 5, neighbors=field.neighbors)
    totals = [problem.measure(field.sample(n, random_state=0))[0].sum() for n in (10, 100, 1000)]
    assert totals[0] > 3 * totals[1] > 9 * totals[2]


def test_particles_beat_exact_draws():
    links = np.eye(20, k=1) + np.eye(20, k=-1)
    field = GaussianMRF(1.2 * np.eye(20) + 0.5 * links, np.ones(20))
    problem = SVGDProblem(field, 20, neighbors=field.neighbors, linear_weight=0.1)
    *_, last = problem.steps(np.random.default_rng(0).normal(size=(50, 20)), 0)
    draws = field.sample(50, random_state=0)
    assert field.mmd2(last.particles, 20.0) < 0.8 * field.mmd2(draws, 20.0)
    second_moment = np.diag(field.covariance_) + field.mean_**2

    def error(sample):
        return np.mean(((sample**2).mean(axis=0) - second_moment) ** 2)

    assert error(last.particles) < 0.1 * error(draws)


def test_dense_dependence_is_found_by_the_probes():
    precision = 30 * np.eye(30) + 1.0  # everyone depends on everyone, the graph says no one does
    lonely = Neighborhoods.from_graph([[]] * 30)
    X = np.random.default_rng(0).normal(size=(4, 30))
    found = nodes_outside_blankets(lambda x: -x @ precision, lonely, X, np.random.default_rng(1))
    np.testing.assert_array_equal(found, np.arange(30))


def test_right_graphs_have_no_violations():
    graph = Neighborhoods.from_graph([[1], [0], [3], [2]], blocks=[[0], [1, 4], [2], [3]])
    score = AnyNormal().grad_log_prob
    X = np.random.default_rng(0).normal(size=(1, 5))
    assert nodes_outside_blankets(score, graph, X, np.random.default_rng(0)).size == 0


def test_blocks_and_batches_change_nothing(monkeypatch):
    """Runs that hold a part of the coordinates at a time are those that hold all of them."""
    d, rng = 40, np.random.default_rng(0)
    neighbors = [
        [j for j in (i - 1, i + 1, (i * 7) % d) if 0 <= j < d and j != i] for i in range(d)
    ]
    start = rng.normal(size=(12, d)).astype(np.float32)

    class Chain:
        def grad_log_prob(self, X):
            scores = -2.0 * X
            scores[:, 1:] += 0.9 * X[:, :-1]
            scores[:, :-1] += 0.9 * X[:, 1:]
            return scores

    def run():
        schedule = StepSchedule(max_iter=20)
        problem = SVGDProblem(Chain(), d, neighbors=neighbors, linear_weight=0.1, schedule=schedule)
        *_, last = problem.steps(start, 0)
        return last.particles, last.discrepancy, *problem.measure(last.particles)

    whole = run()
    monkeypatch.setattr("skcircuits.particles._steps.BLOCK_BYTES", 8 * 12 * 3)
    monkeypatch.setattr("skcircuits.particles._steps.BATCH_BYTES", 4 * d * 5)
    monkeypatch.setattr("skcircuits.particles._steps.PART_BYTES", 4 * 12 * 7)
    for ours, theirs in zip(run(), whole):
        np.testing.assert_array_equal(ours, theirs)


class NormalButOne:
    """A normal chain beside a logistic variable, whose moments are unknown to a Gaussian."""

    def __init__(self, field, is_normal):
        self.field, self.is_normal = field, is_normal
        self.neighbors = [*field.neighbors, []]

    def grad_log_prob(self, X):
        last = X[:, -1:]
        return np.hstack(
            [self.field.grad_log_prob(X[:, :-1]), -last if self.is_normal else -np.tanh(last / 2)]
        )


@pytest.mark.parametrize("is_normal", [True, False])
@pytest.mark.parametrize("n_particles", [3, 40])
def test_particles_of_gaussian_targets_are_compared_with_exact_moments(is_normal, n_particles):
    precision = 2 * np.eye(40) - np.eye(40, k=1) - np.eye(40, k=-1)
    field = GaussianMRF(precision, precision @ np.linspace(-5.0, 5.0, 40))
    target = NormalButOne(field, is_normal)
    problem = SVGDProblem(target, 41, neighbors=target.neighbors)
    particles = 3.0 + np.random.default_rng(0).normal(size=(n_particles, 41))
    found = problem.diagnose_without_chains(particles, None)
    if not is_normal:
        assert found is None
        return
    variance = [*np.diag(field.covariance_), 1.0]
    np.testing.assert_allclose(found.moments.mean, [*field.mean_, 0.0], atol=1e-6)
    np.testing.assert_allclose(found.moments.variance, variance, rtol=1e-6)
    assert (found.shift_error == 0).all()
