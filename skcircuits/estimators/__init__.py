"""The public estimators, one file each."""

from skcircuits.estimators.bbis import BBISWeighter
from skcircuits.estimators.expected_prediction_svr import ExpectedPredictionSVR
from skcircuits.estimators.gaussian_mixture import GaussianMixtureDensity
from skcircuits.estimators.graphical_svgd import GraphicalSVGDSampler
from skcircuits.estimators.imputer import CircuitImputer
from skcircuits.estimators.moat import MoATDensity

__all__ = [
    "BBISWeighter",
    "CircuitImputer",
    "ExpectedPredictionSVR",
    "GaussianMixtureDensity",
    "GraphicalSVGDSampler",
    "MoATDensity",
]
