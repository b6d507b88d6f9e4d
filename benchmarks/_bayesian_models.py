"""Five posteriors in numpyro, and their score functions derived by hand.

Scores are with respect to the unconstrained coordinates: sites in alphabetical order, logarithms
of positive ones.
"""

from __future__ import annotations

import numpy as np
import numpyro
from jax import numpy as jnp
from numpyro import distributions as dist

# Effects of coaching and their standard errors (Rubin 1981).
EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(y, sigma):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(y)):
        eta = numpyro.sample("eta", dist.Normal(0.0, 1.0))
        theta = numpyro.deterministic("theta", mu + tau * eta)
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def logistic_regression(X, y):
    scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=scale * (X @ beta)), obs=y)


def stochastic_volatility(returns):
    sigma = numpyro.sample("sigma", dist.Exponential(10.0))
    level = numpyro.sample("level", dist.Normal(-1.0, 1.0))
    steps = numpyro.sample("steps", dist.Normal(0.0, 1.0).expand([len(returns)]).to_event(1))
    volatility = level + sigma * steps.cumsum()
    numpyro.sample("returns", dist.Normal(0.0, jnp.exp(volatility / 2.0)), obs=returns)


def gaussian_field(precision):
    numpyro.sample("x", dist.MultivariateNormal(precision_matrix=precision))


def mixture(centres):
    parts = dist.Normal(centres, 1.0).to_event(1)
    numpyro.sample(
        "x", dist.MixtureSameFamily(dist.Categorical(probs=jnp.array([0.6, 0.4])), parts)
    )


def score_of_schools(Z, y, sigma):
    eta, mu, tau = Z[:, :8], Z[:, 8], np.exp(Z[:, 9])
    pull = (y - mu[:, None] - tau[:, None] * eta) / sigma**2
    of_log_tau = tau * (pull * eta).sum(axis=1) + 1.0 - 2.0 * tau**2 / (25.0 + tau**2)
    return np.column_stack([tau[:, None] * pull - eta, pull.sum(axis=1) - mu / 25.0, of_log_tau])


def score_of_regression(Z, X, y):
    beta, scale = Z[:, :-1], np.exp(Z[:, -1:])
    off = y - 1.0 / (1.0 + np.exp(-scale * (beta @ X.T)))
    of_log_scale = scale[:, 0] * (off * (beta @ X.T)).sum(axis=1) + 1.0 - scale[:, 0] ** 2 / 4.0
    return np.column_stack([scale * (off @ X) - beta, of_log_scale])


def score_of_volatility(Z, returns):
    level, sigma, steps = Z[:, 0], np.exp(Z[:, 1]), Z[:, 2:]
    walk = steps.cumsum(axis=1)
    off = 0.5 * (returns**2 * np.exp(-level[:, None] - sigma[:, None] * walk) - 1.0)
    of_steps = sigma[:, None] * off[:, ::-1].cumsum(axis=1)[:, ::-1] - steps
    of_log_sigma = sigma * (off * walk).sum(axis=1) + 1.0 - 10.0 * sigma
    return np.column_stack([off.sum(axis=1) - level - 1.0, of_log_sigma, of_steps])


def score_of_field(Z, precision):
    return -Z @ precision


def score_of_mixture(Z, centres):
    steps = centres - Z[:, None]
    weights = np.array([0.6, 0.4]) * np.exp(-0.5 * (steps**2).sum(axis=2))
    return np.einsum("nk,nkd->nd", weights / weights.sum(axis=1, keepdims=True), steps)


def five_models():
    """Name, model, its score by hand, and arguments of each."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.normal(size=(200, 9)) @ (np.eye(9) + 0.4)])
    y = (rng.random(200) < 1.0 / (1.0 + np.exp(-X @ rng.normal(0.0, 0.5, size=10)))).astype(float)
    volatility = -1.0 + np.cumsum(0.15 * rng.normal(size=100))
    returns = np.exp(volatility / 2.0) * rng.normal(size=100)
    basis, _ = np.linalg.qr(rng.normal(size=(20, 20)))
    precision = basis @ np.diag(np.geomspace(1.0, 1000.0, 20)) @ basis.T
    return {
        "eight schools": (eight_schools, score_of_schools, (EFFECTS, ERRORS)),
        "logistic regression": (logistic_regression, score_of_regression, (X, y)),
        "stochastic volatility": (stochastic_volatility, score_of_volatility, (returns,)),
        "Gaussian field": (gaussian_field, score_of_field, (precision,)),
        "mixture": (mixture, score_of_mixture, (np.array([[-1.5, -1.5], [1.5, 1.5]]),)),
    }
