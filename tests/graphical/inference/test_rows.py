"""Rows and evidence of categorical models."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skcircuits.graphical.inference._exact_inference import (
    check_names,
    evidence_row,
    missing_patterns,
    read_rows,
)

STATES = np.array([2, 3])


def test_codes_and_missing_cells():
    codes, missing = read_rows([[1, 2], [np.nan, 0]], STATES)
    assert_array_equal(codes, [[1, 2], [0, 0]])
    assert_array_equal(missing, [[False, False], [True, False]])
    assert codes.dtype == np.int64


def test_no_rows():
    codes, _ = read_rows(np.empty((0, 2)), STATES)
    assert codes.shape == (0, 2)


NAMES = ("a b", "é"), (("no", "yes"), ("1", "2", "x"))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dataframes_are_read_by_name(library):
    """Columns in another order than the variables were read as other variables."""
    frames = pytest.importorskip(library)
    table = frames.DataFrame({"é": ["x", None, "1"], "a b": ["no", "yes", None]})
    codes, missing = read_rows(table, STATES, *NAMES)
    assert_array_equal(np.where(missing, np.nan, codes), [[0, 2], [1, np.nan], [np.nan, 0]])
    numbers = frames.DataFrame({"é": [2, 0]})
    codes, missing = read_rows(numbers, STATES, *NAMES)
    assert_array_equal(np.where(missing, np.nan, codes), [[np.nan, 2], [np.nan, 0]])
    codes, missing = read_rows(frames.DataFrame({"é": [None, 1.0], "a b": [1, 0]}), STATES, *NAMES)
    assert_array_equal(np.where(missing, np.nan, codes), [[1, np.nan], [0, 1]])
    with pytest.raises(ValueError, match=r"cells of column 1 of X must be states .*value=0.5"):
        read_rows(frames.DataFrame({"é": [0.5]}), STATES, *NAMES)
    # Columns without names of variables are read by position
    codes, _ = read_rows(frames.DataFrame({"u": [1], "v": [2]}), STATES, *NAMES)
    assert_array_equal(codes, [[1, 2]])
    with pytest.raises(ValueError, match="columns of X must be different variables of"):
        read_rows(frames.DataFrame({"é": ["x"], "v": ["no"]}), STATES, *NAMES)
    with pytest.raises(ValueError, match=r"state of variable 'é' must be one of .*label='y'"):
        read_rows(frames.DataFrame({"é": ["y"]}), STATES, *NAMES)


def test_patterns_cover_every_row_once():
    missing = np.random.default_rng(0).random((50, 4)) < 0.5
    seen = np.concatenate([rows for rows, _ in missing_patterns(missing)])
    assert_array_equal(np.sort(seen), np.arange(50))
    for rows, columns in missing_patterns(missing):
        assert (missing[rows] == np.isin(range(4), list(columns))).all()


def test_evidence_in_all_forms():
    nothing = [[np.nan, np.nan]]
    assert_array_equal(evidence_row(None, [2, 3]), nothing)
    assert_array_equal(evidence_row({}, [2, 3]), nothing)
    assert_array_equal(evidence_row({1: 2}, [2, 3]), [[np.nan, 2]])
    # Numbers taken from a table of floats or a mask.
    assert_array_equal(evidence_row({1: np.float64(2.0), 0: np.True_}, [2, 3]), [[1, 2]])
    assert_array_equal(evidence_row([0, np.nan], [2, 3]), [[0, np.nan]])
    names = ("a", "b"), (("no", "yes"), ("x", "y", "z"))
    assert_array_equal(evidence_row({"b": "z", 0: "yes"}, [2, 3], *names), [[1, 2]])


@pytest.mark.parametrize(
    ("evidence", "thing"),
    [({"a": 0}, "variable of the evidence"), ({0: "yes"}, "state of variable 0")],
)
def test_models_without_names_take_integers(evidence, thing):
    with pytest.raises(ValueError, match=f"^{thing} must be an integer, because .* no names"):
        evidence_row(evidence, [2, 3])


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({"c": 0}, r"variable of the evidence must be one of \('a', 'b'\)"),
        ({"a": "maybe"}, r"state of variable 'a' must be one of"),
        ({5: 0}, "be between 0 and 1"),
        ({-1: 0}, "be between 0 and 1"),
        ({1.5: 0}, "variable of the evidence must be a name or an integer; got label=1.5"),
        ({"a": 0.5}, "state of variable 'a' must be a name or an integer"),
        ({"a": None}, "must be a name or an integer; got label=None"),
        ({"a": np.nan}, "must be a name or an integer; got label=nan"),
        ({"a": -1}, r"state of variable 'a' must be between 0 and 1, or one of \('no', 'yes'\)"),
        ({"b": 3}, r"state of variable 'b' must be between 0 and 2, or one of .*; got state=3"),
        ([[0, 1], [1, 0]], r"be one row of 2 cells; got shape=\(2, 2\)"),
        ([0, 1, 0], "be one row of 2 cells"),
    ],
)
def test_wrong_names(evidence, message):
    with pytest.raises(ValueError, match=message):
        evidence_row(evidence, [2, 3], ("a", "b"), (("no", "yes"), ("x", "y", "z")))


@pytest.mark.parametrize(
    ("variables", "states", "message"),
    [
        (["a"], None, r"variable_names must be 2 different names; got names=\['a'\]"),
        (["a", "a"], None, "variable_names must be 2 different names"),
        (None, [["x", "y"]], "state_names must be 2 different names"),
        (None, [["x", "y"], ["z"]], "state_names of variable 1 must be 3 different names"),
        (None, [["x", "x"], ["z", "u", "v"]], "state_names of variable 0 must be 2"),
    ],
)
def test_names_that_do_not_fit(variables, states, message):
    with pytest.raises(ValueError, match=message):
        check_names(variables, states, np.array([2, 3]))
