"""Input units: the interface of families, their registry, and rules of operations on units.

A family is one file with two classes: the *unit*, an immutable node of the symbolic circuit, and
the *layer*, which stacks the parameters of many units of the family, so that one call evaluates all
of them on a block of rows. Passes, queries and files use this interface alone.

Registered families can be saved and loaded. Rules (products, entropies, ...) are looked up by the
classes of the units, the nearest base class first; if there is no rule, a ``CircuitPropertyError``
is raised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from scipy import sparse

from skcircuits.circuits.structure.units import LeafUnit
from skcircuits.exceptions import CircuitPropertyError, invalid, must
from skcircuits.numerics._arrays import Rows, finite_peaks, listed
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray

#: Minus the log density of a standard normal at its peak.
LOG_SQRT_2PI = 0.5 * float(np.log(2.0 * np.pi))
#: Errors of the sum of masses by rounding, which is kept (files give the same numbers), and by
#: their digits.
ROUNDING, DIGITS = 1e-12, 1e-8
#: Writes the probabilities (n_units, m) of some of the boxes into an array.
WriteMasses = Callable[[Rows, FloatArray], object]

_Family = TypeVar("_Family", bound="type[InputUnit]")
_Rule = TypeVar("_Rule", bound=Callable[..., Any])

#: Registered families of input units by name.
FAMILIES: dict[str, type[InputUnit]] = {}


@dataclass(frozen=True)
class Box:
    """One box per row: the product of an interval (or a set of states) per column."""

    lower: FloatArray  # (n, n_columns), NaN where open
    upper: FloatArray  # (n, n_columns), NaN where open
    closed: str = "both"  # which ends belong to the intervals; matters for discrete variables
    states: Mapping[int, BoolArray] = field(default_factory=dict)  # (n, n_states), allowed ones
    stop: FloatArray | None = None  # (n, n_columns), where densities end; by default at `upper`

    @property
    def ends(self) -> FloatArray:
        """Where intervals end for densities."""
        return self.upper if self.stop is None else self.stop

    def rows(self, rows: Rows) -> Box:
        """The boxes of some rows."""
        states = {variable: mask[rows] for variable, mask in self.states.items()}
        stop = None if self.stop is None else self.stop[rows]
        return Box(self.lower[rows], self.upper[rows], self.closed, states, stop)

    def state_mask(self, variable: int, n_states: int) -> BoolArray:
        """Which states satisfy the bounds and belong to the set of each row, (n, n_states)."""
        codes = np.arange(n_states)
        lower = self.lower[:, variable, None]
        upper = self.upper[:, variable, None]
        # Comparisons with NaN are false: an open side excludes nothing
        inside = codes < lower if self.closed in ("both", "left") else codes <= lower
        # States are integers: whether an end belongs to the interval matters
        inside |= codes > upper if self.closed in ("both", "right") else codes >= upper
        np.logical_not(inside, out=inside)
        if variable in self.states:
            inside &= self.states[variable][:, :n_states]
        return inside


class InputUnit(LeafUnit, ABC):
    """Base class of the families of input units: an immutable node with parameters.

    A family is a subclass with a constructor that takes ``parameters()``, sets ``scope`` (a
    tuple of column numbers) and checks its arguments, and ``layer_type``, the `InputLayer` that
    evaluates many of its units at once. `register_input_unit` lets files hold it. Attributes
    are set once.

    Examples
    --------
    >>> from skcircuits.circuits import Gaussian, InputUnit
    >>> issubclass(Gaussian, InputUnit)
    True
    """

    #: The class that evaluates many units of this family at once.
    layer_type: ClassVar[type[InputLayer]]

    @property
    def layer_key(self) -> Hashable:
        """Key of the layer: units with equal keys form one layer. By default this is the family."""
        return self.layer_type

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Get the constructor arguments of the unit.

        Returns
        -------
        dict
            Keyword arguments: numbers and arrays of numbers.
        """

    def marginalize(self, variables: frozenset[int]) -> InputUnit | None:
        """Sum or integrate out some variables.

        Families over several variables override it.

        Parameters
        ----------
        variables : frozenset of int
            Variables to remove.

        Returns
        -------
        InputUnit or None
            The unit over the remaining variables; None if no variable remains.

        Raises
        ------
        CircuitPropertyError
            If some variables remain and the family does not define the marginals.
        """
        # A single variable is removed or stays: joint families alone need a rule.
        removed = variables.intersection(self.scope)
        if removed and len(removed) < len(self.scope):
            what = "input units that are marginalised"
            condition = "be of a family that overrides `marginalize`"
            raise CircuitPropertyError(must(what, condition, family=type(self).__name__))
        return None if removed else self

    def condition(self, x: FloatArray) -> InputUnit | None:
        """Condition on the observed variables of the scope.

        Parameters
        ----------
        x : ndarray of shape (n_columns,)
            One row, NaN for missing values.

        Returns
        -------
        InputUnit or None
            The conditional distribution of the missing variables; None if all are observed.
        """
        observed = frozenset(v for v in self.scope if not np.isnan(x[v]))
        return self.marginalize(observed)

    def __repr__(self) -> str:
        """Show the constructor call."""
        shown = [f"{name}={_short(value)}" for name, value in self.parameters().items()]
        return f"{type(self).__name__}({', '.join(shown)})"


class InputLayer(ABC):
    """Base class of layers: the stacked parameters of many input units of one family.

    Values are arrays of shape (n_units, n_rows), *units first*. NaN cells of ``X`` are
    marginalised. Observed cells of a completion stay as they are.

    Attributes
    ----------
    scopes : ndarray of shape (n_units, scope_size)
        Variables of each unit.
    is_discrete : bool
        True for masses over states or counts, False for densities.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Poisson
    >>> layer = Poisson.layer_type.stack([Poisson(0, 2.0), Poisson(0, 3.0)])
    >>> layer.log_prob(np.array([[0.0], [np.nan]]))
    array([[-2.,  0.],
           [-3.,  0.]])
    """

    scopes: IntArray
    is_discrete: ClassVar[bool]

    def __len__(self) -> int:
        return len(self.scopes)

    @classmethod
    @abstractmethod
    def stack(cls, units: Sequence[Any]) -> InputLayer:
        """Stack the parameters of units.

        Parameters
        ----------
        units : sequence of InputUnit
            Units of the family with the same ``layer_key``; in a plan, they are sorted by scope.

        Returns
        -------
        InputLayer
            The layer of the units.
        """

    @abstractmethod
    def log_prob(self, X: FloatArray) -> FloatArray:
        """Compute the log density (or log mass) of each unit at each row.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Rows of the whole table, NaN for missing values, which are marginalised.

        Returns
        -------
        ndarray of shape (n_units, n)
            Log values; 0 if all variables of a unit are missing.
        """

    def scaled_prob(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute densities on the linear scale, divided by the largest of each scope.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Rows, NaN marginalised.

        Returns
        -------
        values : ndarray of shape (n_units, n)
            Numbers in [0, 1].
        log_scale : ndarray of shape (n,)
            Logarithm of the factor by which each row is divided.
        """
        return self.scaled(self.log_prob(X))

    def scaled(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Convert log values to the linear scale, divided by the largest of each scope.

        Parameters
        ----------
        values : ndarray of shape (n_units, n)
            The result of ``log_prob``, which is overwritten.

        Returns
        -------
        values : ndarray of shape (n_units, n)
            Numbers in [0, 1].
        log_scale : ndarray of shape (n,)
            Logarithm of the factor by which each row is divided.
        """
        # Masses are at most one as they are, and other families may hold masses of the variable
        if self.is_discrete:
            return np.exp(values, out=values), np.zeros(values.shape[1])
        starts, counts = self.scope_runs
        peaks = finite_peaks(np.maximum.reduceat(values, starts, axis=0))
        values -= np.repeat(peaks, counts, axis=0)
        return np.exp(values, out=values), peaks.sum(axis=0)

    @cached_property
    def scope_runs(self) -> tuple[IntArray, IntArray]:
        """First unit and number of units of each scope; a plan sorts its units by scope."""
        changes = (self.scopes[1:] != self.scopes[:-1]).any(axis=1)
        starts = np.append(0, np.flatnonzero(changes) + 1)
        return starts, np.diff(np.append(starts, len(self)))

    @abstractmethod
    def log_box(self, box: Box) -> FloatArray:
        """Compute the log probability of the box of each row under each unit.

        Parameters
        ----------
        box : Box
            One box per row: ``lower`` and ``upper``, (n, n_columns), where NaN means no bound, and
            ``closed``, which determines whether the bounds belong to the box.

        Returns
        -------
        ndarray of shape (n_units, n)
            Log probabilities with small relative errors.
        """

    def prepare_boxes(self, box: Box) -> WriteMasses:
        """Precompute the quantities that all batches of rows need.

        Parameters
        ----------
        box : Box
            One box per row.

        Returns
        -------
        callable
            Writes the probabilities of the boxes of some rows, to an absolute 1e-15, into an array
            of shape (n_units, m).
        """
        return lambda rows, masses: np.exp(self.log_box(box.rows(rows)), out=masses)

    @abstractmethod
    def log_max(self, X: FloatArray) -> FloatArray:
        """Compute the log density (or log mass) of each unit at the best completion of each row.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Rows of the whole table, NaN for missing values, which are marginalised.

        Returns
        -------
        ndarray of shape (n_units, n)
            Log values of the rows that are completed by ``mode``.
        """

    @abstractmethod
    def mode(self, units: IntArray, cells: FloatArray) -> FloatArray:
        """Compute the best completions.

        Parameters
        ----------
        units : ndarray of shape (m,)
            The unit that completes each row of cells.
        cells : ndarray of shape (m, scope_size)
            The columns of the scope of the unit, NaN for cells to be completed.

        Returns
        -------
        ndarray of shape (m, scope_size)
            Completed cells.
        """

    @abstractmethod
    def draw(self, units: IntArray, cells: FloatArray, rng: RandomNumbers) -> FloatArray:
        """Draw the NaN cells given the observed cells of each unit.

        Parameters
        ----------
        units : ndarray of shape (m,)
            The unit that completes each row of cells.
        cells : ndarray of shape (m, scope_size)
            The columns of the scope of the unit, NaN for cells to be drawn.
        rng : RandomNumbers
            Object with ``random(m)`` for uniform and ``standard_normal(m)`` for normal numbers, one
            per row of cells.

        Returns
        -------
        ndarray of shape (m, scope_size)
            Completed cells.
        """

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Number of free parameters of all units."""

    @property
    def size_in_bytes(self) -> int:
        """Memory of the stacked parameters, in bytes."""
        return sum(v.nbytes for v in vars(self).values() if isinstance(v, np.ndarray))

    @property
    def bytes_per_row(self) -> int:
        """Temporary memory for the evaluation of one row, in bytes."""
        # Values and three temporaries in double precision.
        return 4 * 8 * self.scopes.size

    @property
    def massive_variables(self) -> IntArray:
        """Variables with points of positive mass under some unit: all, or none of densities."""
        return np.unique(self.scopes) if self.is_discrete else np.empty(0, dtype=np.intp)


class NumericalLayer(InputLayer):
    """Base class of layers over numerical variables (continuous variables and counts).

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import NumericalLayer, Poisson
    >>> issubclass(Poisson.layer_type, NumericalLayer)
    True
    """

    @abstractmethod
    def conditional_moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute the mean and variance of every cell given the observed cells of each unit.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Rows with NaN for missing values.

        Returns
        -------
        mean, variance : ndarray of shape (n_units, n, scope_size)
            The mean of an observed cell is its value, and its variance is 0.
        """

    def given(self, X: FloatArray) -> Conditionals:
        """Compute the log densities of rows and prepare their conditional means.

        Override this method if both need the same factorisations, or if the sum of the means by
        weights of the units takes less time than the means of every unit.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Rows with NaN for missing values.

        Returns
        -------
        Conditionals
            Log densities, then conditional means.
        """
        return Conditionals(self, X)


class Conditionals:
    """Log densities of some rows, then conditional means, for which factorisations may be kept."""

    def __init__(self, layer: NumericalLayer, X: FloatArray) -> None:
        self._layer, self._X = layer, X

    def log_prob(self) -> FloatArray:
        """Log density (or mass) of each unit at each row, shape (n_units, n)."""
        return self._layer.log_prob(self._X)

    def add_means(self, total: FloatArray, flows: FloatArray) -> None:
        """Add the conditional means to total (n_columns, n), times flows (n_units, n); what is
        added to observed cells is not read.
        """
        means = self._layer.conditional_moments(self._X)[0]
        total += per_column(self._layer.scopes, flows[..., None] * means, len(total))


def per_column(scopes: IntArray, values: FloatArray, n_columns: int) -> FloatArray:
    """Add up values (n_units, n, scope_size) of the columns in scopes, shape (n_columns, n)."""
    columns = scopes.ravel()
    terms = values.transpose(0, 2, 1).reshape(len(columns), -1)
    if terms.shape[1] == 1:
        return np.bincount(columns, terms[:, 0], n_columns)[:, None].astype(np.float64, copy=False)
    # A sparse matrix adds up the units of each column at once, but takes long to make
    ones = np.ones(len(columns))
    collect = sparse.csr_matrix(
        (ones, (columns, np.arange(len(columns)))), (n_columns, len(columns))
    )
    return np.asarray(collect @ terms)


def moments_of_columns(
    layer: NumericalLayer, X: FloatArray, means: FloatArray, variances: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Conditional moments (n_units, n, 1) of units of one variable with moments (n_units,)."""
    cells = X.T[layer.scopes[:, 0]]
    missing = np.isnan(cells)
    # Observed cells are their own mean, with variance zero
    mean = np.where(missing, means[:, None], cells)
    return mean[..., None], np.where(missing, variances[:, None], 0.0)[..., None]


class DensityLayer(NumericalLayer):
    """Input units over continuous variables."""

    is_discrete = False


class DifferentiableLayer(DensityLayer):
    """Input units whose log density has a gradient everywhere."""

    @abstractmethod
    def add_score(self, score: FloatArray, flows: FloatArray, X: FloatArray) -> None:
        """Add the gradients of the log densities at X (n, n_columns), times flows (n_units, n), to
        the observed cells of each unit's scope in ``score`` (n_columns, n).
        """


class StateFlows(NamedTuple):
    """How the flows of a layer divide among the states of one variable."""

    variable: int
    rows: IntArray  # (m,), in which the variable is unknown
    flows: FloatArray  # (n_states, m), of each state in these rows


class DiscreteInputLayer(InputLayer):
    """Input units over categorical variables, which have finitely many states."""

    is_discrete = True

    @property
    @abstractmethod
    def n_states(self) -> IntArray:
        """Number of states of each variable of each unit, (n_units, scope_size)."""

    @abstractmethod
    def tables(
        self, cardinalities: Mapping[int, int]
    ) -> Iterator[tuple[slice, tuple[int, ...], FloatArray]]:
        """Yield slices of units, their scope and their masses (n_own_units, n_codes + 1) at every
        joint state, missing counted as the last state (the last variable fastest), and a column of
        zeros.
        """

    @abstractmethod
    def state_flows(self, flows: FloatArray, X: FloatArray) -> Iterator[StateFlows]:
        """Divide the flows (n_units, n) among the states of missing cells; variables may repeat."""


def check_variable(variable: object) -> int:
    """Column number of a variable; ValueError if it is not a non-negative integer."""
    if isinstance(variable, bool) or not isinstance(variable, int | np.integer) or variable < 0:
        raise invalid(
            "variable of an input unit", "be a non-negative column number", variable=variable
        )
    return int(variable)


def check_variables(variables: Iterable[object]) -> tuple[int, ...]:
    """Check the variables of a joint unit and sort them."""
    return tuple(sorted(map(check_variable, listed(variables, "variables of an input unit"))))


def mass_divisor(total: float) -> float:
    """Divisor of masses with this sum: one, unless they add up to one but for their digits."""
    return total if ROUNDING < abs(total - 1.0) <= DIGITS else 1.0


def _short(value: Any) -> str:
    """Numbers to four digits; long arrays by their shape."""
    array = np.asarray(value)
    if array.ndim == 0:
        return f"{value:.4g}" if isinstance(value, float) else repr(value)
    if array.size > 6:
        return f"<array of shape {array.shape}>"
    return np.array2string(array, precision=4, separator=", ").replace("\n", "")


def register_input_unit(family: _Family) -> _Family:
    """Register a family of input units for use in files; a class decorator.

    Parameters
    ----------
    family : type
        A concrete subclass of ``InputUnit`` with a ``layer_type``. Files refer to it by the name of
        the class and rebuild units as ``family(**unit.parameters())``. Parameters must be numbers
        or arrays of numbers.

    Returns
    -------
    type
        The same class.

    Raises
    ------
    TypeError
        If the class is abstract or has no layer.
    ValueError
        If another family has the same name.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, register_input_unit
    >>> register_input_unit(Bernoulli) is Bernoulli
    True
    """
    missing = sorted(getattr(family, "__abstractmethods__", ()))
    layer = getattr(family, "layer_type", None)
    if missing or not (isinstance(layer, type) and issubclass(layer, InputLayer)):
        what = "a family of input units"
        condition = "define all abstract methods of InputUnit, and layer_type, an InputLayer"
        raise TypeError(
            must(what, condition, family=family.__name__, missing=missing or ["layer_type"])
        )
    # Files name families: two of one name could not be told apart
    if FAMILIES.setdefault(family.__name__, family) is not family:
        raise invalid("names of families", "differ", "Rename the class.", name=family.__name__)
    return family


def require_registered(families: Collection[type]) -> None:
    """Refuse units of families that no file can name."""
    unknown = {family.__name__ for family in families} - {
        name for name, family in FAMILIES.items() if family in families
    }
    if unknown:
        condition = "be registered"
        way_out = "Decorate their classes with skcircuits.circuits.register_input_unit."
        raise CircuitPropertyError(
            must("families of input units in a file", condition, way_out, families=sorted(unknown))
        )


class Rules:
    """Functions of input units by families; errors are about "input units that are <action>"."""

    def __init__(self, action: str) -> None:
        self._action = action
        self._rules: dict[tuple[type, ...], Callable[..., Any]] = {}

    def register(self, *families: type) -> Callable[[_Rule], _Rule]:
        """Decorate the rule for units of these families and their subclasses."""

        def add(rule: _Rule) -> _Rule:
            self._rules[families] = rule
            return rule

        return add

    def __call__(self, *units: InputUnit) -> Any:
        """Apply the rule of the nearest base classes."""
        # Nearest classes first, as method resolution does for one argument
        for families in product(*(type(unit).__mro__ for unit in units)):
            if families in self._rules:
                return self._rules[families](*units)
        what = f"input units that are {self._action}"
        condition = "be of families with a rule for it, alike in both circuits"
        way_out = "Discrete units, Gaussian units and histograms have one."
        raise CircuitPropertyError(
            must(what, condition, way_out, families=[type(unit).__name__ for unit in units])
        )


#: Product of two units over the same variables, a ``Scaled`` of a normalised unit, or ``ZERO``.
multiply_inputs = Rules("multiplied")
#: Quotient of two units, likewise; 0 where the divisor is zero.
divide_inputs = Rules("divided")
#: Two floats: ∫ left where right is zero, in which case any number but zero makes divergences
#: infinite, and ∫ left log(left / right) elsewhere.
divergence = Rules("compared")
#: Entropy of a unit in nats, differential where it is a density.
entropy = Rules("measured")
