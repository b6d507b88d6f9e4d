import numpy as np
import pytest
from scipy.stats import norm

from skcircuits.circuits import Categorical, Circuit, MultivariateGaussian
from skcircuits.estimators.automatic._experts import OrdinalAnswers


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
