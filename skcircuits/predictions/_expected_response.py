"""The expected response of fitted models: the best way there is for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.numerics._patterns import unique_rows
from skcircuits.parallel import memory_bound_chunks
from skcircuits.predictions._any_model import (
    DrawBudget,
    expectation_by_draws,
    expectation_by_enumeration,
    has_few_completions,
)
from skcircuits.predictions._closed_forms import (
    ClosedForm,
    NoClosedFormError,
    Problem,
    closed_form,
    last_step,
)
from skcircuits.predictions._rows import Expectation, IncompleteRows, Response
from skcircuits.protocols import BoolArray

MAX_ROWS = 2**14  # that a closed form takes at once


def find_closed_form(problem: Problem) -> tuple[ClosedForm | None, str]:
    """Give the closed form of fitted models, and where there is none the reason."""
    try:
        return closed_form(last_step(problem.response.models[0]), problem), ""
    except NoClosedFormError as reason:
        return None, str(reason)


@dataclass(frozen=True)
class ExpectedResponse:
    """E[f(x) | observed cells] of fitted models f.

    Attributes
    ----------
    response : Response
        The models.
    circuit : Circuit
        The distribution of the rows.
    budget : DrawBudget
        For rows that have to be drawn.
    closed_form : ClosedForm or None
        An exact way, where the models have one.
    draws_only : bool
        Whether to draw all rows whatever exact ways there are.
    """

    response: Response
    circuit: Circuit
    budget: DrawBudget
    closed_form: ClosedForm | None = None
    draws_only: bool = False

    def __call__(self, rows: IncompleteRows, *, with_variance: bool = False) -> Expectation:
        """Compute the moments given the observed cells; equal rows are answered once."""
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
        """Yield which rows go which way, and the way."""
        left: BoolArray = np.ones(len(rows), dtype=bool)
        form = self.closed_form
        if form is not None and not self.draws_only:
            chosen = form.covers(rows, with_variance=with_variance)
            yield chosen, partial(_in_chunks, form, with_variance=with_variance)
            left &= ~chosen
        if not self.draws_only:
            chosen = left & has_few_completions(self.circuit, rows)
            yield chosen, partial(expectation_by_enumeration, self.response, self.circuit)
            left &= ~chosen
        draw = partial(expectation_by_draws, self.response, self.circuit)
        yield left, partial(draw, budget=self.budget)


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
