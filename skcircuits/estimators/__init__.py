"""The public estimators, one file each."""

from skcircuits.estimators.automatic.density import AutomaticDensity
from skcircuits.estimators.automatic.stacking import StackingDensity
from skcircuits.estimators.bbis import BBISWeighter
from skcircuits.estimators.chow_liu import ChowLiuDensity, HiddenChowLiuDensity
from skcircuits.estimators.continuous_mixture import ContinuousMixtureDensity
from skcircuits.estimators.expected_prediction_svr import ExpectedPredictionSVR
from skcircuits.estimators.expected_predictions import (
    ExpectedPredictionClassifier,
    ExpectedPredictionRegressor,
)
from skcircuits.estimators.gaussian_mixture import GaussianMixtureDensity
from skcircuits.estimators.graphical_svgd import GraphicalSVGDSampler
from skcircuits.estimators.imputer import CircuitImputer
from skcircuits.estimators.moat import MoATDensity
from skcircuits.estimators.pooling import PooledEstimate, pool, pool_models
from skcircuits.estimators.strudel import StrudelDensity
from skcircuits.estimators.wmispn import WMISPNDensity

__all__ = [
    "AutomaticDensity",
    "BBISWeighter",
    "ChowLiuDensity",
    "CircuitImputer",
    "ContinuousMixtureDensity",
    "ExpectedPredictionClassifier",
    "ExpectedPredictionRegressor",
    "ExpectedPredictionSVR",
    "GaussianMixtureDensity",
    "GraphicalSVGDSampler",
    "HiddenChowLiuDensity",
    "MoATDensity",
    "PooledEstimate",
    "StackingDensity",
    "StrudelDensity",
    "WMISPNDensity",
    "pool",
    "pool_models",
]
