"""Columns that users name: by a mask, by indices or names; errors name the nearest known one."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skcircuits.exceptions import must
from skcircuits.protocols import BoolArray

MAX_SHOWN = 20


def unknown_column(name: object, known: Sequence[object], hint: str = "") -> ValueError:
    """Word the error about a column that is none of the table."""
    way_out = f"{nearest(name, known)}They are {_shown(known)}.{hint}"
    return ValueError(must("Columns of a query", "be columns of the table", way_out, column=name))


def nearest(name: object, known: Sequence[object]) -> str:
    """Sentence that asks for the nearest known name, empty where none is near."""
    by_text = {str(other): other for other in known}
    close = get_close_matches(str(name), list(by_text), n=1)
    return f"Did you mean {by_text[close[0]]!r}? " if close else ""


def _shown(known: Sequence[object]) -> str:
    shown = list(known)[:MAX_SHOWN]
    return repr(shown) if len(known) <= MAX_SHOWN else f"{repr(shown)[:-1]}, ...]"


def column_mask(
    features: str | Sequence[Any] | None,
    names: Sequence[Any],
    *,
    parameter: str,
    keyword: str,
) -> BoolArray:
    """Read a choice of columns as a mask."""
    mask = np.zeros(len(names), dtype=bool)
    if features is None or len(features) == 0:
        return mask
    chosen = np.asarray(features)
    if not _fits(chosen, len(names)):
        raise ValueError(
            must(
                parameter,
                f"be {keyword!r}, None, a boolean mask with one entry per column, "
                "indices of columns, or their names",
                "Count columns from 0.",
                **{parameter: features},
            )
        )
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
    """Positions of columns by their names."""
    positions = {name: position for position, name in enumerate(names)}
    unknown = [name for name in chosen if name not in positions]
    if unknown:
        raise ValueError(
            must(
                f"Names in {parameter}",
                "be columns of the table",
                f"Its columns are {list(names)}.",
                unknown=unknown,
            )
        )
    return [positions[name] for name in chosen]
