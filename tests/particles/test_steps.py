from types import SimpleNamespace

import numpy as np
import pytest

from skcircuits.graphical import GaussianMRF
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._problem import SVGDProblem
from skcircuits.particles._steps import StepSchedule, total_discrepancy
from skcircuits.particles.directions import (
    RandomScopes,
    centred_rows,
    kernel_field,
    linear_direction,
    make_field,
)


@pytest.fixture
def chain():
    n = 8
    links = np.eye(n, k=1) + np.eye(n, k=-1)
    return GaussianMRF(1.5 * np.eye(n) - 0.5 * links, np.linspace(-1, 1, n))


def last_state(problem, start, seed=0, n_jobs=None):
    *_, last = problem.steps(start, seed, n_jobs)
    return last


def starts(n, d, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


@pytest.mark.parametrize("kernel", ["graphical", "global", "random", "combine"])
def test_every_kernel_finds_the_mean_of_a_chain(chain, kernel):
    problem = SVGDProblem(chain, 8, neighbors=chain.neighbors, kernel=kernel, linear_weight=0.1)
    last = last_state(problem, starts(40, 8))
    np.testing.assert_allclose(last.particles.mean(axis=0), chain.mean_, atol=0.03)
    ratio = last.particles.var(axis=0) / np.diag(chain.covariance_)
    assert 0.85 < ratio.mean() < 1.02


def test_the_linear_term_restores_the_variance_of_few_particles(chain):
    def ratio(weight):
        problem = SVGDProblem(chain, 8, neighbors=chain.neighbors, linear_weight=weight)
        last = last_state(problem, starts(12, 8))
        return np.mean(last.particles.var(axis=0) / np.diag(chain.covariance_))

    assert ratio(0.0) < 0.8 < ratio(0.1) < ratio(1.0) < 1.02


def test_one_particle_finds_the_mode(chain):
    last = last_state(
        SVGDProblem(chain, 8, neighbors=chain.neighbors, linear_weight=0.1), starts(1, 8)
    )
    np.testing.assert_allclose(last.particles[0], chain.mean_, atol=1e-3)


def test_blocks_move_as_one(chain):
    blocks = [[0, 1], [2, 3], [4, 5], [6, 7]]
    problem = SVGDProblem(
        chain, 8, neighbors=[[1], [0, 2], [1, 3], [2]], blocks=blocks, linear_weight=0.1
    )
    last = last_state(problem, starts(40, 8))
    np.testing.assert_allclose(last.particles.mean(axis=0), chain.mean_, atol=0.03)
    per_node, bandwidths = problem.measure(last.particles)
    assert per_node.shape == bandwidths.shape == (4,)
    assert 0 < per_node.sum() < 0.05


def test_threads_do_not_change_a_bit(chain):
    problem = SVGDProblem(
        chain,
        8,
        neighbors=chain.neighbors,
        kernel="random",
        linear_weight=0.1,
        schedule=StepSchedule(max_iter=30),
    )
    alone = last_state(problem, starts(30, 8))
    together = last_state(problem, starts(30, 8), n_jobs=2)
    np.testing.assert_array_equal(alone.particles, together.particles)


def test_single_precision_stays(chain):
    last = last_state(
        SVGDProblem(chain, 8, neighbors=chain.neighbors), starts(20, 8, dtype=np.float32)
    )
    assert last.particles.dtype == np.float32
    np.testing.assert_allclose(last.particles.mean(axis=0), chain.mean_, atol=0.03)


def test_starting_particles_are_not_changed(chain):
    start = np.asfortranarray(starts(10, 8))
    before = start.copy()
    last_state(SVGDProblem(chain, 8, schedule=StepSchedule(max_iter=3)), start)
    np.testing.assert_array_equal(start, before)


def test_states_never_change(chain):
    steps = SVGDProblem(chain, 8, schedule=StepSchedule(max_iter=3)).steps(starts(10, 8), 0)
    state = next(steps)
    before = state.particles.copy()
    list(steps)
    np.testing.assert_array_equal(state.particles, before)
    with pytest.raises(ValueError, match="read-only"):
        state.particles[0] = 0.0


def test_targets_may_write_into_their_argument(chain):
    def score(X):
        X -= chain.mean_
        X *= -1.0
        return X

    def last(grad_log_prob):
        target = SimpleNamespace(grad_log_prob=grad_log_prob)
        return last_state(SVGDProblem(target, 8, schedule=StepSchedule(max_iter=3)), starts(10, 8))

    expected = last(lambda X: chain.mean_ - X).particles
    np.testing.assert_array_equal(last(score).particles, expected)


def test_random_neighborhoods_depend_on_the_seed_only(chain):
    problem = SVGDProblem(
        chain, 8, kernel="random", n_neighbors=3, schedule=StepSchedule(max_iter=5)
    )
    start = starts(10, 8)
    one, same, other = (last_state(problem, start, seed).particles for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-3


def test_fields_add():
    rows = centred_rows(np.random.default_rng(0).normal(size=(4, 9)))
    scores = np.random.default_rng(1).normal(size=(4, 9))
    graph = Neighborhoods.from_graph([[1], [2], [3], []])
    total = kernel_field(graph)(rows, scores, 0) + 0.3 * linear_direction(rows, scores, graph)
    made = make_field("graphical", graph, linear_weight=0.3)(rows, scores, 0)
    np.testing.assert_allclose(made, total, rtol=1e-12)


def test_combine_divides_between_local_and_global(chain):
    rows = starts(9, 8).T.copy()
    scores = np.random.default_rng(1).normal(size=rows.shape)
    graph = Neighborhoods.from_graph(chain.neighbors)
    scopes = RandomScopes(chain.neighbors, n_neighbors=2, seed=0)
    local = make_field("random", graph, scopes)(rows, scores, 0)
    everywhere = make_field("global", graph)(rows, scores, 0)
    for weight in (0.0, 0.25, 1.0):
        field = make_field("combine", graph, scopes, local_weight=weight)
        np.testing.assert_allclose(
            field(rows, scores, 0), weight * local + (1 - weight) * everywhere, atol=1e-12
        )


@pytest.mark.parametrize("kernel", ["random", "combine", "laplace"])
def test_unknown_kernels_and_missing_scopes_are_refused(kernel):
    with pytest.raises(ValueError, match="kernel must be"):
        make_field(kernel, Neighborhoods.complete(2))


def test_bandwidths_are_measured_every_tenth_iteration():
    graph, scores = Neighborhoods.complete(2), np.ones((2, 5))
    field, rows = kernel_field(graph), centred_rows(np.random.default_rng(0).normal(size=(2, 5)))
    first = field(rows, scores, 0)
    wide = field(3 * rows, scores, 1)
    wide_measured = field(3 * rows, scores, 10)
    assert not np.allclose(wide, wide_measured)
    np.testing.assert_allclose(field(rows, scores, 20), first)


def test_the_schedule_shrinks_steps_and_raises_powers():
    schedule = StepSchedule(step_size=1.0, max_iter=10, annealing=0.5, tol=0.1)
    steps = [schedule.step(i) for i in range(10)]
    assert steps[:6] == [1.0] * 6
    np.testing.assert_allclose(np.diff(np.log(steps[5:])), np.log(0.01) / 4)
    powers = [schedule.power(i) for i in range(10)]
    assert powers[0] == 0.01 and powers[5:] == [1.0] * 5 and np.all(np.diff(powers[:6]) > 0)
    assert not schedule.settled(3, 0.05) and schedule.settled(5, 0.05)
    assert not StepSchedule(max_iter=10).settled(5, 0.05)
    assert StepSchedule(max_iter=10).settled(9, 0.05)


def test_force_falls_to_the_tolerance(chain):
    schedule = StepSchedule(step_size=1.0, max_iter=400, tol=0.02)
    problem = SVGDProblem(chain, 8, neighbors=chain.neighbors, optimizer="sgd", schedule=schedule)
    forces, settled = zip(*[(s.force, s.converged) for s in problem.steps(starts(50, 8), 0)])
    assert forces[0] > 0.2 and forces[-1] < 0.02
    assert settled[-1] and not settled[0]
    np.testing.assert_array_equal(np.array(forces) <= 0.02, settled)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_must_be_finite(value):
    def score(X):
        return np.where(X > 0, value, -X)

    target = SimpleNamespace(grad_log_prob=score)
    steps = SVGDProblem(target, 1).steps(np.array([[-1.0], [2.0]]), 0)
    with pytest.raises(ValueError, match=r"finite at every particle.*at=2\.0"):
        next(steps)


def test_scores_must_have_the_shape_of_the_particles():
    target = SimpleNamespace(grad_log_prob=lambda X: X[:, :1])
    steps = SVGDProblem(target, 2).steps(np.ones((3, 2)), 0)
    with pytest.raises(ValueError, match=r"array of shape \(3, 2\)"):
        next(steps)


def count_measurements(monkeypatch):
    """Give the discrepancies that are measured from now on, as they come."""
    measured = []

    def measure(*arguments):
        measured.append(total_discrepancy(*arguments))
        return measured[-1]

    monkeypatch.setattr("skcircuits.particles._steps.total_discrepancy", measure)
    return measured


@pytest.mark.parametrize("kernel", ["graphical", "global"])
def test_discrepancies_are_not_measured_while_the_force_falls(chain, monkeypatch, kernel):
    measured = count_measurements(monkeypatch)
    problem = SVGDProblem(
        chain, 8, neighbors=chain.neighbors, kernel=kernel, schedule=StepSchedule(max_iter=100)
    )
    states = list(problem.steps(starts(30, 8), 0))
    assert states[-1].force < states[0].force and not measured
    # They are those of the particles that the last look kept, before the step, measured once.
    assert states[0].discrepancy == np.inf
    expected = problem.measure(states[-2].particles)[0].sum()
    for _ in range(2):
        assert states[-1].discrepancy == pytest.approx(expected, rel=1e-12)
    assert len(measured) == 1


def test_steps_that_lead_away_are_taken_back_and_shortened(chain, monkeypatch):
    measured = count_measurements(monkeypatch)

    class Quake:
        """A chain whose scores are wrong for some iterations."""

        def __init__(self):
            self.n_calls = 0

        def grad_log_prob(self, X):
            self.n_calls += 1
            scores = chain.grad_log_prob(X)
            return -5.0 * scores if 41 < self.n_calls <= 49 else scores

    problem = SVGDProblem(
        Quake(), 8, neighbors=chain.neighbors, schedule=StepSchedule(max_iter=100)
    )
    states = list(problem.steps(starts(30, 8), 0))
    # The look at the 50th iteration goes back to the particles before the 40th step.
    np.testing.assert_array_equal(states[49].particles, states[38].particles)
    assert states[48].force > 2.0 * states[38].force
    assert measured[1] > 2.0 * measured[0]
    # From then on, every look measures.
    assert 3 <= len(measured) <= 7
    assert states[-1].discrepancy <= measured[0] * 1.02
