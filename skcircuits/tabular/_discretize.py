"""Discretisation of tables: few integers become categories, other numbers bins.

Discrete models of numeric tables are models of states; their densities are in original units
because every bin has a width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.tabular._bins import Bins
from skcircuits.tabular._category_groups import CategoryGroups
from skcircuits.tabular.queries import Boxes

# Numbers within so many neighbouring floats are told apart by rounding alone
_FEW_FLOATS = 64


@dataclass(frozen=True)
class Discretizer:
    """Columns of an encoded table as states.

    Made by `Discretizer.fit`. A categorical column keeps its codes, or has the states of groups of
    them, each of which has as many categories as its volume. A column of integers or
    neighbouring floats with few distinct values, and a constant one, has these as states. Any other
    column is cut into bins with uniform density inside: quantile bins between the least and
    the greatest number seen, of which the outermost are divided where the density falls. Beyond
    them are tails: a number slightly out of range is improbable, a distant one more so, and none is
    impossible.

    A number that many rows have is a state of its own among the bins. In columns of integers it
    is a bin, half a unit to either side. Elsewhere it is a point mass: its bin holds this number
    and the floats beside it, which count as it; it has no width, and the volume one.
    """

    values: tuple[FloatArray | None, ...]  # numbers or codes of the states, None for bins
    bins: tuple[Bins | None, ...]  # None for columns of values
    groups: tuple[CategoryGroups | None, ...]  # of categories

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        cardinalities: IntArray,
        *,
        n_bins: int = 8,
        max_categories: int = 32,
        sample_weight: FloatArray | None = None,
        shared: Callable[[int], FloatArray] | None = None,
        groups: Mapping[int, CategoryGroups] | None = None,
    ) -> Discretizer:
        """Learn the states of each column.

        `shared`: gives the numbers that many rows have in a column that is cut into bins, beside
        those with the rows of a bin; `groups`: of the categories of some columns.
        """
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        values: list[FloatArray | None] = []
        bins: list[Bins | None] = []
        for j, (column, cardinality) in enumerate(zip(X.T, cardinalities, strict=True)):
            seen = ~np.isnan(column) & (weight > 0)
            states = np.arange(float(cardinality)) if cardinality else np.unique(column[seen])
            is_cut = not cardinality and not _are_categories(states, max_categories)
            # A column without any number gets one state, so that a model over it exists
            values.append(None if is_cut else states if len(states) else np.zeros(1))
            own_bins = None
            if is_cut:
                known = np.empty(0) if shared is None else shared(j)
                own_bins = Bins.fit(column[seen], weight[seen], n_bins, known)
            bins.append(own_bins)
        known_groups = groups or {}
        return cls(
            tuple(values),
            tuple(bins),
            tuple(known_groups.get(j) for j in range(len(values))),
        )

    @property
    def is_categorical(self) -> BoolArray:
        """Mask of the columns whose states are values and not bins, shape (d,)."""
        return np.array([values is not None for values in self.values])

    @property
    def bin_edges(self) -> tuple[FloatArray | None, ...]:
        """Increasing edges of the bins of each column, None for columns of values."""
        return tuple(None if own is None else own.edges for own in self.bins)

    @property
    def cardinalities(self) -> IntArray:
        """Number of states per column, shape (d,)."""
        sizes = [len(self.volumes(j)) for j in range(len(self.values))]
        return np.array(sizes, dtype=np.int64)

    def encode(self, X: FloatArray) -> FloatArray:
        """Turn numbers into states."""
        states = self._own_states(X)
        for j, (values, bins) in enumerate(zip(self.values, self.bins, strict=True)):
            if bins is not None:
                states[:, j] = bins.encode(X[:, j])
            elif (own := self.groups[j]) is not None:
                states[:, j] = own.encode(states[:, j])
            elif not self._are_own_states[j]:
                known = _known(values)
                state = np.minimum(np.searchsorted(known, X[:, j]), len(known) - 1)
                states[:, j] = np.where(known[state] == X[:, j], state, np.nan)
        return states

    @cached_property
    def _are_own_states(self) -> BoolArray:
        """Mask of the columns whose values are 0, 1, ..., their own states, shape (d,)."""
        return np.array(
            [own is not None and np.array_equal(own, np.arange(len(own))) for own in self.values]
        )

    def _own_states(self, X: FloatArray) -> FloatArray:
        """A copy of X, with NaN for values that do not occur in columns of values 0, 1, ..."""
        states = X.copy()
        if self._are_own_states.any():
            # All columns at once: comparisons with the limits of others are never true
            n_values = [np.inf if own is None else len(own) for own in self.values]
            n_states = np.where(self._are_own_states, n_values, np.inf)
            is_none = (n_states <= X) | ((X < 0.0) | (np.floor(X) != X)) & self._are_own_states
            states[is_none] = np.nan
        return states

    def known(self, X: FloatArray) -> FloatArray:
        """Numbers as represented by their states.

        Those that are not states are missing, those next to a point mass are moved to it.
        """
        states = self.encode(X)
        X = np.where(np.isnan(states), np.nan, X)
        for j, bins in enumerate(self.bins):
            if bins is not None and not np.isnan(bins.points).all():
                seen = np.flatnonzero(~np.isnan(states[:, j]))
                X[seen, j] = bins.known(X[seen, j], states[seen, j].astype(np.int64))
        return X

    def volumes(self, column: int) -> FloatArray:
        """Inverse densities of the states of a column within them, one for values, (k,).

        Of groups of categories, their numbers.
        """
        bins, groups = self.bins[column], self.groups[column]
        if groups is not None:
            return groups.sizes.astype(np.float64)
        return np.ones(len(_known(self.values[column]))) if bins is None else bins.volumes

    def log_volume(self, X: FloatArray) -> FloatArray:
        """Log inverse density of rows within their states, to subtract from log probabilities."""
        total = np.zeros(len(X))
        states = self.encode(X)
        for j, (bins, groups) in enumerate(zip(self.bins, self.groups, strict=True)):
            if bins is None and groups is None:
                continue
            seen = np.flatnonzero(~np.isnan(states[:, j]))
            own = states[seen, j].astype(np.int64)
            if bins is None:
                total[seen] += np.log(self.volumes(j))[own]
            else:
                total[seen] += bins.log_volumes(X[seen, j], own)
        return total

    def decode(self, states: FloatArray, generator: np.random.Generator | None) -> FloatArray:
        """Numbers drawn within states; without generator the middles and the first categories."""
        codes = states.astype(np.int64)
        X = np.empty(states.shape)
        for j, (values, bins, groups) in enumerate(
            zip(self.values, self.bins, self.groups, strict=True)
        ):
            own = codes[..., j]
            if groups is not None:
                X[..., j] = groups.decode(own, generator)
            elif bins is not None:
                X[..., j] = bins.middles(own) if generator is None else bins.draw(own, generator)
            else:
                X[..., j] = _known(values)[own]
        return X

    def coverage(self, boxes: Boxes, columns: Iterable[int] | None = None) -> list[FloatArray]:
        """Fraction of each state of all or some columns that lies in each box."""
        fractions = []
        for j in range(len(self.values)) if columns is None else columns:
            values, bins = self.values[j], self.bins[j]
            # Open sides become infinite bounds
            lower = np.nan_to_num(boxes.lower[:, j], nan=-np.inf)
            upper = np.nan_to_num(boxes.upper[:, j], nan=np.inf)
            if bins is not None:
                stop = np.nan_to_num(boxes.stops[:, j], nan=np.inf)
                fractions.append(bins.coverage(lower, upper, stop))
                continue
            known = _known(values)
            fraction = ((lower[:, None] <= known) & (known <= upper[:, None])).astype(float)
            fraction *= boxes.states.get(j, True)
            if (groups := self.groups[j]) is not None:
                fraction = groups.sums(fraction) / groups.sizes
            fractions.append(fraction)
        return fractions


def _known(values: FloatArray | None) -> FloatArray:
    assert values is not None
    return values


def _are_categories(distinct: FloatArray, max_categories: int) -> bool:
    """Tell whether the distinct numbers of a column are its states."""
    if len(distinct) <= 1 or len(distinct) > max_categories:
        return len(distinct) <= 1
    are_integers = bool((distinct == np.floor(distinct)).all())
    # Bins among neighbouring floats would be as wide as what their ends are rounded by
    return (
        are_integers
        or distinct[-1] - distinct[0] < _FEW_FLOATS * np.spacing(np.abs(distinct)).max()
    )
