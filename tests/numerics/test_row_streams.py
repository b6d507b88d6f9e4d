"""Streams keyed per row: good random numbers, and the same ones whatever surrounds a row."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import kstest

from skcircuits.circuits import Categorical, Circuit, Gaussian, MultivariateGaussian
from skcircuits.numerics._random import LatticeStreams, RowStreams

N = 20_000


@pytest.fixture
def mixture():
    correlated = MultivariateGaussian([1, 2], [0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]])
    return Circuit(
        0.3 * Categorical(0, [0.2, 0.8]) * correlated
        + 0.7 * Categorical(0, [0.5, 0.5]) * Gaussian(1, 2.0, 1.0) * Gaussian(2, 2.0, 1.0)
    )


@pytest.mark.parametrize(
    ("rows", "draw", "place"),
    [
        (np.arange(N), 0, 3),
        (np.zeros(N, dtype=int), np.arange(N), 3),
        (np.zeros(N, dtype=int), 0, np.arange(N)),
    ],
    ids=["over rows", "over draws", "over places"],
)
def test_numbers_look_random_along_every_key(rows, draw, place):
    draws = RowStreams(np.arange(float(N))[:, None], seed=0).at(rows, draw, place)
    uniform, normal = draws.random(N), draws.standard_normal((N, 3))
    assert kstest(uniform, "uniform").pvalue > 1e-3
    assert min(kstest(column, "norm").pvalue for column in normal.T) > 1e-3
    assert abs(np.corrcoef(uniform[1:], uniform[:-1])[0, 1]) < 4 / np.sqrt(N)
    off_diagonal = np.corrcoef(normal.T)[np.triu_indices(3, 1)]
    assert np.abs(off_diagonal).max() < 4 / np.sqrt(N)


def test_streams_depend_on_the_cells_and_the_seed_alone():
    X = np.array([[0.0, np.nan], [-0.0, -np.nan], [0.0, 1.0]])

    def first_number(row, seed=0):
        return RowStreams(X[[row]], seed).at(np.arange(1), 0, 0).random(1)[0]

    assert first_number(0) == first_number(1) != first_number(2)
    assert first_number(0, seed=1) != first_number(0)


def test_equal_rows_have_streams_of_their_own():
    X = np.array([[1.0, np.nan], [2.0, np.nan]])[np.random.default_rng(0).integers(2, size=2000)]
    numbers = RowStreams(X, 0).at(np.arange(len(X)), 0, 0).random(len(X))
    assert len(np.unique(numbers)) == len(X)
    assert kstest(numbers[X[:, 0] == 1], "uniform").pvalue > 1e-3
    # The k-th of equal rows has the k-th stream, whatever lies between them
    ones = np.flatnonzero(X[:, 0] == 1)
    alone = RowStreams(X[ones], 0).at(np.arange(len(ones)), 0, 0).random(len(ones))
    np.testing.assert_array_equal(alone, numbers[ones])


def test_completions_do_not_depend_on_order_subset_or_blocks(mixture):
    generator = np.random.default_rng(0)
    X = mixture.sample(1500, random_state=generator)
    X[generator.random(X.shape) < 0.4] = np.nan
    # The order tells equal rows apart
    X = X[np.unique(np.nan_to_num(X, nan=-99.0), axis=0, return_index=True)[1]]
    expected = mixture.sample(2, X=X, random_state=RowStreams(X, 5))

    order = generator.permutation(len(X))
    shuffled = mixture.sample(2, X=X[order], random_state=RowStreams(X[order], 5))
    np.testing.assert_allclose(shuffled, expected[:, order], rtol=1e-12)
    single = mixture.sample(2, X=X[7:8], random_state=RowStreams(X[7:8], 5))
    np.testing.assert_allclose(single, expected[:, 7:8], rtol=1e-12)


def test_keyed_completions_have_the_conditional_distribution(mixture):
    x = np.array([[1.0, np.nan, 0.5]])
    drawn = mixture.sample(N, X=x, random_state=RowStreams(x, 0))[:, 0, 1]
    mean, variance = mixture.expectation(x)[0, 1], mixture.variance(x)[0, 1]
    assert abs(drawn.mean() - mean) < 4 * np.sqrt(variance / N)
    assert drawn.var() == pytest.approx(variance, rel=0.05)


def test_lattices_stratify_every_number():
    rows = np.array([[0.0, np.nan], [1.0, 2.0]])
    streams = LatticeStreams(rows, seed=1, size=16)
    draws = np.arange(64)
    for row in (0, 1):
        normal = streams.at(np.full(64, row), draws, 5).standard_normal((64, 3))
        strata = np.floor(ndtr(normal) * 16).astype(int)
        for run in np.split(strata, 4):
            # A shifted lattice has one point in each interval of its own length
            assert (np.sort(run, axis=0) == np.arange(16)[:, None]).all()
    # Runs differ, and so do rows
    first = streams.at(np.array([0, 0, 1]), np.array([0, 16, 0]), 5).random(3)
    assert len(set(first)) == 3
