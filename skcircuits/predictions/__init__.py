"""Expected predictions of fitted scikit-learn models on rows with missing values."""

# Families of models register their closed forms
from skcircuits.predictions import _kernel_expansions, _linear, _targets, _trees  # noqa: F401
from skcircuits.predictions._expected_response import ExpectedResponse, find_closed_form

__all__ = ["ExpectedResponse", "find_closed_form"]
