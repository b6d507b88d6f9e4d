"""Parts of piecewise polynomials within intervals: piecewise polynomials again."""

from __future__ import annotations

import numpy as np
from scipy.interpolate import BSpline

from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import PiecewisePolynomial
from skcircuits.circuits.inputs.restriction._evidence import LEAST_MASS, Parts, within
from skcircuits.protocols import FloatArray

_TAIL_CELLS = 8  # of equal mass, of the part of an exponential tail that is bounded


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
    if total > LEAST_MASS:
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
    if mass <= LEAST_MASS or (np.diff(knots) <= 0).any():
        return []
    return [
        (mass, PiecewisePolynomial(unit.variable, knots, np.full(_TAIL_CELLS, 1 / _TAIL_CELLS)))
    ]
