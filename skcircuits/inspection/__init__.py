"""Plots of models: Display classes like those of scikit-learn."""

from skcircuits.inspection.density_display import DensityDisplay, describe_density
from skcircuits.inspection.expected_prediction_display import ExpectedPredictionDisplay
from skcircuits.inspection.model_displays import (
    CircuitDisplay,
    EdgeMarginalsDisplay,
    LossCurveDisplay,
    SteinDiagnosisDisplay,
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
