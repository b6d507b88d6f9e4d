"""Numerical columns in cells, and smoothed counts of cells."""

import numpy as np
import pytest

from skcircuits.circuits import Circuit
from skcircuits.learning._columns import (
    MAX_CELLS,
    ColumnCells,
    describe_column,
    sharp_breaks,
)


def make_cells(values, weights=None):
    values = np.asarray(values, dtype=float)
    weights = np.ones(len(values)) if weights is None else weights
    return ColumnCells.fit(describe_column(0, values, weights, 0), values, weights)


def counts_of(cells, values):
    codes = cells.encode(np.asarray(values, dtype=float)).astype(int)
    return np.bincount(codes, minlength=cells.n_cells).astype(float)[None]


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_cells_cover_the_range_and_what_lies_beyond(scale):
    values = scale * np.random.default_rng(0).normal(size=500)
    cells = make_cells(values)
    codes = cells.encode(np.array([values.min(), values.max(), -9 * scale, 9 * scale, np.nan]))
    assert cells.n_cells <= MAX_CELLS + 3
    assert codes[0] == 0
    assert codes[1] == cells.n_cells - 3
    assert codes[2:4].tolist() == [cells.n_cells - 2, cells.n_cells - 1]
    assert np.isnan(codes[4])
    assert (np.diff(cells.edges) > 0).all()


def test_outermost_cells_are_narrow_where_tails_are_long():
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(10):
        values = rng.pareto(2.5, size=4000)
        cells = make_cells(values)
        counts = counts_of(cells, values)[0]
        # halved down to two or three rows, a hundred and twenty-eighth of all rows elsewhere
        assert counts[-3] <= 4
        assert counts[0] <= 4
        assert counts[8:-11].min() > 25
        plain = cells.unit(cells.normalized(counts))
        errors.append(plain.moments()[0] / values.mean() - 1.0)
    assert abs(np.mean(errors)) < 0.03


def test_densities_within_cells_and_fractions_below_limits_are_those_of_units():
    rng = np.random.default_rng(1)
    values = np.concatenate([np.zeros(60), rng.normal(5.0, 1.0, size=140).round(1)])
    cells = make_cells(values)
    probabilities = cells.normalized(rng.random(cells.n_cells))
    circuit = Circuit(cells.unit(probabilities))
    asked = np.array([-3.0, 0.0, 0.01, 4.6, 5.033, 20.0])
    expected = np.log(probabilities[cells.encode(asked).astype(int)]) + cells.log_densities(asked)
    np.testing.assert_allclose(circuit.log_prob(asked[:, None]), expected, rtol=1e-12)
    assert np.isnan(cells.log_densities(np.array([np.nan]))).all()
    limits = np.array([-3.0, 0.01, 4.6, 5.033, 20.0])
    below = np.exp(circuit.log_prob_box(np.full((5, 1), np.nan), limits[:, None]))
    np.testing.assert_allclose(probabilities @ cells.below(limits), below, rtol=1e-9)
    # A point mass does not lie below itself
    mass = probabilities @ np.diff(cells.below(np.array([0.0, np.nextafter(0.0, 1.0)])))[:, 0]
    assert mass == pytest.approx(probabilities[0])


def test_units_give_each_cell_its_probability():
    rng = np.random.default_rng(1)
    values = np.concatenate([np.zeros(60), rng.normal(5.0, 1.0, size=140).round(1)])
    cells = make_cells(values)
    counts = counts_of(cells, values)
    smoother, prior = cells.choose_smoother(counts, 0.5)
    assert prior.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(smoother.sum(axis=1), 1.0)
    probabilities = cells.normalized(counts @ smoother + 0.5 * prior)[0]
    unit = cells.unit(probabilities)
    n_atoms = len(cells.column.atoms)
    assert n_atoms == 1
    assert unit.atom_masses.sum() == pytest.approx(0.3, abs=0.01)
    assert unit.weights.sum() + unit.atom_masses.sum() == pytest.approx(1 - 2 * cells.tail)
    np.testing.assert_allclose(unit.weights, probabilities[n_atoms:-2])


def test_values_that_rows_share_are_told_from_chance():
    rng = np.random.default_rng(2)
    shared = rng.choice([1.0, 2.3, 3.1, 4.7, 7.7, 9.2], size=300) + 0.001 * rng.integers(
        2, size=300
    )
    spread = rng.random(300)
    kept = []
    for values in (shared, spread):
        cells = make_cells(values)
        smoother, _ = cells.choose_smoother(counts_of(cells, values), 0.5)
        kept.append(np.median(np.diag(smoother)))
    assert kept[0] > 0.5 > kept[1]


def test_integers_have_probabilities_and_not_spikes():
    values = np.random.default_rng(3).poisson(20.0, size=2000)
    cells = make_cells(values)
    counts = counts_of(cells, values)
    smoother, prior = cells.choose_smoother(counts, 0.5)
    unit = cells.unit(cells.normalized(counts @ smoother + 0.5 * prior)[0])
    density = np.exp(Circuit(unit).log_prob(np.arange(60.0)[:, None]))
    assert density.sum() == pytest.approx(1.0, abs=2e-3)
    assert density.max() < 0.12


@pytest.mark.parametrize("values", [[], [3.0], [3.0] * 40, [1.0, 2.0], [1.0, np.nextafter(1.0, 2)]])
def test_few_or_equal_values(values):
    cells = make_cells(values)
    counts = counts_of(cells, values)
    smoother, prior = cells.choose_smoother(counts, 0.5)
    table = cells.normalized(counts @ smoother + 0.5 * prior)
    assert np.isfinite(table).all()
    assert table.sum() == pytest.approx(1.0)
    assert np.isfinite(Circuit(cells.unit(table[0])).log_prob(np.array([[0.0], [3.0]]))).all()


def test_breaks_are_found_where_categories_jump_and_not_where_they_drift():
    rng = np.random.default_rng(5)
    values, weights = rng.normal(size=800), np.ones(800)
    codes = (values > 0.4) * 1.0 + (values > 1.0)
    codes[rng.random(800) < 0.04] = 0.0
    found = sharp_breaks(np.where(rng.random(800) < 0.1, np.nan, values), codes, weights)
    np.testing.assert_allclose(found, [0.4, 1.0], atol=0.05)
    drift = (rng.random(800) < 1.0 / (1.0 + np.exp(-2.0 * values))) * 1.0
    assert len(sharp_breaks(values, drift, weights)) == 0
    assert len(sharp_breaks(values, np.zeros(800), weights)) == 0


@pytest.mark.parametrize("decimals", [1, 9])
def test_no_count_spreads_beyond_a_break(decimals):
    values = np.round(np.random.default_rng(6).normal(size=600), decimals)
    cells = make_cells(values).broken(np.array([-9.0, 0.35, 0.75]))
    assert cells.n_cells == len(cells.edges) + len(cells.column.atoms) + 1
    smoother, _ = cells.choose_smoother(counts_of(cells, values), 0.5)
    side = np.searchsorted([0.35, 0.75], np.unique(values))
    code = cells.encode(np.unique(values)).astype(int)
    apart = side[:, None] != side
    assert not smoother[code[:, None], code][apart].any()
    assert smoother[code[:, None], code][~apart].any()
    np.testing.assert_allclose(smoother.sum(axis=1), 1.0)
