import numpy as np
import pytest

from skcircuits.numerics._gaussian_stack import (
    cholesky,
    gather_symmetric,
    gram_of_lower,
    invert_lower,
    log_diagonal,
    multiply,
    multiply_transposed,
    solve_factored,
)


def positive_definite(size, n, seed=0):
    root = np.random.default_rng(seed).normal(size=(n, size, size + 2))
    return root @ root.transpose(0, 2, 1) + 0.1 * np.eye(size)


@pytest.mark.parametrize("size", [1, 2, 7, 25])
@pytest.mark.parametrize("n", [1, 2, 33])
def test_against_lapack(size, n):
    matrices = positive_definite(size, n)
    sides = np.random.default_rng(1).normal(size=(n, 2, size))
    trapezoid = np.concatenate([matrices, sides], axis=1).transpose(1, 2, 0).copy()
    trapezoid[np.triu_indices(size, 1)] = np.nan  # never read
    factor = cholesky(trapezoid)
    expected = np.linalg.cholesky(matrices)
    lower = np.where(np.tri(size)[:, :, None] > 0, factor[:size], 0.0)
    np.testing.assert_allclose(lower.transpose(2, 0, 1), expected, atol=1e-12)
    solved = np.linalg.solve(expected, sides.transpose(0, 2, 1))
    np.testing.assert_allclose(factor[size:].transpose(2, 1, 0), solved, atol=1e-11)
    np.testing.assert_allclose(log_diagonal(factor), 0.5 * np.linalg.slogdet(matrices)[1])
    inverse = invert_lower(factor[:size])
    np.testing.assert_allclose(
        gram_of_lower(inverse).transpose(2, 0, 1), np.linalg.inv(matrices), atol=1e-9
    )
    vector = sides[:, 0].T
    np.testing.assert_allclose(
        multiply_transposed(inverse, multiply(inverse, vector)).T,
        np.linalg.solve(matrices, vector.T[:, :, None])[:, :, 0],
        atol=1e-9,
    )
    both = sides.transpose(2, 1, 0).copy()
    np.testing.assert_allclose(
        solve_factored(factor[:size], both).transpose(2, 1, 0),
        np.linalg.solve(matrices, sides.transpose(0, 2, 1)).transpose(0, 2, 1),
        atol=1e-9,
    )


@pytest.mark.parametrize("size", [1, 3, 12])
def test_results_do_not_depend_on_neighbours(size):
    stack = positive_definite(size, 9).transpose(1, 2, 0)

    def pipeline(matrices):
        factor = cholesky(matrices.copy())
        inverse = invert_lower(factor)
        solved = solve_factored(factor, np.ones((size, 1, matrices.shape[2])))[:, 0]
        gram = gram_of_lower(inverse).reshape(size**2, -1)
        return np.vstack([gram, log_diagonal(factor)[None], solved])

    together = pipeline(stack)
    for i in range(9):
        np.testing.assert_array_equal(pipeline(stack[:, :, i : i + 1]), together[:, i : i + 1])
    np.testing.assert_array_equal(pipeline(stack[:, :, :4]), together[:, :4])


def test_indefinite_by_rounding_gives_numbers():
    almost = np.array([[1.0, 1.0], [1.0, 1.0 - 1e-16]])[:, :, None]
    assert np.isfinite(np.tril(cholesky(almost.copy())[:, :, 0])).all()


def test_gather_symmetric():
    matrices = positive_definite(5, 3)
    index, component = np.array([[0, 1], [2, 2], [4, 3]]), np.array([2, 0])
    picked = gather_symmetric(matrices, index, component, n_sides=1)
    assert picked.shape == (4, 3, 2)
    for case in range(2):
        expected = matrices[component[case]][np.ix_(index[:, case], index[:, case])]
        np.testing.assert_array_equal(np.tril(picked[:3, :, case]), np.tril(expected))


def test_empty_matrices():
    empty = np.empty((0, 0, 4))
    assert log_diagonal(cholesky(empty)).tolist() == [0.0] * 4
    assert invert_lower(empty).shape == (0, 0, 4)
