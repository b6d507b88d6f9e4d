"""Exact inference in categorical models, and the rows and evidence that it is given.

A variable that is neither queried nor observed, nor an ancestor of one that is, is barren: its
table sums to one. If variables are queried one at a time, more of the others are barren, so that
the marginals of a dense network may be cheaper with several small trees than with one tree of all
variables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, product
from math import prod
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, logsumexp

from skcircuits.exceptions import ZeroProbabilityError, invalid, must, require_count
from skcircuits.graphical.factor import Factor
from skcircuits.graphical.inference._elimination import elimination_order, quick_order
from skcircuits.graphical.inference._posterior import Posterior, ScaledFactor, scaled_factors
from skcircuits.numerics._arrays import float_array, integers, listed
from skcircuits.numerics._patterns import distinct_patterns
from skcircuits.numerics._random import as_generator
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Up to this size, solving one tree of all variables is faster than searching smaller ones.
_MAX_SINGLE_CELLS = 2**20
# Up to these sizes, both passes take less time than the search for several trees, or for the tree
# of a single variable.
_MIN_SPLIT_CELLS = 2**18
_MIN_OWN_CELLS = 2**14
# Time of both passes relative to that of the forward pass.
_TWO_PASSES = 2.5
# Patterns of missing values are few and occur repeatedly.
_MAX_KEPT = 1024
# Fewer do not pay for a look at one structure for all, which has switches besides.
_MIN_PATTERNS = 16
_MIN_REPEATS = 4
# Joint states of a query that are summed.
_MAX_JOINT_STATES = 100_000
# Cells of tables that take as long as the calls for a variable.
_CELLS_PER_CALL = 2**12

Evidence = Mapping[Any, Any] | ArrayLike | None
Names = tuple[str, ...] | None
StateNames = tuple[tuple[str, ...], ...] | None


class ExactInference:
    """Queries by variable elimination; the base class of :class:`FactorGraph`."""

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
        """Compute the log of the product of the factors, with NaN cells summed out.

        Parameters
        ----------
        X : array-like of shape (n, d) or dataframe
            States, NaN for missing values. Columns of dataframes that are names of variables are
            read by name, their cells as names or numbers of states.

        Returns
        -------
        ndarray of shape (n,)
            Log values, ``-inf`` for impossible rows.
        """
        codes, missing = self._read_rows(X)
        # One structure per set of missing columns, and one table per distinct evidence.
        result = np.empty(len(codes))
        for group in self._posteriors.groups(codes, missing, evidence_alone=True):
            posterior = self._posteriors.for_evidence(group.hidden, group.switched)
            result[group.rows] = posterior.log_partition(group.codes)
        return result

    def log_partition(self, evidence: Evidence = None) -> float:
        """Compute the log of the sum of the product of the factors over all states.

        Parameters
        ----------
        evidence : mapping or array-like of shape (d,), default=None
            Observed states, as ``{variable: state}`` or as a row with NaN for the other variables.

        Returns
        -------
        float
            The logarithm; ``-inf`` if the evidence has probability zero.
        """
        return float(self.log_prob_unnormalized(self._evidence_row(evidence))[0])

    def probability(self, query: Mapping[Any, Any], evidence: Evidence = None) -> float:
        """Compute the probability that some variables have given states.

        Parameters
        ----------
        query : mapping
            ``{variable: state}``, or ``{variable: states}`` with a set or list of states. Variables
            and states are given by name or number.
        evidence : mapping or array-like of shape (d,), default=None
            Observed states.

        Returns
        -------
        float
            The conditional probability of the query.

        Raises
        ------
        ZeroProbabilityError
            If the evidence has probability zero.

        Examples
        --------
        >>> from skcircuits.graphical import BayesianNetwork
        >>> network = BayesianNetwork(
        ...     [[], [0]],
        ...     [[0.5, 0.3, 0.2], [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]],
        ...     variable_names=["weather", "street"],
        ...     state_names=[["sun", "rain", "snow"], ["dry", "wet"]],
        ... )
        >>> round(network.probability({"weather": {"rain", "snow"}}, {"street": "wet"}), 3)
        0.872
        """
        if not isinstance(query, Mapping):
            way_out = "Write {variable: state}."
            raise TypeError(must("query", "be a mapping", way_out, query=query))
        row = self._evidence_row(evidence)
        self._read_possible_rows(row)
        columns = self._read_variables(list(query))
        wanted = [self._read_states(variable, states) for variable, states in query.items()]
        # Variables that are observed already, or whose state does not matter, are no question
        possible = [
            states & {int(row[0, v])} if row[0, v] >= 0 else states
            for v, states in zip(columns, wanted)
        ]
        asked = [
            (v, sorted(states))
            for v, states in zip(columns, possible)
            if len(states) < self.cardinalities[v] and np.isnan(row[0, v])
        ]
        n_rows = prod(len(states) for _, states in asked)
        if n_rows > _MAX_JOINT_STATES:
            condition = f"have at most {_MAX_JOINT_STATES} joint states"
            way_out = "Ask for fewer variables at once, or compile() and use log_prob_box."
            raise invalid("query", condition, way_out, n_states=n_rows)
        if not all(possible):
            return 0.0
        rows = np.tile(row, (n_rows, 1))
        rows[:, [v for v, _ in asked]] = list(product(*(states for _, states in asked)))
        log_prob = logsumexp(self.log_prob_unnormalized(rows)) - self.log_partition(row)
        return float(np.exp(min(log_prob, 0.0)))

    def _read_states(self, variable: Any, states: Any) -> set[int]:
        """Read one state or several."""
        is_single = isinstance(states, str) or not np.iterable(states)
        each = [states] if is_single else listed(states, f"states of variable {variable!r}")
        rows = [self._evidence_row({variable: state}) for state in each]
        if not rows:
            raise invalid(f"states of variable {variable!r}", "be at least one", n=0)
        codes = self._read_rows(np.concatenate(rows))[0]
        return set(codes[:, self._read_variables([variable])[0]].tolist())

    def width(self, evidence: Evidence = None, order: str | Sequence[int] = "auto") -> int:
        """Compute the induced width of variable elimination, which determines its cost.

        Parameters
        ----------
        evidence : mapping or array-like of shape (d,), default=None
            Observed states.
        order : {"auto", "min_fill", "min_weight", "weighted_min_fill"} or sequence of int, \
default="auto"
            The elimination order; "auto" selects the cheapest of the other heuristics.

        Returns
        -------
        int
            Size of the largest separator.
        """
        hidden = np.isnan(self._evidence_row(evidence)[0]).nonzero()[0]
        return Posterior(self._posteriors.scaled, self.cardinalities, hidden, order).width

    def marginals(self, evidence: Evidence = None) -> list[FloatArray]:
        """Compute the distribution of every variable.

        Parameters
        ----------
        evidence : mapping or array-like of shape (d,), default=None
            Observed states.

        Returns
        -------
        list of ndarray of shape (k_j,)
            One distribution per variable; a point mass for observed variables.
        """
        return [table[0] for table in self.conditional_marginals(self._evidence_row(evidence))]

    def conditional_marginals(self, X: ArrayLike) -> list[FloatArray]:
        """Compute the distribution of every variable given the observed cells of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            States, NaN for missing values.

        Returns
        -------
        list of ndarray of shape (n, k_j)
            One table per variable; point masses for observed cells.

        Raises
        ------
        ZeroProbabilityError
            If the observed cells have probability zero.
        """
        codes, missing = self._read_possible_rows(X)
        tables = [np.zeros((len(codes), int(k))) for k in self.cardinalities]
        for variable, table in enumerate(tables):
            # Point masses first; missing cells are overwritten below.
            table[np.arange(len(codes)), codes[:, variable]] = 1.0
        for group in self._posteriors.groups(codes, missing):
            for posterior, variables in self._posteriors.for_marginals(
                group.hidden, group.switched
            ):
                for variable, table in posterior.marginals(group.codes, variables).items():
                    is_missing = missing[group.rows, variable]
                    tables[variable][group.rows[is_missing]] = table[is_missing]
        return tables

    def joint_marginal(self, variables: Sequence[Any], evidence: Evidence = None) -> FloatArray:
        """Compute the joint distribution of several variables.

        Parameters
        ----------
        variables : sequence of int or str
            The variables, by index or name.
        evidence : mapping or array-like of shape (d,), default=None
            Observed states.

        Returns
        -------
        ndarray of shape (k_1, ..., k_m)
            One axis per variable, in the order given.

        Raises
        ------
        MemoryError
            If the table would not fit into the working memory.

        Examples
        --------
        >>> from skcircuits.graphical import FactorGraph
        >>> graph = FactorGraph([((0, 1), [[2, 1], [1, 2]]), ((1,), [1, 3])], [2, 2])
        >>> graph.joint_marginal([1, 0]).round(3)
        array([[0.167, 0.083],
               [0.25 , 0.5  ]])
        """
        columns = self._read_variables(variables)
        codes, missing = self._read_possible_rows(self._evidence_row(evidence))
        hidden = frozenset(missing[0].nonzero()[0].tolist())
        free = [v for v in columns if v in hidden]
        joint = self._posteriors.for_joint(hidden, free).joint(codes, free)[0]
        # Observed variables are point masses.
        table = np.zeros([int(self.cardinalities[v]) for v in columns])
        table[tuple(slice(None) if v in hidden else codes[0, v] for v in columns)] = joint
        return table

    def mpe(self, X: ArrayLike) -> FloatArray:
        """Complete rows by the most probable joint states of their missing cells.

        Parameters
        ----------
        X : array-like of shape (n, d)
            States, NaN for missing values.

        Returns
        -------
        ndarray of shape (n, d)
            Complete rows. If several completions are equally probable, one of them is returned.

        Raises
        ------
        ZeroProbabilityError
            If the observed cells have probability zero.
        """
        codes, missing = self._read_possible_rows(X)
        for group in self._posteriors.groups(codes, missing):
            posterior = self._posteriors.all_hidden(group.hidden, group.switched)
            found = posterior.most_probable(group.codes)
            codes[group.rows] = found[:, : codes.shape[1]]
        return codes.astype(np.float64)

    def entropy(self, variables: Sequence[Any] | None = None, evidence: Evidence = None) -> float:
        """Compute the entropy of the joint distribution of variables, in nats.

        Parameters
        ----------
        variables : sequence of int or str, default=None
            The variables, by index or name; all by default, which needs no joint table.
        evidence : mapping or array-like of shape (d,), default=None
            Observed states. The entropy of observed variables is zero.

        Returns
        -------
        float
            The entropy.
        """
        if variables is not None:
            return _entropy(self.joint_marginal(variables, evidence))
        codes, missing = self._read_possible_rows(self._evidence_row(evidence))
        hidden = frozenset(missing[0].nonzero()[0].tolist())
        return float(self._posteriors.all_hidden(hidden).entropy(codes)[0])

    def mutual_information(
        self,
        first: Sequence[Any],
        second: Sequence[Any],
        given: Sequence[Any] = (),
        evidence: Evidence = None,
    ) -> float:
        """Compute the mutual information of two groups of variables given a third, in nats.

        Parameters
        ----------
        first, second, given : sequence of int or str
            Disjoint groups of variables, by index or name.
        evidence : mapping or array-like of shape (d,), default=None
            Observed states.

        Returns
        -------
        float
            ``I(first; second | given, evidence)``; zero if the groups are independent.
        """
        first, second, given = map(self._read_variables, (first, second, given))
        joint = self.joint_marginal([*first, *second, *given], evidence)
        axes = np.arange(joint.ndim)
        of_first, of_second, _ = np.split(axes, np.cumsum([len(first), len(second)]))
        # I(A; B | C) = H(A, C) + H(B, C) - H(C) - H(A, B, C)
        values = [
            _entropy(joint.sum(axis=tuple(gone)))
            for gone in (of_second, of_first, [], [*of_first, *of_second])
        ]
        return max(values[0] + values[1] - values[2] - values[3], 0.0)

    def posterior(self, hidden: Collection[int]) -> Posterior:
        """Get the structure of exact inference for some missing variables.

        Parameters
        ----------
        hidden : collection of int
            The variables that are not observed.

        Returns
        -------
        Posterior
            An object for any number of evidences on the other variables.
        """
        checked = frozenset(integers(hidden, "variables"))
        outside = sorted(v for v in checked if not 0 <= v < len(self.cardinalities))
        if outside:
            raise invalid(
                "variables", f"be below {len(self.cardinalities)}, from 0", variables=outside
            )
        return self._posteriors.all_hidden(checked)

    def sample(
        self, n_samples: int, X: ArrayLike | None = None, random_state: Any = None
    ) -> FloatArray:
        """Draw independent exact samples.

        Parameters
        ----------
        n_samples : int
            Number of samples (per row of ``X``).
        X : array-like of shape (n, d), default=None
            Rows to complete.
        random_state : int, Generator, RandomState or None, default=None
            Seed.

        Returns
        -------
        ndarray of shape (n_samples, d) or (n_samples, n, d)
            States, or completions of the rows of ``X``.
        """
        require_count(0, n_samples=n_samples)
        rng = as_generator(random_state)
        table = self._evidence_row(None)
        if X is not None:
            states, is_missing = self._read_rows(X)
            table = np.where(is_missing, np.nan, states)
        codes, missing = self._read_possible_rows(table)
        drawn = np.empty((n_samples, *table.shape))
        for group in self._posteriors.groups(codes, missing) if n_samples else ():
            posterior = self._posteriors.all_hidden(group.hidden, group.switched)
            # Copies of a row have the same evidence and are solved once.
            completed = posterior.draw(np.tile(group.codes, (n_samples, 1)), rng)
            completed = completed[:, : table.shape[1]]
            drawn[:, group.rows] = completed.reshape(n_samples, *codes[group.rows].shape)
        return drawn[:, 0] if X is None else drawn

    def _read_variables(self, variables: Sequence[Any]) -> list[int]:
        # Of a mapping, the keys would be taken for variables whose states are not observed
        if isinstance(variables, str | Mapping) or not np.iterable(variables):
            condition = "be a sequence of numbers or names"
            way_out = "Observed states are passed as evidence."
            raise invalid("variables", condition, way_out, variables=variables)
        columns = [
            variable_index(v, len(self.cardinalities), self.variable_names) for v in variables
        ]
        if len(set(columns)) != len(columns):
            raise invalid("variables", "be different", variables=list(variables))
        return columns

    def _read_rows(self, X: ArrayLike) -> tuple[IntArray, BoolArray]:
        return read_rows(X, self.cardinalities, self.variable_names, self.state_names)

    def _read_possible_rows(self, X: ArrayLike) -> tuple[IntArray, BoolArray]:
        """Read rows and refuse those whose observed cells are impossible."""
        # Conditional distributions given an impossible event do not exist.
        impossible = np.isneginf(self.log_prob_unnormalized(X)).nonzero()[0]
        if len(impossible) and np.isneginf(self.log_partition()):
            raise ZeroProbabilityError(
                must(
                    "partition function of the model",
                    "be positive",
                    "Every joint state has a factor that is zero: correct the tables, or "
                    "soften() the model.",
                    log_partition=-np.inf,
                ),
                impossible.tolist(),
            )
        if len(impossible):
            way_out = "Drop these rows, or soften() the model."
            raise ZeroProbabilityError(
                must("evidence", "have positive probability", way_out, rows=impossible.tolist()),
                impossible.tolist(),
            )
        return self._read_rows(X)

    def _evidence_row(self, evidence: Evidence) -> FloatArray:
        return evidence_row(evidence, self.cardinalities, self.variable_names, self.state_names)


def _entropy(table: FloatArray) -> float:
    """Entropy of a table of probabilities; zeros add nothing."""
    return float(entr(table).sum())


class Group(NamedTuple):
    """Rows of one structure: ``codes`` (n, d), or (n, 2 d) with switches, variables ``hidden`` in
    some of them, and those of these that others have, ``switched``.
    """

    rows: IntArray
    codes: IntArray
    hidden: frozenset[int]
    switched: frozenset[int] = frozenset()


class Posteriors:
    """Structures of inference, kept by hidden variables; ``children[i]`` is that of factor i, or
    None if factors are potentials. In joint structures variable v has a switch d + v: a state or
    missing.
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        cardinalities: IntArray,
        children: Sequence[int] | None = None,
    ) -> None:
        self.factors = factors
        self.cardinalities = cardinalities
        self.families = None
        if children is not None:
            self.families = {child: index for index, child in enumerate(children)}
        # Caches of the object, not of the class, so that they are freed with it
        self.all_hidden = lru_cache(maxsize=_MAX_KEPT)(
            lambda hidden, switched=frozenset(): self._posterior(self.scaled, hidden, switched)
        )
        self.for_evidence = lru_cache(maxsize=_MAX_KEPT)(self._for_evidence)
        self.for_marginals = lru_cache(maxsize=_MAX_KEPT)(self._for_marginals)
        self._joint_cells = lru_cache(maxsize=_MAX_KEPT)(
            lambda hidden, variables: self._quick_order(hidden, variables)[1]
        )

    @cached_property
    def scaled(self) -> tuple[ScaledFactor, ...]:
        """The factors, ready for products."""
        return scaled_factors(self.factors)

    def groups(
        self, codes: IntArray, missing: BoolArray, *, evidence_alone: bool = False
    ) -> list[Group]:
        """Group rows by missing variables, or all at once if that is cheaper."""
        groups = [Group(rows, codes[rows], hidden) for rows, hidden in missing_patterns(missing)]
        if len(groups) < _MIN_PATTERNS:
            return groups
        n_variables = len(self.cardinalities)
        every = frozenset(range(n_variables))
        n_summed = sum(
            len(
                group.hidden & self.relevant(every - group.hidden)
                if evidence_alone
                else group.hidden
            )
            for group in groups
        )
        hidden = frozenset(np.flatnonzero(missing.any(axis=0)).tolist())
        switched = hidden.difference(np.flatnonzero(missing.all(axis=0)).tolist())
        if n_summed < _MIN_REPEATS * len(hidden):
            return groups
        # One structure spares the search for the others, and most calls; its tables are larger
        observed = every - (hidden - switched)
        variables = self.relevant(observed) if evidence_alone else every
        n_cells = len(codes) * self._joint_cells(hidden, variables)
        n_cells += sum(int(self.cardinalities[v]) ** 2 for v in switched)
        if n_cells > _CELLS_PER_CALL * n_summed:
            return groups
        switches = np.where(missing, self.cardinalities, codes)
        both = np.concatenate([codes, switches], axis=1)
        return [Group(np.arange(len(codes)), both, hidden, switched)]

    def _posterior(
        self,
        factors: Sequence[ScaledFactor],
        hidden: frozenset[int],
        switched: frozenset[int],
        order: Sequence[int] | str = "auto",
    ) -> Posterior:
        if not switched:
            return Posterior(factors, self.cardinalities, hidden, order)
        switches = scaled_factors([_switch(v, self.cardinalities) for v in sorted(switched)])
        cardinalities = np.concatenate([self.cardinalities, self.cardinalities + 1])
        return Posterior([*factors, *switches], cardinalities, hidden, order)

    def relevant(self, variables: Collection[int]) -> frozenset[int]:
        """The given variables and all of their ancestors."""
        if self.families is None:
            return frozenset(range(len(self.cardinalities)))
        # All others are barren: their tables sum to one (Shachter 1986)
        found, frontier = set(variables), list(variables)
        while frontier:
            fresh = set(self.factors[self.families[frontier.pop()]].scope) - found
            found |= fresh
            frontier += fresh
        return frozenset(found)

    def restricted(
        self,
        hidden: frozenset[int],
        variables: frozenset[int],
        order: Sequence[int] | str = "auto",
        switched: frozenset[int] = frozenset(),
    ) -> Posterior:
        """Give the structure of the relevant variables alone."""
        if self.families is None:
            return self._posterior(self.scaled, hidden, switched, order)
        # Sorted, so that equal sets give equal trees and results of equal bits
        factors = [self.scaled[self.families[v]] for v in sorted(variables)]
        return self._posterior(factors, hidden & variables, switched, order)

    def for_joint(self, hidden: frozenset[int], variables: Sequence[int]) -> Posterior:
        """Give a structure that sums out all but some of the hidden variables first."""
        observed = set(range(len(self.cardinalities))) - hidden
        relevant = self.relevant([*observed, *variables])
        scopes = [hidden.intersection(factor.scope) & relevant for factor in self.factors]
        # Joined with each other, as they will be in the end.
        order = elimination_order(
            [*scopes, *({v} for v in hidden), set(variables)], self.cardinalities, last=variables
        )
        return self.restricted(hidden, relevant, order)

    def _for_evidence(
        self, hidden: frozenset[int], switched: frozenset[int] = frozenset()
    ) -> Posterior:
        observed = set(range(len(self.cardinalities))) - (hidden - switched)
        return self.restricted(hidden, self.relevant(observed), switched=switched)

    def _for_marginals(
        self, hidden: frozenset[int], switched: frozenset[int] = frozenset()
    ) -> list[tuple[Posterior, frozenset[int]]]:
        """Structures, and the hidden variables whose marginals each of them computes."""
        if self.families is None or switched:
            return [(self.all_hidden(hidden, switched), hidden)]
        # One order tells whether a single tree is out of the question: others save a factor of
        # two at times, and take as long as the marginals of a dense network of thirty variables.
        n_cells = self._quick_order(hidden, frozenset(self.families))[1]
        if n_cells <= 4 * _MAX_SINGLE_CELLS:
            whole = self.all_hidden(hidden)
            if whole.n_cells <= _MAX_SINGLE_CELLS:
                return [(whole, hidden)]
        return self._peeled(hidden, n_cells)

    def _peeled(
        self, hidden: frozenset[int], n_cells: int
    ) -> list[tuple[Posterior, frozenset[int]]]:
        """Answer layer by layer for variables that none depends on, if cheaper than one pass."""
        observed = set(range(len(self.cardinalities))) - hidden
        sets = {v: self.relevant([*observed, v]) for v in hidden}
        # The variable is the root of its tree, so that the forward pass suffices.
        own = lru_cache(maxsize=None)(lambda v: self._quick_order(hidden, sets[v], [v]))
        jobs: list[tuple[Posterior, frozenset[int]]] = []
        open_variables = hidden
        while n_cells > _MIN_SPLIT_CELLS:
            # A variable that is relevant only to its own marginal is barren for all others
            n_dependent = Counter(chain.from_iterable(sets[v] for v in open_variables))
            last = [v for v in sorted(open_variables) if n_dependent[v] == 1]
            layer = {v: own(v) for v in last if own(v)[1] > _MIN_OWN_CELLS}
            others = open_variables.difference(layer)
            relevant = frozenset().union(*(sets[v] for v in others))
            below = self._quick_order(hidden, relevant)
            total = sum(cells for _, cells in layer.values()) + _TWO_PASSES * below[1]
            if not layer or total >= _TWO_PASSES * n_cells:
                break
            jobs += [
                (self._improved(hidden, sets[v], found, [v]), frozenset({v}))
                for v, found in layer.items()
            ]
            rest, n_cells, open_variables = (relevant, below), below[1], others
        # If no variable was removed, other queries may have cached the tree of all variables.
        whole = self._improved(hidden, *rest) if jobs else self.all_hidden(hidden)
        return [*jobs, (whole, open_variables)]

    def _quick_order(
        self, hidden: frozenset[int], variables: frozenset[int], last: Sequence[int] = ()
    ) -> tuple[list[int], int]:
        """An order of the relevant variables alone, and its cells."""
        return quick_order(self._hidden_scopes(hidden, variables), self.cardinalities, last)

    def _improved(
        self,
        hidden: frozenset[int],
        variables: frozenset[int],
        quick: tuple[list[int], int],
        last: Sequence[int] = (),
    ) -> Posterior:
        """Try the other criteria too: on small structures they take longer than they save."""
        order, n_cells = quick
        if n_cells > 4 * _MAX_SINGLE_CELLS:
            scopes = self._hidden_scopes(hidden, variables)
            order = elimination_order(scopes, self.cardinalities, last=last)
        return self.restricted(hidden, variables, order)

    def _hidden_scopes(
        self, hidden: frozenset[int], variables: frozenset[int]
    ) -> list[frozenset[int]]:
        if self.families is None:
            return [hidden.intersection(factor.scope) for factor in self.factors]
        return [hidden.intersection(self.factors[self.families[v]].scope) for v in variables]


def _switch(variable: int, cardinalities: IntArray) -> Factor:
    """The factor that keeps a variable at the state of its switch, if that is one."""
    n_states = int(cardinalities[variable])
    table = np.hstack([np.eye(n_states), np.ones((n_states, 1))])
    return Factor.from_table((variable, len(cardinalities) + variable), table)


def read_rows(
    X: Any,
    cardinalities: IntArray,
    variable_names: Names = None,
    state_names: StateNames = None,
) -> tuple[IntArray, BoolArray]:
    """Split rows into codes and missing cells; dataframes by name, or position if no name fits."""
    columns = list(getattr(X, "columns", ()))
    if variable_names is not None and any(name in variable_names for name in columns):
        X = _by_names(X, columns, variable_names, state_names)
    table = float_array(X, "X")
    if table.ndim != 2 or table.shape[1] != len(cardinalities):
        raise invalid("X", f"have shape (n, {len(cardinalities)})", shape=table.shape)
    missing = np.isnan(table)
    # Any valid state: columns of missing cells are not read.
    filled = np.where(missing, 0.0, table)
    is_invalid = (filled < 0) | (filled >= cardinalities) | (filled != np.floor(filled))
    if is_invalid.any():
        # One example is more informative than a count.
        row, column = np.argwhere(is_invalid)[0].tolist()
        what = f"cells of column {column} of X"
        condition = f"be states between 0 and {cardinalities[column] - 1}"
        way_out = "Encode the categories first."
        raise invalid(what, condition, way_out, value=float(table[row, column]))
    return filled.astype(np.int64), missing


def _by_names(
    X: Any, columns: list[Any], variable_names: tuple[str, ...], state_names: StateNames
) -> FloatArray:
    """Rows of a dataframe, NaN in variables that it lacks; cells are states or their numbers."""
    unknown = [name for name in columns if name not in variable_names]
    if unknown or len(set(columns)) < len(columns):
        condition = f"be different variables of {variable_names}"
        raise invalid("columns of X", condition, "Drop the others.", columns=columns)
    table = np.full((len(X), len(variable_names)), np.nan)
    for name in columns:
        column = variable_names.index(name)
        if np.asarray(X[name]).dtype.kind in "biuf":
            table[:, column] = X[name]
            continue
        names = state_names[column] if state_names else None
        cells = np.asarray(X[name], dtype=object).tolist()
        codes = {
            cell: np.nan
            if _is_missing(cell)
            else _position(cell, names, f"state of variable {name!r}")
            for cell in dict.fromkeys(cells)
        }
        table[:, column] = [codes[cell] for cell in cells]
    return table


def _is_missing(cell: Any) -> bool:
    # pandas' NA compares to nothing, not even to itself
    return cell is None or (not isinstance(cell, str) and str(cell) in ("nan", "<NA>"))


def missing_patterns(missing: BoolArray) -> Iterator[tuple[IntArray, frozenset[int]]]:
    """Group rows by the set of their missing columns."""
    patterns, members = distinct_patterns(missing)
    for index, pattern in enumerate(patterns):
        yield (members == index).nonzero()[0], frozenset(pattern.nonzero()[0].tolist())


def evidence_row(
    evidence: Evidence,
    cardinalities: IntArray,
    variable_names: Names = None,
    state_names: StateNames = None,
) -> FloatArray:
    """Turn evidence into one row, NaN where unknown."""
    n_variables = len(cardinalities)
    if evidence is not None and not isinstance(evidence, Mapping):
        row = np.atleast_2d(float_array(evidence, "evidence"))
        if row.shape != (1, n_variables):
            raise invalid("evidence", f"be one row of {n_variables} cells", shape=row.shape)
        return row
    row = np.full((1, n_variables), np.nan)
    for variable, state in (evidence or {}).items():
        column = variable_index(
            variable, n_variables, variable_names, thing="variable of the evidence"
        )
        names = state_names[column] if state_names else None
        thing, last = f"state of variable {variable!r}", int(cardinalities[column]) - 1
        row[0, column] = _position(state, names, thing)
        if not 0 <= row[0, column] <= last:
            condition = f"be between 0 and {last}" + (f", or one of {names}" if names else "")
            raise invalid(thing, condition, state=state)
    return row


def variable_index(
    variable: Any, n_variables: int, variable_names: Names = None, *, thing: str = "variable"
) -> int:
    """Column of a variable that is given by number or name."""
    column = _position(variable, variable_names, thing)
    if not 0 <= column < n_variables:
        raise invalid(thing, f"be between 0 and {n_variables - 1}", variable=variable)
    return column


def check_names(
    variable_names: Sequence[str] | None,
    state_names: Sequence[Sequence[str]] | None,
    cardinalities: IntArray,
) -> tuple[Names, StateNames]:
    """Check that there is one distinct name per variable."""
    variables = None if variable_names is None else listed(variable_names, "variable_names")
    if variables is not None:
        _check_distinct(variables, len(cardinalities), "variable_names")
    states = None
    if state_names is not None:
        each = listed(state_names, "state_names")
        states = tuple(listed(names, "state_names of every variable") for names in each)
    if states is not None:
        _check_distinct(range(len(states)), len(cardinalities), "state_names")
        for variable, (names, count) in enumerate(zip(states, cardinalities.tolist())):
            _check_distinct(names, count, f"state_names of variable {variable}")
    return variables, states


def _check_distinct(names: Sequence[Any], count: int, thing: str) -> None:
    try:
        n_different = len(set(names))
    except TypeError as error:
        raise TypeError(must(thing, "be names", names=list(names))) from error
    if len(names) != count or n_different != count:
        raise invalid(thing, f"be {count} different names", names=list(names))


def _position(label: Any, names: Names, thing: str) -> int:
    if not isinstance(label, str):
        # Numbers of a table are floats; 0.5, NaN and None are no positions.
        is_integer = isinstance(label, (Integral, np.bool_))
        if is_integer or (isinstance(label, Real) and float(label).is_integer()):
            return int(label)
        raise invalid(thing, "be a name or an integer", label=label)
    if names is None:
        raise invalid(thing, "be an integer, because the model has no names for it", label=label)
    if label not in names:
        raise invalid(thing, f"be one of {names}", "Or use its number.", label=label)
    return names.index(label)
