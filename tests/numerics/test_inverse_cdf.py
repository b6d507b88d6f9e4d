"""Draws from many discrete distributions at once."""

import numpy as np
import pytest
from scipy import stats

from skcircuits.numerics._random import InverseCdf


def random_distributions(seed, n_distributions=50):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 40, size=n_distributions)
    masses = rng.gamma(0.2, size=lengths.sum())
    masses[rng.random(len(masses)) < 0.3] = 0.0
    starts = np.cumsum(lengths) - lengths
    masses[starts] = np.maximum(masses[starts], 1e-3)
    return masses * 10.0 ** rng.integers(-200, 200), starts, lengths


@pytest.mark.parametrize("seed", range(5))
def test_draws_invert_the_distribution_function(seed):
    masses, starts, lengths = random_distributions(seed)
    rng = np.random.default_rng(seed)
    which, uniform = rng.integers(len(starts), size=2000), rng.random(2000)
    found = InverseCdf(masses, starts, lengths).draw(which, uniform)
    for distribution, u, outcome in zip(which, uniform, found):
        own = masses[starts[distribution] :][: lengths[distribution]]
        expected = np.searchsorted(np.cumsum(own / own.sum()), u, side="right")
        assert outcome - starts[distribution] == expected


def test_outcomes_without_mass_are_never_drawn():
    masses = np.array([0.0, 1.0, 0.0, 0.0, 1e-300, 0.0])
    cdf = InverseCdf(masses, np.array([0, 3]), np.array([3, 3]))
    uniform = np.array([0.0, 0.5, np.nextafter(1.0, 0.0)])
    for u in uniform:
        np.testing.assert_array_equal(cdf.draw(np.array([0, 1]), np.full(2, u)), [1, 4])


def test_frequencies():
    masses = np.array([0.1, 0.6, 0.3])
    cdf = InverseCdf(masses, np.array([0]), np.array([3]))
    draws = cdf.draw(np.zeros(30_000, dtype=int), np.random.default_rng(0).random(30_000))
    assert stats.chisquare(np.bincount(draws), masses * 30_000).pvalue > 1e-3


def test_many_distributions_keep_the_digits_of_the_last():
    """Thousands of distributions in a row: the cumulative sums of each start at zero."""
    masses = np.tile([1e-12, 1.0], 5_000)
    starts = np.arange(0, 10_000, 2)
    cdf = InverseCdf(masses, starts, np.full(5_000, 2))
    last = np.array([4_999])
    assert cdf.draw(last, np.array([1e-9]))[0] == 9_999
