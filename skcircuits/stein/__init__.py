"""Stein kernels and discrepancies, and the weights that minimise them."""

from skcircuits.stein.discrepancy import (
    SteinDiagnosis,
    SteinTestResult,
    kdsd,
    stein_diagnosis,
    stein_discrepancy,
    stein_test,
    stein_thinning,
)
from skcircuits.stein.gram import stein_gram
from skcircuits.stein.langevin import InverseMultiquadric
from skcircuits.stein.simplex import simplex_weights

__all__ = [
    "InverseMultiquadric",
    "SteinDiagnosis",
    "SteinTestResult",
    "kdsd",
    "simplex_weights",
    "stein_diagnosis",
    "stein_discrepancy",
    "stein_gram",
    "stein_test",
    "stein_thinning",
]
