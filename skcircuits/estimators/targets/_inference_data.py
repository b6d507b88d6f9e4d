"""The boundary to ArviZ: draws in, draws with weights and their summaries out."""

from dataclasses import dataclass
from importlib import import_module

import numpy as np

from skcircuits.exceptions import must
from skcircuits.numerics._arrays import float_array
from skcircuits.targets.functions import import_extra


@dataclass(frozen=True)
class Draws:
    """Values of every site, each of shape (n, ...), chain after chain."""

    sites: dict[str, np.ndarray]
    shape: tuple[int, int]  # (n_chains, n_draws)
    dims: dict[str, tuple[str, ...]]  # without chain and draw
    coords: dict[str, np.ndarray]

    def names(self, site):
        """Name every number of a site, as ``theta[Choate]`` or ``theta[0, 1]``."""
        shape = self.sites[site].shape[1:]
        dims = self.dims.get(site, ())
        labels = [
            self.coords[dims[axis]] if axis < len(dims) and dims[axis] in self.coords else range(n)
            for axis, n in enumerate(shape)
        ]
        cells = np.ndindex(shape)
        return [
            f"{site}[{', '.join(str(labels[a][i]) for a, i in enumerate(cell))}]" if cell else site
            for cell in cells
        ]


def is_inference_data(X):
    """Tell whether something is ArviZ's: an InferenceData, a DataTree, or their posterior."""
    # By what it has, so that nothing of xarray is imported for others.
    if hasattr(X, "data_vars") and not hasattr(X, "children"):
        return {"chain", "draw"} <= set(X.sizes)
    return hasattr(X, "groups") and ("posterior" in X or hasattr(X, "posterior"))


def read_draws(X):
    """Read the posterior of inference data."""
    posterior = X if not hasattr(X, "groups") else X["posterior"]
    # A node of a tree has its variables in a dataset of its own.
    posterior = posterior.to_dataset() if hasattr(posterior, "to_dataset") else posterior
    sites, dims = {}, {}
    for name, variable in posterior.data_vars.items():
        if not {"chain", "draw"} <= set(variable.dims):
            continue
        ordered = variable.transpose("chain", "draw", ...)
        values = ordered.to_numpy()
        sites[str(name)] = values.reshape(-1, *values.shape[2:])
        dims[str(name)] = tuple(map(str, ordered.dims[2:]))
    if not sites:
        raise ValueError(
            must("posterior", "have variables over chain and draw", found=list(posterior.data_vars))
        )
    coords = {
        str(name): posterior.coords[name].to_numpy()
        for name in posterior.coords
        if name not in ("chain", "draw") and posterior.coords[name].dims == (name,)
    }
    return Draws(sites, (posterior.sizes["chain"], posterior.sizes["draw"]), dims, coords)


def rows_of_sites(target, draws):
    """Give draws in the coordinates of the target, (n, d)."""
    if hasattr(target, "from_sites"):
        return target.from_sites(draws.sites)
    # Other targets have the sites themselves as coordinates, in the order of the posterior.
    return np.column_stack([values.reshape(len(values), -1) for values in draws.sites.values()])


def draws_of_rows(target, rows, names):
    """Give rows as one chain of values by site name, or by column where there are no sites."""
    if hasattr(target, "to_sites"):
        sites = target.to_sites(rows)
    else:
        sites = dict(zip(names, rows.T))
    return Draws(sites, (1, len(rows)), {}, {})


def to_inference_data(draws, weights=None, **attributes):
    """Write draws as what the installed ArviZ has: InferenceData, or a DataTree."""
    try:
        arviz = import_module("arviz")
    except ImportError as error:
        raise import_extra("arviz", "arviz") from error
    groups = {"posterior": _by_chain(draws.sites, draws.shape)}
    if weights is not None:
        groups["sample_stats"] = _by_chain({"weight": weights}, draws.shape)
    options = {"coords": draws.coords, "dims": {k: list(v) for k, v in draws.dims.items() if v}}
    if hasattr(arviz, "InferenceData"):
        data = arviz.from_dict(**groups, **options)
    else:  # ArviZ 1 has one dictionary of groups
        data = arviz.from_dict(groups, **options)
    data["posterior"].attrs.update({"inference_library": "skcircuits", **attributes})
    return data


def _by_chain(sites, shape):
    return {name: values.reshape(*shape, *values.shape[1:]) for name, values in sites.items()}


def summarize(draws, weights, quantiles):
    """Make a dataframe with a row for every number of every site."""
    try:
        import pandas as pd
    except ImportError as error:
        raise import_extra("pandas", "arviz") from error
    quantiles = np.atleast_1d(float_array(quantiles, "quantiles"))
    if quantiles.ndim > 1 or not ((quantiles >= 0) & (quantiles <= 1)).all():
        raise ValueError(must("quantiles", "be numbers between 0 and 1", quantiles=quantiles))
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
