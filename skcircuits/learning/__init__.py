"""Learning circuits from rows: parameters of any circuit, and structures."""

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
from skcircuits.learning.latent_tree.learner import LatentSchedule, learn_latent_tree
from skcircuits.learning.latent_tree.rows import LatentRows
from skcircuits.learning.strudel import GrowthLimits, StrudelLearner, grow, learn_mixture

__all__ = [
    "ColumnMoments",
    "EMStep",
    "GrowthLimits",
    "InputStatistics",
    "LatentRows",
    "LatentSchedule",
    "StrudelLearner",
    "expectation_maximization",
    "fit_parameters",
    "grow",
    "learn_latent_tree",
    "learn_mixture",
    "register_statistics",
]
