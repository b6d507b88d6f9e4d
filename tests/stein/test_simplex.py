"""Weights on the simplex against their optimality conditions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.stein import simplex, simplex_weights


def random_gram(n, rank, seed=0):
    factors = np.random.default_rng(seed).normal(size=(n, rank))
    return factors @ factors.T / rank


def assert_optimal(K, weights, tolerance=1e-6):
    """On the simplex, and no coordinate direction descends (Karush, Kuhn, Tucker)."""
    assert weights.min() >= 0
    assert_allclose(weights.sum(), 1.0, rtol=1e-12)
    gradient = K @ weights
    assert weights @ gradient - gradient.min() <= tolerance * K.diagonal().mean()


def test_diagonal_in_closed_form():
    weights = simplex_weights(np.diag([1.0, 2.0, 4.0]))
    assert_allclose(weights, np.array([4, 2, 1]) / 7, rtol=1e-5)


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (5, 10), (60, 80), (60, 5)])
def test_all_solvers_are_optimal(n, rank, monkeypatch):
    K = random_gram(n, rank)
    interior = simplex_weights(K, solver="cvxopt")
    assert_optimal(K, interior)
    active = simplex_weights(K, solver="nnls")
    assert_optimal(K, active)
    assert_allclose(interior @ K @ interior, active @ K @ active, atol=1e-6)
    monkeypatch.setattr(simplex, "_MAX_DIRECT_SIZE", 0)
    pivoted = simplex_weights(K)
    assert_optimal(K, pivoted)
    assert_allclose(interior @ K @ interior, pivoted @ K @ pivoted, atol=1e-6)
    monkeypatch.setattr(simplex, "_block_pivoting", lambda K, start: start)
    first_order = simplex_weights(K)
    assert_optimal(K, first_order)
    assert_allclose(interior @ K @ interior, first_order @ K @ first_order, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["regular", "singular", "equal", "nearly_singular"])
def test_pivoting_alone_is_optimal(kind, seed, monkeypatch):
    rank = {"regular": 200, "singular": 7, "equal": 90, "nearly_singular": 12}[kind]
    K = random_gram(120, rank, seed)
    if kind == "equal":
        which = np.arange(120) // 3
        K = K[np.ix_(which, which)]
    elif kind == "nearly_singular":
        K[np.diag_indices_from(K)] += 1e-6 * K.diagonal().mean()
    monkeypatch.setattr(simplex, "_MAX_DIRECT_SIZE", 0)
    monkeypatch.setattr(simplex, "_first_order", None)
    assert_optimal(K, simplex_weights(K), tolerance=1e-8)


def large_gram(n_rows, degree):
    """Smooth functions at points, of which few explain the others."""
    points = np.random.default_rng(0).normal(size=(n_rows, 3)) + 0.2
    squares = ((points[:, None] - points) ** 2).sum(axis=2)
    return np.exp(-squares / 6.0) * (1.0 + points @ points.T) ** degree


def test_large_problems_are_solved_by_pivoting(monkeypatch):
    monkeypatch.setattr(simplex, "_interior_point", None)
    K = large_gram(1100, 1)
    weights = simplex_weights(K, regularization=1e-3)
    assert_optimal(K + 1e-3 * K.diagonal().mean() * np.eye(1100), weights, tolerance=1e-8)


def test_interior_points_solve_what_pivoting_does_not():
    K = large_gram(1100, 3)
    start = np.full(1100, 1 / 1100)
    scaled = K / K.diagonal().mean()
    assert simplex._duality_gap(scaled, simplex._block_pivoting(scaled, start)) > 1.0
    assert_optimal(K, simplex_weights(K))


def test_values_far_below_the_diagonal_are_those_of_interior_points():
    """Pivoting with a ridge ended at several hundred times the least value."""
    scales = np.exp(np.random.default_rng(0).normal(size=1100) * 3.0)
    K = large_gram(1100, 0) * scales[:, None] * scales
    weights, interior = simplex_weights(K), simplex_weights(K, solver="cvxopt")
    assert weights @ K @ weights <= (1.0 + 1e-6) * (interior @ K @ interior)


def test_nnls_takes_over_where_cvxopt_is_missing(monkeypatch):
    K = random_gram(40, 60)
    monkeypatch.setattr(simplex, "find_spec", lambda name: None)
    monkeypatch.setitem(simplex._SOLVERS, "cvxopt", None)
    assert_array_equal(simplex_weights(K), simplex_weights(K, solver="nnls"))
    with pytest.raises(ValueError, match="solver must be one of"):
        simplex_weights(K, solver="simplex")


def test_scale_of_the_matrix_does_not_matter():
    K = random_gram(20, 30)
    reference = simplex_weights(K)
    for scale in (1e-200, 1e200):
        assert_allclose(simplex_weights(K * scale), reference, atol=1e-6)


def test_regularization_pulls_towards_counts():
    K = random_gram(20, 30)
    counts = np.random.default_rng(1).integers(1, 9, size=20)
    near = simplex_weights(K, counts=counts, regularization=1e6)
    assert_allclose(near, counts / counts.sum(), rtol=1e-3)
    ridge = K / K.diagonal().mean() + np.diag(0.3 / counts)
    assert_optimal(ridge, simplex_weights(K, counts=counts, regularization=0.3))


def test_splitting_equal_samples_changes_nothing():
    K = random_gram(6, 8)
    counts = np.array([1, 2, 3, 1, 1, 2])
    which = np.repeat(np.arange(6), counts)
    merged = simplex_weights(K * 1.0, counts=counts)
    split = simplex_weights(K[np.ix_(which, which)])
    assert_allclose(np.bincount(which, split), merged, atol=1e-4)


def test_uniform_weights_where_nothing_is_better():
    assert_array_equal(simplex_weights(np.ones((4, 4))), np.full(4, 0.25))
    assert_array_equal(simplex_weights(np.zeros((3, 3))), np.full(3, 1 / 3))
    assert_array_equal(simplex_weights([[2.0]], counts=[7]), [1.0])


def test_never_worse_than_uniform():
    for seed in range(10):
        K = random_gram(30, 3, seed)
        weights = simplex_weights(K)
        assert weights @ K @ weights <= K.mean() * (1 + 1e-12)


def test_a_gap_is_told(monkeypatch):
    monkeypatch.setattr(simplex, "_MAX_DIRECT_SIZE", 0)
    monkeypatch.setattr(simplex, "_block_pivoting", lambda K, start: start)
    monkeypatch.setattr(simplex, "_FIRST_ORDER_STEPS", 1)
    with pytest.warns(RuntimeWarning, match="relative duality gap"):
        simplex_weights(random_gram(30, 40))


def test_asymmetry_is_called_by_its_name():
    with pytest.raises(ValueError, match="It differs from its transpose"):
        simplex_weights([[1.0, 0.5], [0.0, 1.0]])
    with pytest.raises(ValueError, match="geometric mean of their diagonal"):
        simplex_weights([[1.0, 2.0], [2.0, 1.0]])


def test_projection():
    rng = np.random.default_rng(0)
    point = rng.normal(size=12)
    nearest = simplex.project_to_simplex(point)
    assert_allclose(nearest.sum(), 1.0)
    for other in rng.dirichlet(np.ones(12), size=200):
        assert (point - nearest) @ (other - nearest) <= 1e-12
    assert_allclose(simplex.project_to_simplex(nearest), nearest, atol=1e-15)


def test_bad_matrices():
    with pytest.raises(ValueError, match="K must be a square matrix"):
        simplex_weights(np.ones((2, 3)))
    with pytest.raises(ValueError, match="K must be a square matrix"):
        simplex_weights(np.ones((0, 0)))
    with pytest.raises(ValueError, match="K must be finite"):
        simplex_weights([[np.nan]])


@pytest.mark.parametrize(
    "K",
    [
        -np.eye(3),
        [[0.0, 1.0], [1.0, 0.0]],
        [[1.0, 0.5], [0.0, 1.0]],
        [[1.0, 2.0], [2.0, 1.0]],
        # No pair of rows gives it away
        np.eye(50) + 0.9 * (1 - np.eye(50)) * np.cos(np.add.outer(range(50), range(50))),
    ],
)
@pytest.mark.parametrize("solver", ["cvxopt", "nnls"])
def test_no_gram_matrices(K, solver):
    with pytest.raises(ValueError, match="K must be symmetric and positive semi-definite"):
        simplex_weights(K, solver=solver)


def test_largest_floats_do_not_overflow():
    assert_allclose(simplex_weights(np.diag([1e308, 1.7e308])), [17 / 27, 10 / 27], rtol=1e-6)


@pytest.mark.parametrize("counts", [[1.0], [0, 1], [-1, 1], [np.nan, 1]])
def test_counts_are_positive(counts):
    with pytest.raises(ValueError, match="counts must be 2 positive numbers"):
        simplex_weights(np.eye(2), counts=counts)


@pytest.mark.parametrize("regularization", [-1.0, np.nan, np.inf])
def test_regularization_is_a_ridge(regularization):
    with pytest.raises(ValueError, match="regularization must be a finite non-negative number"):
        simplex_weights(np.eye(2), regularization=regularization)
