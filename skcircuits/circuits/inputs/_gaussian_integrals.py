"""Densities, gradients and box probabilities of a stack of Gaussians, given incomplete rows.

Modes: concave log densities have a single maximum within bounds, which damped Newton steps reach,
each the solution of a quadratic program in the bounds (Boyd and Vandenberghe, 2004, "Convex
Optimization", section 9.5), also where correlations are near one and coordinate ascent crawls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import expit, ndtr, owens_t

from skcircuits.circuits._policy import BOX_CASES, CHOLESKYS_PER_FACTOR
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import divisors, log_ndtr_difference, logsumexp, safe_log
from skcircuits.numerics._gaussian_stack import (
    BLOCK_BYTES,
    LOG_2PI,
    ConditionalBlock,
    GaussianStack,
    TiedRows,
    cases_per_block,
    center_rows,
    centred_columns,
    cholesky,
    conditional_blocks,
    gather_symmetric,
    invert_lower,
    log_diagonal,
    write_variances,
)
from skcircuits.numerics._patterns import PatternGroup, group_patterns, joined_groups
from skcircuits.protocols import FloatArray, IntArray

MAX_BOUNDED = 3
_DROP = 40.0  # nats below its peak from where on an integrand is left out
_FAR = 1e140  # standard deviations from where on no mass is left, and whose square is still a float
_FLAT = 1e-3  # nats between a peak and its approximation
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
_FAR_OUT = 9.0  # standard deviations beyond which there is less mass than 1e-18
_REACH = 40.0  # standard deviations beyond which the mass underflows
# Nodes of the integrals over rectangles, largest change where their number is doubled, and least
# number over a range in units of the narrowest peak, so that none lies unseen between two of them
_CUBOID_NODES, _CUBOID_TOL, _NODES_PER_WIDTH = (16, 32, 64, 128), 1e-14, 0.2
_MAX_SQUARE = 1e5  # that is expanded, so that log densities are exact to 1e-10
MIN_MASS = 1e-5  # of a rectangle, for ten digits of a sum of absolute errors
# Newton steps, and halvings of each
_MAX_STEPS, _MAX_HALVINGS = 100, 60
# Smallest gain in nats that is told from rounding; the last step from there squares the distance
_MIN_GAIN = 1e-10
_ARMIJO = 1e-4

LogFunction = Callable[[FloatArray], FloatArray]


def log_density(stack: GaussianStack, X: FloatArray) -> FloatArray:
    r"""Log density (K, n) of the observed cells of rows (n, d), 0 without any, under each Gaussian.

    Rows that share their pattern with enough others are whitened by one matrix product
    per pattern. The remaining patterns cost one factorisation per row and component, of
    the smaller of two blocks: of Sigma_oo, or, with Lambda the inverse of Sigma and
    delta = x - mu (0 where missing), of Lambda_mm:

    .. math::

        (x-\mu)_o^T \Sigma_{oo}^{-1} (x-\mu)_o = \delta^T\Lambda\delta -
        |L^{-1}(\Lambda\delta)_m|^2, \quad L L^T = \Lambda_{mm}.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        result = _by_pattern(stack, X)
    # Where squares overflow, no density is left: of NaN and a number, fmax is the number
    return np.fmax(result, -np.inf, out=result)


def _by_pattern(stack: GaussianStack, X: FloatArray) -> FloatArray:
    """Log densities of rows with the same missing cells together."""
    missing = np.isnan(X)
    columns = np.ascontiguousarray(X.T)
    if not missing.any():
        return _complete(stack, columns)
    if stack.is_shared:
        tied = tied_rows(stack, X)
        return complete(stack, X)[0] if tied is None else tied.log_density
    result = np.zeros((stack.n_components, len(X)))
    for group in group_patterns(missing):
        n_missing, n_observed = group.missing.shape[1], group.observed.shape[1]
        if n_missing == 0:
            result[:, group.rows] = _complete(stack, columns[:, group.rows])
        elif n_observed > 0:
            # Cost of the rows alone, each with the smaller of its two blocks
            lone = group.counts * (min(n_missing, n_observed) + 1) ** 3
            shared = lone > CHOLESKYS_PER_FACTOR * n_observed**3
            _write_shared(stack, columns, group.take(shared), result)
            _write_lone(stack, columns, group.take(~shared), result)
    return result


def log_peak(stack: GaussianStack, X: FloatArray) -> FloatArray:
    """Log joint density (K, n) of rows with missing cells at their conditional means."""
    peaks = log_density(stack, X)
    for block in conditional_blocks(stack, X):
        # A conditional Gaussian of m cells is |Λ_mm|^(1/2) (2π)^(-m/2) high.
        heights = block.half_log_precisions.reshape(stack.n_components, -1)
        heights = heights - 0.5 * block.group.missing.shape[1] * LOG_2PI
        peaks[:, block.group.rows] += heights[:, block.group.pattern]
    return peaks


def weighted_score(stack: GaussianStack, X: FloatArray, weights: FloatArray) -> FloatArray:
    """Sum (d, n) of the gradients Σ_oo⁻¹ (μ_o - x_o) of log densities by weights (K, n), 0 where
    cells of X (n, d) are missing: with their conditional means, these are Σ⁻¹ (μ - x).
    """
    offsets = np.ascontiguousarray(X.T) - stack.means[:, :, None]  # (K, d, n)
    missing = np.isnan(X)
    if missing.any():
        for block in conditional_blocks(stack, X):
            columns = block.group.missing[block.group.pattern].T
            offsets[:, columns, block.group.rows] = block.offsets.transpose(1, 0, 2)
    offsets *= weights[:, None]
    # The product sums over the components, too
    result = -np.tensordot(stack.precisions, offsets, ([0, 1], [0, 1]))
    result[missing.T] = 0.0
    return result


def conditional_moments(stack: GaussianStack, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means and variances (K, n, d) of the cells of X (n, d); an observed cell is its own mean."""
    means, variances = density_and_moments(stack, X)[1]
    return np.where(np.isnan(X), means, X), variances


def density_and_moments(
    stack: GaussianStack, X: FloatArray
) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
    """Log densities (K, n) of rows, and means and variances (K, n, d) of their missing cells."""
    variances = np.zeros((*stack.means.shape, len(X)))
    log_densities, offsets = complete(stack, X, variances)
    means = stack.means[:, :, None] + offsets
    return log_densities, (means.transpose(0, 2, 1), variances.transpose(0, 2, 1))


def complete(
    stack: GaussianStack, X: FloatArray, variances: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Log densities (K, n) of rows and their offsets (K, d, n) from the means once completed by
    conditional means; conditional variances are written into ``variances`` (K, d, n).
    """
    groups = joined_groups(np.isnan(X), (stack.n_components, len(stack.distinct_covariances)))
    log_densities, offsets, blocks = given_cells(stack, X, groups)
    if variances is not None:
        for block in blocks:
            write_variances(variances, block)
    return log_densities, offsets


def tied_rows(stack: GaussianStack, X: FloatArray) -> TiedRows | None:
    """Rows completed by matrix products, where all Gaussians have one covariance, are many and not
    far from one another and from the rows; else None.
    """
    if len(stack.distinct_covariances) > 1 or stack.n_components < max(2, stack.n_columns):
        return None
    if stack.largest_square > _MAX_SQUARE:
        return None
    missing = np.isnan(X)
    with np.errstate(over="ignore", invalid="ignore"):
        rows = TiedRows.of(stack, X, joined_groups(missing, (stack.n_components, 1)))
        if not rows.largest_square() <= _MAX_SQUARE:
            return None
    # Nothing observed: the integral over all cells is one
    rows.log_density[:, missing.all(axis=1)] = 0.0
    return rows


def given_cells(
    stack: GaussianStack, X: FloatArray, groups: list[PatternGroup]
) -> tuple[FloatArray, FloatArray, list[ConditionalBlock]]:
    """`center_rows` of rows however far off, and of rows of which nothing is observed."""
    with np.errstate(over="ignore", invalid="ignore"):
        log_densities, offsets, blocks = center_rows(stack, X, groups)
    log_densities[np.isnan(log_densities)] = -np.inf
    # Nothing observed: the integral over all cells is one
    log_densities[:, np.isnan(X).all(axis=1)] = 0.0
    return log_densities, offsets, blocks


def _complete(stack: GaussianStack, columns: FloatArray) -> FloatArray:
    """Log densities of complete rows, given as columns (d, n)."""
    n_components, size = stack.means.shape
    result = np.empty((n_components, columns.shape[1]))
    # Differences from all means stay in the cache.
    n_rows = max(16, BLOCK_BYTES // (16 * n_components * max(size, 1)))
    for start in range(0, columns.shape[1], n_rows):
        rows = slice(start, start + n_rows)
        delta = columns[:, rows] - stack.means[:, :, None]
        result[:, rows] = _squared_norms(stack.whitening @ delta)
    result += stack.log_determinants[:, None] + size * LOG_2PI
    result *= -0.5
    return result


def _squared_norms(vectors: FloatArray) -> FloatArray:
    """Squared norms over the middle axis, (K, d, n) -> (K, n)."""
    return np.einsum("kdn,kdn->kn", vectors, vectors)


def _write_shared(
    stack: GaussianStack, columns: FloatArray, group: PatternGroup, result: FloatArray
) -> None:
    """Fill in rows whose pattern is shared: one whitening matrix per pattern."""
    n_components = stack.n_components
    size = group.observed.shape[1]
    for block in group.blocks(cases_per_block(size, n_components)):
        lower = cholesky(_gather(stack.covariances, block.observed.T))
        half_log_determinants = log_diagonal(lower).reshape(n_components, -1)
        whitening = invert_lower(lower).reshape(size, size, n_components, -1)
        whitening = np.ascontiguousarray(whitening.transpose(3, 2, 0, 1))
        stops = np.cumsum(block.counts)
        for i, (start, stop) in enumerate(zip(stops - block.counts, stops)):
            rows, observed = block.rows[start:stop], block.observed[i]
            delta = columns[observed[:, None], rows] - stack.means[:, observed, None]
            result[:, rows] = -0.5 * _squared_norms(whitening[i] @ delta)
        result[:, block.rows] -= half_log_determinants[:, block.pattern] + 0.5 * size * LOG_2PI


def _write_lone(
    stack: GaussianStack, columns: FloatArray, group: PatternGroup, result: FloatArray
) -> None:
    """Fill in rows of rare patterns: one factorisation per row, of the smaller block."""
    size, n_observed = group.missing.shape[1], group.observed.shape[1]
    evaluate = _row_by_missing if size <= n_observed else _row_by_observed
    n_rows = cases_per_block(min(size, n_observed) + 1, stack.n_components)
    for start in range(0, len(group.rows), n_rows):
        rows = group.rows[start : start + n_rows]
        pattern = group.pattern[start : start + n_rows]
        distances, half_log_determinants = evaluate(
            stack, columns[:, rows], group.missing[pattern].T, group.observed[pattern].T
        )
        result[:, rows] = -0.5 * (distances + n_observed * LOG_2PI) - half_log_determinants


def _row_by_missing(
    stack: GaussianStack, columns: FloatArray, missing: IntArray, observed: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Squared Mahalanobis distances and half log determinants from Lambda_mm."""
    n_components, n_rows = stack.n_components, columns.shape[1]
    delta = centred_columns(stack, columns)
    pulled = stack.precisions @ delta  # (K, d, n)
    trapezoid = _gather(stack.precisions, missing, n_sides=1)
    trapezoid[-1] = (
        pulled[:, missing, np.arange(n_rows)].transpose(1, 0, 2).reshape(len(missing), -1)
    )
    cholesky(trapezoid)
    shape = (n_components, n_rows)
    distances = np.einsum("kdn,kdn->kn", delta, pulled)
    distances -= np.einsum("mn,mn->n", trapezoid[-1], trapezoid[-1]).reshape(shape)
    # |Sigma_oo| = |Sigma| |Lambda_mm|
    half_log_determinants = log_diagonal(trapezoid).reshape(shape)
    return distances, half_log_determinants + 0.5 * stack.log_determinants[:, None]


def _row_by_observed(
    stack: GaussianStack, columns: FloatArray, missing: IntArray, observed: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Squared Mahalanobis distances and half log determinants from Sigma_oo."""
    n_components, n_rows = stack.n_components, columns.shape[1]
    trapezoid = _gather(stack.covariances, observed, n_sides=1)
    delta = columns[observed, np.arange(n_rows)][:, None] - stack.means.T[observed].transpose(
        0, 2, 1
    )
    trapezoid[-1] = delta.reshape(len(observed), -1)
    cholesky(trapezoid)
    shape = (n_components, n_rows)
    distances = np.einsum("on,on->n", trapezoid[-1], trapezoid[-1]).reshape(shape)
    return distances, log_diagonal(trapezoid).reshape(shape)


def _gather(matrices: FloatArray, index: IntArray, n_sides: int = 0) -> FloatArray:
    """Submatrices of all components for each column of `index`, component-major cases."""
    n_components, n_cases = len(matrices), index.shape[1]
    return gather_symmetric(
        matrices, np.tile(index, n_components), np.repeat(np.arange(n_components), n_cases), n_sides
    )


def log_box_probability(
    stack: GaussianStack, lower: FloatArray, upper: FloatArray, *, least_mass: float = MIN_MASS
) -> FloatArray:
    """Log probabilities (K, n) of boxes, ``-inf`` for empty ones, with bounds (n, d), NaN or
    infinite where a side is open, of at most three columns.

    Exact in one bounded column; in two and three the relative error is about 1e-10, in the tails
    too. Two columns have a closed form to an absolute 1e-15, and three an integral of it to an
    absolute 1e-14, which are taken above ``least_mass``.

    Else the first bounded coordinate is integrated over the log probability of the box that the
    others have given it. That integrand is log-concave (Prékopa): its peak is found by golden
    section, the points where it has fallen by 40 nats by bisection. It is steep near the peak or
    these points only, where a tanh-sinh rule on either side of the peak has its nodes.
    """
    lower = np.where(np.isnan(lower), -np.inf, lower)
    upper = np.where(np.isnan(upper), np.inf, upper)
    # The probability of empty boxes, such as points, is zero whatever else they bound
    is_empty = (upper <= lower).any(axis=1)
    lower[is_empty], upper[is_empty] = -np.inf, np.inf
    result = np.zeros((stack.n_components, len(lower)))
    for group in group_patterns((lower == -np.inf) & (upper == np.inf)):
        n_bounded = group.observed.shape[1]
        if n_bounded > MAX_BOUNDED:
            condition = f"bound at most {MAX_BOUNDED} columns of one multivariate Gaussian"
            way_out = "Bound fewer columns, or fit covariance_type='diag' or max_joint_columns=3."
            raise CircuitPropertyError(
                must("boxes", condition, way_out, bounded_columns=group.observed[0].tolist())
            )
        if n_bounded == 0:
            continue
        for start in range(0, len(group.rows), BOX_CASES):
            rows = group.rows[start : start + BOX_CASES]
            columns = group.observed[group.pattern[start : start + BOX_CASES]].T
            ends = lower[rows], upper[rows]
            result[:, rows] = _standardized_boxes(stack, *ends, columns, least_mass)
    result[:, is_empty] = -np.inf
    return result


def _standardized_boxes(
    stack: GaussianStack, lower: FloatArray, upper: FloatArray, columns: IntArray, least_mass: float
) -> FloatArray:
    """Log probabilities (K, n) of boxes that bound r columns (r, n) each."""
    n_bounded, n_rows = columns.shape
    means = stack.means.T[columns].transpose(0, 2, 1)  # (r, K, n)
    covariances = stack.covariances[:, columns[:, None], columns[None]].transpose(1, 2, 0, 3)
    stds = np.sqrt(covariances[np.arange(n_bounded), np.arange(n_bounded)])
    correlations = covariances / (stds[:, None] * stds[None])
    rows = np.arange(n_rows)
    # bounds that overflow are as good as infinite
    with np.errstate(over="ignore"):
        low = (lower[rows, columns][:, None] - means) / stds
        high = (upper[rows, columns][:, None] - means) / stds
    empty = (high <= low).any(axis=0)
    # an empty box would have no peak: any other stands in
    low, high = np.where(empty, -1.0, low), np.where(empty, 1.0, high)
    values = log_standard_box(
        low.reshape(n_bounded, -1),
        high.reshape(n_bounded, -1),
        correlations.reshape(n_bounded, n_bounded, -1),
        least_mass,
    )
    return np.where(empty, -np.inf, values.reshape(-1, n_rows))


def log_standard_box(
    low: FloatArray, high: FloatArray, correlations: FloatArray, least_mass: float = MIN_MASS
) -> FloatArray:
    """Log probabilities (n,) of boxes (r, n) under standardised normals (r, r, n)."""
    if len(low) == 1:
        return log_ndtr_difference(low[0], high[0])
    # Absolute errors first: the search for peaks takes hundreds of evaluations of its integrand
    if len(low) == 2:
        mass = rectangle_mass(low, high, correlations[0, 1])
    else:
        mass = _cuboid_mass(low, high, correlations)
    values = np.log(np.maximum(mass, np.finfo(np.float64).tiny))
    is_left = np.isnan(mass)
    if least_mass > 0.0:
        is_left |= mass <= least_mass
    rest = np.flatnonzero(is_left)
    if len(rest):
        function, start, stop = first_coordinate(
            low[:, rest], high[:, rest], correlations[:, :, rest]
        )
        values[rest] = _log_integral(function, start, stop)
    return values


def rectangle_mass(low: FloatArray, high: FloatArray, correlation: FloatArray) -> FloatArray:
    """Probabilities (n,) of rectangles (2, n) under standardised normals, to an absolute 1e-15, by
    Owen's function T at each corner (Owen, 1956); his other terms cancel over the corners.
    """
    (a, c), (b, d) = clip_to_mass(low), clip_to_mass(high)
    scale = np.sqrt(1.0 - correlation**2)
    x, y = np.array([a, a, b, b]), np.array([c, d, c, d])
    corners = _owens_t(x, (y - correlation * x) / scale)
    corners += _owens_t(y, (x - correlation * y) / scale)
    corners += 0.5 * ((x > 0.0) != (y > 0.0))
    return corners[1] + corners[2] - corners[0] - corners[3]


def _cuboid_mass(low: FloatArray, high: FloatArray, correlations: FloatArray) -> FloatArray:
    """Probabilities (n,) of boxes (3, n) under standardised normals, to an absolute 1e-14, or NaN.

    The integral of rectangles given the coordinate that is least correlated with the others, of
    which they are smooth functions. Numbers of nodes are doubled until the result no longer
    changes; NaN where it still does (three columns that nearly determine one another).
    """
    sizes = np.abs(correlations - np.eye(3)[:, :, None]).max(axis=0)
    order = (sizes.argmin(axis=0) + np.arange(3)[:, None]) % 3
    each = np.arange(low.shape[1])
    low, high = (np.clip(ends, -_FAR, _FAR)[order, each] for ends in (low, high))
    correlations = correlations[order[:, None], order[None], each]
    start, stop = _range_of_first(low, high, correlations)
    n_least = _NODES_PER_WIDTH * (stop - start) / _width_given_others(correlations)
    found, before = np.full((2, low.shape[1]), np.nan)
    left = each
    for n_nodes in _CUBOID_NODES:
        nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
        half = 0.5 * (stop - start)[left]
        z = start[left] + half * (1.0 + nodes[:, None])
        inner = given_first(low[:, left], high[:, left], correlations[:, :, left], z)
        masses = rectangle_mass(*inner[:2], inner[2][0, 1]).reshape(z.shape)
        densities = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        mass = half * (weights @ (densities * masses))
        is_sure = (np.abs(mass - before[left]) <= _CUBOID_TOL) & (n_nodes >= n_least[left])
        found[left[is_sure]] = mass[is_sure]
        before[left] = mass
        left = left[~is_sure]
        if len(left) == 0:
            break
    return found


def _range_of_first(
    low: FloatArray, high: FloatArray, correlations: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Ends (n,) of the range of the first coordinate beyond which boxes have no mass above 1e-18;
    given another coordinate, it has the standard deviation that their correlation leaves.
    """
    slopes = correlations[0]
    reach = _FAR_OUT * np.sqrt(np.maximum(1.0 - slopes**2, 0.0))
    reach[0] = 0.0  # its own correlation may differ from one by rounding
    ends = slopes * np.clip([low, high], -_FAR_OUT, _FAR_OUT)
    start = (ends.min(axis=0) - reach).max(axis=0)
    stop = (ends.max(axis=0) + reach).min(axis=0)
    return start, np.maximum(start, stop)


def _width_given_others(correlations: FloatArray) -> FloatArray:
    """Standard deviations (n,) of the first of three coordinates given the others."""
    (_, a, b), (_, _, c), _ = correlations
    determinants = 1.0 + 2.0 * a * b * c - a**2 - b**2 - c**2
    variances = np.maximum(determinants, 0.0) / divisors(1.0 - c**2)
    # None is zero by more than rounding
    return np.sqrt(np.maximum(variances, np.finfo(np.float64).eps))


def _owens_t(h: FloatArray, rest: FloatArray) -> FloatArray:
    """Owen's T(h, rest / h), of any shape, by its limit where h or the rest is far out."""
    size = np.abs(h)
    result = np.copysign(0.5 * ndtr(-size), h * rest)
    near = (size < _FAR_OUT) & (np.abs(rest) < _FAR_OUT)
    with np.errstate(over="ignore"):  # next to the mean, T has its limit at infinity
        result[near] = owens_t(h[near], rest[near] / h[near])
    return result


def clip_to_mass(ends: FloatArray) -> FloatArray:
    """Ends as far out as floats see any mass of a normal number, none of them zero."""
    ends = np.clip(ends, -_REACH, _REACH)
    return np.where(ends == 0.0, 1e-150, ends)


def first_coordinate(
    low: FloatArray, high: FloatArray, correlations: FloatArray
) -> tuple[LogFunction, FloatArray, FloatArray]:
    """Log density of the first coordinate z (m, n) times the probability of the other sides of
    boxes (r, n) given z, and the ends (n,) of its range.
    """
    low, high = np.clip(low, -_FAR, _FAR), np.clip(high, -_FAR, _FAR)

    def log_integrand(z: FloatArray) -> FloatArray:
        """Log of the density of z (m, n) times the probability of the other sides."""
        inner = log_standard_box(*given_first(low, high, correlations, z))
        return inner.reshape(z.shape) - 0.5 * z**2 - 0.5 * np.log(2.0 * np.pi)

    # Without the mass beyond, infinite sides have a finite range to search.
    reach = _reach(low, high, correlations)
    return log_integrand, np.clip(low[0], -reach, reach), np.clip(high[0], -reach, reach)


def given_first(
    low: FloatArray, high: FloatArray, correlations: FloatArray, z: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Ends (r - 1, m * n) and correlations of the others given values (m, n) of the first."""
    slopes = correlations[0, 1:]
    scales = np.sqrt(1.0 - slopes**2)
    remaining = correlations[1:, 1:] - slopes[:, None] * slopes
    remaining = remaining / (scales[:, None] * scales)
    n_rest = len(slopes)
    low, high = (
        ((bound[1:, None] - slopes[:, None] * z) / scales[:, None]).reshape(n_rest, -1)
        for bound in (low, high)
    )
    each = np.broadcast_to(remaining[:, :, None], (n_rest, n_rest, *z.shape))
    return low, high, each.reshape(n_rest, n_rest, -1)


def _reach(low: FloatArray, high: FloatArray, correlations: FloatArray) -> FloatArray:
    """How far out the mass of a box may lie in each coordinate: the Mahalanobis norm bounds it, and
    the point nearest to the origin bounds the least norm.
    """
    nearest = np.clip(0.0, low, high)
    solved = np.linalg.solve(correlations.transpose(2, 0, 1), nearest.T[:, :, None])[:, :, 0]
    norm = np.sqrt(np.maximum(np.einsum("dn,nd->n", nearest, solved), 0.0))
    return norm + np.sqrt(2.0 * _DROP) + 1.0


def _log_integral(log_function: LogFunction, start: FloatArray, stop: FloatArray) -> FloatArray:
    """Log integrals (n,) from start to stop of log-concave functions, given at points (m, n)."""
    peak, extents = find_support(log_function, start, stop)
    signs = np.array([-1.0, 1.0])[:, None]
    # Nodes crowd at both ends of a side, where the integrand may be steep
    nodes, log_weights = _TANH_SINH
    # (side, node, n): nodes run from the peak to the end of the side
    steps = extents[:, None] * nodes[:, None]
    points = (peak + signs[:, None] * steps).reshape(-1, len(peak))
    values = log_function(points).reshape(steps.shape) + log_weights[:, None]
    values += safe_log(extents)[:, None]
    return logsumexp(values.reshape(-1, len(peak)), axis=0)


def find_support(
    log_function: LogFunction, start: FloatArray, stop: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Peaks (n,) of log-concave functions, and how far (2, n) to either side they have mass."""
    peak = _find_peak(log_function, start, stop)
    height = log_function(peak[None])[0]
    signs = np.array([-1.0, 1.0])[:, None]
    room = np.stack([peak - start, stop - peak])
    # bisection of the logarithm of the distance: any scale within twelve steps
    near = np.log(np.maximum(room, np.finfo(np.float64).tiny)) - 36.0
    far = near + 36.0
    whole = log_function(peak + signs * room) >= height - _DROP
    for _ in range(12):
        middle = 0.5 * (near + far)
        above = log_function(peak + signs * np.exp(middle)) >= height - _DROP
        near, far = np.where(above, middle, near), np.where(above, far, middle)
    return peak, np.where(whole, room, np.exp(far))


def _find_peak(log_function: LogFunction, start: FloatArray, stop: FloatArray) -> FloatArray:
    """Golden section for the peaks (n,) of log-concave functions."""
    # Golden section keeps one of two inner points: one evaluation per step
    left, right = start.copy(), stop.copy()
    ends = log_function(np.stack([left, right]))
    inner = np.stack([right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)])
    values = log_function(inner)
    # Fifty steps leave 4e-11 of the range, which suffices because a peak is flat.
    for _ in range(50):
        down = values[0] > values[1]
        left, right = np.where(down, left, inner[0]), np.where(down, inner[1], right)
        ends = np.where(down, [ends[0], values[1]], [values[0], ends[1]])
        fresh = np.where(down, right - _GOLDEN * (right - left), left + _GOLDEN * (right - left))
        value = log_function(fresh[None])[0]
        inner = np.where(down, [fresh, inner[0]], [inner[1], fresh])
        values = np.where(down, [value, values[0]], [values[1], value])
        # The rules take any point near the peak
        if (values.max(axis=0) < ends.min(axis=0) + _FLAT).all():
            break
    return np.clip(0.5 * (left + right), start, stop)


def _tanh_sinh() -> tuple[FloatArray, FloatArray]:
    """Nodes and log weights of the tanh-sinh rule on (0, 1)."""
    step, reach = 0.025, 3.2
    u = np.arange(-reach, reach + 0.5 * step, step)
    inner = 0.5 * np.pi * np.sinh(u)
    # the distance from the left end without cancellation
    nodes = expit(2.0 * inner)
    weights = 0.25 * np.pi * step * np.cosh(u) / np.cosh(inner) ** 2
    return nodes, np.log(weights)


_TANH_SINH = _tanh_sinh()


class CoordinateBounds(NamedTuple):
    """Intervals of r coordinates (r,), with ends (n, r) that may be infinite."""

    coordinates: IntArray
    low: FloatArray
    high: FloatArray


class ConcaveTerm(Protocol):
    """A concave function of z (n, m), of some of the densities."""

    def values(self, z: FloatArray, chosen: IntArray) -> FloatArray:
        """Values, (n,)."""

    def derivatives(self, z: FloatArray, chosen: IntArray) -> tuple[FloatArray, FloatArray]:
        """Gradients (n, m) and negative Hessians (n, m, m)."""


@dataclass(frozen=True)
class ConcaveLogDensities:
    """n log densities of m coordinates, up to constants, within bounds."""

    means: FloatArray  # (n, m), of a normal density
    precisions: FloatArray  # (n, m, m)
    curvatures: FloatArray  # (n, m), c: minus log cosh(c z)
    bounds: CoordinateBounds
    term: ConcaveTerm | None = None  # added to the normal one

    def modes(self, start: FloatArray) -> FloatArray:
        """Find the maxima (n, m), from points within the bounds."""
        best = start.copy()
        heights = self._values(best, np.arange(len(best)))
        # Where even the start has no density there is nothing to ascend by
        pending = np.flatnonzero(np.isfinite(heights))
        for _ in range(_MAX_STEPS):
            if not len(pending):
                break
            gradients, curvatures = self._derivatives(best[pending], pending)
            steps = self._newton_steps(best[pending], gradients, curvatures, pending)
            gains = np.einsum("nj,nj->n", gradients, steps)
            rounding = 64 * np.finfo(float).eps * np.abs(heights[pending])
            is_last = gains <= _MIN_GAIN + rounding
            best[pending[is_last]] += steps[is_last]
            going = ~is_last
            pending, steps, gains = pending[going], steps[going], gains[going]
            moved = self._ascend(best, heights, steps, gains, pending)
            pending = pending[moved]
        own, low, high = self.bounds
        best[:, own] = np.clip(best[:, own], low, high)
        return best

    def _ascend(
        self,
        best: FloatArray,
        heights: FloatArray,
        steps: FloatArray,
        gains: FloatArray,
        pending: IntArray,
    ) -> FloatArray:
        """Take the steps, halved until they gain; tell which were taken."""
        is_taken = np.zeros(len(pending), dtype=bool)
        length = 1.0
        for _ in range(_MAX_HALVINGS):
            left = np.flatnonzero(~is_taken)
            if not len(left):
                break
            own = pending[left]
            tried = best[own] + length * steps[left]
            found = self._values(tried, own)
            is_higher = found >= heights[own] + _ARMIJO * length * gains[left]
            best[own[is_higher]], heights[own[is_higher]] = tried[is_higher], found[is_higher]
            is_taken[left[is_higher]] = True
            length /= 2.0
        return is_taken

    def _values(self, z: FloatArray, chosen: IntArray) -> FloatArray:
        offsets = z - self.means[chosen]
        values = -0.5 * np.einsum("ni,nij,nj->n", offsets, self.precisions[chosen], offsets)
        slopes = np.abs(self.curvatures[chosen] * z)
        # log cosh, without overflow and up to a constant
        values -= (slopes + np.log1p(np.exp(-2.0 * slopes))).sum(axis=1)
        if self.term is not None:
            values += self.term.values(z, chosen)
        return values

    def _derivatives(self, z: FloatArray, chosen: IntArray) -> tuple[FloatArray, FloatArray]:
        """Gradients (n, m) and negative Hessians (n, m, m)."""
        precisions, factors = self.precisions[chosen], self.curvatures[chosen]
        tanh = np.tanh(factors * z)
        gradients = -np.einsum("nij,nj->ni", precisions, z - self.means[chosen]) - factors * tanh
        curvatures = precisions.copy()
        diagonal = np.arange(z.shape[1])
        curvatures[:, diagonal, diagonal] += factors**2 * (1.0 - tanh**2)
        if self.term is not None:
            gradient, curvature = self.term.derivatives(z, chosen)
            gradients += gradient
            curvatures += curvature
        return gradients, curvatures

    def _newton_steps(
        self, z: FloatArray, gradients: FloatArray, curvatures: FloatArray, chosen: IntArray
    ) -> FloatArray:
        """Steps (n, m) to the maxima of the quadratic approximations within the bounds."""
        own = self.bounds.coordinates
        sides = np.broadcast_to(np.eye(z.shape[1])[:, own], (*z.shape, len(own)))
        solved = np.linalg.solve(curvatures, np.concatenate([gradients[:, :, None], sides], axis=2))
        steps, covariances = solved[:, :, 0], solved[:, :, 1:]
        if len(own):
            low, high = self.bounds.low[chosen], self.bounds.high[chosen]
            precisions = np.linalg.inv(covariances[:, own])
            goal = z[:, own] + steps[:, own]
            inside = best_in_box(goal, precisions, low, high)
            # The other coordinates follow those within bounds by regression
            pull = np.einsum("nrs,ns->nr", precisions, inside - goal)
            steps += np.einsum("njr,nr->nj", covariances, pull)
        return np.asarray(steps)


def best_in_box(
    centers: FloatArray, precisions: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Densest points (..., r) in boxes, exactly: the way to the center leaves the box through a
    side that the center has crossed; with that coordinate at its end, the rest is a smaller
    problem.
    """
    best: FloatArray = np.clip(centers, low, high)
    size = centers.shape[-1]
    if size < 2:
        return best
    least = np.full(centers.shape[:-1], np.inf)
    clipped = best
    for i in range(size):
        rest = np.delete(np.arange(size), i)
        inner = precisions[..., rest[:, None], rest]
        pull = precisions[..., rest, i] * (clipped[..., [i]] - centers[..., [i]])
        shifted = centers[..., rest] - np.linalg.solve(inner, pull[..., None])[..., 0]
        tried = np.empty_like(clipped)
        tried[..., i] = clipped[..., i]
        tried[..., rest] = best_in_box(shifted, inner, low[..., rest], high[..., rest])
        offsets = tried - centers
        cost = np.einsum("...i,...ij,...j->...", offsets, precisions, offsets)
        is_better = cost < least
        best = np.where(is_better[..., None], tried, best)
        least = np.where(is_better, cost, least)
    return best
