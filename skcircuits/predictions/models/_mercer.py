"""Variances of kernel expansions by Mercer's expansion under conditional Gaussians.

Let f = Σ_a v_a k(·, s_a) be the expansion with the observed cells fixed, as a function of the
missing cells x. In the eigenbasis of their covariance, scaled by the kernel, k is a product of
one-dimensional Gaussian kernels, and Mercer's theorem gives

    E f(x)² = Σ_β λ_β <f, e_β>²,   <f, e_β> = Σ_a v_a e_β(s_a),   Σ_β <f, e_β>² ≤ ‖F‖²,

with products e_β of Hermite functions, orthonormal in the space of k, λ_β = Π_j λ_j B_j^β_j, and
‖F‖ the norm of the whole expansion (fixing cells does not increase it). All β with λ_β ≤ θ
together add at most θ ‖F‖²: a certified truncation. See Zhu, Williams, Rohwer and Morciniec,
"Gaussian regression and optimal finite dimensional linear models" (1998). A category is one more
direction, whose eigenfunctions are those of a small matrix.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import factorial, prod
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from skcircuits.kernels.families.base import UnivariateFunction
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._patterns import PatternGroup, distinct_patterns
from skcircuits.parallel import row_slices, single_threaded_blas
from skcircuits.predictions._components import ConditionedRows
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Relative error of a variance, certified
TOLERANCE = 1e-5
# Differences of squares are no better than this, relative to the squares
ROUNDING = 1e-13
SMALLEST = 1e-20  # of the ratios of eigenvalues
SLOWEST = -1.0 / 64.0  # logarithm of a ratio; those above mean narrow kernels anyway
MAX_ORDERS = 40  # of one direction: narrower kernels go by pairs of points
ORDERS = np.arange(float(MAX_ORDERS))
# Of the squares of Hermite functions, i! / 2^i, in the units of the powers
LOG_NORMS = np.log(2.0) * ORDERS - gammaln(ORDERS + 1.0)
FEW_POINTS = 256  # whose pairs are cheap, without truncation
# Eigenfunctions of rows that share them stay near the cache, if these are not too few to share them
BATCH_BYTES, BATCH_ROWS = 2**22, 2
# Nanoseconds per point of an eigenfunction of a half, of a product of two, and of a pair of points
FUNCTION_COST, PRODUCT_COST, PAIR_COST = 2.0, 0.15, 5.0
# The same for a product within blocks, and for a copy of an eigenfunction
BLOCK_COST, COPY_COST = 0.07, 0.5
# Sets of eigenfunctions that are kept: rows of one call rarely have more. Larger ones, of many
# points, take little of the time of their use to build
MAX_KEPT, MAX_KEPT_BYTES = 1024, 2**18
# Products of eigenfunctions that take the time of another call of the matrix product
WASTE = 100


class Block(NamedTuple):
    """Conditional covariances of r missing numbers for P patterns."""

    group: PatternGroup  # the patterns and their rows
    shape: IntArray  # (K,), which of G covariances a component has
    covariances: FloatArray  # (G, P, r, r)


class Conditionals(NamedTuple):
    """Conditional distributions of the numbers of rows, a mixture of Gaussians for each."""

    weights: FloatArray  # (K, n)
    means: FloatArray  # (K, n, p), observed cells repeated
    blocks: list[Block]  # covariances of the rows that miss numbers

    @classmethod
    def of(cls, conditioned: ConditionedRows) -> Conditionals:
        """Arrange the covariances by component and pattern."""
        blocks = []
        for block in conditioned.blocks:
            size = block.group.missing.shape[1]
            covariances = block.distinct_covariances.reshape(size, size, -1, block.group.n_patterns)
            blocks.append(Block(block.group, block.shape, covariances.transpose(2, 3, 0, 1)))
        return cls(conditioned.weights, conditioned.means, blocks)

    def projected(self, slopes: FloatArray, means: FloatArray) -> Conditionals:
        """Give those of linear functions, slopes (p, q), that all are missing, by their means."""
        blocks = []
        for group, shape, covariances in self.blocks:
            own = slopes[group.missing]  # (P, r, q)
            every = np.tile(np.arange(slopes.shape[1]), (group.n_patterns, 1))
            whole = PatternGroup(every, every[:, :0], group.rows, group.pattern)
            blocks.append(Block(whole, shape, np.swapaxes(own, 1, 2) @ covariances @ own))
        return Conditionals(self.weights, means, blocks)


@dataclass(frozen=True, eq=False)
class MixtureExpansion:
    """A kernel expansion over a mixture of Gaussians times distributions of categories."""

    columns: IntArray  # (p,), those of the numbers
    tables: Mapping[int, FloatArray]  # of column: (K, n_states), probabilities of its states
    scales: FloatArray  # (p,), roots of the kernel's gammas for numbers, 0 where it does not look
    functions: Mapping[int, UnivariateFunction]  # factors of the kernel for categories
    points: FloatArray  # (m, n_columns)
    coefficients: FloatArray  # (m,)

    def variances(
        self, X: FloatArray, conditionals: Conditionals, squared_norm: float
    ) -> FloatArray:
        """Var[f(x) | observed cells] of some rows, shape (n,), given ‖F‖²."""
        weights = conditionals.weights
        squared_norm = max(squared_norm, 1e-300)
        with single_threaded_blas():  # its threads cost more than these products
            parts = list(self._parts(X, conditionals))
            means, least = _means_and_least_variances(parts, weights)
            # Rounding makes differences of squares no better
            floor = ROUNDING * np.square(means) + 1e-300
            result, sizes = np.zeros(len(X)), np.maximum(least, floor)
            left = np.ones(len(X), dtype=bool)
            while left.any():
                thresholds = 0.99 * TOLERANCE * sizes / squared_norm
                found, truncated = _second_moments(parts, weights, left, thresholds)
                result[left] = (found - np.square(means))[left]
                errors = thresholds * squared_norm * truncated
                left &= errors > TOLERANCE * np.maximum(result, floor)
                sizes = np.maximum(result, np.maximum(floor, 1e-3 * errors / TOLERANCE))
        return result

    def _parts(self, X: FloatArray, conditionals: Conditionals) -> Iterator[_Part]:
        """Divide rows by how many numbers and which categories they miss."""
        logs = self._log_products(X)
        labels = np.isnan(X[:, list(self.functions)])
        complete = np.flatnonzero(~np.isnan(X[:, self.columns]).any(axis=1))
        n_components = len(conditionals.weights)
        directions = [(complete, self._no_directions(n_components, len(complete)))]
        for block in conditionals.blocks:
            directions.append((block.group.rows, self._directions(block, conditionals.means)))
        for rows, own in directions:
            kinds, kind = distinct_patterns(labels[rows])
            for number, missed in enumerate(kinds):
                local = np.flatnonzero(kind == number)
                categories = [v for v, absent in zip(self.functions, missed) if absent]
                chosen = rows[local]
                yield _Part(self, chosen, logs[chosen], own.take(local), categories)

    def _directions(self, block: Block, means: FloatArray) -> _Directions:
        """Diagonalise the conditional covariances of a block, in units of the kernel."""
        group, shape = block.group, block.shape
        scales = self.scales[group.missing]  # (P, r)
        covariances = block.covariances * scales[:, :, None] * scales[:, None]
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

    def _no_directions(self, n_components: int, n_rows: int) -> _Directions:
        """The (empty) directions of rows without missing numbers."""
        maps, offsets = np.zeros((1, 1, 0, len(self.scales))), np.zeros((n_components, n_rows, 0))
        shape, pattern = np.zeros(n_components, dtype=np.intp), np.zeros(n_rows, dtype=np.intp)
        return _Directions(maps, _Spectrum.of(np.zeros((1, 1, 0))), shape, offsets, pattern)

    def _log_products(self, X: FloatArray) -> FloatArray:
        """Logs of the kernel over the observed cells of rows at all points, shape (n, m)."""
        points = self.numbers.T * self.scales
        cells = (X[:, self.columns] - self._centre) * self.scales
        seen = ~np.isnan(cells)
        cells = np.where(seen, cells, 0.0)
        left = np.hstack([2.0 * cells, -seen.astype(np.float64)])
        logs = left @ np.hstack([points, np.square(points)]).T
        logs -= np.square(cells).sum(axis=1)[:, None]
        for v, function in self.functions.items():
            own = np.flatnonzero(~np.isnan(X[:, v]))
            # A mismatch may be worth nothing
            logs[own] += safe_log(function.univariate(X[own, v, None], self.points[:, v]))
        return np.asarray(logs)

    @cached_property
    def numbers(self) -> FloatArray:
        """Numbers of the points about their middle, shape (p, m)."""
        return np.ascontiguousarray((self.points[:, self.columns] - self._centre).T)

    @cached_property
    def _centre(self) -> FloatArray:
        numbers = self.points[:, self.columns]
        return (numbers.max(axis=0) + numbers.min(axis=0)) / 2.0

    def codes(self, v: int) -> IntArray:
        """States of a category at the points, shape (m,)."""
        return self.points[:, v].astype(np.intp)

    def category(self, v: int, k: int) -> tuple[FloatArray, FloatArray]:
        """Masses (S,) of a category under a component, and the kernel between its states."""
        masses = self.tables[v][k]
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
    """E f and a lower bound of Var f of rows, from the linear part of f; (n,) each."""
    means, squares = np.zeros((2, weights.shape[1]))
    for part in parts:
        for k, own in enumerate(weights[:, part.rows]):
            mean, least = part.linear_moments(k)
            # The law of total variance over the components, whose parts share rows
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
            # The truncation errors of all components add up to the threshold
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
        decay = np.maximum(variances / total, SMALLEST)
        return cls(variances, np.sqrt(0.5 / total), decay, stretch, narrowing)


class _Directions(NamedTuple):
    """Principal directions of r missing numbers: ``maps`` times a point less ``offsets``."""

    maps: FloatArray  # (G, P, r, p)
    spectrum: _Spectrum
    shape: IntArray  # (K,), the covariance of a component
    offsets: FloatArray  # (K, n, r)
    pattern: IntArray  # (n,), that of a row

    def take(self, rows: IntArray) -> _Directions:
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
    """Rows that miss equally many numbers and the same categories."""

    expansion: MixtureExpansion
    rows: IntArray  # (n,)
    logs: FloatArray  # (n, m), of the kernel over the observed cells
    directions: _Directions
    categories: list[int]

    def linear_moments(self, k: int) -> tuple[FloatArray, FloatArray]:
        """E f, and the variance of the best linear approximation of f, shape (n,) each."""
        means, least = np.zeros((2, len(self.rows)))
        n_rows = self._batch_size(self.directions.offsets.shape[2])
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
        """E f² of chosen rows without eigenvalues below thresholds; whether none was omitted."""
        spectra = [self.expansion.category_spectrum(v, k) for v in self.categories]
        spectrum, n_points = self.directions.spectrum_of(k, chosen), self.logs.shape[1]
        relative = log_thresholds - np.log(spectrum.first).sum(axis=1)
        relative -= sum(np.log(values[0]) for values, _ in spectra)
        costs = -np.minimum(np.log(spectrum.decay), SLOWEST)
        labels = tuple(tuple(np.log(values[0] / values).tolist()) for values, _ in spectra)
        result, is_exact = np.zeros(len(chosen)), np.zeros(len(chosen), dtype=bool)
        left = np.flatnonzero(relative < 0.0)
        # Rows with equally many eigenfunctions go together
        counts = 0.5 * np.log1p(-relative[left, None] / costs[left]).sum(axis=1)
        left, counts = left[np.argsort(counts, kind="stable")], np.sort(counts)
        start = 0
        while start < len(left):
            own = left[start : start + self._batch_size(2.0 * float(np.exp(counts[start])))]
            start += len(own)
            # Rounded outwards, as some batches then find their products in the cache
            edges = tuple((np.floor(costs[own].min(axis=0) * 32.0) / 32.0).tolist())
            size = float(np.ceil(-relative[own].min() * 8.0) / 8.0)
            halves = _halves(edges, labels, size, n_points)
            if halves is None:
                result[own], is_exact[own] = self._by_pairs(k, chosen[own]), True
            else:
                result[own] = self._by_eigenfunctions(k, chosen[own], halves, spectra)
        return result, is_exact

    def _batch_size(self, n_functions: float) -> int:
        """Rows with so many functions, beside their coordinates, that stay near the cache."""
        n_arrays = n_functions + self.directions.offsets.shape[2] + 4.0
        return max(BATCH_ROWS, int(BATCH_BYTES / (8.0 * self.logs.shape[1] * n_arrays)))

    def _weights(
        self, rows: IntArray, xi: FloatArray, factors: FloatArray, points: slice = slice(None)
    ) -> FloatArray:
        """Coefficients times the kernel times exp(-Σ_j factors_j ξ_j²), shape (b, m)."""
        result = self.logs[rows, points]
        result -= (factors[:, None] @ np.square(xi))[:, 0]
        np.exp(result, out=result)
        result *= self.expansion.coefficients[points]
        return result

    def _by_eigenfunctions(
        self,
        k: int,
        rows: IntArray,
        halves: _Halves,
        spectra: list[tuple[FloatArray, FloatArray]],
    ) -> FloatArray:
        """Sum λ_β <f, e_β>² over products of the functions of two halves of the directions."""
        spectrum = self.directions.spectrum_of(k, rows)
        moments = self._moments(k, rows, halves, spectrum, spectra)
        first, second = halves.both
        sums = first.from_powers @ moments @ second.from_powers.T
        np.square(sums, out=sums)
        sums *= halves.within
        log_values = [np.log(values) for values, _ in spectra]
        own, other = (half.eigenvalues(np.log(spectrum.decay), log_values) for half in halves.both)
        found = (own[:, None] @ sums @ other[:, :, None])[:, 0, 0]
        return np.asarray((spectrum.first * spectrum.stretch).prod(axis=1) * found)

    def _moments(
        self,
        k: int,
        rows: IntArray,
        halves: _Halves,
        spectrum: _Spectrum,
        spectra: list[tuple[FloatArray, FloatArray]],
    ) -> FloatArray:
        """Weighted sums over all points of products of powers of ξ, shape (b, p, q)."""
        sizes = [len(half.costs) for half in halves.both]
        result = np.zeros((len(rows), *sizes))
        n_arrays = sum(sizes) + spectrum.decay.shape[1] + 4
        n_points = max(1024, 2 * BATCH_BYTES // (8 * len(rows) * n_arrays))
        root = np.sqrt(spectrum.decay)[:, :, None]
        for points in row_slices(self.logs.shape[1], n_points):
            xi = self.directions.coordinates(k, rows, self.expansion.numbers[:, points])
            weights = self._weights(rows, xi, spectrum.narrowing, points)
            xi /= root
            tables = [
                at_states[:, None, self.expansion.codes(v)[points]]
                for v, (_, at_states) in zip(self.categories, spectra)
            ]
            first, second = (
                half.products(start, xi, tables)
                for half, start in zip(halves.both, (np.ones_like(weights), weights))
            )
            left, right = first.transpose(1, 0, 2), second.transpose(1, 2, 0)
            for block, stop in halves.blocks:
                result[:, block, :stop] += left[:, block] @ right[:, :, :stop]
        return result

    def _by_pairs(self, k: int, rows: IntArray) -> FloatArray:
        """Sum over all pairs of points, for kernels too narrow to have few eigenfunctions."""
        # exp(-|x - a|²) exp(-|x - b|²) is a Gaussian at the midpoint, so that E k(x, a) k(x, b) =
        # g_a g_b exp(-|z_a - z_b|²) with g_a² = E k(x, a)², and z the same for rows of a pattern
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


def _hermite_from_powers() -> FloatArray:
    """Coefficients of monic polynomials h_(i+1) = t h_i - ½ i h_(i-1), shape (q, q)."""
    result = np.eye(MAX_ORDERS)
    for i in range(2, MAX_ORDERS):
        result[i, 1:] = result[i - 1, :-1]
        result[i] -= 0.5 * (i - 1) * result[i - 2]
    return result


HERMITE = _hermite_from_powers()


Run = tuple[int, int, float]  # of functions whose costs ascend: start, stop and least cost
Step = tuple[int, int, slice, slice]  # direction, order, factors, products


def _multiplied(
    directions: list[int], levels: list[list[float]], n_numbers: int, size: float
) -> tuple[list[Run], list[list[int]], list[Step]]:
    """Runs of products of cost less than `size`, their orders, and the steps that multiply them."""
    inner = levels[directions[0]] if directions else [0.0]
    stop = bisect_left(inner, size)
    runs: list[Run] = [(0, stop, 0.0)]
    orders, steps = [[0] * len(directions)], []
    for place, direction in enumerate(directions):
        is_number, n_parents = direction < n_numbers, stop
        if place == 0:
            for i in range(1, stop):
                source = i - 1 if is_number else 0
                steps.append((direction, i, slice(source, source + 1), slice(i, i + 1)))
            n_parents = 1
        else:
            sources = [(start, cost, own) for (start, _, cost), own in zip(runs, orders)]
            for i, level in enumerate(levels[direction][1:], 1):
                follow = []
                for source, cost, parent in sources:
                    n = bisect_left(inner, size - level - cost)
                    if n:
                        there = slice(stop, stop + n)
                        steps.append((direction, i, slice(source, source + n), there))
                        follow.append((stop if is_number else source, cost, parent))
                        runs.append((stop, stop + n, cost + level))
                        orders.append([*parent[:place], i, *parent[place + 1 :]])
                        stop += n
                sources = follow
        if not is_number:
            steps.append((direction, 0, slice(0, n_parents), slice(0, n_parents)))
    return runs, orders, steps


class _Half(NamedTuple):
    """Products of functions of some directions: powers of a number, functions of a category."""

    # A step multiplies functions by one of a direction and an order, and puts them in a place

    n_numbers: int  # they come before categories
    costs: FloatArray  # (p,), minus the logs of their eigenvalues relative to the first
    powers: FloatArray  # (n, p), in each of the directions
    orders: IntArray  # (n, p), in each of the directions
    directions: list[int]
    steps: list[Step]
    log_norms: FloatArray  # (p,), of the squares of the functions of the powers
    from_powers: FloatArray  # (p, p), products of powers of t = ξ / sqrt(decay) to Hermite ones
    ranks: IntArray | None = None  # (p,), of the products among those that the steps make

    @classmethod
    def of(
        cls, directions: list[int], levels: list[list[float]], n_numbers: int, size: float
    ) -> _Half:
        """Multiply the functions of directions; products of cost `size` or more are omitted."""
        inner = levels[directions[0]] if directions else [0.0]
        runs, orders, steps = _multiplied(directions, levels, n_numbers, size)
        starts, stops, costs = np.array(runs).T
        run = np.repeat(np.arange(len(runs)), (stops - starts).astype(np.intp))
        along = np.arange(len(run)) - starts.astype(np.intp).take(run)
        of_all = np.array(orders, dtype=np.intp).T.take(run, axis=1)
        of_all[:1] = along
        costs = costs.take(run) + np.array(inner).take(along)
        from_powers = np.ones((len(run), len(run)))
        for direction, own in zip(directions, of_all):
            if direction < n_numbers:
                from_powers *= HERMITE.take(own, axis=0).take(own, axis=1)
            else:  # functions of a category are no powers
                from_powers *= own[:, None] == own
        powers = of_all[: sum(direction < n_numbers for direction in directions)]
        log_norms = LOG_NORMS.take(powers).sum(axis=0)
        as_floats = powers.astype(np.float64)
        return cls(n_numbers, costs, as_floats, of_all, directions, steps, log_norms, from_powers)

    def by_cost(self) -> _Half:
        """The same products by ascending costs, for which each is copied once."""
        ranks = np.argsort(self.costs, kind="stable")
        return self._replace(
            costs=self.costs[ranks],
            powers=self.powers[:, ranks],
            orders=self.orders[:, ranks],
            log_norms=self.log_norms[ranks],
            from_powers=self.from_powers.take(ranks, axis=0).take(ranks, axis=1),
            ranks=ranks,
        )

    def products(self, start: FloatArray, t: FloatArray, tables: list[FloatArray]) -> FloatArray:
        """Multiply `start` (b, m) by powers of t (b, r, m) and `tables` (S, 1, m): (p, b, m)."""
        result = np.empty((len(self.costs), *start.shape))
        result[0] = start
        for direction, order, source, place in self.steps:
            if direction < self.n_numbers:
                np.multiply(result[source], t[:, direction], out=result[place])
            else:
                own = tables[direction - self.n_numbers][order]
                np.multiply(result[source], own, out=result[place])
        return result if self.ranks is None else np.take(result, self.ranks, axis=0)

    def eigenvalues(self, log_decays: FloatArray, log_values: list[FloatArray]) -> FloatArray:
        """Eigenvalues, relative to a constant's, over squared norms of products, (b, p)."""
        n = len(self.powers)
        result = 2.0 * log_decays[:, self.directions[:n]] @ self.powers + self.log_norms
        for direction, order in zip(self.directions[n:], self.orders[n:]):
            result += log_values[direction - self.n_numbers][order]
        return np.exp(result)


class _Halves(NamedTuple):
    """Products of the functions of two halves whose eigenvalues are not left out."""

    both: tuple[_Half, _Half]
    blocks: list[tuple[slice, int]]  # of the first half, and how many of the second each takes
    within: BoolArray  # (p, q), these products

    @classmethod
    def of(cls, first: _Half, second: _Half, size: float) -> _Halves:
        """All products of a cost less than ``size``."""
        # How many functions of the second half each of the first needs
        least = np.minimum.accumulate(second.costs[::-1])[::-1]
        needs = np.searchsorted(least, size - first.costs)
        # Blocks have more, of which not all lower powers are known
        within = first.costs[:, None] + second.costs < size
        within &= np.arange(len(least)) < needs[:, None]
        return cls((first, second), _blocks(needs.tolist()), within)

    @property
    def n_bytes(self) -> int:
        """Memory of the largest arrays."""
        return sum(half.from_powers.nbytes for half in self.both) + self.within.nbytes

    @property
    def n_products(self) -> int:
        """How many the blocks make, padding included."""
        return sum((rows.stop - rows.start) * stop for rows, stop in self.blocks)


_kept: dict[tuple[Any, ...], tuple[_Halves | None]] = {}


def _halves(*directions: Any) -> _Halves | None:
    """Products of the functions of directions, as in an earlier call if they are kept."""
    found = _kept.get(directions)
    if found is None:
        found = (_divided(*directions),)
        if len(_kept) >= MAX_KEPT:
            _kept.clear()
        if found[0] is None or found[0].n_bytes <= MAX_KEPT_BYTES:
            _kept[directions] = found
    return found[0]


def _divided(
    edges: tuple[float, ...], labels: tuple[tuple[float, ...], ...], size: float, n_points: int
) -> _Halves | None:
    """Divide the directions so that products cost least; None where pairs of points cost less."""
    if n_points <= FEW_POINTS or any((MAX_ORDERS - 1) * edge < size for edge in edges):
        return None
    levels = [[i * edge for i in range(int(size / edge) + 1)] for edge in edges]
    levels += [list(costs) for costs in labels]
    counts = [bisect_left(level, size) for level in levels]
    widths = [*edges, *(size / n for n in counts[len(edges) :])]
    order = sorted(range(len(counts)), key=lambda j: -counts[j])
    ordered = [widths[j] for j in order]
    cuts = range(min(1, len(order)), max(1, len(order) // 2) + 1)
    cost, cut = min((_cost(ordered[:i], ordered[i:], size), i) for i in cuts)
    if cost > PAIR_COST / 2.0 * n_points:
        return None
    sides = (sorted(side, key=lambda j: j >= len(edges)) for side in (order[cut:], order[:cut]))
    first, second = (_Half.of(side, levels, len(edges), size) for side in sides)
    halves = _Halves.of(first, second, size)
    # Many products are padding where functions do not follow each other by cost
    worth = COPY_COST * (len(first.costs) + len(second.costs)) / BLOCK_COST
    if halves.n_products - np.count_nonzero(halves.within) > worth:
        by_cost = _Halves.of(first.by_cost(), second.by_cost(), size)
        if halves.n_products - by_cost.n_products > worth:
            return by_cost
    return halves


def _blocks(needs: list[int]) -> list[tuple[slice, int]]:
    """Cut rows of a matrix, of which each needs some first columns, into blocks of few columns."""
    blocks, start, stop, wasted = [], 0, needs[0], 0
    for i, need in enumerate(needs):
        # Padding of this row, or of all rows of the block where it needs more columns than they
        more = stop - need if need <= stop else (need - stop) * (i - start)
        if wasted + more > WASTE:
            blocks.append((slice(start, i), stop))
            start, stop, wasted = i, need, 0
        else:
            stop, wasted = max(stop, need), wasted + more
    return [*blocks, (slice(start, len(needs)), stop)]


def _cost(first: list[float], second: list[float], size: float) -> float:
    """Estimate the time per point of two halves, given the costs of the first functions."""
    counts = [_lattice_points(half, size) for half in (first, second)]
    # Rectangular blocks hold up to twice the products that are not left out
    n_products = min(prod(counts), 2.0 * _lattice_points([*first, *second], size))
    return FUNCTION_COST * sum(counts) + PRODUCT_COST * n_products


def _lattice_points(edges: list[float], size: float) -> float:
    """Estimate how many i >= 0 have Σ_j edges_j i_j < size."""
    return (size + 0.5 * sum(edges)) ** len(edges) / (factorial(len(edges)) * prod(edges))


def _sum_over_pairs(z: FloatArray, tables: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Σ_ab w_a exp(-|z_a - z_b|²) Π tables_ab w_b, block by block above the diagonal; (n,)."""
    squares, ones = np.square(z).sum(axis=0), np.ones(weights.shape[1])
    # -|z_a - z_b|² as one product of vectors, so that all exponents take one matrix product
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
