"""Expected predictions of any model, over all completions if there are few, else over draws.

The completions of a row are drawn in rounds of independent lattices (`LatticeStreams`); the
differences of their means give the standard error. Rounds grow until the error is below the
tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.exceptions import must
from skcircuits.numerics._patterns import group_patterns
from skcircuits.numerics._random import LatticeStreams
from skcircuits.parallel import Parallel, delayed, memory_bound_chunks
from skcircuits.predictions._closed_forms import (
    BYTES_PER_CELL,
    Expectation,
    IncompleteRows,
    Response,
)
from skcircuits.predictions._components import normalized
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Draws would hardly need fewer answers of the model
MAX_COMPLETIONS = 512
# Independent lattices per round, whose means give the standard error
N_LATTICES = 8
FIRST_SIZE = 4  # points of a lattice in the first round
MIN_DRAWS = N_LATTICES * FIRST_SIZE
PRIOR_FREEDOM = 3  # degrees of freedom of independent draws, in addition to these
# Equal answers do not show that no other occurs: by Jeffreys' prior the probability of one that n
# draws have not shown has this variance, divided by n²
UNSEEN = 0.5
# Completed rows per task
MAX_PAIRS = 2**16


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
            # All rows of a pattern share the list of completions: it is made once
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
    masses = normalized(log_masses.reshape(n_states, len(rows)))
    answers = response(_completions(rows.cells, missing, states))
    answers = answers.reshape(n_states, len(rows), -1)
    # Around the known mean: E[f²] - E[f]² would cancel where f hardly varies
    mean = np.einsum("sn,snk->nk", masses, answers)
    return Expectation.exact(mean, np.einsum("sn,snk->nk", masses, (answers - mean) ** 2))


def _completions(cells: FloatArray, missing: IntArray, states: FloatArray) -> FloatArray:
    """Every row with every state, states slowest."""
    completed = np.repeat(cells[None], len(states), axis=0)
    completed[:, :, missing] = states[:, None]
    return completed.reshape(-1, cells.shape[1])


@dataclass(frozen=True)
class DrawBudget:
    """When to stop drawing."""

    max_draws: int  # per row
    tol: float  # standard error at which to stop, in units of `scale`
    scale: FloatArray | float  # (k,), unit of each output
    seed: int
    n_jobs: int | None = None  # the result is the same for any

    def sizes(self) -> Iterator[int]:
        """Points per lattice of the rounds that the budget allows, doubling."""
        left, size = self.max_draws, FIRST_SIZE
        while left >= N_LATTICES * FIRST_SIZE:
            while N_LATTICES * size > left:
                size //= 2
            yield size
            left -= N_LATTICES * size
            size *= 2


def expectation_by_draws(
    response: Response,
    circuit: Circuit,
    rows: IncompleteRows,
    budget: DrawBudget,
    *,
    with_variance: bool = False,
) -> Expectation:
    """Estimate mean and variance of a response given the observed cells of distinct rows.

    Draws of a row stop when the standard error of its mean is below the tolerance, and that of its
    standard deviation, too, if there shall be a variance.
    """
    moments: _RunningMoments | None = None
    rough = active = np.arange(len(rows))
    for number, size in enumerate(budget.sizes()):
        # A new shift of the lattices in each round: the points of two rounds must not coincide
        seed = budget.seed + number
        answers = _round(response, circuit, rows.take(active), size, seed, budget.n_jobs)
        if moments is None:
            moments = _RunningMoments(len(rows), answers.shape[-1], budget.scale)
            mean, error = np.empty_like(moments.mean), np.empty_like(moments.mean)
        moments.add(active, answers)
        # Means do not depend on whether deviations are asked for, which may take more draws
        mean[rough], error[rough] = moments.mean[rough], moments.standard_errors(rough)
        rough = rough[(error[rough] > budget.tol).any(axis=1)]
        # Rows that are accurate enough take no part in later, longer rounds
        active = rough
        if with_variance:
            deviations = moments.errors_of_deviations(np.arange(len(rows)))
            active = np.flatnonzero((np.maximum(error, deviations) > budget.tol).any(axis=1))
        if not len(active):
            break
    assert moments is not None
    if with_variance:
        error = np.maximum(error, deviations)
    return Expectation(mean, moments.variances(), error.max(axis=1))


class _RunningMoments:
    """Means and squares of rounds of different sizes, per row and output."""

    def __init__(self, n_rows: int, n_outputs: int, scale: FloatArray | float) -> None:
        shape = n_rows, n_outputs
        self.n_draws = np.zeros((n_rows, 1))
        self.mean = np.zeros(shape)
        self._scale = scale
        self._squares = np.zeros(shape)  # of differences from the mean
        # Variances of the mean and of the mean square, times n_draws squared
        self._spread, self._square_spread = np.zeros(shape), np.zeros(shape)

    def add(self, rows: IntArray, answers: FloatArray) -> None:
        """Add a round, shape (N_LATTICES, n_points, n, k)."""
        n_new = answers.shape[0] * answers.shape[1]
        lattices = answers.mean(axis=1)
        new_mean = lattices.mean(axis=0)
        lattice_squares = np.square(answers - new_mean).mean(axis=1)
        # Points of one lattice depend on each other: only its means are independent of other
        # lattices
        weight = n_new**2 / N_LATTICES
        self._spread[rows] += weight * lattices.var(axis=0, ddof=1)
        self._square_spread[rows] += weight * lattice_squares.var(axis=0, ddof=1)
        old = self.n_draws[rows]
        # Means and squares of two groups are joined without cancellation (Chan, Golub and LeVeque
        # 1983)
        step = new_mean - self.mean[rows]
        self.mean[rows] += step * (n_new / (old + n_new))
        new_squares = n_new * lattice_squares.mean(axis=0)
        self._squares[rows] += new_squares + step**2 * (old * n_new / (old + n_new))
        self.n_draws[rows] += n_new

    def standard_errors(self, rows: IntArray) -> FloatArray:
        """Standard errors of the means in units of the scale, shape (n, k).

        Few lattices may agree by chance: their spread is shrunk towards that of independent
        draws, which is known better and hardly ever smaller. An answer of another size, one unit
        of the scale away, may not have been drawn.
        """
        n_draws, unit = self.n_draws[rows], self._scale**2
        lattices = self._spread[rows] / unit / n_draws**2
        independent = self._squares[rows] / unit / (n_draws - 1.0) / n_draws
        freedom = N_LATTICES - 1
        total = (freedom * lattices + PRIOR_FREEDOM * independent) / (freedom + PRIOR_FREEDOM)
        return np.asarray(np.sqrt(total + UNSEEN / n_draws**2))

    def errors_of_deviations(self, rows: IntArray) -> FloatArray:
        """Standard errors of the standard deviations in units of the scale, shape (n, k)."""
        n_draws, unit = self.n_draws[rows], self._scale**2
        errors = np.sqrt(self._square_spread[rows] / unit**2 + UNSEEN) / n_draws
        variances = self._squares[rows] / unit / (n_draws - 1.0)
        # The slope of the root, at a variance that may be larger by its error
        return np.asarray(errors / (2.0 * np.sqrt(variances + errors)))

    def variances(self) -> FloatArray:
        """Variances of the response, shape (n, k)."""
        return self._squares / (self.n_draws - 1.0)


def _round(
    response: Response,
    circuit: Circuit,
    rows: IncompleteRows,
    size: int,
    seed: int,
    n_jobs: int | None,
) -> FloatArray:
    """Answers for one round of draws of all rows, shape (N_LATTICES, size, n, k)."""
    n_draws = N_LATTICES * size
    n_bytes = n_draws * rows.cells.shape[1] * BYTES_PER_CELL
    chunks = list(memory_bound_chunks(len(rows), n_bytes, at_most=max(1, MAX_PAIRS // n_draws)))
    # Streams belong to rows, not to chunks: results do not depend on the working memory
    streams = LatticeStreams(rows.cells, seed, size)
    parts = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(_answers)(response, circuit, rows.take(chunk), n_draws, streams.take(chunk))
        for chunk in chunks
    )
    answers = np.concatenate(parts, axis=1)
    return answers.reshape(N_LATTICES, size, *answers.shape[1:])


def _answers(
    response: Response,
    circuit: Circuit,
    rows: IncompleteRows,
    n_draws: int,
    streams: LatticeStreams,
) -> FloatArray:
    """Answers for draws of some rows, shape (n_draws, n, k)."""
    drawn = circuit.sample(n_draws, X=rows.evidence, random_state=streams)
    completed = rows.completed(drawn)
    answers = response(completed.reshape(-1, completed.shape[-1]))
    if np.isnan(answers).any():
        condition = "predict a number for all completed rows, but some have NaN"
        way_out = "Choose parameters or a model with which every row has a prediction."
        raise ValueError(must("estimator", condition, way_out, estimator=response.models[0]))
    return answers.reshape(n_draws, len(rows), -1)
