"""Exact answers of categorical models: partition functions, marginals, samples."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import ZeroProbabilityError, must
from skcircuits.graphical.factor import Factor
from skcircuits.graphical.inference._posterior import Posterior
from skcircuits.graphical.inference._relevance import Posteriors
from skcircuits.graphical.inference._rows import Evidence, evidence_row, missing_patterns, read_rows
from skcircuits.numerics._random import as_generator
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["ExactInference"]


class ExactInference:
    """Queries that variable elimination answers; the base of :class:`FactorGraph`.

    Attributes
    ----------
    factors : tuple of Factor
        The factors.
    cardinalities : ndarray of int of shape (d,)
        Number of states of each variable.
    variable_names : tuple of str or None
        Names of the variables.
    state_names : tuple of tuple of str or None
        Names of the states of each variable.
    """

    factors: tuple[Factor, ...]
    cardinalities: IntArray
    variable_names: tuple[str, ...] | None
    state_names: tuple[tuple[str, ...], ...] | None

    def _prepare(self) -> None:
        self._posteriors = Posteriors(self.factors, self.cardinalities, self._children())

    def _children(self) -> Sequence[int] | None:
        """Per factor the variable it is a conditional distribution of; None for potentials."""
        return None

    def log_prob_unnormalized(self, X: ArrayLike) -> FloatArray:
        """Log of the product of the factors, NaN cells summed out.

        Parameters
        ----------
        X : array-like of shape (n, d)
            States, NaN where unknown.

        Returns
        -------
        ndarray of shape (n,)
            ``-inf`` where impossible.
        """
        codes, missing = self._read_rows(X)
        # One structure per set of missing columns, one table per different evidence.
        result = np.empty(len(codes))
        for rows, hidden in missing_patterns(missing):
            result[rows] = self._posteriors.for_evidence(hidden).log_partition(codes[rows])
        return result

    def log_partition(self, evidence: Evidence = None) -> float:
        """Log of the sum of the product of the factors over all states.

        Parameters
        ----------
        evidence : mapping or array-like of shape (d,), default=None
            Observed states, ``{variable: state}`` or a row with NaN elsewhere.

        Returns
        -------
        float
            The logarithm; ``-inf`` where the evidence is impossible.
        """
        return float(self.log_prob_unnormalized(self._evidence_row(evidence))[0])

    def width(self, evidence: Evidence = None, order: str | Sequence[int] = "auto") -> int:
        """Induced width of variable elimination: the cost of exact inference.

        Parameters
        ----------
        evidence : mapping or array-like of shape (d,), default=None
            Observed states.
        order : {"auto", "min_fill", "min_weight", "weighted_min_fill"} or sequence of int, \
default="auto"
            The elimination order; "auto" takes the cheapest of the others.

        Returns
        -------
        int
            Size of the largest separator.
        """
        hidden = np.isnan(self._evidence_row(evidence)[0]).nonzero()[0]
        return Posterior(self._posteriors.scaled, self.cardinalities, hidden, order).width

    def marginals(self, evidence: Evidence = None) -> list[FloatArray]:
        """Distribution of every variable.

        Parameters
        ----------
        evidence : mapping or array-like of shape (d,), default=None
            Observed states.

        Returns
        -------
        list of ndarray of shape (k_j,)
            One distribution per variable; a point mass where observed.
        """
        return [table[0] for table in self.conditional_marginals(self._evidence_row(evidence))]

    def conditional_marginals(self, X: ArrayLike) -> list[FloatArray]:
        """Distribution of every variable given the observed cells of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            States, NaN where unknown.

        Returns
        -------
        list of ndarray of shape (n, k_j)
            One table per variable; point masses where observed.

        Raises
        ------
        ZeroProbabilityError
            Where the observed cells have probability zero.
        """
        codes, missing = self._read_possible_rows(X)
        tables = [np.zeros((len(codes), int(k))) for k in self.cardinalities]
        for variable, table in enumerate(tables):
            # Point masses first; missing cells are overwritten below.
            table[np.arange(len(codes)), codes[:, variable]] = 1.0
        for rows, hidden in missing_patterns(missing):
            for posterior, variables in self._posteriors.for_marginals(hidden):
                for variable, table in posterior.marginals(codes[rows], variables).items():
                    tables[variable][rows] = table
        return tables

    def posterior(self, hidden: Collection[int]) -> Posterior:
        """Give the structure of exact inference for some missing variables.

        Parameters
        ----------
        hidden : collection of int
            The variables that are not observed.

        Returns
        -------
        Posterior
            Serves any number of evidences on the other variables.
        """
        checked = frozenset(int(v) for v in hidden)
        outside = sorted(v for v in checked if not 0 <= v < len(self.cardinalities))
        if outside:
            raise ValueError(
                must("variables", f"be below {len(self.cardinalities)}, from 0", variables=outside)
            )
        return self._posteriors.all_hidden(checked)

    def sample(
        self,
        n_samples: int,
        X: ArrayLike | None = None,
        random_state: Any = None,
    ) -> FloatArray:
        """Draw independent exact samples.

        Parameters
        ----------
        n_samples : int
            How many (per row of ``X``).
        X : array-like of shape (n, d), default=None
            Rows to complete.
        random_state : int, Generator, RandomState or None, default=None
            Seed.

        Returns
        -------
        ndarray of shape (n_samples, d) or (n_samples, n, d)
            States, or completions of the rows of ``X``.
        """
        if n_samples < 0:
            raise ValueError(must("n_samples", "be at least 0", n_samples=n_samples))
        rng = as_generator(random_state)
        table = self._evidence_row(None) if X is None else np.asarray(X, dtype=np.float64)
        # Copies of a row share their evidence, so all of them cost one solve.
        codes, missing = self._read_possible_rows(np.tile(table, (n_samples, 1)))
        for rows, hidden in missing_patterns(missing):
            codes[rows] = self._posteriors.all_hidden(hidden).draw(codes[rows], rng)
        shape = table.shape[1:] if X is None else table.shape
        return codes.astype(np.float64).reshape(n_samples, *shape)

    def _read_rows(self, X: ArrayLike) -> tuple[IntArray, BoolArray]:
        return read_rows(X, self.cardinalities)

    def _read_possible_rows(self, X: ArrayLike) -> tuple[IntArray, BoolArray]:
        """Read rows and refuse those whose observed cells are impossible."""
        # Conditional distributions given an impossible event do not exist.
        impossible = np.isneginf(self.log_prob_unnormalized(X)).nonzero()[0]
        if len(impossible):
            raise ZeroProbabilityError(
                must(
                    "evidence",
                    "have positive probability",
                    "Drop these rows, or soften() the model.",
                    rows=impossible.tolist(),
                ),
                impossible.tolist(),
            )
        return self._read_rows(X)

    def _evidence_row(self, evidence: Evidence) -> FloatArray:
        return evidence_row(
            evidence, len(self.cardinalities), self.variable_names, self.state_names
        )
