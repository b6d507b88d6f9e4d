"""The matrix-tree theorem for edge weights that depend on the states of a row.

The weight of edge (u, v) for a row x is ``A[(u, x_u), (v, x_v)]``, an entry of one symmetric matrix
over flat states (the affinities). The determinant of the Laplacian without one vertex is the sum
over all spanning trees of the products of their weights, and its inverse gives the probability of
every edge.

Random spanning trees are drawn by Wilson's algorithm, many at once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from skcircuits.exceptions import must
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._random import draw_states
from skcircuits.parallel import memory_bound_chunks, row_slices, thread_map
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees._trees import StateLayout

# Bytes of Laplacians worked on at once: they stay in cache between the passes over them.
_CHUNK_BYTES = 4 * 2**20
_CHUNKS_PER_TASK = 4  # enough work to pay for handing it to a thread
# Partial sums are made per block of rows and added in order, so that the result does not
# depend on the number of threads; a block of sums takes n_states² numbers.
_BLOCK_BYTES = 128 * 2**20
_MAX_BLOCKS = 10
_MIN_BLOCK_CELLS = 4096  # rows times variables: then the rows outweigh the sums
_INDICATORS_AT_ONCE = 2**20
_MIN_PRODUCT_ROWS = 64
_ROWS_IN_PLACE = 256  # rows of a large matrix worked on at once
_MIN_PIVOT = 1e-7  # relative to the degree: a smaller one has lost the digits below 1e-9
_PRODUCT_SLICES = 8  # pieces of one large product, divided among threads
# Moves of a walk beyond the square of the number of vertices: then the other method is cheaper.
_MOVES = 1000


def reduced_laplacian(weights: FloatArray, root: int | None = None) -> tuple[FloatArray, IntArray]:
    """Minors (..., n_vertices - 1, n_vertices - 1) of Laplacians, and the vertices kept: all but
    that of largest degree, which makes the condition number small.
    """
    degrees = weights.sum(axis=-1)
    if root is None:
        root = _best_connected(degrees)
    kept = np.delete(np.arange(weights.shape[-1]), root)
    minors = -weights[..., kept[:, None], kept]
    diagonal = np.arange(len(kept))
    minors[..., diagonal, diagonal] = degrees[..., kept]
    return minors, kept


def log_partitions(weights: FloatArray, root: int | None = None) -> FloatArray:
    """Log sums (n_graphs,) over the spanning trees of graphs of weights (n_graphs, n, n)."""
    minors, kept = reduced_laplacian(weights, root)
    (left_out,) = np.setdiff1d(np.arange(weights.shape[-1]), kept)
    return _log_determinants(minors, weights[:, kept, left_out])


def log_partition_and_marginals(weights: FloatArray) -> tuple[float, FloatArray]:
    """Log of the sum over the spanning trees of a graph (n, n), and edge probabilities (n, n)."""
    log_sums, edge_probabilities = log_partitions_and_marginals(weights[None])
    return float(log_sums[0]), edge_probabilities[0]


def log_partitions_and_marginals(
    weights: FloatArray, root: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """Log sums (n_graphs,) and edge probabilities (n_graphs, n, n) of graphs (n_graphs, n, n)."""
    log_sums, inverses = log_partitions_and_inverses(weights, root)
    diagonals = np.diagonal(inverses, axis1=1, axis2=2).copy()
    inverses *= -2.0
    inverses += diagonals[:, :, None]
    inverses += diagonals[:, None, :]
    inverses *= weights
    return log_sums, inverses


def log_partitions_and_inverses(
    weights: FloatArray, root: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """Log sums (n_graphs,) and inverses of minors (n_graphs, n, n), 0 at the vertex left out."""
    degrees = weights.sum(axis=2)
    if root is None:
        root = _best_connected(degrees)
    # A one at the vertex left out changes no determinant, and no other entry of the inverse:
    # whole matrices need not be gathered, nor put back.
    inverses = -weights
    np.einsum("gvv->gv", inverses)[:] = degrees
    inverses[:, root], inverses[:, :, root] = 0.0, 0.0
    inverses[:, root, root] = 1.0
    log_sums = _invert(inverses)
    inverses[:, root, root] = 0.0
    return log_sums, inverses


def _best_connected(degrees: FloatArray) -> int:
    """The vertex of the largest mean of weighted degrees (..., n_vertices)."""
    return int(degrees.reshape(-1, degrees.shape[-1]).mean(axis=0).argmax())


class RowLaplacians:
    """Spanning-tree sums and edge probabilities of rows, by edge weights `affinities` (n_states,
    n_states), in their precision, of minors without the variable `root`.
    """

    def __init__(self, affinities: FloatArray, layout: StateLayout, root: int) -> None:
        self.layout = layout
        self.kept: IntArray = np.delete(np.arange(layout.n_variables), root)
        self._root = root
        self._root_table = affinities[:, layout.owner == root]
        self._dtype = affinities.dtype
        # One table per state of the second variable: a row of the table is a row of the
        # Laplacian, so that a minor is gathered by whole rows instead of single entries.
        self._tables = [
            -affinities[:, np.minimum(layout.offsets + state, layout.n_states - 1)[self.kept]]
            for state in range(layout.cardinalities.max())
        ]

    def log_partitions(self, codes: IntArray, *, n_jobs: int | None = None) -> FloatArray:
        """Log of the sum over spanning trees of the product of edge weights, per row of codes."""
        blocks = row_slices(len(codes), _CHUNKS_PER_TASK * self._chunk_size)
        tables = [(codes[rows],) for rows in blocks]
        parts = thread_map(self._log_partitions_of_block, tables, n_jobs)
        return np.concatenate([np.empty(0), *parts])

    def edge_counts(
        self, codes: IntArray, sample_weight: FloatArray, *, n_jobs: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Log sums (n_rows,) and weighted counts (n_states, n_states) of edges: (u, v) has
        probability ``A_uv (G_uu + G_vv - 2 G_uv)``, G the inverse of the minor, zero at the root.
        """
        if not len(codes):
            return np.empty(0), np.zeros((self.layout.n_states, self.layout.n_states))
        n_blocks = int(np.clip(_BLOCK_BYTES // (8 * self.layout.n_states**2), 2, _MAX_BLOCKS))
        size = max(-(-_MIN_BLOCK_CELLS // codes.shape[1]), -(-len(codes) // n_blocks))
        log_sums, diagonals = np.empty(len(codes)), np.zeros(codes.shape)
        tables = [
            (codes[rows], sample_weight[rows], log_sums[rows], diagonals[rows])
            for rows in row_slices(len(codes), size)
        ]
        parts = thread_map(self._invert_block, tables, n_jobs)
        crossed = parts.pop(0)
        # In the order of the rows, whichever thread came first: bitwise equal results. Each
        # part may be large and goes as soon as it is added.
        while parts:
            crossed.merge(parts.pop(0))
        diagonals *= sample_weight[:, None]
        counts = sum_of_diagonals(self.layout, codes, diagonals, n_jobs)
        crossed.subtract_twice_from(counts)
        self._multiply_by_affinities(counts)
        return log_sums, counts

    @property
    def _chunk_size(self) -> int:
        return max(1, _CHUNK_BYTES // (self._dtype.itemsize * max(1, len(self.kept)) ** 2))

    def _chunks(self, n_rows: int) -> list[slice]:
        """Slices of nearly equal size, so that none is too short to be fast."""
        n_chunks = -(-n_rows // self._chunk_size)
        return row_slices(n_rows, -(-n_rows // n_chunks)) if n_rows else []

    @property
    def _slices(self) -> list[slice]:
        """Parts of the kept variables: operations on minors part by part need little memory."""
        row_bytes = self._dtype.itemsize * max(1, self._chunk_size * len(self.kept))
        return row_slices(len(self.kept), max(1, _CHUNK_BYTES // row_bytes))

    def _buffers(self, n_rows: int) -> tuple[FloatArray, FloatArray]:
        """Room for the minors of a chunk of some rows, and for a part of them."""
        size = len(self.kept)
        n_most = max((chunk.stop - chunk.start for chunk in self._chunks(n_rows)), default=0)
        part = max((part.stop - part.start for part in self._slices), default=0)
        # One array: it is given back and taken anew as a whole
        both = np.empty((n_most * (size + part), size), self._dtype)
        minors, room = np.split(both, [n_most * size])
        return minors.reshape(n_most, size, size), room.reshape(n_most, part, size)

    def _minors(self, codes: IntArray, buffers: tuple[FloatArray, FloatArray]) -> FloatArray:
        """Gather the Laplacian minors of some rows into the first buffer: new memory costs more."""
        flat = self.layout.flat(codes)
        kept_flat, kept_codes = flat[:, self.kept], codes[:, self.kept]
        minors, room = (buffer[: len(codes)] for buffer in buffers)
        # mode="clip" lets NumPy write without a temporary; the indices are valid anyway.
        self._tables[0].take(kept_flat, axis=0, out=minors, mode="clip")
        for state, table in enumerate(self._tables[1:], start=1):
            if len(codes) == 1:  # few columns of a large minor are in other states
                columns = np.flatnonzero(kept_codes[0] == state)
                minors[0][:, columns] = table[kept_flat[0][:, None], columns]
                continue
            mask = (kept_codes == state)[:, None, :]
            for part in self._slices:
                other = table.take(kept_flat[:, part], axis=0, out=_first(room, part), mode="clip")
                np.copyto(minors[:, part], other, where=mask)
        # The degree counts the edge to the root too, which has no column in the minor.
        degrees = self._root_table[kept_flat, codes[:, [self._root]]]
        diagonals = minors.reshape(len(codes), -1)[:, :: len(self.kept) + 1]
        diagonals[:] = 0.0
        degrees -= minors @ np.ones(len(self.kept), self._dtype)
        diagonals[:] = degrees
        return minors

    def _multiply_by_affinities(self, matrix: FloatArray) -> None:
        """Multiply a matrix over flat states by the edge weights, in place."""
        layout = self.layout
        for rows in row_slices(layout.n_states, _ROWS_IN_PLACE):
            for state, table in enumerate(self._tables):
                present = layout.cardinalities[self.kept] > state
                columns = layout.offsets[self.kept[present]] + state
                matrix[rows, columns] *= -table[rows, present]
            matrix[rows, layout.owner == self._root] *= self._root_table[rows]

    def _log_partitions_of_block(self, codes: IntArray) -> FloatArray:
        log_sums, buffers = np.empty(len(codes)), self._buffers(len(codes))
        for rows in self._chunks(len(codes)):
            flat = self.layout.flat(codes[rows])[:, self.kept]
            to_root = self._root_table[flat, codes[rows][:, [self._root]]]
            log_sums[rows] = _log_determinants(self._minors(codes[rows], buffers), to_root)
        return log_sums

    def _invert_block(
        self, codes: IntArray, weight: FloatArray, log_sums: FloatArray, diagonals: FloatArray
    ) -> _CrossedSums:
        """Write log-determinants and diagonals of the inverses; return sums of the inverses."""
        buffers = self._buffers(len(codes))
        crossed = _CrossedSums(self.layout, self.kept, self._dtype)
        for rows in self._chunks(len(codes)):
            inverses = self._minors(codes[rows], buffers)
            log_sums[rows] = _invert(inverses)
            diagonals[rows, self.kept] = np.diagonal(inverses, axis1=1, axis2=2)
            crossed.add(inverses, codes[rows], weight[rows], self._slices, buffers[1])
        return crossed


def sum_of_diagonals(
    layout: StateLayout, codes: IntArray, diagonals: FloatArray, n_jobs: int | None = None
) -> FloatArray:
    """Sums (n_states, n_states) of G_uu + G_vv over the rows with states a and b of u and v."""
    n_states = layout.n_states
    sums = np.zeros((n_states, n_states))
    slices = row_slices(n_states, -(-n_states // _PRODUCT_SLICES))

    def add(states: slice, indicators: FloatArray, own: FloatArray) -> None:
        left = indicators[:, states] * own[:, layout.owner[states]]
        sums[states] += left.T @ indicators

    for rows in row_slices(len(codes), max(_MIN_PRODUCT_ROWS, _INDICATORS_AT_ONCE // n_states)):
        indicators, own = layout.one_hot(codes[rows]), diagonals[rows]
        thread_map(add, [(states, indicators, own) for states in slices], n_jobs)
    # Block by block: the transpose of all would be copied first
    for i, rows in enumerate(slices):
        for columns in slices[: i + 1]:
            block = sums[rows, columns] + sums[columns, rows].T
            sums[rows, columns], sums[columns, rows] = block, block.T
    return sums


class _CrossedSums:
    """Sums over rows of G_uv, split by the states of u and v."""

    def __init__(self, layout: StateLayout, kept: IntArray, dtype: np.dtype) -> None:
        self.layout = layout
        self.kept = kept
        cardinalities = layout.cardinalities[kept]
        self.states = np.arange(cardinalities.max(initial=1))
        self.valid = self.states < cardinalities[:, None]  # (n_kept, n_states)
        shape = self.valid.shape
        # Per state of v the sums (u, state of u, v) over the variables v that have it.
        self.sums = [np.zeros((*shape, n_columns), dtype) for n_columns in self.valid.sum(axis=0)]

    def add(
        self,
        inverses: FloatArray,
        codes: IntArray,
        weight: FloatArray,
        slices: list[slice],
        room: FloatArray,
    ) -> None:
        """Add some rows, slice by slice of the variables u; there is room for one."""
        kept_codes = codes[:, self.kept]
        if len(codes) == 1:
            self._add_row(inverses[0], kept_codes[0], float(weight[0]), slices, room)
            return
        indicators = (kept_codes.T[:, None, :] == self.states[:, None]) * weight
        indicators = indicators.astype(inverses.dtype)
        for state, total in enumerate(self.sums):
            columns = slice(None) if self.valid[:, state].all() else self.valid[:, state]
            # State 0 takes all rows and is corrected at the end: one pass over memory less.
            mask = (kept_codes[:, None, columns] == state).astype(inverses.dtype) if state else None
            for u in slices:
                chosen = inverses[:, u]
                if mask is not None:
                    own = _first(room[: len(codes)], u)[:, :, : total.shape[2]]
                    chosen = np.multiply(inverses[:, u, columns], mask, out=own)
                # A product per variable u: (states of u, rows) times (rows, v).
                total[u] += np.matmul(indicators[u], chosen.transpose(1, 0, 2))

    def _add_row(
        self,
        inverse: FloatArray,
        kept_codes: IntArray,
        weight: float,
        slices: list[slice],
        room: FloatArray,
    ) -> None:
        """Add one row (n_kept,): a large inverse is added where its states are, without masks."""
        variables = np.arange(len(self.kept))
        others = np.flatnonzero(kept_codes)
        for state, total in enumerate(self.sums):
            if state:
                own = np.flatnonzero(kept_codes == state)
                columns = np.searchsorted(np.flatnonzero(self.valid[:, state]), own)
                total[variables[:, None], kept_codes[:, None], columns] += weight * inverse[:, own]
                continue
            for u in slices:
                total[u, 0] += np.multiply(inverse[u], weight, out=_first(room[:1], u)[0])
            # Whole slices are added much faster than chosen rows, of which few are moved.
            moved = inverse[others] * inverse.dtype.type(weight)
            total[others, 0] -= moved
            total[others, kept_codes[others]] += moved

    def merge(self, other: _CrossedSums) -> None:
        for total, more in zip(self.sums, other.sums, strict=True):
            total += more

    def subtract_twice_from(self, matrix: FloatArray) -> None:
        """Subtract at flat states; uses the sums up, which may be large."""
        # The first sum was over all states of v: without the others it is that of the first state.
        first = self.sums[0]
        for state, total in enumerate(self.sums[1:], start=1):
            present = self.valid[:, state]
            first[:, :, present] -= total
            self._subtract_twice(matrix, total, self.kept[present], state)
        self._subtract_twice(matrix, first, self.kept, 0)

    def _subtract_twice(
        self, matrix: FloatArray, total: FloatArray, variables: IntArray, state: int
    ) -> None:
        total *= 2
        columns = self.layout.offsets[variables] + state
        for own_state, present in enumerate(self.valid.T):
            rows = self.layout.offsets[self.kept[present]] + own_state
            matrix[rows[:, None], columns] -= total[present, own_state]


def _first(room: FloatArray, part: slice) -> FloatArray:
    """As much of the room as a part of the variables takes, contiguous."""
    shape = len(room), part.stop - part.start, room.shape[2]
    return room.reshape(-1)[: prod(shape)].reshape(shape)


def _log_determinants(minors: FloatArray, to_root: FloatArray) -> FloatArray:
    """Log-determinants (n,) of minors (n, k, k), with the weights (n, k) of edges to the root."""
    try:
        factors = np.linalg.cholesky(minors)
    except np.linalg.LinAlgError as error:
        if not np.isfinite(minors).all():
            raise _singular() from error
        return _log_partitions_by_elimination(-minors, to_root)
    pivots = np.square(np.diagonal(factors, axis1=1, axis2=2))
    log_determinants: FloatArray = np.log(pivots).sum(axis=1)
    lost = (pivots < _MIN_PIVOT * np.diagonal(minors, axis1=1, axis2=2)).any(axis=1)
    if lost.any():
        log_determinants[lost] = _log_partitions_by_elimination(-minors[lost], to_root[lost])
    return log_determinants


def _log_partitions_by_elimination(weights: FloatArray, to_root: FloatArray) -> FloatArray:
    """Log sums over spanning trees (n,) of `weights` (n, k, k) and `to_root` (n, k), which are used
    up, without a subtraction (Grassmann, Taksar and Heyman, 1985).
    """
    log_sums = np.zeros(len(weights))
    to_root = to_root.copy()
    for vertex in reversed(range(weights.shape[1])):
        near = weights[:, vertex, :vertex]
        degrees = near.sum(axis=1) + to_root[:, vertex]
        log_sums += safe_log(degrees)
        passed = near / np.where(degrees > 0, degrees, 1.0)[:, None]
        weights[:, :vertex, :vertex] += passed[:, :, None] * near[:, None, :]
        to_root[:, :vertex] += passed * to_root[:, [vertex]]
    return log_sums


def _invert(minors: FloatArray) -> FloatArray:
    """Invert in place; the log-determinants."""
    try:
        return invert_in_place(minors)
    except np.linalg.LinAlgError as error:
        raise _singular() from error


def _singular() -> FloatingPointError:
    return FloatingPointError(
        must(
            "Laplacians",
            "be positive definite",
            "Use more smoothing (pseudo_count) or a smaller learning_rate.",
        )
    )


# Up to this size LAPACK beats products of even smaller blocks, or loses so little that two
# threads, which wait for the interpreter between many short calls, gain more.
_LAPACK_SIZE = 24
_STEP = 8  # products are fastest on multiples of the vector registers


def invert_in_place(matrices: FloatArray) -> FloatArray:
    """Invert symmetric positive definite matrices (n_matrices, n, n); returns (n_matrices,)."""
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


#: Draws so many numbers in [0, 1), as `numpy.random.Generator.random`.
UniformSource = Callable[[int], FloatArray]


def sample_spanning_trees(
    weights: FloatArray, graphs: IntArray, uniform: UniformSource
) -> IntArray:
    """Draw trees (n_trees, n_vertices) by loop-erased random walks (Wilson, 1996), one number per
    tree and move; those of long walks are drawn by `sample_arborescences`, which changes no
    probability: how many moves a tree takes is independent of it (Propp and Wilson, 1998).
    """
    n_trees, n_vertices = len(graphs), weights.shape[1]
    moves = _Moves(weights)
    parents = np.full((n_trees, n_vertices), -1)
    in_tree = np.zeros((n_trees, n_vertices), dtype=bool)
    roots = weights.sum(axis=2).argmax(axis=1)
    in_tree[np.arange(n_trees), roots[graphs]] = True
    # Finished trees leave these arrays, so the last long walks cost little.
    active = np.flatnonzero(~in_tree.all(axis=1))
    start = in_tree[active].argmin(axis=1)
    position = start.copy()
    for _ in range(n_vertices**2 + _MOVES):
        if not len(active):
            return parents
        # One move per walk: only its last exit from a vertex remains, so that loops are erased.
        target = moves.draw(graphs[active], position, uniform(n_trees)[active])
        parents[active, position] = target
        position = target
        arrived = in_tree[active, position]
        if arrived.any():
            _add_paths(parents, in_tree, active[arrived], start[arrived])
            start[arrived] = in_tree[active[arrived]].argmin(axis=1)
            position[arrived] = start[arrived]
            # The next walk starts at the first vertex outside; without one the tree is done.
            unfinished = ~in_tree[active, start]
            active, start, position = active[unfinished], start[unfinished], position[unfinished]
    uniforms = np.stack([uniform(n_trees)[active] for _ in range(n_vertices)])
    parents[active] = sample_arborescences(weights, roots, graphs[active], uniforms)
    return parents


class _Moves:
    """Random moves along edges, by one binary search in all cumulative rows."""

    def __init__(self, weights: FloatArray) -> None:
        n_graphs, self.n_vertices, _ = weights.shape
        cumulative = np.cumsum(weights, axis=2)
        # A single vertex has no edge, and is never drawn from.
        cumulative /= np.maximum(cumulative[:, :, -1:], np.finfo(float).tiny)
        rows = np.arange(n_graphs * self.n_vertices).reshape(n_graphs, self.n_vertices, 1)
        self.table = (cumulative + rows).ravel()

    def draw(self, graphs: IntArray, positions: IntArray, uniforms: FloatArray) -> IntArray:
        """Move to random neighbours in the graphs."""
        rows = graphs * self.n_vertices + positions
        found = np.searchsorted(self.table, rows + uniforms, side="right")
        # Rounding of row + uniform may reach the next row.
        return np.minimum(found - rows * self.n_vertices, self.n_vertices - 1)


def _add_paths(parents: IntArray, in_tree: BoolArray, trees: IntArray, vertices: IntArray) -> None:
    """Follow the last exits from the given vertices until they meet the trees."""
    while len(trees):
        in_tree[trees, vertices] = True
        vertices = parents[trees, vertices]
        outside = ~in_tree[trees, vertices]
        trees, vertices = trees[outside], vertices[outside]


def sample_arborescences(
    weights: FloatArray, roots: IntArray, graphs: IntArray, uniforms: FloatArray
) -> IntArray:
    """Draw spanning trees (n_trees, n) of weighted graphs from roots, by uniforms (n, n_trees)."""
    n_trees, n_vertices = len(graphs), weights.shape[1]
    used, graphs = np.unique(graphs, return_inverse=True)
    weights, roots = weights[used], roots[used]
    inverses = _padded_inverses(weights, roots)
    parents = np.full((n_trees, n_vertices), -1)
    for trees in memory_bound_chunks(n_trees, 24 * n_vertices**2):
        own = graphs[trees]
        parents[trees] = _draw_parents(weights[own], inverses[own], roots[own], uniforms[:, trees])
    return parents


def _padded_inverses(weights: FloatArray, roots: IntArray) -> FloatArray:
    """Inverses of the Laplacians without their roots, padded by zeros there."""
    n_graphs, n_vertices, _ = weights.shape
    laplacians = -weights
    diagonal, every = np.arange(n_vertices), np.arange(n_graphs)
    laplacians[:, diagonal, diagonal] = weights.sum(axis=2)
    laplacians[every, roots, :] = laplacians[every, :, roots] = 0.0
    laplacians[every, roots, roots] = 1.0
    inverses = np.linalg.inv(laplacians).astype(np.float64, copy=False)
    inverses[every, roots, roots] = 0.0
    return inverses


def _draw_parents(
    weights: FloatArray, inverses: FloatArray, roots: IntArray, uniforms: FloatArray
) -> IntArray:
    """Draw the parents of vertex after vertex, of all trees at once; uses the inverses up."""
    n_trees, n_vertices, _ = weights.shape
    parents = np.full((n_trees, n_vertices), -1)
    for vertex in range(n_vertices):
        trees = np.flatnonzero(roots != vertex)
        own = inverses[trees]
        column = own[:, :, vertex]
        # One arrow v → p makes the determinant G_vv - G_pv times as large.
        factors = column[:, [vertex]] - column
        probabilities = np.maximum(weights[trees, vertex] * factors, 0.0)  # but for rounding
        chosen = draw_states(probabilities, uniforms[vertex, trees])
        parents[trees, vertex] = chosen
        # The row e_v - e_p replaces that of the vertex (Sherman and Morrison, 1950).
        every = np.arange(len(trees))
        change = own[:, vertex] - own[every, chosen]
        change[:, vertex] -= 1.0
        change /= factors[every, chosen][:, None]
        inverses[trees] = own - column[:, :, None] * change[:, None, :]
    return parents
