"""The ridge of Stein weights, chosen by how well they predict functions of the samples.

Weights that minimise ``wᵀ (K + λ) w`` over ``sum(w) = 1`` estimate the mean of f by kriging: f is a
constant, plus a Gaussian process with covariance K, whose mean under the target is zero, plus
independent noise λ. So what each row's value is predicted from the others (leave-one-out) tells
the λ of the functions at hand. Where K explains nothing of them, as between parts of a target
that no move connects, λ is large and the weights are nearly uniform.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skcircuits.protocols import FloatArray, IntArray

# On the scale of the mean diagonal; the last is as good as uniform weights.
RIDGES = 10.0 ** np.arange(-6.0, 4.1, 0.5)
# Evenly spread rows are enough to see a ridge, which does not depend on their number.
MAX_ROWS = 500
MAX_SINGLES, MAX_PRODUCTS = 250, 500
# Errors this close are equal, and so are those that one row more or less may change: the ridge
# closest to the prior one is taken.
TIE = 0.005


def choose_ridge(
    K: FloatArray,
    counts: IntArray,
    families: Sequence[FloatArray],
    *,
    prior: float,
    is_broken: bool = False,
) -> float:
    """Choose λ by the leave-one-out errors of families of functions, (n, m) each, of the rows of K.

    Functions count relative to their error under uniform weights, families alike; ``prior`` is
    the ridge where the errors do not tell. Where the target is broken into parts that K cannot
    compare, no family may be expected to lose by the weights.
    """
    varying = [f[:, np.ptp(f, axis=0) > 0.0] for f in families]
    varying = [functions for functions in varying if functions.size]
    if len(K) < 3 or not varying or not K.diagonal().any():
        return prior
    scaled = K / K.diagonal().mean()
    squares, inflation = _leave_one_out(scaled, counts, np.concatenate(varying, axis=1))
    ends = np.cumsum([functions.shape[1] for functions in varying])[:-1]
    parts = np.split(squares / squares[-1], ends, axis=1)
    families_errors = np.array([part.mean(axis=1) for part in parts])
    errors = families_errors.mean(axis=0)
    equal = 1.0 + TIE + 1.0 / len(K)
    if is_broken:
        # What K takes from a family's variance must be more than uneven weights add to it.
        errors[(families_errors * inflation).max(axis=0) > equal] = np.inf
    close = RIDGES[errors <= equal * errors.min()]
    return float(close[np.abs(np.log(close / prior)).argmin()])


def spread_rows(n_rows: int, n_wanted: int = MAX_ROWS) -> IntArray:
    """Give rows to choose the ridge with, evenly spread."""
    return np.linspace(0, n_rows - 1, min(n_rows, n_wanted)).astype(np.int64)


def _leave_one_out(
    K: FloatArray, counts: IntArray, functions: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean squared errors per ridge and function, each row predicted from all others.

    And per ridge the variance of a mean of noise under the weights, over that under uniform ones.
    """
    # Equal samples share their noise: in coordinates scaled by the roots of their numbers it is λ.
    roots = np.sqrt(counts)
    values, vectors = np.linalg.eigh(K * np.outer(roots, roots))
    values = np.maximum(values, 0.0)
    constant = vectors.T @ roots
    targets = vectors.T @ (functions * roots[:, None])
    squares = np.empty((len(RIDGES), functions.shape[1]))
    inflation = np.empty(len(RIDGES))
    for index, ridge in enumerate(RIDGES):
        # With the constant projected out, P = A⁻¹ - A⁻¹ 1 1ᵀ A⁻¹ / (1ᵀ A⁻¹ 1), the error of a row
        # left out is (P f)_i / P_ii (Dubrule 1983).
        inverse = 1.0 / (values + ridge)
        leaning = vectors @ (inverse * constant)
        total = constant @ (inverse * constant)
        means = (constant * inverse) @ targets / total
        residuals = vectors @ (inverse[:, None] * targets) - np.outer(leaning, means)
        precisions = vectors**2 @ inverse - leaning**2 / total
        errors = residuals / (precisions * roots)[:, None]
        squares[index] = (errors**2).mean(axis=0)
        # On the simplex, nearly.
        weights = np.maximum(leaning * roots, 0.0)
        inflation[index] = counts.sum() * (weights**2 / counts).sum() / weights.sum() ** 2
    return squares, inflation


def state_functions(tables: Sequence[FloatArray]) -> list[FloatArray]:
    """Probabilities of states per row, from tables (n, k_j), and products of two."""
    # The last state of each follows from the others.
    singles = np.concatenate([table[:, :-1] for table in tables], axis=1)
    return _with_products(singles)


def coordinate_functions(X: FloatArray) -> list[FloatArray]:
    """Coordinates and products of two, squares included."""
    centered = X - X.mean(axis=0)
    # Units do not matter, and squares of the largest numbers would overflow.
    largest = np.abs(centered).max(axis=0)
    return _with_products(centered / np.where(largest > 0, largest, 1.0))


def _with_products(singles: FloatArray) -> list[FloatArray]:
    chosen = np.linspace(0, singles.shape[1] - 1, min(singles.shape[1], MAX_SINGLES))
    singles = singles[:, chosen.astype(np.int64)]
    first, second = np.triu_indices(singles.shape[1])
    rng = np.random.default_rng(0)
    pairs = rng.choice(len(first), min(len(first), MAX_PRODUCTS), replace=False)
    return [singles, singles[:, first[pairs]] * singles[:, second[pairs]]]
