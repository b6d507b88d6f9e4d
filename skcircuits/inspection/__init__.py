"""Plots of models: Display classes like those of scikit-learn."""

from skcircuits.inspection.circuit_display import CircuitDisplay
from skcircuits.inspection.density_display import DensityDisplay, describe_density
from skcircuits.inspection.edge_marginals_display import EdgeMarginalsDisplay
from skcircuits.inspection.expected_prediction_display import ExpectedPredictionDisplay
from skcircuits.inspection.loss_curve_display import LossCurveDisplay
from skcircuits.inspection.stein_diagnosis_display import SteinDiagnosisDisplay

__all__ = [
    "CircuitDisplay",
    "DensityDisplay",
    "EdgeMarginalsDisplay",
    "ExpectedPredictionDisplay",
    "LossCurveDisplay",
    "SteinDiagnosisDisplay",
    "describe_density",
]
