"""Trials of mixtures do without circuits, and agree with those."""

import numpy as np
import pytest
from sklearn.base import clone

from skcircuits import GaussianMixtureDensity, WMISPNDensity
from skcircuits.estimators.automatic._comparison import PairTables
from skcircuits.estimators.automatic._experts import Expert, _state_on, _try, with_histograms
from skcircuits.learning.gaussian_mixture._held_out import mean_bounds, split_table
from skcircuits.learning.gaussian_mixture._table import MixtureTable

_N_TURNS = 2


@pytest.fixture(scope="module")
def rows():
    """Skewed numbers and two categories that depend on them, some cells missing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 5)) @ rng.normal(size=(5, 5))
    X[:, 0] = np.exp(X[:, 0] / 2)
    X[:, 3:] = X[:, 3:] > 0
    X[:, 4] += X[:, 1] > 1
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


def tried(rows, expert, criterion):
    """A trial of an expert, the density of the same fit, and what both are asked."""
    table = MixtureTable.prepare(rows, np.array([0, 0, 0, 2, 3]))
    rng = np.random.default_rng(0)
    ((part, held_out),) = split_table(table, rng)
    turns = held_out.in_turns(_N_TURNS, rng) if criterion == "cells" else [held_out]
    pairs = None if criterion == "cells" else PairTables(rows, table.cardinalities)
    schema = WMISPNDensity(categorical_features=[3, 4]).fit(rows)._schema
    grouped = expert.groups_of(rows[part.source], part.weights, part.cardinalities)
    asked = (part, turns, None, {"max_iter": 6}, grouped, rows, schema, criterion, 0, pairs)
    trial = _try(expert, *asked)
    is_mixed = GaussianMixtureDensity(categorical_features=[3, 4], max_iter=1)
    with pytest.warns(UserWarning, match="converge"):
        density = is_mixed.set_params(**dict(expert.parameters)).fit(rows)
    density._map, density._grouped, state, units = None, grouped, trial.fit, part
    if expert.is_transformed or expert.is_grouped:
        density._map, state, units = trial.fit.sinh_map, trial.fit.state, trial.fit.units
    density._keep([state], units)
    return trial, density, part, turns, pairs


EXPERTS = [
    Expert.mixture("shrunk", 3),
    Expert.mixture("tied", 2, location_model=True),
    Expert.mixture("shrunk", 3, transformation="johnson"),
    Expert.mixture("tied", 2, location_model=True, transformation="johnson"),
]
GROUPED = [
    Expert.mixture("shrunk", 3, point_masses="frequent"),
    Expert.mixture("tied", 2, location_model=True, point_masses="frequent"),
    *with_histograms(
        [
            Expert.mixture("shrunk", 3, transformation="johnson"),
            Expert.mixture("tied", 2, point_masses="frequent", transformation="johnson"),
        ],
        (1,),
    ),
]


@pytest.mark.parametrize("expert", EXPERTS + GROUPED, ids=str)
def test_log_densities_and_pairs_are_those_of_circuits(rows, expert):
    if expert.is_grouped:  # a point mass at the first quartile, and rows in the tails
        rows = rows.copy()
        rows[:, 0] = np.where(rows[:, 0] < np.nanmedian(rows[:, 0]), 0.0, rows[:, 0])
    trial, density, _, (turn,), pairs = tried(rows, expert, "log_likelihood")
    bounds = None  # no means are asked for
    expected = turn.predict_by(density.circuit_, rows, "log_likelihood", bounds)
    (found,) = trial.predictions
    np.testing.assert_allclose(found.log_complete, expected.log_complete, rtol=1e-9)
    for own, (j, size) in zip(trial.pairs[::3], [(3, 2), (4, 3)], strict=True):
        assert own.shape == (size, 4)
        assert own.sum() == pytest.approx(1.0)
        for code in range(size):
            below = density.circuit_.log_prob_box(
                *(
                    np.array([[limit, *[np.nan] * 2, *codes]])
                    for limit, codes in [
                        (np.nan, [code if k == j else np.nan for k in (3, 4)]),
                        (pairs.edges[0][1], [code if k == j else np.nan for k in (3, 4)]),
                    ]
                )
            )
            assert own[code, :2].sum() == pytest.approx(np.exp(below[0]), abs=1e-3)


@pytest.mark.parametrize("expert", EXPERTS, ids=str)
def test_predicted_cells_are_those_of_circuits(rows, expert):
    trial, density, part, turns, _ = tried(rows, expert, "cells")
    for turn, found in zip(turns, trial.predictions, strict=True):
        expected = turn.predict_by(density.circuit_, rows, "cells", mean_bounds(part.numbers))
        np.testing.assert_allclose(found.numbers, expected.numbers, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-7)


@pytest.mark.parametrize("expert", EXPERTS, ids=str)
def test_answers_about_all_cells_are_those_of_circuits(rows, expert):
    trial, density, part, (turn, _), _ = tried(rows, expert, "cells")
    bounds = mean_bounds(part.numbers)
    for own in (turn, turn.of(part)):
        expected = own.answer_cells_by(density.circuit_, rows, bounds)
        means, tables = own.answer_cells(*_state_on(trial.fit, own.table, rows), bounds)
        is_open = own.is_missing
        np.testing.assert_allclose(means[is_open[:, :3]], expected[0][is_open[:, :3]], atol=1e-7)
        for j, table, other in zip((3, 4), tables, expected[1], strict=True):
            np.testing.assert_allclose(table[is_open[:, j]], other[is_open[:, j]], atol=1e-9)


def test_columns_with_histograms_are_those_of_the_first_fit_alone():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(size=300), rng.normal(size=300)])
    (expert,) = with_histograms([Expert.mixture("shrunk", 3, transformation="johnson")], (0,))
    grouped = expert.groups_of(X, np.ones(len(X)), np.zeros(2, dtype=int))
    density = expert.make(0, grouped=grouped).fit(X)
    again = density.fit(X[:, ::-1]).score_samples(X[:, ::-1])
    np.testing.assert_array_equal(again, clone(density).fit(X[:, ::-1]).score_samples(X[:, ::-1]))
