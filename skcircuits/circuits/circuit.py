"""The class `Circuit`: construction, one method per query, derived circuits and files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import Any, Literal

import numpy as np

from skcircuits.circuits import _formats as files
from skcircuits.circuits._formats import circuit_svg, describe, to_dot
from skcircuits.circuits.engine._plan import Plan, compile_list
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.queries._boxes import log_box_probability
from skcircuits.circuits.queries._completion import (
    max_product_completion,
    sample,
    sample_completions,
    searched_completion,
)
from skcircuits.circuits.queries._marginals import (
    condition,
    conditional_marginals,
    conditional_mean,
    conditional_mean_and_marginals,
    conditional_variance,
    log_density_gradient,
    log_partition,
    log_probability,
    marginalize,
    require_gradients,
)
from skcircuits.circuits.structure.properties import WAY_TO_TRACTABLE, is_deterministic
from skcircuits.circuits.structure.units import (
    Immutable,
    Unit,
    UnitList,
    WeightedUnit,
    as_unit,
    topological_order,
)
from skcircuits.exceptions import (
    CircuitPropertyError,
    invalid,
    must,
    require,
    require_choice,
    require_count,
)
from skcircuits.numerics._arrays import float_array, integers
from skcircuits.numerics._random import RowStreams, as_generator
from skcircuits.protocols import BoolArray, FloatArray, ImmutableMixin

CLOSED = ("both", "left", "right", "neither")


class Circuit(ImmutableMixin, Immutable):
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

    @property
    def _inputs(self) -> Sequence[Unit]:
        """The input units, for which nothing is compiled."""
        return self._list.inputs

    @cached_property
    def plan(self) -> Plan:
        """The compiled circuit."""
        return compile_list(self._list)

    # ------------------------------------------------------------------ facts

    @property
    def variables(self) -> tuple[int, ...]:
        """Indices of the variables, sorted."""
        return self.plan.variables

    @cached_property
    def cardinalities(self) -> dict[int, int]:
        """Number of states of each discrete variable."""
        # A copy: callers may change the result, but not the plan
        return dict(self.plan.cardinalities)

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

    # ---------------------------------------------------------------- queries

    @cached_property
    def log_partition(self) -> float:
        """Logarithm of the integral over all rows; 0 for a normalised circuit."""
        self._require("log_partition")
        return log_partition(self.plan)

    def log_prob(self, X: Any) -> FloatArray:
        """Compute the log density of each row; NaN cells are marginalised.

        Parameters
        ----------
        X : array-like of shape (n, n_columns)
            Rows; codes 0, 1, ... for discrete variables.

        Returns
        -------
        ndarray of shape (n,)
            Log densities (log probabilities if all variables are discrete); ``-inf`` for impossible
            rows.

        Raises
        ------
        CircuitPropertyError
            If cells are NaN and the circuit is not smooth and decomposable.
        """
        X = self._table(X)
        self._require_for_missing("log_prob", X)
        return log_probability(self.plan, X)

    #: A circuit is a target of Stein methods and samplers.
    log_prob_unnormalized = log_prob

    def grad_log_prob(self, X: Any) -> FloatArray:
        """Compute the gradient of the log density (the score function) at each row.

        Parameters
        ----------
        X : array-like of shape (n, n_columns)
            Rows; NaN cells are marginalised.

        Returns
        -------
        ndarray of shape (n, n_columns)
            Derivatives with respect to the observed cells, 0 for columns that are not variables of
            the circuit; NaN for missing cells, and for rows whose log density is not finite.

        Raises
        ------
        CircuitPropertyError
            If there are input units other than ``Gaussian``, ``MultivariateGaussian`` and
            ``FactorGaussian``, or if cells are NaN and the circuit is not smooth and decomposable.

        Notes
        -----
        The gradient is a sum over the input units. Each term is the gradient of the log density of
        a unit times the derivative of the log density of the circuit with respect to it. One
        backward pass computes these derivatives for all units [1]_.

        References
        ----------
        .. [1] Darwiche, "A Differential Approach to Inference in Bayesian Networks", Journal
           of the ACM 50, 2003.

        Examples
        --------
        >>> import numpy as np
        >>> from skcircuits.circuits import Circuit, Gaussian
        >>> p = Circuit(0.5 * Gaussian(0, mean=-2.0, std=1.0) + 0.5 * Gaussian(0, 2.0, 1.0))
        >>> p.grad_log_prob([[-100.0], [-1.0], [1.0], [np.nan]]).ravel().round(2)
        array([98.  , -0.93,  0.93,   nan])
        """
        X = self._table(X)
        require_gradients(self.plan)
        self._require_for_missing("grad_log_prob", X)
        return log_density_gradient(self.plan, X)

    def log_prob_box(
        self,
        lower: Any,
        upper: Any,
        *,
        closed: Literal["both", "left", "right", "neither"] = "both",
        states: Mapping[int, BoolArray] | None = None,
    ) -> FloatArray:
        """Compute the log probability that each variable lies in its interval or set.

        Parameters
        ----------
        lower, upper : array-like of shape (n, n_columns)
            Bounds of the box of each row; NaN means no bound.
        closed : {"both", "left", "right", "neither"}, default="both"
            Ends that belong to the intervals, which matters for discrete variables.
        states : mapping of int to ndarray of bool of shape (n, n_states), default=None
            Allowed states of categorical variables, True where allowed.

        Returns
        -------
        ndarray of shape (n,)
            Log probabilities.

        Raises
        ------
        CircuitPropertyError
            If the circuit is not smooth and decomposable, or if the integral of a joint input unit
            over the box has no exact form.
        """
        self._require("log_prob_box")
        lower, upper = self._table(lower, "lower"), self._table(upper, "upper")
        if lower.shape != upper.shape:
            raise invalid("lower and upper", "have one shape", shapes=(lower.shape, upper.shape))
        if not isinstance(closed, str) or closed not in CLOSED:
            raise invalid("closed", f"be one of {CLOSED}", closed=closed)
        if states is not None:
            require("items", "a dict from variables to masks of states", states=states)
        masks = {v: self._state_mask(v, mask, len(lower)) for v, mask in (states or {}).items()}
        return log_box_probability(self.plan, Box(lower, upper, closed, masks))

    def expectation(self, X: Any) -> FloatArray:
        """Replace NaN cells by their conditional expectations E[x_j | observed cells].

        Parameters
        ----------
        X : array-like of shape (n, n_columns)
            Rows with NaN.

        Returns
        -------
        ndarray of shape (n, n_columns)
            Completed rows, with expected codes for discrete variables.

        Raises
        ------
        ZeroProbabilityError
            If the observed cells of a row have probability zero.
        """
        self._require("expectation")
        return conditional_mean(self.plan, self._table(X))

    def variance(self, X: Any) -> FloatArray:
        """Compute the conditional variance Var[x_j | observed cells] of every cell.

        Parameters
        ----------
        X : array-like of shape (n, n_columns)
            Rows with NaN.

        Returns
        -------
        ndarray of shape (n, n_columns)
            Variances, 0 for observed cells.

        Raises
        ------
        ZeroProbabilityError
            If the observed cells of a row have probability zero.
        """
        self._require("variance")
        return conditional_variance(self.plan, self._table(X))

    def marginals(self, X: Any) -> dict[int, FloatArray]:
        """Compute the conditional distribution of every discrete variable given the observed cells.

        Parameters
        ----------
        X : array-like of shape (n, n_columns)
            Rows with NaN.

        Returns
        -------
        dict of int to ndarray of shape (n, n_states)
            One entry per discrete variable.

        Raises
        ------
        ZeroProbabilityError
            If the observed cells of a row have probability zero.
        """
        self._require("marginals")
        return conditional_marginals(self.plan, self._table(X))

    def _mean_and_marginals(self, X: Any) -> tuple[FloatArray, dict[int, FloatArray]]:
        """Both `expectation` and `marginals` of rows, from one pass."""
        self._require("expectation")
        self._require("marginals")
        return conditional_mean_and_marginals(self.plan, self._table(X))

    def mpe(
        self, X: Any, method: Literal["exact", "search", "max_product"] = "exact"
    ) -> FloatArray:
        """Complete NaN cells with the most probable values.

        Parameters
        ----------
        X : array-like of shape (n, n_columns)
            Rows with NaN.
        method : {"exact", "search", "max_product"}, default="exact"
            "exact" requires a deterministic circuit. The others are approximations for other
            circuits. "max_product" follows the largest term of every sum. "search" starts from this
            completion and at most three others, and improves those that are nearly as good as the
            best in at most three steps: discrete columns get the state that is best given all other
            cells, others the best of some modes of their input units and an average of these. It is
            exact for deterministic circuits, never worse than "max_product" and takes up to thirty
            times as long.

        Returns
        -------
        ndarray of shape (n, n_columns)
            Completed rows.

        Raises
        ------
        CircuitPropertyError
            If ``method="exact"`` and the circuit is not provably deterministic.
        ZeroProbabilityError
            If the observed cells of a row have probability zero.
        """
        require_choice("exact", "search", "max_product", method=method)
        self._require("mpe")
        if method == "exact" and not self._is_deterministic:
            condition = "be deterministic for exact most probable completions"
            way_out = "Pass method='search' for an approximation."
            raise CircuitPropertyError(must("a circuit", condition, way_out, method=method))
        complete = searched_completion if method == "search" else max_product_completion
        return complete(self.plan, self._table(X))

    def sample(self, n_samples: int = 1, X: Any = None, random_state: Any = None) -> FloatArray:
        """Draw rows, or completions of the NaN cells of given rows.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows, or of completions per row.
        X : array-like of shape (n, n_columns), default=None
            Rows to complete.
        random_state : int, Generator, RandomState, RowStreams or None, default=None
            Source of randomness. With `RowStreams`, one per row of X (a single one without X), the
            draws of a row do not depend on the other rows.

        Returns
        -------
        ndarray of shape (n_samples, n_columns), or (n_samples, n, n_columns) with X
            Drawn rows. Columns that are not variables of the circuit are NaN (or as in X).

        Raises
        ------
        ZeroProbabilityError
            If the observed cells of a row have probability zero.
        """
        self._require("sample")
        require_count(0, n_samples=n_samples)
        if X is None:
            return sample(self.plan, int(n_samples), _random_source(random_state, 1))
        rows = self._table(X)
        rng = _random_source(random_state, len(rows))
        return sample_completions(self.plan, rows, int(n_samples), rng)

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
            raise invalid("variables to marginalise", condition, variables=sorted(unknown))
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

        Raises
        ------
        ValueError
            If the name ends in ``.psdd`` or ``.vtree``, formats that are read and not written.
        """
        if str(path).endswith((".psdd", ".psdd.gz", ".vtree")):
            condition = "be that of an .npz file: PSDD files are read, and not written"
            way_out = "Choose another name; Circuit.load reads the file."
            raise invalid("The name", condition, way_out, path=str(path))
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

    # ----------------------------------------------------------------- checks

    @cached_property
    def _is_tractable(self) -> tuple[bool, bool]:
        return self.plan.is_smooth, self.plan.is_decomposable

    @cached_property
    def _is_deterministic(self) -> bool:
        return is_deterministic(self)

    def _require_for_missing(self, query: str, X: FloatArray) -> None:
        """Refuse NaN cells where ``_require`` does; complete rows have a value everywhere."""
        if not all(self._is_tractable) and np.isnan(X[:, list(self.variables)]).any():
            self._require(f"{query} with NaN cells")

    def _require(self, query: str) -> None:
        """Refuse a query that is exact for smooth and decomposable circuits only."""
        if not all(self._is_tractable):
            smooth, decomposable = self._is_tractable
            condition = f"be smooth and decomposable for {query}"
            raise CircuitPropertyError(
                must(
                    "a circuit",
                    condition,
                    WAY_TO_TRACTABLE,
                    smooth=smooth,
                    decomposable=decomposable,
                )
            )

    def _table(self, X: Any, name: str = "X") -> FloatArray:
        """Check a table: two axes, wide enough, no infinite cells (bounds may be)."""
        table = np.atleast_1d(float_array(X, name))
        if table.ndim != 2:
            way_out = "Reshape one row with X.reshape(1, -1)."
            raise invalid(name, "be a table with two axes", way_out, shape=table.shape)
        if table.shape[1] < self.plan.n_columns:
            condition = (
                f"have at least {self.plan.n_columns} columns, as variables are column numbers"
            )
            raise invalid(name, condition, shape=table.shape)
        if name in ("X", "x") and np.isinf(table).any():
            row, column = np.argwhere(np.isinf(table))[0]
            condition = "be finite or NaN"
            way_out = f"Look at row {row}, column {column}."
            raise invalid(f"cells of {name}", condition, way_out, value=float(table[row, column]))
        return table

    def _state_mask(self, variable: int, mask: Any, n_rows: int) -> BoolArray:
        """Check the allowed states of one variable."""
        if variable not in self.cardinalities:
            condition = f"belong to discrete variables with states, {list(self.cardinalities)}"
            raise invalid("states of a box", condition, variable=variable)
        n_states = self.cardinalities[variable]
        array = np.asarray(mask)
        if array.dtype != bool or array.shape != (n_rows, n_states):
            what = f"states of variable {variable}"
            condition = f"be a boolean array of shape ({n_rows}, {n_states})"
            raise invalid(what, condition, shape=array.shape, dtype=str(array.dtype))
        return array


def _circuit_or_error(root: Unit | None, operation: str) -> Circuit:
    """Wrap a root; refuse a result without variables."""
    if root is None:
        way_out = "Use log_prob for the probability of a whole row."
        raise invalid(operation, "leave at least one variable", way_out)
    return Circuit(root)


def _random_source(random_state: Any, n_rows: int) -> np.random.Generator | RowStreams:
    """Make a generator, or check that there is a stream for every row."""
    if not isinstance(random_state, RowStreams):
        return as_generator(random_state)
    if len(random_state) != n_rows:
        condition = f"hold one stream per row, {n_rows} in all"
        way_out = "Make them from X, or from one row to draw without X."
        raise invalid("RowStreams as random_state", condition, way_out, n_streams=len(random_state))
    return random_state
