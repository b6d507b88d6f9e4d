"""How much the prior of a Gaussian mixture weighs, in rows, and how strongly it shrinks."""

from __future__ import annotations

import numpy as np
from scipy.special import multigammaln

from skcircuits.protocols import FloatArray

__all__ = ["learned_strength"]

#: Rows that a covariance may be drawn by towards its target.
_STRENGTHS = np.geomspace(0.5, 2000.0, 25)


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
