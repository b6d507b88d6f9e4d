"""Missing cells of rows, completed by one circuit or by several whose answers are averaged."""

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.estimators.shared._rows import completed_or_marginal
from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.numerics._random import draw_states

_WHICH_EXPERT = -1  # place of a draw in the stream of a row that no unit of a circuit has


def complete_rows(experts, circuit, X, strategy, streams, n_draws, is_categorical, bounds=None):
    """Complete incomplete rows, shape (n_draws, n, d) or (n, d) for a single answer.

    `experts`: pairs of a weight and a circuit; `circuit`: their mixture; `is_categorical`: mask of
    the columns whose cells are codes (integers may be states of a circuit, yet numbers); `bounds`:
    the least and the largest means of columns, (d,) each, or None.
    """
    if strategy == "mpe":

        def answer(rows):
            return circuit.mpe(rows, method="max_product")

    elif strategy == "sample":

        def answer(rows):
            return _drawn(experts, rows, streams, n_draws)

    else:

        def answer(rows):
            return _expected(experts, rows, is_categorical, bounds)

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
        chosen = draw_states(weights.T, uniforms)
        completed[draw] = np.stack([own[draw] for own in draws])[chosen, rows]
    return completed


def _expected(experts, X, is_categorical, bounds):
    """Conditional means of numbers, and the most probable of the categories."""
    answers, weights = _answers(experts, X, Circuit._mean_and_marginals)
    if bounds is not None:
        answers = [(np.clip(means, *bounds), tables) for means, tables in answers]
    completed = sum(w[:, None] * means for w, (means, _) in zip(weights, answers, strict=True))
    # The mean of codes means nothing: categories get the mode of their marginal
    for j in np.flatnonzero(is_categorical).tolist():
        missing = np.isnan(X[:, j])
        likely = sum(
            w[missing, None] * tables[j][missing]
            for w, (_, tables) in zip(weights, answers, strict=True)
        )
        completed[missing, j] = likely.argmax(axis=1)
    return completed


def _answers(experts, X, ask):
    """What each expert answers, and its weights (K, n): none where a row is impossible to it."""
    answers, weights = [], []
    for weight, circuit in experts:
        possible = np.ones(len(X), dtype=bool)
        try:
            answers.append(ask(circuit, X))
        except ZeroProbabilityError:
            if len(experts) == 1:
                raise
            possible = ~np.isneginf(circuit.log_prob(X))
            answers.append(ask(circuit, np.where(possible[:, None], X, np.nan)))
        weights.append(weight * possible)
    total = np.sum(weights, axis=0)
    if not total.all():
        raise ZeroProbabilityError("the observed cells of a row are impossible to all experts")
    return answers, np.stack(weights) / total
