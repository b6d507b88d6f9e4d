"""Products, quotients and divergences of histograms: piecewise polynomials of degree zero.

Of the piecewise polynomials only histograms are closed under products: a product of
smoother pieces bends at the knots of both factors in a way that B-splines on single knots
cannot follow. Where both units have a point mass, masses take the place of densities.
"""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import PiecewisePolynomial
from skcircuits.circuits.inputs.registry import (
    Scaled,
    divergence,
    divide_inputs,
    entropy,
    multiply_inputs,
)
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.protocols import FloatArray

# End of the knots that a side's tail begins at.
LEFT, RIGHT = 0, -1


@multiply_inputs.register(PiecewisePolynomial, PiecewisePolynomial)
def _multiply(left: PiecewisePolynomial, right: PiecewisePolynomial) -> Scaled:
    return Scaled(*combine_histograms(left, right, 1.0))


@divide_inputs.register(PiecewisePolynomial, PiecewisePolynomial)
def _divide(left: PiecewisePolynomial, right: PiecewisePolynomial) -> Scaled:
    return Scaled(*combine_histograms(left, right, -1.0))


def combine_histograms(
    left: PiecewisePolynomial, right: PiecewisePolynomial, exponent: float
) -> tuple[PiecewisePolynomial | None, float]:
    """Multiply a histogram with a power of another one.

    ``left``, ``right``: units of degree zero; where both have a tail, they begin at one knot, and
    where one has a point mass, the other has one or is zero; ``exponent``: power of the right unit;
    the quotient is 0 where the divisor is. Returns ``unit``: the result, normalised, on the knots
    of both; None for the zero function; ``log_factor``: log of its integral.

    Raises ``CircuitPropertyError`` if the result is no piecewise polynomial unit, or cannot be
    integrated.
    """
    action = "multiplied" if exponent > 0 else "divided"
    _require_histograms(left, right, action)
    _require_apart(left, right, action)
    knots, atoms = _common_knots(left, right), np.union1d(left.atoms, right.atoms)
    with np.errstate(divide="ignore"):
        log_heights = _power(_log_heights(left, knots), _log_heights(right, knots), exponent)
        log_masses = log_heights + np.log(np.diff(knots))
        tails = [_tail(left, right, side, exponent) for side in (LEFT, RIGHT)]
        masses = np.log([_atom_masses(unit, atoms) for unit in (left, right)])
        log_atoms = _power(masses[0], masses[1], exponent)
    shared = ~np.isneginf(log_atoms)
    log_parts = np.concatenate([log_masses, [log_mass for log_mass, _ in tails], log_atoms[shared]])
    peak = log_parts.max()
    if np.isneginf(peak):
        return None, -np.inf
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
    return unit, float(peak + np.log(total))


@entropy.register(PiecewisePolynomial)
def histogram_entropy(unit: PiecewisePolynomial) -> float:
    """Entropy of a histogram, of its density beside the logarithms of its point masses.

    ``unit``: a unit of degree zero. Returns entropy in nats.
    """
    _require_histograms(unit, unit, "measured")
    widths = np.concatenate([np.diff(unit.knots), unit.tail_scales, np.ones(len(unit.atoms))])
    masses = np.concatenate([unit.weights, unit.tail_masses, unit.atom_masses])
    # An exponential distribution has entropy 1 + log(scale)
    return float(unit.tail_masses.sum() + xlogy(masses, widths).sum() - xlogy(masses, masses).sum())


@divergence.register(PiecewisePolynomial, PiecewisePolynomial)
def histogram_divergence(
    left: PiecewisePolynomial, right: PiecewisePolynomial
) -> tuple[float, float]:
    """Integrate the left unit, and its log ratio to the right, over the right's support.

    ``left``, ``right``: units of degree zero; where both have a tail, they begin at one knot. A
    point mass of the left unit lies in the right's support if that has one there, too. Returns
    ``mass``, ``divergence``: ∫ left and ∫ left log(left / right) there.

    Raises ``CircuitPropertyError`` if a unit is no histogram, or a tail reaches over intervals of
    the other unit.
    """
    _require_histograms(left, right, "compared")
    knots, atoms = _common_knots(left, right), np.union1d(left.atoms, right.atoms)
    with np.errstate(divide="ignore"):
        log_values = np.array(
            [
                np.append(_log_heights(unit, knots), np.log(_atom_masses(unit, atoms)))
                for unit in (left, right)
            ]
        )
    inside = ~np.isneginf(log_values).any(axis=0)
    sizes = np.append(np.diff(knots), np.ones(len(atoms)))[inside]
    own, other = log_values[:, inside]
    masses = np.exp(own) * sizes
    mass, total = masses.sum(), masses @ (own - other)
    for side in (LEFT, RIGHT):
        tail_masses, scales = _common_tails(left, right, side)
        if tail_masses.all():
            log_heights = np.log(tail_masses) - np.log(scales)
            # The distance from the edge has the left scale for its mean
            slope = scales[0] / scales[1] - 1.0
            mass += tail_masses[0]
            total += tail_masses[0] * (log_heights[0] - log_heights[1] + slope)
    return float(mass), float(total)


def _require_histograms(left: PiecewisePolynomial, right: PiecewisePolynomial, action: str) -> None:
    """Refuse what has no rule."""
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
            raise CircuitPropertyError(
                must(
                    f"point masses of piecewise polynomial units that are {action}",
                    "lie where the other unit has a point mass or is zero",
                    "Rebuild the unit without these point masses.",
                    atoms=within.tolist(),
                )
            )


def _common_knots(left: PiecewisePolynomial, right: PiecewisePolynomial) -> FloatArray:
    """Knots of both units where both have intervals; any where they have none in common."""
    first = max(left.knots[LEFT], right.knots[LEFT])
    last = min(left.knots[RIGHT], right.knots[RIGHT])
    if first >= last:
        return left.knots
    knots = np.union1d(left.knots, right.knots)
    return knots[(knots >= first) & (knots <= last)]


def _atom_masses(unit: PiecewisePolynomial, atoms: FloatArray) -> FloatArray:
    """Mass of a unit at points that hold its own atoms."""
    masses = np.zeros(len(atoms))
    masses[np.searchsorted(atoms, unit.atoms)] = unit.atom_masses
    return masses


def _log_heights(unit: PiecewisePolynomial, knots: FloatArray) -> FloatArray:
    """Log density of a histogram on intervals within or beyond its own, tails left out."""
    heights = np.pad(np.log(unit.weights / np.diff(unit.knots)), 1, constant_values=-np.inf)
    return heights[np.searchsorted(unit.knots, knots[:-1], side="right")]


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
        raise CircuitPropertyError(
            must(
                "the tails of a divisor",
                "be longer than those they divide",
                "Otherwise the quotient has no finite integral.",
                numerator=float(scales[0]),
                divisor=float(scales[1]),
            )
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
            raise CircuitPropertyError(
                must(
                    "the tails of piecewise polynomial units that are combined",
                    "begin at the same knot",
                    "Give both units the same first and last knot, or no mass beyond them.",
                    edges=tuple(map(float, edges)),
                )
            )
        masses[:] = 0.0
    return masses, scales
