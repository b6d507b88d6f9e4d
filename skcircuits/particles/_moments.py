"""Means and variances of a target from states, with scores as control variates.

Under the target, with Σ any matrix, ``(Σ s)_i`` and ``(x_i - m_i)(Σ s)_i + Σ_ii`` have mean zero:
they take away all noise where the target is Gaussian with covariance Σ (Assaraf and Caffarel 1999;
Mira, Solgi and Imparato 2013).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skcircuits.protocols import FloatArray

# Least variance, as a part of that without control variates.
MIN_PART = 0.1


@dataclass(frozen=True)
class Moments:
    """Means and variances of the target with their standard errors, (d,) each."""

    mean: FloatArray
    mean_error: FloatArray
    variance: FloatArray
    variance_error: FloatArray

    @classmethod
    def estimated(
        cls, x: FloatArray, along: FloatArray, variances: FloatArray, weights: FloatArray
    ) -> Moments:
        """Take states x and Σ s ``along``, (n_states, n, d) each, which are overwritten.

        States of one chain depend on each other, the n chains do not; ``weights`` (n,), of sum one,
        are theirs, and ``variances`` (d,) the diagonal of Σ.
        """
        center = weights @ x.mean(axis=0)
        x -= center
        shift, mean_error = _controlled_mean(x, along, weights)
        x -= shift
        along *= x
        along += variances
        x *= x
        variance, variance_error = _controlled_mean(x, along, weights)
        # With few states, the control variate may reduce the variance below zero.
        variance = np.maximum(variance, MIN_PART * (weights @ x.mean(axis=0)))
        return cls(center + shift, mean_error, variance, variance_error)


def _controlled_mean(
    values: FloatArray, controls: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean of values (n_states, n, d) less what controls of mean zero explain; standard error."""
    slopes = _covariances(values, controls, weights)
    spread = _covariances(controls, controls, weights)
    slopes = np.divide(slopes, spread, out=np.zeros_like(slopes), where=spread > 0)
    by_chain = values.mean(axis=0) - slopes * controls.mean(axis=0)
    mean = weights @ by_chain
    return mean, standard_error(by_chain - mean, weights)


def standard_error(differences: FloatArray, weights: FloatArray) -> FloatArray:
    """Error of a weighted mean of independent values, by their differences from it, (n, d)."""
    n = len(weights)
    return np.asarray(np.sqrt(weights**2 @ differences**2 * (n / (n - 1))))


def _covariances(values: FloatArray, others: FloatArray, weights: FloatArray) -> FloatArray:
    products = weights @ (np.einsum("tnd,tnd->nd", values, others) / len(values))
    return np.asarray(products - (weights @ values.mean(axis=0)) * (weights @ others.mean(axis=0)))
