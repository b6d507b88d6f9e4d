"""Families of input units, one per file, and the registry of families and their rules."""

from skcircuits.circuits.inputs.base import (
    Box,
    InputLayer,
    InputUnit,
    NumericalLayer,
    register_input_unit,
)
from skcircuits.circuits.inputs.discrete import Bernoulli, Categorical, DiscreteLayer, Indicator
from skcircuits.circuits.inputs.factor_gaussian import FactorGaussian, FactorGaussianLayer
from skcircuits.circuits.inputs.gaussian import (
    Gaussian,
    GaussianLayer,
    MultivariateGaussian,
    MultivariateGaussianLayer,
)
from skcircuits.circuits.inputs.johnson import JohnsonGaussian, JohnsonGaussianLayer
from skcircuits.circuits.inputs.poisson import Poisson, PoissonLayer
from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import (
    PiecewisePolynomial,
    PiecewisePolynomialLayer,
)
from skcircuits.circuits.inputs.truncated_gaussian import TruncatedGaussian, TruncatedGaussianLayer

__all__ = [
    "Bernoulli",
    "Box",
    "Categorical",
    "DiscreteLayer",
    "FactorGaussian",
    "FactorGaussianLayer",
    "Gaussian",
    "GaussianLayer",
    "Indicator",
    "InputLayer",
    "InputUnit",
    "JohnsonGaussian",
    "JohnsonGaussianLayer",
    "MultivariateGaussian",
    "MultivariateGaussianLayer",
    "NumericalLayer",
    "PiecewisePolynomial",
    "PiecewisePolynomialLayer",
    "Poisson",
    "PoissonLayer",
    "TruncatedGaussian",
    "TruncatedGaussianLayer",
    "register_input_unit",
]
