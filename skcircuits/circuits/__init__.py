"""Probabilistic circuits: construction from units, and exact queries.

A circuit has a symbolic representation (``structure``, ``inputs``) and a numeric one, the plan
(``engine``). Every query chooses input values, and runs one feedforward pass and perhaps one
backward pass.
"""

from skcircuits.circuits.algebra import cyclic_shift, divide, entropy, kl_divergence, multiply
from skcircuits.circuits.circuit import Circuit
from skcircuits.circuits.inputs import (
    Bernoulli,
    Categorical,
    FactorGaussian,
    Gaussian,
    Indicator,
    InputLayer,
    InputUnit,
    JohnsonGaussian,
    MultivariateGaussian,
    NumericalLayer,
    PiecewisePolynomial,
    Poisson,
    TruncatedGaussian,
    register_input_unit,
)
from skcircuits.circuits.structure.properties import (
    are_compatible,
    is_decomposable,
    is_deterministic,
    is_smooth,
    is_structured_decomposable,
)
from skcircuits.circuits.structure.units import Product, Sum

__all__ = [
    "Bernoulli",
    "Categorical",
    "Circuit",
    "FactorGaussian",
    "Gaussian",
    "Indicator",
    "InputLayer",
    "InputUnit",
    "JohnsonGaussian",
    "MultivariateGaussian",
    "NumericalLayer",
    "PiecewisePolynomial",
    "Poisson",
    "Product",
    "Sum",
    "TruncatedGaussian",
    "are_compatible",
    "cyclic_shift",
    "divide",
    "entropy",
    "is_decomposable",
    "is_deterministic",
    "is_smooth",
    "is_structured_decomposable",
    "kl_divergence",
    "multiply",
    "register_input_unit",
]
