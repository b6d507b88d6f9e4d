"""Families of input units, one per file."""

from skcircuits.circuits.inputs._base import Box, BoxMasses, InputLayer, InputUnit
from skcircuits.circuits.inputs.discrete import Bernoulli, Categorical, DiscreteLayer, Indicator
from skcircuits.circuits.inputs.factor_gaussian import FactorGaussian, FactorGaussianLayer
from skcircuits.circuits.inputs.gaussian import Gaussian, GaussianLayer
from skcircuits.circuits.inputs.multivariate_gaussian import (
    MultivariateGaussian,
    MultivariateGaussianLayer,
)
from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import (
    PiecewisePolynomial,
    PiecewisePolynomialLayer,
)

__all__ = [
    "FAMILIES",
    "Bernoulli",
    "Box",
    "BoxMasses",
    "Categorical",
    "DiscreteLayer",
    "FactorGaussian",
    "FactorGaussianLayer",
    "Gaussian",
    "GaussianLayer",
    "Indicator",
    "InputLayer",
    "InputUnit",
    "MultivariateGaussian",
    "MultivariateGaussianLayer",
    "PiecewisePolynomial",
    "PiecewisePolynomialLayer",
]

#: The families a file may name.
FAMILIES: dict[str, type[InputUnit]] = {
    family.__name__: family
    for family in (
        *(Bernoulli, Categorical, FactorGaussian, Gaussian, Indicator, MultivariateGaussian),
        PiecewisePolynomial,
    )
}
