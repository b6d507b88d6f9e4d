"""Kernels between complete rows."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel

from skcircuits.kernels import RBF, Delta, Hamming, Laplacian, Linear, Polynomial

ALL = [RBF(0.3), Laplacian(0.3), Hamming(2.0), Delta(), Linear(), Polynomial(2, 0.5)]


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.integers(3, size=(12, 4)).astype(float), rng.integers(3, size=(7, 4)).astype(float)


def test_values_are_those_of_scikit_learn(rows):
    X, Y = rows
    np.testing.assert_allclose(RBF(0.3)(X, Y), rbf_kernel(X, Y, gamma=0.3))
    np.testing.assert_allclose(Laplacian(0.3)(X, Y), laplacian_kernel(X, Y, gamma=0.3))
    expected = polynomial_kernel(X, Y, degree=2, gamma=1.0, coef0=0.5)
    np.testing.assert_allclose(Polynomial(2, 0.5)(X, Y), expected)
    np.testing.assert_allclose(Linear()(X, Y), X @ Y.T)


def test_mismatches_are_counted(rows):
    X, Y = rows
    mismatches = (X[:, None] != Y).sum(axis=-1)
    np.testing.assert_allclose(Hamming(2.0)(X, Y), np.exp(-mismatches / 2.0))
    np.testing.assert_array_equal(Delta()(X, Y), mismatches == 0)


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_certified_kernels_have_positive_semidefinite_grams(kernel, rows):
    assert kernel.is_positive_definite()
    gram = kernel(np.vstack(rows))
    assert np.linalg.eigvalsh(gram).min() > -1e-10 * gram.max()


@pytest.mark.parametrize("family", [RBF, Laplacian, Hamming, Delta, Linear, Polynomial])
def test_only_chosen_columns_count(family, rows):
    X, Y = rows
    expected = family()(X[:, [0, 2]], Y[:, [0, 2]])
    np.testing.assert_allclose(family(variables=[0, 2])(X, Y), expected)


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_kernels_are_values(kernel):
    same = type(kernel)(**kernel.get_params())
    assert same == kernel
    assert hash(same) == hash(kernel)
    assert clone(kernel) is kernel
    assert eval(repr(kernel)) == kernel  # repr is the constructor call
    assert kernel != RBF(0.123)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: RBF(gamma=0.0), "gamma of a kernel must be a positive number, at most"),
        # Squares of cells times more than this are no floats, and expectations would be NaN
        (lambda: RBF(gamma=1e260), "got gamma=1e+260".replace("+", r"\+")),
        (lambda: Laplacian(gamma=10**400), "got gamma='a larger integer'"),
        (lambda: RBF(gamma=True), "gamma=True"),
        (lambda: Hamming(scale=np.nan), "scale=nan"),
        (lambda: Polynomial(degree=0), "degree of a kernel must be a positive integer"),
        (lambda: Polynomial(degree=1.5), "degree of a kernel must be a positive integer"),
        (lambda: Polynomial(degree=True), "degree of a kernel must be a positive integer"),
        (lambda: Polynomial(c=-1.0), "c of a kernel must be finite and non-negative"),
        (lambda: RBF(variables=[0, 0]), "variables of a kernel must be distinct"),
        (lambda: RBF()([[np.nan]]), "Use expected_kernel_matrix for rows with NaN"),
        (lambda: RBF(variables=[3])([[1.0]]), "have a column for each of the kernel's variables"),
        (lambda: RBF()([1.0]), "form a table with two axes"),
    ],
)
def test_clear_errors(make, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make()


def test_far_rows_do_not_lose_digits():
    X = np.array([[1e8], [1e8 + 1.0]])
    np.testing.assert_allclose(RBF(1.0)(X), [[1, np.exp(-1)], [np.exp(-1), 1]])


def test_far_clusters_do_not_lose_digits_either():
    # Seen from the mean of both clusters, squares are 1e12 times the distances within one
    X = np.array([[0.0, 0.0], [0.5, 1.0], [1e6, 1e6], [1e6 + 0.5, 1e6], [1e200, -1e200]])
    values = RBF(gamma=1.0)(X, X)
    expected = np.eye(5)
    expected[0, 1] = expected[1, 0] = np.exp(-1.25)
    expected[2, 3] = expected[3, 2] = np.exp(-0.25)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
