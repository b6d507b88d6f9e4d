"""Products, quotients, divergences and entropies of discrete and Gaussian input units.

Discrete units combine with discrete ones, Gaussian units (univariate or joint) with Gaussian
ones over the same variables. Products are a normalised unit and a factor in log space.
"""

from __future__ import annotations

import numpy as np

from skcircuits.circuits.inputs.base import LOG_SQRT_2PI, InputUnit
from skcircuits.circuits.inputs.discrete import Categorical, DiscreteUnit
from skcircuits.circuits.inputs.gaussian import Gaussian
from skcircuits.circuits.inputs.multivariate_gaussian import MultivariateGaussian
from skcircuits.circuits.inputs.registry import (
    Scaled,
    divergence,
    divide_inputs,
    entropy,
    multiply_inputs,
)
from skcircuits.circuits.structure.units import Scope
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.protocols import FloatArray


@multiply_inputs.register(DiscreteUnit, DiscreteUnit)
def _multiply_discrete(left: DiscreteUnit, right: DiscreteUnit) -> Scaled:
    own, other = _log_padded(left, right)
    return _discrete(left.variable, own + other)


@divide_inputs.register(DiscreteUnit, DiscreteUnit)
def _divide_discrete(left: DiscreteUnit, right: DiscreteUnit) -> Scaled:
    own, other = _log_padded(left, right)
    ratios = np.subtract(own, other, where=other > -np.inf, out=np.full_like(own, -np.inf))
    return _discrete(left.variable, ratios)


@divergence.register(DiscreteUnit, DiscreteUnit)
def _discrete_divergence(left: DiscreteUnit, right: DiscreteUnit) -> tuple[float, float]:
    own, other = _padded(left, right)
    inside = (own > 0) & (other > 0)
    # States that the right unit excludes count as missing mass, not as infinity.
    ratios = np.log(own[inside] / other[inside])
    return float(own[inside].sum()), float(own[inside] @ ratios)


@entropy.register(DiscreteUnit)
def _discrete_entropy(unit: DiscreteUnit) -> float:
    possible = unit.probabilities[unit.probabilities > 0]
    return float(-possible @ np.log(possible))


def _multiply_gaussians(left: InputUnit, right: InputUnit) -> Scaled:
    if len(left.scope) == 1:
        return _univariate_product(left, right)
    (mean, covariance), (other_mean, other_covariance) = _moments(left), _moments(right)
    # N(x; a, A) N(x; b, B) = N(a; b, A + B) N(x; m, A (A + B)⁻¹ B)
    gain = np.linalg.solve(covariance + other_covariance, covariance).T
    log_factor = _log_density(mean - other_mean, covariance + other_covariance)
    product = gain @ other_covariance
    return Scaled(_gaussian(left.scope, mean + gain @ (other_mean - mean), product), log_factor)


def _divide_gaussians(left: InputUnit, right: InputUnit) -> Scaled:
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


def _gaussian_divergence(left: InputUnit, right: InputUnit) -> tuple[float, float]:
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


def _gaussian_entropy(unit: InputUnit) -> float:
    # ½ log |2πe Σ| is half the dimension less the log density at the mean.
    if len(unit.scope) == 1:
        return 0.5 - _log_normal(0.0, _mean_and_std(unit)[1])
    covariance = _moments(unit)[1]
    return float(0.5 * len(covariance) - _log_density(np.zeros(len(covariance)), covariance))


for _own in (Gaussian, MultivariateGaussian):
    entropy.register(_own)(_gaussian_entropy)
    for _other in (Gaussian, MultivariateGaussian):
        multiply_inputs.register(_own, _other)(_multiply_gaussians)
        divide_inputs.register(_own, _other)(_divide_gaussians)
        divergence.register(_own, _other)(_gaussian_divergence)


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


def _gaussian(scope: Scope, mean: FloatArray, covariance: FloatArray) -> InputUnit:
    """Build the joint unit; rounding differs across the diagonal."""
    return MultivariateGaussian(scope, mean, (covariance + covariance.T) / 2)


def _log_normal(deviation: float, std: float) -> float:
    """Log density of a Gaussian of one variable at a deviation from its mean."""
    # ``-inf`` beyond all floats
    with np.errstate(over="ignore"):
        return float(-0.5 * np.square(deviation / std) - np.log(std) - LOG_SQRT_2PI)


def _log_density(deviation: FloatArray, covariance: FloatArray) -> float:
    """Log density of a Gaussian at a deviation (d,) from its mean."""
    distance = deviation @ np.linalg.solve(covariance, deviation)
    log_determinant = np.linalg.slogdet(covariance)[1]
    return float(-0.5 * (distance + log_determinant) - len(deviation) * LOG_SQRT_2PI)
