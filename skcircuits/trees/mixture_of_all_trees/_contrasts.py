"""Contrasts: coordinates of what the states of two variables add beyond each of them alone.

The states of a variable are the corners of a regular simplex, one dimension less than there
are states. A table of two variables whose rows and columns sum to zero then is a matrix of
(n_rows - 1)(n_columns - 1) coordinates between two simplices, none of them redundant.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import helmert

from skcircuits.protocols import FloatArray

__all__ = ["from_contrasts", "sum_contrasts", "to_contrasts"]


def from_contrasts(contrasts: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Tables with these coordinates; their rows and columns sum to zero.

    Parameters
    ----------
    contrasts : ndarray of shape (n_tables, n_rows - 1, n_columns - 1)
        Coordinates.
    shape : (int, int)
        Numbers of rows and columns, that is of states of the two variables.

    Returns
    -------
    ndarray of shape (n_tables, n_rows, n_columns)
        Tables. A coordinate moves every cell by at most as much as itself.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import from_contrasts
    >>> from_contrasts(np.array([[[0.5]]]), (2, 2))
    array([[[ 0.5, -0.5],
            [-0.5,  0.5]]])
    """
    corners = [_corners(size) for size in shape]
    tables: FloatArray = corners[0] @ contrasts @ corners[1].T
    return tables


def sum_contrasts(tables: FloatArray) -> FloatArray:
    """Pull derivatives by the cells back to the coordinates: the adjoint of `from_contrasts`.

    Parameters
    ----------
    tables : ndarray of shape (n_tables, n_rows, n_columns)
        Derivatives with respect to the cells.

    Returns
    -------
    ndarray of shape (n_tables, n_rows - 1, n_columns - 1)
        Derivatives with respect to the coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import sum_contrasts
    >>> sum_contrasts(np.array([[[1.0, 0.0], [0.0, 2.0]]]))
    array([[[3.]]])
    """
    n_rows, n_columns = tables.shape[1:]
    sums: FloatArray = _corners(n_rows).T @ tables @ _corners(n_columns)
    return sums


def to_contrasts(tables: FloatArray) -> FloatArray:
    """Coordinates of tables, disregarding a function of the row and one of the column.

    Parameters
    ----------
    tables : ndarray of shape (n_tables, n_rows, n_columns)
        Tables.

    Returns
    -------
    ndarray of shape (n_tables, n_rows - 1, n_columns - 1)
        Coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import to_contrasts
    >>> to_contrasts(np.array([[[7.5, 6.5], [2.5, 3.5]]]))
    array([[[0.5]]])
    """
    # The corners are orthogonal but not of unit length over the states
    shares = [(size - 1) / size for size in tables.shape[1:]]
    return np.multiply(sum_contrasts(tables), np.prod(shares))


def _corners(n_states: int) -> FloatArray:
    """Corners of a regular simplex around the origin, at distance one: (n_states, n_states - 1).

    For two states they are 1 and -1.
    """
    if n_states == 1:
        return np.zeros((1, 0))
    corners: FloatArray = helmert(n_states).T * np.sqrt(n_states / (n_states - 1))
    return corners
