"""What weighted samples stand for: complete rows, discrepancies, draws of equal weight."""

import dataclasses
from collections.abc import Mapping
from numbers import Real

import numpy as np

from skcircuits.exceptions import ZeroProbabilityError, must
from skcircuits.numerics._arrays import float_array
from skcircuits.stein import stein_discrepancy
from skcircuits.stein._targets import is_continuous, log_probabilities, state_counts
from skcircuits.stein.gram import distinct_gram

# Completions of a row that are enumerated.
_MAX_COMPLETIONS = 4096


def possible_rows(target, samples):
    """Find the samples that the target allows: no other should get any weight."""
    if is_continuous(target):
        return np.arange(len(samples))
    possible = np.flatnonzero(~np.isneginf(log_probabilities(target, samples)))
    if not len(possible):
        raise ZeroProbabilityError(
            must(
                "samples",
                "have positive probability under the target, at least one of them",
                "soften() of a graphical model makes every state possible.",
                n_samples=len(samples),
            ),
            range(len(samples)),
        )
    return possible


def complete_rows(target, samples, weights, *, max_rows=None):
    """List complete rows with the weight each stands for.

    All completions of a row with missing values, or draws of them, the same for equal arguments,
    where there are more than `max_rows` in all.
    """
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
        log_prob = target.log_prob_unnormalized(completed)
        # p(hidden | observed): the states of the row are common to all completions.
        probability = np.exp(log_prob - log_prob.max())
        rows.append(completed)
        probabilities.append(weight * probability / probability.sum())
    return np.concatenate(rows), np.concatenate(probabilities)


def function_values(f, rows):
    """Evaluate a function of rows, (m, d), and check that it gives one value or array for each."""
    if not callable(f):
        raise TypeError(must("f", "be a function of rows", f=f))
    values = float_array(f(rows), "values of f")
    if values.shape[:1] != rows.shape[:1]:
        wanted = f"give one value or array for each of {len(rows)} rows"
        raise ValueError(must("f", wanted, shape=values.shape))
    return values


def refuse_missing(samples, estimator):
    """Give samples back if no cell is missing."""
    if np.isnan(samples).any():
        raise ValueError(
            must(
                "Samples",
                "be complete, but input X contains NaN",
                "Use collapse=[...] to sum variables out, or impute first.",
                estimator=type(estimator).__name__,
            )
        )
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
        raise ValueError(
            must(
                "completions of a collapsed sample",
                f"be at most {_MAX_COMPLETIONS}",
                "marginals() needs none; draw completions with target_.sample(n, X=samples_).",
                n_states=n_states,
            )
        )
    completed = np.tile(row, (n_states, 1))
    completed[:, hidden] = np.indices(shape).reshape(len(hidden), n_states).T
    return completed


# Completions of all samples that are listed or drawn, and fewest draws of one sample.
MAX_ROWS, MIN_DRAWS = 4000, 2


def collapsed_discrepancy(target, kernel, samples, weights, n_jobs=None):
    """Squared Stein discrepancy of a mixture of exact conditional distributions.

    Where there are too many completions it is estimated, without bias, from draws of them.
    """
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
    # A draw paired with itself says nothing of two draws from the same sample: leave it out.
    own = which.reshape(len(samples), n_draws)
    blocks = K[own[:, :, None], own[:, None, :]]
    within = blocks.sum(axis=(1, 2)) / n_draws**2
    pairs = blocks.sum(axis=(1, 2)) - np.trace(blocks, axis1=1, axis2=2)
    without = pairs / (n_draws * (n_draws - 1))
    return float(totals @ K @ totals + weights**2 @ (without - within))


RESAMPLING_METHODS = ("systematic", "thinning", "regularized_thinning")


def systematic_rows(weights, n_samples, rng):
    """Draw rows by their weights with one random number, ascending.

    Every row comes up ``n_samples * weight`` times, rounded up or down: draws on a regular grid
    vary less than independent ones.
    """
    points = (rng.random() + np.arange(n_samples)) / n_samples
    # Rounding may leave the sum just below the last point.
    rows = np.searchsorted(np.cumsum(weights), points, side="right")
    return np.minimum(rows, np.flatnonzero(weights)[-1])


def check_method(method):
    """Refuse what is no method of resampling."""
    if not isinstance(method, str) or method not in RESAMPLING_METHODS:
        raise ValueError(must("method", f"be one of {RESAMPLING_METHODS}", method=method))


def align_labels(schema, target, state_names=None):
    """Give the categorical columns the states of the target as categories.

    Labels seen in a table say neither how many states there are nor in which order the
    target counts them: a column of "yes" alone would become state 0 of ("no", "yes").
    """
    _check_column_order(schema.names, getattr(target, "variable_names", None))
    if not schema.is_categorical.any():
        return schema
    if is_continuous(target):
        names = [column.name for column in schema.columns if column.categories is not None]
        raise ValueError(
            must("columns of a continuous target", "be numeric", "Drop the labels.", labels=names)
        )
    counts = state_counts(target, len(schema.columns))
    columns = list(schema.columns)
    for j, column in enumerate(schema.columns):
        # Circuits may leave columns out; nothing is asked about those.
        known = not isinstance(target.cardinalities, Mapping) or j in target.cardinalities
        if column.categories is not None and known:
            states = _as_states(column, int(counts[j]), state_names[j] if state_names else None)
            columns[j] = dataclasses.replace(column, categories=states)
    return dataclasses.replace(schema, columns=tuple(columns))


def _check_column_order(columns, variables):
    if variables is None or list(columns) == list(variables):
        return
    if sorted(map(str, columns)) == sorted(variables):
        raise ValueError(
            must(
                "columns",
                "stand in the order of the target's variables",
                "Pass X[list(target.variable_names)].",
                columns=list(columns),
            )
        )


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
    raise ValueError(
        must(
            f"labels of column {column.name!r}",
            f"{expected}, or numbers of states below {n_states}",
            "A pandas Categorical tells labels that no sample has.",
            labels=labels,
        )
    )


def _as_array(labels):
    array = np.array(labels)
    return array if array.dtype.kind in "iufb" else np.array(labels, dtype=object)
