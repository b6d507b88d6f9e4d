"""Stacks of Gaussians: moments and draws of missing cells, by batched Cholesky factors.

Factors are those of very many small matrices at once. The matrices lie along the *last* axis:
element (i, j) of all matrices is one contiguous vector, and each step of the factorisation operates
on whole vectors. For sizes up to about 40 this is two to ten times faster than one LAPACK call per
matrix. Every matrix undergoes the same sequence of elementary operations whatever its neighbours
are, so that results do not depend on how a problem is divided into blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.exceptions import invalid
from skcircuits.numerics._patterns import PatternGroup, group_patterns
from skcircuits.numerics._random import RandomNumbers
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

LOG_2PI = float(np.log(2.0 * np.pi))

# Size of a block of matrices, which stays in the second-level cache.
BLOCK_BYTES = 1 << 21
_MATRIX_CELLS = 1 << 20  # of arrays of matrices of some of the components, which may be thousands


class GaussianStack:
    """K Gaussians with means (K, d) over G distinct covariances (G, d, d), ``shape`` (K,) of each,
    whose factors are computed once.
    """

    means: FloatArray
    shape: IntArray

    def __init__(
        self, means: FloatArray, covariances: FloatArray, shape: IntArray | None = None
    ) -> None:
        """Check the shapes; freeze contiguous copies in double precision."""
        means = np.array(means, dtype=np.float64, order="C")
        covariances = np.array(covariances, dtype=np.float64, order="C")
        n_distinct = len(means) if shape is None else len(covariances)
        if means.ndim != 2 or covariances.shape != (n_distinct, *(means.shape[1],) * 2):
            shapes = (means.shape, covariances.shape)
            raise invalid("means and covariances", "be (K, d) and (K, d, d)", shapes=shapes)
        # A NaN would pass through LAPACK without an error
        if not (np.isfinite(means).all() and np.isfinite(covariances).all()):
            raise invalid("means and covariances", "be finite")
        # Factors are cached, so that their inputs may not change
        means.flags.writeable = covariances.flags.writeable = False
        self.means = means
        self._covariances = covariances
        self.shape = np.arange(len(means)) if shape is None else np.asarray(shape)

    @property
    def distinct_covariances(self) -> FloatArray:
        """The covariances that differ, shape (G, d, d)."""
        return self._covariances

    @property
    def n_components(self) -> int:
        return self.means.shape[0]

    @property
    def n_columns(self) -> int:
        return self.means.shape[1]

    @property
    def n_parameters(self) -> int:
        """Number of free parameters, with shared covariances counted once."""
        n_distinct, size, _ = self.distinct_covariances.shape
        return self.means.size + n_distinct * size * (size + 1) // 2

    @property
    def is_shared(self) -> bool:
        """Whether some Gaussians have one covariance in common."""
        return len(self.distinct_covariances) < self.n_components

    @property
    def distinct(self) -> GaussianStack:
        """The distinct covariances as a stack of their own, centred at zero."""
        if not self.is_shared:
            return self
        return self._distinct

    @cached_property
    def _distinct(self) -> GaussianStack:
        own = copy(self)
        for spread in ("covariances", "whitening", "precisions", "log_determinants"):
            vars(own).pop(spread, None)
        own.shape = np.arange(len(self.distinct_covariances))
        own.means = np.zeros((len(own.shape), self.n_columns))
        # Factors are those of the same covariances
        own._cholesky, own._whitening = self._cholesky, self._whitening
        return own

    def _spread(self, values: FloatArray) -> FloatArray:
        """Expand values per distinct covariance to all Gaussians."""
        return values[self.shape] if self.is_shared else values

    @cached_property
    def covariances(self) -> FloatArray:
        """Covariances, shape (K, d, d)."""
        return self._spread(self.distinct_covariances)

    @cached_property
    def _cholesky(self) -> FloatArray:
        """Lower Cholesky factors of the distinct covariances."""
        try:
            return np.asarray(np.linalg.cholesky(self.distinct_covariances))
        except np.linalg.LinAlgError:
            smallest = float(np.linalg.eigvalsh(self.distinct_covariances).min())
            way_out = "Add a small positive number to the diagonal."
            raise invalid(
                "covariances", "be positive definite", way_out, smallest_eigenvalue=smallest
            ) from None

    @cached_property
    def _whitening(self) -> FloatArray:
        # pivoting never moves a row of an upper triangle: this is back substitution
        upper = np.linalg.inv(self._cholesky.transpose(0, 2, 1))
        return np.ascontiguousarray(upper.transpose(0, 2, 1))

    @property
    def cholesky(self) -> FloatArray:
        """Lower Cholesky factors of the covariances, shape (K, d, d)."""
        return self._spread(self._cholesky)

    @cached_property
    def whitening(self) -> FloatArray:
        """Inverses of the Cholesky factors, lower triangular, shape (K, d, d)."""
        return self._spread(self._whitening)

    @cached_property
    def precisions(self) -> FloatArray:
        """Inverse covariances, shape (K, d, d)."""
        return self._spread(self._whitening.transpose(0, 2, 1) @ self._whitening)

    @cached_property
    def log_determinants(self) -> FloatArray:
        """Log determinants of the covariances, shape (K,)."""
        diagonals: FloatArray = np.diagonal(self._cholesky, axis1=1, axis2=2)
        return self._spread(2.0 * np.log(diagonals).sum(axis=1))

    @cached_property
    def largest_square(self) -> float:
        """Largest white square of a mean around the centre of all, under the first covariance."""
        white = (self.means - self.means.mean(axis=0)) @ self._whitening[0].T
        return float(np.square(white).sum(axis=1).max())


@dataclass(frozen=True)
class ConditionalBlock:
    """Conditional Gaussians of the missing cells of a ``group`` of rows: Cholesky factors (m, m, G
    * P) of the blocks Lambda_mm of the precisions and their half log determinants (G * P,),
    components slowest, ``shape`` (K,), and ``offsets`` (m, K, n) of the means.
    """

    group: PatternGroup
    distinct_factors: FloatArray
    shape: IntArray
    distinct_half_log_precisions: FloatArray
    offsets: FloatArray

    @cached_property
    def distinct_roots(self) -> FloatArray:
        """Lower triangular matrices W, shape (m, m, G * P): conditional covariances are WᵀW."""
        return invert_lower(self.distinct_factors)

    @property
    def roots(self) -> FloatArray:
        """Roots of each case, shape (m, m, K * P)."""
        return self._spread(self.distinct_roots)

    @property
    def half_log_precisions(self) -> FloatArray:
        """Half log determinants of the inverse covariances of each case, shape (K * P,)."""
        return self._spread(self.distinct_half_log_precisions)

    @property
    def distinct_covariances(self) -> FloatArray:
        """Conditional covariances, shape (m, m, G * P)."""
        return gram_of_lower(self.distinct_roots)

    @property
    def covariances(self) -> FloatArray:
        """Conditional covariances of each case, shape (m, m, K * P)."""
        return self._spread(self.distinct_covariances)

    def _spread(self, values: FloatArray) -> FloatArray:
        """Expand values per distinct covariance to all components."""
        if len(self.shape) * self.group.n_patterns == values.shape[-1]:
            return values
        # Cases are components times patterns: distinct ones are repeated along the first
        leading = values.shape[:-1]
        chosen = values.reshape(*leading, -1, self.group.n_patterns)[..., self.shape, :]
        return chosen.reshape(*leading, len(self.shape) * self.group.n_patterns)


@dataclass(frozen=True, eq=False)
class CompletedRows:
    """Rows completed by each component: Gaussian vectors, observed cells without spread."""

    means: FloatArray  # (d, K, n), observed cells repeated
    covariances: FloatArray  # (d, d, K, P), of patterns, of which the first misses nothing
    pattern: IntArray  # (n,)


def complete_rows(stack: GaussianStack, X: FloatArray) -> CompletedRows:
    """Means of rows X (n, d) given their observed cells, and covariances by pattern."""
    groups = group_patterns(np.isnan(X))
    shape = (stack.n_columns, stack.n_columns, stack.n_components)
    spreads = np.zeros((*shape, 1 + sum(group.n_patterns for group in groups)))
    pattern = np.zeros(len(X), dtype=np.int64)
    means = np.repeat(X.T[:, None], stack.n_components, axis=1)
    # Pattern zero is that of complete rows, which no block holds
    n_seen = 1
    for block in conditional_blocks(stack, X, groups):
        group = block.group
        rows, missing = group.rows, group.missing
        pattern[rows] = n_seen + group.pattern
        # (P, m, K, n) layouts: advanced indices on both sides of the component axis
        completed = stack.means[:, missing[group.pattern]].transpose(2, 0, 1) + block.offsets
        means[missing[group.pattern], :, rows[:, None]] = completed.transpose(2, 0, 1)
        numbers = np.arange(n_seen, n_seen + group.n_patterns)[:, None, None]
        covariances = block.covariances.reshape(*[missing.shape[1]] * 2, stack.n_components, -1)
        spreads[missing[:, :, None], missing[:, None, :], :, numbers] = covariances.transpose(
            3, 0, 1, 2
        )
        n_seen += group.n_patterns
    return CompletedRows(means, spreads, pattern)


@dataclass(frozen=True, eq=False)
class PatternMaps:
    """Conditional means x - B (x - m) of rows x, zero where missing, by missing pattern, of
    Gaussians with one covariance.
    """

    pattern: IntArray  # (n,)
    corrections: FloatArray  # (P, d, d), matrices B
    spreads: FloatArray  # (P, d, d), conditional covariances, 0 for observed cells
    log_constants: FloatArray  # (P,), log densities of observed cells at the mean

    @classmethod
    def of(cls, stack: GaussianStack, groups: list[PatternGroup]) -> PatternMaps:
        """Maps of the rows of `groups`, which are as of ``joined_groups``."""
        size = stack.n_columns
        n_named = _n_named(stack, groups)
        precisions = _with_free_columns(stack.distinct.precisions, n_named)
        n_patterns = sum(group.n_patterns for group in groups)
        pattern = np.empty(sum(len(group.rows) for group in groups), dtype=np.intp)
        corrections, spreads = np.zeros((2, n_patterns, n_named, n_named))
        log_constants = np.empty(n_patterns)
        start = 0
        for group in groups:
            pattern[group.rows] = start + group.pattern
            own = slice(start, start + group.n_patterns)
            start = own.stop
            missing = group.missing
            n_observed = size - (missing < size).sum(axis=1)
            log_constants[own] = -0.5 * (stack.log_determinants[0] + n_observed * LOG_2PI)
            if not missing.shape[1]:
                continue
            first = np.zeros(len(missing), dtype=np.intp)
            factors = _conditional_factors(precisions, missing.T, first)
            # |Sigma_oo| = |Sigma| |Lambda_mm|
            log_constants[own] -= log_diagonal(factors)
            covariances = gram_of_lower(invert_lower(factors)).transpose(2, 0, 1)
            place = np.arange(own.start, own.stop)[:, None], missing
            rows = precisions[0, missing]
            # Missing cells are exactly zero in their own conditional means
            np.put_along_axis(rows, missing[:, None], 0.0, axis=2)
            corrections[place] = covariances @ rows
            corrections[(*place, missing)] += 1.0
            spreads[place[0][:, :, None], missing[:, :, None], missing[:, None]] = covariances
        kept = slice(None), slice(size), slice(size)
        return cls(pattern, corrections[kept], spreads[kept], log_constants)


@dataclass(frozen=True, eq=False)
class TiedRows:
    """Rows completed by Gaussians with one covariance, and their log densities."""

    # Completed rows are linear in the means, so that log densities and sums are matrix products. A
    # row less the mean m of a Gaussian is w - A m in white units, where w depends on the row and A
    # on its pattern of missing cells, and `centre` is subtracted from all means.

    stack: GaussianStack
    log_density: FloatArray  # (K, n)
    X: FloatArray  # (n, d)
    centre: FloatArray  # (d,)
    white: FloatArray  # (n, d)
    maps: PatternMaps
    white_maps: FloatArray  # (P, d, d)

    @classmethod
    def of(cls, stack: GaussianStack, X: FloatArray, groups: list[PatternGroup]) -> TiedRows:
        """Complete rows X (n, d), whose patterns are as of ``joined_groups``."""
        one, centre = stack.distinct, stack.means.mean(axis=0)
        maps = PatternMaps.of(one, groups)
        whitening = one.whitening[0]
        white_maps = whitening - whitening @ maps.corrections
        own = white_maps[maps.pattern]
        # Around a common centre, squares of white distances can be expanded with little loss
        means = stack.means - centre
        white = np.einsum("nij,nj->ni", own, np.where(np.isnan(X), 0.0, X - centre))
        constants = np.empty((len(means), len(white_maps)))
        for some in matrix_slices(len(means), len(white_maps) * len(centre)):
            # A product with a transposed array takes five times as long
            white_means = white_maps @ np.ascontiguousarray(means[some].T)
            squares = np.einsum("pck,pck->kp", white_means, white_means)
            constants[some] = maps.log_constants - 0.5 * squares
        log_density = means @ np.einsum("nij,ni->jn", own, white)
        log_density += constants[:, maps.pattern]
        log_density -= 0.5 * np.einsum("nc,nc->n", white, white)
        return cls(stack, log_density, X, centre, white, maps, white_maps)

    def largest_square(self) -> float:
        """Largest white square of a row: expanding it loses this many times the precision."""
        return float(np.einsum("nc,nc->n", self.white, self.white).max(initial=0.0))

    def mean_rows(self, weights: FloatArray) -> FloatArray:
        """Sums (n, d) over the Gaussians, by weights (K, n), of rows with conditional means."""
        means = weights.T @ (self.stack.means - self.centre)
        total = weights.sum(axis=0)
        own = self.maps.corrections[self.maps.pattern]
        return (self._completed.T * total).T + np.einsum("nij,nj->ni", own, means)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Conditional means and variances (K, n, d) of the rows."""
        means, pattern = self.stack.means - self.centre, self.maps.pattern
        shifts = means @ self.maps.corrections.transpose(0, 2, 1)
        variances = np.diagonal(self.maps.spreads, axis1=1, axis2=2)[pattern]
        completed = self._completed + shifts[pattern].transpose(1, 0, 2)
        return completed, np.broadcast_to(variances, completed.shape)

    @property
    def _completed(self) -> FloatArray:
        """Rows (n, d) completed by a Gaussian at the centre."""
        cells = np.where(np.isnan(self.X), 0.0, self.X - self.centre)
        own = self.maps.corrections[self.maps.pattern]
        return self.centre + cells - np.einsum("nij,nj->ni", own, cells)


def matrix_slices(n_components: int, size: int) -> list[slice]:
    """Components that are taken at once, for each of which an array has `size` numbers."""
    return row_slices(n_components, max(1, _MATRIX_CELLS // max(1, size)))


def center_rows(
    stack: GaussianStack, X: FloatArray, groups: list[PatternGroup]
) -> tuple[FloatArray, FloatArray, list[ConditionalBlock]]:
    """Log densities (K, n), rows (K, d, n) less the means with conditional means where missing, and
    conditional Gaussians: Mahalanobis distances of rows so completed are those of observed cells.
    """
    own = slice(stack.n_columns)
    shape = (stack.n_components, _n_named(stack, groups), len(X))
    centered, pulled = np.zeros(shape), np.zeros(shape)
    centred_columns(stack, X.T, out=centered[:, own])
    np.matmul(stack.precisions, centered[:, own], out=pulled[:, own])
    n_observed = stack.n_columns - np.isnan(X).sum(axis=1)
    log_densities = -0.5 * (stack.log_determinants[:, None] + n_observed * LOG_2PI)
    blocks = list(conditional_blocks(stack, X, groups, pulled))
    for block in blocks:
        rows, missing = block.group.rows, block.group.missing[block.group.pattern]
        centered[:, missing.T, rows] = block.offsets.transpose(1, 0, 2)
        # |Sigma_oo| = |Sigma| |Lambda_mm|
        log_precisions = block.half_log_precisions.reshape(stack.n_components, -1)
        log_densities[:, rows] -= log_precisions[:, block.group.pattern]
    centered = centered[:, own]
    white = np.matmul(stack.whitening, centered, out=pulled[:, own])
    log_densities -= 0.5 * np.einsum("kdn,kdn->kn", white, white)
    return log_densities, centered, blocks


def centred_columns(
    stack: GaussianStack, columns: FloatArray, out: FloatArray | None = None
) -> FloatArray:
    """Rows, given as columns (d, n), less the means, (K, d, n); zeros for missing cells."""
    observed = (~np.isnan(columns)).astype(np.float64, order="C")
    cells = np.where(observed, columns, 0.0)
    # Products over all cells take less time than a choice of some under each Gaussian
    result = np.multiply(stack.means[:, :, None], observed, out=out)
    return np.subtract(cells, result, out=result)


def conditional_mean(stack: GaussianStack, X: FloatArray) -> FloatArray:
    """Rows (K, n, d) with conditional means in place of missing cells of X (n, d)."""
    result = np.repeat(X[None], stack.n_components, axis=0)
    for block in conditional_blocks(stack, X):
        missing = block.group.missing[block.group.pattern]
        means = stack.means[:, missing] + block.offsets.transpose(1, 2, 0)
        result[:, block.group.rows[:, None], missing] = means
    return result


def write_variances(variances: FloatArray, block: ConditionalBlock) -> None:
    """Write the conditional variances (K, d, n) of the missing cells of some rows."""
    n_components, n_columns, _ = variances.shape
    cells = block.group.missing[block.group.pattern].T
    spreads = np.einsum("jin,jin->in", block.roots, block.roots)
    spreads = spreads.reshape(len(cells), n_components, -1)[:, :, block.group.pattern]
    own = cells < n_columns  # joined groups of patterns name others, too
    rows = np.broadcast_to(block.group.rows, cells.shape)[own]
    variances[:, cells[own], rows] = spreads.transpose(1, 0, 2)[:, own]


def sample_conditional(
    stack: GaussianStack, component: IntArray, X: FloatArray, rng: RandomNumbers
) -> FloatArray:
    """Rows (n, d) whose missing cells are drawn from one component each, by n d normal numbers."""
    # A number for every cell, so that a draw does not depend on what is missing elsewhere
    noise = rng.standard_normal(X.shape)
    result = X.copy()
    for group in group_patterns(np.isnan(X)):
        size = group.missing.shape[1]
        if size == 0:
            continue
        n_rows = cases_per_block(size, 1)
        for start in range(0, len(group.rows), n_rows):
            chosen = slice(start, start + n_rows)
            rows, pattern = group.rows[chosen], group.pattern[chosen]
            missing = group.missing[pattern]
            offsets = _draw_offsets(
                stack, component[rows], X[rows], (group.missing, pattern), noise[rows]
            )
            means = stack.means[component[rows][:, None], missing]
            result[rows[:, None], missing] = means + offsets.T
    return result


def _draw_offsets(
    stack: GaussianStack,
    component: IntArray,
    X: FloatArray,
    patterns: tuple[IntArray, IntArray],
    noise: FloatArray,
) -> FloatArray:
    """Draw missing cells less component means, (m, n): rootᵀ (root l + z), V = rootᵀ root."""
    missing, pattern = patterns
    # rows with the same pattern and component share a factor
    cases, case = np.unique(pattern * stack.n_components + component, return_inverse=True)
    patterns_of_cases, components_of_cases = np.divmod(cases, stack.n_components)
    factors = _conditional_factors(
        stack.precisions, missing[patterns_of_cases].T, components_of_cases
    )
    roots = np.take(invert_lower(factors), case, axis=2)
    delta = X - stack.means[component]
    np.copyto(delta, 0.0, where=np.isnan(delta))
    pulled = np.empty_like(delta)
    for k in np.unique(component):
        chosen = component == k
        pulled[chosen] = delta[chosen] @ stack.precisions[k]
    index, local = missing[pattern].T, np.arange(len(X))
    whitened = multiply(roots, -pulled[local, index]) + noise[local, index]
    return multiply_transposed(roots, whitened)


def conditional_blocks(
    stack: GaussianStack,
    X: FloatArray,
    groups: list[PatternGroup] | None = None,
    pulled: FloatArray | None = None,
) -> Iterator[ConditionalBlock]:
    """Walk over incomplete rows, block by block of patterns, which are factorised once per
    component; ``pulled`` (K, d, n) are precisions times rows less means, if known.
    """
    groups = group_patterns(np.isnan(X)) if groups is None else groups
    precisions = _with_free_columns(stack.distinct.precisions, _n_named(stack, groups))
    n_distinct = len(precisions)
    for group in groups:
        size = group.missing.shape[1]
        if size == 0:
            continue
        for block in group.blocks(cases_per_block(size, n_distinct)):
            factors = _conditional_factors(
                precisions,
                # One factor per pattern and distinct covariance, however many components share it
                np.tile(block.missing.T, n_distinct),
                np.repeat(np.arange(n_distinct), block.n_patterns),
            )
            offsets = np.empty((size, stack.n_components, len(block.rows)))
            found = ConditionalBlock(block, factors, stack.shape, log_diagonal(factors), offsets)
            _write_offsets(stack, X, found, pulled)
            yield found


def _write_offsets(
    stack: GaussianStack, X: FloatArray, block: ConditionalBlock, pulled: FloatArray | None
) -> None:
    """Write conditional means less component means: -(Lambda_mm)⁻¹ (Lambda delta)_m."""
    group, n_rows = block.group, len(block.group.rows)
    size, n_components, _ = block.offsets.shape
    # Callers that know the products need covariances later, whose roots give the means, too
    by_roots = pulled is not None
    matrices = block.distinct_roots if by_roots else block.distinct_factors
    by_pattern = matrices.reshape(size, size, stack.distinct.n_components, -1)
    solve = _solve_by_roots if by_roots else solve_factored
    step = cases_per_block(size, n_components)
    for start in range(0, n_rows, step):
        places = slice(start, start + step)
        rows, pattern = group.rows[places], group.pattern[places]
        missing = group.missing[pattern].T
        if pulled is None:
            sides = -_pull(stack, X[rows])[:, missing, np.arange(len(rows))].transpose(1, 0, 2)
        else:
            sides = -pulled[:, missing, rows].transpose(1, 0, 2)
        if not stack.is_shared:
            cases = of_rows(by_pattern, pattern).reshape(size, size, -1)
            solved = solve(cases, sides.reshape(size, 1, -1))
            block.offsets[:, :, places] = solved.reshape(size, n_components, -1)
            continue
        for g in range(by_pattern.shape[2]):
            own = np.flatnonzero(stack.shape == g)
            cases = of_rows(by_pattern[:, :, g], pattern)
            block.offsets[:, own, places] = solve(cases, sides[:, own])


def _solve_by_roots(roots: FloatArray, sides: FloatArray) -> FloatArray:
    """Multiply right-hand sides (m, k, n) by WᵀW, given W (m, m, n)."""
    return contract("jin,jkn->ikn", roots, contract("ijn,jkn->ikn", roots, sides))


def _pull(stack: GaussianStack, X: FloatArray) -> FloatArray:
    """Precisions times the rows less the means, zeros for missing cells, (K, d, n)."""
    delta = centred_columns(stack, X.T)
    if stack.is_shared:
        with np.errstate(over="ignore"):  # rows so far off have densities of zero
            return np.asarray(stack.precisions @ delta)
    # a few components: bitwise the same whatever the other rows are
    return contract("kij,kjn->kin", stack.precisions, delta)


def of_rows(by_pattern: FloatArray, pattern: IntArray) -> FloatArray:
    """Expand values per pattern, along the last axis, to all rows."""
    if len(pattern) == by_pattern.shape[-1] and pattern[-1] == len(pattern) - 1:
        return by_pattern  # patterns are sorted and none is left out: a row each
    return np.take(by_pattern, pattern, axis=-1)


def _n_named(stack: GaussianStack, groups: list[PatternGroup]) -> int:
    """Number of columns that groups of patterns may name; free ones follow those of the stack."""
    return max(stack.n_columns, *(int(group.missing.max(initial=-1)) + 1 for group in groups), 0)


def _with_free_columns(precisions: FloatArray, n_columns: int) -> FloatArray:
    """Precisions (G, d, d) over so many columns; further ones are standard normal and free."""
    own = precisions.shape[1]
    if n_columns == own:
        return precisions
    padded = np.zeros((len(precisions), n_columns, n_columns))
    padded[:] = np.eye(n_columns)
    padded[:, :own, :own] = precisions
    return padded


def _conditional_factors(
    precisions: FloatArray, missing: IntArray, component: IntArray
) -> FloatArray:
    """Cholesky factors of the conditional precisions, the blocks Lambda_mm."""
    return cholesky(gather_symmetric(precisions, missing, component))


def cholesky(trapezoid: FloatArray) -> FloatArray:
    """Factorise the lower triangles of ``trapezoid`` (d + r, d, n) in place and solve for its last
    r rows; a pivot that rounding made non-positive is raised to machine precision times its
    diagonal.
    """
    n_columns = trapezoid.shape[1]
    tiny = np.finfo(np.float64).eps
    for j in range(n_columns):
        # Of the element before anything is subtracted: the scale that rounding errors have
        floor = tiny * np.abs(trapezoid[j, j])
        if j:
            trapezoid[j:, j] -= contract("ikn,kn->in", trapezoid[j:, :j], trapezoid[j, :j])
        pivot = np.sqrt(np.maximum(trapezoid[j, j], floor))
        trapezoid[j, j] = pivot
        trapezoid[j + 1 :, j] /= pivot
    return trapezoid


def invert_lower(lower: FloatArray) -> FloatArray:
    """Inverses of lower triangular matrices (d, d, n), whose upper triangles are not read."""
    inverse = np.zeros_like(lower)
    for i in range(len(lower)):
        inverse[i, i] = 1.0 / lower[i, i]
        if i:
            # Rows above are inverted by now: L L^-1 = I, row by row
            row = contract("kn,kjn->jn", lower[i, :i], inverse[:i, :i])
            inverse[i, :i] = -row * inverse[i, i]
    return inverse


def solve_factored(lower: FloatArray, sides: FloatArray) -> FloatArray:
    """Solve L Lᵀ x = b in place of b (d, k, n), with lower triangles L (d, d, n)."""
    for i in range(len(lower)):
        if i:
            sides[i] -= contract("jn,jkn->kn", lower[i, :i], sides[:i])
        sides[i] /= lower[i, i]
    for i in reversed(range(len(lower))):
        if i + 1 < len(lower):
            sides[i] -= contract("jn,jkn->kn", lower[i + 1 :, i], sides[i + 1 :])
        sides[i] /= lower[i, i]
    return sides


def gram_of_lower(lower: FloatArray) -> FloatArray:
    """Symmetric products WᵀW of lower triangles W (d, d, n), whose upper triangles are not read."""
    product = np.empty_like(lower)
    for i in range(len(lower)):
        product[i, : i + 1] = contract("kn,kjn->jn", lower[i:, i], lower[i:, : i + 1])
        product[:i, i] = product[i, :i]
    return product


def multiply(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Products (d, n) of matrices (d, d, n) and vectors (d, n)."""
    return contract("ijn,jn->in", matrices, vectors)


def multiply_transposed(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Products (d, n) of transposes of matrices (d, d, n) and vectors (d, n)."""
    return contract("jin,jn->in", matrices, vectors)


def log_diagonal(lower: FloatArray) -> FloatArray:
    """Sums (n,) of log diagonals of factors (d + r, d, n): half of the log determinants of L Lᵀ."""
    size = lower.shape[1]
    diagonal = lower[np.arange(size), np.arange(size)]
    return contract("i,in->n", np.ones(size), np.log(diagonal))


def contract(subscripts: str, left: FloatArray, right: FloatArray) -> FloatArray:
    """Sum products over all but the last axis, in an order that no block size changes."""
    # Along a last axis of two or more elements np.einsum adds the terms one after the other, along
    # one of a single element in another order
    if right.shape[-1] != 1:
        return np.einsum(subscripts, left, right, optimize=False)
    if subscripts[subscripts.index(",") - 1] == subscripts[-1]:
        left = np.repeat(left, 2, axis=-1)
    return np.einsum(subscripts, left, np.repeat(right, 2, axis=-1), optimize=False)[..., :1]


def gather_symmetric(
    matrices: FloatArray, index: IntArray, component: IntArray, n_sides: int = 0
) -> FloatArray:
    """Lower triangles (m, m, n_cases) at ``index`` (m, n_cases), and room for n_sides rows."""
    size, n_cases = index.shape
    table = np.ascontiguousarray(matrices).reshape(-1)
    picked = np.empty((size + n_sides, size, n_cases))
    starts = component * matrices.shape[1] ** 2 + index * matrices.shape[1]
    for i in range(size):
        # mode="clip" lets NumPy write straight into the output
        np.take(table, starts[i] + index[: i + 1], out=picked[i, : i + 1], mode="clip")
    return picked


def cases_per_block(size: int, n_components: int) -> int:
    """As many cases as have ``n_components`` matrices of ``BLOCK_BYTES``, of 64 at least."""
    return max(64, BLOCK_BYTES // (8 * size**2)) // n_components + 1
