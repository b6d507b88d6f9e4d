import numpy as np
import pytest
from scipy.stats import norm

from skcircuits.circuits import Categorical, Circuit, MultivariateGaussian
from skcircuits.circuits.inputs.johnson import SinhMap
from skcircuits.estimators.automatic._experts import (
    OrdinalAnswers,
    _in_units_of_errors,
    stacking_weights,
)
from skcircuits.learning.gaussian_mixture._held_out import Answers


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


def scale_answers():
    """A number, a scale of four categories that depends on it, and a category on its own."""
    joint = MultivariateGaussian([0, 1], [0.5, 1.2], [[1.0, 0.6], [0.6, 0.8]])
    return OrdinalAnswers(Circuit(joint * Categorical(2, [0.3, 0.7])), {1: 4})


def test_ordinal_columns_have_the_probabilities_of_numbers_that_round_to_them():
    X = np.array([[1.7, np.nan, 0.0], [-2.0, np.nan, np.nan], [np.nan, 3.0, 1.0], [0.0, 0.0, 1.0]])
    means, tables = scale_answers()._mean_and_marginals(X)
    edges = np.array([-np.inf, 0.5, 1.5, 2.5, np.inf])
    for row in (0, 1):
        given = norm(1.2 + 0.6 * (X[row, 0] - 0.5), np.sqrt(0.8 - 0.36))
        np.testing.assert_allclose(tables[1][row], np.diff(given.cdf(edges)), atol=1e-14)
    # The categories are evidence as numbers are; observed ones have all mass
    assert means[2, 0] == pytest.approx(0.5 + 0.6 / 0.8 * (3.0 - 1.2))
    np.testing.assert_array_equal(tables[1][2:], np.eye(4)[[3, 0]])
    np.testing.assert_allclose(tables[2][:2], [[1.0, 0.0], [0.3, 0.7]])
    np.testing.assert_allclose(tables[1].sum(axis=1), 1.0)


def test_draws_of_ordinal_columns_are_categories():
    X = np.array([[4.0, np.nan, 0.0], [np.nan, np.nan, 1.0]])
    answers = scale_answers()
    drawn = answers.sample(20_000, X, 0)
    assert set(np.unique(drawn[..., 1])) == {0.0, 1.0, 2.0, 3.0}
    frequencies = [np.bincount(own.astype(int), minlength=4) / 20_000 for own in drawn[..., 1].T]
    np.testing.assert_allclose(frequencies, answers._mean_and_marginals(X)[1][1], atol=0.012)
