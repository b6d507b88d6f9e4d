"""Weighted samples as complete rows and as draws of ArviZ: discrepancies and summaries."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from numbers import Real

import numpy as np
from scipy.special import softmax

from skcircuits.exceptions import ZeroProbabilityError, invalid, must, needs_extra
from skcircuits.graphical.inference._exact_inference import read_rows
from skcircuits.numerics._arrays import float_array, integers
from skcircuits.stein import stein_discrepancy
from skcircuits.stein._targets import is_continuous, log_probabilities, state_counts
from skcircuits.stein.gram import distinct_gram

# Completions of a row that are enumerated.
_MAX_COMPLETIONS = 4096


def possible_rows(target, samples):
    """Find the samples of positive probability under the target; all others have weight zero."""
    if not hasattr(target, "log_prob_unnormalized"):
        return np.arange(len(samples))
    # Circuits have names for their columns, and other values are impossible
    if not is_continuous(target) and not isinstance(target.cardinalities, Mapping):
        counts = integers(target.cardinalities, "cardinalities of the target")
        if min(counts, default=0) > 0:  # else refused by name, later
            read_rows(samples, np.array(counts))
    possible = np.flatnonzero(~np.isneginf(log_probabilities(target, samples)))
    if not len(possible):
        condition = "have positive probability under the target, at least one of them"
        way_out = "Draw others, or use soften() of a graphical model, which makes all possible."
        raise ZeroProbabilityError(
            must("samples", condition, way_out, n_samples=len(samples)), range(len(samples))
        )
    return possible


def complete_rows(target, samples, weights, *, max_rows=None):
    """All completions of rows with their weights, or draws where there are over `max_rows`."""
    if not np.isnan(samples).any():
        return samples, weights
    rows, probabilities = [], []
    used = weights != 0
    if max_rows is not None and count_completions(target, samples[used]) > max_rows:
        n_draws = max(1, max_rows // int(used.sum()))
        drawn = target.sample(n_draws, X=samples[used], random_state=0)
        return drawn.reshape(-1, samples.shape[1]), np.tile(weights[used] / n_draws, n_draws)
    for row, weight in zip(samples[used], weights[used]):
        completed = _enumerate_states(row, target.cardinalities)
        log_prob = log_probabilities(target, completed)
        # p(hidden | observed): the states of the row are common to all completions.
        rows.append(completed)
        probabilities.append(weight * softmax(log_prob))
    return np.concatenate(rows), np.concatenate(probabilities)


def function_values(f, rows):
    """Evaluate a function of rows, (m, d), and check that it gives one value or array for each."""
    if not callable(f):
        raise TypeError(must("f", "be a function of rows", f=f))
    values = float_array(f(rows), "values of f")
    if values.shape[:1] != rows.shape[:1]:
        wanted = f"give one value or array for each of {len(rows)} rows"
        raise invalid("f", wanted, shape=values.shape)
    return values


def refuse_missing(samples, estimator):
    """Give samples back if no cell is missing."""
    if np.isnan(samples).any():
        condition = "be complete, but input X contains NaN"
        way_out = "Use collapse=[...] to sum variables out, or impute first."
        raise invalid("Samples", condition, way_out, estimator=type(estimator).__name__)
    return samples


def count_completions(target, samples):
    """Give the number of completions of all samples."""
    log_counts = np.isnan(samples) @ np.log(np.asarray(target.cardinalities, dtype=np.float64))
    return float(np.exp(np.minimum(log_counts, 100.0)).sum())


def _enumerate_states(row, cardinalities):
    """List the completions of a row."""
    hidden = np.isnan(row).nonzero()[0]
    shape = tuple(int(k) for k in cardinalities[hidden])
    n_states = int(np.prod(shape, dtype=float))
    if n_states > _MAX_COMPLETIONS:
        condition = f"be at most {_MAX_COMPLETIONS}"
        way_out = (
            "Use marginals(), which needs no completions, or draw completions with "
            "target_.sample(n, X=samples_)."
        )
        raise invalid("completions of a collapsed sample", condition, way_out, n_states=n_states)
    completed = np.tile(row, (n_states, 1))
    completed[:, hidden] = np.indices(shape).reshape(len(hidden), n_states).T
    return completed


# Completions of all samples that are listed or drawn, and fewest draws of one sample.
MAX_ROWS, MIN_DRAWS = 4000, 2


def collapsed_discrepancy(target, kernel, samples, weights, n_jobs=None):
    """Squared Stein discrepancy of a mixture of exact conditionals, estimated by draws if large."""
    used = weights != 0
    samples, weights = samples[used], weights[used]
    if count_completions(target, samples) <= MAX_ROWS:
        rows, probabilities = complete_rows(target, samples, weights)
        return stein_discrepancy(rows, target, kernel, probabilities, n_jobs=n_jobs)
    n_draws = max(MIN_DRAWS, MAX_ROWS // len(samples))
    # The same draws for equal arguments, so that settings are compared on equal terms.
    drawn = target.sample(n_draws, X=samples, random_state=0).transpose(1, 0, 2)
    K, which = distinct_gram(drawn.reshape(-1, samples.shape[1]), target, kernel, n_jobs=n_jobs)
    totals = np.bincount(which, np.repeat(weights / n_draws, n_draws), minlength=len(K))
    # Pairs of a draw with itself are omitted: they do not estimate pairs of independent draws.
    own = which.reshape(len(samples), n_draws)
    blocks = K[own[:, :, None], own[:, None, :]]
    within = blocks.sum(axis=(1, 2)) / n_draws**2
    pairs = blocks.sum(axis=(1, 2)) - np.trace(blocks, axis1=1, axis2=2)
    without = pairs / (n_draws * (n_draws - 1))
    return float(totals @ K @ totals + weights**2 @ (without - within))


def systematic_rows(weights, n_samples, rng):
    """Draw rows by their weights, each ``n_samples * weight`` times up to rounding, ascending."""
    # Draws on a regular grid, which one random number shifts, vary less than independent ones
    points = (rng.random() + np.arange(n_samples)) / n_samples
    # Rounding may leave the sum just below the last point.
    rows = np.searchsorted(np.cumsum(weights), points, side="right")
    return np.minimum(rows, np.flatnonzero(weights)[-1])


def align_labels(schema, target, state_names=None):
    """Give the categorical columns the states of the target as categories."""
    # The labels in a table determine neither the number of states nor their order in the target: a
    # column of "yes" alone would become state 0 of ("no", "yes")
    _check_column_order(schema.names, getattr(target, "variable_names", None))
    if not schema.is_categorical.any():
        return schema
    if is_continuous(target):
        names = [column.name for column in schema.columns if column.categories is not None]
        raise invalid(
            "columns of a continuous target", "be numeric", "Drop the labels.", labels=names
        )
    counts = state_counts(target, len(schema.columns))
    columns = list(schema.columns)
    for j, column in enumerate(schema.columns):
        # Circuits may omit columns, which are not used.
        known = not isinstance(target.cardinalities, Mapping) or j in target.cardinalities
        if column.categories is not None and known:
            states = _as_states(column, int(counts[j]), state_names[j] if state_names else None)
            columns[j] = dataclasses.replace(column, categories=states)
    return dataclasses.replace(schema, columns=tuple(columns))


def _check_column_order(columns, variables):
    if variables is None or list(columns) == list(variables):
        return
    if sorted(map(str, columns)) == sorted(variables):
        condition = "be in the order of the target's variables"
        way_out = "Pass X[list(target.variable_names)]."
        raise invalid("columns", condition, way_out, columns=list(columns))


def _as_states(column, n_states, names):
    """List the label of every state: by name, by number, or in the order of a full set."""
    labels = column.categories.tolist()
    if names is not None and {str(label) for label in labels} <= {str(name) for name in names}:
        spelled = {str(label): label for label in labels}
        return _as_array([spelled.get(str(name), name) for name in names])
    if all(isinstance(label, Real) and label in range(n_states) for label in labels):
        numbered = {int(label): label for label in labels}
        return _as_array([numbered.get(state, state) for state in range(n_states)])
    if names is None and len(labels) == n_states and isinstance(labels[0], str):
        return column.categories
    expected = f"be its states {list(names)}" if names is not None else f"be {n_states} names"
    condition = f"{expected}, or numbers of states below {n_states}"
    way_out = "Use a pandas Categorical to declare categories that no sample has."
    raise invalid(f"labels of column {column.name!r}", condition, way_out, labels=labels)


def _as_array(labels):
    array = np.array(labels)
    return array if array.dtype.kind in "iufb" else np.array(labels, dtype=object)


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
        raise invalid(
            "posterior", "have variables over chain and draw", found=list(posterior.data_vars)
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
    """Write draws as InferenceData or DataTree, depending on the version of ArviZ."""
    with needs_extra("arviz", "arviz"):
        arviz = import_module("arviz")
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
    with needs_extra("pandas", "arviz"):
        import pandas as pd
    quantiles = np.atleast_1d(float_array(quantiles, "quantiles"))
    if quantiles.ndim > 1 or not ((quantiles >= 0) & (quantiles <= 1)).all():
        raise invalid("quantiles", "be numbers between 0 and 1", quantiles=quantiles)
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
