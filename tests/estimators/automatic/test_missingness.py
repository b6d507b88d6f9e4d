import numpy as np
import pytest

from skcircuits import AutomaticDensity, CircuitImputer
from skcircuits.circuits import Categorical as States
from skcircuits.circuits import Circuit, Gaussian
from skcircuits.estimators.automatic._missingness import InformedCircuit, Missingness, _p_value
from skcircuits.tabular._schema import TableSchema


def correlated(n_rows, rng):
    """Three correlated numbers and a category of two."""
    numbers = rng.normal(size=(n_rows, 1)) + 0.6 * rng.normal(size=(n_rows, 3))
    return np.column_stack([numbers, numbers[:, 0] + rng.normal(size=n_rows) > 0.0])


def hidden_at_random(X, rng):
    return np.where(rng.random(X.shape) < 0.3, np.nan, X)


def large_ones_hidden(X, rng):
    """Large numbers are missing more often; the last column is complete."""
    chance = 1.0 / (1.0 + np.exp(-2.0 * (X - X.mean(axis=0)) / X.std(axis=0)))
    chance[:, -1] = 0.0
    return np.where(rng.random(X.shape) < chance, np.nan, X)


CARDINALITIES = np.array([0, 0, 0, 2])


def test_levels_are_kept_where_cells_are_missing_completely_at_random():
    rng = np.random.default_rng(0)
    columns = np.arange(4)
    values = [
        _p_value(hidden_at_random(correlated(120, rng), rng), CARDINALITIES, columns)
        for _ in range(300)
    ]
    assert 0.45 < np.mean(values) < 0.55
    assert np.mean(np.array(values) < 0.05) < 0.09


def test_missing_cells_that_tell_are_found():
    rng = np.random.default_rng(1)
    X = large_ones_hidden(correlated(200, rng), rng)
    found = Missingness.informative(X, CARDINALITIES)
    assert found.columns.tolist() == [0, 1, 2]
    assert Missingness.informative(hidden_at_random(X, rng)[:20], CARDINALITIES) is None
    assert Missingness.informative(correlated(50, rng), CARDINALITIES) is None


def test_indicators_are_last_columns():
    own = Missingness(np.array([0, 2]), 3)
    X = np.array([[np.nan, 1.0, 2.0], [0.5, np.nan, np.nan]])
    np.testing.assert_array_equal(own.append(X)[:, 3:], [[1.0, 0.0], [0.0, 1.0]])
    schema = own.extended(TableSchema.learn(X))
    assert schema.cardinalities.tolist() == [0, 0, 0, 2, 2]
    assert schema.names[3:] == ["x0 is missing", "x2 is missing"]


def test_answers_know_which_cells_are_missing():
    # the second of two classes has large numbers, which are missing in most of its rows
    own = Missingness(np.array([0]), 1)
    circuit = Circuit(
        0.5 * Gaussian(0, 0.0, 1.0) * States(1, [0.9, 0.1])
        + 0.5 * Gaussian(0, 5.0, 1.0) * States(1, [0.2, 0.8])
    )
    informed = InformedCircuit(circuit, own)
    missing = np.array([[np.nan]])
    assert informed._mean_and_marginals(missing)[0][0, 0] == pytest.approx(5.0 * 0.8 / 0.9)
    assert informed.log_prob(missing)[0] == pytest.approx(np.log(0.45))
    draws = informed.sample(4000, missing, 0)
    assert draws.shape == (4000, 1, 1)
    assert draws.mean() == pytest.approx(5.0 * 0.8 / 0.9, abs=0.15)
    # without indicators the classes count the same
    assert own.without(circuit).expectation(missing)[0, 0] == pytest.approx(2.5)


def test_hidden_large_values_are_imputed_larger():
    rng = np.random.default_rng(2)
    X = correlated(300, rng)
    masked = large_ones_hidden(X, rng)
    hidden = np.isnan(masked)[:, :3]
    imputer = CircuitImputer(categorical_features=[3], random_state=0).fit(masked)
    density = imputer.density_
    assert isinstance(density, AutomaticDensity)
    assert density.circuit_.variables == (0, 1, 2, 3)
    assert density.densities_[0].circuit_.variables == (0, 1, 2, 3, 4, 5, 6)

    def error(imputer):
        off = (imputer.transform(masked) - X)[:, :3][hidden]
        return np.sqrt(np.mean(off**2)), off.mean()

    informed = error(imputer)
    density._missingness = None  # the same circuits, as if all cells were missing at random
    density.densities_ = [_Marginal(d, 4) for d in density.densities_]
    plain = error(imputer)
    assert informed[0] < 0.98 * plain[0]
    assert plain[1] < informed[1] < 0.05
    tables = CircuitImputer(categorical_features=[3], random_state=0).fit(masked)
    first, second = tables.sample_imputations(masked, 2)
    np.testing.assert_array_equal(first[:, :3][~hidden], X[:, :3][~hidden])
    assert not np.array_equal(first, second)


class _Marginal:
    """A density of the first columns alone."""

    def __init__(self, density, n_columns):
        more = [j for j in density.circuit_.variables if j >= n_columns]
        self.circuit_ = density.circuit_.marginalize(more)
