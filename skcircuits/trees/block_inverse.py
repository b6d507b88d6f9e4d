"""Inverses and log-determinants of many symmetric positive definite matrices.

LAPACK through NumPy or SciPy factorises one small matrix after the other, far below the speed
of a matrix product. Here a matrix is halved recursively until its blocks are small, and the
halves are joined by batched matrix products. A small block of many matrices is inverted by a
sweep that runs over all of them at once, one of few matrices by LAPACK. NumPy lets other
threads run meanwhile.
"""

from __future__ import annotations

from threading import Lock

import numpy as np

from skcircuits.protocols import FloatArray

__all__ = ["invert_in_place"]

_LONG_BATCH = 48  # so many matrices outweigh the many short steps of a sweep
# Below these sizes a sweep, or LAPACK, beats products of even smaller blocks.
_SWEEP_SIZE = 12
_LAPACK_SIZE = 24
_STEP = 8  # products are fastest on multiples of the vector registers
# Two threads that both ask for the interpreter at every short step would wait for it most of
# the time; one that sweeps while the other multiplies does not notice it.
_SWEEPING = Lock()


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
    n_matrices, size, _ = matrices.shape
    if n_matrices >= _LONG_BATCH and size <= _SWEEP_SIZE:
        with _SWEEPING:
            return _sweep(matrices)
    if n_matrices < _LONG_BATCH and size <= _LAPACK_SIZE:
        factors = np.linalg.cholesky(matrices)
        matrices[:] = np.linalg.inv(matrices)
        return 2 * np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
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


def _sweep(matrices: FloatArray) -> FloatArray:
    """Invert by symmetric sweeps, with the batch as the innermost axis."""
    # Inner loops over the batch are long, over a small matrix they would be short.
    swept = np.ascontiguousarray(matrices.transpose(1, 2, 0))
    update = np.empty_like(swept)
    pivots = np.empty(swept.shape[1:])
    for k in range(len(swept)):
        column, pivot = swept[:, k].copy(), swept[k, k].copy()
        if not (pivot > 0).all():
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        row = column / pivot
        # Eliminate the variable: the update would also fill its own row and column.
        swept -= np.multiply(column[:, None], row, out=update)
        swept[:, k] = row
        swept[k] = row
        swept[k, k] = -1.0 / pivot
        pivots[k] = pivot
    np.negative(swept.transpose(2, 0, 1), out=matrices)
    log_determinants: FloatArray = np.log(pivots).sum(axis=0)
    return log_determinants
