import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from skcircuits.circuits.inputs._gaussian_integrals import log_density
from skcircuits.circuits.inputs.factor_gaussian import FactorStack
from skcircuits.kernels.integrals._gaussian_blocks import dense_blocks
from skcircuits.kernels.integrals._gaussian_kernels import (
    LogExpectedRBF,
    log_expected_rbf,
    log_expected_rbf_pairs,
)
from skcircuits.numerics._gaussian_stack import GaussianStack
from tests.numerics.conftest import conditional, log_rbf_of_difference, random_rows, random_stack


def reference(stack, X, points, gammas):
    result = np.empty((stack.n_components, len(X), len(points)))
    for k in range(stack.n_components):
        for i, x in enumerate(X):
            mean, spread = conditional(stack, k, x)
            for j, point in enumerate(points):
                result[k, i, j] = log_rbf_of_difference(mean - point, spread, gammas)
    return result


def assert_agrees_with_the_dense_formula(stack, X, n_points):
    n_columns = X.shape[1]
    points = np.random.default_rng(2).normal(size=(n_points, n_columns))
    gammas = np.random.default_rng(3).random(n_columns)
    np.testing.assert_allclose(
        log_expected_rbf(stack, X, points, gammas),
        reference(stack, X, points, gammas),
        rtol=1e-10,
        atol=1e-11,
    )


@pytest.mark.parametrize("fraction", [0.1, 0.4, 0.8])
@pytest.mark.parametrize("n_columns", [1, 5, 12, 24, 40])
def test_against_the_dense_formula(n_columns, fraction):
    stack, X = random_stack(2, n_columns), random_rows(24, n_columns, fraction)
    assert_agrees_with_the_dense_formula(stack, X, 7)


@pytest.mark.parametrize("way", ["norms", "products", "monomials"])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_forms_as_norms_and_as_products_of_pairs(way, scale, monkeypatch):
    # Many patterns of few columns: of one or two components all ways occur
    limits = {"MISSING_PER_COMPONENT": 0 if way == "norms" else 100, "COLUMNS_PER_SUM": 100}
    limits |= {"MONOMIAL_COVARIANCES": 1 if way == "monomials" else 100}
    for name, value in {**limits, "PATTERN_BYTES": 2000, "PATTERNS_PER_PAIR": 1}.items():
        monkeypatch.setattr(f"{dense_blocks.__module__}.{name}", value)
    own, X = random_stack(3, 5), random_rows(60, 5, 0.5)
    points, gammas = (
        np.random.default_rng(2).normal(size=(7, 5)),
        np.random.default_rng(3).random(5),
    )
    gammas[1], points[:, 2] = 0.0, 0.3
    stack = GaussianStack(scale * own.means, scale**2 * own.covariances)
    np.testing.assert_allclose(
        log_expected_rbf(stack, scale * X, scale * points, gammas / scale**2),
        reference(own, X, points, gammas),
        rtol=1e-10,
        atol=1e-11,
    )


@pytest.mark.parametrize("shape", [[0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 0]], ids=str)
@pytest.mark.parametrize("n_columns", [4, 12, 24, 40])
def test_components_with_a_covariance_in_common(shape, n_columns):
    own, X = random_stack(2, n_columns), random_rows(24, n_columns, 0.4)
    rng = np.random.default_rng(2)
    means, points = rng.normal(size=(4, n_columns)), rng.normal(size=(7, n_columns))
    gammas = rng.random(n_columns)
    shared = GaussianStack(means, own.covariances, np.array(shape))
    apart = GaussianStack(means, own.covariances[shape])
    np.testing.assert_allclose(
        log_expected_rbf(shared, X, points, gammas),
        log_expected_rbf(apart, X, points, gammas),
        rtol=1e-10,
        atol=1e-11,
    )


@pytest.mark.parametrize("n_factors", [1, 3, 10])
@pytest.mark.parametrize("shape", [[0, 1, 0], [0, 1, 2]], ids=str)
def test_factors_and_dense_covariances_agree(n_factors, shape):
    rng = np.random.default_rng(0)
    n_distinct = max(shape) + 1
    means, points = rng.normal(size=(3, 12)), rng.normal(size=(7, 12))
    loadings = rng.normal(size=(n_distinct, 12, n_factors))
    noise = rng.random((n_distinct, 12)) + 0.1
    factors = FactorStack(means, loadings, noise, np.array(shape))
    X, gammas = random_rows(30, 12, 0.4), rng.random(12)
    np.testing.assert_allclose(
        log_expected_rbf(factors, X, points, gammas),
        reference(GaussianStack(means, factors.covariances), X, points, gammas),
        rtol=1e-9,
        atol=1e-10,
    )


@pytest.mark.parametrize("shape", [None, [0, 0, 1, 0, 1, 1]])
@pytest.mark.parametrize("gamma", [0.0, 0.05, 2.0, 40.0])
@pytest.mark.parametrize("has_monomials", [False, True])
def test_components_without_weight_are_left_out(has_monomials, gamma, shape, monkeypatch):
    limits = {"MONOMIAL_COVARIANCES": 1 if has_monomials else 100, "COLUMNS_PER_SUM": 100}
    limits |= {"MISSING_PER_COMPONENT": 100, "PATTERNS_PER_PAIR": 0, "PATTERN_BYTES": 20_000}
    for name, value in limits.items():
        monkeypatch.setattr(f"{dense_blocks.__module__}.{name}", value)
    rng, gammas = np.random.default_rng(0), np.full(5, gamma)
    gammas[0] = 0.3
    covariances = random_stack(6, 5).covariances[: None if shape is None else 2]
    stack = GaussianStack(rng.normal(scale=12.0, size=(6, 5)), covariances, shape)
    X = rng.normal(size=(80, 5)) + stack.means[rng.integers(6, size=80)]
    X[rng.random(X.shape) < 0.3] = np.nan
    # Points near means have narrow kernels of components with hardly any weight
    points = np.vstack([stack.means, rng.normal(scale=12.0, size=(9, 5))])
    blocks = LogExpectedRBF(stack, X, points, gammas)
    log_weights = blocks.log_prob() - blocks.log_prob().max(axis=0)
    weights = np.exp(log_weights) / np.exp(log_weights).sum(axis=0)
    found, n_values = np.full((80, 15), np.nan), 0
    for rows, which, values in blocks.relevant(weights):
        own = weights[:, rows] if which is None else weights[which, rows]
        found[rows] = np.einsum("lp,lpm->pm", own, np.exp(values))
        n_values += values.size
    every = log_expected_rbf(stack, X, points, gammas)
    expected = np.einsum("kn,knm->nm", weights, np.exp(every))
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert gamma > 1.0 or n_values < 0.75 * every.size


def test_shared_patterns_take_the_same_values():
    stack, points = random_stack(2, 4), np.random.default_rng(2).normal(size=(5, 4))
    X = np.random.default_rng(3).normal(size=(40, 4))
    X[:, 1] = np.nan
    np.testing.assert_allclose(
        log_expected_rbf(stack, X, points, 0.3),
        np.concatenate([log_expected_rbf(stack, x[None], points, 0.3) for x in X], axis=1),
        rtol=1e-12,
        atol=1e-12,
    )


def test_complete_rows_are_the_plain_kernel():
    stack, X = random_stack(3, 6), np.random.default_rng(1).normal(size=(10, 6))
    values = np.exp(log_expected_rbf(stack, X, X[:4], 0.2))
    np.testing.assert_allclose(values, np.tile(rbf_kernel(X, X[:4], 0.2), (3, 1, 1)), rtol=1e-12)


def test_a_column_outside_the_kernel_still_informs():
    stack = GaussianStack(np.zeros((1, 2)), np.array([[[1.0, 0.9], [0.9, 1.0]]]))
    X = np.array([[2.0, np.nan], [-2.0, np.nan]])
    near, far = log_expected_rbf(stack, X, np.array([[0.0, 1.8]]), np.array([0.0, 1.0]))[0, :, 0]
    expected = log_rbf_of_difference(np.zeros(1), np.array([[0.19]]), np.ones(1))
    np.testing.assert_allclose(near, expected, rtol=1e-12)
    assert far < near - 5.0
    flat = log_expected_rbf(stack, X, np.zeros((1, 2)), 0.0)
    np.testing.assert_allclose(flat, 0.0, atol=1e-14)


def test_nearly_singular_covariance():
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    covariance = basis * np.logspace(0, -9, 6) @ basis.T
    stack = GaussianStack(np.zeros((1, 6)), 0.5 * (covariance + covariance.T)[None])
    X = rng.multivariate_normal(np.zeros(6), covariance, 20)
    X[:, [1, 4]] = np.nan
    points = rng.normal(size=(5, 6))
    np.testing.assert_allclose(
        log_expected_rbf(stack, X, points, 0.5),
        reference(stack, X, points, np.full(6, 0.5)),
        rtol=1e-6,
    )


@pytest.mark.parametrize("n_components, n_columns", [(1, 1), (3, 4), (2, 9)])
def test_pairs_against_the_dense_formula(n_components, n_columns):
    stack = random_stack(n_components, n_columns)
    X, Y = random_rows(14, n_columns, 0.4), random_rows(9, n_columns, 0.5, seed=4)
    gammas = np.random.default_rng(3).random(n_columns)
    gammas[-1] = 0.0 if n_columns > 1 else 1.0
    values = log_expected_rbf_pairs(stack, X, Y, gammas)
    for k, l, i, j in np.ndindex(values.shape):
        mean, spread = conditional(stack, k, X[i])
        other_mean, other_spread = conditional(stack, l, Y[j])
        expected = log_rbf_of_difference(mean - other_mean, spread + other_spread, gammas)
        np.testing.assert_allclose(values[k, l, i, j], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n_components, n_columns", [(1, 1), (1, 9), (3, 4)])
def test_pairs_are_bitwise_independent_of_blocks(n_components, n_columns):
    stack, X = random_stack(n_components, n_columns), random_rows(16, n_columns, 0.4)
    gram = log_expected_rbf_pairs(stack, X, X, 0.3)
    np.testing.assert_array_equal(gram, gram.transpose(1, 0, 3, 2))
    for i in range(len(X)):
        row = log_expected_rbf_pairs(stack, X[i : i + 1], X[: i + 1], 0.3)
        np.testing.assert_array_equal(row[:, :, 0], gram[:, :, i, : i + 1])


def test_pairs_with_complete_rows_agree_with_points():
    stack, X = random_stack(2, 5), random_rows(10, 5, 0.5)
    points = np.random.default_rng(2).normal(size=(4, 5))
    pairs = log_expected_rbf_pairs(stack, X, points, 0.4)
    np.testing.assert_allclose(
        pairs[:, 0], log_expected_rbf(stack, X, points, 0.4), rtol=1e-10, atol=1e-12
    )
    assert (log_expected_rbf_pairs(stack, X, X, 0.0) == 0.0).all()


def test_the_gram_matrix_of_a_mixture_is_positive_semidefinite():
    stack, X = random_stack(3, 4), random_rows(30, 4, 0.5)
    weights = np.random.default_rng(0).dirichlet(np.ones(3), size=30)
    pairs = np.exp(log_expected_rbf_pairs(stack, X, X, 0.5))
    gram = np.einsum("ik,jl,klij->ij", weights, weights, pairs)
    assert np.linalg.eigvalsh(gram).min() > -1e-12


def test_kernels_too_narrow_for_any_integral_are_refused():
    stack = GaussianStack(np.zeros((1, 2)), np.eye(2)[None])
    with pytest.raises(ValueError, match="at most 1e\\+100 over the variance"):
        log_expected_rbf(stack, np.array([[0.0, np.nan]]), np.zeros((1, 2)), 1e200)


@pytest.mark.parametrize("gamma", [1.0, 1e90])
@pytest.mark.parametrize("far", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("kind", [GaussianStack, FactorStack])
def test_rows_many_widths_of_the_kernel_away_keep_their_digits(kind, far, gamma):
    loadings = np.array([[1.0, 1.0, 0.0]]).T[None]
    means, noise = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 4.0]]), np.ones((1, 3))
    shape = np.zeros(2, dtype=int)
    factors = FactorStack(means, loadings, noise, shape)
    stack = factors if kind is FactorStack else GaussianStack(means, factors.covariances)
    X = np.array([[far, np.nan, 1.0], [np.nan, far, np.nan], [far, far, far]])
    points = np.array([[far, 0.5 * far, 1.0], [0.5 * far, far, 0.0], [far, far, far]])
    found = log_expected_rbf(stack, X, points, gamma)
    expected = reference(stack, X, points, np.full(3, gamma))
    np.testing.assert_allclose(np.exp(found), np.exp(expected), rtol=1e-7)


def test_cells_beyond_all_proportion_have_kernels_of_zero():
    stack = GaussianStack(np.zeros((1, 2)), np.eye(2)[None])
    X, points = (
        np.array([[1e100, np.nan], [1e150, np.nan]]),
        np.array([[-1e150, 0.0], [0.0, 1e150]]),
    )
    np.testing.assert_array_equal(np.exp(log_expected_rbf(stack, X, points, 1e90)), 0.0)


@pytest.mark.parametrize("n_columns", [4, 30])
def test_only_incomplete_columns_have_products(n_columns):
    stack, X = random_stack(2, n_columns), random_rows(20, n_columns, 0.0)
    X[::2, 1], X[1::3, 3], X[0, 2] = np.nan, np.nan, np.nan
    assert_agrees_with_the_dense_formula(stack, X, 6)


@pytest.mark.parametrize("kind", ["dense", "one covariance", "factors"])
def test_densities_beside_the_kernels(kind):
    stack, X = random_stack(3, 5), random_rows(30, 5, 0.4)
    X[0], X[1] = np.nan, 0.5
    if kind == "one covariance":
        stack = GaussianStack(stack.means, stack.covariances[:1], np.zeros(3, dtype=int))
    elif kind == "factors":
        stack = FactorStack(stack.means, stack.covariances[:, :, :2], np.ones((3, 5)))
    points = np.random.default_rng(2).normal(size=(4, 5))
    blocks = LogExpectedRBF(stack, X, points, 0.3)
    expected = log_density(GaussianStack(stack.means, stack.covariances), X)
    np.testing.assert_allclose(blocks.log_prob(), expected, rtol=1e-12, atol=1e-12)
    alone = log_expected_rbf(stack, X, points, 0.3)
    for rows, values in blocks:
        np.testing.assert_allclose(values, alone[:, rows], rtol=1e-12, atol=1e-12)


def test_densities_of_rows_however_far_off():
    stack = random_stack(2, 3)
    X = np.array([[np.nan, 1e200, 0.0], [np.nan, 0.1, 0.2]])
    log_densities = LogExpectedRBF(stack, X, np.zeros((1, 3)), 0.3).log_prob()
    assert (log_densities[:, 0] == -np.inf).all() and np.isfinite(log_densities[:, 1]).all()
