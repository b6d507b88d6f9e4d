"""Expected predictions of fitted scikit-learn models on rows with missing values."""

# Families of models register their closed forms
from skcircuits.predictions._expected_response import ExpectedResponse, find_closed_form
from skcircuits.predictions.models import _linear, _steps, _sums, _trees  # noqa: F401
from skcircuits.predictions.models._kernel_expansions import KernelExpansion

__all__ = ["ExpectedResponse", "KernelExpansion", "find_closed_form"]
