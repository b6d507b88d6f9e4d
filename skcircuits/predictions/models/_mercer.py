"""Variances of kernel expansions by Mercer's expansion under conditional Gaussians.

Let f = Σ_a v_a k(·, s_a) be what an expansion becomes once the observed cells are filled in, x
the missing ones. In the eigenbasis of their covariance, scaled by the kernel, k is a product of
one-dimensional Gaussian kernels, and Mercer's theorem gives

    E f(x)² = Σ_β λ_β <f, e_β>²,   <f, e_β> = Σ_a v_a e_β(s_a),   Σ_β <f, e_β>² ≤ ‖F‖²,

with products e_β of Hermite functions, orthonormal in the space of k, λ_β = Π_j λ_j B_j^β_j, and
‖F‖ the norm of the whole expansion (fixing cells does not increase it). All β with λ_β ≤ θ
together add at most θ ‖F‖²: a certified truncation. See Zhu, Williams, Rohwer and Morciniec,
"Gaussian regression and optimal finite dimensional linear models" (1998). A category is one more
direction, whose eigenfunctions are those of a small matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from skcircuits.kernels.families.product import MismatchKernel
from skcircuits.numerics._gaussian_stack import ConditionalBlock
from skcircuits.parallel import row_slices, single_threaded_blas
from skcircuits.predictions._components import ConditionedRows, GaussianComponents
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Relative error of a variance, certified
TOLERANCE = 1e-5
# Differences of squares are no better than this, relative to the squares
ROUNDING = 1e-13
SMALLEST = 1e-20  # of the ratios of eigenvalues
SLOWEST = -1.0 / 64.0  # logarithm of a ratio; those above mean narrow kernels anyway
MAX_ORDERS = 60  # of one direction: narrower kernels go by pairs of points
FEW_POINTS = 256  # whose pairs cost little, and leave nothing out
# Eigenfunctions of some rows at all points stay in the cache
BATCH_BYTES = 2**20
# Nanoseconds per point of a product of eigenfunctions, of an eigenfunction, and of a pair
PRODUCT_COST, FUNCTION_COST, PAIR_COST = 0.07, 0.5, 1.6


@dataclass(frozen=True, eq=False)
class MixtureExpansion:
    """A kernel expansion over a mixture of Gaussians times distributions of categories.

    ``scales`` (p,) are the square roots of the kernel's gamma for the numbers of ``components`` (0
    where it does not look), ``functions`` its factors for the categories that it looks at;
    ``points`` (m, n_columns) and ``coefficients`` (m,) are those of the expansion.
    """

    components: GaussianComponents
    scales: FloatArray
    functions: dict[int, MismatchKernel]
    points: FloatArray
    coefficients: FloatArray

    def variances(self, X: FloatArray, squared_norm: float) -> FloatArray:
        """Var[f(x) | observed cells] of some rows, shape (n,), given ‖F‖²."""
        conditioned = self.components.conditioned(X)
        squared_norm = max(squared_norm, 1e-300)
        with single_threaded_blas():  # its threads cost more than these products
            parts = list(self._parts(X, conditioned))
            means, least = _means_and_least_variances(parts, conditioned.weights)
            # Rounding makes differences of squares no better
            floor = ROUNDING * np.square(means) + 1e-300
            result, sizes = np.zeros(len(X)), np.maximum(least, floor)
            left = np.ones(len(X), dtype=bool)
            while left.any():
                thresholds = 0.5 * TOLERANCE * sizes / squared_norm
                found, truncated = _second_moments(parts, conditioned.weights, left, thresholds)
                result[left] = (found - np.square(means))[left]
                errors = thresholds * squared_norm * truncated
                left &= errors > TOLERANCE * np.maximum(result, floor)
                sizes = np.maximum(result, np.maximum(floor, 1e-3 * errors / TOLERANCE))
        return result

    def _parts(self, X: FloatArray, conditioned: ConditionedRows) -> Iterator[_Part]:
        """Divide rows by how many numbers and which categories they miss."""
        logs = self._log_products(X)
        labels = np.isnan(X[:, list(self.functions)])
        complete = np.flatnonzero(~np.isnan(X[:, self.components.columns]).any(axis=1))
        directions = [(complete, self._no_directions(len(complete)))]
        for block in conditioned.blocks:
            directions.append((block.group.rows, self._directions(block, conditioned.means)))
        for rows, own in directions:
            kinds, kind = np.unique(labels[rows], axis=0, return_inverse=True)
            for number, missed in enumerate(kinds):
                local = np.flatnonzero(kind.ravel() == number)
                categories = [v for v, absent in zip(self.functions, missed) if absent]
                chosen = rows[local]
                yield _Part(self, chosen, logs[chosen], own.take(local), categories)

    def _directions(self, block: ConditionalBlock, means: FloatArray) -> _Directions:
        """Diagonalise the conditional covariances of a block, in units of the kernel."""
        group, shape = block.group, block.shape
        size = group.missing.shape[1]
        scales = self.scales[group.missing]  # (P, r)
        covariances = block.distinct_covariances.reshape(size, size, -1, group.n_patterns)
        covariances = covariances.transpose(2, 3, 0, 1) * scales[:, :, None] * scales[:, None]
        values, vectors = np.linalg.eigh(covariances)
        spectrum = _Spectrum.of(np.maximum(values[..., ::-1], 0.0))
        rotations = np.swapaxes(vectors[..., ::-1] * scales[:, :, None], -1, -2)
        rotations *= spectrum.stretch[..., None]
        columns = np.broadcast_to(group.missing[:, None], rotations.shape)
        maps = np.zeros((*values.shape, len(self.scales)))
        np.put_along_axis(maps, columns, rotations, axis=-1)
        missing = group.missing[group.pattern]
        centred = means[:, group.rows[:, None], missing] - self._centre[missing]
        offsets = (rotations[shape][:, group.pattern] @ centred[..., None])[..., 0]
        return _Directions(maps, spectrum, shape, offsets, group.pattern)

    def _no_directions(self, n_rows: int) -> _Directions:
        """What rows have that miss no number."""
        n_components = len(self.components)
        maps, offsets = np.zeros((1, 1, 0, len(self.scales))), np.zeros((n_components, n_rows, 0))
        shape, pattern = np.zeros(n_components, dtype=np.intp), np.zeros(n_rows, dtype=np.intp)
        return _Directions(maps, _Spectrum.of(np.zeros((1, 1, 0))), shape, offsets, pattern)

    def _log_products(self, X: FloatArray) -> FloatArray:
        """Logs of the kernel over the observed cells of rows at all points, shape (n, m)."""
        points = self.numbers.T * self.scales
        cells = (X[:, self.components.columns] - self._centre) * self.scales
        seen = ~np.isnan(cells)
        cells = np.where(seen, cells, 0.0)
        left = np.hstack([2.0 * cells, -seen.astype(np.float64)])
        logs = left @ np.hstack([points, np.square(points)]).T
        logs -= np.square(cells).sum(axis=1)[:, None]
        with np.errstate(divide="ignore"):  # a mismatch may be worth nothing
            for v, function in self.functions.items():
                own = np.flatnonzero(~np.isnan(X[:, v]))
                logs[own] += np.log(function.univariate(X[own, v, None], self.points[:, v]))
        return np.asarray(logs)

    @cached_property
    def numbers(self) -> FloatArray:
        """Numbers of the points about their middle, shape (p, m)."""
        return np.ascontiguousarray((self.points[:, self.components.columns] - self._centre).T)

    @cached_property
    def _centre(self) -> FloatArray:
        numbers = self.points[:, self.components.columns]
        return (numbers.max(axis=0) + numbers.min(axis=0)) / 2.0

    def codes(self, v: int) -> IntArray:
        """States of a category at the points, shape (m,)."""
        return self.points[:, v].astype(np.intp)

    def category(self, v: int, k: int) -> tuple[FloatArray, FloatArray]:
        """Masses (S,) of a category under a component, and the kernel between its states."""
        masses = self.components.tables[v][k]
        states = np.arange(float(len(masses)))
        return masses, self.functions[v].univariate(states[:, None], states)

    def category_spectrum(self, v: int, k: int) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues (S,), descending, and eigenfunctions (S, n_states) of a category."""
        masses, kernel = self.category(v, k)
        values, vectors = np.linalg.eigh(kernel)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        values, vectors = np.linalg.eigh((root * masses) @ root)
        return np.maximum(values[::-1], 1e-300), (root @ vectors).T[::-1]


def _means_and_least_variances(
    parts: list[_Part], weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """E f and a lower bound of Var f of rows, by what f varies with linearly; (n,) each."""
    means, squares = np.zeros((2, weights.shape[1]))
    for part in parts:
        for k, own in enumerate(weights[:, part.rows]):
            mean, least = part.linear_moments(k)
            means[part.rows] += own * mean
            squares[part.rows] += own * (least + np.square(mean))
    return means, squares - np.square(means)


def _second_moments(
    parts: list[_Part], weights: FloatArray, wanted: BoolArray, thresholds: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """E f² of wanted rows without eigenvalues below thresholds, and which leave some out."""
    found, truncated = np.zeros(len(wanted)), np.zeros(len(wanted), dtype=bool)
    for part in parts:
        chosen = np.flatnonzero(wanted[part.rows])
        rows = part.rows[chosen]
        for k, own in enumerate(weights[:, rows]):
            # What all components leave out adds up to the threshold
            limits = thresholds[rows] / (len(weights) * np.maximum(own, 1e-300))
            moments, is_exact = part.second_moments(k, chosen, np.log(limits))
            found[rows] += own * moments
            truncated[rows] |= ~is_exact
    return found, truncated


class _Spectrum(NamedTuple):
    """Eigenvalues first * decay^i of exp(-(u - v)²) under a Gaussian of given variances.

    With ξ = stretch * u the eigenfunctions are sqrt(stretch) exp(-narrowing ξ²) h_i(ξ) / norm_i of
    monic polynomials, h_(i+1) = ξ h_i - ½ i decay h_(i-1), norm_i² = i! / 2^i. All of it stays
    finite where a variance vanishes.
    """

    spreads: FloatArray
    first: FloatArray
    decay: FloatArray
    stretch: FloatArray
    narrowing: FloatArray

    @classmethod
    def of(cls, variances: FloatArray) -> _Spectrum:
        root = np.sqrt(0.0625 + variances / 2.0)
        total = 0.25 + variances + root
        stretch = np.sqrt(2.0 * root / total)
        narrowing = 0.5 / (root + 0.25) / np.square(stretch)
        return cls(variances, np.sqrt(0.5 / total), variances / total, stretch, narrowing)


class _Directions(NamedTuple):
    """Principal directions of r missing numbers: P patterns, G covariances, K components, n rows.

    ``maps`` (G, P, r, p) times a point less ``offsets`` (K, n, r) are its coordinates ξ; ``shape``
    (K,) is the covariance of a component, ``pattern`` (n,) that of a row.
    """

    maps: FloatArray
    spectrum: _Spectrum
    shape: IntArray
    offsets: FloatArray
    pattern: IntArray

    def take(self, rows: IntArray) -> _Directions:
        """Give those of some rows."""
        return self._replace(offsets=self.offsets[:, rows], pattern=self.pattern[rows])

    def spectrum_of(self, k: int, rows: IntArray) -> _Spectrum:
        """The spectrum of rows under a component, arrays (b, r)."""
        g, pattern = self.shape[k], self.pattern[rows]
        return _Spectrum(*(values[g, pattern] for values in self.spectrum))

    def coordinates(self, k: int, rows: IntArray, points: FloatArray) -> FloatArray:
        """Coordinates of points (p, m) in the directions of rows, shape (b, r, m)."""
        maps = self.maps[self.shape[k], self.pattern[rows]]
        flat = maps.reshape(maps.shape[0] * maps.shape[1], len(points))
        found = (flat @ points).reshape(*maps.shape[:2], points.shape[1])
        found -= self.offsets[k, rows][:, :, None]
        return found


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows (n,) that miss equally many numbers and the same categories.

    ``logs`` (n, m) are those of the kernel over the observed cells.
    """

    expansion: MixtureExpansion
    rows: IntArray
    logs: FloatArray
    directions: _Directions
    categories: list[int]

    def linear_moments(self, k: int) -> tuple[FloatArray, FloatArray]:
        """E f, and the variance of the best linear approximation of f, shape (n,) each."""
        means, least = np.zeros((2, len(self.rows)))
        n_rows = self._batch_size(2 * self.directions.offsets.shape[2] + 2)
        for batch in row_slices(len(self.rows), n_rows):
            rows = np.arange(batch.start, batch.stop)
            s = self.directions.spectrum_of(k, rows)
            widened = 1.0 + 2.0 * s.spreads
            xi = self.directions.coordinates(k, rows, self.expansion.numbers)
            weights = self._weights(rows, xi, 1.0 / (widened * np.square(s.stretch)))
            for v in self.categories:
                masses, kernel = self.expansion.category(v, k)
                weights *= (masses @ kernel)[self.expansion.codes(v)]
            weights /= np.sqrt(widened.prod(axis=1))[:, None]
            means[rows] = weights.sum(axis=1)
            slopes = 2.0 * np.sqrt(s.spreads) / widened / s.stretch
            slopes *= (xi @ weights[:, :, None])[..., 0]
            least[rows] = np.square(slopes).sum(axis=1)
        return means, least

    def second_moments(
        self, k: int, chosen: IntArray, log_thresholds: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        """E f² of chosen rows without eigenvalues below thresholds, and which leave none out."""
        spectra = [self.expansion.category_spectrum(v, k) for v in self.categories]
        spectrum, n_points = self.directions.spectrum_of(k, chosen), self.logs.shape[1]
        relative = log_thresholds - np.log(spectrum.first).sum(axis=1)
        relative -= sum(np.log(values[0]) for values, _ in spectra)
        # Rounded outwards, as most batches then find their products in the cache
        decays = np.ceil(np.log(np.maximum(spectrum.decay, SMALLEST)) * 8.0) / 8.0
        decays = np.minimum(decays, SLOWEST)
        labels = tuple(tuple(np.log(values / values[0]).tolist()) for values, _ in spectra)
        result, is_exact = np.zeros(len(chosen)), np.zeros(len(chosen), dtype=bool)
        # Rows with equally many eigenfunctions go together
        left = np.argsort(relative / decays.max(axis=1, initial=-50.0), kind="stable")
        left, size = left[relative[left] < 0.0], 32
        while len(left):
            n_rows = self._batch_size(size)
            own, left = left[:n_rows], left[n_rows:]
            limit = float(np.floor(relative[own].min() * 4.0) / 4.0)
            halves = _halves(tuple(decays[own].max(axis=0).tolist()), labels, limit, n_points)
            if halves is None:
                result[own], is_exact[own] = self._by_pairs(k, chosen[own]), True
            else:
                size = len(halves[0].logs) + len(halves[1].logs) + 4
                result[own] = self._by_eigenfunctions(k, chosen[own], halves, spectra)
        return result, is_exact

    def _batch_size(self, n_functions: int) -> int:
        return max(1, BATCH_BYTES // (8 * self.logs.shape[1] * n_functions))

    def _weights(self, rows: IntArray, xi: FloatArray, factors: FloatArray) -> FloatArray:
        """Coefficients times the kernel times exp(-Σ_j factors_j ξ_j²), shape (b, m)."""
        result = self.logs[rows]
        result -= (factors[:, None] @ np.square(xi))[:, 0]
        np.exp(result, out=result)
        result *= self.expansion.coefficients
        return result

    def _by_eigenfunctions(
        self,
        k: int,
        rows: IntArray,
        halves: tuple[_Half, _Half],
        spectra: list[tuple[FloatArray, FloatArray]],
    ) -> FloatArray:
        """Sum λ_β <f, e_β>² over products of the functions of two halves of the directions."""
        spectrum = self.directions.spectrum_of(k, rows)
        counts = dict((*halves[0].counts, *halves[1].counts))
        orders = [counts[j] for j in range(spectrum.decay.shape[1])]
        xi = self.directions.coordinates(k, rows, self.expansion.numbers)
        weights = self._weights(rows, xi, spectrum.narrowing)
        polynomials = _hermite_polynomials(xi, spectrum.decay, orders)
        functions = [polynomials[:, :, j] for j in range(len(orders))]
        for v, (_, at_states) in zip(self.categories, spectra):
            functions.append(at_states[:, None, self.expansion.codes(v)])
        first, second = (h.products(own, functions) for h, own in zip(halves, (weights, None)))
        sums = first.transpose(1, 0, 2) @ second.transpose(1, 2, 0)
        logs = _log_eigenvalues(spectrum, max(orders, default=0))
        logs += [np.log(values)[:, None] for values, _ in spectra]
        own, other = (half.eigenvalues(logs) for half in halves)
        return np.einsum("np,npq,nq->n", own, np.square(sums), other)

    def _by_pairs(self, k: int, rows: IntArray) -> FloatArray:
        """Sum over all pairs of points, for kernels too narrow to have few eigenfunctions.

        exp(-|x - a|²) exp(-|x - b|²) is a Gaussian at the midpoint, so that E k(x, a) k(x, b) =
        g_a g_b exp(-|z_a - z_b|²) with g_a² = E k(x, a)², and z the same for rows of a pattern.
        """
        tables, result = [], np.empty(len(rows))
        for v in self.categories:
            masses, kernel = self.expansion.category(v, k)
            codes = self.expansion.codes(v)
            tables.append(((kernel * masses) @ kernel)[codes[:, None], codes])
        patterns = self.directions.pattern[rows]
        for pattern in np.unique(patterns):
            own = np.flatnonzero(patterns == pattern)
            s = self.directions.spectrum_of(k, rows[own])
            widened = 1.0 + 4.0 * s.spreads
            xi = self.directions.coordinates(k, rows[own], self.expansion.numbers)
            weights = self._weights(rows[own], xi, 1.0 / (widened * np.square(s.stretch)))
            weights /= widened[0].prod() ** 0.25
            z = (np.sqrt(2.0 * s.spreads / widened) / s.stretch)[0, :, None] * xi[0]
            result[own] = _sum_over_pairs(z, tables, weights)
        return result


def _hermite_polynomials(xi: FloatArray, decay: FloatArray, counts: list[int]) -> FloatArray:
    """Monic polynomials of `_Spectrum` at ξ (b, r, m), shape (q, b, r, m), as many as needed."""
    result = np.empty((max(counts, default=0), *xi.shape))
    result[:1] = 1.0
    for i in range(1, len(result)):
        # Directions of small variance come last
        own = slice(1 + max(j for j, count in enumerate(counts) if count > i))
        target = np.multiply(xi[:, own], result[i - 1, :, own], out=result[i, :, own])
        if i > 1:
            target -= (0.5 * (i - 1) * decay[:, own, None]) * result[i - 2, :, own]
    return result


def _log_eigenvalues(spectrum: _Spectrum, count: int) -> list[FloatArray]:
    """Logs of the eigenvalues over the squared norms of their polynomials, (count, b) each."""
    steps = np.empty((count, *spectrum.decay.shape))
    steps[:1] = np.log(spectrum.first * spectrum.stretch)
    steps[1:] = np.log(np.maximum(spectrum.decay, SMALLEST))
    steps[1:] += np.log(2.0 / np.arange(1.0, count))[:, None, None]
    return list(np.moveaxis(np.cumsum(steps, axis=0), 2, 0))


class _Half(NamedTuple):
    """Products of functions of some directions.

    ``logs`` (p,) are those of their eigenvalues relative to the first, ``powers`` (p, n) their
    orders in each of ``directions``. ``steps`` has for each direction triples of an order, a run of
    products that it multiplies, and where these go.
    """

    logs: FloatArray
    powers: IntArray
    directions: list[int]
    steps: list[list[tuple[int, slice, slice]]]

    @property
    def counts(self) -> list[tuple[int, int]]:
        """Number of functions of each direction."""
        return [(own, steps[-1][0] + 1) for own, steps in zip(self.directions, self.steps)]

    def with_direction(self, direction: int, levels: FloatArray, log_threshold: float) -> _Half:
        """Multiply by the functions of one more direction; what is below is left out."""
        orders, parents = np.nonzero(levels[:, None] + self.logs > log_threshold)
        powers = np.column_stack([self.powers[parents], orders])
        breaks = np.flatnonzero((np.diff(parents) != 1) | (np.diff(orders) != 0)) + 1
        bounds = [0, *breaks.tolist(), len(orders)]
        steps = [
            (int(orders[i]), slice(int(parents[i]), int(parents[i]) + j - i), slice(i, j))
            for i, j in pairwise(bounds)
        ]
        directions = [*self.directions, direction]
        return _Half(levels[orders] + self.logs[parents], powers, directions, [*self.steps, steps])

    def products(self, start: FloatArray | None, functions: list[FloatArray]) -> FloatArray:
        """Multiply up functions (q, b, m) of the directions, and weights (b, m), to (p, b, m)."""
        result = None if start is None else start[None]
        for direction, steps in zip(self.directions, self.steps):
            own = functions[direction]
            if result is None:
                result = own[: len(steps)]
                continue
            shape = np.broadcast_shapes(result.shape[1:], own.shape[1:])
            grown = np.empty((steps[-1][2].stop, *shape))
            for order, parents, place in steps:
                np.multiply(result[parents], own[order], out=grown[place])
            result = grown
        return np.ones((1, 1, functions[0].shape[2])) if result is None else result

    def eigenvalues(self, logs: list[FloatArray]) -> FloatArray:
        """Eigenvalues of the products, (b or 1, p), given those of directions (q, b or 1)."""
        result = np.zeros((1, len(self.logs)))
        for direction, power in zip(self.directions, self.powers.T):
            result = result + logs[direction].T[:, power]
        return np.exp(result)


@lru_cache(maxsize=4096)
def _halves(
    log_decays: tuple[float, ...],
    log_values: tuple[tuple[float, ...], ...],
    log_threshold: float,
    n_points: int,
) -> tuple[_Half, _Half] | None:
    """Divide the directions so that products cost least; None where pairs of points cost less."""
    orders = np.arange(1.0 + MAX_ORDERS)
    levels = [orders * decay for decay in log_decays]
    if n_points <= FEW_POINTS or any(level[-1] > log_threshold for level in levels):
        return None
    levels += [np.array(values) for values in log_values]
    counts = [int((level > log_threshold).sum()) for level in levels]
    order = np.argsort(counts, kind="stable")[::-1].tolist()
    least = PAIR_COST / 2.0 * n_points
    # How many products halves have is known without them
    firsts = _product_counts([levels[j] for j in order], log_threshold, least / FUNCTION_COST)
    lasts = _product_counts([levels[j] for j in order[::-1]], log_threshold, least / FUNCTION_COST)
    best = None
    for cut, first in enumerate(firsts[1:], start=1):
        if len(order) - cut < len(lasts):
            second = lasts[len(order) - cut]
            cost = first * second * PRODUCT_COST + (first + second) * FUNCTION_COST
            if cost < least:
                best, least = cut, cost
    if best is None:
        return None
    return _half(order[:best], levels, log_threshold), _half(order[best:], levels, log_threshold)


def _product_counts(levels: list[FloatArray], log_threshold: float, most: float) -> list[int]:
    """Count products of the functions of the first 0, 1, ... directions, up to `most`."""
    logs, counts = np.zeros(1), [1]
    for own in levels:
        logs = (own[:, None] + logs).ravel()
        logs = logs[logs > log_threshold]
        if len(logs) > most:
            break
        counts.append(len(logs))
    return counts


def _half(directions: list[int], levels: list[FloatArray], log_threshold: float) -> _Half:
    """Products of the functions of some directions."""
    half = _Half(np.zeros(1), np.zeros((1, 0), dtype=np.intp), [], [])
    for direction in directions:
        half = half.with_direction(direction, levels[direction], log_threshold)
    return half


def _sum_over_pairs(z: FloatArray, tables: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Σ_ab w_a exp(-|z_a - z_b|²) Π tables_ab w_b, block by block above the diagonal; (n,)."""
    squares, ones = np.square(z).sum(axis=0), np.ones(weights.shape[1])
    left, right = np.vstack([2.0 * z, -squares, -ones]).T, np.vstack([z, ones, squares])
    result = np.zeros(len(weights))
    blocks = list(row_slices(len(squares), 256))
    for number, columns in enumerate(blocks):
        for rows in blocks[: number + 1]:
            pairs = left[rows] @ right[:, columns]
            np.exp(pairs, out=pairs)
            for table in tables:
                pairs *= table[rows, columns]
            twice = 1.0 if rows == columns else 2.0
            result += twice * np.einsum("nb,nb->n", weights[:, rows] @ pairs, weights[:, columns])
    return result
