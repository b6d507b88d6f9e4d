"""Columns of a table: names, types, and conversion of cells to codes and back."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from difflib import get_close_matches
from itertools import repeat
from numbers import Integral, Real
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from skcircuits.exceptions import invalid, must, warn
from skcircuits.protocols import MAX_CELL, MAX_INTEGER, MIN_RANGE, BoolArray, FloatArray
from skcircuits.tabular._frames import (
    RawColumn,
    no_numbers_or_categories,
    zone_name,
)

MAX_SHOWN = 20
# Meaning of a number of a column: itself, what rounds to it, all up to the next float.
NUMBERS, INTEGERS, FLOATS = 0, 1, 2
# What a tenth of a column spans, relative to its magnitude, if its floats count like integers.
COARSE_SPAN = 2.0**-20
# How far numbers around that of a constant column count as it, as a fraction of it, or of one:
# ten times the spread that a density of such a column may have.
_REACH_OF_CONSTANTS = 1e-2
_MAX_SORTED = 1000


def unknown_column(name: object, known: Sequence[object], hint: str = "") -> ValueError:
    """The error about a column that is not in the table."""
    way_out = f"{nearest(name, known)}They are {_shown(known)}.{hint}"
    return invalid("Columns of a query", "be columns of the table", way_out, column=name)


def nearest(name: object, known: Sequence[object]) -> str:
    """Sentence that suggests the most similar name, empty if none is similar."""
    by_text = {str(other): other for other in known}
    close = get_close_matches(str(name), list(by_text), n=1)
    return f"Did you mean {by_text[close[0]]!r}? " if close else ""


def _shown(known: Sequence[object]) -> str:
    shown = list(known)[:MAX_SHOWN]
    return repr(shown) if len(known) <= MAX_SHOWN else f"{repr(shown)[:-1]}, ...]"


def column_mask(
    features: str | Sequence[Any] | None, names: Sequence[Any], *, parameter: str, keyword: str
) -> BoolArray:
    """Read a choice of columns as a mask."""
    mask = np.zeros(len(names), dtype=bool)
    if features is None or len(features) == 0:
        return mask
    chosen = np.asarray(features)
    if not _fits(chosen, len(names)):
        condition = (
            f"be {keyword!r}, None, a boolean mask with one entry per column, "
            "indices of columns, or their names"
        )
        raise invalid(parameter, condition, "Count columns from 0.", **{parameter: features})
    # Names may be integers too: integers are indices, as everywhere in scikit-learn
    is_named = chosen.dtype != bool and chosen.dtype.kind not in "iu"
    mask[_positions(chosen.tolist(), names, parameter) if is_named else chosen] = True
    return mask


def _fits(chosen: NDArray[Any], n_columns: int) -> bool:
    """Tell whether masks and indices are those of so many columns."""
    if chosen.ndim != 1:
        return False
    if chosen.dtype == bool:
        return len(chosen) == n_columns
    is_index = chosen.dtype.kind in "iu"
    return not is_index or bool(chosen.min() >= 0 and chosen.max() < n_columns)


def _positions(chosen: list[Any], names: Sequence[Any], parameter: str) -> list[int]:
    positions = {name: position for position, name in enumerate(names)}
    unknown = [name for name in chosen if name not in positions]
    if unknown:
        way_out = f"Its columns are {list(names)}."
        raise invalid(f"Names in {parameter}", "be columns of the table", way_out, unknown=unknown)
    return [positions[name] for name in chosen]


@dataclass(frozen=True)
class Column:
    """Description of a column of a table."""

    name: str | int  # in a dataframe; position in an array
    categories: NDArray[Any] | None  # (k,), in the order of their codes; None: numerical
    is_integral: bool  # all numbers seen were integers, or those of the dtype are
    is_ordered: bool = False  # categories were declared in an order that compares them
    has_dates: bool = False  # cells are dates, which are numbers of days here
    time_zone: str | datetime.tzinfo | None = None  # of dates
    zone_of_objects: bool = False  # the cells know this zone, and not their dtype
    is_coarse: bool = False  # floats hardly tell the numbers apart
    constant: float | None = None  # the number of a column that holds no other
    largest: float = 0.0  # magnitude of its numbers

    @property
    def grid(self) -> int:
        """Meaning of a number: itself, numbers that round to it, or all up to the next float."""
        return INTEGERS if self.is_integral else FLOATS if self.is_coarse else NUMBERS

    @property
    def cardinality(self) -> int:
        """Number of categories, 0 for a numerical column, 1 (missing) where none was seen."""
        return 0 if self.categories is None else max(1, len(self.categories))

    @property
    def has_numbers(self) -> bool:
        """Whether the categories are numbers."""
        return self.categories is not None and self.categories.dtype.kind in "iuf"

    @property
    def text_name(self) -> str:
        """Name in texts and drawings: columns of an array are x0, x1, ...."""
        return f"x{self.name}" if isinstance(self.name, Integral) else str(self.name)

    def code_of(self, category: object) -> int:
        """Code of a category that a query names."""
        known = [] if self.categories is None else self.categories.tolist()
        if category in known:
            return known.index(category)
        what = f"Categories of column {self.name!r} in a query"
        way_out = f"{nearest(category, known)}They are {known}."
        raise invalid(what, "be among its categories", way_out, category=category)

    def encode(
        self, values: NDArray[Any], *, missing_value: object = np.nan, refuse_unknown: bool = False
    ) -> FloatArray:
        """Turn cells into numbers or codes."""
        if self.categories is None:
            return _to_numbers(self.name, _in_days(self, values, missing_value), missing_value)
        code_of = {category: code for code, category in enumerate(self.categories.tolist())}
        cells = values.tolist()
        # One lookup per cell in C: any hashable category, missing and unknown ones give NaN
        with _naming_unhashable(self.name, values):
            codes = np.fromiter(map(code_of.get, cells, repeat(np.nan)), float, len(cells))
        if refuse_unknown and np.isnan(codes).any():
            _refuse_unknown(self, values[np.isnan(codes)], missing_value)
        if len(codes) > 1 and np.isnan(codes).all():
            _warn_if_unknown(self, values, missing_value)
        return codes

    def is_unseen(self, values: NDArray[Any], missing_value: object = np.nan) -> BoolArray:
        """Mark the observed cells that are no category of this column, shape (n,)."""
        if self.categories is None:
            return np.zeros(len(values), dtype=bool)
        # A set of Python's own values: True and 1, 1 and 1.0 are one category, as in a dictionary
        known = set(self.categories.tolist())
        with _naming_unhashable(self.name, values):
            return np.array(
                [
                    not (is_missing(cell) or cell == missing_value or cell in known)
                    for cell in values.tolist()
                ],
                dtype=bool,
            )

    def is_inexact(self, values: NDArray[Any], missing_value: object = np.nan) -> BoolArray:
        """Mark the observed cells that `encode` loses, shape (n,): unseen and rounded ones."""
        if self.categories is not None:
            return self.is_unseen(values, missing_value)
        if self.has_dates and values.dtype.kind == "M":
            # Numbers of days lose nanoseconds; missing dates differ from themselves
            return (dates_of_days(to_days(values)) != values) & ~np.isnat(values)
        if values.dtype != object:
            return np.zeros(len(values), dtype=bool)
        return np.array(
            [
                # From 2^53 on floats skip integers: such cells are kept beside their rounded
                # values, and so are decimals, which are not the nearest float
                (
                    (isinstance(cell, Integral) and abs(int(cell)) >= MAX_INTEGER)
                    or (isinstance(cell, Decimal) and not cell.is_nan())
                )
                and cell != missing_value
                for cell in values.tolist()
            ],
            dtype=bool,
        )

    def decode(self, codes: FloatArray) -> NDArray[Any]:
        """Turn numbers or codes back into cells."""
        if self.has_dates:
            return dates_of_days(codes)
        if self.categories is None:
            return codes
        # Categories that are numbers come back as numbers: an array of them stays one of floats
        missing: Any = np.nan if self.has_numbers else None
        # One entry more: NaN and the state of a column without categories land there
        known = np.append(self.categories.astype(float if self.has_numbers else object), missing)
        n_known = len(self.categories)
        return known[np.where(codes < n_known, codes, n_known).astype(int)]


def learn_column(raw: RawColumn, is_categorical: bool, missing_value: object = np.nan) -> Column:
    """Learn the description of a column."""
    if is_categorical:
        categories = _learn_categories(raw, missing_value)
        column = Column(raw.name, categories, False, raw.is_ordered)
        numbers = categories.astype(float) if column.has_numbers else np.zeros(1)
        return replace(column, largest=float(np.abs(numbers).max(initial=0.0)))
    has_dates = _hold_dates(raw.values, missing_value)
    zone = raw.time_zone
    if has_dates and zone is None and raw.values.dtype == object:
        zone = _zone_of_objects(raw, missing_value)
    column = Column(
        raw.name,
        None,
        False,
        has_dates=has_dates,
        time_zone=zone,
        zone_of_objects=zone is not raw.time_zone,
    )
    numbers = column.encode(raw.values, missing_value=missing_value)
    first, last = np.fmin.reduce(numbers, initial=np.inf), np.fmax.reduce(numbers, initial=-np.inf)
    # Refused here and not where it overflows, in the middle of a fit
    _refuse_tiny_range(raw.name, last - first)
    has_numbers = bool(first <= last)
    is_integral = _are_integers(numbers) if has_numbers else raw.is_integral
    # Integers are at least one apart
    may_be_coarse = not is_integral or COARSE_SPAN * max(-first, last) > 1.0
    return replace(
        column,
        is_integral=is_integral,
        is_coarse=may_be_coarse and _are_coarse(numbers),
        constant=float(first) if first == last else None,
        largest=float(max(-first, last)) if has_numbers else 0.0,
    )


def around_constants(constants: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Least and greatest number that count as those of constant columns, NaN where NaN."""
    # What such a column was measured to, and the spread of its density, are guesses
    reach = _REACH_OF_CONSTANTS * np.maximum(1.0, np.abs(constants))
    return constants - reach, constants + reach


def _hold_dates(values: NDArray[Any], missing_value: object) -> bool:
    """Tell whether cells are dates: by their dtype or, of objects, one by one."""
    if values.dtype != object:
        return values.dtype.kind == "M"
    observed = [cell for cell in values.tolist() if not is_missing(cell, missing_value)]
    return bool(observed) and all(isinstance(cell, datetime.date) for cell in observed)


def _zone_of_objects(raw: RawColumn, missing_value: object) -> str | datetime.tzinfo | None:
    """Time zone of dates among objects, universal time if they are in several; None without one."""
    cells = [cell for cell in raw.values.tolist() if not is_missing(cell, missing_value)]
    zones = {_zone_of(cell) for cell in cells}
    if len(zones) > 1 and None in zones:
        cell = next(cell for cell in cells if _zone_of(cell) is None)
        condition = "be all in time zones or all without one"
        way_out = "Give all of them a time zone, or none."
        raise invalid(f"Dates of column {raw.name!r}", condition, way_out, value=cell)
    return zones.pop() if len(zones) == 1 else "UTC"


def _zone_of(date: Any) -> str | datetime.tzinfo | None:
    """Time zone of a date object."""
    zone = getattr(date, "tzinfo", None)
    return None if zone is None else zone_name(zone)


def holds_categories(raw: RawColumn, missing_value: object = np.nan) -> bool:
    """Tell whether a column holds categories: by its dtype, else by its cells."""
    if raw.is_categorical is not None:
        return raw.is_categorical
    # Objects that are numbers make a numerical column, as for scikit-learn
    categories = _distinct(raw.name, raw.values, missing_value)
    if any(isinstance(category, str | bytes) for category in categories):
        return True
    return bool(categories) and all(
        isinstance(category, bool | np.bool_) for category in categories
    )


def is_missing(value: object, missing_value: object = np.nan) -> bool:
    """Tell whether one cell is missing."""
    if value is None:
        return True
    try:
        # NaN is the only value that differs from itself
        return bool(value != value or value == missing_value)
    except (TypeError, ValueError):
        return True  # pandas' NA refuses to be a truth value


def _in_days(column: Column, values: NDArray[Any], missing_value: object) -> NDArray[Any]:
    """Dates as numbers of days, those among objects too; other columns as they are."""
    # Numbers in place of dates could count anything, and dates are no numbers
    if not column.has_dates:
        if values.dtype.kind == "M":
            raise _other_type(column, "numbers", dtype=str(values.dtype))
        return values
    if values.dtype.kind == "M":
        return to_days(values)
    # Later tables may hold dates as objects where the first one had a dtype of dates
    days = np.full(len(values), np.nan)
    for row, cell in enumerate(values.tolist()):
        if is_missing(cell, missing_value):
            continue
        if not isinstance(cell, datetime.date | np.datetime64):
            raise _other_type(column, "dates", value=cell)
        if column.time_zone is None and _zone_of(cell) is not None:
            raise _other_type(column, "dates without a time zone", value=cell)
        days[row] = read_date(column, cell)
    return days


def refuse_other_zone(column: Column, raw: RawColumn) -> None:
    """Refuse dates with a time zone where those of fit had none, and the reverse."""
    if not column.has_dates or (column.time_zone is None) == (raw.time_zone is None):
        return
    if raw.values.dtype.kind == "M" and not np.isnat(raw.values).all():
        former = "dates without a time zone" if column.time_zone is None else "dates in a time zone"
        raise _other_type(column, former, time_zone=raw.time_zone)


def _other_type(column: Column, former: str, **got: object) -> ValueError:
    """The error about a column of another type than in fit."""
    what, way_out = f"Cells of column {column.name!r}", "Convert the column to its former type."
    return invalid(what, f"be {former}, as in fit", way_out, **got)


def _distinct(name: str | int, values: NDArray[Any], missing_value: object) -> set[Any]:
    """Collect the distinct cells that are not missing."""
    with _naming_unhashable(name, values):
        # tolist: Python's own numbers, equal whatever their NumPy dtype was
        cells = set(values.tolist())
    return {cell for cell in cells if not is_missing(cell, missing_value)}


@contextmanager
def _naming_unhashable(name: str | int, values: NDArray[Any]) -> Iterator[None]:
    """Name the column whose cells are hashed within, in C, where one of them cannot be."""
    try:
        yield
    except TypeError as error:
        # Python names the type, not the column: the cell is searched for once something failed
        for cell in values.tolist():
            if getattr(cell, "__hash__", 1) is None:
                raise TypeError(
                    f"Cells of column {name!r}: argument must be a string or a real number, "
                    f"not {type(cell).__name__!r}."
                ) from error
        raise


def _learn_categories(raw: RawColumn, missing_value: object) -> NDArray[Any]:
    if raw.declared is not None:
        # Includes categories that did not occur in fit: the user declares them and their order
        categories = [
            category for category in raw.declared if not is_missing(category, missing_value)
        ]
    else:
        categories = _sorted_categories(raw.name, _distinct(raw.name, raw.values, missing_value))
    # Strings of different lengths stay objects, numbers and booleans get their own dtype
    array = np.array(categories)
    return (
        array if array.dtype.kind in "iufb" and categories else np.array(categories, dtype=object)
    )


def _sorted_categories(name: str | int, categories: Iterable[Any]) -> list[Any]:
    try:
        return sorted(categories)
    except TypeError as error:
        # Text and numbers of one column have no common order
        kinds = sorted({type(category).__name__ for category in categories})
        condition = "be uniformly strings or numbers"
        way_out = "Convert the column to one kind."
        raise TypeError(
            must(f"Categories of column {name!r}", condition, way_out, kinds=kinds)
        ) from error


def _are_integers(numbers: FloatArray) -> bool:
    """Tell whether all numbers are integers; NaN does not count."""
    # The first fraction settles it, and most columns show one at once
    head, tail = numbers[:64], numbers[64:]
    return not any(((part != np.floor(part)) & ~np.isnan(part)).any() for part in (head, tail))


def _are_coarse(numbers: FloatArray) -> bool:
    """Tell whether a tenth of the numbers differ so little that the mass of one float may show."""
    some = np.sort(numbers[~np.isnan(numbers)][:: max(1, len(numbers) // _MAX_SORTED)])
    # Any tenth of the numbers, in their order: clusters of close numbers show, single pairs do not
    tenth = -(-len(some) // 10)
    low, high = some[:-tenth], some[tenth:]
    spans = high - low
    return bool(((spans > 0.0) & (spans < COARSE_SPAN * np.maximum(-low, high))).any())


def _to_numbers(name: str | int, values: NDArray[Any], missing_value: object) -> FloatArray:
    """Read a numerical column as floats, NaN where missing."""
    if values.dtype == object:
        values = _without_times(name, values)
    try:
        # A copy: the missing value is overwritten below
        numbers = np.array(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        numbers = _objects_to_numbers(name, values, missing_value)
    if isinstance(missing_value, Real):
        numbers[numbers == missing_value] = np.nan
    refuse_extremes(name, numbers)
    return numbers


def _without_times(name: str | int, cells: NDArray[Any]) -> NDArray[Any]:
    """Refuse dates of NumPy, which would make numbers of them and of NaT; NaT is missing."""
    kinds = np.datetime64 | np.timedelta64
    is_time = np.array([isinstance(cell, kinds) for cell in cells.tolist()], dtype=bool)
    for cell in cells[is_time]:
        if not np.isnat(cell):
            raise no_numbers_or_categories(name, cell.dtype)
    return np.where(is_time, np.nan, cells)


def refuse_extremes(name: str | int, numbers: FloatArray) -> None:
    """Refuse infinite cells, and those whose square, a term of every variance, would be."""
    extreme = np.abs(numbers) > MAX_CELL
    if not extreme.any():
        return
    value = float(numbers[extreme][0])
    condition, way_out = f"be at most {MAX_CELL:g} in magnitude", "Rescale the column."
    # Infinity is usually a mark of its own, which deserves another advice
    if np.isinf(numbers).any():
        condition = "be finite or missing, not infinity"
        way_out = "Replace infinite cells by NaN or by a finite bound."
        value = float(numbers[np.isinf(numbers)][0])
    raise invalid(f"Cells of column {name!r}", condition, way_out, value=value)


def _refuse_tiny_range(name: str | int, spread: float) -> None:
    """Refuse numbers that differ by so little that the inverse of their variance overflows."""
    if 0.0 < spread < MIN_RANGE:
        condition = f"be all the same or differ by at least {MIN_RANGE:g}"
        way_out = "Rescale the column."
        raise invalid(f"Numbers of column {name!r}", condition, way_out, range=float(spread))


def _objects_to_numbers(name: str | int, values: NDArray[Any], missing_value: object) -> FloatArray:
    """Read objects one by one, for columns that NumPy cannot convert as a whole."""
    cells = [np.nan if is_missing(cell, missing_value) else cell for cell in values.tolist()]
    numbers = np.empty(len(cells))
    for row, cell in enumerate(cells):
        # One by one, so that the error can show the cell
        try:
            numbers[row] = float(cell)
        except OverflowError as error:
            condition = f"be at most {MAX_CELL:g} in magnitude"
            raise invalid(f"Cells of column {name!r}", condition, "Rescale it.") from error
        except (TypeError, ValueError) as error:
            condition = "be numbers or missing: argument must be a string or a real number"
            way_out = "Convert the column, or name it in categorical_features."
            raise type(error)(
                must(f"Cells of column {name!r}", condition, way_out, value=cell)
            ) from error
    return numbers


def _warn_if_unknown(column: Column, values: NDArray[Any], missing_value: object) -> None:
    unknown = _distinct(column.name, values, missing_value)
    if unknown:
        assert column.categories is not None
        # Most often codes in place of labels, or text in place of numbers
        known = column.categories.tolist()
        warn(
            f"None of the categories of column {column.name!r} was seen in fit, so that all its "
            f"cells are treated as missing; got for example {min(unknown, key=repr)!r}, known "
            f"are {known[:5]}{' and more' if len(known) > 5 else ''}. Convert the column to the "
            "type of categories that it had in fit.",
        )


def _refuse_unknown(column: Column, suspects: NDArray[Any], missing_value: object) -> None:
    unknown = _distinct(column.name, suspects, missing_value)
    if unknown:
        assert column.categories is not None
        raise invalid(
            f"Categories of column {column.name!r}",
            f"be among the categories seen in fit, {column.categories.tolist()!r}",
            "Leave the cell empty, or pass handle_unknown='missing' if the estimator takes it.",
            value=min(unknown, key=str),
        )


# Numbers of days hold microseconds for some centuries
_UNIT: Final = "us"
_PER_DAY = 86_400_000_000


def read_date(column: Column, value: Any) -> float:
    """Days since 1970 of a date in a query, by default in the time zone of the column."""
    what = f"What column {column.name!r} is compared with"
    try:
        # NumPy reads ISO texts and date objects alike, but drops offsets of texts
        value = _with_offset(value) if isinstance(value, str) else value
        is_local = _zone_of(value) is None
        date = np.datetime64(value if isinstance(value, str) else _without_zone(value))
    except (TypeError, ValueError) as error:
        condition, way_out = "be a date", "Write '2024-03-01', or pass a datetime."
        raise invalid(what, condition, way_out, value=value) from error
    if np.isnat(date):
        raise invalid(what, "be a date", value=value)
    if column.time_zone is None and not is_local:
        condition = "be a date without a time zone, as in the table"
        raise invalid(what, condition, "Leave the time zone out.", value=str(value))
    if column.time_zone is not None and is_local:
        date = _between_zones(date, column.time_zone, "UTC")
    return float(to_days(np.array([date]))[0])


def in_local_time(column: Column, dates: NDArray[Any]) -> NDArray[Any]:
    """Dates of a column in its own time zone, from those in universal time."""
    if column.time_zone is None:
        return dates
    cells = [_between_zones(date, "UTC", column.time_zone) for date in dates.ravel()]
    return np.array(cells, dtype=dates.dtype).reshape(dates.shape)


def as_objects_in_zone(column: Column, dates: NDArray[Any]) -> NDArray[Any]:
    """Date objects in the time zone of their column, from dates in universal time."""
    zone = _zone(column.time_zone)
    moments = np.empty(dates.shape, dtype=object)
    for index, date in np.ndenumerate(dates.astype(f"datetime64[{_UNIT}]").astype(object)):
        # None where missing, a number beyond the years of Python
        is_date = isinstance(date, datetime.datetime)
        moments[index] = date.replace(tzinfo=datetime.UTC).astimezone(zone) if is_date else date
    return moments


def _zone(zone: str | datetime.tzinfo | None) -> datetime.tzinfo | None:
    return ZoneInfo(zone) if isinstance(zone, str) else zone


def _between_zones(
    date: np.datetime64, own: str | datetime.tzinfo, other: str | datetime.tzinfo
) -> np.datetime64:
    """Date and time in another zone at the moment at which they are these in the own zone."""
    moment = date.astype(f"datetime64[{_UNIT}]").item()
    if not isinstance(moment, datetime.datetime):  # not a date, or beyond the years of Python
        return date
    try:
        moved = moment.replace(tzinfo=_zone(own)).astimezone(_zone(other))
    except OverflowError:  # beyond these years in the other zone, as the last day of 9999 may be
        return date
    return np.datetime64(moved.replace(tzinfo=None), _UNIT)


def dates_of_days(days: FloatArray) -> NDArray[Any]:
    """Dates of dtype datetime64 from days since 1970 of any shape, NaT where NaN."""
    is_missing = np.isnan(days)
    ticks = np.round(np.where(is_missing, 0.0, days) * _PER_DAY).astype(np.int64)
    dates = ticks.astype(f"datetime64[{_UNIT}]")
    dates[is_missing] = np.datetime64("NaT")
    return dates


def to_days(values: NDArray[Any]) -> FloatArray:
    """Days since 1970 of dates of dtype datetime64, NaN where missing."""
    ticks = values.astype(f"datetime64[{_UNIT}]")
    return np.where(np.isnat(ticks), np.nan, ticks.astype(np.int64) / _PER_DAY)


def _with_offset(text: str) -> str | datetime.datetime:
    """Date object of a text that ends with an offset from universal time; others as they are."""
    try:
        date = datetime.datetime.fromisoformat(text)
    except ValueError:
        return text
    return text if date.tzinfo is None else date


def _without_zone(value: Any) -> Any:
    """Date object that NumPy reads; numbers are no dates."""
    if isinstance(value, int | float):
        raise TypeError("a number is not a date")
    if hasattr(value, "to_datetime64"):
        return value.to_datetime64()
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value
