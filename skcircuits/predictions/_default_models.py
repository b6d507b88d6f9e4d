"""Models to expect predictions of, where the user names none."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVR

from skcircuits.protocols import BoolArray

__all__ = ["default_classifier", "default_regressor"]

MAX_LANDMARKS = 300


def default_regressor(is_categorical: BoolArray, *, several_targets: bool = False) -> Any:
    """Make a support vector regression of the standardised target on standardised columns."""
    model = make_pipeline(_encoder(is_categorical), SVR(C=3.0, epsilon=0.05))
    if several_targets:
        model = MultiOutputRegressor(model)
    return TransformedTargetRegressor(model, transformer=StandardScaler())


def default_classifier(
    is_categorical: BoolArray, n_rows: int, *, several_targets: bool = False
) -> Any:
    """Make a kernel logistic regression on landmarks: its probabilities need no calibration."""
    landmarks = Nystroem(n_components=min(MAX_LANDMARKS, n_rows), random_state=0)
    model = make_pipeline(
        _encoder(is_categorical), landmarks, LogisticRegression(C=10.0, max_iter=1000)
    )
    return MultiOutputClassifier(model) if several_targets else model


def _encoder(is_categorical: BoolArray) -> ColumnTransformer:
    """Standardise numbers, encode categories."""
    return ColumnTransformer(
        [
            ("numeric", StandardScaler(), np.flatnonzero(~is_categorical)),
            (
                "categorical",
                OneHotEncoder(handle_unknown="ignore"),
                np.flatnonzero(is_categorical),
            ),
        ]
    )
