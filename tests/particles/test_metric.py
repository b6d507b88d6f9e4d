import numpy as np
import pytest
from scipy import sparse

from skcircuits.graphical import GaussianMRF
from skcircuits.particles._diagnosis import diagnose
from skcircuits.particles._metric import (
    HessianProbe,
    Metric,
    TransformedTarget,
    colour_columns,
    fit_metric,
)
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._problem import SVGDProblem
from skcircuits.particles._steps import (
    MANY_COORDINATES,
    TIE,
    StepSchedule,
    dependence_graph,
    total_discrepancy,
)


def laplacian_chain(n):
    precision = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    return GaussianMRF(precision, precision @ np.full(n, 5.0))


class FourModes:
    centers = 3.0 * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])

    def grad_log_prob(self, X):
        towards = self.centers - X[:, None]
        weights = np.exp(-0.5 * (towards**2).sum(axis=2))
        return (weights[..., None] * towards).sum(axis=1) / weights.sum(axis=1, keepdims=True)


class Skewed:
    """exp(3 x - e^x) in every coordinate: the log of a gamma variable."""

    def grad_log_prob(self, X):
        return 3.0 - np.exp(X)


def transformed(target, start):
    probe = probe_of(target, start.shape[1])
    return TransformedTarget(target.grad_log_prob, probe, Metric.of_particles(start))


def probe_of(target, d):
    neighbors = getattr(target, "neighbors", None)
    graph = Neighborhoods.from_graph(neighbors) if neighbors else Neighborhoods.complete(d)
    return HessianProbe(target.grad_log_prob, graph)


@pytest.mark.parametrize("n", [1, 2, 30])
def test_columns_of_one_colour_share_no_row(n):
    adjacency = sparse.csr_array(np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1))
    colours = colour_columns(adjacency)
    assert colours.max() + 1 == min(n, 3)
    dense = adjacency.toarray() > 0
    for colour in range(colours.max() + 1):
        assert dense[:, colours == colour].sum(axis=1).max() <= 1


def test_three_differences_give_the_hessian_of_a_chain():
    chain = laplacian_chain(20)
    rows = []

    def score(X):
        rows.append(len(X))
        return chain.grad_log_prob(X)

    probe = HessianProbe(score, Neighborhoods.from_graph(chain.neighbors))
    scales = np.geomspace(1e-3, 1e3, 20)
    found = probe.mean(np.random.default_rng(0).normal(size=(2, 20)), scales)
    # Steps of 1e-5 of very small units leave few digits.
    np.testing.assert_allclose(found, chain.precision, atol=1e-4)
    assert rows == [3] * 4


def test_blocks_and_graphless_targets():
    precision = np.array([[2.0, 0.5, 0.3, 0.0], [0.5, 2, 0, 0], [0.3, 0, 2, 0.4], [0, 0, 0.4, 2]])
    graph = Neighborhoods.from_graph([[1], [0]], blocks=[[0, 1], [2, 3]])
    for probe in (graph, Neighborhoods.complete(4)):
        found = HessianProbe(lambda X: -X @ precision, probe).mean(np.ones((1, 4)), np.ones(4))
        np.testing.assert_allclose(found, precision, atol=1e-8)


def test_the_metric_of_a_gaussian_is_its_precision():
    chain = laplacian_chain(30)
    start = np.random.default_rng(0).normal(size=(50, 30))
    metric = fit_metric(chain.grad_log_prob, probe_of(chain, 30), start, np.random.default_rng(1))
    np.testing.assert_allclose(metric.center, 5.0, atol=0.05)
    np.testing.assert_allclose(np.linalg.inv(metric.precision), chain.covariance_, rtol=0.1)
    np.testing.assert_allclose(metric.inverse_transform(metric.transform(start)), start)


def test_the_metric_of_a_skewed_target_averages_its_curvature():
    target = Skewed()
    start = np.zeros((20, 3)) + np.linspace(-1, 1, 20)[:, None]
    metric = fit_metric(target.grad_log_prob, probe_of(target, 3), start, np.random.default_rng(0))
    # E[e^x] = 3 under N(m, 1/3): the curvature is 3, the mean log 3 - 1/6 (the mode is log 3).
    np.testing.assert_allclose(np.diag(np.linalg.inv(metric.precision)), 1 / 3, rtol=0.3)
    np.testing.assert_allclose(metric.center, np.log(3) - 1 / 6, atol=0.15)


def test_several_modes_are_found():
    target = FourModes()
    start = np.random.default_rng(0).normal(size=(60, 2)) * 3
    assert transformed(target, start).has_several_modes(start)
    assert not transformed(Skewed(), start / 3).has_several_modes(start / 3)


def test_no_metric_where_scores_are_not_finite():
    start = np.random.default_rng(0).normal(size=(30, 2))
    score = lambda X: np.full_like(X, np.nan)  # noqa: E731
    probe = HessianProbe(score, Neighborhoods.complete(2))
    assert fit_metric(score, probe, start, np.random.default_rng(0)) is None


def test_few_particles_shrink_their_covariance():
    particles = np.random.default_rng(0).normal(size=(5, 20)) * np.arange(1, 21)
    particles[:, 3] = 7.0
    metric = Metric.of_particles(particles)
    assert np.linalg.eigvalsh(np.linalg.inv(metric.precision))[0] > 0
    np.testing.assert_allclose(
        np.delete(np.diag(np.linalg.inv(metric.precision)), 3),
        np.delete(particles.var(axis=0), 3),
        rtol=1e-6,
    )


def test_dependence_is_read_off_the_hessians():
    chain = laplacian_chain(6)
    probe = HessianProbe(chain.grad_log_prob, Neighborhoods.complete(6))
    metric = Metric.of_precision(chain.mean_, chain.precision)
    graph = dependence_graph(probe, metric, np.random.default_rng(0).normal(size=(5, 6)))
    assert (
        graph.scope_sizes.tolist() == Neighborhoods.from_graph(chain.neighbors).scope_sizes.tolist()
    )


def test_preconditioned_steps_stop_by_themselves_and_keep_the_best():
    chain = laplacian_chain(30)
    problem = SVGDProblem(
        chain, 30, neighbors=chain.neighbors, linear_weight=0.1, schedule=StepSchedule(tol=1e-6)
    )
    start = np.random.default_rng(0).normal(size=(60, 30))
    metric = problem.find_metric(start, np.random.default_rng(0))
    states = list(problem.steps(start, 0, metric=metric))
    settled = next(state for state in states if state.converged)
    assert settled.n_iter < 200
    ratio = settled.particles.var(axis=0) / np.diag(chain.covariance_)
    assert ratio.min() > 0.85 and ratio.max() < 1.15
    kept = np.array([state.discrepancy for state in states])
    assert (kept <= (1.0 + TIE) * np.minimum.accumulate(kept)).all()
    measured = problem.measure(settled.particles)[0].sum()
    np.testing.assert_allclose(settled.discrepancy, measured, rtol=1e-9)
    with pytest.raises(ValueError, match="read-only"):
        settled.particles[0] = 0.0


@pytest.mark.parametrize(("n", "every"), [(30, 5), (MANY_COORDINATES, 10)])
def test_discrepancies_of_many_coordinates_are_measured_half_as_often(monkeypatch, n, every):
    chain, measured = laplacian_chain(n), []

    def measure(*arguments):
        measured.append(total_discrepancy(*arguments))
        return measured[-1]

    monkeypatch.setattr("skcircuits.particles._problem.total_discrepancy", measure)
    problem = SVGDProblem(chain, n, neighbors=chain.neighbors, schedule=StepSchedule(max_iter=41))
    start = np.random.default_rng(0).normal(size=(20, n))
    metric = Metric.of_precision(chain.mean_, 4.0 * chain.precision)  # too narrow
    for state, _ in zip(problem.steps(start, 0, metric=metric), range(41)):
        assert len(measured) == 1 + (state.n_iter - 1) // every
    assert not state.converged and state.discrepancy in measured


def test_steps_that_lead_away_are_taken_back():
    # A step of 3 overshoots for a curvature of 1: plain gradients then run away.
    schedule = StepSchedule(step_size=3.0, max_iter=60)
    problem = SVGDProblem(
        GaussianMRF(np.eye(2), np.zeros(2)),
        2,
        optimizer="sgd",
        linear_weight=1.0,
        schedule=schedule,
    )
    start = np.random.default_rng(0).normal(size=(30, 2))
    *_, last = problem.steps(start, 0)
    assert np.abs(last.particles).max() < 10
    assert last.discrepancy < problem.measure(start)[0].sum() * 2


def test_diagnosis_of_good_and_bad_particles():
    chain = laplacian_chain(12)
    metric = Metric.of_precision(chain.mean_, chain.precision)
    draws = chain.sample(200, random_state=0)

    def faults(particles, with_metric=True):
        rng = np.random.default_rng(0)
        found = diagnose(chain.grad_log_prob, particles, metric if with_metric else None, rng)
        return found.faults()

    assert faults(draws) == []
    shifted = faults(draws + 2 * np.sqrt(np.diag(chain.covariance_)))
    assert len(shifted) == 1 and "means" in shifted[0] and "(12 of them)" in shifted[0]
    narrow = faults(chain.mean_ + 0.5 * (draws - chain.mean_))
    assert len(narrow) == 1 and "too small" in narrow[0]
    wide = faults(chain.mean_ + 2 * (draws - chain.mean_))
    # The draws' own means, two standard errors off, are off by as many standard deviations now.
    assert "too large, by about 4" in wide[-1] and all("means" in fault for fault in wide[:-1])
    exact = diagnose(chain.grad_log_prob, draws, metric, np.random.default_rng(0))
    np.testing.assert_allclose(exact.variance_ratio, draws.var(axis=0) / np.diag(chain.covariance_))
    np.testing.assert_allclose(
        np.abs(exact.shift),
        np.abs(draws.mean(axis=0) - chain.mean_) / np.sqrt(np.diag(chain.covariance_)),
    )
    assert faults(chain.mean_ + 0.3 * (draws - chain.mean_), with_metric=False)
