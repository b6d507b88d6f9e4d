"""Random small neighbourhoods, for graphs too dense for kernels over whole blankets.

Source: Wang, Zeng and Liu, ICML 2018, section 4.1: D_i is node i and a few of its
neighbours, drawn anew at every iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.particles._neighborhoods import Neighborhoods, index_lists
from skcircuits.protocols import IntArray

__all__ = ["RandomScopes"]


class RandomScopes:
    """Draws D_i, node i and at most ``n_neighbors - 1`` others of its blanket.

    A draw is keyed by the seed and the iteration and covers all nodes in their order, so
    it does not depend on who computes which node.
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
        """Draw the neighbourhoods of one iteration."""
        # The nodes with the smallest random keys are a uniform choice without replacement.
        rng = np.random.default_rng((self._seed, iteration))
        keys = np.where(self._exists, rng.random(self._exists.shape), np.inf)
        order = np.argpartition(keys, self._n_others - 1, axis=1) if self._n_others else keys[:, :0]
        chosen = order[:, : self._n_others].astype(np.int64)
        # A node with fewer neighbours than asked for keeps those it has: a missing one is
        # the node behind the last, whose block is padding.
        n_nodes = len(keys)
        others = np.where(
            np.take_along_axis(self._exists, chosen, axis=1),
            np.take_along_axis(self._neighbors, chosen, axis=1),
            n_nodes,
        )
        nodes = np.concatenate([np.arange(n_nodes)[:, None], others], axis=1)
        # Equal draws are rare and looking for them costs more than computing them twice.
        return self._alone.with_scopes(self._blocks[nodes].reshape(n_nodes, -1))


def _padded_blocks(alone: Neighborhoods) -> IntArray:
    """Give the coordinates of each node, padded, and one more row of padding."""
    largest = max(bucket.owned.shape[1] for bucket in alone.buckets)
    blocks = np.full((alone.n_nodes + 1, largest), alone.n_coordinates)
    for bucket in alone.buckets:
        blocks[bucket.kernels, : bucket.owned.shape[1]] = bucket.owned
    return blocks
