"""Expected predictions of any model where few completions are possible: all of them."""

from __future__ import annotations

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.numerics._patterns import group_patterns
from skcircuits.parallel import memory_bound_chunks
from skcircuits.predictions._rows import Expectation, IncompleteRows, Response
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["MAX_COMPLETIONS", "expectation_by_enumeration", "has_few_completions"]

# Draws would hardly need fewer answers of the model
MAX_COMPLETIONS = 512
BYTES_PER_CELL = 8 * 6


def has_few_completions(circuit: Circuit, rows: IncompleteRows) -> BoolArray:
    """Tell which rows miss categories only, with few ways to complete them, shape (n,)."""
    n_columns = rows.cells.shape[1]
    log_states = np.array([np.log(circuit.cardinalities.get(j, np.inf)) for j in range(n_columns)])
    missing = np.isnan(rows.cells)
    with np.errstate(invalid="ignore"):
        total = np.where(missing, log_states, 0.0).sum(axis=1)
    return np.asarray(total <= np.log(MAX_COMPLETIONS) + 1e-9)


def expectation_by_enumeration(
    response: Response, circuit: Circuit, rows: IncompleteRows
) -> Expectation:
    """Sum a response over all completions of each row, weighted by their probabilities."""
    parts: list[tuple[IntArray, Expectation]] = []
    for group in group_patterns(np.isnan(rows.cells)):
        for number, missing in enumerate(group.missing):
            own = group.rows[group.pattern == number]
            sizes = [circuit.cardinalities[int(j)] for j in missing]
            cells = np.array(list(np.ndindex(*sizes)), dtype=np.float64)
            n_bytes = len(cells) * rows.cells.shape[1] * BYTES_PER_CELL
            for chunk in memory_bound_chunks(len(own), n_bytes):
                part = rows.take(own[chunk])
                parts.append((own[chunk], _of_pattern(response, circuit, part, missing, cells)))
    return Expectation.put_together(len(rows), parts)


def _of_pattern(
    response: Response,
    circuit: Circuit,
    rows: IncompleteRows,
    missing: IntArray,
    states: FloatArray,
) -> Expectation:
    """Expectation over the states of the columns that are missing in all these rows."""
    n_states = len(states)
    log_masses = circuit.log_prob(_completions(rows.evidence, missing, states))
    log_masses = log_masses.reshape(n_states, len(rows))
    peaks = log_masses.max(axis=0)
    if np.isneginf(peaks).any():
        raise ZeroProbabilityError("The observed values of a row have probability zero.")
    masses = np.exp(log_masses - peaks)
    masses /= masses.sum(axis=0)
    answers = response(_completions(rows.cells, missing, states))
    answers = answers.reshape(n_states, len(rows), -1)
    mean = np.einsum("sn,snk->nk", masses, answers)
    return Expectation.exact(mean, np.einsum("sn,snk->nk", masses, (answers - mean) ** 2))


def _completions(cells: FloatArray, missing: IntArray, states: FloatArray) -> FloatArray:
    """Every row with every state, states slowest."""
    completed = np.repeat(cells[None], len(states), axis=0)
    completed[:, :, missing] = states[:, None]
    return completed.reshape(-1, cells.shape[1])
