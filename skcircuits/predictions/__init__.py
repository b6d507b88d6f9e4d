"""Expected predictions of fitted scikit-learn models on rows with missing values."""

from skcircuits.predictions._expected_response import ExpectedResponse

__all__ = ["ExpectedResponse"]
