"""The model of functions behind Stein weights: the ridge, and the expected error of weights.

Weights that minimise ``wᵀ (K + λ) w`` over ``sum(w) = 1`` estimate the mean of f by kriging: f is
the sum of a constant, a Gaussian process with covariance s² K whose mean under the target is zero,
and independent noise s² λ. Leave-one-out predictions of the values of given functions at the
samples therefore determine λ and s², and ``s² wᵀ (K + λ) w`` is the expected squared error of any
weights. If K explains nothing of the functions, as between parts of a target that no move connects,
λ is large and the weights are nearly uniform. If a few samples carry all weight because the samples
are far from the target, the error is large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from skcircuits.numerics._arrays import spread_rows
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.stein.simplex import CHUNK_ROWS

# On the scale of the mean diagonal; the last is as good as uniform weights.
RIDGES = 10.0 ** np.arange(-6.0, 4.1, 0.5)
# Evenly spread rows suffice to choose the ridge, which does not depend on their number.
MAX_ROWS = 500
MAX_SINGLES, MAX_PRODUCTS = 250, 500
# Groups of similar rows that are left out together.
N_GROUPS = 16
# Errors this close are equal, and so are those that one row more or less may change: the ridge
# closest to the prior one is taken.
TIE = 0.005
# Squared error of uniform weights, in variances of the functions, if samples do not determine it.
UNIFORM_ERROR = 0.1


@dataclass(frozen=True)
class FunctionModel:
    """Model of the functions whose means are to be estimated."""

    ridge: float  # λ, on the scale of the mean diagonal of K
    scale: float = 0.0  # s², in variances of the functions; zero if it was not estimated
    is_broken: bool = False  # whether parts of the target may be without samples

    def error(self, value: float, weights: FloatArray, counts: IntArray) -> float:
        """Expected squared error of weighted means, given ``wᵀ K w`` over the mean diagonal."""
        return self.scale * (value + self.ridge * float((weights**2 / counts).sum()))


def reliance(error: float, change: float | None = None, n_samples: int = 1) -> float:
    """Fraction of weights of that squared error in the best average with uniform ones, whose error
    adds up with it to ``change``, if below the noise of means or beyond three standard errors.
    """
    if error <= 0.0:
        return 1.0
    uniform = UNIFORM_ERROR
    if change is not None and change * n_samples < 1.0:
        uniform = max(change - error, 0.0)
    elif change is not None:
        uniform = max(uniform, change - 9.0 * error)
    return uniform / (uniform + error)


def reach(value: float, n_samples: int) -> float:
    """Fraction of weights in the best average with uniform ones on a broken target: what ``value``,
    ``wᵀ K w`` over the mean diagonal, exceeds 1 / n by is due to missing parts.
    """
    return 1.0 / max(1.0, n_samples * value)


def learn_model(
    K: FloatArray,
    counts: IntArray,
    families: Sequence[FloatArray],
    *,
    prior: float,
    is_smooth: bool = True,
    is_broken: bool = False,
) -> FunctionModel:
    """Learn the model from the values of families of functions, (n, m) each, at the rows of K.

    The ridge of smooth functions maximises the leave-one-out likelihood of the rows (Rasmussen and
    Williams 2006, 5.4.2). Indicators of states are not a Gaussian process: their ridge minimises
    the squared errors, without that assumption, and gives no error of weighted means. Families have
    equal weights, and ``prior`` is the ridge if they do not determine it. If the target is broken
    into parts that K cannot compare, the errors are multiplied by the effect of uneven weights, and
    no family may be expected to become worse by the weights. Neither may all families together,
    with groups of similar rows left out: rows of one stuck chain predict one another, but the
    weight of the chain depends on predictions from the other rows.
    """
    varying = [f[:, np.ptp(f, axis=0) > 0.0] for f in families]
    varying = [functions for functions in varying if functions.size]
    if len(K) < 3 or not varying or not K.diagonal().any():
        return FunctionModel(prior, is_broken=is_broken)
    spectrum = _Spectrum.of(K / K.diagonal().mean(), counts)
    functions = np.concatenate(varying, axis=1)
    found = _leave_one_out(spectrum, counts, functions)
    ends = np.cumsum([functions.shape[1] for functions in varying])[:-1]

    def by_family(values: FloatArray) -> FloatArray:
        return np.array([part.mean(axis=1) for part in np.split(values, ends, axis=1)])

    variances = found.squares[-1]
    errors = by_family(found.squares / variances)
    if is_broken:
        # K must explain more of a family's variance than uneven weights add to it.
        errors *= found.inflation
    if is_smooth:
        losses = np.exp(by_family(np.log(found.deviances / variances)).mean(axis=0))
    else:
        losses = errors.mean(axis=0)
    equal = 1.0 + TIE + 1.0 / len(K)
    if is_broken:
        losses[errors.max(axis=0) > equal] = np.inf
        apart = _leave_groups_out(spectrum, functions, similar_rows(varying[0]))
        losses[by_family(apart / apart[-1]).mean(axis=0) * found.inflation > equal] = np.inf
    close = np.flatnonzero(losses <= equal * losses.min())
    chosen = close[np.abs(np.log(RIDGES[close] / prior)).argmin()]
    scale = by_family(found.scales[[chosen]] / variances).mean() if is_smooth else 0.0
    return FunctionModel(float(RIDGES[chosen]), float(scale), is_broken)


@dataclass(frozen=True)
class _Spectrum:
    """Eigenvalues (n,) and eigenvectors (n, n) of K scaled by roots of counts, for an even λ."""

    roots: FloatArray
    values: FloatArray
    vectors: FloatArray

    @classmethod
    def of(cls, K: FloatArray, counts: IntArray) -> _Spectrum:
        """Decompose K."""
        roots = np.sqrt(counts)
        values, vectors = np.linalg.eigh(K * np.outer(roots, roots))
        return cls(roots, np.maximum(values, 0.0), vectors)

    def inverses(self) -> Iterator[tuple[FloatArray, FloatArray, float]]:
        """Invert A = K + λ for each ridge: its eigenvalues, A⁻¹ 1 and 1ᵀ A⁻¹ 1."""
        constant = self.vectors.T @ self.roots
        for ridge in RIDGES:
            inverse = 1.0 / (self.values + ridge)
            leaning = self.vectors @ (inverse * constant)
            yield inverse, leaning, float(constant @ (inverse * constant))


@dataclass(frozen=True)
class _LeaveOneOut:
    """Results of predicting each row from all others, per ridge and function."""

    squares: FloatArray  # (n_ridges, m), mean squared errors
    scales: FloatArray  # (n_ridges, m), s²: mean squared errors over their variances if s² were 1
    deviances: FloatArray  # (n_ridges, m), exp(-2 / n log likelihood) where s² is that
    # Per ridge the variance of a mean of noise under the weights, over that under uniform ones.
    inflation: FloatArray


def _leave_one_out(spectrum: _Spectrum, counts: IntArray, functions: FloatArray) -> _LeaveOneOut:
    roots, vectors = spectrum.roots, spectrum.vectors
    targets = vectors.T @ (functions * roots[:, None])
    squares, scales, deviances = np.empty((3, len(RIDGES), functions.shape[1]))
    inflation = np.empty(len(RIDGES))
    squared_vectors = vectors**2
    # The likelihood would be unbounded for functions that K explains to the last digit
    least = np.finfo(float).eps * functions.var(axis=0)
    for index, (inverse, leaning, total) in enumerate(spectrum.inverses()):
        # With the constant projected out, P = A⁻¹ - A⁻¹ 1 1ᵀ A⁻¹ / (1ᵀ A⁻¹ 1), the error of a row
        # left out is (P f)_i / P_ii and its variance s² / P_ii (Dubrule 1983).
        errors = vectors @ (inverse[:, None] * targets)
        errors -= np.outer(leaning, roots @ errors / total)
        precisions = np.maximum(
            squared_vectors @ inverse - leaning**2 / total, np.finfo(float).tiny
        )
        errors /= (precisions * roots)[:, None]
        errors *= errors
        precisions *= counts
        squares[index], scales[index] = (
            np.stack([np.ones(len(counts)), precisions]) @ errors / len(counts)
        )
        np.maximum(scales[index], least * precisions.mean(), out=scales[index])
        deviances[index] = scales[index] / np.exp(np.log(precisions).mean())
        # On the simplex, nearly.
        weights = np.maximum(leaning * roots, 0.0)
        inflation[index] = counts.sum() * (weights**2 / counts).sum() / weights.sum() ** 2
    return _LeaveOneOut(squares, scales, deviances, inflation)


def _leave_groups_out(
    spectrum: _Spectrum, functions: FloatArray, groups: Sequence[IntArray]
) -> FloatArray:
    """Mean squared errors, (n_ridges, m), of rows predicted from those outside their group."""
    roots, vectors = spectrum.roots, spectrum.vectors
    targets = functions * roots[:, None]
    squares = np.empty((len(RIDGES), functions.shape[1]))
    errors = np.empty_like(targets)
    for index, (inverse, leaning, total) in enumerate(spectrum.inverses()):
        P = (vectors * inverse) @ vectors.T
        P -= np.outer(leaning, leaning) / total
        residuals = P @ targets
        for group in groups:
            errors[group] = np.linalg.solve(P[np.ix_(group, group)], residuals[group])
        squares[index] = ((errors / roots[:, None]) ** 2).mean(axis=0)
    return squares


def similar_rows(values: FloatArray, n_groups: int = N_GROUPS) -> list[IntArray]:
    """Cut rows of functions, (n, m), into groups by halving them along their first axis."""
    groups = [np.arange(len(values))]
    while len(groups) < n_groups:
        groups.sort(key=len)
        largest = groups.pop()
        if len(largest) < 2:
            return [*groups, largest]
        centered = values[largest] - values[largest].mean(axis=0)
        order = np.argsort(np.linalg.svd(centered, full_matrices=False)[0][:, 0], kind="stable")
        groups += [largest[part] for part in np.array_split(order, 2)]
    return groups


def squared_change(X: FloatArray, weights: FloatArray, counts: IntArray) -> float:
    """Mean squared difference of means by weights, in variances, families of functions alike."""
    values = _centered(X)
    uniform = counts / counts.sum()
    rows = np.stack([weights - uniform, uniform])
    n_families = len(_with_products(values[:1]))
    changes = []
    for family in range(n_families):
        parts = [
            (rows[:, part] @ functions, uniform[part] @ functions**2)
            for part in row_slices(len(X), CHUNK_ROWS)
            for functions in [_with_products(values[part])[family]]
        ]
        (change, mean), square = (sum(found) for found in zip(*parts))
        variance = square - mean**2
        varying = variance > np.finfo(float).eps * square
        if varying.any():
            changes.append((change[varying] ** 2 / variance[varying]).mean())
    return float(np.mean(changes)) if changes else 0.0


def state_functions(
    tables: Sequence[FloatArray], neighbors: Sequence[IntArray] = ()
) -> list[FloatArray]:
    """Probabilities of states per row, from tables (n, k_j), and products of two, those of
    neighbours first: they are used most, and moves of one variable explain them least.
    """
    # The last state of each follows from the others.
    singles = np.concatenate([table[:, :-1] for table in tables], axis=1)
    variables = np.repeat(np.arange(len(tables)), [table.shape[1] - 1 for table in tables])
    chosen = spread_rows(len(variables), MAX_SINGLES)
    variables = variables[chosen]
    is_edge = np.zeros((len(variables), len(variables)), dtype=bool)
    if len(neighbors):
        for row, own in zip(is_edge, variables.tolist(), strict=True):
            row[:] = np.isin(variables, neighbors[own])
    return _with_products(singles[:, chosen], is_edge)


def coordinate_functions(X: FloatArray) -> list[FloatArray]:
    """Coordinates and products of two, squares included."""
    return _with_products(_centered(X))


def _centered(X: FloatArray) -> FloatArray:
    centered = X - X.mean(axis=0)
    # Units do not matter, and squares of the largest numbers would overflow.
    largest = np.abs(centered).max(axis=0)
    return centered / np.where(largest > 0, largest, 1.0)


def _with_products(singles: FloatArray, is_first: BoolArray | None = None) -> list[FloatArray]:
    """Some columns and products of two, drawn at random among the first ones, then the others."""
    singles = singles[:, spread_rows(singles.shape[1], MAX_SINGLES)]
    first, second = np.triu_indices(singles.shape[1])
    pairs = np.random.default_rng(0).permutation(len(first))
    if is_first is not None:
        is_later = ~is_first[first, second]
        pairs = pairs[np.argsort(is_later[pairs], kind="stable")]
    pairs = pairs[:MAX_PRODUCTS]
    return [singles, singles[:, first[pairs]] * singles[:, second[pairs]]]
