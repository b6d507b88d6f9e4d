"""Products, quotients and divergences of pairs of input units, one rule per pair of families.

Discrete units combine with discrete ones, Gaussian units (univariate or joint) with
Gaussian ones over the same variables, histograms with histograms. Results are a normalised
unit and a factor in log space, since products of densities have no other use for their
constant.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skcircuits.circuits.inputs._base import LOG_SQRT_2PI, InputUnit
from skcircuits.circuits.inputs.discrete import Categorical, DiscreteUnit
from skcircuits.circuits.inputs.gaussian import Gaussian
from skcircuits.circuits.inputs.multivariate_gaussian import MultivariateGaussian
from skcircuits.circuits.inputs.polynomial._histogram_rules import (
    combine_histograms,
    histogram_divergence,
    histogram_entropy,
)
from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import PiecewisePolynomial
from skcircuits.circuits.structure.units import Scope
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

    unit: InputUnit | None
    log_factor: float


def multiply_inputs(left: InputUnit, right: InputUnit) -> Scaled:
    """Multiply two units over the same variables.

    Parameters
    ----------
    left, right : InputUnit
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
        own, other = _log_padded(left, right)
        return _discrete(left.variable, own + other)
    if isinstance(left, PiecewisePolynomial) and isinstance(right, PiecewisePolynomial):
        return Scaled(*combine_histograms(left, right, 1.0))
    _require_gaussians("multiplied", left, right)
    if len(left.scope) == 1:
        return _univariate_product(left, right)
    (mean, covariance), (other_mean, other_covariance) = _moments(left), _moments(right)
    # N(x; a, A) N(x; b, B) = N(a; b, A + B) N(x; m, A (A + B)⁻¹ B)
    gain = np.linalg.solve(covariance + other_covariance, covariance).T
    log_factor = _log_density(mean - other_mean, covariance + other_covariance)
    product = gain @ other_covariance
    return Scaled(_gaussian(left.scope, mean + gain @ (other_mean - mean), product), log_factor)


def divide_inputs(left: InputUnit, right: InputUnit) -> Scaled:
    """Divide two units over the same variables; 0 where the divisor is zero.

    Parameters
    ----------
    left, right : InputUnit
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
        own, other = _log_padded(left, right)
        ratios = np.subtract(own, other, where=other > -np.inf, out=np.full_like(own, -np.inf))
        return _discrete(left.variable, ratios)
    if isinstance(left, PiecewisePolynomial) and isinstance(right, PiecewisePolynomial):
        return Scaled(*combine_histograms(left, right, -1.0))
    _require_gaussians("divided", left, right)
    if len(left.scope) == 1:
        return _univariate_quotient(left, right)
    (mean, covariance), (other_mean, other_covariance) = _moments(left), _moments(right)
    # N(x; a, A) / N(x; b, B) = N(x; m, A (B - A)⁻¹ B) c with the difference of precisions
    spread = other_covariance - covariance
    if np.linalg.eigvalsh(spread).min() <= 0:
        raise _too_narrow(left, right)
    gain = np.linalg.solve(spread, covariance).T
    quotient = covariance + gain @ covariance
    centre = mean + gain @ (mean - other_mean)
    log_factor = (
        _log_density(centre - mean, covariance)
        - _log_density(centre - other_mean, other_covariance)
        - _log_density(np.zeros_like(mean), quotient)
    )
    return Scaled(_gaussian(left.scope, centre, quotient), log_factor)


def divergence(left: InputUnit, right: InputUnit) -> tuple[float, float]:
    """Integrate the left unit, and its log ratio to the right, over the right's support.

    Parameters
    ----------
    left, right : InputUnit
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
    _require_gaussians("compared", left, right)
    if len(left.scope) == 1:
        (centre, std), (other_centre, other_std) = _mean_and_std(left), _mean_and_std(right)
        width, offset = std / other_std, (centre - other_centre) / other_std
        return 1.0, float(0.5 * (width**2 - 1.0 + offset**2) - np.log(width))
    (mean, covariance), (other_mean, other_covariance) = _moments(left), _moments(right)
    # ½ (tr B⁻¹A - d + (a - b)ᵀ B⁻¹ (a - b) - log |B⁻¹A|)
    ratio = np.linalg.solve(other_covariance, covariance)
    shift = mean - other_mean
    distance = shift @ np.linalg.solve(other_covariance, shift)
    log_determinant = np.linalg.slogdet(ratio)[1]
    return 1.0, float(0.5 * (np.trace(ratio) - len(mean) + distance - log_determinant))


def entropy(unit: InputUnit) -> float:
    """Differential entropy of a unit, or entropy of a discrete one.

    Parameters
    ----------
    unit : InputUnit
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
    _require_gaussians("measured", unit)
    # ½ log |2πe Σ| is half the dimension less the log density at the mean.
    if len(unit.scope) == 1:
        return 0.5 - _log_normal(0.0, _mean_and_std(unit)[1])
    covariance = _moments(unit)[1]
    return float(0.5 * len(covariance) - _log_density(np.zeros(len(covariance)), covariance))


def _padded(left: DiscreteUnit, right: DiscreteUnit) -> tuple[FloatArray, FloatArray]:
    """Masses of both units over the states of either."""
    n_states = max(left.n_states, right.n_states)
    masses = np.zeros((2, n_states))
    masses[0, : left.n_states] = left.probabilities
    masses[1, : right.n_states] = right.probabilities
    return masses[0], masses[1]


def _log_padded(left: DiscreteUnit, right: DiscreteUnit) -> tuple[FloatArray, FloatArray]:
    """Logarithms of the masses: products and quotients leave the range of floats."""
    with np.errstate(divide="ignore"):
        own, other = np.log(_padded(left, right))
    return own, other


def _discrete(variable: int, log_masses: FloatArray) -> Scaled:
    """Normalise masses."""
    peak = log_masses.max()
    if np.isneginf(peak):
        return Scaled(None, -np.inf)
    scaled = np.exp(log_masses - peak)
    total = scaled.sum()
    masses = scaled / total
    lost = np.flatnonzero((masses == 0.0) & ~np.isneginf(log_masses))
    if len(lost):
        # A unit holds masses, not their logarithms: these states would become impossible.
        raise CircuitPropertyError(
            must(
                "masses of the states of a product or quotient",
                "be at least 5e-324 of their sum",
                "Set masses that small to zero first.",
                variable=variable,
                states=lost.tolist(),
            )
        )
    return Scaled(Categorical(variable, masses), float(peak + np.log(total)))


def _require_gaussians(action: str, *units: InputUnit) -> None:
    """Refuse what has no rule."""
    if not all(isinstance(unit, Gaussian | MultivariateGaussian) for unit in units):
        raise _no_rule(action, *units)


def _moments(unit: InputUnit) -> tuple[FloatArray, FloatArray]:
    """Mean vector and covariance matrix of a Gaussian unit of several variables."""
    assert isinstance(unit, MultivariateGaussian)
    return unit.mean, unit.covariance


def _mean_and_std(unit: InputUnit) -> tuple[float, float]:
    """Mean and standard deviation, whose square may be no float, of one variable."""
    if isinstance(unit, Gaussian):
        return unit.mean, unit.std
    mean, covariance = _moments(unit)
    return float(mean[0]), float(np.sqrt(covariance[0, 0]))


def _univariate_product(left: InputUnit, right: InputUnit) -> Scaled:
    """Multiply Gaussian units of one variable without squares of standard deviations."""
    (mean, std), (other_mean, other_std) = _mean_and_std(left), _mean_and_std(right)
    spread = float(np.hypot(std, other_std))
    centre = mean + (std / spread) ** 2 * (other_mean - mean)
    unit = Gaussian(left.scope[0], centre, std * (other_std / spread))
    return Scaled(unit, _log_normal(mean - other_mean, spread))


def _univariate_quotient(left: InputUnit, right: InputUnit) -> Scaled:
    """Divide Gaussian units of one variable without squares of standard deviations."""
    (mean, std), (other_mean, other_std) = _mean_and_std(left), _mean_and_std(right)
    if other_std <= std:
        raise _too_narrow(left, right)
    spread = float(np.sqrt(other_std - std) * np.sqrt(other_std + std))
    centre = mean + (std / spread) ** 2 * (mean - other_mean)
    unit = Gaussian(left.scope[0], centre, std * (other_std / spread))
    log_factor = (
        _log_normal(centre - mean, std)
        - _log_normal(centre - other_mean, other_std)
        - _log_normal(0.0, unit.std)
    )
    return Scaled(unit, log_factor)


def _too_narrow(left: InputUnit, right: InputUnit) -> CircuitPropertyError:
    """Say why Gaussian units have no quotient."""
    return CircuitPropertyError(
        must(
            "the Gaussian units of a divisor",
            "be wider in every direction than those they divide",
            "Otherwise the quotient has no finite integral.",
            numerator=left,
            divisor=right,
        )
    )


def _no_rule(action: str, *units: InputUnit) -> CircuitPropertyError:
    """Say which units do not go together."""
    return CircuitPropertyError(
        must(
            f"input units that are {action}",
            "be discrete, Gaussian or histograms, alike in both circuits",
            families=[type(unit).__name__ for unit in units],
        )
    )


def _gaussian(scope: Scope, mean: FloatArray, covariance: FloatArray) -> InputUnit:
    """Build the joint unit; rounding differs across the diagonal."""
    return MultivariateGaussian(scope, mean, (covariance + covariance.T) / 2)


def _log_normal(deviation: float, std: float) -> float:
    """Log density of a centred Gaussian of one variable; ``-inf`` beyond all floats."""
    with np.errstate(over="ignore"):
        return float(-0.5 * np.square(deviation / std) - np.log(std) - LOG_SQRT_2PI)


def _log_density(deviation: FloatArray, covariance: FloatArray) -> float:
    """Log density of a centred Gaussian."""
    distance = deviation @ np.linalg.solve(covariance, deviation)
    log_determinant = np.linalg.slogdet(covariance)[1]
    return float(-0.5 * (distance + log_determinant) - len(deviation) * LOG_SQRT_2PI)
