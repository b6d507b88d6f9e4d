"""Columns that a parameter names: by a mask, by indices or by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

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
    """Read a choice of columns as a mask.

    Parameters
    ----------
    features : array-like or None
        A boolean mask, indices, or names, told apart by the dtype as scikit-learn does; None
        and an empty list choose no column.
    names : sequence
        Names of the columns.
    parameter : str
        Name of the parameter, for errors.
    keyword : str
        The one string that the caller would have understood, for errors.

    Returns
    -------
    ndarray of bool of shape (d,)
        The mask.

    Raises
    ------
    ValueError
        If a mask has another length, an index or a name is none of the table's, or
        `features` is a string.

    Examples
    --------
    >>> from skcircuits.tabular import column_mask
    >>> column_mask(["age"], ["age", "job"], parameter="integer_features", keyword="auto")
    array([ True, False])
    """
    mask = np.zeros(len(names), dtype=bool)
    if features is None or len(features) == 0:
        return mask
    chosen = np.asarray(features)
    is_mask, is_index = chosen.dtype == bool, chosen.dtype.kind in "iu"
    if (
        chosen.ndim != 1
        or (is_mask and chosen.shape != mask.shape)
        or (is_index and (chosen.min() < 0 or chosen.max() >= len(mask)))
    ):
        raise ValueError(
            must(
                parameter,
                f"be {keyword!r}, None, a boolean mask with one entry per column, "
                "indices of columns, or their names",
                "Count columns from 0.",
                **{parameter: features},
            )
        )
    if is_mask or is_index:
        mask[chosen] = True
        return mask
    positions = {name: position for position, name in enumerate(names)}
    unknown = [name for name in chosen.tolist() if name not in positions]
    if unknown:
        raise ValueError(
            must(
                f"Names in {parameter}",
                "be columns of the table",
                f"Its columns are {list(names)}.",
                unknown=unknown,
            )
        )
    mask[[positions[name] for name in chosen.tolist()]] = True
    return mask
