"""Whether ``BBISWeighter.score`` ranks settings as their true errors do.

Samples that are not from the target are weighted under every setting of a grid over collapsed
fraction, ridge and scale of the kernel. Printed per model: Spearman's rank correlation of minus
the score with the true error (marginals of discrete models, means and variances of continuous
ones), of averages over the runs and of single runs; and the error of uniform weights, of the
defaults, of what ``GridSearchCV`` picks, and of the best setting.

    python -m benchmarks.stein_scores [--n 100] [--seeds 3]
"""

import argparse
import itertools
import warnings

import numpy as np
from scipy.stats import spearmanr
from sklearn.model_selection import GridSearchCV, ParameterGrid

from skcircuits import BBISWeighter
from skcircuits.circuits import Circuit, MultivariateGaussian
from skcircuits.graphical import BayesianNetwork, FactorGraph, GaussianMRF, IsingModel
from skcircuits.kernels import Hamming
from skcircuits.stein import InverseMultiquadric
from skcircuits.stein.discrepancy import median_gamma

RIDGES = [0.001, 0.03, 0.3, 3.0]


def discrete_models():
    rng = np.random.default_rng(0)
    yield "ferromagnet", IsingModel.grid(3, 4, couplings=0.4, fields=0.1)
    yield (
        "spin glass",
        IsingModel.grid(3, 4, 0.6 * rng.normal(size=17), fields=0.5 * rng.normal(size=12)),
    )
    tables = [((i, (i + 1) % 7), np.exp(rng.normal(size=(3, 3)))) for i in range(7)]
    yield "ring of three states", FactorGraph(tables, [3] * 7)
    yield "random network", _random_network(rng).soften(0.05)


def _random_network(rng, n=9):
    parents = [sorted(rng.choice(i, min(i, 2), replace=False).tolist()) for i in range(n)]
    tables = [rng.dirichlet([0.5, 0.5], size=(2,) * len(above)) for above in parents]
    return BayesianNetwork(parents, tables)


def continuous_models():
    chain = 2.0 * np.eye(10) - 0.8 * (np.eye(10, k=1) + np.eye(10, k=-1))
    yield "Gaussian chain", GaussianMRF(chain, np.ones(10))
    mixture = Circuit(
        0.4 * MultivariateGaussian([0, 1], [-1.5, 0.0], [[1.0, 0.5], [0.5, 0.6]])
        + 0.6 * MultivariateGaussian([0, 1], [1.0, 1.0], [[0.5, 0.0], [0.0, 1.0]])
    )
    yield "mixture", mixture
    # Nothing was chosen with these.
    for seed in (12345, 1, 2, 3):
        yield f"mixture, held out {seed}", random_mixture(np.random.default_rng(seed))


def random_mixture(rng, n_components=3, d=3, distance=1.5):
    """Draw weights, means and covariances of a mixture."""
    total = None
    for weight in rng.dirichlet(np.full(n_components, 3.0)):
        factor = rng.normal(size=(d, d))
        unit = MultivariateGaussian(
            list(range(d)), distance * rng.normal(size=d), 0.3 * factor @ factor.T + 0.3 * np.eye(d)
        )
        total = weight * unit if total is None else total + weight * unit
    return Circuit(total)


def discrete_problem(model, n, seed):
    X = model.gibbs_sample(n, burn_in=2, thin=1, n_chains=n, random_state=seed).astype(float)
    d = X.shape[1]
    truth = model.marginals()

    def error(weighter, weights=None):
        found = weighter.marginals(weights)
        return np.mean([_hellinger(p, q) for p, q in zip(found, truth)])

    grid = {
        "collapse": [None, 0.25, 0.5],
        "regularization": RIDGES,
        "kernel": [Hamming(scale) for scale in (d, 4.0 * d, 16.0 * d)],
    }
    return X, error, grid


def _hellinger(p, q):
    return np.sqrt(((np.sqrt(p) - np.sqrt(q)) ** 2).sum() / 2)


def continuous_problem(model, n, seed):
    exact = _draws(model, 100_000, 1000)
    mean, variance = exact.mean(axis=0), exact.var(axis=0)
    X = mean + 1.3 * (_draws(model, n, seed) - mean) + 0.3 * np.sqrt(variance)
    scale = median_gamma(X) ** -0.5

    def error(weighter, weights=None):
        weights = weighter.weights_ if weights is None else weights
        found = weights @ X
        spread = weights @ (X - found) ** 2
        return np.sqrt(
            np.mean((found - mean) ** 2 / variance) + np.mean((spread / variance - 1.0) ** 2)
        )

    kernels = [InverseMultiquadric(factor * scale) for factor in (0.25, 0.5, 1.0, 2.0, 4.0)]
    return X, error, {"regularization": [1e-5, *RIDGES], "kernel": kernels}


def _draws(model, n, seed):
    if isinstance(model, GaussianMRF):
        return model.sample(n, np.random.default_rng(seed))
    return model.sample(n, random_state=seed)


def compare(model, X, error, grid):
    """Scores and errors of all settings; errors without weights, by default, chosen and best."""
    base = BBISWeighter(target=model, random_state=0)
    scores, errors = [], []
    for setting in ParameterGrid(grid):
        weighter = BBISWeighter(target=model, random_state=0, **setting).fit(X)
        scores.append(weighter.score(X))
        errors.append(error(weighter))
    # The defaults stand in the grid as well, so a search may keep them.
    options = [*({k: [v] for k, v in s.items()} for s in ParameterGrid(grid)), {}]
    search = GridSearchCV(base, options, cv=3).fit(X)
    default = base.fit(X)
    uniform = error(default, np.full(len(X), 1 / len(X)))
    chosen = error(search.best_estimator_)
    return np.array([scores, errors]), [uniform, error(default), chosen, min(errors)]


def ranks(runs):
    """Rank correlation of the averages over runs, and the average of those of single runs."""
    logs = np.log([[np.maximum(-scores, 1e-300), errors] for scores, errors in runs])
    single = [spearmanr(*run).statistic for run in logs]
    return [spearmanr(*logs.mean(axis=0)).statistic, np.mean(single)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=None, help="by default all")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    columns = ("rank", "one run", "none", "default", "search", "best")
    print(f"{'':22s}" + "".join(f"{column:>10s}" for column in columns))
    models = itertools.chain(
        ((name, model, discrete_problem) for name, model in discrete_models()),
        ((name, model, continuous_problem) for name, model in continuous_models()),
    )
    for name, model, pose in models:
        if arguments.models and name not in arguments.models:
            continue
        found = [compare(model, *pose(model, arguments.n, s)) for s in range(arguments.seeds)]
        runs, errors = zip(*found)
        values = [*ranks(runs), *np.mean(errors, axis=0)]
        print(f"{name:22s}" + "".join(f"{v:10.3f}" for v in values), flush=True)


if __name__ == "__main__":
    main()
