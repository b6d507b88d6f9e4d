"""Finite mixtures of mixtures of all trees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.mixture_of_all_trees._all_trees import MixtureOfAllTrees, distinct_rows
from skcircuits.trees.tree._layout import StateLayout

__all__ = ["AllTreesMixture"]


class AllTreesMixture(NamedTuple):
    """A mixture whose components are mixtures of all trees.

    One set of pair tables cannot follow several groups of rows; one set per component can,
    and the likelihood stays a sum of determinants.

    Attributes
    ----------
    log_weights : ndarray of shape (n_components,)
        Log mixture weights.
    components : list of MixtureOfAllTrees
        The components.
    """

    log_weights: FloatArray
    components: list[MixtureOfAllTrees]

    def log_prob(self, codes: IntArray, *, n_jobs: int | None = None) -> FloatArray:
        """Log probability of complete rows; equal rows are computed once.

        Parameters
        ----------
        codes : ndarray of shape (n_rows, n_variables)
            Complete rows.
        n_jobs : int, default=None
            Threads.

        Returns
        -------
        ndarray of shape (n_rows,)
            Log probabilities.
        """
        wrong = (codes < 0) | (codes >= self.cardinalities)
        if wrong.any():
            row, variable = np.argwhere(wrong)[0]
            raise ValueError(
                must(
                    f"codes of variable {variable}",
                    f"be states from 0 to {self.cardinalities[variable] - 1}",
                    "Score rows with missing cells by the density.",
                    row=int(row),
                    code=int(codes[row, variable]),
                )
            )
        # Once here, so that the components do not each search for equal rows in all of them.
        rows, inverse = distinct_rows(codes)
        log_prob: FloatArray = logsumexp(self.log_joint(rows, n_jobs=n_jobs), axis=1)
        return log_prob[inverse]

    def log_prob_unnormalized(self, X: FloatArray) -> FloatArray:
        """Log probability of rows of state numbers, shape (n_rows,).

        Raises
        ------
        CircuitPropertyError
            If a cell is missing: summing it out is NP-hard.
        """
        X = np.asarray(X, dtype=np.float64)
        n_missing = int(np.isnan(X).sum())
        if n_missing:
            raise CircuitPropertyError(
                must(
                    "rows of a mixture of all trees as target",
                    "be complete",
                    "Sum cells out of a circuit of its trees: to_circuit().",
                    n_missing_cells=n_missing,
                )
            )
        return self.log_prob(X.astype(np.int64))

    @property
    def layout(self) -> StateLayout:
        """Numbering of the states."""
        return self.components[0].layout

    @property
    def cardinalities(self) -> IntArray:
        """Number of states per variable."""
        return self.layout.cardinalities

    def log_joint(self, codes: IntArray, *, n_jobs: int | None = None) -> FloatArray:
        """Log probability of complete rows with each component, (n_rows, n_components)."""
        columns = [component.log_prob(codes, n_jobs=n_jobs) for component in self.components]
        return self.log_weights + np.stack(columns, axis=1)
