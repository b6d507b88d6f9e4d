"""Rows and evidence of categorical models."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skcircuits.graphical.rows import evidence_row, missing_patterns, read_rows

STATES = np.array([2, 3])


def test_codes_and_missing_cells():
    codes, missing = read_rows([[1, 2], [np.nan, 0]], STATES)
    assert_array_equal(codes, [[1, 2], [0, 0]])
    assert_array_equal(missing, [[False, False], [True, False]])
    assert codes.dtype == np.int64


def test_no_rows():
    codes, _ = read_rows(np.empty((0, 2)), STATES)
    assert codes.shape == (0, 2)


def test_patterns_cover_every_row_once():
    missing = np.random.default_rng(0).random((50, 4)) < 0.5
    seen = np.concatenate([rows for rows, _ in missing_patterns(missing)])
    assert_array_equal(np.sort(seen), np.arange(50))
    for rows, columns in missing_patterns(missing):
        assert (missing[rows] == np.isin(range(4), list(columns))).all()


def test_evidence_in_all_forms():
    nothing = [[np.nan, np.nan]]
    assert_array_equal(evidence_row(None, 2), nothing)
    assert_array_equal(evidence_row({}, 2), nothing)
    assert_array_equal(evidence_row({1: 2}, 2), [[np.nan, 2]])
    assert_array_equal(evidence_row([0, np.nan], 2), [[0, np.nan]])
    names = ("a", "b"), (("no", "yes"), ("x", "y", "z"))
    assert_array_equal(evidence_row({"b": "z", 0: "yes"}, 2, *names), [[1, 2]])


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({"c": 0}, r"variable of the evidence must be one of \('a', 'b'\)"),
        ({"a": "maybe"}, r"state of variable 'a' must be one of"),
        ({5: 0}, "be below 2"),
        ({-1: 0}, "be below 2"),
    ],
)
def test_wrong_names(evidence, message):
    with pytest.raises(ValueError, match=message):
        evidence_row(evidence, 2, ("a", "b"), (("no", "yes"), ("x", "y", "z")))
