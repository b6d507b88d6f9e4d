"""Groups of rare categories, which learners see as one state.

What a category tells about the other columns is learned from its rows. One that a single row has
tells nothing that another row could confirm, and a column of such categories (identifiers, dates as
texts, names) has as many states as the table has rows. Categories of a group have equal
probabilities given the group, as numbers in a bin have equal densities.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Columns of fewer categories are learned quickly as they are
MANY_CATEGORIES = 50
# Most categories with states of their own: tables of pairs of columns have no more cells than there
# are rows, or than this number squared
_MAX_STATES = 256


@dataclass(frozen=True)
class CategoryGroups:
    """The state of each category (k,), rare ones grouped, numbered by their first categories."""

    states: IntArray

    @classmethod
    def learn(
        cls, codes: FloatArray, cardinality: int, n_rows: FloatArray | None = None
    ) -> CategoryGroups | None:
        """Group the rare ones among many categories; None if all have states of their own.

        `codes` (n,): NaN where missing; `n_rows` (n,): how many rows each stands for. Rows are
        counted and not weighed, so that random weights do not change what the states are.
        """
        if cardinality <= MANY_CATEGORIES:
            return None
        own = np.ones(len(codes)) if n_rows is None else n_rows
        seen = ~np.isnan(codes)
        counts = np.bincount(codes[seen].astype(np.intp), own[seen], minlength=cardinality)
        most = max(_MAX_STATES, int(np.sqrt(own.sum())))
        frequent = np.argsort(-counts, kind="stable")[:most]
        is_own = np.zeros(cardinality, dtype=bool)
        is_own[frequent[counts[frequent] > 1]] = True
        # Equal probabilities suit categories with numbers of rows in a ratio of at most two
        level = np.frexp(counts)[1]
        label = np.where(is_own, cardinality + np.arange(cardinality), level)
        _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
        if len(first) == cardinality:
            return None
        return cls(np.argsort(np.argsort(first))[inverse])

    @property
    def n_categories(self) -> int:
        return len(self.states)

    @property
    def n_states(self) -> int:
        return len(self.sizes)

    @cached_property
    def sizes(self) -> IntArray:
        """Number of categories of each state, shape (n_states,)."""
        return np.bincount(self.states)

    def encode(self, codes: FloatArray) -> FloatArray:
        """States of categories; NaN where missing."""
        known = np.nan_to_num(codes).astype(np.intp)
        return np.where(np.isnan(codes), np.nan, self.states[known])

    def decode(
        self,
        states: IntArray,
        generator: np.random.Generator | None,
        is_allowed: BoolArray | None = None,
    ) -> FloatArray:
        """Draw a category of each state, of those that are allowed (k,); None gives the first."""
        allowed = np.ones(self.n_categories, dtype=bool) if is_allowed is None else is_allowed
        if generator is None:
            return self.first_members(allowed)[states].astype(np.float64)
        members = self._members[allowed[self._members]]
        sizes = np.bincount(self.states[members], minlength=self.n_states)
        place = generator.integers(sizes[states])
        return members[(np.cumsum(sizes) - sizes)[states] + place].astype(np.float64)

    def first_members(self, is_allowed: BoolArray | Literal[True] = True) -> IntArray:
        """First category of each state that is allowed, (..., k) -> (..., n_states), else 0."""
        ranks = np.where(is_allowed, np.arange(self.n_categories), self.n_categories)
        first = np.minimum.reduceat(ranks[..., self._members], self._starts, axis=-1)
        return np.where(first < self.n_categories, first, 0)

    def spread(self, probabilities: FloatArray) -> FloatArray:
        """Divide the probabilities of states equally: (..., n_states) -> (..., n_categories)."""
        return (probabilities / self.sizes)[..., self.states]

    def sums(self, cells: FloatArray) -> FloatArray:
        """Sums over the categories of each state, (..., n_categories) -> (..., n_states)."""
        return np.add.reduceat(cells[..., self._members], self._starts, axis=-1)

    def n_free_parameters(self, is_possible: BoolArray) -> int:
        """Number of free probabilities of states where these categories (k,) are possible."""
        return 0 if len(np.unique(self.states[is_possible])) == 1 else self.n_states - 1

    @cached_property
    def _members(self) -> IntArray:
        """Categories in the order of their states."""
        return np.argsort(self.states, kind="stable")

    @cached_property
    def _starts(self) -> IntArray:
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])


def learn_groups(
    X: FloatArray, cardinalities: IntArray, n_rows: FloatArray | None = None
) -> dict[int, CategoryGroups]:
    """Groups of the columns (n, d) that have rare categories, by their index.

    `n_rows` (n,): how many rows each of the rows stands for.
    """
    found = {
        j: CategoryGroups.learn(X[:, j], int(cardinalities[j]), n_rows)
        for j in np.flatnonzero(cardinalities > MANY_CATEGORIES).tolist()
    }
    return {j: groups for j, groups in found.items() if groups is not None}


def grouped_rows(X: FloatArray, groups: dict[int, CategoryGroups]) -> FloatArray:
    """Rows (n, d) with states instead of the categories of grouped columns."""
    if not groups:
        return X
    X = X.copy()
    for j, own in groups.items():
        X[:, j] = own.encode(X[:, j])
    return X


def grouped_cardinalities(cardinalities: IntArray, groups: dict[int, CategoryGroups]) -> IntArray:
    """Numbers of states (d,) where columns are grouped, else of categories."""
    sizes = cardinalities.copy()
    for j, own in groups.items():
        sizes[j] = own.n_states
    return sizes
