"""Exact probabilistic reasoning as ordinary scikit-learn estimators."""

from skcircuits.estimators import (
    BBISWeighter,
    ChowLiuDensity,
    CircuitImputer,
    ExpectedPredictionClassifier,
    ExpectedPredictionRegressor,
    ExpectedPredictionSVR,
    GaussianMixtureDensity,
    GraphicalSVGDSampler,
    HiddenChowLiuDensity,
    MoATDensity,
    PooledEstimate,
    StrudelDensity,
    WMISPNDensity,
    pool,
    pool_models,
)
from skcircuits.tabular.queries import col, count
from skcircuits.versions import show_versions

__version__ = "0.1.0"

__all__ = [
    "BBISWeighter",
    "ChowLiuDensity",
    "CircuitImputer",
    "ExpectedPredictionClassifier",
    "ExpectedPredictionRegressor",
    "ExpectedPredictionSVR",
    "GaussianMixtureDensity",
    "GraphicalSVGDSampler",
    "HiddenChowLiuDensity",
    "MoATDensity",
    "PooledEstimate",
    "StrudelDensity",
    "WMISPNDensity",
    "col",
    "count",
    "pool",
    "pool_models",
    "show_versions",
]
