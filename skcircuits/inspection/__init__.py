"""Plots of models: Display classes like those of scikit-learn."""

from skcircuits.inspection.circuit_display import CircuitDisplay
from skcircuits.inspection.density_display import DensityDisplay, describe_density
from skcircuits.inspection.diagnostic_displays import (
    EdgeMarginalsDisplay,
    LossCurveDisplay,
    SteinDiagnosisDisplay,
)
from skcircuits.inspection.expected_prediction_display import ExpectedPredictionDisplay

__all__ = [
    "CircuitDisplay",
    "DensityDisplay",
    "EdgeMarginalsDisplay",
    "ExpectedPredictionDisplay",
    "LossCurveDisplay",
    "SteinDiagnosisDisplay",
    "describe_density",
]
