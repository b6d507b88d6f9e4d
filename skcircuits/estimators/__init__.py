"""The public estimators, one file each."""

from skcircuits.estimators.expected_prediction_svr import ExpectedPredictionSVR
from skcircuits.estimators.graphical_svgd import GraphicalSVGDSampler
from skcircuits.estimators.imputer import CircuitImputer

__all__ = [
    "CircuitImputer",
    "ExpectedPredictionSVR",
    "GraphicalSVGDSampler",
]
