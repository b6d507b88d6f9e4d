"""Answers about incomplete rows: of impossible evidence, and averages of several densities."""

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.exceptions import ZeroProbabilityError, warn
from skcircuits.numerics._random import draw_states

_WHICH_EXPERT = -1  # place of a draw in the stream of a row that no unit of a circuit has
_N_TURNS = 6  # in which the cells of rows are hidden: few of them at once


def with_possible_evidence(answer, X, is_impossible, consequence):
    """Evaluate a query for encoded rows (n, d), impossible ones as if nothing was observed.

    ``answer(X)`` raises ZeroProbabilityError if it cannot answer for the rows that
    ``is_impossible(X)``, of shape (n,), marks; the warning about them names the `consequence`.
    Returns the result and the indices of these rows.
    """
    try:
        return answer(X), np.empty(0, dtype=np.int64)
    except ZeroProbabilityError:
        impossible = np.flatnonzero(is_impossible(X))
    relaxed = X.copy()
    relaxed[impossible] = np.nan
    found = answer(relaxed)
    if len(impossible):
        warn(
            # The cells and not the position: rows come in chunks
            f"The observed cells of {len(impossible)} rows have probability zero under the "
            f"density (for example {X[impossible[0]]}); {consequence}.",
        )
    return found, impossible


def completed_or_marginal(complete, X, circuit):
    """Complete encoded rows by ``complete(X)``, shape (..., n, d).

    Impossible rows are warned of and completed from the marginal distribution, observed cells kept.
    """

    def is_impossible(rows):
        return np.isneginf(circuit.log_prob(rows))

    consequence = "their missing cells are completed from the marginal distribution"
    completed, rows = with_possible_evidence(complete, X, is_impossible, consequence)
    if len(rows):
        observed = ~np.isnan(X[rows])
        completed[..., rows, :] = np.where(observed, X[rows], completed[..., rows, :])
    return completed


def complete_rows(
    experts,
    circuit,
    X,
    strategy,
    streams,
    n_draws,
    is_categorical,
    bounds=None,
    column_weights=None,
    self_masking=None,
):
    """Complete incomplete rows, shape (n_draws, n, d) or (n, d) for a single answer.

    `experts`: pairs of a weight and a circuit; `circuit`: their mixture; `is_categorical`: mask of
    the columns whose cells are codes (integers may be states of a circuit, yet numbers); `bounds`:
    the least and the largest means of columns, (d,) each, or None; `column_weights` (K, d): of the
    experts' answers to each column, None for the same in all; `self_masking`: how missing cells
    differ from what the others tell, or None.
    """
    if strategy == "mpe":

        def answer(rows):
            return circuit.mpe(rows, method="search")

    elif strategy == "sample":

        def answer(rows):
            return _drawn(experts, rows, streams, n_draws)

    else:

        def answer(rows):
            means, tables = averages(experts, rows, is_categorical, bounds, column_weights)
            if self_masking is not None:
                means = np.where(np.isnan(rows), self_masking.shifted(means), means)
                tables = self_masking.tilted(tables)
            return _with_modes(means, tables, rows)

    return completed_or_marginal(answer, X, circuit)


def _drawn(experts, X, streams, n_draws):
    """Draw which expert completes each row, and its completion."""
    if len(experts) == 1:
        return experts[0][1].sample(n_draws, X=X, random_state=streams)
    draws, weights = _answers(
        experts, X, lambda circuit, rows: circuit.sample(n_draws, X=rows, random_state=streams)
    )
    rows = np.arange(len(X))
    completed = np.empty_like(draws[0])
    for draw in range(n_draws):
        uniforms = streams.at(rows, draw, _WHICH_EXPERT).random(len(X))
        # Experts are drawn by their posterior given the observed cells
        chosen = draw_states(weights.T, uniforms)
        completed[draw] = np.stack([own[draw] for own in draws])[chosen, rows]
    return completed


def predict_in_turns(experts, X, is_categorical, bounds, column_weights, rng):
    """Means (n, d) and tables {column: (n, k)} of all cells, each given those of other turns."""
    turns = rng.integers(_N_TURNS, size=X.shape)
    means, tables = np.empty(X.shape), {}
    for turn in range(_N_TURNS):
        asked = turns == turn
        rows = np.where(asked, np.nan, X)
        found, found_tables = averages(experts, rows, is_categorical, bounds, column_weights)
        means[asked] = found[asked]
        for j, table in found_tables.items():
            tables.setdefault(j, np.zeros((len(X), table.shape[1])))
            tables[j][asked[:, j]] = table[asked[np.isnan(rows[:, j]), j]]
    return means, tables


def averages(experts, X, is_categorical, bounds, column_weights):
    """Averages of conditional means (n, d), and of probabilities of categories {column: (m, k)}.

    The latter for the m rows in which the column is missing: there may be many categories.
    """
    answers, weights = _answers(experts, X, Circuit._mean_and_marginals)
    if bounds is not None:
        answers = [(np.clip(means, *bounds), tables) for means, tables in answers]
    weights = np.repeat(weights[:, :, None], X.shape[1], axis=2)
    if column_weights is not None:
        own = (weights > 0.0) * column_weights[:, None]
        total = own.sum(axis=0)
        # Experts that do not count in a column still answer where all others are silent
        weights = np.where(total > 0.0, own / np.where(total > 0.0, total, 1.0), weights)
    means = sum(own * found for own, (found, _) in zip(weights, answers, strict=True))
    tables = {}
    for j in np.flatnonzero(is_categorical).tolist():
        missing = np.flatnonzero(np.isnan(X[:, j]))
        parts = zip(weights[:, missing, j, None], answers, strict=True)
        tables[j] = sum(own * found[j][missing] for own, (_, found) in parts)
    return means, tables


def _with_modes(means, tables, X):
    """Means, with the most probable category where one is missing in X."""
    for j, table in tables.items():
        # The mean of codes means nothing
        means[np.isnan(X[:, j]), j] = table.argmax(axis=1)
    return means


def _answers(experts, X, ask):
    """Result of each expert, and its weights (K, n), zero if the row is impossible under it."""
    answers, weights = [], []
    for weight, circuit in experts:
        possible = np.ones(len(X), dtype=bool)
        try:
            answers.append(ask(circuit, X))
        except ZeroProbabilityError:
            if len(experts) == 1:
                raise
            possible = ~np.isneginf(circuit.log_prob(X))
            # The answer for a row that is impossible to an expert has weight zero: any row will do
            answers.append(ask(circuit, np.where(possible[:, None], X, np.nan)))
        weights.append(weight * possible)
    total = np.sum(weights, axis=0)
    if not total.all():
        raise ZeroProbabilityError("the observed cells of a row are impossible to all experts")
    return answers, np.stack(weights) / total
