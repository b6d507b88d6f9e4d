"""The coordinates that each kernel depends on and moves, in buckets of equal shape.

A graphical model has nodes. A node owns a block of coordinates, and its kernel depends on the
closed neighbourhood C_i = {i} ∪ N_i. Nodes whose kernels depend on the same coordinates share a
kernel, so that a complete graph has a single kernel and gives vanilla SVGD. Kernels of similar size
are stored in one `Bucket`, so that a whole bucket takes a few batched matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from skcircuits.exceptions import invalid
from skcircuits.numerics._arrays import listed
from skcircuits.numerics._patterns import unique_rows
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray


@dataclass(frozen=True)
class Bucket:
    """Kernels of about equal size."""

    kernels: IntArray  # (n_bucket,)
    scopes: IntArray  # (n_bucket, scope_size)
    owned: IntArray  # (n_bucket, n_owned)

    def part(self, rows: slice | IntArray) -> Bucket:
        return Bucket(self.kernels[rows], self.scopes[rows], self.owned[rows])


class Neighborhoods:
    """Closed neighbourhoods of all nodes, as kernels grouped into buckets."""

    def __init__(
        self, scopes: sparse.csr_array, blocks: sparse.csr_array, kernel_of_node: IntArray
    ) -> None:
        self.n_kernels = int(scopes.shape[0])
        self.n_nodes, self.n_coordinates = (int(size) for size in blocks.shape)
        self.kernel_of_node = kernel_of_node
        self.node_of_coordinate = _owners(blocks)
        self.scope_sizes = np.diff(scopes.indptr)
        n_rows = blocks.shape[0]
        selector = sparse.csr_array(
            (np.ones(n_rows), (kernel_of_node, np.arange(n_rows))), (self.n_kernels, n_rows)
        )
        self.buckets = _make_buckets(scopes, _sorted_csr(selector @ blocks))

    @classmethod
    def from_graph(
        cls, neighbors: Sequence[ArrayLike], blocks: Sequence[ArrayLike] | None = None
    ) -> Neighborhoods:
        """Build the closed neighbourhoods of a Markov graph."""
        lists = index_lists(neighbors, "neighbors")
        adjacency = _incidence(lists, len(lists), "neighbors")
        # If j is in the blanket of i, they share a factor, and i is in the blanket of j.
        return cls._from_adjacency(adjacency + adjacency.T, blocks, merge=True)

    @classmethod
    def from_scopes(
        cls,
        scopes: Sequence[ArrayLike],
        blocks: Sequence[ArrayLike] | None = None,
        *,
        merge: bool = True,
    ) -> Neighborhoods:
        """Build kernels over any neighbourhoods, symmetric or not."""
        lists = index_lists(scopes, "scopes")
        return cls._from_adjacency(_incidence(lists, len(lists), "scopes"), blocks, merge=merge)

    @classmethod
    def complete(
        cls, n_coordinates: int, blocks: Sequence[ArrayLike] | None = None
    ) -> Neighborhoods:
        """Build one kernel that sees and moves every coordinate: vanilla SVGD."""
        everything = sparse.csr_array(np.ones((1, n_coordinates)))
        membership = _membership(blocks, n_coordinates)
        return cls(everything, membership, np.zeros(membership.shape[0], dtype=np.int64))

    def with_scopes(self, scopes: IntArray) -> Neighborhoods:
        """The same kernels, moving the same coordinates, with other inputs."""
        other = copy(self)
        other.scope_sizes = np.sum(scopes < self.n_coordinates, axis=1)
        other.buckets = tuple(
            Bucket(bucket.kernels, scopes[bucket.kernels], bucket.owned) for bucket in self.buckets
        )
        return other

    def part(self, buckets: Sequence[Bucket]) -> tuple[IntArray, Neighborhoods]:
        """Some of the kernels, equal to the last digit, over their coordinates, first those that
        they move, then the halo that they see besides; these coordinates.
        """
        moved = np.sort(np.concatenate([bucket.owned.ravel() for bucket in buckets]))
        seen = np.unique(np.concatenate([bucket.scopes.ravel() for bucket in buckets]))
        halo = np.setdiff1d(seen[seen < self.n_coordinates], moved, assume_unique=True)
        local = np.concatenate([moved, halo])
        # The index of the padding is the number of coordinates, before and after.
        place = np.full(self.n_coordinates + 1, local.size)
        place[local] = np.arange(local.size)
        other = copy(self)
        other.n_coordinates = local.size
        ends = np.cumsum([len(bucket.kernels) for bucket in buckets])
        other.n_kernels = int(ends[-1])
        other.buckets = tuple(
            Bucket(
                np.arange(end - len(bucket.kernels), end), place[bucket.scopes], place[bucket.owned]
            )
            for bucket, end in zip(buckets, ends)
        )
        return local, other

    def blocks(self, max_kernels: int) -> Iterator[tuple[Bucket, IntArray, Neighborhoods]]:
        """Cut the kernels into parts of equal size; the kernels, then as in `part`."""
        for bucket in self.buckets:
            for rows in row_slices(len(bucket.kernels), max_kernels):
                yield (kernels := bucket.part(rows)), *self.part([kernels])

    def sum_by_node(self, values: FloatArray) -> FloatArray:
        """Sum values of coordinates, (n_coordinates,), over nodes, (n_nodes,)."""
        totals = np.zeros(self.n_nodes)
        np.add.at(totals, self.node_of_coordinate, values)
        return totals

    def scope_matrix(self) -> sparse.csr_array:
        """Give the scopes as zeros and ones of shape (n_kernels, n_coordinates)."""
        rows, columns = [], []
        for bucket in self.buckets:
            real = bucket.scopes < self.n_coordinates
            columns.append(bucket.scopes[real])
            rows.append(np.repeat(bucket.kernels, real.sum(axis=1)))
        row, column = np.concatenate(rows), np.concatenate(columns)
        shape = (self.n_kernels, self.n_coordinates)
        return sparse.csr_array((np.ones(row.size), (row, column)), shape=shape)

    @classmethod
    def _from_adjacency(
        cls, adjacency: sparse.csr_array, blocks: Sequence[ArrayLike] | None, *, merge: bool
    ) -> Neighborhoods:
        n_nodes = adjacency.shape[0]
        membership = _membership(blocks, n_nodes)
        if membership.shape[0] != n_nodes:
            condition = "name one block per node"
            raise invalid("blocks", condition, n_nodes=n_nodes, n_blocks=membership.shape[0])
        # C_i = {i} ∪ N_i as nodes, then as the coordinates that these nodes own.
        closed = adjacency + sparse.eye_array(n_nodes, format="csr")
        scopes = _sorted_csr(closed @ membership)
        representatives, kernel_of_node = _distinct_rows(scopes, merge)
        return cls(scopes[representatives], membership, kernel_of_node)


def _membership(blocks: Sequence[ArrayLike] | None, n_coordinates: int) -> sparse.csr_array:
    """Turn blocks into a matrix of nodes by coordinates; None is one coordinate each."""
    if blocks is None:
        return sparse.eye_array(n_coordinates, format="csr")
    lists = index_lists(blocks, "blocks")
    return _incidence(lists, sum(indices.size for indices in lists), "blocks")


def index_lists(values: Sequence[ArrayLike], name: str) -> list[IntArray]:
    """Read one list of integers per node, and refuse similar arrays."""
    # A dictionary would be iterated over its keys; a sparse matrix has no length.
    if isinstance(values, Mapping) or sparse.issparse(values):
        raise _no_lists(name, kind=type(values).__name__)
    arrays = [np.asarray(indices) for indices in listed(values, name)]
    for node, array in enumerate(arrays):
        if array.ndim != 1 or array.dtype.kind not in "iuf":
            raise _no_lists(name, node=node, its=array.tolist())
    found = np.concatenate(arrays) if arrays else np.empty(0)
    fractional = np.flatnonzero(~np.isfinite(found) | (found != np.floor(found)))
    if fractional.size:
        raise _no_lists(name, one=float(found[fractional[0]]))
    # n > 2 zeros and ones per node would name nodes twice: nobody writes such lists.
    n = len(arrays)
    if n > 2 and all(array.size == n for array in arrays) and np.isin(found, (0, 1)).all():
        raise _no_lists(name, shape=(n, n))
    return [array.astype(np.int64) for array in arrays]


def _no_lists(name: str, **got: object) -> ValueError:
    way_out = (
        "Of an adjacency matrix A pass [np.flatnonzero(row) for row in A], of a dictionary its "
        "lists in the order of the nodes."
    )
    return invalid(name, "be one list of integers per node", way_out, **got)


def _incidence(arrays: list[IntArray], n_columns: int, name: str) -> sparse.csr_array:
    """Turn lists of column numbers into a matrix with a one for each."""
    columns = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
    if columns.size and (columns.min() < 0 or columns.max() >= n_columns):
        raise invalid(
            name, f"lie in 0..{n_columns - 1}", min=int(columns.min()), max=int(columns.max())
        )
    # Built from the row lengths: a list per node, and nodes may be a hundred thousand.
    indptr = np.concatenate([[0], np.cumsum([array.size for array in arrays])])
    ones = np.ones(columns.size)
    return sparse.csr_array((ones, columns, indptr), shape=(len(arrays), n_columns))


def _sorted_csr(matrix: sparse.csr_array) -> sparse.csr_array:
    """Sum duplicates and sort the columns of every row, on a copy."""
    matrix = sparse.csr_array(matrix, copy=True)
    matrix.sum_duplicates()
    return matrix


def _owners(blocks: sparse.csr_array) -> IntArray:
    """Give the node of each coordinate; blocks must be a partition."""
    n_nodes, n_coordinates = blocks.shape
    # A coordinate with two owners would be moved twice, one without owner not at all.
    times_owned = np.bincount(blocks.indices, minlength=n_coordinates)
    if np.any(times_owned != 1):
        condition = "name every coordinate exactly once"
        way_out = "Coordinates are numbered 0, 1, ... without gaps."
        raise invalid(
            "blocks", condition, way_out, coordinate=int(np.flatnonzero(times_owned != 1)[0])
        )
    owners = np.empty(n_coordinates, dtype=np.int64)
    owners[blocks.indices] = np.repeat(np.arange(n_nodes), np.diff(blocks.indptr))
    return owners


def _distinct_rows(matrix: sparse.csr_array, merge: bool) -> tuple[IntArray, IntArray]:
    """Give one row per distinct set of columns, and each row's place among them."""
    n_rows = matrix.shape[0]
    if not merge:
        return np.arange(n_rows), np.arange(n_rows)
    sizes = np.diff(matrix.indptr)
    representatives: list[IntArray] = []
    place = np.empty(n_rows, dtype=np.int64)
    n_found = 0
    # Only rows of one length can be equal, and rows of one length make a table.
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        columns = matrix.indices[matrix.indptr[rows, None] + np.arange(size)]
        first, inverse = unique_rows(columns)
        representatives.append(rows[first])
        place[rows] = n_found + inverse
        n_found += len(first)
    return np.concatenate(representatives), place


def _make_buckets(scopes: sparse.csr_array, owned: sparse.csr_array) -> tuple[Bucket, ...]:
    """Group kernels that move equally many coordinates and depend on about equally many."""
    scope_sizes, owned_sizes = np.diff(scopes.indptr), np.diff(owned.indptr)
    padding = scopes.shape[1]
    buckets = []
    for n_owned in np.unique(owned_sizes):
        remaining = np.flatnonzero(owned_sizes == n_owned)
        while remaining.size:
            sizes = scope_sizes[remaining]
            # Padding costs only in the distances, whose part of the work is small for
            # small scopes; a fifth more columns is cheaper than one more batched call.
            smallest = min(sizes.max() - 4, 0.8 * sizes.max())
            kernels = remaining[sizes >= smallest]
            remaining = remaining[sizes < smallest]
            buckets.append(
                Bucket(kernels, _pad(scopes, kernels, padding), _pad(owned, kernels, padding))
            )
    return tuple(buckets)


def _pad(matrix: sparse.csr_array, rows: IntArray, fill: int) -> IntArray:
    """Give the columns of some rows as one array, short rows filled up."""
    starts = matrix.indptr[rows, None]
    sizes = matrix.indptr[rows + 1, None] - starts
    offsets = np.arange(sizes.max())
    # Behind its end a row repeats its last column, to be overwritten by the fill.
    columns = matrix.indices[starts + np.minimum(offsets, sizes - 1)]
    return np.where(offsets < sizes, columns, fill).astype(np.int64)


class RandomScopes:
    """Draws D_i of node i and at most ``n_neighbors - 1`` others of its blanket (Wang, Zeng and
    Liu, ICML 2018, section 4.1), by seed and iteration, whatever worker computes a node.
    """

    def __init__(
        self,
        neighbors: Sequence[ArrayLike],
        blocks: Sequence[ArrayLike] | None = None,
        *,
        n_neighbors: int = 5,
        seed: int = 0,
    ) -> None:
        lists = index_lists(neighbors, "neighbors")
        sizes = np.array([indices.size for indices in lists])
        self._exists = np.arange(sizes.max(initial=0)) < sizes[:, None]
        self._neighbors = np.zeros(self._exists.shape, dtype=np.int64)
        self._neighbors[self._exists] = np.concatenate(lists)
        self._n_others = min(n_neighbors - 1, self._exists.shape[1])
        self._seed = seed
        self._alone = Neighborhoods.from_scopes([[]] * len(lists), blocks, merge=False)
        self._blocks = _padded_blocks(self._alone)

    def draw(self, iteration: int) -> Neighborhoods:
        # The nodes with the smallest random keys are a uniform choice without replacement.
        rng = np.random.default_rng((self._seed, iteration))
        keys = np.where(self._exists, rng.random(self._exists.shape), np.inf)
        order = np.argpartition(keys, self._n_others - 1, axis=1) if self._n_others else keys[:, :0]
        chosen = order[:, : self._n_others].astype(np.int64)
        # A node with fewer neighbours keeps all of them; the missing ones are represented by an
        # additional node, whose block is padding.
        n_nodes = len(keys)
        others = np.where(
            np.take_along_axis(self._exists, chosen, axis=1),
            np.take_along_axis(self._neighbors, chosen, axis=1),
            n_nodes,
        )
        nodes = np.concatenate([np.arange(n_nodes)[:, None], others], axis=1)
        # Equal draws are rare, and searching for them costs more than computing them twice.
        return self._alone.with_scopes(self._blocks[nodes].reshape(n_nodes, -1))


def _padded_blocks(alone: Neighborhoods) -> IntArray:
    """Give the coordinates of each node, padded, and one more row of padding."""
    largest = max(bucket.owned.shape[1] for bucket in alone.buckets)
    blocks = np.full((alone.n_nodes + 1, largest), alone.n_coordinates)
    for bucket in alone.buckets:
        blocks[bucket.kernels, : bucket.owned.shape[1]] = bucket.owned
    return blocks
