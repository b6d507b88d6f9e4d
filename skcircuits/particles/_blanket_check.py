"""Does the score of a node depend on its blanket only? A check by finite differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._steps import scores_at
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["nodes_outside_blankets"]

N_PROBES = 32
TOLERANCE = 1e-6


def nodes_outside_blankets(
    grad_log_prob: Callable[[FloatArray], FloatArray],
    neighborhoods: Neighborhoods,
    particles: FloatArray,
    rng: np.random.Generator,
) -> IntArray:
    """Find nodes whose score changes although nothing in their neighbourhood moves.

    Every probe moves a random set of coordinates, sparse enough that many
    neighbourhoods stay untouched; scores of those must not change.
    """
    sees = neighborhoods.scope_matrix()
    before = np.asarray(particles, dtype=np.float64)[np.arange(N_PROBES) % len(particles)]
    # With m neighbours a fraction 1 / (1 + m) leaves about a third of the scopes untouched and
    # still moves each coordinate in some probe.
    typical_size = float(np.median(neighborhoods.scope_sizes))
    moved = rng.random(before.shape) < 1.0 / (1.0 + typical_size)
    spread = 1.0 + before.std(axis=0)
    after = before + moved * spread * rng.uniform(0.1, 0.5, before.shape)
    scores = scores_at(grad_log_prob, before)
    change = np.abs(scores_at(grad_log_prob, after) - scores)
    changed = change > TOLERANCE * (1.0 + np.abs(scores))
    # How many coordinates that a kernel sees were moved, by probe and kernel.
    kernel_untouched = (sees @ moved.T.astype(np.float64)).T == 0
    kernel_of_coordinate = neighborhoods.kernel_of_node[neighborhoods.node_of_coordinate]
    wrong = np.any(changed & kernel_untouched[:, kernel_of_coordinate], axis=0)
    return np.unique(neighborhoods.node_of_coordinate[wrong])
