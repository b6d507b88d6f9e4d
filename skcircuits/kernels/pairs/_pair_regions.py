"""What a pass over pairs of circuits walks through: regions, their bases and their keys.

A *region* is a scope that both circuits reach together. On each side it has *bases* (input
units and products) and *keys* (the units that larger regions ask for, which are mixtures of
the bases).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.structure.units import Scope
from skcircuits.protocols import IntArray

__all__ = ["BasePairing", "FactorKeys", "Level", "Mixing", "PairPlan", "Region", "unless_all"]


@dataclass(frozen=True)
class Level:
    """Sums of one level of a region.

    Parameters
    ----------
    n_sums : int
        Number of sums.
    rows, columns, edges : ndarray of shape (n_level_edges,)
        Weight ``edges[i]`` of the plan leads from sum ``rows[i]`` of the level to node
        ``columns[i]`` (bases first, then the sums of earlier levels).
    """

    n_sums: int
    rows: IntArray
    columns: IntArray
    edges: IntArray


@dataclass(frozen=True)
class Mixing:
    """How the keys of a region mix its bases: levels of weighted sums.

    Parameters
    ----------
    n_bases : int
        Number of bases.
    levels : list of Level
        Sums over bases, then sums over sums, and so on.
    keys : ndarray
        Node of each key.
    """

    n_bases: int
    levels: list[Level]
    keys: IntArray

    @cached_property
    def keys_are_sums(self) -> bool:
        """Whether the keys are the sums of a single level, in order."""
        in_order = np.arange(self.n_bases, self.n_bases + len(self.keys))
        return (
            len(self.levels) == 1
            and self.levels[0].n_sums == len(self.keys)
            and np.array_equal(self.keys, in_order)
        )

    @cached_property
    def chosen(self) -> IntArray | None:
        """Node of each key; None where the keys are all nodes, in order."""
        n_nodes = self.n_bases + sum(level.n_sums for level in self.levels)
        return unless_all(self.keys, n_nodes)

    @property
    def nodes_below(self) -> list[int]:
        """Number of nodes below each level: the bases and the sums of earlier levels."""
        return [
            self.n_bases + sum(level.n_sums for level in self.levels[:depth])
            for depth in range(len(self.levels))
        ]

    @property
    def n_weights(self) -> int:
        """Numbers in the weight matrices of all levels."""
        sizes = zip(self.levels, self.nodes_below, strict=True)
        return sum(level.n_sums * n_nodes for level, n_nodes in sizes)


@dataclass(frozen=True)
class FactorKeys:
    """One factor of the products of a pairing: keys of a smaller region.

    Parameters
    ----------
    scope : tuple of int
        The smaller region.
    left, right : ndarray or None
        Per base the key it multiplies; None where base i takes key i of as many keys.
    """

    scope: Scope
    left: IntArray | None
    right: IntArray | None


@dataclass(frozen=True)
class BasePairing:
    """Bases of one kind on the left meeting bases of one kind on the right.

    Parameters
    ----------
    left, right : ndarray
        Which bases of the region.
    inputs : tuple of (layer number, units, layer number, units), default=None
        For input units: their layers and places in them.
    factors : list of FactorKeys
        For products: their two factors.
    """

    left: IntArray
    right: IntArray
    inputs: tuple[int, IntArray, int, IntArray] | None = None
    factors: list[FactorKeys] = field(default_factory=list)


@dataclass(frozen=True)
class Region:
    """One scope.

    Parameters
    ----------
    scope : tuple of int
        Its variables.
    left, right : Mixing
        From bases to keys on both sides.
    pairings : list of BasePairing
        All pairs of kinds of bases.
    states : tuple of int
        Number of states of each variable; empty where one is continuous.
    above : set of tuple of int
        Scopes of the regions that use this one; filled by the compiler.
    """

    scope: Scope
    left: Mixing
    right: Mixing
    pairings: list[BasePairing]
    states: tuple[int, ...]
    above: set[Scope] = field(default_factory=set)

    @property
    def factor_scopes(self) -> list[Scope]:
        """Scopes of the regions below, once for each use."""
        return [factor.scope for pairing in self.pairings for factor in pairing.factors]

    @property
    def has_joint_inputs(self) -> bool:
        """Whether input units of several variables are among the bases."""
        return len(self.scope) > 1 and any(p.inputs is not None for p in self.pairings)

    def numbers_per_pair(self, tabulated: Container[Scope]) -> int:
        """Count the values of the region for one pair of circuits.

        Parameters
        ----------
        tabulated : container of tuple of int
            Scopes of regions that are given by tables of states.

        Returns
        -------
        int
            Pairs of keys, of bases too where they are paired.
        """
        n_keys = len(self.left.keys) * len(self.right.keys)
        if self.scope in tabulated:
            return n_keys
        return max(n_keys, self.left.n_bases * self.right.n_bases)

    def is_needed_above(self, tabulated: Container[Scope]) -> bool:
        """Tell whether pairs of the region's units are asked for.

        Parameters
        ----------
        tabulated : container of tuple of int
            Scopes of regions that are given by tables of states.

        Returns
        -------
        bool
            False if all regions above are tabulated.
        """
        return not self.above or any(scope not in tabulated for scope in self.above)


@dataclass(frozen=True)
class PairPlan:
    """The regions two circuits share, smallest scopes first.

    Parameters
    ----------
    left, right : Plan
        The two circuits.
    regions : list of Region
        The last one holds the pair of roots.
    """

    left: Plan
    right: Plan
    regions: list[Region]

    @property
    def numbers_per_circuit(self) -> int:
        """Numbers that each circuit of a batch adds to a prepared side."""
        left = sum(region.left.n_weights for region in self.regions)
        return max(left, sum(region.right.n_weights for region in self.regions))


def unless_all(index: IntArray, size: int) -> IntArray | None:
    """Leave out an index that counts through all places, which spares the copy.

    Parameters
    ----------
    index : ndarray of int
        What to gather.
    size : int
        Number of places.

    Returns
    -------
    ndarray of int or None
        None for everything in order.
    """
    return None if np.array_equal(index, np.arange(size)) else index
