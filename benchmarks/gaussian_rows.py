"""Gaussians on incomplete rows beside scikit-learn on complete rows.

Log densities: a mixture of five full components on the same rows, complete for
scikit-learn, 30 % of the cells missing for us. Expected prediction: 1000 incomplete rows
through expected RBF kernels against ``IterativeImputer.transform`` and ``SVR.predict``.
Times are CPU seconds of one thread, the best of several runs.

Run: OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/gaussian_rows.py
"""

from functools import partial

import numpy as np
from _timing import fastest
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.mixture import GaussianMixture
from sklearn.svm import SVR

from skcircuits import GaussianMixtureDensity
from skcircuits.circuits.inputs._gaussian_integrals import log_density
from skcircuits.kernels.integrals._gaussian_kernels import log_expected_rbf
from skcircuits.kernels.integrals._rules import log_expected_rbf_pairs
from skcircuits.numerics._arrays import logsumexp
from skcircuits.numerics._gaussian_stack import GaussianStack


def correlated_rows(rng, n_rows, n_columns):
    mixing = np.eye(n_columns) + rng.normal(size=(n_columns, n_columns)) / np.sqrt(n_columns)
    return rng.normal(size=(n_rows, n_columns)) @ mixing


def with_missing_values(rng, X, fraction=0.3):
    return np.where(rng.random(X.shape) < fraction, np.nan, X)


def score(stack, log_weights, X):
    return logsumexp(log_density(stack, X) + log_weights)


def compare_densities(rng):
    print("log density of 5 full components, 30 % of the cells missing")
    print(f"{'rows':>14} {'scikit-learn':>13} {'complete':>9} {'missing':>7}   ratios of time")
    for n_rows, n_columns in [(100_000, 10), (20_000, 30)]:
        X = correlated_rows(rng, n_rows, n_columns)
        peer = GaussianMixture(5, tol=0.1, random_state=0).fit(X[:5000])
        mixture = GaussianStack(peer.means_, peer.covariances_), np.log(peer.weights_)[:, None]
        np.testing.assert_allclose(score(*mixture, X), peer.score_samples(X), rtol=1e-9)
        base = fastest(partial(peer.score_samples, X), 5)[0]
        complete = fastest(partial(score, *mixture, X), 5)[0] / base
        missing = fastest(partial(score, *mixture, with_missing_values(rng, X)), 5)[0] / base
        print(f"{n_rows:>8} x {n_columns:<3} {base:>11.3f} s {complete:>9.2f} {missing:>6.2f}")


def impute_and_predict(imputer, model, rows):
    return model.predict(imputer.transform(rows))


def expected_predict(stack, model, rows):
    kernel = log_expected_rbf(stack, rows, model.support_vectors_, model._gamma)
    return np.exp(kernel, out=kernel) @ model.dual_coef_[0]


def compare_predictions(rng):
    print("expected prediction of 1000 rows, 30 % missing, against IterativeImputer + SVR")
    for n_columns in [10, 60, 100]:
        X = correlated_rows(rng, 3000, n_columns)
        y = np.sin(X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=3000)
        model = SVR(C=1.0, epsilon=0.1, gamma=1.0 / n_columns / X.var()).fit(X[:2000], y[:2000])
        rows = with_missing_values(rng, X[2000:])
        imputer = IterativeImputer(max_iter=3).fit(X[:500])
        base = fastest(partial(impute_and_predict, imputer, model, rows))[0]
        ratios = []
        for n_components in [1, 3]:
            means = np.tile(X.mean(axis=0), (n_components, 1))
            stack = GaussianStack(means, np.tile(np.cov(X.T), (n_components, 1, 1)))
            ratios.append(fastest(partial(expected_predict, stack, model, rows))[0] / base)
        print(
            f"{n_columns:>4} columns: {base:.3f} s; K = 1: {ratios[0]:.2f}, K = 3: {ratios[1]:.2f}"
        )


def gram_matrix(stack, X):
    for start in range(0, len(X), 500):
        log_expected_rbf_pairs(stack, X[start : start + 500], X[start:], 0.1)


def time_the_rest(rng):
    X = with_missing_values(rng, correlated_rows(rng, 2000, 10))
    stack = GaussianStack(rng.normal(size=(3, 10)), np.tile(np.eye(10), (3, 1, 1)))
    seconds = fastest(partial(gram_matrix, stack, X), 1)[0]
    print(f"Gram matrix of 2000 x 10 incomplete rows, K = 3: {seconds:.2f} s")
    for n_components in [3, "bic"]:
        density = GaussianMixtureDensity(n_components=n_components, random_state=0)
        seconds, _ = fastest(partial(density.fit, X), 1)
        print(f"fit, n_components={n_components}: {seconds:.2f} s")


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    compare_densities(generator)
    compare_predictions(generator)
    time_the_rest(generator)
