"""Closed forms of expected predictions, registered per type of model."""

from __future__ import annotations

from typing import Protocol

from skcircuits.predictions._rows import Expectation, IncompleteRows
from skcircuits.protocols import BoolArray

__all__ = ["ClosedForm"]


class ClosedForm(Protocol):
    """An exact way to the expectations of a response, for the rows that it covers."""

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Tell which rows have a closed form, shape (n,)."""

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Compute the moments of rows that are covered."""
