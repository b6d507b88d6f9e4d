"""Columns with point masses, and those with histograms, as groups of numbers."""

import numpy as np
import pytest

from skcircuits.circuits import Circuit
from skcircuits.learning.gaussian_mixture._candidates import grouped_columns

RNG = np.random.default_rng(0)


def grouped(values, weights=None):
    values = np.asarray(values, dtype=float)
    weights = np.ones(len(values)) if weights is None else weights
    X = np.column_stack([np.full(len(values), np.nan), values])
    return grouped_columns(X, weights, np.zeros(2, int), "frequent", False).get(1)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_groups_are_point_masses_and_parts_of_equal_weight(scale):
    values = scale * np.where(RNG.random(1000) < 0.5, 0.0, RNG.exponential(size=1000))
    column = grouped(values)
    codes = column.encode(np.append(values, [np.nan, -scale, 100 * scale]))
    assert column.n_groups == 9
    np.testing.assert_array_equal(codes[:1000] == 0, values == 0)
    counts = np.bincount(codes[:1000].astype(int))
    assert counts[1:].min() > 0.5 * counts[1:].max()
    assert np.isnan(codes[1000])
    # What lies beyond the range belongs to the outermost groups
    assert codes[1001:].tolist() == [1, 8]
    # Groups are consecutive
    order = np.argsort(values[values > 0])
    assert (np.diff(codes[:1000][values > 0][order]) >= 0).all()


def test_probabilities_of_groups_are_those_of_the_unit():
    values = np.where(RNG.random(400) < 0.3, 2.0, RNG.normal(size=400))
    column = grouped(values)
    probabilities = RNG.dirichlet(np.ones(column.n_groups))
    circuit = Circuit(column.unit(probabilities))
    drawn = circuit.sample(20_000, random_state=0)[:, 1]
    frequencies = np.bincount(column.encode(drawn).astype(int), minlength=column.n_groups) / 20_000
    # The tails have a probability of their own, which is that of a row
    np.testing.assert_allclose(frequencies, probabilities, atol=0.02)
    cells = np.full((1, 2), np.nan)
    cells[0, 1] = 2.0
    assert circuit.log_prob(cells)[0] == pytest.approx(np.log(probabilities[0]), abs=0.01)


def test_columns_of_levels_are_point_masses_alone():
    column = grouped(np.repeat([0.0, 0.5, 3.0], 20))
    assert column.n_groups == 4
    assert column.encode(np.array([0.0, 0.5, 3.0, 1.0])).tolist() == [0, 1, 2, 3]
    cells = np.array([[np.nan, 0.5]])
    log_prob = Circuit(column.unit(np.array([0.2, 0.5, 0.3, 0.0]))).log_prob(cells)
    assert log_prob[0] == pytest.approx(np.log(0.5), abs=0.02)


def test_columns_without_frequent_values_are_not_grouped():
    assert grouped(RNG.normal(size=100)) is None
    assert grouped(np.full(5, np.nan)) is None
    values = np.append(RNG.normal(size=100), np.zeros(100))
    assert grouped(values, np.append(np.ones(100), np.zeros(100))) is None
    assert grouped(values) is not None


def histograms(X):
    return list(grouped_columns(X, np.ones(len(X)), np.zeros(X.shape[1], int), False, True))


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_columns_that_no_normal_one_resembles_have_histograms(missing):
    rng = np.random.default_rng(1)
    z, nothing = rng.normal(size=(1000, 2)), np.full(1000, np.nan)
    ends = rng.beta(0.3, 0.3, 1000)
    X = np.column_stack([z[:, 1], rng.random(1000), np.exp(z[:, 0]), ends, nothing])
    X[rng.random(X.shape) < missing] = np.nan
    assert histograms(X) == [1, 3]


def test_columns_that_others_determine_have_no_histograms():
    rng = np.random.default_rng(1)
    uniform, noise = rng.uniform(-1.0, 1.0, size=(1000, 3)), 0.05 * rng.normal(size=1000)
    assert histograms(np.column_stack([uniform, uniform[:, 0] + noise])) == [1, 2]
    # Only components show that squares depend on their roots
    assert histograms(np.column_stack([uniform, uniform[:, 0] ** 2 + noise])) == [1, 2]


def test_the_density_of_a_row_that_is_left_out_is_that_of_other_rows():
    rng = np.random.default_rng(2)
    values, others = rng.beta(0.4, 0.4, size=(2, 2000))
    X, weights = values[:, None], np.ones(2000)
    column = grouped_columns(X, weights, np.zeros(1, int), False, True)[0]
    codes = column.encode(values).astype(int)
    masses = np.bincount(codes, minlength=column.n_groups) / len(values)
    log_prob = Circuit(column.unit(masses)).log_prob(others[:, None])
    error = 4.0 * log_prob.std() / np.sqrt(len(others))
    assert column.log_density == pytest.approx(log_prob.mean(), abs=error)
