"""Whether the distributions of single columns under a mixture of experts are those of the rows.

The log density of whole rows hardly shows them: where columns nearly determine one another, it is
largest for densities that know this, whatever the shapes of the columns are.
"""

import numpy as np
from scipy.special import ndtr

from skcircuits.learning.gaussian_mixture._candidates import TransformedMixture
from skcircuits.learning.gaussian_mixture._factor_gaussians import FactorGaussians
from skcircuits.learning.gaussian_mixture._learner import MixtureState

_LEVELS = np.arange(1, 32) / 32.0  # of the quantiles at which distributions are compared


def are_misfit(weighed, table, X, n_rows):
    """Whether the marginal distribution of a number differs by more than chance from the rows.

    `weighed`: fits with their weights in a mixture, to `n_rows` rows of `X` (n, d), from which
    `table` was prepared. The largest difference of distribution functions, of which the standard
    error is at most half as large, is compared with 1 / sqrt(`n_rows`); that of rows drawn from a
    fitted distribution rarely reaches it (Lilliefors, 1967, "On the Kolmogorov-Smirnov Test for
    Normality with Mean and Variance Unknown").
    """
    numerical = np.flatnonzero(table.cardinalities == 0)
    limits = np.full((len(numerical), len(_LEVELS)), np.nan)
    frequencies = np.full(limits.shape, np.nan)
    for i, column in enumerate(X[:, numerical].T):
        cells = np.sort(column[~np.isnan(column)])
        if len(cells):
            limits[i] = np.quantile(cells, _LEVELS, method="inverted_cdf")
            # Half of the cells that are equal: densities spread them around their value
            ranks = [np.searchsorted(cells, limits[i], side=side) for side in ("left", "right")]
            frequencies[i] = np.mean(ranks, axis=0) / len(cells)
    found = sum(weight * _below(fit, table, numerical, limits) for fit, weight in weighed)
    return bool(np.nanmax(np.abs(found - frequencies), initial=0.0) > n_rows**-0.5)


def _below(fit, table, numerical, limits):
    """Probabilities (c, L) that each number lies below its limits (c, L)."""
    if isinstance(fit, (MixtureState, TransformedMixture)):
        weights, below = below_in_components(fit, table, limits)
        return np.einsum("k,kcl->cl", weights, below)
    upper = np.full((limits.size, len(table.cardinalities)), np.nan)
    upper[np.arange(limits.size), np.repeat(numerical, limits.shape[1])] = limits.ravel()
    log_prob = fit.circuit_.log_prob_box(np.full(upper.shape, np.nan), upper)
    return np.exp(log_prob).reshape(limits.shape)


def below_in_components(fit, table, limits):
    """Weights (K,) of components, and probabilities (K, c, L) of numbers below limits (c, L)."""
    if not isinstance(fit, TransformedMixture):
        return fit.weights, _below_in_normals(fit, table, limits)
    columns = np.flatnonzero(table.cardinalities == 0)
    is_normal = fit.units.cardinalities[columns] == 0
    below = np.empty((fit.state.n_components, *limits.shape))
    own = limits[is_normal]
    if fit.sinh_map is not None:
        own = fit.sinh_map.normal(own.T).T
    below[:, is_normal] = _below_in_normals(fit.state, fit.units, own)
    for i in np.flatnonzero(~is_normal):
        cells = fit.grouped[columns[i]].cells
        below[:, i] = fit.cell_probabilities(columns[i]) @ cells.below(limits[i])
    return fit.state.weights, below


def _below_in_normals(state, table, limits):
    means, variances = _normal_marginals(state, table)
    return ndtr((limits - means[:, :, None]) / np.sqrt(variances)[:, :, None])


def _normal_marginals(state, table):
    """Means and variances (K, c) of the numbers in each component, in the units of the table."""
    units = table.location, table.scale
    if isinstance(state.gaussians, FactorGaussians):
        means, loadings, noise = state.gaussians.in_units(*units)
        return means, np.square(loadings).sum(axis=2) + noise
    means, covariances = state.gaussians.in_units(*units)
    return means, np.diagonal(covariances, axis1=1, axis2=2)
