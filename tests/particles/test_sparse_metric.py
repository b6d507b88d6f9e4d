import warnings

import numpy as np
import pytest
from scipy import sparse

from skcircuits import GraphicalSVGDSampler
from skcircuits.graphical import GaussianMRF
from skcircuits.particles._diagnosis import LOOKS, N_TUNED, diagnose
from skcircuits.particles._metric import HessianProbe, SparseMetric, fit_sparse_metric
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._problem import SVGDProblem


def chain_precision(n):
    return sparse.diags_array(
        [-np.ones(n - 1), np.full(n, 2.01), -np.ones(n - 1)], offsets=(-1, 0, 1)
    )


def grid_precision(side):
    path = sparse.diags_array([np.ones(side - 1)] * 2, offsets=(-1, 1))
    links = sparse.kron(path, sparse.eye_array(side)) + sparse.kron(sparse.eye_array(side), path)
    return sparse.csr_array(sparse.diags_array(links.sum(axis=1) + 0.1) - links)


def shuffled(precision, seed=0):
    order = np.random.default_rng(seed).permutation(precision.shape[0])
    return sparse.csr_array(precision)[order][:, order]


@pytest.mark.parametrize(
    "precision",
    [shuffled(chain_precision(30)), shuffled(grid_precision(6)), sparse.csr_array(np.eye(3))],
    ids=["chain", "grid", "independent"],
)
def test_operations_are_those_of_the_dense_covariance(precision):
    metric = SparseMetric.of_precision(sparse.csr_array(precision))
    covariance = np.linalg.inv(precision.toarray())
    root = metric.stretch(np.eye(len(covariance)))
    np.testing.assert_allclose(root.T @ root, covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(metric.pull(np.eye(len(covariance))), root.T, atol=1e-12)
    rows = np.random.default_rng(0).normal(size=(4, len(covariance)))
    np.testing.assert_allclose(metric.smooth(rows), rows @ covariance, atol=1e-9)
    np.testing.assert_allclose(metric.variances, np.diag(covariance), rtol=1e-9)


def test_what_is_not_positive_definite_has_no_factor():
    assert SparseMetric.of_precision(sparse.csr_array(np.diag([1.0, -1.0]))) is None


def test_collapsed_particles_of_a_long_chain_are_mended():
    field = GaussianMRF(chain_precision(1500), np.ones(1500))
    probe = HessianProbe(field.grad_log_prob, Neighborhoods.from_graph(field.neighbors))
    rng = np.random.default_rng(0)
    particles = 0.1 * rng.normal(size=(30, 1500))
    metric = fit_sparse_metric(field.grad_log_prob, probe, particles, rng)
    arguments = field.grad_log_prob, particles, metric, rng
    found = diagnose(*arguments, log_prob=field.log_prob_unnormalized)
    assert found.wrong.all() and not found.unmixed.any()
    mended = found.corrected()
    np.testing.assert_allclose(mended.mean(axis=0), field.mean_, rtol=1e-3)
    np.testing.assert_allclose(mended.var(axis=0), metric.variances, rtol=1e-3)


def test_long_gaussian_chains_need_no_markov_chains(monkeypatch):
    monkeypatch.setattr("skcircuits.particles._problem.diagnose", None)
    field = GaussianMRF(chain_precision(1100), np.ones(1100))
    problem = SVGDProblem(field, 1100, neighbors=field.neighbors)
    particles = 0.1 * np.random.default_rng(0).normal(size=(30, 1100)) + 3.0
    found = problem.diagnose(particles, None, is_thorough=True)
    variances = np.diag(np.linalg.inv(chain_precision(1100).toarray()))
    np.testing.assert_allclose(found.variance_ratio, particles.var(axis=0) / variances, rtol=1e-6)
    shift = np.abs(particles.mean(axis=0) - field.mean_) / np.sqrt(variances)
    np.testing.assert_allclose(np.abs(found.shift), shift, rtol=1e-6, atol=1e-9)
    assert found.wrong.all()


def test_borderline_variances_of_known_targets_are_looked_at_once():
    field = GaussianMRF(chain_precision(1500), np.ones(1500))
    calls = []

    def score(X):
        calls.append(len(X))
        return field.grad_log_prob(X)

    probe = HessianProbe(field.grad_log_prob, Neighborhoods.from_graph(field.neighbors))
    rng = np.random.default_rng(0)
    # A hundred draws: their variances are off by up to half, by every amount below it.
    particles = field.sample(100, random_state=0)
    metric = fit_sparse_metric(field.grad_log_prob, probe, particles, rng)
    found = diagnose(score, particles, metric, rng, log_prob=field.log_prob_unnormalized)
    excess = np.abs(np.log(found.variance_ratio))
    assert ((excess > np.log(1.15)) & ~found.wrong).any()
    # One warm-up and the first look: another one would not tell more.
    n_leaps = 15
    assert len(calls) <= (N_TUNED + LOOKS[0]) * n_leaps + 1


def test_bends_are_averaged():
    """exp(3 x - e^x): under its Gaussian the mean of e^x is 3, at the mode as well."""
    graph = Neighborhoods.from_graph([[]] * 50)
    probe = HessianProbe(lambda X: 3.0 - np.exp(X), graph)
    start = np.random.default_rng(0).normal(3.0, 1.0, size=(20, 50))
    metric = fit_sparse_metric(lambda X: 3.0 - np.exp(X), probe, start, np.random.default_rng(0))
    np.testing.assert_allclose(metric.variances.mean(), 1.0 / 3.0, rtol=0.1)


class Wells:
    """A chain whose nodes have two modes each."""

    def __init__(self, n):
        self.neighbors = [[j for j in (i - 1, i + 1) if 0 <= j < n] for i in range(n)]

    def grad_log_prob(self, X):
        drift = 4.0 * X * (1.0 - X**2)
        drift[:, 1:] += 0.1 * (X[:, :-1] - X[:, 1:])
        drift[:, :-1] += 0.1 * (X[:, 1:] - X[:, :-1])
        return drift


def test_particles_of_a_long_chain_start_from_its_gaussian_where_there_is_one_mode():
    field = GaussianMRF(chain_precision(1200), np.full(1200, 0.05))
    start = np.random.default_rng(0).normal(size=(40, 1200))
    options = {"correction": False, "max_iter": 6, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        near = GraphicalSVGDSampler(target=field, **options).fit(start)
    deviations = np.sqrt(
        SparseMetric.of_precision(sparse.csr_array(chain_precision(1200))).variances
    )
    assert np.abs((near.particles_.mean(axis=0) - field.mean_) / deviations).max() < 0.5
    assert abs(np.median(near.particles_.std(axis=0) / deviations) - 1.0) < 0.1
    assert near.preconditioner_ is None


def test_a_target_of_several_modes_keeps_its_starting_particles():
    start = np.random.default_rng(0).normal(size=(30, 1100))
    problem = SVGDProblem(Wells(1100), 1100, neighbors=Wells(1100).neighbors)
    assert problem.find_sparse_metric(start, np.random.default_rng(0)) is None
