import numpy as np
import pytest

from skcircuits.numerics import _patterns as patterns
from skcircuits.numerics._patterns import (
    distinct_keys,
    distinct_numbers,
    distinct_patterns,
    group_patterns,
    joined_groups,
    unique_rows,
)


def table_with_missing_values(n_rows, n_columns, fraction, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns)).round(1)
    X[rng.random(X.shape) < fraction] = np.nan
    return X


# 70 columns need two words, 5 a lookup table, for which 16 have too few rows
@pytest.mark.parametrize("n_columns", [1, 5, 16, 17, 70])
def test_distinct_patterns(n_columns):
    missing = np.isnan(table_with_missing_values(200, n_columns, 0.2))
    found, inverse = distinct_patterns(missing)
    np.testing.assert_array_equal(found[inverse], missing)
    assert len(found) == len(np.unique(missing, axis=0))


@pytest.mark.parametrize("n_columns", [2, 20])
def test_groups_partition_the_rows(n_columns):
    missing = np.isnan(table_with_missing_values(300, n_columns, 0.3))
    missing[0], missing[1] = True, False
    groups = group_patterns(missing)
    rows = np.concatenate([group.rows for group in groups])
    np.testing.assert_array_equal(np.sort(rows), np.arange(300))
    sizes = [group.missing.shape[1] for group in groups]
    assert sizes == sorted(set(sizes))
    for group in groups:
        assert (np.diff(group.pattern) >= 0).all()
        assert group.counts.sum() == len(group.rows)
        for row, pattern in zip(group.rows, group.pattern, strict=True):
            np.testing.assert_array_equal(np.flatnonzero(missing[row]), group.missing[pattern])
            np.testing.assert_array_equal(np.flatnonzero(~missing[row]), group.observed[pattern])


def test_small_groups_join_larger_ones():
    missing = np.isnan(table_with_missing_values(300, 8, 0.3))
    groups = joined_groups(missing, (1, 1))
    assert len(groups) < len(group_patterns(missing)) / 2
    rows = np.concatenate([group.rows for group in groups])
    np.testing.assert_array_equal(np.sort(rows), np.arange(300))
    for group in groups:
        assert (np.diff(group.pattern) >= 0).all()
        for row, pattern in zip(group.rows, group.pattern, strict=True):
            named = group.missing[pattern]
            np.testing.assert_array_equal(np.flatnonzero(missing[row]), named[named < 8])
            # columns that no table has stand in for those that are observed
            free = named[named >= 8]
            np.testing.assert_array_equal(free, 8 + np.arange(len(free)))
    # where their larger matrices would take longer than calls, they stay apart
    assert len(joined_groups(missing, (1000, 1000))) == len(group_patterns(missing))


def test_group_take_and_blocks():
    group = group_patterns(np.isnan(table_with_missing_values(300, 6, 0.5)))[3]
    blocks = list(group.blocks(4))
    assert all(block.n_patterns <= 4 for block in blocks)
    np.testing.assert_array_equal(np.concatenate([block.rows for block in blocks]), group.rows)
    np.testing.assert_array_equal(
        np.concatenate([block.missing[block.pattern] for block in blocks]),
        group.missing[group.pattern],
    )
    odd = group.take(np.arange(group.n_patterns) % 2 == 1)
    np.testing.assert_array_equal(odd.missing, group.missing[1::2])
    np.testing.assert_array_equal(odd.rows, group.rows[group.pattern % 2 == 1])


@pytest.mark.parametrize("n_columns", [1, 3, 40])
def test_unique_rows(n_columns):
    X = table_with_missing_values(50, n_columns, 0.3)[np.random.default_rng(1).integers(0, 50, 400)]
    first, inverse = unique_rows(X)
    np.testing.assert_array_equal(X[first][inverse], X)
    assert (np.diff(first) > 0).all()
    assert len(first) == len(np.unique(np.nan_to_num(X, nan=99.0), axis=0))


@pytest.mark.parametrize("n_keys", [0, 1, 300])
def test_distinct_keys_are_those_of_numpy(n_keys):
    keys = np.random.default_rng(0).integers(-50, 50, n_keys)
    first, inverse = distinct_keys(keys)
    _, *expected = np.unique(keys, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(first, expected[0])
    np.testing.assert_array_equal(inverse, expected[1])


def test_unique_rows_edge_cases():
    X = np.array([[0.0], [-0.0], [np.nan], [-np.nan], [1e-320], [np.inf]])
    _, inverse = unique_rows(X)
    assert inverse.tolist() == [0, 0, 1, 1, 2, 3]
    assert X[0, 0] == 0.0 and np.signbit(X[1, 0])  # the input is untouched
    assert len(unique_rows(np.empty((0, 3)))[0]) == 0
    assert unique_rows(np.empty((4, 0)))[1].tolist() == [0, 0, 0, 0]


def test_unique_rows_survives_hash_collisions(monkeypatch):
    monkeypatch.setattr(patterns, "_hash_words", lambda words: np.zeros(len(words), np.uint64))
    X = table_with_missing_values(30, 3, 0.5)
    first, inverse = unique_rows(X)
    np.testing.assert_array_equal(X[first][inverse], X)
    assert len(first) == len(np.unique(np.nan_to_num(X, nan=99.0), axis=0))


@pytest.mark.parametrize("n_distinct", [1, 40, 3000, 30_000, 100_000])
@pytest.mark.parametrize("n", [1, 500, 100_000])
def test_distinct_numbers_agree_with_unique(n, n_distinct):
    rng = np.random.default_rng(0)
    x = rng.choice(np.round(rng.normal(size=n_distinct), 6), n)
    x[rng.random(n) < 0.01] = np.inf
    numbers, inverse = distinct_numbers(x)
    expected, places = np.unique(x, return_inverse=True)
    np.testing.assert_array_equal(numbers, expected)
    np.testing.assert_array_equal(inverse, places)


def test_zeros_of_both_signs_are_one_number():
    x = np.tile([0.0, -0.0, 1.0, -np.inf], 2000)
    numbers, inverse = distinct_numbers(x)
    assert numbers.tolist() == [-np.inf, 0.0, 1.0]
    np.testing.assert_array_equal(numbers[inverse], x)
