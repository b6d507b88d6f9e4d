"""The class `Circuit`: construction, modification, properties, size and files."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from skcircuits.circuits import _formats as files
from skcircuits.circuits._drawing import circuit_svg, describe, to_dot
from skcircuits.circuits.engine._plan import Plan, compile_list
from skcircuits.circuits.queries._circuit_queries import CircuitQueries
from skcircuits.circuits.queries._marginals import condition, marginalize
from skcircuits.circuits.structure.units import (
    Unit,
    UnitList,
    WeightedUnit,
    as_unit,
    topological_order,
)
from skcircuits.exceptions import must
from skcircuits.numerics._arrays import integers
from skcircuits.protocols import ImmutableMixin


class Circuit(ImmutableMixin, CircuitQueries):
    """A probabilistic circuit: a function of the columns of a table with exact queries.

    Parameters
    ----------
    root : Unit or WeightedUnit
        The root unit, or an expression of units with ``+`` and ``*``.

    Notes
    -----
    The columns of ``X`` are always indexed by the original variables: after ``marginalize`` or
    ``condition``, X has the same number of columns, and the columns of absent variables are
    ignored. NaN denotes a missing value. Circuits are immutable, and scikit-learn's ``clone``
    returns them unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Categorical, Circuit, Gaussian
    >>> p = Circuit(
    ...     0.3 * Categorical(0, [0.2, 0.8]) * Gaussian(1, mean=0.0, std=1.0)
    ...     + 0.7 * Categorical(0, [0.5, 0.5]) * Gaussian(1, 2.0, 1.0)
    ... )
    >>> np.exp(p.log_prob([[1.0, np.nan]]))
    array([0.59])
    """

    def __init__(self, root: Unit | WeightedUnit) -> None:
        vars(self)["root"] = as_unit(root)

    @classmethod
    def _of_list(cls, units: UnitList) -> Circuit:
        """Build a circuit from a list of units; they are linked when somebody asks for the root."""
        circuit = cls.__new__(cls)
        vars(circuit)["_list"] = units
        return circuit

    # Pickles and copies carry the list; the plan is compiled again when needed.
    def __getstate__(self) -> dict[str, Any]:
        return {"units": self._list}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self)["_list"] = state["units"]

    # A circuit is made from one of the two
    @cached_property
    def root(self) -> Unit:
        """The root unit."""
        return self._list.linked[-1]

    @cached_property
    def _list(self) -> UnitList:
        return UnitList.of(topological_order(self.root))

    @cached_property
    def plan(self) -> Plan:
        """The compiled circuit."""
        return compile_list(self._list)

    # ------------------------------------------------------------------ facts

    @property
    def n_units(self) -> int:
        """Number of units."""
        return self.plan.n_units

    @property
    def n_edges(self) -> int:
        """Number of edges between units."""
        return self.plan.n_edges

    @cached_property
    def n_parameters(self) -> int:
        """Number of free parameters of sum units (one less than their children) and input units."""
        # The last weight of a sum follows from the others.
        weights = sum(len(layer.children) - len(layer.lengths) for layer in self.plan.sum_layers)
        return weights + sum(layer.n_parameters for _, layer in self.plan.inputs)

    @cached_property
    def size_in_bytes(self) -> int:
        """Memory of the arrays of the plan, in bytes."""
        inner = sum(layer.children.nbytes for layer in self.plan.layers)
        inputs = sum(layer.size_in_bytes for _, layer in self.plan.inputs)
        return inner + inputs + self.plan.weights.log.nbytes

    # ------------------------------------------------------- derived circuits

    def condition(self, x: Any) -> Circuit:
        """Condition on the observed cells of a row.

        Parameters
        ----------
        x : array-like of shape (n_columns,)
            One row, with NaN for the variables that remain.

        Returns
        -------
        Circuit
            The normalised conditional distribution of the variables that are NaN.

        Raises
        ------
        ZeroProbabilityError
            If the observed cells have probability zero.

        Notes
        -----
        Terms of a sum with a weight below e^-10000 given the observed cells are omitted.
        """
        self._require("condition")
        row = self._table([x], "x")[0]
        return _circuit_or_error(condition(self.plan, row), "condition")

    def marginalize(self, variables: Iterable[int]) -> Circuit:
        """Sum or integrate out variables.

        Parameters
        ----------
        variables : iterable of int
            Variables to remove.

        Returns
        -------
        Circuit
            The circuit without these variables.

        Raises
        ------
        ValueError
            If a variable is not a variable of the circuit, or if no variable would remain.
        ZeroProbabilityError
            If the circuit is zero everywhere.
        """
        self._require("marginalize")
        removed = frozenset(integers(variables, "variables"))
        unknown = removed - set(self.variables)
        if unknown:
            condition = f"belong to the circuit, which has {list(self.variables)}"
            raise ValueError(must("variables to marginalise", condition, variables=sorted(unknown)))
        return _circuit_or_error(marginalize(self.plan, removed), "marginalize")

    def normalize(self) -> Circuit:
        """Divide by the partition function.

        Returns
        -------
        Circuit
            A circuit in which every unit is normalised.

        Raises
        ------
        ZeroProbabilityError
            If the circuit is zero everywhere.
        """
        self._require("normalize")
        # Given nothing, a circuit is divided by its integral.
        nothing = np.full(self.plan.n_columns, np.nan)
        return _circuit_or_error(condition(self.plan, nothing), "normalize")

    # ------------------------------------------------------------------ files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the circuit to one ``.npz`` file with a JSON header (no pickle).

        Parameters
        ----------
        path : str or path-like
            File name.
        """
        files.save(self.root, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Circuit:
        """Read a circuit that was written by ``save``, without executing code of the file.

        Parameters
        ----------
        path : str or path-like
            File name.

        Returns
        -------
        Circuit
            The circuit.

        Raises
        ------
        CircuitFileError
            If the file is not a circuit, is damaged, or was written by a newer version.
        """
        return cls(files.load(path))

    @classmethod
    def from_psdd(
        cls, psdd_path: str | PathLike[str], vtree_path: str | PathLike[str] | None = None
    ) -> Circuit:
        """Read a probabilistic sentential decision diagram.

        Parameters
        ----------
        psdd_path : str or path-like
            Text file in the PSDD format, optionally compressed with gzip.
        vtree_path : str or path-like, default=None
            File of the vtree. If it is given, the PSDD is checked against it.

        Returns
        -------
        Circuit
            A circuit over binary variables; variable i of the file is column i - 1.

        Raises
        ------
        CircuitFileError
            If a file is not in the format.
        """
        return cls(files.read_psdd(psdd_path, vtree_path))

    def to_dot(self) -> str:
        """Write the graph in the DOT language of Graphviz.

        Returns
        -------
        str
            Source text.
        """
        return to_dot(self.plan)

    def __str__(self) -> str:
        """Show small circuits as an indented tree, large ones by their sizes."""
        return describe(self.plan)

    def __repr__(self) -> str:
        """Show the sizes in one line."""
        return (
            f"Circuit(n_variables={len(self.variables)}, n_units={self.n_units}, "
            f"n_edges={self.n_edges}, n_parameters={self.n_parameters})"
        )

    def _repr_html_(self) -> str:
        """Show a drawing in notebooks."""
        return circuit_svg(self.plan, repr(self))


def _circuit_or_error(root: Unit | None, operation: str) -> Circuit:
    """Wrap a root; refuse a result without variables."""
    if root is None:
        way_out = "Use log_prob for the probability of a whole row."
        raise ValueError(must(operation, "leave at least one variable", way_out))
    return Circuit(root)
