"""Stacks of Gaussians, incomplete rows, and their plain reference formulas."""

import numpy as np

from skcircuits.numerics._gaussian_stack import GaussianStack


def random_stack(n_components, n_columns, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n_components, n_columns, n_columns + 3))
    covariances = root @ root.transpose(0, 2, 1) / n_columns + 0.1 * np.eye(n_columns)
    return GaussianStack(2.0 * rng.normal(size=(n_components, n_columns)), covariances)


def random_rows(n_rows, n_columns, fraction, seed=1):
    """Incomplete rows, among them a complete one, an empty one and shared patterns."""
    rng = np.random.default_rng(seed)
    X = 2.0 * rng.normal(size=(n_rows, n_columns))
    missing = rng.random(X.shape) < fraction
    missing[: n_rows // 2] = missing[rng.integers(0, 3, n_rows // 2)]
    missing[-1], missing[-2] = True, False
    X[missing] = np.nan
    return X


def conditional(stack, k, x):
    """Completed row and its covariance (zero where observed) by the textbook formula."""
    missing = np.isnan(x)
    observed = ~missing
    mean, covariance = stack.means[k], stack.covariances[k]
    gain = np.linalg.solve(
        covariance[np.ix_(observed, observed)], covariance[np.ix_(observed, missing)]
    ).T
    completed, spread = x.copy(), np.zeros((len(x), len(x)))
    completed[missing] = mean[missing] + gain @ (x[observed] - mean[observed])
    spread[np.ix_(missing, missing)] = (
        covariance[np.ix_(missing, missing)] - gain @ covariance[np.ix_(observed, missing)]
    )
    return completed, spread


def log_rbf_of_difference(mean, covariance, gammas):
    """Log E exp(-Dᵀ G D) for D ~ N(mean, covariance)."""
    scales = np.diag(np.sqrt(gammas))
    widened = np.eye(len(mean)) + 2.0 * scales @ covariance @ scales
    scaled = scales @ mean
    return -0.5 * np.linalg.slogdet(widened)[1] - scaled @ np.linalg.solve(widened, scaled)
