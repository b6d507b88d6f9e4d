from dataclasses import replace

import numpy as np
import pytest

from skcircuits import CircuitImputer, HiddenChowLiuDensity
from skcircuits.circuits import Categorical, Circuit, Gaussian, MultivariateGaussian
from skcircuits.estimators.imputer import complete_rows
from skcircuits.estimators.shared._completion import Forests
from skcircuits.estimators.shared._fitting import TrainingRows
from skcircuits.numerics._random import RowStreams
from skcircuits.tabular._schema import CategoryGroups


def mixture(experts):
    weights, circuits = zip(*experts, strict=True)
    total = weights[0] * circuits[0].root
    for weight, circuit in zip(weights[1:], circuits[1:], strict=True):
        total = total + weight * circuit.root
    return Circuit(total)


@pytest.fixture
def experts():
    """The first finds a large number likelier, and expects another one and another category."""
    cov = [[1.0, 0.8], [0.8, 1.0]]
    first = Circuit(MultivariateGaussian([0, 1], [3.0, 3.0], cov) * Categorical(2, [0.9, 0.1]))
    second = Circuit(
        MultivariateGaussian([0, 1], [0.0, 0.0], np.eye(2)) * Categorical(2, [0.2, 0.8])
    )
    return [(0.3, first), (0.7, second)]


def complete(experts, X, strategy="mean", n_draws=1, **weights):
    streams = RowStreams(X, seed=0)
    is_categorical = np.array([False, False, True])[: X.shape[1]]
    return complete_rows(
        experts, mixture(experts), X, strategy, streams, n_draws, is_categorical, **weights
    )


def test_answers_are_averaged_with_the_same_weights_for_all_rows(experts):
    X = np.array([[4.0, np.nan, np.nan], [-4.0, np.nan, np.nan]])
    completed = complete(experts, X)
    own = [circuit.expectation(X)[:, 1] for _, circuit in experts]
    np.testing.assert_allclose(completed[:, 1], 0.3 * own[0] + 0.7 * own[1])
    np.testing.assert_array_equal(completed[:, 2], 1.0)  # .3 * .9 + .7 * .2 < .5
    alone = complete(experts[:1], X)
    np.testing.assert_allclose(alone[:, 1], own[0])
    np.testing.assert_array_equal(alone[:, 2], 0.0)


def test_draws_come_from_each_expert_as_often_as_it_weighs(experts):
    X = np.tile([np.nan, 50.0, np.nan], (1, 1))
    drawn = complete(experts, X, "sample", n_draws=4000)[:, 0, 0]
    # the conditional means are 40.6 and 0
    assert np.mean(drawn > 20.0) == pytest.approx(0.3, abs=0.03)


def test_an_expert_to_which_a_row_is_impossible_has_no_say_in_it():
    narrow = Circuit(Categorical(0, [0.5, 0.5, 0.0, 0.0]) * Gaussian(1, 5.0, 1.0))
    wide = Circuit(Categorical(0, [0.4, 0.3, 0.3, 0.0]) * Gaussian(1, -5.0, 1.0))
    experts = [(0.5, narrow), (0.5, wide)]
    X = np.array([[1.0, np.nan], [2.0, np.nan]])
    np.testing.assert_allclose(complete(experts, X), [[1.0, 0.0], [2.0, -5.0]])
    assert (complete(experts, X, "sample", n_draws=30)[:, 1, 1] < 0.0).all()
    with pytest.warns(UserWarning, match="probability zero"):
        beyond = complete(experts, np.array([[3.0, np.nan]]))
    np.testing.assert_allclose(beyond, [[3.0, 0.0]])


def test_an_expert_that_does_not_count_in_a_column_answers_where_it_is_alone():
    narrow = Circuit(Categorical(0, [0.5, 0.5, 0.0]) * Gaussian(1, 5.0, 1.0))
    wide = Circuit(Categorical(0, [0.4, 0.3, 0.3]) * Gaussian(1, -5.0, 1.0))
    X = np.array([[1.0, np.nan], [2.0, np.nan]])
    weights = np.array([[0.5, 1.0], [0.5, 0.0]])
    completed = complete([(0.5, narrow), (0.5, wide)], X, column_weights=weights)
    np.testing.assert_allclose(completed, [[1.0, 5.0], [2.0, -5.0]])


@pytest.mark.parametrize("strategy", ["mean", "mpe", "sample"])
@pytest.mark.parametrize("n_experts", [1, 2])
def test_rows_that_are_impossible_to_all_experts_have_the_marginal(strategy, n_experts):
    narrow = Circuit(Categorical(0, [0.5, 0.5, 0.0]) * Gaussian(1, 5.0, 1e-3))
    experts = [(1.0 / n_experts, narrow)] * n_experts
    weights = np.full((n_experts, 2), 1.0 / n_experts)
    X = np.array([[2.0, np.nan], [0.0, np.nan]])
    with pytest.warns(UserWarning, match="1 rows have probability zero"):
        completed = complete(experts, X, strategy, column_weights=weights)
    completed = completed.reshape(2, 2)
    np.testing.assert_allclose(completed, [[2.0, 5.0], [0.0, 5.0]], atol=0.01)


def test_integers_with_few_values_are_numbers_to_the_mean():
    """A latent tree has states for them; what is imputed is their mean, no state."""
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(400, 1))
    X = np.clip(np.round(2.5 + factor + 0.7 * rng.normal(size=(400, 4))), 1, 4)
    missing = rng.random(X.shape) < 0.3
    imputer = CircuitImputer(density=HiddenChowLiuDensity(random_state=0))
    imputed = imputer.fit_transform(np.where(missing, np.nan, X))
    error = np.mean((imputed - X)[missing] ** 2)
    rounded = np.mean((np.round(imputed) - X)[missing] ** 2)
    assert error < 0.95 * rounded
    assert error < 0.8 * X.var()


def with_exclusive_or(n, seed=0):
    """Rows whose last category is the exclusive or of two, one of them a threshold of a number."""
    rng = np.random.default_rng(seed)
    number, coin = rng.normal(size=n), rng.integers(0, 2, n)
    return np.column_stack([number, coin, (number > 0.3) ^ (coin == 1)]).astype(float)


def test_forests_know_interactions_and_thresholds():
    X = with_exclusive_or(400)
    rows = TrainingRows(
        np.where(np.arange(400)[:, None] % 7 == [[9, 9, 3]], np.nan, X), np.ones(400)
    )
    forests = Forests.grow(X, rows, {1: 2, 2: 2}, 40, seed=0)
    fresh = with_exclusive_or(300, seed=1)
    for column in (1, 2):
        is_missing = np.arange(3)[None] == np.full((300, 1), column)
        hidden = np.where(is_missing, 0.0, fresh)
        own, known = forests.answers(column, forests.ranks(hidden), is_missing)
        np.testing.assert_allclose(own.sum(axis=1), 1.0)
        # all other columns are known
        np.testing.assert_allclose(known, 1.0)
        assert np.mean(own.argmax(axis=1) == fresh[:, column]) > 0.95


def test_forests_count_as_much_as_the_columns_that_they_know():
    X = with_exclusive_or(400)
    rows = TrainingRows(X, np.ones(400))
    forests = replace(Forests.grow(X, rows, {2: 2}, 40, seed=0), weights={2: 0.5})
    is_missing = np.array([[False, False, True], [True, False, True], [True, True, True]])
    cells = np.array([[1.0, 1.0, 0.0]] * 3)
    (own, *_), known = forests.answers(2, forests.ranks(cells), is_missing)
    assert own[0] > 0.95
    assert known[0] == pytest.approx(1.0)
    assert 0.02 < known[1] < 0.9
    assert known[2] == 0.0
    tables = {2: np.array([[0.3, 0.7]] * 3)}
    means, averaged = forests.averaged(cells, tables, cells, is_missing)
    expected = 0.3 + 0.5 * known * (own[0] - 0.3)
    np.testing.assert_allclose(averaged[2][:, 0], expected)
    np.testing.assert_array_equal(means, cells)
    np.testing.assert_array_equal(tables[2], 0.3 + np.array([[0.0, 0.4]] * 3))


def test_forests_predict_means_of_numbers():
    X = with_exclusive_or(400)
    X = np.column_stack([X, 10.0 * X[:, 2] + X[:, 0]])
    grown = Forests.grow(X, TrainingRows(X, np.ones(400)), {3: 0}, 40, seed=0)
    forests = replace(grown, weights={3: 0.5})
    is_missing = np.zeros((400, 4), dtype=bool)
    is_missing[:300, 3] = True
    own, known = forests.answers(3, forests.ranks(X), is_missing)
    np.testing.assert_allclose(known, 1.0)
    assert np.std(own[:, 0] - X[:, 3]) < 1.0
    means, _ = forests.averaged(np.zeros_like(X), {}, X, is_missing)
    np.testing.assert_allclose(means[:300, 3], 0.5 * own[:300, 0])
    np.testing.assert_array_equal(means[300:], 0.0)
    np.testing.assert_array_equal(means[:, :3], 0.0)


def test_forests_do_not_depend_on_units_of_numbers():
    X = with_exclusive_or(200)
    is_missing = np.arange(3)[None] == np.full((200, 1), 2)
    answers = []
    for unit in (1.0, 1e300, 1e-300):
        scaled = X * [unit, 1.0, 1.0]
        forests = Forests.grow(scaled, TrainingRows(scaled, np.ones(200)), {2: 2}, 10, seed=0)
        answers.append(forests.answers(2, forests.ranks(scaled), is_missing)[0])
    np.testing.assert_array_equal(answers[1], answers[0])
    np.testing.assert_array_equal(answers[2], answers[0])


def test_rounding_does_not_move_completed_cells_to_other_leaves():
    rng = np.random.default_rng(0)
    X = np.column_stack([with_exclusive_or(200), np.repeat([-1.0, 1.0], 100)])
    rows = TrainingRows(X.copy(), np.ones(200))
    rows.X[rng.random(X.shape) < 0.3] = np.nan
    completed = np.where(np.isnan(rows.X), [0.1, 0.0, 1.0, 0.0], rows.X)
    forests = Forests.grow(completed, rows, {2: 2}, 10, seed=0)
    is_missing = np.isnan(rows.X)
    own, _ = forests.answers(2, forests.ranks(completed), is_missing)
    for rounding in (-1e-15, 1e-15):
        other, _ = forests.answers(2, forests.ranks(completed + rounding * is_missing), is_missing)
        np.testing.assert_array_equal(other, own)


def test_forests_over_states_answer_about_numbers_and_all_categories():
    rng = np.random.default_rng(0)
    groups = CategoryGroups(np.repeat([0, 1, 2], [1, 1, 58]))  # the last state has many categories
    numbers = np.array([5.0, 9.0])
    codes = np.where(rng.random(400) < 0.7, rng.integers(2, size=400), rng.integers(60, size=400))
    X = np.column_stack([rng.choice(numbers, 400), codes, rng.normal(size=400)]).astype(float)
    X[:, 2] += 3.0 * (X[:, 0] > 5.0) + 6.0 * (codes > 0)
    over_states = np.column_stack([X[:, 0] > 5.0, groups.encode(X[:, 1]), X[:, 2]]).astype(float)
    rows = TrainingRows(over_states, np.ones(400))
    forests = replace(
        Forests.grow(over_states, rows, {1: 3, 2: 0}, 40, 0), weights={1: 1.0, 2: 1.0}
    )
    whole = forests.of_numbers_and_categories({0: numbers}, {1: groups})
    np.testing.assert_array_equal(whole.ranks(X), forests.ranks(over_states))
    is_missing = np.tile([False, True, True], (400, 1))
    means, tables = whole.averaged(X, {1: np.full((400, 60), 1.0 / 60)}, X, is_missing)
    other, few = forests.averaged(
        over_states, {1: np.full((400, 3), 1 / 3)}, over_states, is_missing
    )
    np.testing.assert_array_equal(means[:, 2], other[:, 2])
    known = forests.answers(1, forests.ranks(over_states), is_missing)[1][:, None]
    spread = groups.spread(few[1] - (1.0 - known) / 3) + (1.0 - known) / 60
    np.testing.assert_allclose(tables[1], spread)


def test_imputed_means_do_not_depend_on_other_rows():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(150, 2)) @ rng.normal(size=(2, 4)) + rng.normal(size=(150, 4))
    X = np.column_stack([numbers, np.abs(numbers[:, 0] * numbers[:, 1])])
    X[rng.random(X.shape) < 0.35] = np.nan
    imputer = CircuitImputer(random_state=0).fit(X)
    assert imputer.density_.forest_weights_
    alone = np.vstack([imputer.transform(row[None]) for row in X])
    np.testing.assert_allclose(imputer.transform(X), alone, rtol=1e-10, atol=1e-10)


def test_leaves_of_forests_have_the_weight_of_three_rows():
    X = with_exclusive_or(200)
    weight = np.where(np.arange(200) < 100, 1e-3, 1.0)
    counts = np.where(np.arange(200) < 100, 0.0, 1.0)  # rows of hardly any weight do not count
    for unit in (1.0, 2.0**20):
        rows = TrainingRows(X, unit * weight)
        forests = Forests.grow(X, rows, {2: 2}, 10, seed=0)
        ranks = np.column_stack([*forests.ranks(X).T[:2], np.zeros(200)]).astype(np.float32)
        for tree in forests.trees[2]:
            leaves = np.bincount(tree.apply(ranks), counts)
            least = leaves[tree.tree_.children_left < 0].min()
            # Three rows of mean weight .5005
            assert 1.0 < least < 100.0


@pytest.mark.parametrize("unit, origin", [(1e300, 0.0), (1e-300, 0.0), (1.0, 1e9)])
def test_forests_predict_numbers_in_any_unit(unit, origin):
    X = with_exclusive_or(200)
    is_missing = np.arange(3)[None] == np.full((200, 1), 2)
    answers = []
    for cells in (X, origin + unit * X):
        forests = Forests.grow(cells, TrainingRows(cells, np.ones(200)), {2: 0}, 10, seed=0)
        answers.append(forests.answers(2, forests.ranks(cells), is_missing))
    plain, other = answers
    np.testing.assert_allclose(other[0], origin + unit * plain[0], rtol=1e-12)
    np.testing.assert_allclose(other[1], plain[1])


def test_forests_of_constant_columns_and_of_columns_without_cells():
    X = np.column_stack([np.zeros(20), np.full((20, 2), np.nan), np.arange(20.0), np.full(20, 7.0)])
    rows = TrainingRows(X, np.ones(20))
    forests = Forests.grow(np.nan_to_num(X), rows, {0: 1, 1: 2, 2: 0, 4: 0}, 10, seed=0)
    assert list(forests.trees) == [0, 4]
    for column, only in ((0, 1.0), (4, 7.0)):
        own, known = forests.answers(column, forests.ranks(np.nan_to_num(X)), np.isnan(X))
        np.testing.assert_array_equal(own, only)
        np.testing.assert_array_equal(known, 0.0)


@pytest.mark.parametrize("column", [5, 6])
def test_imputers_average_forests_where_columns_interact(column):
    def table(n, seed):
        rng = np.random.default_rng(seed)
        numbers, codes = rng.normal(size=(n, 2)), rng.integers(0, 3, (n, 2))
        level = 100.0 * (codes.prod(axis=1) % 3) + numbers[:, 0]
        have_one_sign = numbers.prod(axis=1) > 0.0
        return np.column_stack([numbers, codes, codes.sum(axis=1) % 3, have_one_sign, level])

    train, truth = table(300, seed=0), table(400, seed=1)
    train[np.random.default_rng(2).random(train.shape) < 0.15] = np.nan
    test = truth.copy()
    test[:, column] = np.nan
    imputer = CircuitImputer(categorical_features=[2, 3, 4, 5], random_state=0).fit(train)

    def error():
        imputed = imputer.transform(test)[:, column]
        return np.mean(imputed != truth[:, 5]) if column == 5 else np.std(imputed - truth[:, 6])

    assert imputer.density_.forest_weights_[column] > 0.3
    beside = error()
    imputer.density_._forests = None
    assert beside < 0.7 * error()
