"""Inverses and log-determinants of many symmetric positive definite matrices.

LAPACK through NumPy or SciPy factorises one small matrix after the other, far below the speed
of a matrix product. Here a matrix is halved recursively until its blocks are small, and the
halves are joined by batched matrix products; LAPACK inverts the small blocks, a whole batch in
one call. Every call is long enough for other threads to run meanwhile.
"""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import FloatArray

__all__ = ["invert_in_place"]

# Up to this size LAPACK beats products of even smaller blocks, or loses so little that two
# threads, which wait for the interpreter between many short calls, gain more.
_LAPACK_SIZE = 24
_STEP = 8  # products are fastest on multiples of the vector registers


def invert_in_place(matrices: FloatArray) -> FloatArray:
    """Invert symmetric positive definite matrices in place.

    Parameters
    ----------
    matrices : ndarray of shape (n_matrices, n, n)
        Symmetric positive definite matrices, overwritten by their inverses. A few megabytes
        at a time are fastest.

    Returns
    -------
    ndarray of shape (n_matrices,)
        Logarithms of the determinants.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import invert_in_place
    >>> matrices = np.array([[[2.0, 1.0], [1.0, 1.0]]])
    >>> log_determinants = invert_in_place(matrices)
    >>> matrices[0]
    array([[ 1., -1.],
           [-1.,  2.]])
    """
    size = matrices.shape[1]
    if size <= _LAPACK_SIZE:
        factors = np.linalg.cholesky(matrices)
        matrices[:] = np.linalg.inv(matrices)
        log_determinants: FloatArray = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        return 2 * log_determinants
    half = _STEP * round(size / (2 * _STEP))
    corner, rest = matrices[:, :half, :half], matrices[:, half:, half:]
    side = matrices[:, half:, :half]
    # With A the corner, B the side, D the rest and S = D - B A⁻¹ Bᵀ (Schur complement):
    # inverse = [[A⁻¹ + Xᵀ S⁻¹ X, -(S⁻¹ X)ᵀ], [-S⁻¹ X, S⁻¹]],  X = B A⁻¹.
    log_determinants = invert_in_place(corner)
    scaled = side @ corner
    rest -= scaled @ side.transpose(0, 2, 1)
    log_determinants += invert_in_place(rest)
    product = rest @ scaled
    corner += scaled.transpose(0, 2, 1) @ product
    np.negative(product, out=side)
    matrices[:, :half, half:] = side.transpose(0, 2, 1)
    return log_determinants
