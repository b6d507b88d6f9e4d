import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from skcircuits.circuits import Circuit, JohnsonGaussian, MultivariateGaussian, Sum
from skcircuits.circuits.inputs._gaussian_integrals import complete, log_density, weighted_score
from skcircuits.numerics._gaussian_stack import (
    GaussianStack,
    complete_rows,
    conditional_mean,
)
from tests.numerics.conftest import random_rows, random_stack


def reference(stack, X):
    result = np.zeros((stack.n_components, len(X)))
    for k in range(stack.n_components):
        for i, x in enumerate(X):
            seen = ~np.isnan(x)
            if seen.any():
                marginal = multivariate_normal(
                    stack.means[k, seen], stack.covariances[k][np.ix_(seen, seen)]
                )
                result[k, i] = marginal.logpdf(x[seen])
    return result


# rows with few observed cells take the observed block, others the missing one, shared patterns a
# product
@pytest.mark.parametrize("fraction", [0.0, 0.15, 0.5, 0.85])
@pytest.mark.parametrize("n_columns", [1, 4, 12])
def test_against_scipy(n_columns, fraction):
    stack = random_stack(3, n_columns)
    X = random_rows(60, n_columns, fraction)
    X[:10] = np.where(np.isnan(X[0]), np.nan, X[:10])
    np.testing.assert_allclose(log_density(stack, X), reference(stack, X), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("fraction", [0.0, 0.15, 0.5, 0.85])
@pytest.mark.parametrize("n_columns", [1, 4, 12])
def test_gradients_against_the_marginals(n_columns, fraction):
    stack = random_stack(3, n_columns)
    X = random_rows(60, n_columns, fraction)
    weights = np.random.default_rng(0).random((3, 60))
    expected = np.zeros(X.shape)
    for k in range(3):
        for i, x in enumerate(X):
            seen = ~np.isnan(x)
            within = stack.covariances[k][np.ix_(seen, seen)]
            pull = np.linalg.solve(within, (stack.means[k] - x)[seen])
            expected[i, seen] += weights[k, i] * pull
    score = weighted_score(stack, X, weights).T
    np.testing.assert_allclose(score, expected, rtol=1e-9, atol=1e-11)
    assert (score[np.isnan(X)] == 0.0).all()


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("n_rows", [60, 3000])  # 3000 rows of a pattern are several runs
def test_densities_means_and_variances_at_once(is_shared, n_rows):
    stack = random_stack(40, 6)
    if is_shared:
        shape = np.arange(40) % 2
        stack = GaussianStack(stack.means, stack.distinct_covariances[:2], shape)
    X = random_rows(n_rows, 6, 0.3)
    X[::3] = np.where(np.isnan(X[0]), np.nan, X[::3])
    X[1::3] = np.nan_to_num(X[1::3])
    X[2] = np.nan
    variances = np.zeros((40, 6, n_rows))
    log_densities, offsets = complete(stack, X, variances)
    np.testing.assert_allclose(log_densities, log_density(stack, X), rtol=1e-11, atol=1e-11)
    means = conditional_mean(stack, X).transpose(0, 2, 1)
    np.testing.assert_allclose(offsets + stack.means[:, :, None], means, rtol=1e-11, atol=1e-11)
    rows = complete_rows(stack, X)
    expected = np.einsum("ddkp->kdp", rows.covariances)[:, :, rows.pattern]
    np.testing.assert_allclose(variances, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("far", [0.0, 1e4, 1e160])
@pytest.mark.parametrize("is_bent", [False, True])
def test_many_units_with_one_covariance_answer_as_each_alone(is_bent, far):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    covariance = 0.1 * (root @ root.T) + 0.05 * np.eye(4)
    maps = ([2000.0] * 4, [0.0, 0.3, 0.5, 0.0]) if is_bent else ()
    family, offset = (JohnsonGaussian, 0.0) if is_bent else (MultivariateGaussian, 2000.0)
    means = offset + rng.normal(size=(9, 4))
    units = [family([3, 0, 1, 2], mean, covariance, *maps) for mean in means]
    weights = rng.dirichlet(np.ones(9))
    circuit = Circuit(Sum(units, weights=weights))
    X = circuit.sample(60, random_state=0)
    X[rng.random(X.shape) < 0.4] = np.nan
    X[0], X[1, 0] = np.nan, 2000.0 + far
    alone = [Circuit(unit) for unit in units]
    with np.errstate(divide="ignore"):
        each = np.log(weights)[:, None] + [own.log_prob(X) for own in alone]
    possible = ~np.isneginf(each).all(axis=0)
    expected = logsumexp(each, axis=0)
    np.testing.assert_allclose(circuit.log_prob(X), expected, rtol=1e-9, atol=1e-10)
    posterior = np.exp(each[:, possible] - expected[possible])
    completed = [own.expectation(X[possible]) for own in alone]
    found = circuit.expectation(X[possible])
    np.testing.assert_allclose(found, np.einsum("kn,knd->nd", posterior, completed), rtol=1e-9)


def test_rows_without_observed_cells_and_no_rows():
    stack = random_stack(2, 3)
    nothing = np.full((2, 3), np.nan)
    assert (log_density(stack, nothing) == 0.0).all()
    assert (weighted_score(stack, nothing, np.ones((2, 2))) == 0.0).all()
    assert log_density(stack, np.empty((0, 3))).shape == (2, 0)
    assert weighted_score(stack, np.empty((0, 3)), np.ones((2, 0))).shape == (3, 0)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_extreme_units(scale):
    stack = random_stack(2, 4)
    X = random_rows(30, 4, 0.4)
    units = np.array([1.0, scale, 1.0, 1.0 / scale])
    rescaled = GaussianStack(stack.means * units, stack.covariances * np.outer(units, units))
    jacobian = (~np.isnan(X)) @ np.log(units)
    np.testing.assert_allclose(
        log_density(rescaled, X * units), log_density(stack, X) - jacobian, rtol=1e-10, atol=1e-10
    )


def test_far_rows_and_a_large_offset():
    stack = random_stack(1, 3)
    far = np.array([[1e5, np.nan, -1e5]])
    np.testing.assert_allclose(log_density(stack, far), reference(stack, far), rtol=1e-12)
    shifted = GaussianStack(stack.means + 1e9, stack.covariances)
    X = random_rows(20, 3, 0.3).round(3)
    np.testing.assert_allclose(log_density(shifted, X + 1e9), log_density(stack, X), atol=1e-4)


def test_nearly_singular_covariance():
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    covariance = basis * np.logspace(0, -7, 5) @ basis.T
    stack = GaussianStack(np.zeros((1, 5)), 0.5 * (covariance + covariance.T)[None])
    X = rng.multivariate_normal(np.zeros(5), covariance, 40)
    X[rng.random(X.shape) < 0.4] = np.nan
    np.testing.assert_allclose(log_density(stack, X), reference(stack, X), rtol=1e-7, atol=1e-7)


def test_a_joint_gaussian_has_a_mean_and_half_a_matrix_of_parameters():
    first, second = (MultivariateGaussian([0, 1, 2], [i, 0.0, 0.0], np.eye(3)) for i in range(2))
    assert Circuit(first).n_parameters == 3 + 6
    shared = Circuit(Sum([first, second], weights=[0.5, 0.5]))
    assert shared.n_parameters == 2 * 3 + 6 + 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("far", [1e160, 1e300, 1.7e308])
def test_rows_whose_squares_overflow_have_no_density(far):
    whitening_adds_and_subtracts = np.array([[1.0, 0.99, 0.5], [0.99, 1.0, 0.6], [0.5, 0.6, 1.0]])
    shared = np.stack([1e-6 * whitening_adds_and_subtracts] * 2)
    for covariances in (shared, shared * [[[1.0]], [[2.0]]]):
        stack = GaussianStack(np.zeros((2, 3)), covariances)
        for row in ([far, far, far], [far, -far, np.nan], [far, np.nan, np.nan]):
            assert (log_density(stack, np.array([row])) == -np.inf).all()
