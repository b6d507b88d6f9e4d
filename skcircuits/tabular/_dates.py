"""Dates as numbers: days since 1970."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray

__all__ = ["Dates"]

# Numbers of days hold microseconds for some centuries
_UNIT = "us"
_PER_DAY = 86_400_000_000


@dataclass(frozen=True)
class Dates:
    """How a column of dates is read as days since 1970; `has_times` tells of parts of days."""

    has_times: bool

    @classmethod
    def learn(cls, values: NDArray[Any]) -> Dates:
        """See whether dates of dtype datetime64, shape (n,), have times of day."""
        days = to_days(values)
        return cls(bool(((days != np.floor(days)) & ~np.isnan(days)).any()))

    def read(self, name: object, value: Any) -> float:
        """Days of one date in a query: a text such as "2024-03-01", or a date object."""
        try:
            date = np.datetime64(value if isinstance(value, str) else _without_zone(value))
        except (TypeError, ValueError) as error:
            condition, way_out = "be a date", "Write '2024-03-01', or pass a datetime."
            what = f"What column {name!r} is compared with"
            raise ValueError(must(what, condition, way_out, value=value)) from error
        days = to_days(np.array([date]))[0]
        if np.isnan(days):
            what = f"What column {name!r} is compared with"
            raise ValueError(must(what, "be a date", value=value))
        return float(days)

    def decode(self, days: FloatArray) -> NDArray[Any]:
        """Dates of dtype datetime64 from days of any shape, NaT where NaN."""
        is_missing = np.isnan(days)
        ticks = np.round(np.where(is_missing, 0.0, days) * _PER_DAY).astype(np.int64)
        dates = ticks.astype(f"datetime64[{_UNIT}]")
        dates[is_missing] = np.datetime64("NaT")
        return dates


def to_days(values: NDArray[Any]) -> FloatArray:
    """Days since 1970 of dates of dtype datetime64, NaN where missing."""
    ticks = values.astype(f"datetime64[{_UNIT}]")
    return np.where(np.isnat(ticks), np.nan, ticks.astype(np.int64) / _PER_DAY)


def _without_zone(value: Any) -> Any:
    """Date object that NumPy reads; numbers are no dates."""
    if isinstance(value, int | float):
        raise TypeError("a number is no date")
    return value.to_datetime64() if hasattr(value, "to_datetime64") else value
