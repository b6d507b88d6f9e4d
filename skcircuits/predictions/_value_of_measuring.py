"""The expected reduction of uncertainty about a prediction by measuring a missing value.

Uncertainty is measured by a concave function of the expected response: minus its square (the
variance, up to a term that no cell can change) or its entropy. Knowing a cell lowers it on average
by the gap of Jensen's inequality, E[φ(E[f | x_o, x_j])] - φ(E[f | x_o]) with φ convex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.numerics._patterns import unique_rows
from skcircuits.numerics._random import LatticeStreams
from skcircuits.parallel import memory_bound_chunks
from skcircuits.predictions._any_model import (
    DrawBudget,
    expectation_by_draws,
    expectation_by_enumeration,
    has_few_completions,
)
from skcircuits.predictions._closed_forms import (
    ClosedForm,
    Expectation,
    IncompleteRows,
    NoClosedFormError,
    Problem,
    Response,
    closed_form,
    last_step,
)
from skcircuits.predictions._components import GaussianComponents
from skcircuits.protocols import BoolArray, FloatArray, IntArray

MAX_ROWS = 2**14  # that a closed form takes at once
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
# Draws per row, and bins of a number, if there is no exact method
N_DRAWS = 1024
N_BINS = 16
SMALLEST_PROBABILITY = 1e-300


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

    def __call__(self, rows: IncompleteRows, *, with_variance: bool = False) -> Expectation:
        """Compute the moments given the observed cells; equal rows are answered once."""
        # Evidence may hold fewer cells than the row: both decide which rows are equal
        first, inverse = unique_rows(np.hstack([rows.cells, rows.evidence]))
        distinct = rows.take(first)
        parts = []
        for chosen, compute in self._ways(distinct, with_variance):
            own = np.flatnonzero(chosen)
            if len(own):
                found = compute(distinct.take(own))
                parts.append((own, found if with_variance else replace(found, variance=None)))
        return Expectation.put_together(len(distinct), parts).take(inverse)

    def is_exact(self, rows: IncompleteRows) -> BoolArray:
        """Tell which rows have an exact mean, shape (n,)."""
        if self.draws_only:
            return np.zeros(len(rows), dtype=bool)
        exact = has_few_completions(self.circuit, rows)
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
            chosen = left & form.covers(rows, with_variance=with_variance)
            yield chosen, partial(_in_chunks, form, with_variance=with_variance)
            left &= ~chosen
        if not self.draws_only:
            chosen = left & has_few_completions(self.circuit, rows)
            yield chosen, partial(expectation_by_enumeration, self.response, self.circuit)
            left &= ~chosen
        if form is not None and not self.draws_only and with_variance:
            chosen = left & form.covers(rows, with_variance=False)
            # Means may have a closed form where variances have none
            yield chosen, partial(self._with_drawn_variance, form)
            left &= ~chosen
        yield left, partial(self._by_draws, with_variance=with_variance)

    def _of_complete_rows(self, rows: IncompleteRows) -> Expectation:
        """Predictions of the models, with zero variance."""
        answers = self.response(rows.cells)
        return Expectation.exact(answers, np.zeros_like(answers))

    def _with_drawn_variance(self, form: ClosedForm, rows: IncompleteRows) -> Expectation:
        """Draw the variance only: the mean is the one that is given without it."""
        mean = _in_chunks(form, rows, with_variance=False)
        drawn = self._by_draws(rows, with_variance=True)
        return replace(drawn, mean=mean.mean)

    def _by_draws(self, rows: IncompleteRows, with_variance: bool) -> Expectation:
        return expectation_by_draws(
            self.response, self.circuit, rows, self.budget, with_variance=with_variance
        )


def _in_chunks(form: ClosedForm, rows: IncompleteRows, with_variance: bool) -> Expectation:
    """Evaluate a closed form on blocks of rows that fit into the working memory."""
    parts = [
        (
            np.arange(chunk.start, chunk.stop),
            form.expectation(rows.take(chunk), with_variance=with_variance),
        )
        for chunk in memory_bound_chunks(len(rows), form.bytes_per_row, at_most=MAX_ROWS)
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

    def bias(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Bias of φ of an estimate of the mean, given the variance of the estimate."""
        half_curvature = 0.5 / np.maximum(mean, 1e-6) if self.is_entropy else 1.0
        return np.asarray((half_curvature * variance).sum(axis=-1))


VARIANCE, ENTROPY = Uncertainty(False), Uncertainty(True)


def value_of_measuring(
    expected: ExpectedResponse, rows: IncompleteRows, uncertainty: Uncertainty, seed: int
) -> FloatArray:
    """Give by how much each missing cell would lower the uncertainty, shape (n, d)."""
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
    result[exact] = _by_integration(expected, rows.take(exact), components, uncertainty)
    n_bytes = N_DRAWS * rows.cells.shape[1] * 8 * 6
    drawn = np.flatnonzero(~exact)
    for chunk in memory_bound_chunks(len(drawn), n_bytes, at_most=64):
        result[drawn[chunk]] = _by_draws(expected, rows.take(drawn[chunk]), uncertainty, seed)
    return np.maximum(result, 0.0)[inverse]


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
    """Values of a missing number and their weights given each row, shapes (n, K q)."""
    slopes = (components.columns == j).astype(np.float64)[:, None]
    conditioned = components.conditioned(X)
    means = (conditioned.means @ slopes)[..., 0].T
    variances = conditioned.projected_variances(slopes)[..., 0].T
    values = means[..., None] + np.sqrt(variances)[..., None] * NODES
    weights = conditioned.weights.T[..., None] * NODE_WEIGHTS
    # Components of negligible posterior probability need no evaluations
    weights[weights < 1e-20] = 0.0
    return values.reshape(len(X), -1), weights.reshape(len(X), -1)


def _by_draws(
    expected: ExpectedResponse, rows: IncompleteRows, uncertainty: Uncertainty, seed: int
) -> FloatArray:
    """Group the same draws by the value of each cell; means per group are expectations."""
    streams = LatticeStreams(rows.cells, seed, N_DRAWS)
    drawn = expected.circuit.sample(N_DRAWS, X=rows.evidence, random_state=streams)
    completed = rows.completed(drawn)
    answers = expected.response(completed.reshape(-1, completed.shape[-1]))
    answers = answers.reshape(N_DRAWS, len(rows), -1)
    result = np.zeros(rows.cells.shape)
    for i, j in np.argwhere(np.isnan(rows.cells)):
        now = _certainty_of(uncertainty, answers[:, i])
        is_discrete = int(j) in expected.circuit.cardinalities
        # Draws with (nearly) equal values of a cell are draws given that value: no new ones are
        # needed
        groups = _groups(completed[:, i, j], is_discrete)
        then = [len(own) * _certainty_of(uncertainty, answers[own, i]) for own in groups]
        result[i, j] = sum(then) / N_DRAWS - now
    return result


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
