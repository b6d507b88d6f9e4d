"""Places for the nodes of a directed graph, level by level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

__all__ = ["layered_positions"]

# Far less than the distance between two parents.
SIBLING_GAP = 1e-6


def layered_positions(
    children: Mapping[Hashable, Sequence[Hashable]],
) -> dict[Hashable, tuple[float, float]]:
    """Place nodes below their parents, in the order of the parents.

    Parameters
    ----------
    children : mapping of node to sequence of nodes
        All nodes of an acyclic graph, parents before children.

    Returns
    -------
    dict of node to (x, y)
        x in (0, 1), the nodes of a level evenly spaced; y = minus the length of the longest
        path from a root.

    Examples
    --------
    >>> from skcircuits.circuits.structure._layered_graph import layered_positions
    >>> layered_positions({"root": ["a", "b"], "a": [], "b": []})
    {'root': (0.5, 0.0), 'a': (0.25, -1.0), 'b': (0.75, -1.0)}
    """
    levels = _levels(children)
    members: dict[int, list[Hashable]] = defaultdict(list)
    for node, level in levels.items():
        members[level].append(node)
    # What the parents of a node say about its place; siblings keep their order.
    wishes: dict[Hashable, list[float]] = {node: [] for node in children}
    places: dict[Hashable, tuple[float, float]] = {}
    for level in sorted(members):
        means = {n: sum(wishes[n]) / max(1, len(wishes[n])) for n in members[level]}
        ordered = sorted(members[level], key=means.__getitem__)
        for rank, node in enumerate(ordered):
            x = (rank + 0.5) / len(ordered)
            places[node] = (x, 0.0 - level)
            for i, child in enumerate(children[node]):
                wishes[child].append(x + SIBLING_GAP * i)
    return places


def _levels(children: Mapping[Hashable, Sequence[Hashable]]) -> dict[Hashable, int]:
    """Length of the longest path from a root to each node."""
    levels = dict.fromkeys(children, 0)
    for node, below in children.items():
        for child in below:
            levels[child] = max(levels[child], levels[node] + 1)
    return levels
