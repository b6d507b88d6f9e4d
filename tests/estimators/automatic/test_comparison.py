import numpy as np
import pytest

from skcircuits import AutomaticDensity, GaussianMixtureDensity
from skcircuits.circuits.inputs.johnson import SinhMap
from skcircuits.estimators.automatic._comparison import (
    _below,
    _in_units_of_errors,
    are_misfit,
    stacking_weights,
)
from skcircuits.learning.gaussian_mixture._candidates import Candidate, try_candidate
from skcircuits.learning.gaussian_mixture._held_out import Answers
from skcircuits.learning.gaussian_mixture._learner import EMSettings
from skcircuits.learning.gaussian_mixture._table import MixtureTable


def prepared(X):
    return MixtureTable.prepare(X, np.zeros(X.shape[1], dtype=np.int64))


def fitted(table, *candidate):
    return try_candidate(table, Candidate(*candidate), EMSettings(), 0)


@pytest.mark.parametrize("candidate", [("full", 0, 2), ("tied", 0, 2), ("factor", 1, 2)])
def test_states_and_circuits_have_the_same_marginals(candidate):
    X = np.random.default_rng(0).gamma(2.0, size=(60, 3)) * [1.0, 20.0, 0.1]
    shape, n_factors, n_components = candidate
    factors = {"n_factors": n_factors} if n_factors else {}
    density = GaussianMixtureDensity(
        covariance_type=shape, n_components=n_components, random_state=0, **factors
    ).fit(X)
    (state,) = density._states
    limits = np.quantile(X, [0.1, 0.5, 0.8], axis=0).T
    asked = [
        [density.probability({j: (None, limit)}) for limit in own]
        for j, own in enumerate(limits.tolist())
    ]
    for fit in (state, density):
        np.testing.assert_allclose(_below(fit, prepared(X), np.arange(3), limits), asked)


def test_a_normal_column_is_fitted_by_a_normal_distribution_and_a_uniform_one_is_not():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=500), rng.random(500), rng.normal(size=500)])
    X[::7, 0] = np.nan
    X[:, 2] = np.nan  # nothing is known about it
    for kept, expected in (([0, 2], False), ([0, 1, 2], True)):
        table = prepared(X[:, kept])
        state = fitted(table, "tied", 0, 1)
        assert are_misfit([(state, 1.0)], table, X[:, kept], 500) is expected


def test_weights_count():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1)) + 5.0 * (rng.random((400, 1)) < 0.5)
    table = prepared(X)
    single, two = fitted(table, "tied", 0, 1), fitted(table, "full", 0, 2)
    assert are_misfit([(single, 0.9), (two, 0.1)], table, X, 400)
    assert not are_misfit([(single, 0.1), (two, 0.9)], table, X, 400)


def largest_errors(table, n_columns):
    density = AutomaticDensity(random_state=0).fit(table)
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    queries = [
        {j: (None, limit)}
        for j in range(n_columns)
        for limit in np.quantile(table[:, j], levels).tolist()
    ]
    found = density.probabilities(queries).reshape(n_columns, -1)
    return np.abs(found - levels).max(axis=1), density


def test_skewed_columns_without_categories():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(600, 2)) @ [[1.0, 0.5, 0.3], [0.0, 0.8, 0.5]]
    errors, density = largest_errors(np.exp(z + 0.4 * rng.normal(size=(600, 3))), 3)
    assert density.selection_[0]["transformation"] == "johnson"
    assert errors.max() < 0.03


def test_columns_without_any_cell_are_compared_in_silence(recwarn):
    X = np.random.default_rng(0).normal(size=(120, 4))
    X[:, 2] = np.nan
    AutomaticDensity(selection="cells", families=["gaussian_mixture"], random_state=0).fit(X)
    assert not [own for own in recwarn if own.category is RuntimeWarning]


def test_other_families_are_tried_where_gaussian_mixtures_do_not_suit():
    rng = np.random.default_rng(0)
    errors, density = largest_errors(rng.random((600, 3)), 3)
    assert density.selection_[0]["family"] != "gaussian_mixture"
    assert errors.max() < 0.03
    few = AutomaticDensity(families=["gaussian_mixture"], random_state=0).fit(rng.random((200, 2)))
    assert {row["family"] for row in few.selection_} == {"gaussian_mixture"}


def test_normal_tables_get_no_further_candidates():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)) @ rng.normal(size=(4, 4))
    density = AutomaticDensity(random_state=0).fit(X)
    assert all("transformation" not in row for row in density.selection_)
    assert {row["n_components"] for row in density.selection_ if row["weight"]} == {1}


def test_skewed_columns_of_large_tables(monkeypatch):
    monkeypatch.setattr("skcircuits.learning.gaussian_mixture._candidates._POOL_CELLS", 100)
    rng = np.random.default_rng(0)
    errors, density = largest_errors(np.exp(rng.normal(size=(600, 2))), 2)
    assert density.selection_[0]["transformation"] == "johnson"
    assert errors.max() < 0.03


def answers(n_cells=400, seed=0):
    """Three experts: a good one, one that errs the other way, and noise."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=n_cells)
    error = rng.normal(size=n_cells)
    means = np.column_stack([truth + error, truth - 0.5 * error, 3.0 * rng.normal(size=n_cells)])
    likelihoods = rng.uniform(0.2, 0.9, size=(n_cells, 3)) * [1.0, 1.0, 0.3]
    ones = np.ones(n_cells)
    return Answers(means, truth, ones, likelihoods, ones)


def loss(weights, own, prior_cells=10.0):
    squares = np.square(own.means @ weights - own.truth) @ own.number_weights
    logs = np.log(own.likelihoods @ weights) @ own.log_weights
    return squares - logs - prior_cells * np.log(weights).mean()


def test_no_other_weights_are_better():
    own = answers()
    weights = stacking_weights([own])
    assert weights.sum() == pytest.approx(1.0)
    best = loss(weights, own)
    others = np.random.default_rng(1).dirichlet(np.ones(3), size=2000)
    assert min(loss(other, own) for other in others) > best
    near = np.maximum(weights + 1e-3 * np.random.default_rng(2).normal(size=(500, 3)), 1e-9)
    assert min(loss(n / n.sum(), own) for n in near) > best - 1e-6
    # neither of two experts whose errors cancel is as good as both
    assert weights[0] > 0.2 and weights[1] > 0.4 and weights[2] < 0.05


def test_few_cells_leave_weights_nearly_equal():
    own = Answers(*(array[:2] for array in answers()))
    np.testing.assert_allclose(stacking_weights([own]), 1.0 / 3.0, atol=0.2)
    none = Answers(*(array[:0] for array in answers()))
    np.testing.assert_allclose(stacking_weights([none]), 1.0 / 3.0)


def test_splits_and_weights_of_rows_count():
    own = answers()
    halves = [Answers(*(a[:150] for a in own)), Answers(*(a[150:] for a in own))]
    np.testing.assert_allclose(stacking_weights(halves), stacking_weights([own]), rtol=1e-6)
    doubled = own._replace(number_weights=2 * own.number_weights, log_weights=2 * own.log_weights)
    np.testing.assert_allclose(stacking_weights([own, own]), stacking_weights([doubled]), atol=1e-4)


def test_weights_are_drawn_towards_a_centre():
    centre = np.array([0.6, 0.3, 0.1])
    none = Answers(*(array[:0] for array in answers()))
    np.testing.assert_allclose(stacking_weights([none], centre=centre), centre, rtol=1e-6)
    many = answers(20_000)
    near, far = (stacking_weights([many], centre=own) for own in (centre, centre[::-1]))
    np.testing.assert_allclose(near, far, atol=0.01)


NONE = SinhMap(np.zeros(1), np.zeros(1))


def one_number(means, truth):
    nothing = np.zeros((0, means.shape[1]))
    return Answers(means, truth, np.ones(len(truth)), nothing, np.zeros(0))


def test_densities_that_nearly_know_a_number_get_nearly_all_weight():
    rng = np.random.default_rng(5)
    truth = rng.normal(size=60)
    own = one_number(truth[:, None] + rng.normal(size=(60, 3)) * [1e-4, 0.1, 0.1], truth)
    equal = np.full(3, 1.0 / 3.0)
    assert stacking_weights([own])[0] < 0.6
    scaled = _in_units_of_errors(own, equal, NONE)
    assert stacking_weights([scaled])[0] > 0.99
    # Units are those of the errors
    larger = one_number(100.0 * own.means, 100.0 * own.truth)
    np.testing.assert_allclose(
        _in_units_of_errors(larger, equal, NONE).number_weights * 1e4, scaled.number_weights
    )


def test_a_few_large_numbers_do_not_decide_about_skewed_columns():
    rng = np.random.default_rng(6)
    known = np.exp(2.0 * rng.normal(size=200))
    truth = known * np.exp(0.3 * rng.normal(size=200))
    worse = known * np.exp(0.8 * rng.normal(size=200))
    worse[truth.argmax()] = truth.max()  # by chance
    own = one_number(np.column_stack([known, worse]), truth)
    bent = SinhMap(np.zeros(1), np.full(1, 1e3))
    half = np.full(2, 0.5)
    weighed, plain = (stacking_weights([_in_units_of_errors(own, half, m)]) for m in (bent, NONE))
    assert weighed[0] > max(0.8, plain[0])
