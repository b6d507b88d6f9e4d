"""Bounds of imputed values: given for all columns, for each, or by the observed range."""

import numpy as np

from skcircuits.exceptions import must

__all__ = ["imputation_bounds"]


def imputation_bounds(min_value, max_value, X, schema):
    """Lower and upper bounds of what is imputed per column, each of shape (d,).

    `X` are encoded training rows; categorical and unbounded columns have infinite bounds.

    Raises
    ------
    ValueError
        If a bound has another shape, or a lower one exceeds the upper one.
    """
    low = _bound("min_value", min_value, X, schema, -np.inf, np.fmin)
    high = _bound("max_value", max_value, X, schema, np.inf, np.fmax)
    crossed = np.flatnonzero(low > high)
    if len(crossed):
        raise ValueError(
            must(
                "min_value",
                f"not exceed max_value in column {schema.names[crossed[0]]!r}",
                min_value=float(low[crossed[0]]),
                max_value=float(high[crossed[0]]),
            )
        )
    return low, high


def _bound(name, value, X, schema, open_end, extreme):
    n_columns = X.shape[1]
    if value is None:
        return np.full(n_columns, open_end)
    if isinstance(value, str):
        bound = extreme.reduce(X, axis=0)
    else:
        bound = np.asarray(value, dtype=np.float64)
        if bound.shape not in ((), (n_columns,)):
            raise ValueError(
                must(name, f"be a number or have shape ({n_columns},)", shape=bound.shape)
            )
    return np.where(schema.is_categorical | np.isnan(bound), open_end, bound)
