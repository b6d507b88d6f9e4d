import numpy as np
import pytest

from skcircuits.circuits.inputs.polynomial._groups import distinct_numbers


@pytest.mark.parametrize("n_distinct", [1, 40, 3000, 30_000, 100_000])
@pytest.mark.parametrize("n", [1, 500, 100_000])
def test_agrees_with_unique(n, n_distinct):
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
