"""Products, quotients and divergences of pairs of input units, one rule per pair of families.

Discrete units combine with discrete ones, Gaussian units (univariate or joint) with
Gaussian ones over the same variables, histograms with histograms. Results are a normalised
unit and a factor in log space, since products of densities have no other use for their
constant.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skcircuits.circuits.inputs.base import LOG_SQRT_2PI, LeafUnit
from skcircuits.circuits.inputs.discrete import Categorical, DiscreteUnit
from skcircuits.circuits.inputs.gaussian import Gaussian
from skcircuits.circuits.inputs.histogram_rules import (
    combine_histograms,
    histogram_divergence,
    histogram_entropy,
)
from skcircuits.circuits.inputs.multivariate_gaussian import MultivariateGaussian
from skcircuits.circuits.inputs.piecewise_polynomial import PiecewisePolynomial
from skcircuits.circuits.units import Scope
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.protocols import FloatArray

__all__ = ["Scaled", "divergence", "divide_inputs", "entropy", "multiply_inputs"]


class Scaled(NamedTuple):
    """A normalised unit times ``exp(log_factor)``; None with factor 0 for the zero function.

    Parameters
    ----------
    unit : Unit or None
        The unit.
    log_factor : float
        Its factor.
    """

    unit: LeafUnit | None
    log_factor: float


def multiply_inputs(left: LeafUnit, right: LeafUnit) -> Scaled:
    """Multiply two units over the same variables.

    Parameters
    ----------
    left, right : LeafUnit
        Both discrete, both Gaussian or both histograms.

    Returns
    -------
    Scaled
        The product, normalised, and its integral.

    Raises
    ------
    CircuitPropertyError
        If there is no rule for the two families.
    """
    if isinstance(left, DiscreteUnit) and isinstance(right, DiscreteUnit):
        own, other = _padded(left, right)
        return _discrete(left.variable, own * other)
    if isinstance(left, PiecewisePolynomial) and isinstance(right, PiecewisePolynomial):
        return Scaled(*combine_histograms(left, right, 1.0))
    (mean, covariance), (other_mean, other_covariance) = _gaussians(left, right, "multiplied")
    # N(x; a, A) N(x; b, B) = N(a; b, A + B) N(x; m, A (A + B)⁻¹ B)
    gain = np.linalg.solve(covariance + other_covariance, covariance).T
    log_factor = _log_density(mean - other_mean, covariance + other_covariance)
    product = gain @ other_covariance
    return Scaled(_gaussian(left.scope, mean + gain @ (other_mean - mean), product), log_factor)


def divide_inputs(left: LeafUnit, right: LeafUnit) -> Scaled:
    """Divide two units over the same variables; 0 where the divisor is zero.

    Parameters
    ----------
    left, right : LeafUnit
        Both discrete, both Gaussian (the divisor wider) or both histograms.

    Returns
    -------
    Scaled
        The quotient, normalised, and its integral.

    Raises
    ------
    CircuitPropertyError
        If there is no rule for the two families or the quotient cannot be integrated.
    """
    if isinstance(left, DiscreteUnit) and isinstance(right, DiscreteUnit):
        own, other = _padded(left, right)
        return _discrete(left.variable, np.divide(own, other, where=other > 0, out=0.0 * own))
    if isinstance(left, PiecewisePolynomial) and isinstance(right, PiecewisePolynomial):
        return Scaled(*combine_histograms(left, right, -1.0))
    (mean, covariance), (other_mean, other_covariance) = _gaussians(left, right, "divided")
    # N(x; a, A) / N(x; b, B) = N(x; m, A (B - A)⁻¹ B) c with the difference of precisions
    spread = other_covariance - covariance
    if np.linalg.eigvalsh(spread).min() <= 0:
        raise CircuitPropertyError(
            must(
                "the Gaussian units of a divisor",
                "be wider in every direction than those they divide",
                "Otherwise the quotient has no finite integral.",
                numerator=left,
                divisor=right,
            )
        )
    gain = np.linalg.solve(spread, covariance).T
    quotient = covariance + gain @ covariance
    centre = mean + gain @ (mean - other_mean)
    log_factor = (
        _log_density(centre - mean, covariance)
        - _log_density(centre - other_mean, other_covariance)
        - _log_density(np.zeros_like(mean), quotient)
    )
    return Scaled(_gaussian(left.scope, centre, quotient), log_factor)


def divergence(left: LeafUnit, right: LeafUnit) -> tuple[float, float]:
    """Integrate the left unit, and its log ratio to the right, over the right's support.

    Parameters
    ----------
    left, right : LeafUnit
        Both discrete, both Gaussian or both histograms.

    Returns
    -------
    mass : float
        ∫ left over the support of right.
    divergence : float
        ∫ left log(left / right) there.

    Raises
    ------
    CircuitPropertyError
        If there is no rule for the two families.
    """
    if isinstance(left, DiscreteUnit) and isinstance(right, DiscreteUnit):
        own, other = _padded(left, right)
        inside = (own > 0) & (other > 0)
        # States that the right unit excludes count as missing mass, not as infinity.
        ratios = np.log(own[inside] / other[inside])
        return float(own[inside].sum()), float(own[inside] @ ratios)
    if isinstance(left, PiecewisePolynomial) and isinstance(right, PiecewisePolynomial):
        return histogram_divergence(left, right)
    (mean, covariance), (other_mean, other_covariance) = _gaussians(left, right, "compared")
    # ½ (tr B⁻¹A - d + (a - b)ᵀ B⁻¹ (a - b) - log |B⁻¹A|)
    ratio = np.linalg.solve(other_covariance, covariance)
    shift = mean - other_mean
    distance = shift @ np.linalg.solve(other_covariance, shift)
    log_determinant = np.linalg.slogdet(ratio)[1]
    return 1.0, float(0.5 * (np.trace(ratio) - len(mean) + distance - log_determinant))


def entropy(unit: LeafUnit) -> float:
    """Differential entropy of a unit, or entropy of a discrete one.

    Parameters
    ----------
    unit : LeafUnit
        A discrete or Gaussian unit, or a histogram.

    Returns
    -------
    float
        Entropy in nats.

    Raises
    ------
    CircuitPropertyError
        If there is no rule for the family.
    """
    if isinstance(unit, DiscreteUnit):
        possible = unit.probabilities[unit.probabilities > 0]
        return float(-possible @ np.log(possible))
    if isinstance(unit, PiecewisePolynomial) and unit.degree == 0:
        return histogram_entropy(unit)
    # ½ log |2πe Σ| is half the dimension less the log density at the mean.
    _, covariance = _moments(unit, "measured")
    return float(0.5 * len(covariance) - _log_density(np.zeros(len(covariance)), covariance))


def _padded(left: DiscreteUnit, right: DiscreteUnit) -> tuple[FloatArray, FloatArray]:
    """Masses of both units over the states of either."""
    n_states = max(left.n_states, right.n_states)
    masses = np.zeros((2, n_states))
    masses[0, : left.n_states] = left.probabilities
    masses[1, : right.n_states] = right.probabilities
    return masses[0], masses[1]


def _discrete(variable: int, masses: FloatArray) -> Scaled:
    """Normalise masses."""
    # Quotients may be far above one: take the largest out before adding.
    peak = masses.max()
    if peak == 0.0:
        return Scaled(None, -np.inf)
    scaled = masses / peak
    total = scaled.sum()
    return Scaled(Categorical(variable, scaled / total), float(np.log(peak) + np.log(total)))


def _gaussians(
    left: LeafUnit, right: LeafUnit, action: str
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Means and covariances of two Gaussian units."""
    if not all(isinstance(unit, Gaussian | MultivariateGaussian) for unit in (left, right)):
        raise _no_rule(action, left, right)
    return _moments(left, action), _moments(right, action)


def _moments(unit: LeafUnit, action: str) -> tuple[FloatArray, FloatArray]:
    """Mean vector and covariance matrix of a Gaussian unit."""
    if isinstance(unit, Gaussian):
        return np.array([unit.mean]), np.array([[unit.std**2]])
    if isinstance(unit, MultivariateGaussian):
        return unit.mean, unit.covariance
    raise _no_rule(action, unit)


def _no_rule(action: str, *units: LeafUnit) -> CircuitPropertyError:
    """Say which units do not go together."""
    return CircuitPropertyError(
        must(
            f"input units that are {action}",
            "be discrete, Gaussian or histograms, alike in both circuits",
            families=[type(unit).__name__ for unit in units],
        )
    )


def _gaussian(scope: Scope, mean: FloatArray, covariance: FloatArray) -> LeafUnit:
    """Build the univariate or the joint unit."""
    if len(scope) == 1:
        return Gaussian(scope[0], float(mean[0]), float(np.sqrt(covariance[0, 0])))
    return MultivariateGaussian(scope, mean, (covariance + covariance.T) / 2)


def _log_density(deviation: FloatArray, covariance: FloatArray) -> float:
    """Log density of a centred Gaussian."""
    distance = deviation @ np.linalg.solve(covariance, deviation)
    log_determinant = np.linalg.slogdet(covariance)[1]
    return float(-0.5 * (distance + log_determinant) - len(deviation) * LOG_SQRT_2PI)
