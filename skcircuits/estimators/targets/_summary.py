"""Weighted means, standard deviations and quantiles of sites, beside the raw ones."""

import numpy as np

from skcircuits.targets._target import import_extra

__all__ = ["summarize"]


def summarize(draws, weights, quantiles):
    """Make a dataframe with a row for every number of every site."""
    try:
        import pandas as pd
    except ImportError as error:
        raise import_extra("pandas", "arviz") from error
    raw = np.full(len(weights), 1.0 / len(weights))
    rows = {}
    for site, values in draws.sites.items():
        flat = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
        corrected, plain = _moments(flat, weights, quantiles), _moments(flat, raw, quantiles)
        for j, name in enumerate(draws.names(site)):
            rows[name] = [*corrected[:, j], *plain[:, j]]
    columns = ["mean", "sd", *(f"{100 * q:g}%" for q in quantiles)]
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=[*columns, *(f"raw_{column}" for column in columns)]
    )


def _moments(values, weights, quantiles):
    """Mean, standard deviation and quantiles of columns, (2 + n_quantiles, n_columns)."""
    mean = weights @ values
    sd = np.sqrt(weights @ (values - mean) ** 2)
    # The only definition of quantiles that numpy has for weights.
    points = np.quantile(values, quantiles, axis=0, weights=weights, method="inverted_cdf")
    return np.vstack([mean, sd, points])
