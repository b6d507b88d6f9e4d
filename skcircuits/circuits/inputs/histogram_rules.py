"""Products and quotients of histograms: piecewise polynomial units of degree zero.

Of the piecewise polynomials only histograms are closed under products: a product of
smoother pieces bends at the knots of both factors in a way that B-splines on single knots
cannot follow.
"""

from __future__ import annotations

import numpy as np

from skcircuits.circuits.inputs.piecewise_polynomial import PiecewisePolynomial
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.protocols import FloatArray

__all__ = ["combine_histograms"]

# End of the knots that a side's tail begins at.
LEFT, RIGHT = 0, -1


def combine_histograms(
    left: PiecewisePolynomial, right: PiecewisePolynomial, exponent: float
) -> tuple[PiecewisePolynomial | None, float]:
    """Multiply a histogram with a power of another one.

    Parameters
    ----------
    left, right : PiecewisePolynomial
        Units of degree zero without atoms; where both have a tail, they begin at one knot.
    exponent : {1.0, -1.0}
        Power of the right unit; the quotient is 0 where the divisor is.

    Returns
    -------
    unit : PiecewisePolynomial or None
        The result, normalised, on the knots of both; None for the zero function.
    log_factor : float
        Log of its integral.

    Raises
    ------
    CircuitPropertyError
        If the result is no piecewise polynomial unit, or cannot be integrated.

    Examples
    --------
    >>> from skcircuits.circuits import PiecewisePolynomial
    >>> from skcircuits.circuits.inputs.histogram_rules import combine_histograms
    >>> wide = PiecewisePolynomial(0, knots=[0.0, 2.0], weights=[1.0])
    >>> steps = PiecewisePolynomial(0, knots=[0.0, 1.0, 3.0], weights=[0.5, 0.5])
    >>> unit, log_factor = combine_histograms(wide, steps, 1.0)
    >>> unit.knots.tolist(), unit.weights.round(3).tolist()
    ([0.0, 1.0, 2.0], [0.667, 0.333])
    """
    _require_histograms(left, right, exponent)
    first = max(left.knots[LEFT], right.knots[LEFT])
    last = min(left.knots[RIGHT], right.knots[RIGHT])
    if first >= last:
        return None, -np.inf
    knots = np.union1d(left.knots, right.knots)
    knots = knots[(knots >= first) & (knots <= last)]
    with np.errstate(divide="ignore"):
        log_heights = _power(_log_heights(left, knots), _log_heights(right, knots), exponent)
        log_masses = log_heights + np.log(np.diff(knots))
        tails = [_tail(left, right, side, exponent) for side in (LEFT, RIGHT)]
    log_parts = np.append(log_masses, [log_mass for log_mass, _ in tails])
    peak = log_parts.max()
    if np.isneginf(peak):
        return None, -np.inf
    # Heights may be of any size: the largest part is taken out before adding
    parts = np.exp(log_parts - peak)
    total = parts.sum()
    parts /= total
    unit = PiecewisePolynomial(
        left.variable,
        knots,
        parts[:-2],
        tail_masses=parts[-2:],
        tail_scales=[scale for _, scale in tails],
    )
    return unit, float(peak + np.log(total))


def _require_histograms(
    left: PiecewisePolynomial, right: PiecewisePolynomial, exponent: float
) -> None:
    """Refuse what has no rule."""
    action = "multiplied" if exponent > 0 else "divided"
    if left.degree or right.degree or len(left.atoms) or len(right.atoms):
        raise CircuitPropertyError(
            must(
                f"piecewise polynomial units that are {action}",
                "be histograms without atoms",
                "Give them as many weights as intervals (leaf='histogram' when learning); other "
                "piecewise polynomials have no product in their family.",
                left=left,
                right=right,
            )
        )


def _log_heights(unit: PiecewisePolynomial, knots: FloatArray) -> FloatArray:
    """Log density of a histogram on finer intervals inside its own."""
    own = np.searchsorted(unit.knots, knots[:-1], side="right") - 1
    heights: FloatArray = np.log(unit.weights / np.diff(unit.knots))[own]
    return heights


def _power(own: FloatArray, other: FloatArray, exponent: float) -> FloatArray:
    """Log of a product or quotient that is 0 where either function is."""
    possible = ~(np.isneginf(own) | np.isneginf(other))
    return np.where(possible, own + exponent * np.where(possible, other, 0.0), -np.inf)


def _tail(
    left: PiecewisePolynomial, right: PiecewisePolynomial, side: int, exponent: float
) -> tuple[float, float]:
    """Log mass and scale of the tail on one side."""
    edges = left.knots[side], right.knots[side]
    masses = np.array([left.tail_masses[side], right.tail_masses[side]])
    scales = np.array([left.tail_scales[side], right.tail_scales[side]])
    if edges[0] != edges[1]:
        # A tail that reaches over intervals of the other unit would bend them
        inner = int((edges[0] < edges[1]) == (side == LEFT))
        if masses[inner] > 0:
            raise CircuitPropertyError(
                must(
                    "the tails of piecewise polynomial units that are combined",
                    "begin at the same knot",
                    "Give both units the same first and last knot, or no mass beyond them.",
                    edges=tuple(map(float, edges)),
                )
            )
        return -np.inf, 1.0
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
