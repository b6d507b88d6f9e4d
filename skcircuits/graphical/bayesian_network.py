"""Bayesian networks over categorical variables."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import invalid
from skcircuits.graphical._formats import (
    NetworkDescription,
    named_file,
    parse_bif,
    parse_xmlbif,
    read_pgmpy_network,
    write_bif,
    write_xmlbif,
)
from skcircuits.graphical.factor import Factor
from skcircuits.graphical.factor_graph import FactorGraph
from skcircuits.numerics._arrays import float_array, integers, is_number, listed

# Difference from one of the sums of rows that are printed with three digits.
_ROUNDING = 5e-3


class BayesianNetwork(FactorGraph):
    """A product of conditional distributions ``p(x_i | parents of i)``.

    Parameters
    ----------
    parents : sequence of sequence of int
        Parents of each variable.
    tables : sequence of array-like
        Conditional probability tables, with one axis per parent, followed by an axis of the states,
        along which they sum to one. Rows whose sum differs from one by at most 0.005 (rounding) are
        divided by their sum.
    variable_names : sequence of str, default=None
        Names of the variables.
    state_names : sequence of sequence of str, default=None
        Names of the states of each variable.

    Attributes
    ----------
    parents : tuple of tuple of int
        Parents of each variable.

    See Also
    --------
    FactorGraph : The common methods, and the representation of rows and evidence.

    Notes
    -----
    A descendant of the queried variables does not change the answer, because its rows sum to one.
    If the rows sum to one only up to the digits of a file, it would change the answer by as much,
    and marginals would depend on the variables that an algorithm leaves out. With rescaled rows,
    the network is a distribution, and the answers of all queries and circuits agree.

    Examples
    --------
    >>> from skcircuits.graphical import BayesianNetwork
    >>> network = BayesianNetwork([[], [0]], [[0.8, 0.2], [[0.9, 0.1], [0.4, 0.6]]])
    >>> [float(p[1].round(3)) for p in network.marginals()]
    [0.2, 0.2]
    >>> float(network.marginals({1: 1})[0][1].round(3))
    0.6
    """

    def __init__(
        self,
        parents: Sequence[Sequence[int]],
        tables: Sequence[ArrayLike],
        *,
        variable_names: Sequence[str] | None = None,
        state_names: Sequence[Sequence[str]] | None = None,
    ) -> None:
        parents, tables = listed(parents, "parents"), listed(tables, "tables")
        if len(parents) != len(tables):
            condition = "be one per variable, as are parents"
            raise invalid("tables", condition, n_parents=len(parents), n_tables=len(tables))
        self.parents = tuple(integers(given, "parents") for given in parents)
        # A product of conditional distributions is a distribution only without cycles
        _check_acyclic(self.parents)
        factors = [
            _conditional(variable, given, table)
            for variable, (given, table) in enumerate(zip(self.parents, tables))
        ]
        super().__init__(
            factors,
            [factor.log_table.shape[-1] for factor in factors],
            variable_names=variable_names,
            state_names=state_names,
        )

    def _children(self) -> Sequence[int]:
        return range(len(self.factors))

    @classmethod
    def from_bif(cls, path: str | PathLike[str]) -> BayesianNetwork:
        """Read a network in the Bayesian network interchange format.

        Parameters
        ----------
        path : path-like
            The file.

        Returns
        -------
        BayesianNetwork
            The network, with the names of its variables and states.
        """
        with named_file("BIF", path) as data:
            return BayesianNetwork(**vars(parse_bif(data)))

    def to_bif(self, path: str | PathLike[str]) -> None:
        """Write the network in the Bayesian network interchange format.

        Parameters
        ----------
        path : path-like
            The file. Variables without names are called x0, x1, ..., and their states s0, s1, ...
        """
        write_bif(path, self._description())

    @classmethod
    def from_xmlbif(cls, path: str | PathLike[str]) -> BayesianNetwork:
        """Read a network in the XML interchange format, XMLBIF 0.3.

        Parameters
        ----------
        path : path-like
            The file. It must not declare entities.

        Returns
        -------
        BayesianNetwork
            The network, with the names of its variables and states.
        """
        with named_file("XMLBIF", path) as data:
            return BayesianNetwork(**vars(parse_xmlbif(data)))

    def to_xmlbif(self, path: str | PathLike[str]) -> None:
        """Write the network in the XML interchange format, XMLBIF 0.3.

        Parameters
        ----------
        path : path-like
            The file. Variables and states without names get the same ones as by `to_bif`.
        """
        write_xmlbif(path, self._description())

    def _description(self) -> NetworkDescription:
        # Files know no numbers: everything has a name in them
        names = self.variable_names or [f"x{v}" for v in range(len(self.parents))]
        states = self.state_names or [[f"s{k}" for k in range(n)] for n in self.cardinalities]
        return NetworkDescription(
            variable_names=list(names),
            state_names=[list(given) for given in states],
            parents=[list(given) for given in self.parents],
            tables=[np.exp(factor.log_table) for factor in self.factors],
        )

    @classmethod
    def from_pgmpy(cls, model: Any) -> BayesianNetwork:
        """Convert a discrete Bayesian network of pgmpy.

        Parameters
        ----------
        model : pgmpy.models.DiscreteBayesianNetwork
            An object whose ``get_cpds()`` returns tables with ``variables``, ``values`` and
            ``state_names``, with the child first.

        Returns
        -------
        BayesianNetwork
            The same network, with the variables in the order of its tables; variables that are
            called 0, 1, ..., d - 1 keep these numbers.

        Notes
        -----
        Names of variables and states become text. In evidence, text is a name, and a number is a
        position: a state that pgmpy calls 1 is ``"1"`` here, wherever it stands.
        """
        # Every variable is the child of one table, so it has the number of its table.
        names, states, tables = read_pgmpy_network(model)
        return BayesianNetwork(
            [scope[1:] for scope, _ in tables],
            # Tables of pgmpy begin with the child, ours end with it
            [np.moveaxis(table, 0, -1) for _, table in tables],
            variable_names=[str(name) for name in names],
            state_names=states,
        )

    def soften(self, amount: float) -> BayesianNetwork:
        """Mix every conditional distribution with the uniform one, so that none has a zero."""
        if not (is_number(amount) and 0 < amount <= 1):
            raise invalid("amount", "be in (0, 1]", amount=amount)
        # Rows, not whole tables: each conditional distribution stays normalised.
        tables = [np.exp(factor.log_table) for factor in self.factors]
        return BayesianNetwork(
            self.parents,
            [(1 - amount) * table + amount / table.shape[-1] for table in tables],
            variable_names=self.variable_names,
            state_names=self.state_names,
        )


def _conditional(variable: int, parents: Sequence[int], table: ArrayLike) -> Factor:
    """Build ``p(variable | parents)``; rows that are off by rounding are rescaled."""
    values = float_array(table, f"table of variable {variable}")
    scope = (*parents, variable)
    Factor.from_table(scope, values)  # refuses invalid tables
    totals = values.sum(axis=-1, keepdims=True)
    if not np.allclose(totals, 1.0, rtol=0, atol=_ROUNDING):
        worst = totals.ravel()[np.abs(totals - 1.0).argmax()]
        way_out = "Use FactorGraph for tables that are not normalised."
        raise invalid(
            f"rows of the table of variable {variable}", "sum to one", way_out, sum=float(worst)
        )
    # Divided before the logarithm is taken: rows that sum to one keep every bit.
    return Factor.from_table(scope, values / totals)


def _check_acyclic(parents: Sequence[Sequence[int]]) -> None:
    """Remove variables whose parents are gone, until none is left."""
    waiting = [{v for v in given if 0 <= v < len(parents)} for given in parents]
    children: list[list[int]] = [[] for _ in parents]
    for variable, given in enumerate(waiting):
        for parent in given:
            children[parent].append(variable)
    ready = [variable for variable, given in enumerate(waiting) if not given]
    # The list grows while it is read
    for parent in ready:
        for child in children[parent]:
            waiting[child].discard(parent)
            if not waiting[child]:
                ready.append(child)
    if len(ready) < len(parents):
        # Variables that cannot be removed lie on a cycle or below one.
        left = [variable for variable, given in enumerate(waiting) if given]
        raise invalid("parents", "form no cycle", variables=left)
