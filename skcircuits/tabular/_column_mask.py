"""Columns that a parameter names: by a mask, by indices or by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skcircuits.exceptions import must
from skcircuits.protocols import BoolArray

__all__ = ["column_mask"]


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
