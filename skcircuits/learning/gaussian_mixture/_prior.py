"""How much the prior of a Gaussian mixture weighs, in rows, and how strongly it shrinks."""

from __future__ import annotations

import numpy as np
from scipy.special import multigammaln

from skcircuits.protocols import FloatArray

__all__ = ["learned_strength", "shrinkage_odds"]

#: Rows that a covariance may be drawn by towards its target.
_STRENGTHS = np.geomspace(0.5, 2000.0, 25)
_LEAST_ODDS, _MOST_ODDS = 1e-3, 1e3


def learned_strength(scatters: FloatArray, counts: FloatArray, target: FloatArray) -> float:
    """Rows of the target that explain scatter matrices best, by their marginal likelihood.

    Each scatter (K, d, d) is that of N_k rows (counts (K,)) of a Gaussian whose covariance is
    drawn from an inverse Wishart distribution with mean `target` (d, d) and nu + d + 1 degrees
    of freedom: with its covariance integrated out,

        log p = log |nu S|^(df / 2) - log |nu S + T|^((df + N) / 2)
                + log Gamma_d((df + N) / 2) - log Gamma_d(df / 2) + constant.
    """
    size = len(target)
    if size < 2:
        return float(_STRENGTHS[0])
    lower = np.linalg.cholesky(target)
    white = np.linalg.solve(lower, np.linalg.solve(lower, scatters).transpose(0, 2, 1))
    spectra = np.maximum(np.linalg.eigvalsh(white), 0.0)
    freedom = _STRENGTHS + size + 1.0
    evidence = np.zeros(len(_STRENGTHS))
    for count, spectrum in zip(counts, spectra, strict=True):
        half = 0.5 * (freedom + count)
        evidence += 0.5 * freedom * size * np.log(_STRENGTHS)
        evidence -= half * np.log(_STRENGTHS[:, None] + spectrum).sum(axis=1)
        evidence += multigammaln(half, size) - multigammaln(0.5 * freedom, size)
    return float(_STRENGTHS[evidence.argmax()])


def shrinkage_odds(products: FloatArray, counts: FloatArray) -> float:
    """By how many rows of uncorrelated columns, for each row of data, to shrink correlations.

    The fraction of the shrunk covariance that is diagonal has the least squared error, over all
    correlations, at the sum of their sampling variances over the sum of their squares (Schaefer
    and Strimmer, 2005, "A Shrinkage Approach to Large-Scale Covariance Matrix Estimation"). Only
    cells that are observed together count, `counts` (c, c), with sums of products `products`:
    completed ones would repeat what is believed already.
    """
    upper = np.triu_indices(len(products), 1)
    mean_products = products / np.maximum(counts, 1e-300)
    scales = np.sqrt(np.maximum(np.diag(mean_products), 1e-200))
    correlations = (mean_products / np.outer(scales, scales))[upper]
    errors = (1.0 - np.minimum(correlations**2, 1.0)) ** 2 / np.maximum(counts[upper], 1.0)
    fraction = errors.sum() / max(float(np.square(correlations).sum()), 1e-300)
    most = _MOST_ODDS / (1.0 + _MOST_ODDS)
    return float(max(_LEAST_ODDS, min(fraction, most) / (1.0 - min(fraction, most))))
