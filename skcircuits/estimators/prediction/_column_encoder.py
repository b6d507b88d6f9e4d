"""First step of the models that stand in where a user gives none."""

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from skcircuits.tabular._columns import to_days
from skcircuits.tabular._frames import read_columns


def column_encoder(columns):
    """Make the first step of a default model: standardised numbers and dates, one-hot categories.

    ``columns``: those of the schema; none before a table has been read.
    """
    dates = [j for j, column in enumerate(columns) if column.has_dates]
    categorical = [j for j, column in enumerate(columns) if column.categories is not None]
    numeric = [j for j in range(len(columns)) if j not in {*dates, *categorical}]
    one_hot = OneHotEncoder(handle_unknown="ignore")
    steps = [("numeric", StandardScaler(), numeric), ("categorical", one_hot, categorical)]
    if dates:  # a function has no closed form: only where it is needed
        days = make_pipeline(FunctionTransformer(_days), StandardScaler())
        steps.append(("dates", days, dates))
    return ColumnTransformer(steps)


def _days(dates):
    """Read the dates of a frame as days: arrays of dates and numbers are none of numbers."""
    return np.stack([to_days(raw.values) for raw in read_columns(dates)], axis=1)
