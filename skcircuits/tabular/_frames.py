"""Containers of tables: dividing them into columns and putting results together again.

This is the only module that uses dataframe libraries; it accesses all of them through narwhals.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from skcircuits.exceptions import invalid, must
from skcircuits.protocols import MAX_INTEGER, IntArray

# How to convert columns of dtypes that start with these words.
_WAYS_OUT = {
    "sparse": "Convert the column by .sparse.to_dense().",
    "period": "Convert the column by .dt.to_timestamp().",
    "interval": "Convert the column by .astype('category').",
    "complex": "Divide the column into real and imaginary parts.",
    "timedelta": "Convert the column to a number of days or seconds.",
    "duration": "Convert the column to a number of days or seconds.",
    "time": "Convert the column to a number of hours or seconds.",
}


@dataclass(frozen=True)
class RawColumn:
    """The original cells of one column, and the information of their container about them."""

    name: str | int  # in a dataframe; position in an array
    values: NDArray[Any]  # (n,), numbers (missing: NaN) or objects (missing: None, NaN, NA)
    is_categorical: bool | None  # by the dtype, None if it depends on the cells
    declared: list[Any] | None = None  # categories of the dtype, in their order
    is_ordered: bool = False  # by its declaration, this order compares them
    time_zone: str | tzinfo | None = None  # of dates, which are in universal time in `values`
    is_integral: bool = False  # by the dtype


def is_frame(X: Any) -> bool:
    """Tell whether X is a dataframe of a library that narwhals supports."""
    # Of unknown types narwhals asks its plugins, which it looks for among all installed packages
    if isinstance(X, np.ndarray | list | dict):
        return False
    lazy: dict[str, Callable[[Any], bool]] = {
        "collect": nw.dependencies.is_polars_lazyframe,
        "compute": nw.dependencies.is_dask_dataframe,
    }
    for method, is_lazy in lazy.items():
        if is_lazy(X):
            way_out = f"Pass X.{method}()."
            raise TypeError(must("A table", "be in memory", way_out, X=type(X).__name__))
    return bool(nw.dependencies.is_into_dataframe(X))


def column_names(frame: Any) -> list[Any]:
    """Names of the columns of a dataframe."""
    return list(_opened(frame).columns)


def columns_of_categories(frame: Any) -> list[Any]:
    """Names of the columns of a dataframe whose dtype is one of categories."""
    schema = _opened(frame).schema
    return [name for name, dtype in schema.items() if dtype in (nw.Categorical, nw.Enum)]


def require_unique_names(names: Iterable[Any]) -> None:
    """Refuse names of a dataframe that repeat: results and queries name columns."""
    repeated = [name for name, n in Counter(names).items() if n > 1]
    if repeated:
        condition, way_out = "be unique", "Rename these columns of the input."
        raise invalid("Names of the columns of a dataframe", condition, way_out, repeated=repeated)


def _opened(frame: Any) -> nw.DataFrame[Any]:
    """Open a dataframe by narwhals."""
    try:
        return nw.from_native(frame, eager_only=True)
    except DuplicateError:
        is_arrow = nw.dependencies.is_pyarrow_table(frame)
        require_unique_names(frame.column_names if is_arrow else frame.columns)
        raise


def read_columns(X: Any) -> list[RawColumn]:
    """Cut a table into columns, if it is not."""
    if isinstance(X, list):
        return X
    if is_frame(X):
        return [_read_series(series) for series in _opened(X).iter_columns()]
    if X.dtype.kind in "mMV":
        raise no_numbers_or_categories(0, X.dtype)
    # Objects may be numbers or labels: their cells decide
    is_categorical = {"O": None, "U": True, "S": True}.get(X.dtype.kind, False)
    return [RawColumn(j, X[:, j], is_categorical) for j in range(X.shape[1])]


def narrow_floats(prototype: Any) -> IntArray:
    """Places of the columns that hold floats of 32 bits."""
    if prototype is None:
        return np.empty(0, dtype=np.int64)
    dtypes = _opened(prototype).schema.values()
    return np.flatnonzero([dtype == nw.Float32 for dtype in dtypes])


def select_columns(frame: Any, columns: list[int]) -> Any:
    """Dataframe of some of the columns, by index."""
    # By position: names of pandas may be numbers or tuples
    return _opened(frame)[:, columns].to_native()


def without_rows(frame: Any) -> Any:
    """Dataframe with the same dtypes and no rows."""
    # Rows are taken: a slice would keep those of the whole table in memory
    return _opened(frame)[np.zeros(0, dtype=np.int64), :].to_native()


def no_numbers_or_categories(name: object, dtype: object) -> ValueError:
    """Word the error about cells such as durations."""
    condition, shown = "be numbers, categories or dates of a dataframe", str(dtype)
    ways_out = (way for kind, way in _WAYS_OUT.items() if shown.lower().startswith(kind))
    way_out = next(ways_out, "Convert dates to numbers, or nested cells to several columns.")
    return invalid(f"Cells of column {name!r}", condition, way_out, dtype=shown)


def _read_series(series: nw.Series[Any]) -> RawColumn:
    dtype = series.dtype  # asked once: narwhals derives it each time
    if dtype == nw.Float64:
        return RawColumn(series.name, series.to_numpy(), False)
    zone = _time_zone(series, dtype)
    if zone is not None and dtype == nw.Unknown:
        # narwhals does not know all time zones of pandas: offsets, and names with underscores
        series = nw.from_native(series.to_native().dt.tz_convert("UTC"), series_only=True)
        dtype = series.dtype
    if dtype.is_numeric():
        # The cast turns a library's own NA into NaN
        numbers = series.cast(nw.Float64).to_numpy()
        if dtype.is_integer() and (np.abs(numbers) >= MAX_INTEGER).any():
            # Floats would make one number of several
            numbers = np.array(series.to_list(), dtype=object)
        return RawColumn(series.name, numbers, False, is_integral=dtype.is_integer())
    if dtype in (nw.Categorical, nw.Enum):
        declared, is_ordered = _declared_categories(series)
        if not series.implementation.is_pandas_like():
            # All are strings, and Arrow's codes would count missing cells as the first category
            series = series.cast(nw.String)
        return RawColumn(series.name, series.to_numpy(), True, declared, is_ordered)
    if dtype == nw.Boolean:
        # Both categories exist even if only one occurs in fit
        return RawColumn(series.name, series.to_numpy(), True, [False, True])
    if dtype == nw.String:
        return RawColumn(series.name, series.to_numpy(), True)
    if dtype in (nw.Datetime, nw.Date):
        # Dates without times are objects in some libraries; the unit of others shows what
        # numbers of days lose
        dated = series.cast(nw.Datetime("us")) if dtype == nw.Date else series
        return RawColumn(series.name, dated.to_numpy(), False, time_zone=zone)
    if dtype == nw.Object:
        # It depends on the cells: objects may be numbers, categories, or invalid cells
        return RawColumn(series.name, series.to_numpy(), None)
    if series.is_null().all():
        # A dtype of its own in polars, for cells that could have been anything
        return RawColumn(series.name, np.full(len(series), np.nan), False)
    # narwhals knows no name for dtypes such as pandas' periods
    native = series.to_native().dtype if dtype == nw.Unknown else dtype
    raise no_numbers_or_categories(series.name, native)


def _time_zone(series: nw.Series[Any], dtype: nw.dtypes.DType) -> str | tzinfo | None:
    """Name of the time zone of dates, or pandas' object where it has none."""
    if series.implementation.is_pandas_like():
        zone = getattr(series.to_native().dtype, "tz", None)
        if zone is not None:
            return zone_name(zone)
    return getattr(dtype, "time_zone", None)


def zone_name(zone: tzinfo) -> str | tzinfo:
    """Name of a time zone of Python or pytz, or the object where it has none."""
    return getattr(zone, "key", None) or getattr(zone, "zone", None) or zone


def _declared_categories(series: nw.Series[Any]) -> tuple[list[Any] | None, bool]:
    """Categories in their declared order, None without one, and whether it compares them."""
    if series.implementation.is_pandas_like():
        # narwhals gives the categories of a pandas column that occur, not the declared ones
        dtype = series.to_native().dtype
        if hasattr(dtype, "categories"):
            return list(dtype.categories), bool(dtype.ordered)
        return None, False
    if isinstance(series.dtype, nw.Enum):
        return list(series.dtype.categories), True
    return None, False


def build_frame(columns: Mapping[Any, NDArray[Any]], like: Any, backend: str | None = None) -> Any:
    """Put columns in a dataframe, with the dtypes of `like` where these can hold the cells."""
    known = None if like is None else _opened(like)
    library: Any = known.implementation if known is not None and backend is None else backend
    # Asked once: narwhals takes the dtypes of all columns for each question
    dtypes: Mapping[Any, Any] = {} if known is None else known.schema
    cells = {
        name: _to_native_cells(_in_unit_of(dtypes.get(name), values))
        for name, values in columns.items()
    }
    frame = nw.from_dict(cells, backend=library)
    if known is None:
        return frame.to_native()
    restorable = {
        name: dtypes[name]
        for name, values in columns.items()
        if name in dtypes and _can_hold(known, name, dtypes[name], values)
    }
    # Dates are read, and come back, in universal time
    zones = {
        name: _time_zone(known.get_column(name), dtype)
        for name, dtype in restorable.items()
        if dtype.is_temporal() or dtype == nw.Unknown
    }
    in_zones = [
        # Zones without a name are pandas' own, whose dtypes come back below
        nw.col(name)
        .dt.replace_time_zone("UTC")
        .dt.convert_time_zone(zone if isinstance(zone, str) else "UTC")
        for name, zone in zones.items()
        if zone is not None
    ]
    frame = frame.with_columns(*in_zones) if in_zones else frame
    if known.implementation == frame.implementation and known.implementation.is_pandas_like():
        # narwhals dtypes do not distinguish nullable and ordered pandas dtypes
        wanted, result = known.to_native().dtypes, frame.to_native()
        found = result.dtypes
        changed = [name for name in restorable if found[name] != wanted[name]]
        return result.astype({name: wanted[name] for name in changed}) if changed else result
    # Only strings can be categories in every library; pandas has no dtype for dates without times
    casts = [
        nw.col(name).cast(_without_seconds(dtype))
        for name, dtype in restorable.items()
        if dtype not in (nw.Unknown, nw.Object)
        and not _holds_objects(known, name)
        and not (dtype == nw.Date and frame.implementation.is_pandas_like())
        and not isinstance(zones.get(name), tzinfo)
        and (dtype not in (nw.Categorical, nw.Enum) or columns[name].dtype == object)
    ]
    return frame.with_columns(*casts).to_native() if casts else frame.to_native()


def append_columns(X: Any, names: list[str], columns: NDArray[np.float64]) -> Any:
    """Give a table, a dataframe or an array, more numerical columns on its right side."""
    if not is_frame(X):
        return np.hstack([X, columns.astype(X.dtype if X.dtype == object else np.float64)])
    frame = _opened(X)
    series = [
        nw.new_series(name, values=column, backend=frame.implementation)
        for name, column in zip(names, columns.T)
    ]
    if frame.implementation.is_pandas_like():
        # A row index would be aligned
        return X.assign(**{column.name: column.to_numpy() for column in series})
    return frame.with_columns(*series).to_native()


def with_constant_columns(X: Any, positions: list[int]) -> Any:
    """Replace columns of a table by zeros, those of dates by the first day of all numbers."""
    if not positions:
        return X
    if not is_frame(X):
        X = np.array(X, dtype=None if X.dtype.kind == "O" else np.float64)
        X[:, positions] = 0.0
        return X
    frame = _opened(X)
    zeros = [
        (nw.lit(0).cast(dtype) if dtype.is_temporal() else nw.lit(0.0)).alias(name)
        for name, dtype in [list(frame.schema.items())[j] for j in positions]
    ]
    return frame.with_columns(*zeros).to_native()


def with_index_of(frame: Any, X: Any) -> Any:
    """Give a dataframe the row index of another table, where both have one."""
    tables = [frame, X]
    if all(is_frame(t) and nw.from_native(t).implementation.is_pandas_like() for t in tables):
        return frame.set_axis(X.index, axis=0)
    return frame


def _to_native_cells(values: NDArray[Any]) -> Any:
    # From lists of categories every library infers its own dtype; from objects some do not
    return values.tolist() if values.dtype == object else values


def _in_unit_of(dtype: Any, values: NDArray[Any]) -> NDArray[Any]:
    """Round dates to the unit of a column of the known frame, which would cut off the rest."""
    if values.dtype.kind != "M" or not isinstance(dtype, nw.Date | nw.Datetime):
        return values
    step = np.timedelta64(1, "D" if isinstance(dtype, nw.Date) else dtype.time_unit)
    # Up to the middle of a unit; results keep their dtype, as not all libraries know seconds
    half = step.astype(values.dtype.str.replace("M", "m")) // 2
    rounded = (values + half).astype(f"datetime64[{np.datetime_data(step)[0]}]")
    return rounded.astype(values.dtype)


def _without_seconds(dtype: Any) -> Any:
    """Dtype of dates in a unit that all libraries know; others stay as they are."""
    if isinstance(dtype, nw.Datetime) and dtype.time_unit == "s":
        return nw.Datetime("ms", dtype.time_zone)
    return dtype


def _can_hold(known: nw.DataFrame[Any], name: Any, dtype: Any, values: NDArray[Any]) -> bool:
    """Tell whether a column of the known frame, of some dtype, can hold these cells."""
    if dtype.is_integer() and values.dtype.kind == "f":
        # A decoded column may hold missing cells or fractions: both stay floats
        numbers = values[~np.isnan(values)]
        holds_all = len(numbers) == len(values) or _is_nullable(known, name)
        return holds_all and bool((numbers == np.floor(numbers)).all()) and _fits(dtype, numbers)
    if dtype in (nw.Categorical, nw.Enum):
        declared, _ = _declared_categories(known.get_column(name))
        return declared is None or {*values.tolist()} <= {*declared, None}
    if dtype == nw.Boolean:
        return _is_nullable(known, name) or all(value is not None for value in values.tolist())
    return True


def _holds_objects(known: nw.DataFrame[Any], name: Any) -> bool:
    """Tell whether a column of pandas holds any objects; without rows narwhals sees strings."""
    is_pandas = known.implementation.is_pandas_like()
    return is_pandas and str(known.to_native().dtypes[name]) == "object"


def _is_nullable(known: nw.DataFrame[Any], name: Any) -> bool:
    """Tell whether a pandas numerical column or booleans has a mark for missing cells."""
    if not known.implementation.is_pandas_like():
        return False
    return hasattr(known.to_native().dtypes[name], "na_value")


def _fits(dtype: Any, values: NDArray[Any]) -> bool:
    """Tell whether integers lie within the range of a narwhals integer dtype."""
    # NumPy knows no limits of 128 bits
    is_signed = not str(dtype).startswith("U")
    most = 2 ** (int(re.sub(r"\D", "", str(dtype))) - is_signed)
    least = -most if is_signed else 0
    return values.size == 0 or bool(least <= values.min() and values.max() < most)
