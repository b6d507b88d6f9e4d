"""Rows that stand for weighted samples, each with the same weight."""

import numpy as np

from skcircuits.exceptions import must

__all__ = ["check_method", "systematic_rows"]

RESAMPLING_METHODS = ("systematic", "thinning", "regularized_thinning")


def systematic_rows(weights, n_samples, rng):
    """Draw rows by their weights with one random number, ascending.

    Every row comes up ``n_samples * weight`` times, rounded up or down: draws on a regular grid
    vary less than independent ones.
    """
    points = (rng.random() + np.arange(n_samples)) / n_samples
    # Rounding may leave the sum just below the last point.
    rows = np.searchsorted(np.cumsum(weights), points, side="right")
    return np.minimum(rows, np.flatnonzero(weights)[-1])


def check_method(method):
    """Refuse what is no method of resampling."""
    if method not in RESAMPLING_METHODS:
        raise ValueError(must("method", f"be one of {RESAMPLING_METHODS}", method=method))
