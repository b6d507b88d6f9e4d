"""One column of a table: what is learned from its cells, and cells to codes and back."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skcircuits.exceptions import must
from skcircuits.protocols import LARGEST_CELL, SMALLEST_RANGE, FloatArray
from skcircuits.tabular._frames import RawColumn, no_numbers_or_labels

__all__ = ["Column", "holds_labels", "is_missing", "learn_column", "refuse_extremes"]


@dataclass(frozen=True)
class Column:
    """What a table's column holds.

    Attributes
    ----------
    name : str or int
        Name in a dataframe, position in an array.
    categories : ndarray of shape (k,) or None
        Labels of a categorical column in the order of their codes; None for numbers.
    is_integral : bool
        True where all numbers seen were whole.
    """

    name: str | int
    categories: NDArray[Any] | None
    is_integral: bool

    @property
    def cardinality(self) -> int:
        """Number of categories, 0 for a column of numbers.

        A categorical column without a single label counts one state, so that a
        distribution over it exists; that state decodes to a missing cell.
        """
        return 0 if self.categories is None else max(1, len(self.categories))

    @property
    def text_name(self) -> str:
        """Name in texts and drawings: columns of an array are x0, x1, ...."""
        return self.name if isinstance(self.name, str) else f"x{self.name}"

    def code_of(self, label: object) -> int:
        """Find the code of a label in a query.

        Parameters
        ----------
        label : object
            One label.

        Returns
        -------
        int
            Its position in ``categories``.

        Raises
        ------
        ValueError
            If the label is no category.
        """
        known = [] if self.categories is None else self.categories.tolist()
        if label in known:
            return known.index(label)
        raise ValueError(
            must(
                f"Labels of column {self.name!r} in a query",
                "be among its categories",
                f"They are {known}.",
                label=label,
            )
        )

    def encode(
        self, values: NDArray[Any], *, missing_value: object = np.nan, refuse_unknown: bool = False
    ) -> FloatArray:
        """Turn cells into numbers or codes.

        Parameters
        ----------
        values : ndarray of shape (n,)
            Cells of the column.
        missing_value : object, default=nan
            A cell that counts as missing, beside None, NaN and a library's own NA.
        refuse_unknown : bool, default=False
            Raise for a label that is no category instead of taking it as missing.

        Returns
        -------
        ndarray of shape (n,)
            Numbers, or codes into ``categories``; NaN where missing.

        Raises
        ------
        ValueError
            If a number is infinite, a cell is no number but for example a date, or a label is
        unknown.

        Warns
        -----
        UserWarning
            If several rows have labels, and none of them is known: more likely labels of
            another kind (1 and "1") than new ones.
        """
        if self.categories is None:
            return _to_numbers(self.name, values, missing_value)
        code_of = {label: code for code, label in enumerate(self.categories.tolist())}
        cells = values.tolist()
        # One lookup per cell in C: any hashable label, missing and unknown ones give NaN
        codes = np.fromiter(map(code_of.get, cells, repeat(np.nan)), float, len(cells))
        if refuse_unknown and np.isnan(codes).any():
            _refuse_unknown(self, values[np.isnan(codes)], missing_value)
        if len(codes) > 1 and np.isnan(codes).all():
            _warn_if_unknown(self, values, missing_value)
        return codes

    def decode(self, codes: FloatArray) -> NDArray[Any]:
        """Turn numbers or codes back into cells.

        Parameters
        ----------
        codes : ndarray of any shape
            Numbers or codes as `encode` gives them.

        Returns
        -------
        ndarray of the same shape
            Floats, or labels (object) of a categorical column whose labels are not numbers.
        """
        if self.categories is None:
            return codes
        # Labels that are numbers come back as numbers: an array of them stays one of floats
        has_numbers = self.categories.dtype.kind in "iuf" and len(self.categories) > 0
        missing: Any = np.nan if has_numbers else None
        # One entry more than labels: NaN and the state of a column without labels land there
        labels = np.append(self.categories.astype(float if has_numbers else object), missing)
        n_labels = len(self.categories)
        return labels[np.where(codes < n_labels, codes, n_labels).astype(int)]


def learn_column(raw: RawColumn, is_categorical: bool, missing_value: object = np.nan) -> Column:
    """Learn what a column holds.

    Parameters
    ----------
    raw : RawColumn
        Cells of the column and what its container says.
    is_categorical : bool
        Whether its cells are labels.
    missing_value : object, default=nan
        A cell that counts as missing, beside None, NaN and a library's own NA.

    Returns
    -------
    Column
        Name, categories in order, and whether numbers are whole.

    Raises
    ------
    TypeError
        If labels of different kinds cannot be sorted.
    ValueError
        If a cell of a numeric column is no finite number, or its numbers differ by less than
        densities can resolve.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.tabular._columns import learn_column
    >>> from skcircuits.tabular._frames import RawColumn
    >>> raw = RawColumn("job", np.array(["nurse", None, "cook"], dtype=object), True)
    >>> learn_column(raw, is_categorical=True).categories
    array(['cook', 'nurse'], dtype=object)
    """
    if is_categorical:
        return Column(raw.name, _learn_categories(raw, missing_value), False)
    numbers = _to_numbers(raw.name, raw.values, missing_value)
    _refuse_tiny_range(raw.name, numbers)
    return Column(raw.name, None, _are_whole(numbers))


def holds_labels(raw: RawColumn, missing_value: object = np.nan) -> bool:
    """Tell whether a column holds labels: by its dtype, else by its cells.

    Parameters
    ----------
    raw : RawColumn
        Cells of the column and what its container says.
    missing_value : object, default=nan
        A cell that counts as missing, beside None, NaN and a library's own NA.

    Returns
    -------
    bool
        True for labels: any string among the cells, or nothing but booleans.
    """
    if raw.holds_labels is not None:
        return raw.holds_labels
    # An object column of numbers is numeric, as it is for scikit-learn
    labels = _distinct(raw.name, raw.values, missing_value)
    if any(isinstance(label, str | bytes) for label in labels):
        return True
    return bool(labels) and all(isinstance(label, bool | np.bool_) for label in labels)


def is_missing(value: object, missing_value: object = np.nan) -> bool:
    """Tell whether one cell is missing.

    Parameters
    ----------
    value : object
        The cell.
    missing_value : object, default=nan
        A cell that counts as missing, beside None, NaN and a library's own NA.

    Returns
    -------
    bool
        True for None, NaN, a library's own NA and the missing value.

    Examples
    --------
    >>> from skcircuits.tabular._columns import is_missing
    >>> is_missing(None), is_missing(0.0), is_missing("?", missing_value="?")
    (True, False, True)
    """
    if value is None:
        return True
    try:
        # NaN is the only value that differs from itself
        return bool(value != value or value == missing_value)
    except (TypeError, ValueError):
        return True  # pandas' NA refuses to be a truth value


def _distinct(name: str | int, values: NDArray[Any], missing_value: object) -> set[Any]:
    """Collect the distinct cells that are not missing."""
    try:
        # tolist: Python's own numbers, hashed in C, equal whatever their NumPy dtype was
        cells = set(values.tolist())
    except TypeError as error:
        culprit = next(cell for cell in values.tolist() if getattr(cell, "__hash__", 1) is None)
        raise TypeError(
            f"Cells of column {name!r}: argument must be a string or a real number, "
            f"not {type(culprit).__name__!r}."
        ) from error
    return {cell for cell in cells if not is_missing(cell, missing_value)}


def _learn_categories(raw: RawColumn, missing_value: object) -> NDArray[Any]:
    if raw.declared is not None:
        # Also labels that fit has not seen: the user says that they exist, and in which order
        labels = [label for label in raw.declared if not is_missing(label, missing_value)]
    else:
        labels = _sorted_labels(raw.name, _distinct(raw.name, raw.values, missing_value))
    # Strings of different lengths stay objects, numbers and booleans get their own dtype
    array = np.array(labels)
    return array if array.dtype.kind in "iufb" and labels else np.array(labels, dtype=object)


def _sorted_labels(name: str | int, labels: Iterable[Any]) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in labels})
        raise TypeError(
            must(
                f"Labels of column {name!r}",
                "be uniformly strings or numbers",
                "Convert the column to one kind.",
                kinds=kinds,
            )
        ) from error


def _are_whole(numbers: FloatArray) -> bool:
    """Tell whether there are numbers and all of them are whole; NaN does not count."""
    # The first fraction settles it, and most columns show one at once
    head, tail = numbers[:64], numbers[64:]
    for part in (head, tail):
        if ((part != np.floor(part)) & ~np.isnan(part)).any():
            return False
    return not bool(np.isnan(numbers).all())


def _to_numbers(name: str | int, values: NDArray[Any], missing_value: object) -> FloatArray:
    """Read a numeric column as floats, NaN where missing."""
    if values.dtype == object:
        values = _without_times(name, values)
    try:
        # A copy: the missing value is overwritten below
        numbers = np.array(values, dtype=float)
    except (TypeError, ValueError):
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
            raise no_numbers_or_labels(name, cell.dtype)
    return np.where(is_time, np.nan, cells)


def refuse_extremes(name: str | int, numbers: FloatArray) -> None:
    """Refuse infinite cells, and those whose square, a term of every variance, would be.

    Parameters
    ----------
    name : str or int
        Name of the column.
    numbers : ndarray of shape (n,)
        Its cells.

    Raises
    ------
    ValueError
        If there is such a cell.
    """
    extreme = np.abs(numbers) > LARGEST_CELL
    if not extreme.any():
        return
    value = float(numbers[extreme][0])
    condition, way_out = f"be at most {LARGEST_CELL:g} in magnitude", "Rescale the column."
    if np.isinf(numbers).any():
        condition = "be finite or missing, not infinity"
        way_out = "Replace infinite cells by NaN or by a finite bound."
        value = float(numbers[np.isinf(numbers)][0])
    raise ValueError(must(f"Cells of column {name!r}", condition, way_out, value=value))


def _refuse_tiny_range(name: str | int, numbers: FloatArray) -> None:
    """Refuse numbers that differ by so little that the inverse of their variance overflows."""
    spread = np.fmax.reduce(numbers, initial=-np.inf) - np.fmin.reduce(numbers, initial=np.inf)
    if 0.0 < spread < SMALLEST_RANGE:
        raise ValueError(
            must(
                f"Numbers of column {name!r}",
                f"be all the same or differ by at least {SMALLEST_RANGE:g}",
                "Rescale the column.",
                range=float(spread),
            )
        )


def _objects_to_numbers(name: str | int, values: NDArray[Any], missing_value: object) -> FloatArray:
    """Read objects one by one: the way for columns that NumPy cannot convert as a whole."""
    cells = [np.nan if is_missing(cell, missing_value) else cell for cell in values.tolist()]
    numbers = np.empty(len(cells))
    for row, cell in enumerate(cells):
        # One by one, so that the error can show the cell
        try:
            numbers[row] = float(cell)
        except (TypeError, ValueError) as error:
            raise type(error)(
                must(
                    f"Cells of column {name!r}",
                    "be numbers or missing: argument must be a string or a real number",
                    "Convert the column, or name it in categorical_features.",
                    value=cell,
                )
            ) from error
    return numbers


def _warn_if_unknown(column: Column, values: NDArray[Any], missing_value: object) -> None:
    unknown = _distinct(column.name, values, missing_value)
    if unknown:
        assert column.categories is not None
        known = column.categories.tolist()
        warnings.warn(
            f"None of the labels of column {column.name!r} was seen in fit, so that all its cells "
            f"count as missing; got for example {min(unknown, key=repr)!r}, known are "
            f"{known[:5]}{' and more' if len(known) > 5 else ''}. "
            "Convert the column to the kind of labels it had in fit.",
            stacklevel=2,
        )


def _refuse_unknown(column: Column, suspects: NDArray[Any], missing_value: object) -> None:
    unknown = _distinct(column.name, suspects, missing_value)
    if unknown:
        assert column.categories is not None
        raise ValueError(
            must(
                f"Labels of column {column.name!r}",
                f"be among the categories seen in fit, {column.categories.tolist()!r}",
                "Pass handle_unknown='missing' to take unknown labels as missing.",
                value=min(unknown, key=str),
            )
        )
