"""Distributions over categorical variables given as a product of factors, and Ising models."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.circuits import Circuit
from skcircuits.exceptions import ZeroProbabilityError, invalid, must, require, require_count, warn
from skcircuits.graphical._formats import named_file, parse_uai, read_pgmpy_factors, write_uai
from skcircuits.graphical.factor import Factor, check_table_size
from skcircuits.graphical.inference._compilation import compile_solutions
from skcircuits.graphical.inference._exact_inference import Evidence, ExactInference, check_names
from skcircuits.graphical.inference._gibbs import (
    full_conditionals,
    gibbs_chains,
    has_separate_states,
    log_full_conditional,
    markov_blankets,
    stuck_variables,
)
from skcircuits.graphical.inference._posterior import Posterior
from skcircuits.numerics._arrays import float_array, is_number, listed
from skcircuits.numerics._random import as_generator
from skcircuits.protocols import FloatArray, ImmutableMixin, IntArray


class FactorGraph(ImmutableMixin, ExactInference):
    """An unnormalised distribution, the product of factors over categorical variables.

    Variables and their states are indexed from 0. Tables of rows are float arrays of shape (n, d);
    NaN cells are summed out exactly. A factor graph is immutable and can be used as a target of the
    Stein methods.

    Parameters
    ----------
    factors : iterable of (scope, table) or Factor
        Variables and non-negative values, one axis per variable.
    cardinalities : array-like of int of shape (d,)
        Number of states of each variable.
    variable_names : sequence of str, default=None
        Names of the variables, which can be used as keys of evidence.
    state_names : sequence of sequence of str, default=None
        Names of the states of each variable.

    Attributes
    ----------
    factors : tuple of Factor
        The factors.
    cardinalities : ndarray of int of shape (d,)
        Number of states of each variable.
    neighbors : tuple of ndarray of int
        The Markov blanket of each variable, without the variable itself.

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
        self.cardinalities = _check_cardinalities(cardinalities)
        self.factors = _as_factors(factors, self.cardinalities)
        self.variable_names, self.state_names = check_names(
            variable_names, state_names, self.cardinalities
        )
        self._prepare()

    def _prepare(self) -> None:
        self.neighbors = markov_blankets(self.factors, len(self.cardinalities))
        self._conditionals = full_conditionals(self.factors, self.cardinalities)
        super()._prepare()

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
            The model, with its tables as factors.
        """
        with named_file("UAI", path) as data:
            return FactorGraph(*parse_uai(data))

    def to_uai(self, path: str | PathLike[str]) -> None:
        """Write the model in the UAI format, which does not include names.

        Parameters
        ----------
        path : path-like
            The file.
        """
        kind = "MARKOV" if self._children() is None else "BAYES"
        write_uai(path, self.factors, self.cardinalities, kind)

    @classmethod
    def from_pgmpy(cls, model: Any) -> FactorGraph:
        """Convert a discrete Markov network or factor graph of pgmpy.

        Parameters
        ----------
        model : pgmpy.models.DiscreteMarkovNetwork or FactorGraph
            An object with ``get_factors()``.

        Returns
        -------
        FactorGraph
            The same model. Names become text, as in :meth:`BayesianNetwork.from_pgmpy`.
        """
        names, states, factors = read_pgmpy_factors(model)
        return FactorGraph(
            factors,
            [len(labels) for labels in states],
            variable_names=[str(name) for name in names],
            state_names=states,
        )

    def log_full_conditionals(
        self, X: ArrayLike, variables: Sequence[int] | None = None
    ) -> list[FloatArray]:
        """Compute log ``p(x_i | all others)`` for every variable, up to a constant per row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows that lack the same variables, which are summed out, or none.
        variables : sequence of int, default=None
            The variables, all by default.

        Returns
        -------
        list of ndarray of shape (n, k_i)
            One column per state of the variable. The column of the variable in X is ignored.
        """
        codes, missing = self._read_rows(X)
        columns = range(codes.shape[1]) if variables is None else self._read_variables(variables)
        if missing.any():
            if (missing != missing[0]).any() or missing[0, list(columns)].any():
                condition = "lack the same variables in all rows, and none that are asked for"
                way_out = "log_prob_unnormalized sums any missing cells out."
                raise invalid("X", condition, way_out, n_missing=int(missing.sum()))
            hidden = frozenset(missing[0].nonzero()[0].tolist())
            posterior = self._posteriors.for_evidence(hidden)
            return [posterior.log_partition_along(codes, v) for v in columns]
        by_variable = np.ascontiguousarray(codes.T)
        return [log_full_conditional(self._conditionals[v], by_variable) for v in columns]

    def compile(
        self,
        evidence: Evidence = None,
        order: str | Sequence[int] = "auto",
        *,
        max_edges: int = 10_000_000,
        verbose: int = 0,
    ) -> Circuit:
        """Compile to a circuit by variable elimination.

        Parameters
        ----------
        evidence : mapping or array-like of shape (d,), default=None
            Observed states. The circuit is over the other variables.
        order : {"auto", "min_fill", "min_weight", "weighted_min_fill"} or sequence of int, \
default="auto"
            The elimination order; "auto" selects the cheapest of the other heuristics.
        max_edges : int, default=10_000_000
            Maximum number of edges. The number of edges is computed in advance; the circuit is
            smaller if different contexts have equal subcircuits.
        verbose : int, default=0
            Whether to print the expected size and the progress.

        Returns
        -------
        Circuit
            A normalised, smooth, deterministic and structured-decomposable circuit.

        Raises
        ------
        MemoryError
            If the tables would not fit into memory, or if the circuit would have more edges than
            `max_edges`. The message contains the number.
        """
        require_count(0, max_edges=max_edges)
        row = self._evidence_row(evidence)
        codes, missing = self._read_rows(row)
        hidden = frozenset(missing[0].nonzero()[0].tolist())
        if isinstance(order, str) and order == "auto":
            posterior = self._posteriors.all_hidden(hidden)  # kept from earlier questions
        else:
            # An order of one's own is asked for once, and not worth keeping
            posterior = Posterior(self._posteriors.scaled, self.cardinalities, hidden, order)
        solutions = list(posterior.solve(codes))
        if not posterior.is_possible(codes, solutions):
            self._read_possible_rows(row)  # says why
        return Circuit._of_list(compile_solutions(solutions, max_edges=max_edges, verbose=verbose))

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
            Total number of rows of all chains.
        burn_in : int, default=1000
            Number of full sweeps before the first state is kept.
        thin : int, default=1
            Number of full sweeps between kept states of a chain.
        n_chains : int, default=1
            Number of independent chains, which are run in parallel.
        start : array-like of shape (n_chains, d), default=None
            Initial states; drawn uniformly by default.
        random_state : int, Generator, RandomState or None, default=None
            Seed.

        Returns
        -------
        ndarray of shape (n_samples, d)
            States. Row ``t * n_chains + c`` is the t-th kept state of chain c.

        Raises
        ------
        ZeroProbabilityError
            If a chain finds no possible state during the burn-in.

        Notes
        -----
        After :meth:`marginalize`, this is the collapsed Gibbs sampler. If factors are zero, changes
        of single variables may not connect all possible states, and then no chain visits all of
        them. A warning is issued if variables that should change never do, or if this can be
        determined because there are few states.
        """
        require_count(0, n_samples=n_samples, burn_in=burn_in)
        require_count(1, thin=thin, n_chains=n_chains)
        rng = as_generator(random_state)
        # Uniform starts may be impossible; the sampler walks until it finds the support.
        if start is None:
            states = rng.integers(self.cardinalities, size=(n_chains, len(self.cardinalities)))
        else:
            states = self._read_start(start)
        kept = gibbs_chains(
            self._conditionals,
            states,
            -(-n_samples // len(states)),  # rounded up: the last round may be cut
            burn_in=burn_in,
            thin=thin,
            rng=rng,
        )
        self._refuse_lost_chains(kept[:, :1].reshape(-1, states.shape[1]))
        if any(np.isneginf(factor.log_table).any() for factor in self.factors):
            self._warn_of_stuck_chains(kept)
        # Chains in turn, so that any first part of the rows uses all of them.
        rows = kept.transpose(1, 0, 2).reshape(-1, states.shape[1])
        return rows[:n_samples].astype(np.float64)

    def _read_start(self, start: ArrayLike) -> IntArray:
        states, missing = self._read_rows(start)
        if missing.any() or not len(states):
            raise invalid("start", "be complete rows, one per chain", shape=states.shape)
        return states

    def _refuse_lost_chains(self, states: IntArray) -> None:
        # A chain that is possible once stays so: the first state kept tells.
        lost = np.isneginf(self.log_prob_unnormalized(states)).nonzero()[0].tolist()
        if lost:
            condition = "find a possible state during the burn-in"
            way_out = "Raise burn_in, or pass possible states as start."
            raise ZeroProbabilityError(must("chains", condition, way_out, chains=lost), lost)

    def _warn_of_stuck_chains(self, kept: IntArray) -> None:
        """Warn where zeros keep chains (n_chains, n_samples, d) from part of the states."""
        stuck = stuck_variables(kept, self.conditional_marginals)
        if stuck or has_separate_states(self.cardinalities, self.log_prob_unnormalized):
            warn(
                must(
                    "changes of single variables",
                    "connect all possible states of the model",
                    "Zeros of its factors confine chains to a part of them, so that the rows "
                    "are not a sample of the model: use sample(), marginalize() variables, or "
                    "soften() the model.",
                    variables_that_never_moved=stuck,
                ),
            )

    def marginalize(self, variables: Collection[int]) -> FactorGraph:
        """Sum variables out exactly.

        Parameters
        ----------
        variables : collection of int
            The variables to sum out.

        Returns
        -------
        FactorGraph
            A model over the same columns, in which the summed-out variables have a single state,
            which is called "any" if states have names.
        """
        gone = sorted(self.posterior(variables).hidden)
        # The columns stay, so that evidence and samples keep their numbering.
        left = self.cardinalities.copy()
        left[gone] = 1
        factors = self.posterior(gone).marginal_factors()
        names, states = self.variable_names, self.state_names
        if states is not None:
            states = tuple([("any",) if v in gone else own for v, own in enumerate(states)])
        return FactorGraph(factors, left, variable_names=names, state_names=states)

    def soften(self, amount: float) -> FactorGraph:
        """Mix every table with its mean, so that no state has probability zero.

        Parameters
        ----------
        amount : float
            Fraction of the mean, in (0, 1].

        Returns
        -------
        FactorGraph
            A positive model that is close to this one.
        """
        if not (is_number(amount) and 0 < amount <= 1):
            raise invalid("amount", "be in (0, 1]", amount=amount)
        return FactorGraph(
            [factor.soften(amount) for factor in self.factors],
            self.cardinalities,
            variable_names=self.variable_names,
            state_names=self.state_names,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Omit caches, which are recomputed after unpickling."""
        # Lookups and structures are quickly rebuilt, and caches do not pickle.
        derived = ("neighbors", "_conditionals", "_posteriors")
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


def _check_cardinalities(cardinalities: ArrayLike) -> IntArray:
    """Validate the numbers of states."""
    condition = "be one positive integer per variable"
    try:
        given = np.asarray(cardinalities, dtype=np.float64)
    except OverflowError:  # integers that no float can hold
        given = np.array([np.inf])
    except (TypeError, ValueError) as error:
        raise type(error)(must("cardinalities", condition, given=cardinalities)) from error
    whole = np.isfinite(given) & (given >= 1) & (given == np.floor(given))
    if given.ndim != 1 or not len(given) or not whole.all():
        raise invalid("cardinalities", condition, cardinalities=given)
    # Before anything of this size is asked for.
    check_table_size("marginals of the model", [int(given.sum())])
    # A copy, so that the caller's array stays writeable.
    checked = given.astype(np.int64)
    checked.flags.writeable = False
    return checked


def _as_factor(factor: Factor | tuple[Sequence[int], ArrayLike]) -> Factor:
    """Turn a pair ``(scope, table)`` into a factor."""
    if isinstance(factor, Factor):
        return factor
    parts = listed(factor, "every factor")
    if len(parts) != 2:
        raise invalid("every factor", "be a Factor or a pair (scope, table)", parts=parts)
    return Factor.from_table(*parts)


def _as_factors(
    factors: Iterable[Factor | tuple[Sequence[int], ArrayLike]], cardinalities: IntArray
) -> tuple[Factor, ...]:
    """Turn pairs ``(scope, table)`` into factors and check them against the variables."""
    checked = tuple(map(_as_factor, listed(factors, "factors")))
    for factor in checked:
        if any(not 0 <= v < len(cardinalities) for v in factor.scope):
            condition = f"name variables between 0 and {len(cardinalities) - 1}"
            way_out = "Variables are numbered from 0."
            raise invalid("scope of a factor", condition, way_out, scope=factor.scope)
        expected = tuple(int(cardinalities[v]) for v in factor.scope)
        if factor.log_table.shape != expected:
            what = f"table of the factor over {factor.scope}"
            condition = f"have shape {expected}, the cardinalities of its scope"
            raise invalid(what, condition, shape=factor.log_table.shape)
    return checked


class IsingModel(FactorGraph):
    """Binary variables with pairwise couplings and fields.

    ``p(x) ∝ exp(sum_{i<j} J_ij s_i s_j + sum_i h_i s_i)`` with spins ``s = 2 x - 1`` of the
    states x in {0, 1}.

    Parameters
    ----------
    couplings : array-like of shape (d, d)
        Symmetric matrix J with a zero diagonal.
    fields : array-like of shape (d,), default=None
        The fields h; zero by default.

    Attributes
    ----------
    couplings : ndarray of shape (d, d)
        The matrix J.
    fields : ndarray of shape (d,)
        The vector h.

    See Also
    --------
    FactorGraph : The common methods, and the representation of rows and evidence.

    Examples
    --------
    >>> from skcircuits.graphical import IsingModel
    >>> model = IsingModel.grid(2, 2, couplings=0.5, fields=[1.0, 0.0, 0.0, 0.0])
    >>> [float(p[1].round(3)) for p in model.marginals()]
    [0.881, 0.704, 0.704, 0.656]
    """

    def __init__(self, couplings: ArrayLike, fields: ArrayLike | None = None) -> None:
        matrix = float_array(couplings, "couplings").copy()
        _check_couplings(matrix)
        self.couplings = matrix
        self.fields = (
            np.zeros(len(matrix)) if fields is None else float_array(fields, "fields").copy()
        )
        if self.fields.shape != (len(matrix),) or not np.isfinite(self.fields).all():
            condition = "have one entry per variable, all finite"
            way_out = "Use evidence to fix a variable."
            raise invalid("fields", condition, way_out, shape=self.fields.shape)
        # Energies go straight into log tables: exp(large coupling) is never formed.
        super().__init__(_factors(matrix, self.fields), np.full(len(matrix), 2))

    @classmethod
    def grid(
        cls,
        n_rows: int,
        n_columns: int,
        couplings: float | Sequence[float] | FloatArray = 1.0,
        fields: float | Sequence[float] | FloatArray = 0.0,
    ) -> IsingModel:
        """Build a rectangular grid.

        Parameters
        ----------
        n_rows, n_columns : int
            Size of the grid. Variable ``r * n_columns + c`` is in row r and column c.
        couplings : float or array-like of shape (n_edges,), default=1.0
            One coupling for all edges, or one per edge in the order of :meth:`grid_edges`.
        fields : float or array-like of shape (n_rows * n_columns,), default=0.0
            One field for all variables, or one per variable.

        Returns
        -------
        IsingModel
            The model.
        """
        left, right = cls.grid_edges(n_rows, n_columns).T
        matrix = np.zeros((n_rows * n_columns, n_rows * n_columns))
        # Upper half first; the sum below makes it symmetric.
        matrix[left, right] = _one_or_each(couplings, len(left), "couplings of a grid")
        each = _one_or_each(fields, len(matrix), "fields of a grid")
        return cls(matrix + matrix.T, np.broadcast_to(each, len(matrix)))

    @staticmethod
    def grid_edges(n_rows: int, n_columns: int) -> IntArray:
        """List the edges of a rectangular grid: all horizontal ones, then all vertical ones.

        Parameters
        ----------
        n_rows, n_columns : int
            Size of the grid.

        Returns
        -------
        ndarray of int of shape (n_edges, 2)
            The two variables of each edge.
        """
        require_count(1, n_rows=n_rows, n_columns=n_columns)
        cell = np.arange(n_rows * n_columns).reshape(n_rows, n_columns)
        horizontal = np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()], axis=1)
        vertical = np.stack([cell[:-1].ravel(), cell[1:].ravel()], axis=1)
        return np.concatenate([horizontal, vertical])

    @classmethod
    def from_networkx(
        cls, graph: Any, *, weight: str = "weight", field: str = "field"
    ) -> IsingModel:
        """Convert an undirected networkx graph.

        Parameters
        ----------
        graph : networkx.Graph
            Variables in the order of ``graph.nodes``; parallel edges of a multigraph add up.
        weight : str, default="weight"
            Edge attribute with the coupling, which is 1 if absent.
        field : str, default="field"
            Node attribute with the field, which is 0 if absent.

        Returns
        -------
        IsingModel
            The model.
        """
        require("is_directed", "a networkx graph", graph=graph)
        if graph.is_directed():
            way_out = "Pass graph.to_undirected()."
            raise invalid("graph", "be undirected", way_out, graph=type(graph).__name__)
        # Nodes may be anything hashable; variables are numbers.
        position = {node: index for index, node in enumerate(graph.nodes)}
        matrix = np.zeros((len(position), len(position)))
        edges = list(graph.edges(data=weight, default=1.0))
        couplings = float_array([edge[2] for edge in edges], f"{weight} of the edges")
        for (left, right, _), coupling in zip(edges, couplings.tolist()):
            matrix[position[left], position[right]] += coupling
        fields = [value for _, value in graph.nodes(data=field, default=0.0)]
        return cls(matrix + matrix.T, fields)


def _check_couplings(matrix: FloatArray) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise invalid("couplings", "be a square matrix", shape=matrix.shape)
    if not np.isfinite(matrix).all():
        raise invalid("couplings", "be finite", "Use evidence to fix variables.")
    if not np.array_equal(matrix, matrix.T):
        raise invalid(
            "couplings", "be a symmetric matrix", "Pass (J + J.T) / 2.", shape=matrix.shape
        )
    if np.diag(matrix).any():
        condition = "have a zero diagonal"
        way_out = "Pass fields as a separate vector; self-loops of a graph have no meaning here."
        raise invalid(
            "couplings", condition, way_out, variables=np.diag(matrix).nonzero()[0].tolist()
        )


def _one_or_each(values: ArrayLike, count: int, thing: str) -> FloatArray:
    array = float_array(values, thing)
    if array.shape not in ((), (count,)):
        raise invalid(thing, f"be one number or {count}", shape=array.shape)
    return array


def _factors(couplings: FloatArray, fields: FloatArray) -> list[Factor]:
    agreement = np.array([[1.0, -1.0], [-1.0, 1.0]])
    # Zero couplings are no edges: they would widen every elimination.
    pairs = np.argwhere(np.triu(couplings)).tolist()
    factors = [Factor((i, j), couplings[i, j] * agreement) for i, j in pairs]
    return factors + [
        Factor((i,), np.array([-field, field])) for i, field in enumerate(fields) if field
    ]
