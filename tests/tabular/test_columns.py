"""One column: what is learned from cells of every kind, and codes there and back."""

import datetime

import numpy as np
import pandas as pd
import pytest

from skcircuits.tabular._columns import Column, holds_categories, is_missing, learn_column
from skcircuits.tabular._frames import RawColumn


def raw(cells, labels=None, declared=None, dtype=object):
    return RawColumn("x", np.array(cells, dtype=dtype), labels, declared)


@pytest.mark.parametrize(
    "value", [None, np.nan, float("nan"), np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT")]
)
def test_missing_in_every_dialect(value):
    assert is_missing(value)


@pytest.mark.parametrize("value", [0, 0.0, "", False, "nan", np.inf, "?"])
def test_values_are_not_missing(value):
    assert not is_missing(value)
    assert is_missing(value, missing_value=value)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([1, 2.5, None], False),
        (["a", None], True),
        ([b"a", None], True),
        ([True, False, None], True),
        ([True, 2.0], False),
        ([None, np.nan], False),
        ([np.str_("a")], True),
        ([np.float32(1.5), np.int8(2)], False),
        ([np.True_], True),
    ],
)
def test_objects_are_labels_if_any_is_a_word_or_all_are_truths(cells, expected):
    assert holds_categories(raw(cells)) is expected


def test_dtypes_decide_before_cells():
    assert holds_categories(raw(["1", "2"], labels=False)) is False
    assert holds_categories(raw([1.0, 2.0], labels=True)) is True


@pytest.mark.parametrize(
    ("cells", "categories", "dtype"),
    [
        (["b", "a", "b", None], ["a", "b"], object),
        ([3, 1, 3], [1, 3], np.int64),
        ([2.5, np.nan, 0.5], [0.5, 2.5], np.float64),
        ([True, None], [True], np.bool_),
        ([1, 2.5], [1.0, 2.5], np.float64),
    ],
)
def test_categories_are_sorted_labels(cells, categories, dtype):
    column = learn_column(raw(cells), is_categorical=True)
    assert column.categories.tolist() == categories
    assert column.categories.dtype == dtype


def test_declared_categories_keep_their_order_and_lose_the_missing_one():
    column = learn_column(raw(["b"], True, declared=["c", "?", "b"]), True, missing_value="?")
    assert column.categories.tolist() == ["c", "b"]


def test_categories_may_be_any_sortable_label():
    days = [datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)]
    column = learn_column(raw(days), is_categorical=True)
    assert column.categories.tolist() == sorted(days)
    assert column.decode(column.encode(np.array(days, dtype=object))).tolist() == days


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([1.0, 2.0, np.nan], True),
        ([1.0, 2.5], False),
        ([np.nan], False),
        ([], False),
        ([1e100, -3.0], True),
        ([1.0] * 100 + [0.5], False),
    ],
)
def test_whole_numbers_are_noticed(cells, expected):
    assert learn_column(raw(cells, False, dtype=float), False).is_integral is expected


@pytest.mark.parametrize(
    "categories", [["a", "bb", "ccc"], [10, 20, 30], [0.5, 1.5, 2.5], [False, True]]
)
def test_codes_there_and_back(categories):
    column = Column("x", np.array(categories, dtype=None), False)
    codes = np.random.default_rng(0).integers(0, len(categories), 50).astype(float)
    codes[::7] = np.nan
    cells = column.decode(codes)
    np.testing.assert_array_equal(column.encode(cells), codes)
    assert column.decode(codes.reshape(5, 10)).shape == (5, 10)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32, np.float64, object])
def test_numbers_as_labels_match_across_dtypes(dtype):
    column = Column("x", np.array([1, 2, 3]), False)
    np.testing.assert_array_equal(column.encode(np.array([3, 1, 9], dtype=dtype)), [2, 0, np.nan])


def test_column_without_labels_has_one_state_that_decodes_to_nothing():
    column = Column("x", np.array([], dtype=object), False)
    assert column.cardinality == 1
    assert column.decode(np.array([0.0, np.nan])).tolist() == [None, None]
    assert np.isnan(column.encode(np.array(["a"], dtype=object))).all()


def test_encoding_leaves_the_cells_alone():
    cells = np.array([-1.0, 2.0])
    encoded = Column("x", None, False).encode(cells, missing_value=-1.0)
    np.testing.assert_array_equal(encoded, [np.nan, 2.0])
    np.testing.assert_array_equal(cells, [-1.0, 2.0])


def test_numbers_written_as_words_are_numbers_in_a_column_of_numbers():
    column = Column("x", None, False)
    encoded = column.encode(np.array(["1.5", None, 2, pd.NA], dtype=object))
    np.testing.assert_array_equal(encoded, [1.5, np.nan, 2, np.nan])
    with pytest.raises(ValueError, match=r"column 'x' must be numbers.*value='two'"):
        column.encode(np.array([pd.NA, "two"], dtype=object))
    with pytest.raises(TypeError, match=r"column 'x' must be numbers.*value=\[1\]"):
        column.encode(np.array([[1], None], dtype=object))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (np.inf, "finite or missing, not infinity; got value=inf"),
        (-1e160, r"at most 1e\+150 in magnitude; got value=-1e\+160. Rescale"),
    ],
)
def test_cells_without_a_finite_variance_are_refused(cell, message):
    with pytest.raises(ValueError, match=f"column 'x' must be {message}"):
        Column("x", None, False).encode(np.array([1.0, cell, np.nan]))


@pytest.mark.parametrize("cells", [[1e-151, 0.0], [np.nan, 3e-310, 1e-310, 2e-310]])
def test_numbers_too_close_for_a_density_are_refused(cells):
    with pytest.raises(ValueError, match=r"'x' must be all the same or differ by at least 1e-150"):
        learn_column(raw(cells, False, dtype=float), False)


@pytest.mark.parametrize("cells", [[1e-310] * 2, [0.0, 1e-310, 1.0], [np.nan] * 2, [0.0, 2e-150]])
def test_small_numbers_are_welcome(cells):
    assert learn_column(raw(cells, False, dtype=float), False).categories is None


def test_extreme_missing_values_are_no_cells():
    encoded = Column("x", None, False).encode(np.array([1.0, -1e300]), missing_value=-1e300)
    np.testing.assert_array_equal(encoded, [1.0, np.nan])


def test_unknown_labels_are_named():
    column = Column("x", np.array(["a", "b"], dtype=object), False)
    cells = np.array(["a", None, "z", "y"], dtype=object)
    np.testing.assert_array_equal(column.encode(cells), [0, np.nan, np.nan, np.nan])
    with pytest.raises(ValueError, match=r"seen in fit, \['a', 'b'\]; got value='y'"):
        column.encode(cells, refuse_unknown=True)


def test_columns_of_only_unknown_labels_warn():
    column = Column("job", np.array(["1", "2"], dtype=object), False)
    with pytest.warns(UserWarning, match=r"column 'job'.*for example 1, known are \['1', '2'\]"):
        codes = column.encode(np.array([1, 2, None], dtype=object))
    assert np.isnan(codes).all()


@pytest.mark.parametrize("cells", [["new"], ["new", "1"], [None, np.nan], []])
@pytest.mark.filterwarnings("error")
def test_new_labels_among_known_ones_are_only_missing(cells):
    column = Column("job", np.array(["1", "2"], dtype=object), False)
    codes = column.encode(np.array(cells, dtype=object))
    np.testing.assert_array_equal(codes, [0.0 if cell == "1" else np.nan for cell in cells])


def test_names_in_texts():
    assert Column("job", None, False).text_name == "job"
    assert Column(3, None, False).text_name == "x3"


def test_code_of_a_category():
    column = Column("job", np.array(["cook", "nurse"], dtype=object), False)
    assert column.code_of("nurse") == 1
    with pytest.raises(ValueError, match=r"'job'.*be among its categories; got category='smith'"):
        column.code_of("smith")


def test_integers_larger_than_floats_are_refused_by_name():
    raw = RawColumn("n", np.array([1, 10**400], dtype=object), False)
    with pytest.raises(ValueError, match="Cells of column 'n' must be at most"):
        learn_column(raw, is_categorical=False)
