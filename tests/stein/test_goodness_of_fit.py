"""The Stein goodness-of-fit test, discrepancies of weighted samples, thinning."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.graphical import FactorGraph, GaussianMRF, IsingModel
from skcircuits.kernels import RBF, Hamming
from skcircuits.stein import stein_discrepancy, stein_gram, stein_test, stein_thinning
from skcircuits.stein.discrepancy import median_gamma


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    return IsingModel.grid(3, 3, couplings=rng.normal(size=12) * 0.5, fields=rng.normal(size=9))


@pytest.fixture
def field():
    return GaussianMRF.from_moments([1.0, -1.0], [[1.0, 0.5], [0.5, 2.0]])


@pytest.mark.parametrize("kind", ["model", "field"])
def test_level_under_the_null(kind, request):
    target = request.getfixturevalue(kind)
    pvalues = [
        stein_test(
            target.sample(80, random_state=seed), target, n_bootstrap=200, random_state=seed
        ).pvalue
        for seed in range(60)
    ]
    assert np.mean(np.array(pvalues) < 0.1) < 0.25
    assert 0.3 < np.mean(pvalues) < 0.7


def test_power_discrete(model):
    other = IsingModel(model.couplings, model.fields + 0.4)
    assert stein_test(other.sample(300, random_state=0), model, random_state=0).pvalue < 0.01


def test_power_continuous(field):
    same_moments = field.sample(400, random_state=0)
    same_moments = np.sign(same_moments - field.mean_) + field.mean_
    result = stein_test(same_moments, field, random_state=0)
    assert result.pvalue < 0.01
    assert result.statistic > 0


def test_dependent_samples_need_fewer_sign_changes(model):
    chain = model.gibbs_sample(60, burn_in=50, random_state=0).repeat(10, axis=0)
    assert stein_test(chain, model, random_state=0).pvalue < 0.05
    assert stein_test(chain, model, change_probability=0.02, random_state=0).pvalue > 0.05


def test_repeats_with_the_seed(model):
    rows = model.sample(50, random_state=0)
    assert stein_test(rows, model, random_state=3) == stein_test(rows, model, random_state=3)


def test_statistic_is_the_u_statistic(model):
    rows = model.sample(40, random_state=0)
    K = stein_gram(rows, model, Hamming(9.0))
    expected = (K.sum() - np.trace(K)) / (40 * 39)
    assert_allclose(stein_test(rows, model, n_bootstrap=1, random_state=0).statistic, expected)


def test_bad_arguments(model):
    with pytest.raises(ValueError, match="at least two rows"):
        stein_test([[0] * 9], model)
    with pytest.raises(ValueError, match=r"change_probability must be in \(0, 0.5\]"):
        stein_test([[0] * 9] * 2, model, change_probability=0.9)


def test_median_gamma():
    assert_allclose(median_gamma(np.array([[0.0], [2.0], [4.0]])), 0.25)
    assert median_gamma(np.zeros((5, 2))) == 1.0
    assert median_gamma(np.zeros((1, 2))) == 1.0


def test_discrepancy_of_weighted_samples(model):
    rows = model.sample(30, random_state=0)
    K = stein_gram(rows, model, Hamming(9.0))
    weights = np.random.default_rng(0).dirichlet(np.ones(30))
    assert_allclose(stein_discrepancy(rows, model, Hamming(9.0), weights), weights @ K @ weights)
    assert_allclose(stein_discrepancy(rows, model, Hamming(9.0)), K.mean())
    with pytest.raises(ValueError, match="weights must be 30 finite numbers"):
        stein_discrepancy(rows, model, Hamming(9.0), weights[:3])


def test_thinning_is_greedy(model):
    rows = model.sample(40, random_state=0)
    K = stein_gram(rows, model, Hamming(9.0))
    chosen = stein_thinning(K, 5)
    assert_array_equal(chosen[:1], [np.argmin(K.diagonal())])
    for step in range(1, 5):
        before = chosen[:step]
        values = [K[np.ix_([*before, i], [*before, i])].sum() for i in range(40)]
        assert_allclose(values[chosen[step]], min(values))
    best = K[np.ix_(chosen, chosen)].mean()
    rng = np.random.default_rng(0)
    random_choices = [rng.choice(40, 5, replace=False) for _ in range(100)]
    assert best < np.median([K[np.ix_(some, some)].mean() for some in random_choices])
    with pytest.raises(ValueError, match="n_samples must be a positive integer"):
        stein_thinning(K, 0)


@pytest.mark.parametrize("K", [np.ones((2, 3)), np.empty((0, 0)), [[np.nan]]])
def test_thinning_needs_a_gram_matrix(K):
    with pytest.raises(ValueError, match="K must be"):
        stein_thinning(K, 1)


def test_bootstrap_needs_a_draw(model):
    with pytest.raises(ValueError, match="n_bootstrap must be a positive integer"):
        stein_test(model.sample(5, random_state=0), model, n_bootstrap=0)


def test_overflow_is_no_p_value():
    field = GaussianMRF(np.eye(2), np.zeros(2))
    with pytest.raises(ValueError, match=r"Stein kernel must be finite.*row=\[1e\+200, 0.0\]"):
        stein_test([[1e200, 0.0], [-1e200, 0.0], [0.0, 0.0]], field, RBF(1.0), random_state=0)


@pytest.mark.filterwarnings("ignore:the target is zero")
def test_one_impossible_sample_is_enough():
    graph = FactorGraph([((0,), [0.0, 1.0]), ((1,), [1.0, 1.0])], [2, 2])
    possible = [[1, 0], [1, 1], [1, 0]]
    assert stein_test(possible, graph, random_state=0).pvalue > 0.05
    assert stein_test([*possible, [0, 1]], graph, random_state=0).pvalue == 0.0
