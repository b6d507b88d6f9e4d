"""Columns of every dtype of pandas and polars: one answer for the same cells, or a refusal."""

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose

from skcircuits import ChowLiuDensity

CODES = (np.arange(24) % 5).tolist()
OTHER = np.arange(24.0)
IS_MISSING = np.arange(24) % 7 == 0
DAY = datetime.datetime(2020, 1, 1)
MAKE = {
    "number": lambda k: k,
    "decimal": decimal.Decimal,
    "word": str,
    "flag": lambda k: k > 2,
    "date": lambda k: (DAY + datetime.timedelta(k)).date(),
    "moment": lambda k: DAY + datetime.timedelta(k),
    "time": datetime.time,
    "duration": datetime.timedelta,
    "bytes": lambda k: str(k).encode(),
    "list": lambda k: [k, k],
    "struct": lambda k: {"u": k},
    "object": lambda k: object(),
    "complex": complex,
}
WORDS = list(map(str, range(5)))
POLARS = {
    "number": [
        *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
        *(pl.Float32, pl.Float64),
    ],
    "decimal": [pl.Decimal(10, 2)],
    "word": [pl.String, pl.Categorical, pl.Enum(WORDS)],
    "flag": [pl.Boolean],
    "date": [pl.Date],
    "moment": [*map(pl.Datetime, ("ms", "us", "ns")), pl.Datetime("us", "UTC")],
}
PANDAS = {
    "number": [
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"),
        *("float16", "float32", "float64", "Float32", "Float64", "object"),
    ],
    "word": ["str", "string", "object", "category", pd.CategoricalDtype(WORDS, ordered=True)],
    "flag": ["bool", "boolean"],
    "moment": [
        *("datetime64[s]", "datetime64[ms]", "datetime64[us]", "datetime64[ns]"),
        "datetime64[ns, UTC]",
    ],
}
POLARS_REFUSED = {
    "time": pl.Time, "duration": pl.Duration, "bytes": pl.Binary, "object": pl.Object,
    "list": pl.List(pl.Int64), "struct": pl.Struct({"u": pl.Int64}),
}  # fmt: skip
PANDAS_REFUSED = {
    "duration": "timedelta64[ns]", "complex": "complex128", "list": "object",
    "object": "object", "number": "Sparse[float64]",
}  # fmt: skip
# Without a type of their own for missing cells
NEVER_MISSING = ("int", "uint", "bool")


def polars_table(kind, dtype):
    column = pl.Series("x", list(map(MAKE[kind], CODES)), dtype=dtype)
    frame = pl.DataFrame({"x": column, "y": OTHER})
    if dtype == pl.Object:
        return frame
    return frame.with_columns(x=pl.when(pl.Series(IS_MISSING)).then(None).otherwise(pl.col("x")))


def pandas_table(kind, dtype):
    column = pd.Series(list(map(MAKE[kind], CODES)), dtype="object")
    if not str(dtype).startswith(NEVER_MISSING):
        column = column.mask(IS_MISSING, np.nan if "Sparse" in str(dtype) else None)
    if "UTC" in str(dtype):
        column = pd.to_datetime(column, utc=True)
    column = column.astype("float64") if "Sparse" in str(dtype) else column
    return pd.DataFrame({"x": column.astype(dtype), "y": OTHER})


def scores(table):
    return ChowLiuDensity(random_state=0).fit(table).score_samples(table)


def plain_scores(kind, has_missing):
    """Those of floating-point numbers, or of texts."""
    values = CODES if kind in ("number", "decimal", "date", "moment") else map(MAKE[kind], CODES)
    column = pd.Series(list(values), dtype="float64" if kind not in ("word", "flag") else "object")
    if kind in ("date", "moment"):
        column = pd.to_datetime(DAY) + pd.to_timedelta(column, unit="D")
    return scores(
        pd.DataFrame({"x": column.mask(IS_MISSING) if has_missing else column, "y": OTHER})
    )


def cases(tables):
    return [pytest.param(kind, one, id=f"{kind}-{one}") for kind in tables for one in tables[kind]]


@pytest.mark.parametrize(("kind", "dtype"), cases(POLARS))
def test_columns_of_polars(kind, dtype):
    assert_allclose(scores(polars_table(kind, dtype)), plain_scores(kind, True), rtol=1e-9)


@pytest.mark.parametrize(("kind", "dtype"), cases(PANDAS))
def test_columns_of_pandas(kind, dtype):
    table = pandas_table(kind, dtype)
    assert_allclose(scores(table), plain_scores(kind, table["x"].isna().any()), rtol=1e-9)


@pytest.mark.parametrize("kind", POLARS_REFUSED)
def test_columns_of_polars_that_are_no_numbers(kind):
    with pytest.raises((ValueError, TypeError), match="column 'x'"):
        scores(polars_table(kind, POLARS_REFUSED[kind]))


@pytest.mark.parametrize("kind", PANDAS_REFUSED)
def test_columns_of_pandas_that_are_no_numbers(kind):
    with pytest.raises((ValueError, TypeError), match=r"column 'x'|[Cc]omplex"):
        scores(pandas_table(kind, PANDAS_REFUSED[kind]))
