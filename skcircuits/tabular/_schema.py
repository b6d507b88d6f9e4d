"""The schema of a table, learned in fit, which converts tables to float arrays and back.

Rare categories form groups, which learners see as one state. What a category tells about the other
columns is learned from its rows. One that a single row has tells nothing that another row could
confirm, and a column of such categories (identifiers, dates as texts, names) has as many states as
the table has rows. Categories of a group have equal probabilities given the group, as numbers in a
bin have equal densities.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from skcircuits.exceptions import warn
from skcircuits.numerics._arrays import Rows
from skcircuits.protocols import BoolArray, FloatArray, IntArray, WithoutCaches
from skcircuits.tabular._columns import (
    Column,
    around_constants,
    as_objects_in_zone,
    column_mask,
    holds_categories,
    is_missing,
    learn_column,
    refuse_other_zone,
)
from skcircuits.tabular._frames import (
    RawColumn,
    build_frame,
    is_frame,
    narrow_floats,
    read_columns,
    select_columns,
    without_rows,
)

#: Per column the rows and the cells that its codes do not hold.
UnseenCells = dict[int, tuple[IntArray, NDArray[Any]]]

# Columns of fewer categories are learned quickly as they are
MANY_CATEGORIES = 50
# Most categories with states of their own: tables of pairs of columns have no more cells than there
# are rows, or than this number squared
_MAX_STATES = 256


@dataclass(frozen=True)
class TableSchema(WithoutCaches):
    """Names, kinds and categories of the columns of a table, made by `TableSchema.learn`."""

    columns: tuple[Column, ...]  # in order
    prototype: Any = None  # fitted dataframe without rows, for its dtypes; None for an array
    missing_value: object = np.nan

    @classmethod
    def learn(
        cls,
        X: Any,
        categorical_features: str | Sequence[Any] | None = "from_dtype",
        missing_value: object = np.nan,
    ) -> TableSchema:
        """Learn the schema of a table."""
        return cls.learn_and_encode(X, categorical_features, missing_value)[0]

    @classmethod
    def learn_and_encode(
        cls,
        X: Any,
        categorical_features: str | Sequence[Any] | None = "from_dtype",
        missing_value: object = np.nan,
    ) -> tuple[TableSchema, FloatArray]:
        """Learn the schema of a table and encode the table, whose columns are read once."""
        raw_columns = read_columns(X)
        mask = _categorical_mask(categorical_features, raw_columns, missing_value)
        columns = tuple(
            learn_column(raw, is_categorical, missing_value)
            for raw, is_categorical in zip(raw_columns, mask.tolist(), strict=True)
        )
        # No rows, but all dtypes of the library
        schema = cls(columns, without_rows(X) if is_frame(X) else None, missing_value)
        if schema._takes_as_is(X):
            return schema, X.astype(np.float64)
        return schema, schema._encode_columns(raw_columns)

    def select(self, columns: IntArray) -> TableSchema:
        """Schema of some of the columns, by index."""
        chosen = columns.tolist()
        prototype = self.prototype
        if prototype is not None:
            prototype = select_columns(prototype, chosen)
        return replace(self, columns=tuple(self.columns[j] for j in chosen), prototype=prototype)

    def grouped(self, groups: dict[int, CategoryGroups]) -> TableSchema:
        """Schema of the states of groups, each with the name of its first category."""
        if not groups:
            return self
        columns = list(self.columns)
        for j, own in groups.items():
            labels = columns[j].categories
            assert labels is not None
            columns[j] = replace(columns[j], categories=labels[own.first_members()])
        return replace(self, columns=tuple(columns))

    @property
    def names(self) -> list[str | int]:
        """Names of the columns, positions for an array."""
        return [column.name for column in self.columns]

    @cached_property
    def index_of(self) -> dict[Hashable, int]:
        """Places of the columns by name."""
        return {name: j for j, name in enumerate(self.names)}

    @cached_property
    def text_names(self) -> tuple[list[str], list[str]]:
        """Names of the columns in texts, as they are and in their NFKC form."""
        known = [column.text_name for column in self.columns]
        return known, [normalize("NFKC", name) for name in known]

    @property
    def is_categorical(self) -> BoolArray:
        """Mask of the categorical columns, shape (d,)."""
        return np.array([column.categories is not None for column in self.columns])

    @cached_property
    def is_integral(self) -> BoolArray:
        """Mask of the integer columns, shape (d,)."""
        return np.array([column.is_integral for column in self.columns])

    @cached_property
    def grids(self) -> IntArray:
        """Meaning of the numbers of each column, shape (d,); see `Column.grid`."""
        return np.array([column.grid for column in self.columns], dtype=np.int64)

    @cached_property
    def constants(self) -> FloatArray:
        """Numbers of the constant columns, NaN for others, shape (d,)."""
        return np.array([np.nan if c.constant is None else c.constant for c in self.columns])

    def at_constants(self, rows: FloatArray) -> FloatArray:
        """Rows (..., d) in which numbers that count as that of a constant column are this one."""
        # Comparisons with NaN are false: other columns stay as they are
        low, high = around_constants(self.constants)
        return np.where((low <= rows) & (rows <= high), self.constants, rows)

    def rounded(self, rows: FloatArray) -> FloatArray:
        """Rows (..., d) of numbers as queries understand them: integers, and what is constant."""
        rows = self.at_constants(rows)
        # Small negative numbers round to zero, which has no sign
        return np.where(self.is_integral, np.round(rows) + 0.0, rows)

    def in_narrow_floats(
        self, rows: FloatArray, lower: FloatArray, upper: FloatArray, at: Rows = slice(None)
    ) -> FloatArray:
        """Rows (n, d) as their dtypes round them, within bounds (m, d), those `at` some place."""
        columns = narrow_floats(self.prototype)
        if not len(columns):
            return rows
        low, high = lower[at][:, columns], upper[at][:, columns]
        cells = rows[:, columns].astype(np.float32)
        # Comparisons with NaN are false: an open side keeps all
        cells = np.where(cells > high, np.nextafter(cells, np.float32(-np.inf)), cells)
        cells = np.where(cells < low, np.nextafter(cells, np.float32(np.inf)), cells)
        rows = rows.copy()
        rows[:, columns] = cells
        return rows

    @property
    def cardinalities(self) -> IntArray:
        """Number of categories per column, 0 for numbers, shape (d,)."""
        return np.array([column.cardinality for column in self.columns], dtype=np.int64)

    @property
    def categories(self) -> list[NDArray[Any] | None]:
        """Labels per column in the order of their codes, None for numbers."""
        return [column.categories for column in self.columns]

    def read(self, X: Any) -> Any:
        """Read a table for several questions: an array that is its own encoding, or columns."""
        return X if self._takes_as_is(X) else read_columns(X)

    def encode(self, X: Any, handle_unknown: str = "missing", *, copy: bool = True) -> FloatArray:
        """Turn a table into floats: numbers, codes of categories, NaN where missing."""
        # The usual case: at most one copy, whatever the number of columns
        if self._takes_as_is(X):
            return np.asarray(X.astype(np.float64, copy=copy))
        return self._encode_columns(read_columns(X), refuse_unknown=handle_unknown == "error")

    def _encode_columns(
        self, raw_columns: Sequence[RawColumn], *, refuse_unknown: bool = False
    ) -> FloatArray:
        encoded = np.empty((len(raw_columns[0].values), len(self.columns)))
        for j, (column, raw) in enumerate(zip(self.columns, raw_columns, strict=True)):
            refuse_other_zone(column, raw)
            encoded[:, j] = column.encode(
                raw.values, missing_value=self.missing_value, refuse_unknown=refuse_unknown
            )
        return encoded

    def unseen_categories(self, X: Any) -> UnseenCells:
        """Find observed cells of categories that are new since fit: per column rows and cells."""
        return self._select_cells(X, Column.is_unseen)

    def inexact_cells(self, X: Any) -> UnseenCells:
        """Find observed cells that `encode` loses: unseen categories, and integers it rounds."""
        return self._select_cells(X, Column.is_inexact)

    def _select_cells(
        self, X: Any, is_selected: Callable[[Column, NDArray[Any], object], BoolArray]
    ) -> UnseenCells:
        if self._takes_as_is(X):
            return {}
        found = {}
        for j, (column, raw) in enumerate(zip(self.columns, read_columns(X), strict=True)):
            rows = np.flatnonzero(is_selected(column, raw.values, self.missing_value))
            if len(rows):
                found[j] = rows, raw.values[rows]
        return found

    def _takes_as_is(self, X: Any) -> bool:
        """Tell whether a table is its own encoding: an array of finite numbers and NaN."""
        return (
            isinstance(X, np.ndarray)
            and X.dtype.kind in "fiu"
            and is_missing(self.missing_value)
            and self._has_only_numbers
            # Infinite cells are refused by name, column by column
            and not np.isinf(X).any()
        )

    def warn_of_identifiers(self, encoded: FloatArray) -> None:
        """Name categorical columns in which most rows have a category of their own."""
        found = []
        for j in np.flatnonzero(self.cardinalities > MANY_CATEGORIES).tolist():
            seen = encoded[~np.isnan(encoded[:, j]), j]
            n_found = len(np.unique(seen))
            if n_found > max(MANY_CATEGORIES, len(seen) / 2):
                found.append(f"{self.columns[j].name!r} ({n_found} in {len(seen)} cells)")
        if found:
            warn(
                f"Most cells of {len(found)} column(s) have a category of their own, which tells "
                f"nothing about other rows: {', '.join(found)}. Drop identifiers and free texts; "
                "turn dates or numbers in texts into numbers.",
            )

    @property
    def _has_only_numbers(self) -> bool:
        return all(column.categories is None and not column.has_dates for column in self.columns)

    def decode_array(self, codes: FloatArray, unseen: UnseenCells | None = None) -> NDArray[Any]:
        """Turn floats back into cells, as an array; `unseen` cells go in as they are."""
        if self._has_only_numbers:
            return codes.copy()
        # Dates among objects hold no more than microseconds
        kept = {j: own for j, own in (unseen or {}).items() if not self.columns[j].has_dates}
        cells = self._decode_columns(codes, kept)
        # One category among numbers makes the whole array one of objects
        dtype = float if all(cell.dtype.kind == "f" for cell in cells) else object
        decoded = np.empty(codes.shape, dtype=dtype)
        for j, cell in enumerate(cells):
            decoded[..., j] = cell
        return decoded

    def _decode_columns(self, codes: FloatArray, unseen: UnseenCells) -> list[NDArray[Any]]:
        cells = [column.decode(codes[..., j]) for j, column in enumerate(self.columns)]
        for j, (rows, values) in unseen.items():
            if self.columns[j].has_dates:
                cells[j] = cells[j].astype(values.dtype)
            elif self.columns[j].categories is None:
                # Among integers that floats round one float would make floats of all
                cells[j] = _to_integers(cells[j])
            else:
                cells[j] = cells[j].astype(object)
            cells[j][..., rows] = values
        return [
            as_objects_in_zone(column, own) if column.zone_of_objects else own
            for column, own in zip(self.columns, cells, strict=True)
        ]

    def decode(
        self, codes: FloatArray, backend: str | None = None, unseen: UnseenCells | None = None
    ) -> Any:
        """Turn floats back into the kind of table of the fit; `unseen` cells go in as they are."""
        if self.prototype is None and backend is None:
            return self.decode_array(codes, unseen)
        columns = self._decode_columns(codes, unseen or {})
        cells = {column.name: own for column, own in zip(self.columns, columns, strict=True)}
        return build_frame(cells, self.prototype, backend)


def _to_integers(numbers: FloatArray) -> NDArray[Any]:
    cells = numbers.astype(object)
    is_integer = numbers == np.floor(numbers)
    cells[is_integer] = [int(number) for number in numbers[is_integer]]
    return cells


def _categorical_mask(
    categorical_features: str | Sequence[Any] | None,
    raw_columns: Sequence[RawColumn],
    missing_value: object,
) -> BoolArray:
    """Read the parameter `categorical_features` as a mask, shape (d,)."""
    if isinstance(categorical_features, str) and categorical_features == "from_dtype":
        return np.array([holds_categories(raw, missing_value) for raw in raw_columns], dtype=bool)
    names = [raw.name for raw in raw_columns]
    return column_mask(
        categorical_features, names, parameter="categorical_features", keyword="from_dtype"
    )


@dataclass(frozen=True)
class CategoryGroups(WithoutCaches):
    """The state of each category (k,), rare ones grouped, numbered by their first categories."""

    states: IntArray

    @classmethod
    def learn(
        cls, codes: FloatArray, cardinality: int, n_rows: FloatArray | None = None
    ) -> CategoryGroups | None:
        """Group the rare ones of many categories (n,); None if all have states of their own."""
        # Rows are counted and not weighed, so that random weights do not change what the states are
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
    """Groups of columns (n, d) with rare categories, by index; rows stand for `n_rows` (n,)."""
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
