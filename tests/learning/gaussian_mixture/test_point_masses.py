"""Columns with point masses, as groups of numbers."""

import numpy as np
import pytest

from skcircuits.circuits import Circuit
from skcircuits.learning.gaussian_mixture._categories import GroupedColumn

RNG = np.random.default_rng(0)


def grouped(values, weights=None):
    values = np.asarray(values, dtype=float)
    return GroupedColumn.fit(1, values, np.ones(len(values)) if weights is None else weights)


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
