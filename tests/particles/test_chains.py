import numpy as np
import pytest

from skcircuits.graphical import GaussianMRF
from skcircuits.particles._diagnosis import Chains, Diagnosis, Moments, diagnose
from skcircuits.particles._metric import DiagonalMetric, Metric


class Skewed:
    """exp(3 x - e^x) in every coordinate: logs of gamma variables, means ψ(3), variances ψ'(3)."""

    def log_prob(self, X):
        return (3.0 * X - np.exp(X)).sum(axis=1)

    def score(self, X):
        return 3.0 - np.exp(X)


MEAN, VARIANCE = 0.9227843350984671, 0.3949340668482264


def skewed_chains(with_density, seed=0):
    rng = np.random.default_rng(seed)
    start = rng.normal(size=(100, 4))
    log_prob = Skewed().log_prob if with_density else None
    chains = Chains(Skewed().score, log_prob, start, DiagonalMetric(np.ones(4)), rng)
    chains.warm_up(20)
    chains.learn_metric(20)
    return chains


@pytest.mark.parametrize("with_density", [True, False])
def test_moments_agree_with_the_truth_within_their_errors(with_density):
    found = skewed_chains(with_density).moments(100)
    assert (np.abs(found.mean - MEAN) < 4 * found.mean_error).all()
    assert (np.abs(found.variance - VARIANCE) < 4 * found.variance_error).all()
    assert found.mean_error.max() < 0.02 and found.variance_error.max() < 0.02


def test_errors_are_those_between_seeds():
    found = [skewed_chains(True, seed).moments(40) for seed in range(12)]
    for value, error in (("mean", "mean_error"), ("variance", "variance_error")):
        spread = np.std([getattr(moments, value) for moments in found], axis=0).mean()
        told = np.mean([getattr(moments, error) for moments in found])
        assert 0.7 < told / spread < 1.4


def test_gaussian_moments_are_exact_where_the_metric_is():
    precision = 2 * np.eye(20) - np.eye(20, k=1) - np.eye(20, k=-1)
    field = GaussianMRF(precision, precision @ np.full(20, 5.0))
    rng = np.random.default_rng(0)
    chains = Chains(
        field.grad_log_prob,
        field.log_prob_unnormalized,
        rng.normal(size=(30, 20)),
        Metric.of_precision(field.mean_, field.precision),
        rng,
    )
    chains.warm_up(5)
    found = chains.moments(5)
    np.testing.assert_allclose(found.mean, field.mean_, rtol=1e-9)
    np.testing.assert_allclose(found.variance, np.diag(field.covariance_), rtol=1e-9)


def test_where_the_density_is_nothing_no_chain_goes():
    def log_prob(X):
        with np.errstate(invalid="ignore"):
            return np.where((X > 0).all(axis=1), -X.sum(axis=1), np.nan)

    rng = np.random.default_rng(0)
    start = rng.exponential(size=(200, 2))
    chains = Chains(lambda X: -np.ones_like(X), log_prob, start, DiagonalMetric(np.ones(2)), rng)
    chains.warm_up(20)
    found = chains.moments(200)
    assert (chains.states > 0).all()
    np.testing.assert_allclose(found.mean, 1.0, atol=0.1)


def test_corrected_particles_have_the_moments_found():
    rng = np.random.default_rng(0)
    collapsed = MEAN + 0.1 * rng.normal(size=(100, 4))
    found = diagnose(Skewed().score, collapsed, None, rng, log_prob=Skewed().log_prob)
    assert found.wrong.all() and not found.unmixed.any()
    corrected = found.corrected()
    np.testing.assert_allclose(corrected.mean(axis=0), found.moments.mean)
    np.testing.assert_allclose(corrected.var(axis=0), found.moments.variance)
    np.testing.assert_allclose(corrected.var(axis=0), VARIANCE, rtol=0.1)
    # Their shape is the target's: logs of gamma variables lean to the left.
    assert (((corrected - MEAN) ** 3).mean(axis=0) < 0).all()


def test_chains_that_do_not_mix_are_told():
    def score(X):  # two narrow modes, far apart
        return -(X - np.sign(X) * 5.0) / 0.01

    start = np.r_[np.full(15, -5.0), np.full(45, 5.0)][:, None] * np.ones((1, 2))
    start = start + 0.1 * np.random.default_rng(0).normal(size=start.shape)
    found = diagnose(score, start, None, np.random.default_rng(0), n_looks=1)
    assert found.unmixed.all()


def test_vague_moments_that_agree_with_the_particles_do_not_change_them():
    rng = np.random.default_rng(0)
    particles, states = rng.normal(size=(2, 30, 3))
    # The second variance is that of a chain far out in a tail; the third is wrong, and clearly so
    variance = particles.var(axis=0) * [1.0, 1.3, 4.0]
    moments = Moments(np.zeros(3), np.full(3, 0.05), variance, variance * [0.02, 0.5, 0.05])
    found = Diagnosis.of(particles, moments, states)
    corrected = found.corrected()
    np.testing.assert_array_equal(found.unmixed, [False, True, False])
    np.testing.assert_allclose(corrected.var(axis=0) / particles.var(axis=0), [1.0, 1.0, 4.0])
    np.testing.assert_allclose(
        corrected.mean(axis=0), [0.0, particles[:, 1].mean(), 0.0], atol=1e-12
    )
