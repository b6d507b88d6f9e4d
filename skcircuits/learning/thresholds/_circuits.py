"""Categories that thresholds decide, in circuits over the other columns.

An input unit over the number is divided into its parts between thresholds, each with the categories
of its band. Thus the category follows the number exactly, whatever else the circuit models.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from itertools import pairwise

import numpy as np
from scipy.interpolate import BSpline

from skcircuits.circuits import (
    Categorical,
    Circuit,
    Gaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Product,
    Sum,
    TruncatedGaussian,
)
from skcircuits.circuits.inputs import InputUnit
from skcircuits.circuits.structure.units import Unit, rebuild, topological_order
from skcircuits.learning.thresholds._search import Thresholds
from skcircuits.protocols import FloatArray, IntArray

Parts = list[tuple[float, InputUnit]]

_LEAST_MASS = 1e-15  # parts of less are left out
_TAIL_CELLS = 8  # of equal mass, of the part of an exponential tail that is bounded


def with_decided(circuit: Circuit, columns: IntArray, found: Sequence[Thresholds]) -> Circuit:
    """Add decided categories to a circuit over the other columns, whose numbers are `columns`.

    Bands of numbers get the probabilities that they have in the table: the distribution given the
    band remains (Jeffrey's rule).
    """
    root = rebuild(circuit.root, lambda unit: _renumbered(unit, columns))
    for own in found:
        root = _with_bands(root, own)
    return Circuit(root)


def _renumbered(unit: InputUnit, columns: IntArray) -> InputUnit:
    """The same unit over other columns."""
    parameters = unit.parameters()
    name = "variable" if "variable" in parameters else "variables"
    parameters[name] = columns[parameters[name]].tolist()
    return type(unit)(**parameters)


def _with_bands(root: Unit, found: Thresholds) -> Unit:
    """Divide the units over a number at its thresholds."""
    ends = np.concatenate([[-np.inf], found.cuts, [np.inf]])
    factors = np.ones(len(found.cuts) + 1)
    if found.fractions is not None:
        nothing = np.full((len(factors), max(root.scope) + 1), np.nan)
        lower, upper = nothing.copy(), nothing.copy()
        lower[1:, found.variable] = upper[:-1, found.variable] = found.cuts
        masses = np.exp(Circuit(root).log_prob_box(lower, upper, closed="left"))
        factors = np.where(masses > _LEAST_MASS, found.fractions / masses, 1.0)
    built: dict[int, Unit] = {}
    totals: dict[int, float] = {}
    for unit in topological_order(root):
        if isinstance(unit, Sum):
            weights = unit.weights * [totals[id(child)] for child in unit.children]
            totals[id(unit)] = float(weights.sum())
            built[id(unit)] = Sum(
                [built[id(child)] for child in unit.children], weights=weights / weights.sum()
            )
        elif isinstance(unit, Product):
            totals[id(unit)] = float(np.prod([totals[id(child)] for child in unit.children]))
            built[id(unit)] = Product([built[id(child)] for child in unit.children])
        elif found.variable in unit.scope and isinstance(unit, InputUnit):
            built[id(unit)], totals[id(unit)] = _divided(unit, found, ends, factors)
        else:
            built[id(unit)], totals[id(unit)] = unit, 1.0
    return built[id(root)]


def _divided(
    unit: InputUnit, found: Thresholds, ends: FloatArray, factors: FloatArray
) -> tuple[Unit, float]:
    """A unit in parts between `ends`, whose masses are multiplied by `factors`, and its mass."""
    terms: list[Unit] = []
    masses: list[float] = []
    for band, (low, high) in enumerate(pairwise(ends)):
        # A threshold belongs to the band above it
        last = high if np.isinf(high) else float(np.nextafter(high, -np.inf))
        categories = [Categorical(v, table[band]) for v, table in found.tables.items()]
        for mass, part in within(unit, found.variable, low, last):
            if mass > _LEAST_MASS:
                terms.append(Product([part, *categories]))
                masses.append(mass * factors[band])
    total = float(np.sum(masses))
    return Sum(terms, weights=np.array(masses) / total), total


@singledispatch
def within(unit: InputUnit, variable: int, low: float, high: float) -> Parts:
    """Masses and distributions of the parts of a unit in which a variable lies in [low, high]."""
    raise NotImplementedError(type(unit).__name__)


@within.register
def _gaussian_within(unit: Gaussian, variable: int, low: float, high: float) -> Parts:
    joint = MultivariateGaussian([variable], [unit.mean], [[unit.std**2]])
    return _joint_within(joint, variable, low, high)


@within.register(MultivariateGaussian)
@within.register(TruncatedGaussian)
def _joint_within(
    unit: MultivariateGaussian | TruncatedGaussian, variable: int, low: float, high: float
) -> Parts:
    place = unit.variables.index(variable)
    lower, upper = (
        getattr(unit, name, np.full(len(unit.variables), end)).copy()
        for name, end in (("lower", -np.inf), ("upper", np.inf))
    )
    lower[place], upper[place] = max(lower[place], low), min(upper[place], high)
    if lower[place] >= upper[place]:
        return []
    bounds = np.full((2, 1, max(unit.variables) + 1), np.nan)
    bounds[:, 0, variable] = low, high
    bounds[np.isinf(bounds)] = np.nan
    mass = float(np.exp(Circuit(unit).log_prob_box(*bounds)[0]))
    if mass <= _LEAST_MASS:
        return []
    return [(mass, TruncatedGaussian(unit.variables, unit.mean, unit.covariance, lower, upper))]


@within.register
def _polynomial_within(unit: PiecewisePolynomial, variable: int, low: float, high: float) -> Parts:
    first, last = float(unit.knots[0]), float(unit.knots[-1])
    inside = (unit.atoms >= low) & (unit.atoms <= high)
    atoms, masses = unit.atoms[inside], unit.atom_masses[inside]
    start, stop = max(low, first), min(high, last)
    if start < stop:
        knots, weights = _spline_within(unit.knots, unit.weights, start, stop)
        tails = unit.tail_masses * np.isinf([low, high])
    else:
        knots, tails = _rest_of_tail(unit, int(low >= last), low, high)
        weights = np.zeros(1)
    parts: Parts = []
    total = float(weights.sum() + masses.sum() + tails.sum())
    if total > _LEAST_MASS:
        fractions = [own / total for own in (weights, masses, tails)]
        own = PiecewisePolynomial(
            variable, knots, fractions[0], atoms, fractions[1], fractions[2], unit.tail_scales
        )
        parts.append((total, own))
    # Tails begin beyond the knots
    before, after = float(np.nextafter(first, -np.inf)), float(np.nextafter(last, np.inf))
    for side, start, stop in ((0, low, min(high, before)), (1, max(low, after), high)):
        if -np.inf < start < stop < np.inf:
            parts += _tail_within(unit, side, start, stop)
    return parts


def _rest_of_tail(
    unit: PiecewisePolynomial, side: int, low: float, high: float
) -> tuple[FloatArray, FloatArray]:
    """Knots without weight and masses of both tails, of a band beyond the knots.

    Of a tail that begins at an end of the band, the rest is exponential, too.
    """
    edge, end = (low, high) if side else (high, low)
    scale = unit.tail_scales[side]
    tails = np.zeros(2)
    if np.isinf(end):
        gap = abs(edge - unit.knots[-side])
        tails[side] = unit.tail_masses[side] * np.exp(-gap / scale)
    # The edge belongs to the tail, which begins beyond the knots
    inner = np.nextafter(edge, -np.inf if side else np.inf)
    width = scale + abs(edge)
    return inner + np.array([-width, 0.0] if side else [0.0, width]), tails


def _spline_within(
    knots: FloatArray, weights: FloatArray, start: float, stop: float
) -> tuple[FloatArray, FloatArray]:
    """Knots and weights of a density of B-splines on a part of its range."""
    degree = len(weights) - len(knots) + 1
    clamped = np.concatenate([[knots[0]] * degree, knots, [knots[-1]] * degree])
    # B-splines with integral one are (p + 1) / (t_{k+p+1} - t_k) times those that add up to one
    spline = BSpline(clamped, weights / _integrals(clamped, degree), degree)
    for point in (start, stop):
        missing = degree + 1 - int(np.count_nonzero(spline.t == point))
        if missing > 0:
            spline = spline.insert_knot(point, missing)
    first, last = np.searchsorted(spline.t, [start, stop])
    own = spline.t[first : last + degree + 1]
    # Knots are inserted by convex combinations: what is negative is rounding
    return np.unique(own), np.maximum(spline.c[first:last], 0.0) * _integrals(own, degree)


def _integrals(clamped: FloatArray, degree: int) -> FloatArray:
    """Integrals of the B-splines that add up to one."""
    return (clamped[degree + 1 :] - clamped[: -degree - 1]) / (degree + 1)


def _tail_within(unit: PiecewisePolynomial, side: int, start: float, stop: float) -> Parts:
    """The part of an exponential tail between two points, as a histogram."""
    edge, scale = unit.knots[-side], unit.tail_scales[side]
    beyond = np.exp(-np.abs(np.array([start, stop]) - edge) / scale)
    levels = np.linspace(beyond[0], beyond[1], _TAIL_CELLS + 1)
    mass = float(unit.tail_masses[side] * abs(levels[0] - levels[-1]))
    inner = edge + (1 - 2 * side) * scale * np.log(levels[1:-1])
    knots = np.concatenate([[start], inner, [stop]])
    if mass <= _LEAST_MASS or (np.diff(knots) <= 0).any():
        return []
    return [
        (mass, PiecewisePolynomial(unit.variable, knots, np.full(_TAIL_CELLS, 1 / _TAIL_CELLS)))
    ]
