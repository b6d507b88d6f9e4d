import numpy as np
import pytest

from skcircuits.estimators.targets._targets import in_original_units, learn_standardized_field


def learn_sparse_field(X):
    return in_original_units(*learn_standardized_field(X))


@pytest.fixture
def chain():
    """Rows of a Markov chain over five columns of very different scales."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 5))
    for j in range(1, 5):
        X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    return X * [1.0, 100.0, 0.01, 5.0, 1.0] + [0.0, 1e4, 0.0, -3.0, 7.0]


def test_moments_are_those_of_the_table(chain):
    field = learn_sparse_field(chain)
    np.testing.assert_allclose(field.mean_, chain.mean(axis=0), rtol=1e-6, atol=1e-9)
    deviation = chain.std(axis=0)
    correlation = field.covariance_ / np.outer(deviation, deviation)
    np.testing.assert_allclose(correlation, np.corrcoef(chain.T), atol=0.05)


def test_neighbors_in_the_chain_depend_most(chain):
    precision = np.abs(learn_standardized_field(chain)[0].precision)
    links = np.diag(precision, 1)
    others = precision[np.triu_indices(5, 2)]
    assert links.min() > 5 * others.max()


def test_independent_columns_have_no_links():
    field = learn_sparse_field(np.random.default_rng(1).normal(size=(60, 4)))
    assert sum(map(len, field.neighbors)) <= 2


def test_units_go_back_and_forth(chain):
    field, units = learn_standardized_field(chain)
    original = in_original_units(field, units)
    standardized = units.transform(chain[:7])
    np.testing.assert_allclose(units.inverse_transform(standardized), chain[:7], rtol=1e-12)
    difference = original.log_prob(chain[:7]) - field.log_prob(standardized)
    np.testing.assert_allclose(difference, -np.log(units.scales).sum(), rtol=1e-9)


def test_constant_columns_are_independent_and_narrow(chain):
    chain[:, 2] = 7.25
    chain[:, 4] = 0.0
    field = learn_sparse_field(chain)
    assert field.mean_[2] == pytest.approx(7.25)
    np.testing.assert_allclose(np.sqrt(np.diag(field.covariance_))[[2, 4]], [7.25e-6, 1e-6])
    assert field.neighbors[2].size == field.neighbors[4].size == 0


@pytest.mark.parametrize("n_columns", [1, 3])
def test_tiny_tables(n_columns):
    X = np.random.default_rng(0).normal(size=(3, n_columns))
    assert np.all(np.isfinite(learn_sparse_field(X).covariance_))
    with pytest.raises(ValueError, match="n_samples=1"):
        learn_sparse_field(X[:1])


@pytest.mark.parametrize("mixing", [[[1, 0, 1, 1], [0, 1, 1, -2]], [[1, 1, 1], [0, 0, 1e-9]]])
def test_collinear_columns_take_the_penalties_that_can_be_solved(mixing):
    X = np.random.default_rng(0).normal(size=(40, 2)) @ mixing
    field = learn_sparse_field(X)
    assert np.linalg.eigvalsh(field.covariance_).min() > 0
    np.testing.assert_allclose(np.diag(field.covariance_), X.var(axis=0), rtol=0.3)
