"""Distributions over categorical variables given as a product of factors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.circuits import Circuit
from skcircuits.exceptions import ZeroProbabilityError, must
from skcircuits.graphical.blankets import (
    full_conditionals,
    log_full_conditional,
    markov_blankets,
)
from skcircuits.graphical.compilation import compile_posterior
from skcircuits.graphical.factors import Factor, as_factors, check_cardinalities
from skcircuits.graphical.gibbs import gibbs_chains
from skcircuits.graphical.posterior import Posterior
from skcircuits.graphical.rows import Evidence, evidence_row, missing_patterns, read_rows
from skcircuits.graphical.uai import read_uai
from skcircuits.numerics.random import as_generator
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["FactorGraph"]


class FactorGraph:
    """An unnormalised distribution, the product of factors over categorical variables.

    Variables are numbered from 0, and so are their states. Tables of rows are float
    arrays of shape (n, d); NaN cells are summed out exactly. A factor graph is
    immutable and a target of the Stein methods.

    Parameters
    ----------
    factors : iterable of (scope, table) or Factor
        Variables and non-negative values, one axis per variable.
    cardinalities : array-like of int of shape (d,)
        Number of states of each variable.
    variable_names : sequence of str, default=None
        Names of the variables, used by evidence given as a mapping.
    state_names : sequence of sequence of str, default=None
        Names of the states of each variable.

    Attributes
    ----------
    factors : tuple of Factor
        The factors.
    cardinalities : ndarray of int of shape (d,)
        Number of states of each variable.
    neighbors : tuple of ndarray of int
        The Markov blanket of each variable, without itself.

    See Also
    --------
    BayesianNetwork : Factors that are conditional distributions.
    IsingModel : Binary variables with pairwise couplings.

    Examples
    --------
    >>> from skcircuits.graphical import FactorGraph
    >>> graph = FactorGraph([((0, 1), [[2, 1], [1, 2]]), ((1,), [1, 3])], [2, 2])
    >>> [float(p[1].round(3)) for p in graph.marginals()]
    [0.583, 0.75]
    >>> [float(p[1].round(3)) for p in graph.marginals({1: 1})]
    [0.667, 1.0]
    """

    def __init__(
        self,
        factors: Iterable[Factor | tuple[Sequence[int], ArrayLike]],
        cardinalities: ArrayLike,
        *,
        variable_names: Sequence[str] | None = None,
        state_names: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self.cardinalities = check_cardinalities(cardinalities)
        self.factors = as_factors(factors, self.cardinalities)
        self.variable_names = None if variable_names is None else tuple(variable_names)
        self.state_names = None if state_names is None else tuple(map(tuple, state_names))
        self._prepare()

    def _prepare(self) -> None:
        self.neighbors = markov_blankets(self.factors, len(self.cardinalities))
        self._conditionals = full_conditionals(self.factors, self.cardinalities)
        # Many rows share a missing pattern and come again: keep the structures found.
        self._posterior = lru_cache(maxsize=1024)(self._build_posterior)

    @classmethod
    def from_uai(cls, path: str | PathLike[str]) -> FactorGraph:
        """Read a model in the UAI format, MARKOV or BAYES.

        Parameters
        ----------
        path : path-like
            The file.

        Returns
        -------
        FactorGraph
            The model, its tables as factors.
        """
        factors, cardinalities = read_uai(path)
        return FactorGraph(factors, cardinalities)

    # ---- the target protocol -------------------------------------------------------

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
            result[rows] = self._posterior(hidden).log_partition(codes[rows])
        return result

    def log_full_conditional(self, X: ArrayLike, variable: int) -> FloatArray:
        """Log of ``p(x_i | all others)`` up to a constant per row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Complete rows.
        variable : int
            The variable whose states are compared.

        Returns
        -------
        ndarray of shape (n, states)
            One column per state of the variable.
        """
        codes, missing = self._read_rows(X)
        if missing.any():
            raise ValueError(
                must("X", "be complete", "log_prob_unnormalized sums missing cells out.")
            )
        return log_full_conditional(self._conditionals[variable], codes)

    # ---- exact inference -----------------------------------------------------------

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

    def width(self, evidence: Evidence = None, order: str | Sequence[int] = "min_fill") -> int:
        """Induced width of variable elimination: the cost of exact inference.

        Parameters
        ----------
        evidence : mapping or array-like of shape (d,), default=None
            Observed states.
        order : {"min_fill", "min_weight"} or sequence of int, default="min_fill"
            The elimination order.

        Returns
        -------
        int
            Size of the largest separator.
        """
        hidden = np.isnan(self._evidence_row(evidence)[0]).nonzero()[0]
        return Posterior(self.factors, self.cardinalities, hidden, order).width

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
            for variable, table in self._posterior(hidden).marginals(codes[rows]).items():
                tables[variable][rows] = table
        return tables

    def compile(
        self, evidence: Evidence = None, order: str | Sequence[int] = "min_fill"
    ) -> Circuit:
        """Compile to a circuit by variable elimination.

        Parameters
        ----------
        evidence : mapping or array-like of shape (d,), default=None
            Observed states; the circuit is over the other variables.
        order : {"min_fill", "min_weight"} or sequence of int, default="min_fill"
            The elimination order.

        Returns
        -------
        Circuit
            Normalised, smooth, deterministic and structured-decomposable.

        Raises
        ------
        MemoryError
            When the tables would not fit; the message gives the induced width.
        """
        codes, missing = self._read_possible_rows(self._evidence_row(evidence))
        hidden = missing[0].nonzero()[0]
        posterior = Posterior(self.factors, self.cardinalities, hidden, order)
        return Circuit(compile_posterior(posterior, codes))

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
        return self._posterior(frozenset(int(v) for v in hidden))

    # ---- sampling ------------------------------------------------------------------

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
        rng = as_generator(random_state)
        table = self._evidence_row(None) if X is None else np.asarray(X, dtype=np.float64)
        codes, missing = self._read_possible_rows(np.tile(table, (n_samples, 1)))
        for rows, hidden in missing_patterns(missing):
            codes[rows] = self._posterior(hidden).draw(codes[rows], rng)
        shape = (n_samples, -1) if X is None else (n_samples, len(table), table.shape[1])
        return codes.astype(np.float64).reshape(shape)

    def gibbs_sample(
        self,
        n_samples: int,
        *,
        burn_in: int = 1000,
        thin: int = 1,
        n_chains: int = 1,
        start: ArrayLike | None = None,
        random_state: Any = None,
    ) -> FloatArray:
        """Draw dependent samples by Gibbs sampling with a systematic scan.

        Parameters
        ----------
        n_samples : int
            Rows to return, the chains in turn.
        burn_in : int, default=1000
            Full sweeps before the first state is kept.
        thin : int, default=1
            Full sweeps between kept states of a chain.
        n_chains : int, default=1
            Independent chains that run side by side.
        start : array-like of shape (n_chains, d), default=None
            First states; drawn uniformly by default.
        random_state : int, Generator, RandomState or None, default=None
            Seed.

        Returns
        -------
        ndarray of shape (n_samples, d)
            States; row ``t * n_chains + c`` is the t-th state kept of chain c.

        Notes
        -----
        :meth:`marginalize` first, and this is the collapsed Gibbs sampler. Where factors
        are zero, moves of one variable may not connect the possible states; then no
        chain visits all of them.
        """
        rng = as_generator(random_state)
        if start is None:
            states = rng.integers(self.cardinalities, size=(n_chains, len(self.cardinalities)))
        else:
            states = self._read_rows(start)[0]
        kept = gibbs_chains(
            self._conditionals,
            states,
            -(-n_samples // len(states)),  # rounded up: the last round may be cut
            burn_in=burn_in,
            thin=thin,
            rng=rng,
        )
        rows = kept.transpose(1, 0, 2).reshape(-1, states.shape[1])
        return rows[:n_samples].astype(np.float64)

    # ---- other models made of this one ---------------------------------------------

    def marginalize(self, variables: Collection[int]) -> FactorGraph:
        """Sum variables out exactly.

        Parameters
        ----------
        variables : collection of int
            The variables to sum out.

        Returns
        -------
        FactorGraph
            Over the same columns; the summed-out variables have a single state left.
        """
        gone = sorted({int(v) for v in variables})
        # The columns stay, so that evidence and samples keep their numbering.
        left = self.cardinalities.copy()
        left[gone] = 1
        factors = self.posterior(gone).marginal_factors()
        return FactorGraph(factors, left, variable_names=self.variable_names)

    def soften(self, amount: float) -> FactorGraph:
        """Mix every table with its mean, so that no state is impossible.

        Parameters
        ----------
        amount : float
            Share of the mean, in (0, 1].

        Returns
        -------
        FactorGraph
            A positive model near this one.
        """
        if not 0 < amount <= 1:
            raise ValueError(must("amount", "be in (0, 1]", amount=amount))
        return FactorGraph(
            [factor.soften(amount) for factor in self.factors],
            self.cardinalities,
            variable_names=self.variable_names,
            state_names=self.state_names,
        )

    def __sklearn_clone__(self) -> Self:
        """Return the model itself: it is immutable."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is prepared again after unpickling."""
        derived = ("neighbors", "_conditionals", "_posterior")
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the model."""
        self.__dict__.update(state)
        self._prepare()

    def __repr__(self) -> str:
        """Name the size of the model."""
        return (
            f"{type(self).__name__}({len(self.cardinalities)} variables, "
            f"{len(self.factors)} factors)"
        )

    # ---- rows and evidence ---------------------------------------------------------

    def _build_posterior(self, hidden: frozenset[int]) -> Posterior:
        return Posterior(self.factors, self.cardinalities, hidden)

    def _read_rows(self, X: ArrayLike) -> tuple[IntArray, BoolArray]:
        return read_rows(X, self.cardinalities)

    def _read_possible_rows(self, X: ArrayLike) -> tuple[IntArray, BoolArray]:
        """Read rows and refuse those whose observed cells are impossible."""
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
