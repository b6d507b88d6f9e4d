"""Expected responses of models, by closed forms, enumeration or draws; values of measurements.

All completions of a row are enumerated if there are few. Else they are drawn in rounds of
independent lattices (`LatticeStreams`); the differences of their means give the standard error.
Rounds grow until the error is below the tolerance.

The value of measuring a missing cell is the expected reduction of the uncertainty about a
prediction. Uncertainty is measured by a concave function of the expected response: minus its square
(the variance, up to a term that no cell can change) or its entropy. Knowing a cell lowers it on
average by the gap of Jensen's inequality, E[φ(E[f | x_o, x_j])] - φ(E[f | x_o]) with φ convex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from sklearn.exceptions import NotFittedError

from skcircuits.circuits import Circuit
from skcircuits.circuits._policy import CLOSED_FORM_BYTES, MEASURING_TERMS
from skcircuits.exceptions import invalid, warn
from skcircuits.numerics._patterns import group_patterns, unique_rows
from skcircuits.numerics._random import LatticeStreams
from skcircuits.parallel import Parallel, delayed, memory_bound_chunks
from skcircuits.predictions._closed_forms import (
    BYTES_PER_CELL,
    ClosedForm,
    Expectation,
    IncompleteRows,
    NoClosedFormError,
    Problem,
    Response,
    closed_form,
    count_terms,
    last_step,
)
from skcircuits.predictions._components import GaussianComponents, normalized
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Rows that a closed form takes at once, equal patterns of missing cells only once
MIN_ROWS, MAX_ROWS = 2**10, 2**14
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
SPACING = 0.35  # in standard deviations: errors of mixtures of 18 components are below 1e-8
NEGLIGIBLE = 1e-20
REACH = 9.5  # standard deviations, beyond which the density is negligible
# Draws per row, and bins of a number, if there is no exact method
N_DRAWS = 1024
N_BINS = 16
SMALLEST_PROBABILITY = 1e-300

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
DRAWN = (
    "The rows of the estimator had missing values, which were drawn. It must answer for all values "
    "that are plausible given the others, also outside the range of the training rows."
)
# Completed rows per task
MAX_PAIRS = 2**16


@contextmanager
def noting_draws() -> Iterator[None]:
    """Add to errors of models that they were asked for draws, which users have not passed."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, NotFittedError):
            error.add_note(DRAWN)
        raise


def find_closed_form(problem: Problem) -> tuple[ClosedForm | None, str]:
    """Give the closed form of fitted models, or the reason why there is none."""
    try:
        return closed_form(last_step(problem.response.models[0]), problem), ""
    except NoClosedFormError as reason:
        return None, str(reason)


@dataclass(frozen=True)
class ExpectedResponse:
    """E[f(x) | observed cells] of fitted models f."""

    response: Response
    circuit: Circuit
    budget: DrawBudget  # for rows that have to be drawn
    closed_form: ClosedForm | None = None  # an exact method, if there is one
    draws_only: bool = False  # whether to draw all rows, even if there are exact methods
    max_terms: float = np.inf  # of the sum that gives a row; those with more are drawn

    def __call__(self, rows: IncompleteRows, *, with_variance: bool = False) -> Expectation:
        """Compute the moments given the observed cells; equal rows are answered once."""
        # Evidence may hold fewer cells than the row: both decide which rows are equal
        first, inverse = unique_rows(np.hstack([rows.cells, rows.evidence]))
        distinct = rows.take(first)
        parts = []
        n_left = len(distinct)
        for chosen, compute in self._ways(distinct, with_variance):
            own = np.flatnonzero(chosen)
            if len(own):
                found = compute(distinct.take(own))
                parts.append((own, found if with_variance else replace(found, variance=None)))
            n_left -= len(own)
            if not n_left:
                break
        return Expectation.put_together(len(distinct), parts).take(inverse)

    def is_exact(self, rows: IncompleteRows) -> BoolArray:
        """Tell which rows have an exact mean, shape (n,)."""
        if self.draws_only:
            return np.zeros(len(rows), dtype=bool)
        exact = self.has_few_completions(rows)
        if self.closed_form is not None:
            exact |= self.closed_form.covers(rows, with_variance=False)
        return exact

    def _ways(
        self, rows: IncompleteRows, with_variance: bool
    ) -> Iterator[tuple[BoolArray, Callable[[IncompleteRows], Expectation]]]:
        """Yield the rows of each method, and the method."""
        left: BoolArray = np.asarray(np.isnan(rows.cells).any(axis=1))
        yield ~left, self._of_complete_rows
        # From exact and fast to estimated and slow: each way takes the rows that are left
        form = self.closed_form
        if form is not None and not self.draws_only:
            chosen = left & self._has_short_sum(rows, with_variance)
            yield chosen, partial(_in_chunks, form, with_variance=with_variance)
            left &= ~chosen
        if not self.draws_only:
            chosen = left & self.has_few_completions(rows)
            yield chosen, self.by_enumeration
            left &= ~chosen
        if form is not None and not self.draws_only and with_variance:
            chosen = left & self._has_short_sum(rows, False)
            # Means may have a closed form where variances have none
            yield chosen, partial(self._with_drawn_variance, form)
            left &= ~chosen
        yield left, partial(self.by_draws, with_variance=with_variance)

    def _has_short_sum(self, rows: IncompleteRows, with_variance: bool) -> BoolArray:
        """Tell which rows the closed form covers by few terms, shape (n,)."""
        assert self.closed_form is not None
        n_terms = count_terms(self.closed_form, rows, with_variance=with_variance)
        return np.isfinite(n_terms) & (n_terms <= self.max_terms)

    def _of_complete_rows(self, rows: IncompleteRows) -> Expectation:
        """Predictions of the models, with zero variance."""
        answers = self.response(rows.cells)
        return Expectation.exact(answers, np.zeros_like(answers))

    def _with_drawn_variance(self, form: ClosedForm, rows: IncompleteRows) -> Expectation:
        """Draw the variance only: the mean is the one that is given without it."""
        mean = _in_chunks(form, rows, with_variance=False)
        drawn = self.by_draws(rows, with_variance=True)
        return replace(drawn, mean=mean.mean)

    def has_few_completions(self, rows: IncompleteRows) -> BoolArray:
        """Tell which rows miss categories only, with few ways to complete them, shape (n,)."""
        n_columns = rows.cells.shape[1]
        log_states = np.array(
            [np.log(self.circuit.cardinalities.get(j, np.inf)) for j in range(n_columns)]
        )
        missing = np.isnan(rows.cells)
        with np.errstate(invalid="ignore"):
            total = np.where(missing, log_states, 0.0).sum(axis=1)
        return np.asarray(total <= np.log(MAX_COMPLETIONS) + 1e-9)

    def by_enumeration(self, rows: IncompleteRows) -> Expectation:
        """Sum over all completions of each row, weighted by their probabilities."""
        parts: list[tuple[IntArray, Expectation]] = []
        for group in group_patterns(np.isnan(rows.cells)):
            for number, missing in enumerate(group.missing):
                own = group.rows[group.pattern == number]
                sizes = [self.circuit.cardinalities[int(j)] for j in missing]
                # All rows of a pattern share the list of completions: it is made once
                cells = np.array(list(np.ndindex(*sizes)), dtype=np.float64)
                n_bytes = len(cells) * rows.cells.shape[1] * BYTES_PER_CELL
                for chunk in memory_bound_chunks(len(own), n_bytes):
                    part = rows.take(own[chunk])
                    parts.append((own[chunk], self._of_pattern(part, missing, cells)))
        return Expectation.put_together(len(rows), parts)

    def _of_pattern(
        self, rows: IncompleteRows, missing: IntArray, states: FloatArray
    ) -> Expectation:
        """Expectation over the states of the columns that are missing in all these rows."""
        n_states = len(states)
        log_masses = self.circuit.log_prob(_completions(rows.evidence, missing, states))
        masses = normalized(log_masses.reshape(n_states, len(rows)))
        answers = self.response(_completions(rows.cells, missing, states))
        answers = answers.reshape(n_states, len(rows), -1)
        # Around the known mean: E[f²] - E[f]² would cancel where f hardly varies
        mean = np.einsum("sn,snk->nk", masses, answers)
        return Expectation.exact(mean, np.einsum("sn,snk->nk", masses, (answers - mean) ** 2))

    def by_draws(self, rows: IncompleteRows, *, with_variance: bool = False) -> Expectation:
        """Moments of distinct rows, by draws until errors are below `tol`."""
        budget = self.budget
        moments: _RunningMoments | None = None
        rough = active = np.arange(len(rows))
        for number, size in enumerate(budget.sizes()):
            # A new shift of the lattices in each round: the points of two rounds must not coincide
            seed = budget.seed + number
            answers = self._round(rows.take(active), size, seed)
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

    def _round(self, rows: IncompleteRows, size: int, seed: int) -> FloatArray:
        """Answers for one round of draws of all rows, shape (N_LATTICES, size, n, k)."""
        n_draws = N_LATTICES * size
        n_bytes = n_draws * rows.cells.shape[1] * BYTES_PER_CELL
        chunks = list(memory_bound_chunks(len(rows), n_bytes, at_most=max(1, MAX_PAIRS // n_draws)))
        # Streams belong to rows, not to chunks: results do not depend on the working memory
        streams = LatticeStreams(rows.cells, seed, size)
        parts = Parallel(n_jobs=self.budget.n_jobs, prefer="threads")(
            delayed(self._answers)(rows.take(chunk), n_draws, streams.take(chunk))
            for chunk in chunks
        )
        answers = np.concatenate(parts, axis=1)
        return answers.reshape(N_LATTICES, size, *answers.shape[1:])

    def _answers(self, rows: IncompleteRows, n_draws: int, streams: LatticeStreams) -> FloatArray:
        """Answers for draws of some rows, shape (n_draws, n, k)."""
        drawn = self.circuit.sample(n_draws, X=rows.evidence, random_state=streams)
        completed = rows.completed(drawn)
        with noting_draws():
            answers = self.response(completed.reshape(-1, completed.shape[-1]))
        if np.isnan(answers).any():
            condition = "predict a number for all completed rows, but some have NaN"
            way_out = (
                "Choose parameters or a model with which every row has a prediction, and for a "
                "transformed target an inverse that is defined for all numbers: those of power "
                "transformers may not be, the one of logarithms is (func=np.log, "
                "inverse_func=np.exp)."
            )
            raise invalid("estimator", condition, way_out, estimator=self.response.models[0])
        return answers.reshape(n_draws, len(rows), -1)


def _in_chunks(form: ClosedForm, rows: IncompleteRows, with_variance: bool) -> Expectation:
    """Evaluate a closed form on blocks of rows that fit into the working memory."""
    n_rows = CLOSED_FORM_BYTES // max(1, form.bytes_per_row)
    at_most = min(MAX_ROWS, max(MIN_ROWS, n_rows))
    parts = [
        (
            np.arange(chunk.start, chunk.stop),
            form.expectation(rows.take(chunk), with_variance=with_variance),
        )
        for chunk in memory_bound_chunks(len(rows), form.bytes_per_row, at_most=at_most)
    ]
    return Expectation.put_together(len(rows), parts)


@dataclass(frozen=True)
class Uncertainty:
    """A convex function φ of expected responses, summed over outputs; certainty is large."""

    is_entropy: bool

    def certainty(self, mean: FloatArray) -> FloatArray:
        """φ of responses, shape (..., k), summed over the outputs."""
        if self.is_entropy:
            mean = np.maximum(mean, SMALLEST_PROBABILITY)
            return np.asarray((mean * np.log(mean)).sum(axis=-1))
        return np.asarray(np.square(mean).sum(axis=-1))

    def slopes(self, mean: FloatArray) -> FloatArray:
        """Derivatives of φ by a response (k,)."""
        if self.is_entropy:
            return np.asarray(1.0 + np.log(np.maximum(mean, SMALLEST_PROBABILITY)))
        return 2.0 * mean

    def bias(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Bias of φ of an estimate of the mean, given the variance of the estimate."""
        half_curvature = 0.5 / np.maximum(mean, 1e-6) if self.is_entropy else 1.0
        return np.asarray((half_curvature * variance).sum(axis=-1))


VARIANCE, ENTROPY = Uncertainty(False), Uncertainty(True)


def value_of_measuring(
    expected: ExpectedResponse,
    rows: IncompleteRows,
    uncertainty: Uncertainty,
    seed: int,
    max_terms: float = MEASURING_TERMS,
) -> FloatArray:
    """Give by how much each missing cell would lower the uncertainty, shape (n, d).

    Rows whose expectations are sums of more than ``max_terms`` terms together are drawn.
    """
    # What is summed here has its own limit
    expected = replace(expected, max_terms=np.inf)
    # Equal rows have equal values, also where these are estimates
    first, inverse = unique_rows(np.hstack([rows.cells, rows.evidence]))
    rows = rows.take(first)
    result = np.zeros(rows.cells.shape)
    # One more observed cell never makes an expectation harder
    exact = expected.is_exact(rows)
    components = None
    try:
        components = GaussianComponents.of(expected.circuit)
    except NoClosedFormError:
        is_number = [j not in expected.circuit.cardinalities for j in range(rows.cells.shape[1])]
        exact &= ~np.isnan(rows.cells[:, is_number]).any(axis=1)
    is_long = np.zeros(len(rows), dtype=bool)
    if components is not None:
        is_long[exact] = _n_terms(expected, rows.take(exact), components) > max_terms
        exact &= ~is_long
    result[exact] = _by_integration(expected, rows.take(exact), components, uncertainty)
    n_bytes = N_DRAWS * rows.cells.shape[1] * 8 * 6
    drawn, errors = np.flatnonzero(~exact), np.zeros(rows.cells.shape)
    for chunk in memory_bound_chunks(len(drawn), n_bytes, at_most=64):
        own = drawn[chunk]
        result[own], errors[own] = _by_draws(expected, rows.take(own), uncertainty, seed)
    if is_long.any():
        warn(
            f"Values of measuring are estimates from {N_DRAWS} draws for {is_long[inverse].sum()} "
            f"of {len(inverse)} rows, with standard errors up to {errors[is_long].max():.2g}: sums "
            "over classes and components would be long. Set method='exact' to have them summed."
        )
    return np.maximum(result, 0.0)[inverse]


def _n_terms(
    expected: ExpectedResponse, rows: IncompleteRows, components: GaussianComponents
) -> FloatArray:
    """Number of terms of all expectations that the values of a row ask for, shape (n,)."""
    form = expected.closed_form
    result = np.zeros(len(rows))
    if form is None:
        return result
    # Others have few completions
    n_terms = count_terms(form, rows, with_variance=False)
    covered = np.flatnonzero(np.isfinite(n_terms))
    rows, n_terms = rows.take(covered), n_terms[covered]
    if not n_terms.any():
        return result
    n_values = np.zeros(len(rows))
    for j in range(rows.cells.shape[1]):
        missing = np.flatnonzero(np.isnan(rows.cells[:, j]))
        if j in expected.circuit.cardinalities:
            n_values[missing] += expected.circuit.cardinalities[j]
        elif len(missing):
            _, weights = _nodes(components, rows.evidence[missing], j)
            n_values[missing] += np.count_nonzero(weights, axis=1)
    result[covered] = n_values * n_terms
    return result


def _by_integration(
    expected: ExpectedResponse,
    rows: IncompleteRows,
    components: GaussianComponents | None,
    uncertainty: Uncertainty,
) -> FloatArray:
    """Integrate over each missing cell by quadrature per component, or over its states."""
    result = np.zeros(rows.cells.shape)
    if not len(rows):
        return result
    now = uncertainty.certainty(expected(rows).mean)
    cardinalities = expected.circuit.cardinalities
    marginals = expected.circuit.marginals(rows.evidence) if cardinalities else {}
    for j in range(rows.cells.shape[1]):
        missing = np.flatnonzero(np.isnan(rows.cells[:, j]))
        if not len(missing):
            continue
        if j in marginals:
            weights = marginals[j][missing]
            values = np.broadcast_to(np.arange(float(weights.shape[1])), weights.shape)
        else:
            assert components is not None
            values, weights = _nodes(components, rows.evidence[missing], j)
        for chunk in memory_bound_chunks(len(missing), 8 * values.shape[1] * 64):
            own, weights_of = missing[chunk], weights[chunk]
            # Impossible values have no expectation, and need none
            row, place = np.nonzero(weights_of)
            known = rows.take(own[row])
            known.cells[:, j] = known.evidence[:, j] = values[chunk][row, place]
            then = np.zeros(weights_of.shape)
            then[row, place] = uncertainty.certainty(expected(known).mean)
            result[own, j] = (weights_of * then).sum(axis=1) - now[own]
    return result


def _nodes(components: GaussianComponents, X: FloatArray, j: int) -> tuple[FloatArray, FloatArray]:
    """Values of a missing number and their weights given each row, shapes (n, K q).

    They are the Gauss-Hermite nodes of each component, or a grid for all of them where this has
    fewer points. Trapezoidal sums over normal densities converge exponentially, also where the
    expectation changes from one component to the next and is far from a polynomial.
    """
    slopes = (components.columns == j).astype(np.float64)[:, None]
    conditioned = components.conditioned(X)
    means = (conditioned.means @ slopes)[..., 0].T
    stds = np.sqrt(conditioned.projected_variances(slopes)[..., 0].T)
    fractions = conditioned.weights.T
    values = (means[..., None] + stds[..., None] * NODES).reshape(len(X), -1)
    weights = (fractions[..., None] * NODE_WEIGHTS).reshape(len(X), -1)
    is_met = fractions > NEGLIGIBLE
    starts = np.where(is_met, means - REACH * stds, np.inf).min(axis=1)
    ends = np.where(is_met, means + REACH * stds, -np.inf).max(axis=1)
    spacings = SPACING * np.where(is_met, stds, np.inf).min(axis=1)
    on_grid = np.flatnonzero(ends - starts < spacings * (weights.shape[1] - 1))
    if len(on_grid):
        n_points = int(((ends - starts)[on_grid] / spacings[on_grid]).max()) + 1
        grid = starts[on_grid, None] + spacings[on_grid, None] * np.arange(n_points)
        own = np.where(is_met, fractions, 0.0)[on_grid]
        masses = _mixture_densities(grid, means[on_grid], stds[on_grid], own)
        weights[on_grid] = 0.0
        values[on_grid, :n_points] = grid
        weights[on_grid, :n_points] = masses / masses.sum(axis=1, keepdims=True)
    # Values of negligible probability need no evaluations
    weights[weights < NEGLIGIBLE] = 0.0
    return values, weights


def _mixture_densities(
    points: FloatArray, means: FloatArray, stds: FloatArray, fractions: FloatArray
) -> FloatArray:
    """Densities (n, p) of points in n mixtures of normals (n, K), up to one factor."""
    densities = np.zeros(points.shape)
    # All components at once would take K times the memory
    for mean, std, fraction in zip(means.T, stds.T, fractions.T):
        own = np.flatnonzero(fraction)
        z = (points[own] - mean[own, None]) / std[own, None]
        densities[own] += (fraction[own] / std[own])[:, None] * np.exp(-0.5 * z**2)
    return densities


def _by_draws(
    expected: ExpectedResponse, rows: IncompleteRows, uncertainty: Uncertainty, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Group the same draws by the value of each cell; means per group are expectations.

    Standard errors are those of the linear parts of the estimates in independent draws.
    """
    # One lattice for all draws is bad for some seeds: errors are up to four times as large
    streams = LatticeStreams(rows.cells, seed, N_DRAWS // N_LATTICES)
    drawn = expected.circuit.sample(N_DRAWS, X=rows.evidence, random_state=streams)
    completed = rows.completed(drawn)
    answers = expected.response(completed.reshape(-1, completed.shape[-1]))
    answers = answers.reshape(N_DRAWS, len(rows), -1)
    result, errors = np.zeros((2, *rows.cells.shape))
    for i, j in np.argwhere(np.isnan(rows.cells)):
        now = _certainty_of(uncertainty, answers[:, i])
        parts = -_linear_parts(uncertainty, answers[:, i])
        is_discrete = int(j) in expected.circuit.cardinalities
        # Draws with (nearly) equal values of a cell are draws given that value: no new ones are
        # needed
        for own in _groups(completed[:, i, j], is_discrete):
            result[i, j] += len(own) * _certainty_of(uncertainty, answers[own, i]) / N_DRAWS
            parts[own] += _linear_parts(uncertainty, answers[own, i])
        result[i, j] -= now
        errors[i, j] = parts.std() / np.sqrt(N_DRAWS)
    return result, errors


def _linear_parts(uncertainty: Uncertainty, answers: FloatArray) -> FloatArray:
    """What each of the answers (n, k) adds to n times φ of their mean, to first order."""
    mean = answers.mean(axis=0)
    linear = (answers - mean) @ uncertainty.slopes(mean)
    return np.asarray(uncertainty.certainty(mean) + linear)


def _groups(values: FloatArray, is_discrete: bool) -> Iterator[IntArray]:
    """Yield the draws of each state, or of each bin of a number."""
    order = np.argsort(values, kind="stable")
    if is_discrete:
        yield from np.split(order, np.flatnonzero(np.diff(values[order])) + 1)
    else:
        yield from np.array_split(order, N_BINS)


def _certainty_of(uncertainty: Uncertainty, answers: FloatArray) -> float:
    """φ of the mean of answers (n, k), less its bias."""
    mean = answers.mean(axis=0)
    variance = answers.var(axis=0, ddof=min(1, len(answers) - 1)) / len(answers)
    return float(uncertainty.certainty(mean) - uncertainty.bias(mean, variance))


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

    @property
    def n_needed(self) -> float:
        """Draws after which an error of half a unit, the most of probabilities, is below `tol`
        where lattices agree, more than `max_draws` where these do not suffice.
        """
        fraction = PRIOR_FREEDOM / (PRIOR_FREEDOM + N_LATTICES - 1)
        return max(MIN_DRAWS, fraction * (0.5 / max(self.tol, 1e-9)) ** 2)

    def sizes(self) -> Iterator[int]:
        """Points per lattice of the rounds that the budget allows, doubling."""
        left, size = self.max_draws, FIRST_SIZE
        while left >= N_LATTICES * FIRST_SIZE:
            while N_LATTICES * size > left:
                size //= 2
            yield size
            left -= N_LATTICES * size
            size *= 2


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
        """Standard errors of the means in units of the scale, shape (n, k)."""
        # Few lattices may agree by chance: their spread is shrunk towards that of independent
        # draws, which is known better and hardly ever smaller. An answer of another size, one unit
        # of the scale away, may not have been drawn.
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
