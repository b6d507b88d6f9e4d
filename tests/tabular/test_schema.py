"""Tables to floats and back: kinds of columns, labels, missing cells, dtypes, errors."""

import datetime
import pickle
import warnings
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skcircuits import ChowLiuDensity, GaussianMixtureDensity, col
from skcircuits.tabular import TableSchema
from skcircuits.tabular._columns import read_date


@pytest.fixture
def pandas_frame():
    return pd.DataFrame(
        {
            "int": [1, 2, 3],
            "nullable_int": pd.array([1, None, 3], dtype="Int16"),
            "float32": np.array([1.5, np.nan, 2.5], dtype=np.float32),
            "string": ["b", None, "a"],
            "object": np.array(["x", None, pd.NA], dtype=object),
            "bool": [True, False, True],
            "nullable_bool": pd.array([True, None, False], dtype="boolean"),
            "category": pd.Categorical(["u", None, "v"], categories=["v", "u", "w"]),
            "ordered": pd.Categorical(["u", None, "v"], categories=["v", "u"], ordered=True),
            "numbers_as_category": pd.Categorical([30, None, 10]),
        },
        index=[7, 8, 9],
    )


@pytest.fixture
def polars_frame():
    return pl.DataFrame(
        {
            "int": [1, 2, 3],
            "nullable_int": pl.Series([1, None, 3], dtype=pl.Int16),
            "float32": pl.Series([1.5, None, float("nan")], dtype=pl.Float32),
            "string": ["b", None, "a"],
            "bool": [True, None, False],
            "category": pl.Series(["v", None, "u"], dtype=pl.Categorical),
            "enum": pl.Series(["u", None, "v"], dtype=pl.Enum(["v", "u", "w"])),
        }
    )


def labels(schema):
    return {
        name: None if categories is None else categories.tolist()
        for name, categories in zip(schema.names, schema.categories, strict=True)
    }


def test_kinds_and_categories_of_pandas_columns(pandas_frame):
    schema = TableSchema.learn(pandas_frame)
    assert labels(schema) == {
        "int": None,
        "nullable_int": None,
        "float32": None,
        "string": ["a", "b"],
        "object": ["x"],
        "bool": [False, True],
        "nullable_bool": [False, True],
        "category": ["v", "u", "w"],  # as declared, seen or not
        "ordered": ["v", "u"],
        "numbers_as_category": [10, 30],
    }
    assert schema.cardinalities.tolist() == [0, 0, 0, 2, 1, 2, 2, 3, 2, 2]


def test_kinds_and_categories_of_polars_columns(polars_frame):
    assert labels(TableSchema.learn(polars_frame)) == {
        "int": None,
        "nullable_int": None,
        "float32": None,
        "string": ["a", "b"],
        "bool": [False, True],
        "category": ["u", "v"],
        "enum": ["v", "u", "w"],
    }


def test_encode_gives_codes_and_nan(pandas_frame, polars_frame):
    encoded = TableSchema.learn(pandas_frame).encode(pandas_frame)
    np.testing.assert_array_equal(encoded[0], [1, 1, 1.5, 1, 0, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(
        np.isnan(encoded[1]), [False, True, True, True, True, False, True, True, True, True]
    )
    encoded = TableSchema.learn(polars_frame).encode(polars_frame)
    np.testing.assert_array_equal(encoded[2], [3, 3, np.nan, 0, 0, 0, 0])


@pytest.mark.parametrize("frame_name", ["pandas_frame", "polars_frame"])
def test_complete_rows_come_back_with_their_dtypes(frame_name, request):
    frame = request.getfixturevalue(frame_name)
    schema = TableSchema.learn(frame)
    complete = np.nan_to_num(schema.encode(frame))
    decoded = schema.decode(complete)
    assert type(decoded) is type(frame)
    assert list(decoded.dtypes) == list(frame.dtypes)
    np.testing.assert_array_equal(schema.encode(decoded), complete)


def test_fractions_do_not_go_into_integer_columns(pandas_frame):
    schema = TableSchema.learn(pandas_frame)
    complete = np.nan_to_num(schema.encode(pandas_frame))
    complete[1, :2] = 1.5, 1e6  # the second is whole but beyond Int16
    dtypes = schema.decode(complete).dtypes
    assert dtypes["int"] == dtypes["nullable_int"] == np.float64
    complete[1, :2] = 5, 6
    dtypes = schema.decode(complete).dtypes
    assert (str(dtypes["int"]), str(dtypes["nullable_int"])) == ("int64", "Int16")


def test_missing_cells_stay_missing_in_decoded_frames(pandas_frame, polars_frame):
    for frame in (pandas_frame, polars_frame):
        schema = TableSchema.learn(frame)
        encoded = schema.encode(frame)
        np.testing.assert_array_equal(schema.encode(schema.decode(encoded)), encoded)


def test_frames_can_change_library(pandas_frame, polars_frame):
    schema = TableSchema.learn(pandas_frame)
    decoded = schema.decode(np.nan_to_num(schema.encode(pandas_frame)), "polars")
    assert isinstance(decoded, pl.DataFrame)
    assert decoded["ordered"].to_list() == ["u", "v", "v"]
    assert decoded["numbers_as_category"].to_list() == [30, 10, 10]

    schema = TableSchema.learn(polars_frame)
    decoded = schema.decode(np.nan_to_num(schema.encode(polars_frame)), "pandas")
    assert isinstance(decoded, pd.DataFrame)
    assert decoded["enum"].cat.categories.tolist() == ["v", "u", "w"]


def test_arrays_of_numbers_pass_through():
    X = np.array([[1, 2], [3, 4]])
    schema = TableSchema.learn(X)
    assert not schema.is_categorical.any()
    assert schema.encode(X).dtype == np.float64
    np.testing.assert_array_equal(schema.decode(X.astype(float)), X)


def test_object_arrays_tell_labels_by_their_cells():
    X = np.array([["b", 1, True, 2.5], [None, None, False, np.nan]], dtype=object)
    schema = TableSchema.learn(X)
    assert labels(schema) == {0: ["b"], 1: None, 2: [False, True], 3: None}
    encoded = schema.encode(X)
    np.testing.assert_array_equal(encoded, [[0, 1, 1, 2.5], [np.nan, np.nan, 0, np.nan]])
    assert schema.decode(encoded).tolist()[1][:1] == [None]
    assert schema.decode(encoded).dtype == object


def test_string_arrays_hold_labels():
    X = np.array([["b", "a"], ["c", "a"]])
    schema = TableSchema.learn(X)
    assert schema.is_categorical.all()
    np.testing.assert_array_equal(schema.decode(schema.encode(X)), X)


def test_numbers_chosen_as_categories_decode_to_numbers():
    X = np.array([[10.0, 1.5], [30.0, 2.5], [np.nan, 3.5]])
    schema = TableSchema.learn(X, categorical_features=[0])
    np.testing.assert_array_equal(schema.encode(X)[:, 0], [0, 1, np.nan])
    decoded = schema.decode(schema.encode(X))
    assert decoded.dtype == np.float64
    np.testing.assert_array_equal(decoded, X)


def test_decode_array_keeps_leading_axes():
    X = np.array([["a", 1.0], ["b", 2.0]], dtype=object)
    schema = TableSchema.learn(X)
    codes = np.stack([schema.encode(X)] * 3)
    assert schema.decode_array(codes).shape == (3, 2, 2)
    assert schema.decode_array(codes)[2].tolist() == X.tolist()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("from_dtype", [False, False, True]),
        (None, [False, False, False]),
        ([], [False, False, False]),
        ([0], [True, False, False]),
        ([True, False, True], [True, False, True]),
        (["a", "c"], [True, False, True]),
    ],
)
def test_choice_of_categorical_features(choice, expected):
    X = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0], "c": ["1", "2"]})
    assert TableSchema.learn(X, choice).is_categorical.tolist() == expected


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("auto", "categorical_features must be 'from_dtype'"),
        ([True], "one entry per column"),
        ([5], "Count columns from 0"),
        ([-1], "Count columns from 0"),
        (["d"], r"must be columns of the table; got unknown=\['d'\]. Its columns are \['a', 'b'\]"),
    ],
)
def test_bad_choice_of_categorical_features(choice, message):
    with pytest.raises(ValueError, match=message):
        TableSchema.learn(pd.DataFrame({"a": [1.0], "b": [2.0]}), choice)


def test_unknown_labels_are_missing_or_refused():
    schema = TableSchema.learn(pd.DataFrame({"job": ["cook", "nurse"]}))
    new = pd.DataFrame({"job": ["pilot", None, "cook"]})
    np.testing.assert_array_equal(schema.encode(new), [[np.nan], [np.nan], [0]])
    with pytest.raises(ValueError, match=r"column 'job'.*\['cook', 'nurse'\].*value='pilot'"):
        schema.encode(new, handle_unknown="error")
    missing_only = pd.DataFrame({"job": ["cook", None]})
    np.testing.assert_array_equal(schema.encode(missing_only, "error"), [[0], [np.nan]])


def test_missing_value_is_no_category_and_never_unknown():
    X = np.array([["?", 1.0], ["a", -1.0], ["b", 2.0]], dtype=object)
    schema = TableSchema.learn(X, missing_value="?")
    assert labels(schema) == {0: ["a", "b"], 1: None}
    np.testing.assert_array_equal(schema.encode(X, "error")[:, 0], [np.nan, 0, 1])

    numbers = np.array([[-1.0, 3.0], [4.0, np.nan]])
    encoded = TableSchema.learn(numbers, missing_value=-1).encode(numbers)
    np.testing.assert_array_equal(encoded, [[np.nan, 3.0], [4.0, np.nan]])


def test_marked_cells_among_numbers_leave_a_column_of_numbers():
    X = pd.DataFrame({"a": np.array([1, "?", 2.5], dtype=object)})
    schema = TableSchema.learn(X, missing_value="?")
    np.testing.assert_array_equal(schema.encode(X), [[1.0], [np.nan], [2.5]])


def test_columns_without_any_cell():
    X = pd.DataFrame({"number": [np.nan, np.nan], "label": pd.Series([None, None], dtype="str")})
    schema = TableSchema.learn(X)
    assert schema.cardinalities.tolist() == [0, 1]
    assert np.isnan(schema.encode(X)).all()
    assert schema.decode(np.zeros((2, 2)))["label"].isna().all()


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("make", [np.asarray, lambda X: pd.DataFrame(X, columns=["a", "b"])])
def test_infinite_cells_name_their_column(value, make):
    X = make(np.array([[1.0, 2.0], [3.0, value]]))
    name = "1" if isinstance(X, np.ndarray) else "'b'"
    with pytest.raises(
        ValueError, match=f"column {name} must be finite or missing.*got value=-?inf"
    ):
        TableSchema.learn(X)


def test_words_in_a_column_of_numbers_name_it():
    schema = TableSchema.learn(pd.DataFrame({"age": [1.0, 2.0]}))
    with pytest.raises(ValueError, match=r"column 'age' must be numbers.*value='old'"):
        schema.encode(pd.DataFrame({"age": ["old", "3"]}))
    np.testing.assert_array_equal(
        schema.encode(pd.DataFrame({"age": ["4", None]})), [[4], [np.nan]]
    )


def test_mixed_labels_and_unhashable_cells_are_type_errors():
    mixed = np.array([["a"], [1]], dtype=object)
    with pytest.raises(
        TypeError, match=r"uniformly strings or numbers; got kinds=\['int', 'str'\]"
    ):
        TableSchema.learn(mixed)
    nested = np.array([[{"foo": "bar"}], [1.0]], dtype=object)
    with pytest.raises(TypeError, match="argument must be a string or a real number, not 'dict'"):
        TableSchema.learn(nested)


def test_dates_of_dataframes_are_days():
    X = pd.DataFrame({"day": pd.to_datetime(["1970-01-02", None, "2021-01-01"])})
    schema = TableSchema.learn(X)
    np.testing.assert_array_equal(schema.encode(X)[:, 0], [1.0, np.nan, 18628.0])
    assert schema.is_integral.tolist() == [True]
    pd.testing.assert_frame_equal(schema.decode(schema.encode(X)), X)
    with pytest.raises(ValueError, match="numbers, categories or dates of a dataframe; got"):
        TableSchema.learn(X.to_numpy())


def test_dates_among_objects_are_days_where_the_column_was_learned_as_dates():
    X = pd.DataFrame(
        {"day": pd.to_datetime(["1970-01-02", None, "2021-01-01"]), "z": [1.5, 2.5, 3.5]}
    )
    schema = TableSchema.learn(X)
    np.testing.assert_array_equal(schema.encode(X.astype(object)), schema.encode(X))
    density = GaussianMixtureDensity(n_components=1).fit(X)
    np.testing.assert_array_equal(
        density.expectation(given=X[["day"]].assign(z=np.nan).iloc[2]),
        density.expectation(given=X.assign(z=np.nan).iloc[[2]]),
    )


def test_columns_of_another_type_than_in_fit_are_refused():
    days, numbers = pd.to_datetime(["2020-01-01", None, "2021-01-01"]), [18262.0, np.nan, 18628.0]
    dated, counted = (TableSchema.learn(pd.DataFrame({"x": x})) for x in (days, numbers))
    for cells in (numbers, ["2020-01-01", None, "2021-01-01"], [2**60, 2**60 + 1, 2**60 + 2]):
        with pytest.raises(ValueError, match="column 'x' must be dates, as in fit; got value="):
            dated.encode(pd.DataFrame({"x": cells}))
    with pytest.raises(
        ValueError, match="column 'x' must be numbers, as in fit; got dtype='dateti"
    ):
        counted.encode(pd.DataFrame({"x": days}))
    # A column of nothing may be of any type
    for schema in (dated, counted):
        assert np.isnan(schema.encode(pd.DataFrame({"x": [np.nan, None]}))).all()
        assert np.isnan(schema.encode(pd.DataFrame({"x": [pd.NaT, pd.NaT]}, dtype=object))).all()


OFFSET = datetime.timezone(datetime.timedelta(hours=5, minutes=30))


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York", "UTC", OFFSET], ids=str)
def test_dates_of_queries_are_in_the_time_zone_of_their_column(library, zone):
    days = pd.date_range("2020-01-01", periods=4, tz=zone)
    # A new one of a few rows would lie beyond all dates with a probability above one tenth
    rows = days.repeat(20)
    X = pd.DataFrame({"day": rows})
    if library == "polars":  # built by polars itself: its conversion from pandas needs pyarrow
        if zone is OFFSET:
            pytest.skip("polars knows names of zones only")
        naive = pl.Series("day", rows.tz_localize(None).tolist())
        X = naive.dt.replace_time_zone(zone).to_frame()
    density = ChowLiuDensity(pseudo_count=1e-9).fit(X)
    third = datetime.datetime(2020, 1, 3)
    aware = days[2], days[2].to_pydatetime(), days[2].isoformat()
    for bound in ("2020-01-03", third, third.date(), *aware):
        assert density.probability({"day": (bound, None)}) == pytest.approx(0.5, abs=1e-6)
        assert density.probability(col("day") < bound) == pytest.approx(0.5, abs=1e-6)
    assert density.quantile(0.7, "day") == np.datetime64("2020-01-03")
    ends = [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 4)]
    assert density.interval(0.9, "day").tolist() == ends
    # In universal time, one of these is beyond the years of Python
    assert density.probability({"day": ("0001-01-01", "9999-12-31T23:59")}) == pytest.approx(1.0)
    schema, encoded = TableSchema.learn_and_encode(X)
    assert schema.decode(encoded).equals(X)


def test_dates_with_and_without_a_time_zone_are_not_mixed():
    naive = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=3)})
    aware = naive.apply(lambda days: days.dt.tz_localize("Europe/Paris"))
    with pytest.raises(ValueError, match="be dates without a time zone, as in fit; got time_zone="):
        TableSchema.learn(naive).encode(aware)
    with pytest.raises(ValueError, match="be dates in a time zone, as in fit; got time_zone=None"):
        TableSchema.learn(aware).encode(naive)
    in_other_zone = aware.apply(lambda days: days.dt.tz_convert("Asia/Tokyo"))
    schema = TableSchema.learn(aware)
    np.testing.assert_array_equal(schema.encode(in_other_zone), schema.encode(aware))
    assert np.isnan(schema.encode(naive.mask(naive.notna()))).all()


def test_dates_of_queries_have_no_time_zone_where_their_column_has_none():
    days = pd.date_range("2020-01-01", periods=4)
    density = ChowLiuDensity().fit(pd.DataFrame({"day": days}))
    aware = days[2].tz_localize("Europe/Paris")
    for bound in (aware, aware.to_pydatetime(), aware.isoformat()):
        for query in ({"day": (bound, None)}, col("day") < bound):
            with pytest.raises(ValueError, match="be a date without a time zone, as in the table"):
                density.probability(query)
    rows = pd.DataFrame({"day": pd.Series([aware], dtype=object)})
    with pytest.raises(ValueError, match="be dates without a time zone, as in fit; got value="):
        density.score_samples(rows)


PARIS = ZoneInfo("Europe/Paris")


@pytest.mark.parametrize("zone", [PARIS, datetime.UTC, OFFSET], ids=str)
@pytest.mark.parametrize("make", [np.asarray, lambda X: pd.DataFrame(X, columns=["day", "x"])])
def test_dates_among_objects_keep_their_time_zone(make, zone):
    # The hour that summer time repeats, and both halves of a year
    moments = ["2020-10-25T00:30", "2020-10-25T01:30", "2020-01-05T12:00", "2020-07-05T12:00"]
    days = [
        datetime.datetime.fromisoformat(moment).replace(tzinfo=datetime.UTC).astimezone(zone)
        for moment in moments
    ]
    X = np.array([[*days, None], [0.5, 1.5, 2.5, 3.5, 4.5]], dtype=object).T
    schema, encoded = TableSchema.learn_and_encode(make(X))
    decoded = schema.decode(encoded)
    again = (decoded if isinstance(decoded, np.ndarray) else decoded.to_numpy())[:-1, 0]
    assert [day.isoformat() for day in again] == [day.isoformat() for day in days]
    assert pd.isna((decoded if isinstance(decoded, np.ndarray) else decoded.to_numpy())[-1, 0])
    column = schema.columns[0]
    assert read_date(column, days[0].replace(tzinfo=None)) == encoded[0, 0]
    assert read_date(column, days[0].astimezone(datetime.UTC)) == encoded[0, 0]


def test_dates_among_objects_are_in_one_time_zone():
    aware = (
        datetime.datetime(2020, 1, 2, tzinfo=PARIS),
        datetime.datetime(2020, 1, 3, tzinfo=OFFSET),
    )
    schema, encoded = TableSchema.learn_and_encode(np.array([aware], dtype=object).T)
    assert schema.columns[0].time_zone == "UTC"
    again = schema.decode(encoded)[:, 0].tolist()
    assert again == list(aware) and {day.tzinfo for day in again} == {ZoneInfo("UTC")}
    mixed = np.array([[aware[0], datetime.datetime(2020, 1, 2)]], dtype=object).T
    with pytest.raises(ValueError, match="column 0 must be all in time zones or all without one"):
        TableSchema.learn(mixed)


def test_objects_that_are_all_dates_are_days():
    days = [datetime.date(1970, 1, 2), None, datetime.datetime(1970, 1, 3, 12)]
    X = pd.DataFrame({"day": pd.Series(days, dtype=object)})
    schema, encoded = TableSchema.learn_and_encode(X)
    np.testing.assert_array_equal(encoded[:, 0], [1.0, np.nan, 2.5])
    assert schema.decode(encoded)["day"].tolist() == [pd.Timestamp(1970, 1, 2), pd.NaT, days[2]]
    marked = X.fillna("?")
    schema = TableSchema.learn(marked, missing_value="?")
    np.testing.assert_array_equal(schema.encode(marked), encoded)
    # A number among dates could be anything
    X.loc[1, "day"] = 5
    with pytest.raises(TypeError, match="column 'day' must be numbers or missing"):
        TableSchema.learn(X)


@pytest.mark.parametrize("time", [np.datetime64("2020-01-01"), np.timedelta64(3, "D")])
@pytest.mark.parametrize("make", [np.asarray, lambda X: pd.DataFrame(X, dtype=object)])
def test_times_among_objects_are_refused_as_well(make, time):
    X = np.full((3, 2), 1.5, dtype=object)
    schema = TableSchema.learn(make(X))
    X[1, 1] = time
    for read in (TableSchema.learn, schema.encode):
        with pytest.raises(
            ValueError,
            match="categories or dates of a dataframe; got dtype='",
        ):
            read(make(X))
    X[1, 1] = type(time)("NaT")
    for table in (TableSchema.learn(make(X)), schema):
        np.testing.assert_array_equal(table.encode(make(X))[:, 1], [1.5, np.nan, 1.5])


def test_schemas_survive_pickling(pandas_frame, polars_frame):
    for frame in (pandas_frame, polars_frame):
        schema = TableSchema.learn(frame)
        again = pickle.loads(pickle.dumps(schema))
        np.testing.assert_array_equal(again.encode(frame), schema.encode(frame))
        complete = np.nan_to_num(schema.encode(frame))
        assert list(again.decode(complete).dtypes) == list(frame.dtypes)


def test_identifiers_are_named_and_other_columns_are_not():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"u{i}" for i in range(200)],
            "day": [f"2020-01-{i % 101}" for i in range(200)],
            "town": rng.choice([f"t{i}" for i in range(60)], 200),
            "size": rng.normal(size=200),
        }
    )

    def warn_of_identifiers(table):
        schema, encoded = TableSchema.learn_and_encode(table)
        schema.warn_of_identifiers(encoded)

    with pytest.warns(UserWarning, match="2 column.*'id' .200 in 200 cells., 'day' .101 in 200"):
        warn_of_identifiers(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_identifiers(frame[["town", "size"]])
        warn_of_identifiers(frame[:50])
