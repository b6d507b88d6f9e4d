"""Orders in which to sum variables out of a graph, and what they cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from math import prod

from skcircuits.exceptions import must
from skcircuits.protocols import IntArray

__all__ = ["connected_components", "elimination_order", "interaction_graph"]

Graph = dict[int, set[int]]


def elimination_order(
    scopes: Iterable[Collection[int]],
    cardinalities: IntArray,
    order: str | Sequence[int] = "min_fill",
) -> list[int]:
    """Choose an order in which the variables are summed out."""
    graph = interaction_graph(scopes)
    if not isinstance(order, str):
        return _restrict_order(order, graph)
    if order not in ("min_fill", "min_weight"):
        raise ValueError(
            must("order", "be 'min_fill', 'min_weight' or a sequence of variables", order=order)
        )
    return _greedy_order(graph, cardinalities, fill_first=order == "min_fill")


def interaction_graph(scopes: Iterable[Collection[int]]) -> Graph:
    """Connect the variables that share a scope."""
    graph: Graph = {}
    for scope in scopes:
        for variable in scope:
            # Includes the variable itself until the loop below.
            graph.setdefault(variable, set()).update(scope)
    for variable, neighbors in graph.items():
        neighbors.discard(variable)
    return graph


def connected_components(graph: Graph) -> list[list[int]]:
    """Split a graph into its connected components."""
    components, seen = [], set()
    for start in sorted(graph):
        if start in seen:
            continue
        component, frontier = {start}, [start]
        while frontier:
            fresh = graph[frontier.pop()] - component
            component |= fresh
            frontier.extend(fresh)
        seen |= component
        components.append(sorted(component))
    return components


def _restrict_order(order: Sequence[int], graph: Graph) -> list[int]:
    # One order of all variables serves every component and every evidence.
    restricted = [int(v) for v in order if v in graph]
    if sorted(restricted) != sorted(graph):
        raise ValueError(
            must("order", "name every variable once", "Try order='min_fill'.", order=list(order))
        )
    return restricted


def _greedy_order(graph: Graph, cardinalities: IntArray, *, fill_first: bool) -> list[int]:
    graph = {variable: set(neighbors) for variable, neighbors in graph.items()}

    def cost(variable: int) -> tuple[int, int, int]:
        # Edges that summing the variable out would add among its neighbours.
        fill = sum(b not in graph[a] for a, b in combinations(graph[variable], 2))
        states = prod(int(cardinalities[v]) for v in graph[variable] | {variable})
        return (fill, states, variable) if fill_first else (states, fill, variable)

    costs = {variable: cost(variable) for variable in graph}
    order = []
    # Ties go to the smaller clique, then to the smaller number: the order is reproducible.
    while costs:
        chosen = min(costs, key=costs.__getitem__)
        order.append(chosen)
        del costs[chosen]
        for variable in _eliminate(graph, chosen):
            costs[variable] = cost(variable)
    return order


def _eliminate(graph: Graph, variable: int) -> set[int]:
    """Remove a variable, connect its neighbours; give those whose cost changed."""
    neighbors = graph.pop(variable)
    for neighbor in neighbors:
        graph[neighbor] |= neighbors
        graph[neighbor] -= {neighbor, variable}
    # A fill count sees edges between neighbours, so it changes up to distance two.
    return neighbors.union(*(graph[neighbor] for neighbor in neighbors))
