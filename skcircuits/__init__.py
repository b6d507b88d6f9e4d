"""Exact probabilistic reasoning as ordinary scikit-learn estimators."""

from skcircuits.estimators import (
    BBISWeighter,
    CircuitImputer,
    ExpectedPredictionSVR,
    GaussianMixtureDensity,
    GraphicalSVGDSampler,
    MoATDensity,
)

__version__ = "0.1.0"

__all__ = [
    "BBISWeighter",
    "CircuitImputer",
    "ExpectedPredictionSVR",
    "GaussianMixtureDensity",
    "GraphicalSVGDSampler",
    "MoATDensity",
]
