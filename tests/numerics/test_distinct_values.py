import numpy as np
import pytest

from skcircuits.numerics._arrays import distinct_values


@pytest.mark.parametrize("values", ["codes", "numbers", "negative", "large", "none", "zeros"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_distinct_values_are_those_of_a_sort(values, is_weighted):
    rng = np.random.default_rng(0)
    numbers = {
        "codes": rng.integers(0, 5, size=40),
        "numbers": np.round(rng.normal(size=40), 1),
        "negative": rng.integers(-3, 3, size=40),
        "large": rng.integers(0, 3, size=40) * 1e300,
        "none": np.empty(0),
        "zeros": np.array([-0.0, 0.0, 1.5, 2.0]),
    }[values].astype(float)
    weights = rng.random(len(numbers)) if is_weighted else np.ones(len(numbers))
    distinct, counts, n_entries = distinct_values(numbers, weights)
    expected = sorted(set(numbers.tolist()))
    np.testing.assert_array_equal(distinct, expected)
    np.testing.assert_array_equal(n_entries, [(numbers == value).sum() for value in expected])
    sums = [weights[numbers == value].sum() for value in expected]
    np.testing.assert_allclose(counts, sums, rtol=1e-12)
