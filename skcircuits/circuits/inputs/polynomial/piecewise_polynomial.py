"""Piecewise polynomial densities with exponential tails and point masses.

Among the piecewise polynomials only histograms are closed under products, because B-splines on
single knots cannot represent the product of smoother pieces, which has the knots of both factors.
If both units have a point mass, its probabilities take the place of densities.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import exprel, xlogy

from skcircuits.circuits._policy import MANY_POINTS
from skcircuits.circuits.inputs.base import (
    DIGITS,
    Box,
    DensityLayer,
    InputUnit,
    WriteMasses,
    check_variable,
    divergence,
    divide_inputs,
    entropy,
    mass_divisor,
    moments_of_columns,
    multiply_inputs,
    register_input_unit,
)
from skcircuits.circuits.inputs.polynomial._pieces import (
    IntervalMasses,
    PolynomialGroup,
    PolynomialPieces,
    RepeatedIntervals,
    knot_windows,
    log_interval_masses,
)
from skcircuits.circuits.structure.units import ZERO, Scaled
from skcircuits.exceptions import CircuitPropertyError, invalid, must
from skcircuits.numerics._arrays import Rows, float_array, safe_log
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import MAX_SCALES, FloatArray, IntArray

# End of the knots that a side's tail begins at.
LEFT, RIGHT = 0, -1


class PiecewisePolynomialLayer(DensityLayer):
    """Many units; at points with a mass of any unit of a variable, values of all are masses, so
    that they refer to one measure, length plus a count of these points.
    """

    def __init__(self, units: Sequence[PiecewisePolynomial]) -> None:
        variables = np.array([unit.variable for unit in units])
        self.scopes = variables[:, None]
        self.pieces = PolynomialPieces(
            [unit.knots for unit in units],
            [unit.weights for unit in units],
            np.stack([unit.tail_masses for unit in units]),
            np.stack([unit.tail_scales for unit in units]),
        )
        self._columns = np.unique(variables)
        self.groups = []
        for variable in self._columns.tolist():
            own = np.flatnonzero(variables == variable)
            atoms = [(units[i].atoms, units[i].atom_masses) for i in own.tolist()]
            self.groups.append(PolynomialGroup(variable, own, atoms, self.pieces))
        # In a plan they are: the units of a variable are neighbours
        self._is_sorted = bool((np.diff(variables) >= 0).all())
        self._units = units
        self._n_parameters = sum(unit.n_free_parameters for unit in units)

    @classmethod
    def stack(cls, units: Sequence[PiecewisePolynomial]) -> PiecewisePolynomialLayer:
        return cls(units)

    @property
    def n_parameters(self) -> int:
        return self._n_parameters

    @property
    def size_in_bytes(self) -> int:
        return sum(v.nbytes for v in vars(self.pieces).values() if isinstance(v, np.ndarray))

    @property
    def massive_variables(self) -> IntArray:
        return np.array([g.variable for g in self.groups if g.atom_masses.any()], dtype=np.intp)

    def log_prob(self, X: FloatArray) -> FloatArray:
        values = np.zeros((len(self), len(X)))
        for group in self.groups:
            cells = X[:, group.variable]
            seen = np.flatnonzero(~np.isnan(cells))
            if len(seen):
                values[group.units[:, None], seen] = group.log_density(cells[seen])
        return values

    def log_box(self, box: Box) -> FloatArray:
        values = np.empty((len(self), len(box.lower)))
        units = np.concatenate([group.units for group in self.groups])
        values[units] = log_interval_masses(self.groups, self._bounds(box), box.closed)
        return values

    def prepare_boxes(self, box: Box) -> WriteMasses:
        if not self._is_sorted:
            return super().prepare_boxes(box)
        bounds = self._bounds(box)
        if len(box.lower) < MANY_POINTS:
            return IntervalMasses(self.groups, bounds, box.closed).write
        # Bounds repeat where boxes are many: finding the distinct ones pays
        parts = [RepeatedIntervals(*own, box.closed) for own in zip(self.groups, bounds)]

        def write(rows: Rows, masses: FloatArray) -> None:
            for group, part in zip(self.groups, parts):
                part.write(rows, masses[group.units[0] : group.units[-1] + 1])

        return write

    def _bounds(self, box: Box) -> FloatArray:
        """First and last number and end of densities of the intervals, (n_groups, 3, n)."""
        bounds = np.empty((len(self.groups), 3, len(box.lower)))
        for side, ends in enumerate((box.lower, box.upper, box.ends)):
            own = bounds[:, side]
            own[...] = ends[:, self._columns].T
            own[np.isnan(own)] = np.inf if side else -np.inf
        return bounds

    def log_max(self, X: FloatArray) -> FloatArray:
        values = self.log_prob(X)
        for group in self.groups:
            missing = np.flatnonzero(np.isnan(X[:, group.variable]))
            values[group.units[:, None], missing] = group.modes[1][:, None]
        return values

    def mode(self, units: IntArray, cells: FloatArray) -> FloatArray:
        """Fill NaN cells, (m, 1), with the highest point; a point mass counts by its mass."""
        points = np.empty(len(self))
        for group in self.groups:
            points[group.units] = group.modes[0]
        return np.where(np.isnan(cells), points[units][:, None], cells)

    def draw(self, units: IntArray, cells: FloatArray, rng: RandomNumbers) -> FloatArray:
        # All at once, so that draws do not depend on how units are grouped.
        uniform = rng.random(len(units))
        drawn = np.empty(len(units))
        group_of_unit = np.empty(len(self), dtype=np.intp)
        for number, group in enumerate(self.groups):
            group_of_unit[group.units] = number
        for number, group in enumerate(self.groups):
            at = np.flatnonzero(group_of_unit[units] == number)
            drawn[at] = group.quantile(np.searchsorted(group.units, units[at]), uniform[at])
        return np.where(np.isnan(cells), drawn[:, None], cells)

    def conditional_moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        return moments_of_columns(self, X, *self._moments)

    @cached_property
    def _moments(self) -> FloatArray:
        """Means and variances (2, k), at first use: most compiled circuits never need them."""
        return np.array([unit.moments() for unit in self._units]).T


@register_input_unit
class PiecewisePolynomial(InputUnit):
    """A piecewise polynomial density with exponential tails and point masses.

    Parameters
    ----------
    variable : int
        Index of the column.
    knots : sequence of float of shape (n_intervals + 1,)
        Increasing ends of the polynomial pieces.
    weights : sequence of float of shape (n_intervals + degree,)
        Non-negative weights of the B-spline basis functions on these knots, each of which has
        integral one. Their number determines the degree; ``n_intervals`` weights give a histogram.
    atoms : sequence of float of shape (n_atoms,), default=()
        Increasing points with point masses.
    atom_masses : sequence of float of shape (n_atoms,), default=()
        Masses of these points; points of mass zero are dropped.
    tail_masses : sequence of float of shape (2,), default=(0, 0)
        Mass below the first and above the last knot.
    tail_scales : sequence of float of shape (2,), default=None
        Mean distance from the knot of values in the exponential tails; by default the distance
        between the first and the last knot.

    Notes
    -----
    Weights, atom masses and tail masses add up to one; they are divided by their sum if it differs
    from one by at most 1e-8, because of their digits. Values at atoms are masses, values elsewhere
    densities.

    Examples
    --------
    >>> from skcircuits.circuits import Circuit, PiecewisePolynomial
    >>> p = Circuit(PiecewisePolynomial(0, knots=[0.0, 1.0, 3.0], weights=[0.25, 0.5, 0.25]))
    >>> p.log_prob_box([[0.0]], [[1.0]]).round(4)
    array([-0.8755])
    """

    layer_type = PiecewisePolynomialLayer

    def __init__(
        self,
        variable: int,
        knots: Sequence[float] | FloatArray,
        weights: Sequence[float] | FloatArray,
        atoms: Sequence[float] | FloatArray = (),
        atom_masses: Sequence[float] | FloatArray = (),
        tail_masses: Sequence[float] | FloatArray = (0.0, 0.0),
        tail_scales: Sequence[float] | FloatArray | None = None,
    ) -> None:
        self.variable = check_variable(variable)
        self.scope = (self.variable,)
        self.knots = _increasing("knots", knots, at_least=2)
        weights, tail_masses = _masses("weights", weights), _masses("tail_masses", tail_masses)
        atoms, atom_masses = _increasing("atoms", atoms), _masses("atom_masses", atom_masses)
        divisor = mass_divisor(float(weights.sum() + atom_masses.sum() + tail_masses.sum()))
        self.weights, self.tail_masses = _frozen(weights / divisor), _frozen(tail_masses / divisor)
        if len(atoms) != len(atom_masses):
            what = "atoms and atom_masses of a piecewise polynomial unit"
            raise invalid(what, "have equal lengths", lengths=(len(atoms), len(atom_masses)))
        # A point without mass is no point mass: the density there stays a density
        massive = atom_masses > 0
        self.atoms, self.atom_masses = (
            _frozen(atoms[massive]),
            _frozen(atom_masses[massive] / divisor),
        )
        if tail_scales is None:
            # Any positive scale will do where tails have no mass
            tail_scales = [self.knots[-1] - self.knots[0]] * 2
        self.tail_scales = _masses("tail_scales", tail_scales)
        self._check_shapes()

    def _check_shapes(self) -> None:
        """Check the parameters jointly."""
        if len(self.weights) < len(self.knots) - 1:
            what = "weights of a piecewise polynomial unit"
            condition = "have at least one entry per interval between knots"
            raise invalid(
                what, condition, n_weights=len(self.weights), n_intervals=len(self.knots) - 1
            )
        if len(self.tail_masses) != 2 or len(self.tail_scales) != 2 or not self.tail_scales.all():
            raise invalid(
                "tails of a piecewise polynomial unit",
                "have a mass and a positive scale for the left and the right side",
                tail_masses=self.tail_masses.tolist(),
                tail_scales=self.tail_scales.tolist(),
            )
        total = self.weights.sum() + self.atom_masses.sum() + self.tail_masses.sum()
        if abs(total - 1.0) > DIGITS:
            what = "weights, atom masses and tail masses of a piecewise polynomial unit"
            raise invalid(what, "add up to one", total=float(total))

    @property
    def degree(self) -> int:
        """Degree of the polynomials; 0 is a histogram."""
        return len(self.weights) - len(self.knots) + 1

    @property
    def n_free_parameters(self) -> int:
        """Number of free weights and masses; the tails are determined by a rule."""
        return len(self.weights) + len(self.atoms) - 1

    def moments(self) -> tuple[float, float]:
        """Compute the mean and variance in closed form.

        Returns
        -------
        mean, variance : float
            The moments of the basis functions are computed from their knots (see
            ``knot_windows``), those of tails and atoms directly.
        """
        # A normalised B-spline is the density of a random convex combination of its knots
        windows = knot_windows(self.knots[None], self.degree)[0]
        edges = self.knots[[0, -1]] + np.array([-1.0, 1.0]) * self.tail_scales
        points = np.concatenate([windows.mean(axis=1), edges, self.atoms])
        masses = np.concatenate([self.weights, self.tail_masses, self.atom_masses])
        # Spread of a uniform convex combination of k knots: their sample variance / (k + 1)
        n_knots = windows.shape[1]
        spread = windows.var(axis=1) / (n_knots + 1)
        spreads = np.concatenate([spread, self.tail_scales**2, np.zeros(len(self.atoms))])
        mean = masses @ points
        return float(mean), float(masses @ (spreads + (points - mean) ** 2))

    def parameters(self) -> dict[str, Any]:
        return {
            "variable": self.variable,
            "knots": self.knots,
            "weights": self.weights,
            "atoms": self.atoms,
            "atom_masses": self.atom_masses,
            "tail_masses": self.tail_masses,
            "tail_scales": self.tail_scales,
        }

    def possible_intervals(self) -> FloatArray:
        # A piece is a mixture of the basis functions that do not vanish on it
        windows = np.lib.stride_tricks.sliding_window_view(self.weights, self.degree + 1)
        lower_tail, upper_tail = np.split(self.tail_masses, 2)
        masses = np.concatenate([[0.0], lower_tail, windows.sum(axis=1), upper_tail, [0.0]])
        changes = np.diff(masses > 0)
        ends = np.concatenate([[-np.inf], self.knots, [np.inf]])[changes]
        # Point masses lie between pieces: the narrowest intervals of floats around them
        around = np.stack(
            [np.nextafter(self.atoms, -np.inf), np.nextafter(self.atoms, np.inf)], axis=1
        )
        return np.concatenate([ends.reshape(-1, 2), around])


def linked_histogram(
    variable: int, weights: FloatArray, atom_masses: FloatArray, **others: FloatArray
) -> PiecewisePolynomial:
    """Build a unit of parameters that are known to be right, without checks; they are read-only.

    ``atom_masses``: of the points ``atoms``, zero where there is none.
    """
    unit = PiecewisePolynomial.__new__(PiecewisePolynomial)
    massive = atom_masses > 0
    own = {**others, "weights": weights, "atom_masses": atom_masses[massive]}
    own["atoms"] = others["atoms"][massive]
    unit.__dict__.update(variable=variable, scope=(variable,))
    unit.__dict__.update({name: _frozen(array) for name, array in own.items()})
    return unit


def _increasing(name: str, values: Sequence[float] | FloatArray, at_least: int = 0) -> FloatArray:
    """Check finite, strictly increasing numbers and freeze them."""
    array = float_array(values, name).copy()
    valid = array.ndim == 1 and len(array) >= at_least and (array[1:] > array[:-1]).all()
    # All others lie between the first and the last
    if not (valid and np.isfinite(array[[0, -1]] if len(array) else array).all()):
        condition = f"be finite and strictly increasing, at least {at_least}"
        raise invalid(f"{name} of a piecewise polynomial unit", condition, **{name: array.tolist()})
    return _frozen(array)


def _masses(name: str, values: Sequence[float] | FloatArray) -> FloatArray:
    """Check finite, non-negative numbers and freeze them."""
    array = float_array(values, name).copy()
    if not (array.ndim == 1 and np.isfinite(array).all() and (array >= 0).all()):
        condition = "be finite and non-negative"
        raise invalid(f"{name} of a piecewise polynomial unit", condition, **{name: array.tolist()})
    return _frozen(array)


def _frozen(array: FloatArray) -> FloatArray:
    array.flags.writeable = False
    return array


@multiply_inputs.register(PiecewisePolynomial, PiecewisePolynomial)
def _multiply(left: PiecewisePolynomial, right: PiecewisePolynomial) -> Scaled:
    return combine_histograms(left, right, 1.0)


@divide_inputs.register(PiecewisePolynomial, PiecewisePolynomial)
def _divide(left: PiecewisePolynomial, right: PiecewisePolynomial) -> Scaled:
    return combine_histograms(left, right, -1.0)


def combine_histograms(
    left: PiecewisePolynomial, right: PiecewisePolynomial, exponent: float
) -> Scaled:
    """Multiply a histogram with a power of another one (0 where a divisor is): the normalised unit
    on the knots of both, and the log of its integral.
    """
    action = "multiplied" if exponent > 0 else "divided"
    _require_histograms(left, right, action)
    _require_apart(left, right, action)
    knots, atoms = _common_knots(left, right), np.union1d(left.atoms, right.atoms)
    starts = knots[:-1]
    log_heights = _power(_log_heights(left, starts), _log_heights(right, starts), exponent)
    log_masses = log_heights + np.log(np.diff(knots))
    tails = [_tail(left, right, side, exponent) for side in (LEFT, RIGHT)]
    log_atoms = _power(_log_atoms(left, atoms), _log_atoms(right, atoms), exponent)
    shared = ~np.isneginf(log_atoms)
    log_parts = np.concatenate([log_masses, [log_mass for log_mass, _ in tails], log_atoms[shared]])
    peak = log_parts.max()
    if np.isneginf(peak):
        return ZERO
    # Heights may be of any size: the largest part is taken out before adding
    parts = np.exp(log_parts - peak)
    total = parts.sum()
    weights, tail_masses, atom_masses = np.split(
        parts / total, [len(log_masses), len(log_masses) + 2]
    )
    unit = PiecewisePolynomial(
        left.variable,
        knots,
        weights,
        atoms[shared],
        atom_masses,
        tail_masses=tail_masses,
        tail_scales=[scale for _, scale in tails],
    )
    return Scaled(unit, float(peak + np.log(total)))


@entropy.register(PiecewisePolynomial)
def histogram_entropy(unit: PiecewisePolynomial) -> float:
    """Entropy of a histogram in nats: of its density, and of the logarithms of its point masses."""
    _require_histograms(unit, unit, "measured")
    widths = np.concatenate([np.diff(unit.knots), unit.tail_scales, np.ones(len(unit.atoms))])
    masses = np.concatenate([unit.weights, unit.tail_masses, unit.atom_masses])
    # An exponential distribution has entropy 1 + log(scale)
    return float(unit.tail_masses.sum() + xlogy(masses, widths).sum() - xlogy(masses, masses).sum())


@divergence.register(PiecewisePolynomial, PiecewisePolynomial)
def histogram_divergence(
    left: PiecewisePolynomial, right: PiecewisePolynomial
) -> tuple[float, float]:
    """∫ left outside and ∫ left log(left / right) within the support of the right histogram, which
    has a point mass of the left one only if it has one there, too.
    """
    _require_histograms(left, right, "compared")
    # Between knots of either both logarithms are linear: their means are those at the mean
    ends = np.concatenate([[-np.inf], np.union1d(left.knots, right.knots), [np.inf]])
    masses, means = _masses_between(left, ends[:-1], ends[1:])
    atoms = np.union1d(left.atoms, right.atoms)
    log_own, log_other = (
        np.append(_log_density(unit, means), _log_atoms(unit, atoms)) for unit in (left, right)
    )
    masses = np.append(masses, np.exp(log_own[len(means) :]))
    inside = (masses > 0.0) & ~np.isneginf(log_other)
    ratios = log_own[inside] - log_other[inside]
    return float(masses[~inside].sum()), float(masses[inside] @ ratios)


def _masses_between(
    unit: PiecewisePolynomial, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Masses and means of a histogram in intervals that hold none of its knots inside."""
    masses, means = np.zeros((2, len(low)))
    first, last = unit.knots[LEFT], unit.knots[RIGHT]
    inner = (first <= low) & (high <= last)
    widths = (high - low)[inner]
    masses[inner] = np.exp(_log_density(unit, low[inner] + widths / 2)) * widths
    means[inner] = low[inner] + widths / 2
    below = high <= first, first - high, first - low
    above = last <= low, low - last, high - last
    for side, (own, near, far), sign in ((LEFT, below, -1.0), (RIGHT, above, 1.0)):
        scale = unit.tail_scales[side]
        start = near[own] / scale
        length = np.minimum((far - near)[own] / scale, MAX_SCALES)
        masses[own] = unit.tail_masses[side] * np.exp(-start) * -np.expm1(-length)
        # Of an exponential number that is below the length
        excess = start + 1.0 - 1.0 / exprel(length)
        means[own] = unit.knots[side] + sign * scale * excess
    return masses, means


def _log_density(unit: PiecewisePolynomial, x: FloatArray) -> FloatArray:
    """Log density of a histogram at points that are no knots."""
    values = _log_heights(unit, x)
    distances = unit.knots[LEFT] - x, x - unit.knots[RIGHT]
    heights = safe_log(unit.tail_masses / unit.tail_scales)
    for distance, height, scale in zip(distances, heights, unit.tail_scales):
        values = np.where(distance > 0.0, height - distance / scale, values)
    return values


def _require_histograms(left: PiecewisePolynomial, right: PiecewisePolynomial, action: str) -> None:
    """Raise an error if there is no rule."""
    if left.degree or right.degree:
        raise CircuitPropertyError(
            must(
                f"piecewise polynomial units that are {action}",
                "be histograms",
                "Give them as many weights as intervals (leaf='histogram' when learning); other "
                "piecewise polynomials have no closed form in their family.",
                left=left,
                right=right,
            )
        )


def _require_apart(left: PiecewisePolynomial, right: PiecewisePolynomial, action: str) -> None:
    """Refuse point masses where the other unit has a density: values of no common measure."""
    for own, other in ((left, right), (right, left)):
        alone = np.setdiff1d(own.atoms[own.atom_masses > 0], other.atoms)
        positive = np.concatenate([other.tail_masses[:1], other.weights, other.tail_masses[1:]]) > 0
        beside = [positive[np.searchsorted(other.knots, alone, side)] for side in ("left", "right")]
        within = alone[beside[0] | beside[1]]
        if len(within):
            what = f"point masses of piecewise polynomial units that are {action}"
            condition = "lie where the other unit has a point mass or is zero"
            way_out = "Rebuild the unit without these point masses."
            raise CircuitPropertyError(must(what, condition, way_out, atoms=within.tolist()))


def _common_knots(left: PiecewisePolynomial, right: PiecewisePolynomial) -> FloatArray:
    """Knots of both units where both have intervals; any where they have none in common."""
    first = max(left.knots[LEFT], right.knots[LEFT])
    last = min(left.knots[RIGHT], right.knots[RIGHT])
    if first >= last:
        return left.knots
    knots = np.union1d(left.knots, right.knots)
    return knots[(knots >= first) & (knots <= last)]


def _log_atoms(unit: PiecewisePolynomial, atoms: FloatArray) -> FloatArray:
    """Log mass of a unit at points that hold its own atoms."""
    masses = np.zeros(len(atoms))
    masses[np.searchsorted(atoms, unit.atoms)] = unit.atom_masses
    return safe_log(masses)


def _log_heights(unit: PiecewisePolynomial, x: FloatArray) -> FloatArray:
    """Log density of a histogram just after points, tails left out."""
    heights = np.pad(safe_log(unit.weights / np.diff(unit.knots)), 1, constant_values=-np.inf)
    return np.asarray(heights[np.searchsorted(unit.knots, x, side="right")])


def _power(own: FloatArray, other: FloatArray, exponent: float) -> FloatArray:
    """Log of a product or quotient that is 0 where either function is."""
    possible = ~(np.isneginf(own) | np.isneginf(other))
    return np.where(possible, own + exponent * np.where(possible, other, 0.0), -np.inf)


def _tail(
    left: PiecewisePolynomial, right: PiecewisePolynomial, side: int, exponent: float
) -> tuple[float, float]:
    """Log mass and scale of the tail on one side."""
    masses, scales = _common_tails(left, right, side)
    if not masses.all():
        return -np.inf, 1.0
    rate = 1.0 / scales[0] + exponent / scales[1]
    if rate <= 0:
        what = "the tails of a divisor"
        condition = "be longer than those they divide"
        way_out = "Otherwise the quotient has no finite integral."
        raise CircuitPropertyError(
            must(what, condition, way_out, numerator=float(scales[0]), divisor=float(scales[1]))
        )
    # Heights at the edge multiply, rates add up: mass = height / rate
    log_heights = np.log(masses / scales)
    return float(log_heights[0] + exponent * log_heights[1] - np.log(rate)), float(1.0 / rate)


def _common_tails(
    left: PiecewisePolynomial, right: PiecewisePolynomial, side: int
) -> tuple[FloatArray, FloatArray]:
    """Masses and scales of the tails on one side where both begin; masses are 0 elsewhere."""
    edges = left.knots[side], right.knots[side]
    masses = np.array([left.tail_masses[side], right.tail_masses[side]])
    scales = np.array([left.tail_scales[side], right.tail_scales[side]])
    if edges[0] != edges[1]:
        # A tail that reaches over intervals of the other unit would bend them
        inner = np.argmax(edges) if side == LEFT else np.argmin(edges)
        if masses[inner] > 0:
            what = "the tails of piecewise polynomial units that are combined"
            condition = "begin at the same knot"
            way_out = "Give both units the same first and last knot, or no mass beyond them."
            raise CircuitPropertyError(
                must(what, condition, way_out, edges=tuple(map(float, edges)))
            )
        masses[:] = 0.0
    return masses, scales
