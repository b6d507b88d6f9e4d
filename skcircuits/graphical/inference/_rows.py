"""Rows and evidence of categorical models: codes, missing values and names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.numerics._arrays import float_array, listed
from skcircuits.numerics._patterns import distinct_patterns
from skcircuits.protocols import BoolArray, FloatArray, IntArray

Evidence = Mapping[Any, Any] | ArrayLike | None
Names = tuple[str, ...] | None
StateNames = tuple[tuple[str, ...], ...] | None


def read_rows(
    X: Any,
    cardinalities: IntArray,
    variable_names: Names = None,
    state_names: StateNames = None,
) -> tuple[IntArray, BoolArray]:
    """Split rows into codes and missing cells; dataframes are read by the names of their columns.

    Dataframes none of whose columns is a variable are read by position, as arrays are.
    """
    columns = list(getattr(X, "columns", ()))
    if variable_names is not None and any(name in variable_names for name in columns):
        X = _by_names(X, columns, variable_names, state_names)
    table = float_array(X, "X")
    if table.ndim != 2 or table.shape[1] != len(cardinalities):
        raise ValueError(must("X", f"have shape (n, {len(cardinalities)})", shape=table.shape))
    missing = np.isnan(table)
    # Any valid state: columns of missing cells are not read.
    filled = np.where(missing, 0.0, table)
    invalid = (filled < 0) | (filled >= cardinalities) | (filled != np.floor(filled))
    if invalid.any():
        # One example is more informative than a count.
        row, column = np.argwhere(invalid)[0].tolist()
        what = f"cells of column {column} of X"
        condition = f"be states between 0 and {cardinalities[column] - 1}"
        way_out = "Encode the categories first."
        raise ValueError(must(what, condition, way_out, value=float(table[row, column])))
    return filled.astype(np.int64), missing


def _by_names(
    X: Any, columns: list[Any], variable_names: tuple[str, ...], state_names: StateNames
) -> FloatArray:
    """Rows of a dataframe, NaN in variables that it lacks; cells are states or their numbers."""
    unknown = [name for name in columns if name not in variable_names]
    if unknown or len(set(columns)) < len(columns):
        condition = f"be different variables of {variable_names}"
        way_out = "Drop the others."
        raise ValueError(must("columns of X", condition, way_out, columns=columns))
    table = np.full((len(X), len(variable_names)), np.nan)
    for name in columns:
        column = variable_names.index(name)
        if np.asarray(X[name]).dtype.kind in "biuf":
            table[:, column] = X[name]
            continue
        names = state_names[column] if state_names else None
        cells = np.asarray(X[name], dtype=object).tolist()
        codes = {
            cell: np.nan
            if _is_missing(cell)
            else _position(cell, names, f"state of variable {name!r}")
            for cell in dict.fromkeys(cells)
        }
        table[:, column] = [codes[cell] for cell in cells]
    return table


def _is_missing(cell: Any) -> bool:
    # pandas' NA compares to nothing, not even to itself
    return cell is None or (not isinstance(cell, str) and str(cell) in ("nan", "<NA>"))


def missing_patterns(missing: BoolArray) -> Iterator[tuple[IntArray, frozenset[int]]]:
    """Group rows by the set of their missing columns."""
    patterns, members = distinct_patterns(missing)
    for index, pattern in enumerate(patterns):
        yield (members == index).nonzero()[0], frozenset(pattern.nonzero()[0].tolist())


def evidence_row(
    evidence: Evidence,
    n_variables: int,
    variable_names: Names = None,
    state_names: StateNames = None,
) -> FloatArray:
    """Turn evidence into one row, NaN where unknown."""
    if evidence is not None and not isinstance(evidence, Mapping):
        row = np.atleast_2d(float_array(evidence, "evidence"))
        if row.shape != (1, n_variables):
            raise ValueError(
                must("evidence", f"be one row of {n_variables} cells", shape=row.shape)
            )
        return row
    row = np.full((1, n_variables), np.nan)
    for variable, state in (evidence or {}).items():
        column = variable_index(
            variable, n_variables, variable_names, thing="variable of the evidence"
        )
        names = state_names[column] if state_names else None
        row[0, column] = _position(state, names, f"state of variable {variable!r}")
    return row


def variable_index(
    variable: Any, n_variables: int, variable_names: Names = None, *, thing: str = "variable"
) -> int:
    """Column of a variable that is given by number or name."""
    column = _position(variable, variable_names, thing)
    if not 0 <= column < n_variables:
        raise ValueError(must(thing, f"be between 0 and {n_variables - 1}", variable=variable))
    return column


def check_names(
    variable_names: Sequence[str] | None,
    state_names: Sequence[Sequence[str]] | None,
    cardinalities: IntArray,
) -> tuple[Names, StateNames]:
    """Check that there is one distinct name per variable."""
    variables = None if variable_names is None else listed(variable_names, "variable_names")
    if variables is not None:
        _check_distinct(variables, len(cardinalities), "variable_names")
    states = None
    if state_names is not None:
        each = listed(state_names, "state_names")
        states = tuple(listed(names, "state_names of every variable") for names in each)
    if states is not None:
        _check_distinct(range(len(states)), len(cardinalities), "state_names")
        for variable, (names, count) in enumerate(zip(states, cardinalities.tolist())):
            _check_distinct(names, count, f"state_names of variable {variable}")
    return variables, states


def _check_distinct(names: Sequence[Any], count: int, thing: str) -> None:
    try:
        n_different = len(set(names))
    except TypeError as error:
        raise TypeError(must(thing, "be names", names=list(names))) from error
    if len(names) != count or n_different != count:
        raise ValueError(must(thing, f"be {count} different names", names=list(names)))


def _position(label: Any, names: Names, thing: str) -> int:
    if not isinstance(label, str):
        # Numbers of a table are floats; 0.5, NaN and None are no positions.
        is_integer = isinstance(label, (Integral, np.bool_))
        if is_integer or (isinstance(label, Real) and float(label).is_integer()):
            return int(label)
        raise ValueError(must(thing, "be a name or an integer", label=label))
    if names is None or label not in names:
        raise ValueError(must(thing, f"be one of {names}", "Or use its number.", label=label))
    return names.index(label)
