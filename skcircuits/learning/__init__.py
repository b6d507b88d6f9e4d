"""Learning circuits from rows: parameters of any circuit; structures by internal learners."""

from skcircuits.learning.expectation_maximization import (
    ColumnMoments,
    EMStep,
    InputStatistics,
    expectation_maximization,
    fit_parameters,
    register_statistics,
)
from skcircuits.learning.gaussian_mixture import _factor_gaussians  # noqa: F401 registers a family

__all__ = [
    "ColumnMoments",
    "EMStep",
    "InputStatistics",
    "expectation_maximization",
    "fit_parameters",
    "register_statistics",
]
