"""Learning circuits from rows: parameters of any circuit, and structures."""

from skcircuits.learning.latent_learning import LatentSchedule, learn_latent_tree
from skcircuits.learning.latent_start import LatentRows
from skcircuits.learning.parameters import EMStep, expectation_maximization, fit_parameters
from skcircuits.learning.strudel import StrudelLearner
from skcircuits.learning.strudel_growth import GrowthLimits, grow, learn_mixture

__all__ = [
    "EMStep",
    "GrowthLimits",
    "LatentRows",
    "LatentSchedule",
    "StrudelLearner",
    "expectation_maximization",
    "fit_parameters",
    "grow",
    "learn_latent_tree",
    "learn_mixture",
]
