"""Learning circuits from rows: parameters of any circuit; structures by internal learners."""

from skcircuits.learning.expectation_maximization import (
    EMStep,
    expectation_maximization,
    fit_parameters,
)
from skcircuits.learning.gaussian_mixture import _factor_gaussians  # noqa: F401 registers a family
from skcircuits.learning.input_statistics import (
    ColumnMoments,
    InputStatistics,
    register_statistics,
)

__all__ = [
    "ColumnMoments",
    "EMStep",
    "InputStatistics",
    "expectation_maximization",
    "fit_parameters",
    "register_statistics",
]
