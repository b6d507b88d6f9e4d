"""Distributions over the states 0, 1, ..., k-1 of one variable.

``Categorical`` gives every state a probability, ``Bernoulli`` is its two-state form and
``Indicator`` puts all mass on one state. All three are evaluated by one table lookup, and
combine with each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import entr

from skcircuits.circuits._policy import MIN_RUN_ROWS
from skcircuits.circuits.inputs.base import (
    DIGITS,
    Box,
    DiscreteInputLayer,
    InputUnit,
    StateFlows,
    check_variable,
    divergence,
    divide_inputs,
    entropy,
    mass_divisor,
    multiply_inputs,
    register_input_unit,
)
from skcircuits.circuits.structure.units import ZERO, Scaled
from skcircuits.exceptions import CircuitPropertyError, invalid, must, require_count
from skcircuits.numerics._arrays import float_array, is_number, safe_log
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray


class DiscreteLayer(DiscreteInputLayer):
    """Many units as one table of log masses (n_units, max_states), ``-inf`` beyond a unit's own
    ``cardinalities``, with a column for codes that are no state and one for NaN.
    """

    def __init__(
        self,
        variables: IntArray,
        log_masses: FloatArray,
        cardinalities: IntArray,
        n_parameters: int,
    ) -> None:
        self.scopes = variables[:, None]
        self.log_masses = log_masses
        self.cardinalities = cardinalities
        self.masses = np.exp(log_masses)
        self._n_parameters = n_parameters
        n_units = len(variables)
        # One lookup per unit serves states, invalid codes and missing cells
        self._lookup = np.column_stack([log_masses, np.full(n_units, -np.inf), np.zeros(n_units)])
        self._linear_lookup = np.exp(self._lookup)
        self._columns, column_of_unit = np.unique(variables, return_inverse=True)
        self._column_of_unit = column_of_unit
        # A plan sorts the units of a layer by variable: then each has one run of units.
        ends = np.flatnonzero(np.diff(column_of_unit, append=-1)) + 1
        is_sorted = len(ends) == len(self._columns)
        self._runs = [slice(a, b) for a, b in pairwise([0, *ends.tolist()])] if is_sorted else None
        self._offsets = np.arange(n_units) * self._lookup.shape[1]

    @classmethod
    def stack(cls, units: Sequence[DiscreteUnit]) -> DiscreteLayer:
        cardinalities = np.array([unit.n_states for unit in units])
        # Units may list fewer states than others: those left out have no mass
        masses = np.zeros((len(units), cardinalities.max()))
        masses[np.arange(masses.shape[1]) < cardinalities[:, None]] = np.concatenate(
            [unit.probabilities for unit in units]
        )
        variables = np.array([unit.variable for unit in units])
        log_masses = safe_log(masses)
        return cls(
            variables, log_masses, cardinalities, sum(unit.n_free_parameters for unit in units)
        )

    @cached_property
    def units_by_column(self) -> list[tuple[int, IntArray, int]]:
        """Each column, its units and their largest number of states."""
        units = [np.flatnonzero(self._column_of_unit == i) for i in range(len(self._columns))]
        n_states = [int(self.cardinalities[own].max()) for own in units]
        return list(zip(self._columns.tolist(), units, n_states))

    @property
    def n_parameters(self) -> int:
        return self._n_parameters

    @property
    def n_states(self) -> IntArray:
        return self.cardinalities[:, None]

    def tables(
        self, cardinalities: Mapping[int, int]
    ) -> Iterator[tuple[slice, tuple[int, ...], FloatArray]]:
        for start, count in zip(*self.scope_runs):
            own, variable = slice(start, start + count), int(self.scopes[start, 0])
            n_states = cardinalities[variable]
            # States, the missing state, and a column for invalid states
            table = np.zeros((count, n_states + 2))
            known = min(n_states, self.masses.shape[1])
            table[:, :known] = self.masses[own, :known]
            table[:, n_states] = 1.0
            yield own, (variable,), table

    def codes(self, X: FloatArray) -> IntArray:
        """Codes (n_distinct_columns, n): states, one past the last if invalid, two if NaN."""
        cells = X.T[self._columns]
        n_states = self.log_masses.shape[1]
        codes = np.fmin(cells, n_states)
        no_state = (cells < 0) | (codes != np.floor(codes))
        codes[no_state] = n_states
        codes[np.isnan(cells)] = n_states + 1
        return codes.astype(np.intp)

    def _gather(self, lookup: FloatArray, X: FloatArray) -> FloatArray:
        """Look up one value per unit and row, shape (n_units, n)."""
        codes = self.codes(X)
        # Few rows pay for calls, many for memory: one gather, or one per variable
        if len(X) < MIN_RUN_ROWS or self._runs is None:
            positions = codes[self._column_of_unit]
            positions += self._offsets[:, None]
            return np.take(lookup.ravel(), positions)
        values = np.empty((len(self), len(X)))
        for units, column in zip(self._runs, codes):
            # mode="clip" lets NumPy write straight into the result
            np.take(lookup[units], column, axis=1, out=values[units], mode="clip")
        return values

    def log_prob(self, X: FloatArray) -> FloatArray:
        return self._gather(self._lookup, X)

    def scaled_prob(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._gather(self._linear_lookup, X), np.zeros(len(X))

    def log_box(self, box: Box) -> FloatArray:
        n_states = self.log_masses.shape[1]
        values = np.empty((len(self), len(box.lower)))
        for variable, units, own_states in self.units_by_column:
            inside = np.zeros((len(box.lower), n_states))
            inside[:, :own_states] = box.state_mask(variable, own_states)
            # A row whose box holds every state must give exactly one.
            values[units] = np.minimum(self.masses[units] @ inside.T, 1.0)
        return safe_log(values)

    def log_max(self, X: FloatArray) -> FloatArray:
        # The column of NaN holds the best state instead of one.
        lookup = self._lookup.copy()
        lookup[:, -1] = self.log_masses.max(axis=1)
        return self._gather(lookup, X)

    def mode(self, units: IntArray, cells: FloatArray) -> FloatArray:
        best = self.log_masses.argmax(axis=1)[units]
        return np.where(np.isnan(cells), best[:, None], cells)

    def draw(self, units: IntArray, cells: FloatArray, rng: RandomNumbers) -> FloatArray:
        steps = np.cumsum(self.masses, axis=1)
        # The last step is exactly one, so that no draw lies beyond it.
        steps /= steps[:, -1:]
        uniform = rng.random(len(units))
        states = np.zeros(len(units))
        # One comparison per state for all draws at once: variables have few states.
        for step in steps.T[:-1]:
            states += step[units] <= uniform
        return np.where(np.isnan(cells), states[:, None], cells)

    def state_flows(self, flows: FloatArray, X: FloatArray) -> Iterator[StateFlows]:
        for variable, units, n_states in self.units_by_column:
            rows = np.flatnonzero(np.isnan(X[:, variable]))
            masses = self.masses[units, :n_states]
            yield StateFlows(variable, rows, masses.T @ flows[units[:, None], rows])


class DiscreteUnit(InputUnit):
    """Common to the discrete families: one variable and the mass of each state."""

    layer_type = DiscreteLayer
    probabilities: FloatArray

    def __init__(self, variable: int, probabilities: FloatArray) -> None:
        self.variable = check_variable(variable)
        self.scope = (self.variable,)
        self.probabilities = probabilities
        self.probabilities.flags.writeable = False

    @property
    def n_states(self) -> int:
        """Number of states of the variable."""
        return len(self.probabilities)

    @property
    def layer_key(self) -> Hashable:
        """Units of up to 16 states share a layer, those of up to 64, of up to 256, ...: the table
        of a layer has as many columns as its largest unit has states.
        """
        return self.layer_type, max(0, ((self.n_states - 1).bit_length() - 3) // 2)

    @property
    def n_free_parameters(self) -> int:
        """Number of free probabilities."""
        return self.n_states - 1

    def possible_states(self) -> BoolArray:
        return self.probabilities > 0


@register_input_unit
class Categorical(DiscreteUnit):
    """A categorical distribution.

    Parameters
    ----------
    variable : int
        Index of the column.
    probabilities : sequence of float of shape (n_states,)
        Non-negative masses of the states 0, 1, ..., which sum to one. Masses whose sum differs from
        one by at most 1e-8, because of their digits, are divided by it.

    Examples
    --------
    >>> from skcircuits.circuits import Categorical
    >>> Categorical(0, [0.2, 0.5, 0.3]).n_states
    3
    """

    def __init__(self, variable: int, probabilities: Sequence[float] | FloatArray) -> None:
        masses = float_array(probabilities, "probabilities").copy()
        valid = masses.ndim == 1 and masses.size > 0 and np.isfinite(masses).all()
        if not (valid and (masses >= 0).all() and abs(masses.sum() - 1) <= DIGITS):
            what = "probabilities of a categorical unit"
            condition = "be a list of non-negative numbers with sum one"
            way_out = "Divide frequencies by their sum."
            smallest, total = float(masses.min(initial=np.inf)), float(masses.sum())
            raise invalid(
                what, condition, way_out, shape=masses.shape, smallest=smallest, total=total
            )
        super().__init__(variable, masses / mass_divisor(float(masses.sum())))

    def parameters(self) -> dict[str, Any]:
        return {"variable": self.variable, "probabilities": self.probabilities}


def linked_categorical(variable: int, masses: FloatArray) -> Categorical:
    """Build a unit of masses that are known to be right, without checks; they are read-only."""
    unit = Categorical.__new__(Categorical)
    unit.__dict__.update(variable=variable, scope=(variable,), probabilities=masses)
    return unit


@register_input_unit
class Bernoulli(DiscreteUnit):
    """A distribution over the states 0 and 1.

    Parameters
    ----------
    variable : int
        Index of the column.
    p : float
        Probability of state 1.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli
    >>> Bernoulli(3, 0.25)
    Bernoulli(variable=3, p=0.25)
    """

    def __init__(self, variable: int, p: float) -> None:
        if not (is_number(p) and 0.0 <= p <= 1.0):
            raise invalid("probability of a Bernoulli unit", "lie in [0, 1]", p=p)
        super().__init__(variable, np.array([1.0 - p, p], dtype=np.float64))
        self.p: float = float(p)

    def parameters(self) -> dict[str, Any]:
        return {"variable": self.variable, "p": self.p}


@register_input_unit
class Indicator(DiscreteUnit):
    """A distribution with all mass on one state.

    Parameters
    ----------
    variable : int
        Index of the column.
    state : int
        The state with probability one.
    n_states : int
        Number of states of the variable.

    Examples
    --------
    >>> from skcircuits.circuits import Indicator
    >>> Indicator(0, state=2, n_states=3).probabilities
    array([0., 0., 1.])
    """

    def __init__(self, variable: int, state: int, n_states: int) -> None:
        require_count(1, n_states=n_states)
        require_count(0, state=state)
        if state >= n_states:
            raise invalid("state of an indicator", f"be one of 0, ..., {n_states - 1}", state=state)
        masses = np.zeros(n_states)
        masses[state] = 1.0
        super().__init__(variable, masses)
        self.state = int(state)

    @property
    def n_free_parameters(self) -> int:
        """Number of free probabilities, which is zero."""
        return 0

    def parameters(self) -> dict[str, Any]:
        return {"variable": self.variable, "state": self.state, "n_states": self.n_states}


@multiply_inputs.register(DiscreteUnit, DiscreteUnit)
def _multiply_discrete(left: DiscreteUnit, right: DiscreteUnit) -> Scaled:
    own, other = safe_log(_padded(left, right))
    return _discrete(left.variable, own + other)


@divide_inputs.register(DiscreteUnit, DiscreteUnit)
def _divide_discrete(left: DiscreteUnit, right: DiscreteUnit) -> Scaled:
    own, other = safe_log(_padded(left, right))
    # By convention 0 / 0 is 0: a quotient lives on the support of its divisor
    ratios = np.subtract(own, other, where=other > -np.inf, out=np.full_like(own, -np.inf))
    return _discrete(left.variable, ratios)


@divergence.register(DiscreteUnit, DiscreteUnit)
def _discrete_divergence(left: DiscreteUnit, right: DiscreteUnit) -> tuple[float, float]:
    own, other = _padded(left, right)
    inside = (own > 0) & (other > 0)
    ratios = np.log(own[inside]) - np.log(other[inside])
    return float(own[~inside].sum()), float(own[inside] @ ratios)


@entropy.register(DiscreteUnit)
def _discrete_entropy(unit: DiscreteUnit) -> float:
    return float(entr(unit.probabilities).sum())


def _padded(left: DiscreteUnit, right: DiscreteUnit) -> FloatArray:
    """Masses of both units over the states of either."""
    n_states = max(left.n_states, right.n_states)
    masses = np.zeros((2, n_states))
    masses[0, : left.n_states] = left.probabilities
    masses[1, : right.n_states] = right.probabilities
    return masses


def _discrete(variable: int, log_masses: FloatArray) -> Scaled:
    """Normalise masses."""
    peak = log_masses.max()
    if np.isneginf(peak):
        return ZERO
    scaled = np.exp(log_masses - peak)
    total = scaled.sum()
    masses = scaled / total
    lost = np.flatnonzero((masses == 0.0) & ~np.isneginf(log_masses))
    if len(lost):
        # A unit holds masses, not their logarithms: these states would become impossible.
        what = "masses of the states of a product or quotient"
        condition = "be at least 5e-324 of their sum"
        way_out = "Set masses that small to zero first."
        raise CircuitPropertyError(
            must(what, condition, way_out, variable=variable, states=lost.tolist())
        )
    return Scaled(Categorical(variable, masses), float(peak + np.log(total)))
