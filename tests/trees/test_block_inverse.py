import numpy as np
import pytest

from skcircuits.trees._spanning_trees import invert_in_place, reduced_laplacian


def _laplacian_minors(n_matrices, size, seed=0):
    weights = np.random.default_rng(seed).gamma(0.3, size=(n_matrices, size + 1, size + 1))
    weights = weights + weights.transpose(0, 2, 1)
    weights[:, np.arange(size + 1), np.arange(size + 1)] = 0
    return reduced_laplacian(weights)[0]


@pytest.mark.parametrize("n_matrices", [4, 60])
@pytest.mark.parametrize("size", [1, 2, 5, 12, 13, 25, 31, 70])
def test_inverse_and_determinant(size, n_matrices):
    matrices = _laplacian_minors(n_matrices, size)
    inverses = matrices.copy()
    log_determinants = invert_in_place(inverses)
    np.testing.assert_allclose(
        matrices @ inverses, np.broadcast_to(np.eye(size), inverses.shape), atol=1e-9
    )
    np.testing.assert_allclose(
        log_determinants, np.linalg.slogdet(matrices)[1], rtol=1e-12, atol=1e-11
    )
    np.testing.assert_allclose(inverses, inverses.transpose(0, 2, 1), rtol=1e-12)


@pytest.mark.parametrize("n_matrices", [3, 60])
@pytest.mark.parametrize("size", [2, 30])
def test_indefinite_matrices_are_refused(size, n_matrices):
    matrices = np.eye(size) + np.zeros((n_matrices, size, size))
    matrices[1, -1, -2] = matrices[1, -2, -1] = 2.0
    with pytest.raises(np.linalg.LinAlgError):
        invert_in_place(matrices)


def test_nothing_to_invert():
    assert invert_in_place(np.empty((0, 3, 3))).shape == (0,)
    assert invert_in_place(np.empty((2, 0, 0))).tolist() == [0.0, 0.0]
