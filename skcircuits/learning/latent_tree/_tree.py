"""Hidden Chow-Liu trees: a tree of latent variables, each with one observed child."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from skcircuits.circuits import Circuit, Product, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.learning.latent_tree._emissions import Emissions
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees import children_of, top_down_order


@dataclass(frozen=True)
class LatentTree:
    """A tree of latent variables Z_v with h states each; Z_v emits column v of the table.

    The first of some joint columns has their latent variable; the others are no vertices, though
    they name it as their parent.

    `parents` (n_variables,): parent of each latent variable, -1 at the root; `prior` (h,):
    distribution of the root; `transitions` (n_variables, h, h): ``transitions[v, i, j]`` is P(Z_v
    = j | Z_parent = i); not used at the root; `emissions`: together they cover every column once.
    """

    parents: IntArray
    prior: FloatArray
    transitions: FloatArray
    emissions: Emissions

    @property
    def n_states(self) -> int:
        """Number of states of each latent variable."""
        return len(self.prior)

    @cached_property
    def order(self) -> list[int]:
        """Variables, parents before children."""
        followers = self.emissions.followers
        return [int(v) for v in top_down_order(self.parents[None])[0] if v not in followers]

    @cached_property
    def children(self) -> list[list[int]]:
        """Children of each variable."""
        followers = self.emissions.followers
        return [[v for v in own if v not in followers] for own in children_of(self.parents)]

    def circuit(self) -> Circuit:
        """Compile to a circuit: smooth, structured-decomposable and normalised."""
        below: dict[int, list[Unit]] = {}
        for vertex in reversed(self.order):
            is_root = self.parents[vertex] < 0
            weights = self.prior[None] if is_root else self.transitions[vertex]
            if self.children[vertex]:
                factors = [
                    self.emissions.units(vertex),
                    *(below.pop(c) for c in self.children[vertex]),
                ]
                products = [Product(states) for states in zip(*factors)]
                below[vertex] = [Sum(products, weights=row) for row in weights]
            else:
                below[vertex] = self.emissions.mixed_units(vertex, weights)
        return Circuit(below[self.order[0]][0])
