"""Variable elimination as a tree of buckets (Dechter 1999): one per variable summed out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Bucket:
    """One variable with what is needed to sum it out.

    ``separator`` holds the variables that its message depends on, those eliminated first in
    front; ``factors`` and ``children`` are the indices of the factors multiplied here and of
    the buckets whose messages arrive here.
    """

    variable: int
    separator: tuple[int, ...]
    factors: tuple[int, ...]
    children: tuple[int, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        """Variables of the axes of the tables of this bucket."""
        return (self.variable, *self.separator)


@dataclass(frozen=True)
class EliminationTree:
    """The buckets of one connected graph, children before parents, the root last.

    ``cardinalities`` are the numbers of states of all variables of the model.
    """

    buckets: tuple[Bucket, ...]
    cardinalities: tuple[int, ...]

    @property
    def width(self) -> int:
        """Size of the largest separator, the induced width of the order."""
        return max(len(bucket.separator) for bucket in self.buckets)

    @property
    def n_cells(self) -> int:
        """Cells of all tables together, for one evidence."""
        return sum(prod(self.shape(bucket.axes)) for bucket in self.buckets)

    @property
    def variables(self) -> tuple[int, ...]:
        """The variables in elimination order: the axes of the joint table."""
        return tuple(bucket.variable for bucket in self.buckets)

    def shape(self, variables: Sequence[int]) -> tuple[int, ...]:
        """Give the number of states of some variables."""
        return tuple(self.cardinalities[v] for v in variables)


def build_tree(
    scopes: Sequence[Sequence[int]], order: Sequence[int], cardinalities: Sequence[int]
) -> EliminationTree:
    """Lay out one bucket per variable of a connected component, in elimination order."""
    position = {variable: step for step, variable in enumerate(order)}
    factors: list[list[int]] = [[] for _ in order]
    cliques: list[set[int]] = [{variable} for variable in order]
    children: list[list[int]] = [[] for _ in order]
    for index, scope in enumerate(scopes):
        # A factor belongs where its first variable is summed out.
        first = min(position[v] for v in scope)
        factors[first].append(index)
        cliques[first].update(scope)
    buckets = []
    for step, variable in enumerate(order):
        # Earliest first, everywhere: axes of messages and tables then align by reshaping.
        separator = sorted(cliques[step] - {variable}, key=position.__getitem__)
        if separator:
            # The message is next needed where its earliest variable goes.
            parent = position[separator[0]]
            children[parent].append(step)
            cliques[parent].update(separator)
        buckets.append(
            Bucket(variable, tuple(separator), tuple(factors[step]), tuple(children[step]))
        )
    return EliminationTree(tuple(buckets), tuple(int(k) for k in cardinalities))
