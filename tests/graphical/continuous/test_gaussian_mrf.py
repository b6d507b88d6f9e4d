import pickle

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multivariate_normal
from sklearn.base import clone

from skcircuits.graphical import GaussianMRF


@pytest.fixture
def field():
    precision = np.array([[2.0, -0.5, 0.0], [-0.5, 1.0, 0.3], [0.0, 0.3, 1.5]])
    return GaussianMRF(precision, [1.0, -2.0, 0.5])


def test_moments_and_log_density_are_exact(field):
    covariance = np.linalg.inv(field.precision)
    np.testing.assert_allclose(field.covariance_, covariance, rtol=1e-12)
    np.testing.assert_allclose(field.mean_, covariance @ field.linear, rtol=1e-12)
    X = np.random.default_rng(0).normal(size=(6, 3)) * 3
    expected = multivariate_normal(field.mean_, covariance).logpdf(X)
    np.testing.assert_allclose(field.log_prob(X), expected, rtol=1e-12)
    differences = field.log_prob_unnormalized(X) - field.log_prob(X)
    np.testing.assert_allclose(differences, differences[0], rtol=1e-10)


def test_score_is_the_gradient(field):
    X = np.random.default_rng(1).normal(size=(4, 3))
    step = 1e-5 * np.eye(3)
    numeric = [(field.log_prob(X + step[j]) - field.log_prob(X - step[j])) / 2e-5 for j in range(3)]
    np.testing.assert_allclose(field.grad_log_prob(X), np.transpose(numeric), atol=1e-8)
    assert field.grad_log_prob(X.astype(np.float32)).dtype == np.float32


def test_the_graph_is_the_pattern_of_the_precision(field):
    assert [blanket.tolist() for blanket in field.neighbors] == [[1], [0, 2], [1]]
    explicit_zero = sparse.csr_array(([1.0, 0.0, 0.0, 1.0], ([0, 0, 1, 1], [0, 1, 0, 1])))
    assert [blanket.tolist() for blanket in GaussianMRF(explicit_zero, [0, 0]).neighbors] == [
        [],
        [],
    ]


def test_from_moments_gives_them_back(field):
    again = GaussianMRF.from_moments(field.mean_, field.covariance_)
    np.testing.assert_allclose(again.precision, field.precision, atol=1e-12)
    np.testing.assert_allclose(again.mean_, field.mean_, rtol=1e-12)


def test_samples_have_the_moments(field):
    sample = field.sample(100_000, random_state=0)
    np.testing.assert_allclose(sample.mean(axis=0), field.mean_, atol=0.02)
    np.testing.assert_allclose(np.cov(sample.T), field.covariance_, atol=0.03)
    np.testing.assert_array_equal(field.sample(3, random_state=1), field.sample(3, random_state=1))


def test_mmd_equals_monte_carlo(field):
    X = np.random.default_rng(2).normal(size=(7, 3)) + field.mean_
    bandwidth = 2.5

    def kernel(a, b):
        return np.exp(-np.sum((a[:, None] - b[None]) ** 2, axis=2) / bandwidth).mean()

    # A sample of 2000 leaves an error of about 2 / 2000 from its own diagonal.
    draws = field.sample(2000, random_state=3)
    estimate = kernel(X, X) - 2 * kernel(X, draws) + kernel(draws, draws)
    assert field.mmd2(X, bandwidth) == pytest.approx(estimate, abs=5e-3)


def test_mmd_shrinks_with_more_draws_and_keeps_to_zero(field):
    few, many = (field.mmd2(field.sample(n, random_state=0), 3.0) for n in (20, 2000))
    assert 0 <= many < few


def test_mmd_in_one_dimension_by_quadrature():
    field = GaussianMRF([[0.5]], [1.0])
    grid = np.linspace(-15, 20, 4001)
    density = np.exp(field.log_prob(grid[:, None])) * (grid[1] - grid[0])
    X = np.array([[0.0], [1.0], [5.0]])
    kernel = np.exp(-((grid[:, None] - grid) ** 2) / 1.7)
    to_x = np.exp(-((grid[:, None] - X.T) ** 2) / 1.7)
    within = np.exp(-((X - X.T) ** 2) / 1.7).mean()
    expected = within - 2 * (density @ to_x).mean() + density @ kernel @ density
    assert field.mmd2(X, 1.7) == pytest.approx(expected, rel=1e-10)


def test_fields_survive_clone_and_pickle(field):
    assert clone(field, safe=False) is field
    again = pickle.loads(pickle.dumps(field))
    np.testing.assert_array_equal(again.mean_, field.mean_)


@pytest.mark.parametrize(
    ("precision", "linear", "message"),
    [
        (np.eye(2), [1.0], "shape"),
        ([[1.0, 0.5], [0.4, 1.0]], [0, 0], "symmetric"),
        ([[1.0, np.nan], [np.nan, 1.0]], [0, 0], "finite"),
        (np.eye(2), [np.nan, 0], r"linear must be finite; got values=\[nan, 0\]"),
    ],
)
def test_wrong_precisions_are_refused(precision, linear, message):
    with pytest.raises(ValueError, match=message):
        GaussianMRF(precision, linear)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (np.eye(3), r"covariance must have shape \(2, 2\) like mean"),
        ([[1.0, 0.5], [0.0, 1.0]], "covariance must be symmetric; got asymmetry=0.5"),
        ([[1.0, np.nan], [np.nan, 1.0]], "covariance must be finite"),
    ],
)
def test_wrong_covariances_are_refused(covariance, message):
    with pytest.raises(ValueError, match=message):
        GaussianMRF.from_moments([0.0, 0.0], covariance)


def test_means_are_finite():
    with pytest.raises(ValueError, match="mean must be finite"):
        GaussianMRF.from_moments([np.inf, 0.0], np.eye(2))


def test_a_field_keeps_no_hold_of_the_array_it_is_given():
    linear = np.array([1.0, 2.0])
    field = GaussianMRF(np.eye(2), linear)
    linear[:] = 100.0
    np.testing.assert_array_equal(field.grad_log_prob([[0.0, 0.0]]), [[1.0, 2.0]])


def test_indefinite_precisions_are_refused_when_it_matters():
    with pytest.raises(ValueError, match="positive definite"):
        _ = GaussianMRF([[1.0, 2.0], [2.0, 1.0]], [0, 0]).mean_
    with pytest.raises(ValueError, match="covariance must be positive definite"):
        GaussianMRF.from_moments([0, 0], [[1.0, 2.0], [2.0, 1.0]])


@pytest.mark.parametrize("X", [np.zeros(2), np.zeros((4, 3))])
def test_points_have_the_width_of_the_field(X):
    field = GaussianMRF(np.eye(2), np.zeros(2))
    for query in (field.grad_log_prob, field.log_prob_unnormalized):
        with pytest.raises(ValueError, match=r"X must have shape \(n, 2\)"):
            query(X)


def test_explicit_zeros_and_duplicates_of_a_sparse_precision():
    rows, columns = [0, 0, 1, 1, 0, 1, 0, 1], [0, 1, 1, 0, 1, 0, 0, 1]
    values = [2.0, 1.0, 2.0, 1.0, -1.0, -1.0, 0.0, 0.0]
    indptr, order = [0, 4, 8], np.argsort(rows, kind="stable")
    precision = sparse.csr_array((np.array(values)[order], np.array(columns)[order], indptr))
    before = precision.data.copy(), precision.indices.copy()
    field = GaussianMRF(precision, [0.0, 0.0])
    assert [len(neighbors) for neighbors in field.neighbors] == [0, 0]
    np.testing.assert_array_equal(precision.data, before[0])
    np.testing.assert_array_equal(precision.indices, before[1])
