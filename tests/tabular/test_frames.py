"""Dataframes of every library: which are known, cut into columns, put together again."""

import gc
import weakref
from datetime import date, time

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skcircuits import ChowLiuDensity, CircuitImputer
from skcircuits.tabular._frames import (
    build_frame,
    is_frame,
    read_columns,
    select_columns,
    with_index_of,
    without_rows,
)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (pd.DataFrame({"a": [1]}), True),
        (pl.DataFrame({"a": [1]}), True),
        (pd.Series([1]), False),
        (np.eye(2), False),
        ([[1.0]], False),
        ({"a": [1]}, False),
    ],
)
def test_what_is_a_frame(table, expected):
    assert is_frame(table) is expected


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_columns_come_with_what_their_dtype_says(library):
    frame = library.DataFrame({"number": [1, 2], "word": ["a", "b"], "truth": [True, False]})
    number, word, truth = read_columns(frame)
    assert [column.name for column in (number, word, truth)] == ["number", "word", "truth"]
    assert [column.is_categorical for column in (number, word, truth)] == [False, True, True]
    assert number.values.dtype == np.float64
    assert truth.declared == [False, True]


def test_columns_with_numbers_as_names():
    columns = read_columns(pd.DataFrame(np.eye(2)))
    assert [column.name for column in columns] == [0, 1]


@pytest.mark.parametrize("names", [[0, 1], [("a", 1), ("b", 2)]], ids=["numbers", "levels"])
def test_columns_with_names_that_are_no_texts_come_back(names):
    words = pd.Categorical(["u", "v"], ["v", "u"])
    frame = pd.DataFrame({"x": [1, 2], "word": words}).set_axis(pd.Index(names), axis=1)
    number, word = read_columns(frame)
    again = build_frame(dict(zip(frame.columns, [number.values, np.array(word.values)])), frame)
    assert again.dtypes.tolist() == frame.dtypes.tolist()
    assert again.to_numpy().tolist() == frame.to_numpy().tolist()


def test_dtypes_come_back_where_they_can_hold_the_cells():
    like = pl.DataFrame({"small": pl.Series([1], dtype=pl.Int8), "real": [0.5]})
    fits = build_frame({"small": np.array([3.0, 4.0]), "real": np.array([1.0, 2.0])}, like)
    assert fits.schema == like.schema
    too_large = build_frame({"small": np.array([300.0])}, like)
    assert too_large.schema["small"] == pl.Float64
    missing = build_frame({"small": np.array([np.nan])}, like)
    assert missing.schema["small"] == pl.Float64


def test_unsigned_integers_stay_above_zero():
    like = pd.DataFrame({"a": np.array([1], dtype=np.uint8)})
    assert build_frame({"a": np.array([2.0])}, like)["a"].dtype == np.uint8
    assert build_frame({"a": np.array([-2.0])}, like)["a"].dtype == np.float64


def test_booleans_with_missing_values_stay_objects():
    like = pd.DataFrame({"a": [True]})
    cells = np.array([True, None], dtype=object)
    assert build_frame({"a": cells}, like)["a"].tolist() == [True, None]


@pytest.mark.parametrize(
    ("dtype", "cells", "expected"),
    [
        ("Int64", np.array([3.0, np.nan]), "Int64"),
        ("Int64", np.array([3.5, np.nan]), "float64"),
        ("UInt8", np.array([np.nan, np.nan]), "UInt8"),
        ("boolean", np.array([True, None], dtype=object), "boolean"),
    ],
)
def test_nullable_dtypes_hold_missing_cells(dtype, cells, expected):
    like = pd.DataFrame({"a": pd.array([1, 0], dtype=dtype)})
    frame = build_frame({"a": cells}, like)
    assert str(frame["a"].dtype) == expected
    assert frame["a"].isna().tolist() == [pd.isna(cell) for cell in cells]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dates_come_back_in_their_time_zone(library):
    days, zone = ["2024-03-30 12:00", None, "2024-07-01 23:30"], "Europe/Paris"
    if library == "polars":  # built by polars itself: its conversion from pandas needs pyarrow
        dates = pl.Series("day", days).str.to_datetime("%Y-%m-%d %H:%M", time_zone=zone)
        frame = dates.to_frame()
    else:
        frame = pd.DataFrame({"day": pd.to_datetime(pd.Series(days)).dt.tz_localize(zone)})
    (day,) = read_columns(frame)
    assert day.values[0] == np.datetime64("2024-03-30 11:00")
    again = build_frame({"day": day.values}, frame)
    assert again.equals(frame) and type(again) is type(frame)
    if library == "polars":
        assert again.schema == frame.schema


@pytest.mark.parametrize(("unit", "expected"), [("D", "2020-01-03"), ("s", "2020-01-02T18:00:01")])
def test_dates_are_rounded_to_the_unit_of_their_column(unit, expected):
    cells = np.array(["2020-01-02T18:00:00.700", "NaT"], dtype="datetime64[us]")
    dtype = {"D": pl.Date, "s": "datetime64[s]"}[unit]
    library = pl if unit == "D" else pd
    frame = build_frame({"day": cells}, library.DataFrame({"day": library.Series([], dtype=dtype)}))
    assert frame["day"].dtype == dtype
    days = frame["day"].to_numpy().astype("datetime64[us]")
    np.testing.assert_array_equal(days, np.array([expected, "NaT"], dtype="datetime64[us]"))


def test_seconds_become_milliseconds_where_a_library_knows_none():
    like = pd.DataFrame({"day": pd.Series([], dtype="datetime64[s]")})
    cells = np.array(["2020-01-02T18:00:00.700"], dtype="datetime64[us]")
    frame = build_frame({"day": cells}, like, "polars")
    assert frame.schema == {"day": pl.Datetime("ms")}
    assert frame["day"].to_numpy() == np.datetime64("2020-01-02T18:00:01")


def test_dates_without_times_are_dates_of_pandas():
    like = pl.DataFrame({"day": pl.Series([], dtype=pl.Date)})
    cells = np.array(["2020-01-02", "NaT"], dtype="datetime64[us]")
    frame = build_frame({"day": cells}, like, "pandas")
    assert frame["day"].tolist() == [pd.Timestamp("2020-01-02"), pd.NaT]


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (np.array([1.5, np.nan]), pl.Float64),
        (np.array([True, None], dtype=object), pl.Boolean),
        (np.array(["a", None], dtype=object), pl.String),
        (np.array(["2020-01-02", "NaT"], dtype="datetime64[us]"), pl.Datetime("us")),
    ],
    ids=str,
)
def test_objects_of_pandas_are_what_they_are_in_polars(cells, dtype):
    like = pd.DataFrame({"a": pd.Series([], dtype=object)})
    frame = build_frame({"a": cells}, like, "polars")
    assert frame.schema == {"a": dtype}
    assert frame["a"][0] == cells.tolist()[0]


def test_dates_among_objects_of_polars_are_dates():
    like = pl.DataFrame({"day": pl.Series([date(2020, 1, 2)], dtype=pl.Object)})
    cells = np.array(["2020-01-02", "NaT"], dtype="datetime64[us]")
    assert build_frame({"day": cells}, like).schema == {"day": pl.Datetime("us")}


@pytest.mark.parametrize("names", [[3, 0, 1], [("a", "x"), ("a", "y"), ("b", "x")]], ids=str)
def test_columns_are_selected_by_place(names):
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=pd.Index(names))
    chosen = select_columns(frame, [2, 0])
    assert chosen.columns.tolist() == [names[2], names[0]]
    assert chosen.to_numpy().tolist() == [[3.0, 1.0]]


def test_tables_of_arrow():
    arrow = pytest.importorskip("pyarrow")
    words = arrow.array(["b", "a", None]).dictionary_encode()
    days = arrow.array([0, 1, None], arrow.date32())
    word, day = read_columns(arrow.table({"word": words, "day": days}))
    # Codes of dictionaries would count missing cells as the first category
    assert word.values.tolist() == ["b", "a", None]
    assert np.isnat(day.values).tolist() == [False, False, True]


def test_densities_learn_tables_of_arrow():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"x": [1.0, 2.0, 4.0, None], "w": ["a", "b", "a", None]})
    density = ChowLiuDensity(random_state=0).fit(table)
    plain = pd.DataFrame({"x": [1.0, 2.0, 4.0, np.nan], "w": ["a", "b", "a", None]})
    np.testing.assert_allclose(density.score_samples(table), density.score_samples(plain))
    assert isinstance(density.sample(2, random_state=0), arrow.Table)


def test_unknown_names_and_no_frame_at_all():
    cells = {"a": np.array([1.0]), "b": np.array(["x"], dtype=object)}
    frame = build_frame(cells, pd.DataFrame({"b": pd.Categorical(["x"])}))
    assert frame["a"].dtype == np.float64
    assert frame["b"].dtype == "category"
    assert isinstance(build_frame(cells, None, "polars"), pl.DataFrame)


def test_empty_frames_keep_their_columns():
    like = pd.DataFrame({"n": [1], "w": ["a"]})
    empty = build_frame({"n": np.empty(0), "w": np.empty(0, dtype=object)}, like)
    assert list(empty.columns) == ["n", "w"]
    assert len(empty) == 0


def test_row_index_moves_between_pandas_frames_only():
    frame, X = pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"b": [3, 4]}, index=["u", "v"])
    assert with_index_of(frame, X).index.tolist() == ["u", "v"]
    assert frame.index.tolist() == [0, 1]
    assert with_index_of(frame, X.to_numpy()) is frame
    table = pl.DataFrame({"a": [1, 2]})
    assert with_index_of(table, X) is table


def test_columns_of_nothing_are_missing_cells_whatever_their_dtype():
    # polars gives them a dtype of their own: a row to predict may hold nothing but null
    frame = pl.DataFrame({"null": [None, None], "date": pl.Series([None, None], dtype=pl.Date)})
    for column in read_columns(frame):
        assert np.isnan(column.values).all()


def test_lazy_frames_are_refused_with_the_way_out():
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"be in memory; got X='LazyFrame'. Pass X.collect\(\)"):
        is_frame(polars.DataFrame({"a": [1.0]}).lazy())
    dask = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    with pytest.raises(TypeError, match=r"be in memory; .* Pass X.compute\(\)"):
        is_frame(dask.from_pandas(pd.DataFrame({"a": [1.0]}), npartitions=1))


def test_a_frame_without_rows_keeps_none_of_their_memory():
    values = np.eye(3)
    frame = pd.DataFrame(values, columns=list("abc"), copy=False)
    frame["d"] = pd.Categorical(["x", "y", "x"], categories=["y", "x", "z"])
    empty, rows = without_rows(frame), weakref.ref(values)
    assert empty.shape == (0, 4)
    assert (empty.dtypes == frame.dtypes).all()
    del values, frame
    gc.collect()
    assert rows() is None


@pytest.mark.parametrize("name", ["Int8", "UInt8", "Int64", "UInt64", "Int128"])
def test_integers_of_any_width_come_back(name):
    polars = pytest.importorskip("polars")
    dtype = getattr(polars, name)
    frame = polars.DataFrame({"n": [1, 2]}).cast(dtype)
    assert build_frame({"n": np.array([3.0, 0.0])}, frame)["n"].dtype == dtype
    wide = 2.0 ** int(name.lstrip("UInt"))
    assert build_frame({"n": np.array([3.0, wide])}, frame)["n"].dtype == polars.Float64


@pytest.mark.parametrize(
    ("cells", "shown", "way_out"),
    [
        (pd.arrays.SparseArray([0.0, 1.0]), "Sparse[float64, nan]", "by .sparse.to_dense()"),
        (pd.period_range("2020-01", periods=2, freq="M"), "period[M]", "by .dt.to_timestamp()"),
        (np.array([1j, 2.0]), "complex128", "real and imaginary parts"),
        (pd.to_timedelta([1, 2], unit="D"), "Duration(", "number of days or seconds"),
        (pd.arrays.IntervalArray.from_breaks([0, 1, 2]), "interval[", "by .astype('category')"),
        ([time(1, 30), time(2)], "Time", "number of hours or seconds"),
    ],
    ids=["sparse", "period", "complex", "duration", "interval", "time"],
)
def test_refused_dtypes_are_named_with_a_way_out(cells, shown, way_out):
    # Times have a dtype of their own in polars only
    frame = (pl if shown == "Time" else pd).DataFrame({"x": [1.0, 2.0], "odd": cells})
    with pytest.raises(ValueError, match="Cells of column 'odd' must be numbers") as caught:
        read_columns(frame)
    assert shown in str(caught.value).partition("dtype=")[2]
    assert way_out in str(caught.value)


@pytest.mark.parametrize(
    "estimator", [ChowLiuDensity(), CircuitImputer()], ids=["density", "imputer"]
)
def test_repeated_names_of_columns_are_refused_by_name(estimator):
    frame = pd.DataFrame(np.eye(3), columns=["x", "y", "x"])
    with pytest.raises(ValueError, match=r"must be unique; got repeated=\['x'\]. Rename"):
        estimator.fit(frame)
