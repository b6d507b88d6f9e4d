"""Inverses and log-determinants of many symmetric positive definite matrices.

LAPACK through NumPy or SciPy factorises one small matrix after the other, far below the speed
of a matrix product. Here a matrix is halved recursively until its blocks are small; the halves
are joined by batched matrix products, and a small block is inverted by a sweep that runs over
all matrices of the batch at once. NumPy lets other threads run meanwhile.
"""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import FloatArray

__all__ = ["invert_in_place"]

# Below this size a sweep over the batch beats products of even smaller blocks.
_SWEEP_SIZE = 12


def invert_in_place(matrices: FloatArray) -> FloatArray:
    """Invert symmetric positive definite matrices in place.

    Parameters
    ----------
    matrices : ndarray of shape (n_matrices, n, n)
        Symmetric positive definite matrices, overwritten by their inverses. A few megabytes
        at a time are fastest. A matrix that is not positive definite gives NaN.

    Returns
    -------
    ndarray of shape (n_matrices,)
        Logarithms of the determinants.

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
    size = matrices.shape[-1]
    if size <= _SWEEP_SIZE:
        return _sweep(matrices)
    half = size // 2
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
    # A matrix that is not positive definite ends in NaN, and the caller says so.
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for k in range(len(swept)):
            column, pivot = swept[:, k].copy(), swept[k, k].copy()
            row = column / pivot
            # Eliminate the variable: the update would also fill its own row and column.
            swept -= np.multiply(column[:, None], row, out=update)
            swept[:, k] = row
            swept[k] = row
            swept[k, k] = -1.0 / pivot
            pivots[k] = pivot
        np.negative(swept.transpose(2, 0, 1), out=matrices)
        return np.log(pivots).sum(axis=0)
