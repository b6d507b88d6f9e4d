"""Training rows of a density, and rows whose observed cells have probability zero."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Real
from typing import ClassVar

import numpy as np

from skcircuits.estimators._base import Interval, fit_context
from skcircuits.exceptions import ZeroProbabilityError


@dataclass(frozen=True)
class TrainingRows:
    """Encoded rows of positive weight.

    Attributes: ``X`` (n, d), NaN where missing; ``weight`` (n,); ``states`` (n, d), the states
    of the cells where the density sees columns as states, NaN where missing, else None;
    ``validation``, the rows that choose among models, or None.
    """

    X: np.ndarray
    weight: np.ndarray
    states: np.ndarray | None = None
    validation: TrainingRows | None = None

    @classmethod
    def of(cls, X, sample_weight):
        """Keep the rows of positive weight; `sample_weight` None weighs all the same."""
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        kept = weight > 0
        # A copy of a large table would stay during the fit
        return cls(X, weight) if kept.all() else cls(X[kept], weight[kept])

    @property
    def codes(self):
        """States as integers, -1 where missing, shape (n, d)."""
        return np.nan_to_num(self.states, nan=-1.0).astype(np.int64)

    @property
    def has_missing(self):
        """Whether any cell is missing."""
        return bool(np.isnan(self.X if self.states is None else self.states).any())

    def take(self, indices):
        """Select rows."""
        states = None if self.states is None else self.states[indices]
        return TrainingRows(self.X[indices], self.weight[indices], states)

    def in_canonical_order(self):
        """Sort the rows by their cells, so that draws for a row depend on its cells."""
        cells = np.ascontiguousarray(np.column_stack([self.X, self.weight]))
        cells += 0.0  # -0 becomes 0
        bits = cells.view(np.int64)
        # Big-endian bytes sort as the numbers do, so that neither units nor origins matter, once
        # negative numbers are inverted, whose bits run backwards, and others follow them
        bits ^= (bits >> 63) | np.iinfo(np.int64).min
        ordered = bits.astype(">i8")
        opaque = ordered.view(np.dtype((np.void, ordered.itemsize * ordered.shape[1]))).ravel()
        return self.take(np.argsort(opaque, kind="stable"))

    def hold_out(self, fraction, generator):
        """Hold out a fraction as validation rows; tables too small or empty use all twice."""
        n_held_out = int((fraction or 0) * len(self.X))
        if not n_held_out:
            return replace(self, validation=self)
        order = generator.permutation(len(self.X))
        # Sorted, so that parts keep the canonical order of the rows
        held_out = self.take(np.sort(order[:n_held_out]))
        rest = self.take(np.sort(order[n_held_out:]))
        if any(np.isnan(part.X).all() for part in (held_out, rest)):
            return replace(self, validation=self)
        return replace(rest, validation=held_out)


class ValidationMixin:
    """Hold out a fraction of the rows, or take validation rows in ``fit``.

    Parameters
    ----------
    validation_fraction : float or None, default=0.1
        Fraction of the rows that are held out to choose the best iteration and for early stopping,
        unless validation rows are passed to `fit`. If None, or if the table is too small, the
        training rows are used instead.
    """

    _validation_constraints: ClassVar[dict] = {
        "validation_fraction": [Interval(Real, 0, 1, closed="neither"), None],
    }

    @fit_context
    def fit(self, X, y=None, sample_weight=None, *, X_val=None):
        """Fit the density.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Training rows; cells may be missing.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. None gives equal weights. Rows of weight zero are as good as
            absent, except that their categories are known.
        X_val : dataframe or array-like of shape (n_validation, n_features), default=None
            Validation rows; None holds out a `validation_fraction` of X.

        Returns
        -------
        object
            The fitted estimator.
        """
        return self._fit(X, sample_weight, X_val)

    def _add_validation(self, rows, validation, generator):
        if validation is not None:
            return super()._add_validation(rows, validation, generator)
        return rows.hold_out(self.validation_fraction, generator)


def with_possible_evidence(answer, X, is_impossible, consequence):
    """Evaluate a query for encoded rows (n, d), impossible ones as if nothing was observed.

    ``answer(X)`` raises ZeroProbabilityError if it cannot answer for the rows that
    ``is_impossible(X)``, of shape (n,), marks; the warning about them names the `consequence`.
    Returns the result and the indices of these rows.
    """
    try:
        return answer(X), np.empty(0, dtype=np.int64)
    except ZeroProbabilityError:
        impossible = np.flatnonzero(is_impossible(X))
    relaxed = X.copy()
    relaxed[impossible] = np.nan
    found = answer(relaxed)
    if len(impossible):
        warnings.warn(
            # The cells and not the position: rows come in chunks
            f"The observed cells of {len(impossible)} rows have probability zero under the "
            f"density (for example {X[impossible[0]]}); {consequence}.",
            stacklevel=3,
        )
    return found, impossible


def completed_or_marginal(complete, X, circuit):
    """Complete encoded rows by ``complete(X)``, shape (..., n, d).

    Impossible rows are warned of and completed from the marginal distribution, observed cells kept.
    """

    def is_impossible(rows):
        return np.isneginf(circuit.log_prob(rows))

    consequence = "their missing cells are completed from the marginal distribution"
    completed, rows = with_possible_evidence(complete, X, is_impossible, consequence)
    if len(rows):
        observed = ~np.isnan(X[rows])
        completed[..., rows, :] = np.where(observed, X[rows], completed[..., rows, :])
    return completed
