"""Plots of models: Display classes like those of scikit-learn."""

from skcircuits.inspection.model_displays import (
    CircuitDisplay,
    EdgeMarginalsDisplay,
    LossCurveDisplay,
    SteinDiagnosisDisplay,
)
from skcircuits.inspection.prediction_displays import (
    DensityDisplay,
    ExpectedPredictionDisplay,
    describe_density,
)

__all__ = [
    "CircuitDisplay",
    "DensityDisplay",
    "EdgeMarginalsDisplay",
    "ExpectedPredictionDisplay",
    "LossCurveDisplay",
    "SteinDiagnosisDisplay",
    "describe_density",
]
