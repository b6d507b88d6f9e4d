import numpy as np
import pytest

from skcircuits import BBISWeighter, GraphicalSVGDSampler
from skcircuits.targets import from_function, from_jax, from_numpyro, from_torch

PRECISION = np.array([[2.0, -0.9, 0.0], [-0.9, 2.0, -0.9], [0.0, -0.9, 2.0]])
NEIGHBORS = [[1], [0, 2], [1]]
X = np.random.default_rng(0).normal(size=(40, 3))


def log_prob(rows):
    return -0.5 * np.einsum("ni,ij,nj->n", rows, PRECISION, rows)


def by_hand():
    return from_function(log_prob, lambda rows: -rows @ PRECISION, neighbors=NEIGHBORS)


def by_differences():
    return from_function(log_prob, finite_differences=True)


def by_jax():
    pytest.importorskip("jax")
    return from_jax(lambda x: -0.5 * x @ PRECISION @ x, neighbors=NEIGHBORS)


def by_torch():
    torch = pytest.importorskip("torch")
    precision = torch.as_tensor(PRECISION)
    return from_torch(lambda x: -0.5 * ((x @ precision) * x).sum(dim=1))


@pytest.mark.parametrize("make", [by_hand, by_differences, by_jax, by_torch])
def test_gradients_are_those_of_the_density(make):
    target = make()
    np.testing.assert_allclose(target.log_prob_unnormalized(X), log_prob(X), rtol=1e-12)
    np.testing.assert_allclose(target.grad_log_prob(X), -X @ PRECISION, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("make", [by_hand, by_jax, by_torch])
def test_samplers_take_them(make):
    target = make()
    sampler = GraphicalSVGDSampler(target=target, random_state=0).fit(X)
    variances = np.diag(np.linalg.inv(PRECISION))
    np.testing.assert_allclose(sampler.particles_.var(axis=0) / variances, 1.0, atol=0.1)
    samples = np.random.default_rng(0).normal(size=(200, 3))
    weighter = BBISWeighter(target=target).fit(samples)
    covariance = np.linalg.inv(PRECISION)[0, 1]
    weighted = weighter.expectation(lambda rows: rows[:, 0] * rows[:, 1])
    plain = (samples[:, 0] * samples[:, 1]).mean()
    assert abs(weighted - covariance) < 0.5 * abs(plain - covariance)


def test_a_gradient_is_not_made_up():
    with pytest.raises(ValueError, match="finite_differences=True"):
        from_function(log_prob)
    with pytest.raises(ValueError, match=r"gradient must have shape \(40, 3\)"):
        from_function(log_prob, lambda rows: rows[0]).grad_log_prob(X)


def test_sites_of_a_numpyro_model_come_back_constrained():
    numpyro = pytest.importorskip("numpyro")
    distributions = pytest.importorskip("numpyro.distributions")
    data = np.random.default_rng(1).normal(3.0, 2.0, size=50)

    def model(y):
        mean = numpyro.sample("mean", distributions.Normal(0.0, 10.0))
        scale = numpyro.sample("scale", distributions.HalfNormal(5.0))
        numpyro.sample("y", distributions.Normal(mean, scale), obs=y)

    target = from_numpyro(model, data)
    start = target.draw_start(100, np.random.default_rng(0))
    sampler = GraphicalSVGDSampler(target=target, random_state=0).fit(start)
    sites = target.to_sites(sampler.particles_)
    assert set(sites) >= {"mean", "scale"} and (sites["scale"] > 0).all()
    assert abs(sites["mean"].mean() - data.mean()) < 0.1
    assert abs(sites["scale"].mean() - data.std()) < 0.15
    np.testing.assert_allclose(sites["mean"].std(), data.std() / np.sqrt(50), rtol=0.15)
