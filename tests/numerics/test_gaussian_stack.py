import numpy as np
import pytest

from skcircuits.numerics._gaussian_stack import GaussianStack


def test_factors():
    root = np.random.default_rng(0).normal(size=(3, 4, 6))
    covariances = root @ root.transpose(0, 2, 1)
    stack = GaussianStack(np.zeros((3, 4)), covariances)
    assert (stack.n_components, stack.n_columns) == (3, 4)
    np.testing.assert_allclose(
        stack.whitening @ stack.cholesky, np.tile(np.eye(4), (3, 1, 1)), atol=1e-12
    )
    assert (np.triu(stack.whitening, 1) == 0.0).all()
    np.testing.assert_allclose(stack.precisions, np.linalg.inv(covariances), rtol=1e-9)
    np.testing.assert_allclose(stack.log_determinants, np.linalg.slogdet(covariances)[1])


def test_the_stack_is_frozen_and_apart_from_its_input():
    means = np.zeros((1, 2))
    stack = GaussianStack(means, np.eye(2)[None])
    means[:] = 1.0
    assert (stack.means == 0.0).all()
    with pytest.raises(ValueError, match="read-only"):
        stack.means[0, 0] = 1.0


@pytest.mark.parametrize(
    "means, covariances, message",
    [
        (np.zeros((2, 2)), np.eye(2)[None], r"must be \(K, d\) and \(K, d, d\); got shapes="),
        (np.full((1, 2), np.nan), np.eye(2)[None], "must be finite"),
        (np.zeros((1, 2)), np.full((1, 2, 2), np.inf), "must be finite"),
    ],
)
def test_bad_parameters(means, covariances, message):
    with pytest.raises(ValueError, match=message):
        GaussianStack(means, covariances)


def test_indefinite_covariances():
    stack = GaussianStack(np.zeros((1, 2)), np.array([[[1.0, 2.0], [2.0, 1.0]]]))
    with pytest.raises(ValueError, match=r"positive definite; got smallest_eigenvalue=-1\.0"):
        stack.precisions  # noqa: B018
