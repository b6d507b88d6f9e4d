"""Categories that thresholds decide are found, others are not."""

import numpy as np
import pytest

from skcircuits.learning._thresholds import _threshold, find_thresholds


def table(n_rows=400, seed=0):
    """Three correlated numbers and a category that has nothing to do with them."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, 3))
    numbers += 0.5 * rng.normal(size=(n_rows, 3))
    return rng, np.column_stack([numbers, rng.integers(3, size=n_rows)])


def found_in(X, cardinalities, integral=(), **more):
    is_integral = np.isin(np.arange(X.shape[1]), integral)
    settings = {"weights": np.ones(len(X)), "max_numbers": 2, **more}
    weights = settings.pop("weights")
    return find_thresholds(X, weights, np.array(cardinalities), is_integral, **settings)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
def test_thresholds_are_found_and_have_the_frequencies_of_the_table(noise):
    rng, X = table()
    label = (X[:, 1] >= 0.5) ^ (rng.random(len(X)) < noise)
    X = np.column_stack([X, label])
    X[::7, 0] = np.nan
    (own,) = found_in(X, [0, 0, 0, 3, 2])
    assert own.variable == 1
    assert list(own.tables) == [4]
    np.testing.assert_allclose(own.cuts, 0.5, atol=0.05)
    above = X[:, 1] >= own.cuts[0]
    np.testing.assert_allclose(own.fractions, [1 - above.mean(), above.mean()])
    frequencies = [label[~above].mean(), label[above].mean()]
    np.testing.assert_allclose(own.tables[4][:, 1], frequencies, atol=0.01)


def test_ordinal_categories_have_several_thresholds_and_numbers_several_categories():
    rng, X = table(1000)
    X[:, 0] = np.round(20 * X[:, 0])
    grade, flag = np.digitize(X[:, 0], [-18, 5, 30]), X[:, 0] < 5
    X = np.column_stack([X, grade, flag])
    X[rng.random(len(X)) < 0.1, 0] = np.nan
    (own,) = found_in(X, [0, 0, 0, 3, 4, 2], integral=[0])
    assert own.fractions is None
    np.testing.assert_array_equal(own.cuts, [-18.5, 4.5, 29.5])
    np.testing.assert_array_equal(own.tables[4].argmax(axis=1), [0, 1, 2, 3])
    np.testing.assert_array_equal(own.tables[5].argmax(axis=1), [1, 1, 0, 0])


def test_few_numbers_are_decided_like_categories():
    rng, X = table(600)
    flag, grade = 2 * (X[:, 1] >= 0.5) - 1, np.digitize(X[:, 2], [-1.0, 1.0]) ** 2
    X = np.column_stack([X, flag, grade])
    X[rng.random(X.shape) < 0.05] = np.nan
    few = {4: np.array([-1.0, 1.0]), 5: np.array([0.0, 1.0, 4.0])}
    by_number = {own.variable: own for own in found_in(X, [0, 0, 0, 3, 0, 0], few=few)}
    assert {number: list(own.tables) for number, own in by_number.items()} == {1: [4], 2: [5]}
    np.testing.assert_array_equal(by_number[2].tables[5].argmax(axis=1), [0, 1, 2])
    assert found_in(X, [0, 0, 0, 3, 0, 0]) == []


def test_what_is_decided_decides_nothing():
    _, X = table(600)
    flag = X[:, 1] >= 0.5
    X = np.column_stack([X, flag, flag, flag])
    few = {4: np.array([0.0, 1.0]), 5: np.array([0.0, 1.0])}
    (own,) = found_in(X, [0, 0, 0, 3, 0, 0, 2], few=few)
    assert own.variable == 1
    assert sorted(own.tables) == [4, 5, 6]
    # Two equal columns of few numbers do not decide each other, but a category
    (own,) = found_in(X[:, 3:], [3, 0, 0, 2], few={1: few[4], 2: few[5]})
    assert list(own.tables) == [3]


def test_rows_count_by_their_weights():
    rng, X = table(150)
    X = np.column_stack([X, (X[:, 2] > 0) ^ (rng.random(150) < 0.03)])
    weights = rng.integers(1, 4, size=150)
    (own,) = found_in(X, [0, 0, 0, 3, 2], weights=weights.astype(float))
    (other,) = found_in(np.repeat(X, weights, axis=0), [0, 0, 0, 3, 2])
    np.testing.assert_array_equal(own.cuts, other.cuts)
    np.testing.assert_allclose(own.fractions, other.fractions)


def test_what_only_becomes_more_probable_is_not_decided():
    n_found = 0
    for seed in range(20):
        rng, X = table(seed=seed)
        steep = X[:, 1] + 0.2 * rng.normal(size=len(X)) > 0.5
        n_found += len(found_in(np.column_stack([X, steep]), [0, 0, 0, 3, 2]))
    assert n_found == 0


def test_noise_that_depends_on_another_column_is_not_decided():
    rng, X = table(1500)
    wrong = (rng.random(1500) < 0.08) & (X[:, 3] == 0)
    assert found_in(np.column_stack([X, (X[:, 1] > 0.5) ^ wrong]), [0, 0, 0, 3, 2]) == []


def test_tables_without_thresholds_have_none():
    for seed in range(20):
        _, X = table(100, seed)
        assert found_in(X, [0, 0, 0, 3]) == []
    assert found_in(X[:, :3], [0, 0, 0]) == []
    assert found_in(X[:, 3:], [3]) == []
    assert found_in(X[:1], [0, 0, 0, 3]) == []
    assert found_in(np.column_stack([X, np.full(100, np.nan)]), [0, 0, 0, 3, 2]) == []


@pytest.mark.parametrize("labels", ["two columns", "one column"])
def test_a_band_of_one_number_has_a_width(labels):
    _, X = table(600)
    X[:, 0] = np.round(X[:, 0], 1)
    sides = [X[:, 0] >= 0.2, X[:, 0] > 0.2]
    flags = sides if labels == "two columns" else [sides[0] ^ sides[1]]
    (own,) = found_in(np.column_stack([X, *flags]), [0, 0, 0, 3, *[2] * len(flags)])
    np.testing.assert_allclose(own.cuts, [0.15, 0.25])
    bands = [[0, 1, 1], [0, 0, 1]] if labels == "two columns" else [[0, 1, 0]]
    np.testing.assert_array_equal(
        [own.tables[4 + i].argmax(axis=1) for i in range(len(flags))], bands
    )


def test_thresholds_without_rows_between_them_are_the_same():
    numbers = np.concatenate([np.linspace(0, 25.1, 200), [26.6, 28.6], np.linspace(29.9, 60, 200)])
    X = np.column_stack([numbers, numbers > 27.5, numbers > 27.5])
    # one category alone has the threshold 27, the other 28
    X[numbers == 26.6, 1] = X[numbers == 28.6, 2] = np.nan
    (own,) = found_in(X, [0, 2, 2])
    np.testing.assert_allclose(own.fractions, [0.5, 0.5])
    for column in (1, 2):
        seen = ~np.isnan(X[:, column])
        bands = np.searchsorted(own.cuts, X[seen, 0], side="right")
        np.testing.assert_array_equal(own.tables[column].argmax(axis=1)[bands], X[seen, column])


def test_the_numbers_that_tell_most_are_divided():
    _, X = table(600)
    flags = [X[:, j] > cut for j, cut in ((0, 0.0), (1, 2.0), (2, 0.2))]
    X = np.column_stack([X[:, :3], *flags])
    kept = found_in(X, [0, 0, 0, 2, 2, 2])
    assert [own.variable for own in kept] == [0, 2]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (2491.0, 2504.0, 2500.0),
        (0.27, 0.31, 0.3),
        (-1.3, 2.0, 0.0),
        (17.2, 18.0, 18.0),
        (-0.0312, -0.0288, -0.03),
        (1e9 + 1, 1e9 + 2, 1e9 + 1.5),
    ],
)
def test_thresholds_are_round(low, high, expected):
    found = _threshold(low, high, is_integral=False)
    assert low < found <= high
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_number_below_a_threshold_lies_below_it():
    assert 2500.0 < _threshold(2500.0, 2511.0, is_integral=False) < 2500.0001
    assert _threshold(2500.0, 2511.0, is_integral=True) == 2500.5
    assert _threshold(17.0, 18.0, is_integral=True) == 17.5
    adjacent = np.nextafter(1.0, 2.0)
    assert _threshold(1.0, adjacent, is_integral=False) == adjacent
