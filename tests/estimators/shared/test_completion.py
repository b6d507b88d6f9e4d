import numpy as np
import pytest

from skcircuits import CircuitImputer, HiddenChowLiuDensity
from skcircuits.circuits import Categorical, Circuit, Gaussian, MultivariateGaussian
from skcircuits.estimators.imputer import complete_rows
from skcircuits.numerics._random import RowStreams


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
