"""Belief propagation in a latent tree: likelihoods upward, posteriors and statistics downward.

With L_v(j) the likelihood of everything below Z_v = j and U_v = T_v L_v the message to its parent,

    upward    L_v = emission · Π_c U_c,    U_v = T_v L_v
    downward  q_c = L_c · T_cᵀ (q_v / U_c),    statistics of T_c:  T_c · ((q_v / U_c) L_cᵀ)

which is the circuit's feedforward and backward pass with the parameters in plain arrays, so
that they can change after every block of rows: three matrix products per variable. Messages
are (n_states, n_rows), scaled to a maximum of one per row and variable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skcircuits.circuits import Circuit, Product, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.learning.gaussian_mixture._full_gaussians import joined_sums
from skcircuits.learning.latent_tree._emissions import Emissions, EmissionTotals, Evidence
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees._trees import children_of, top_down_order

_CACHE_BYTES = 1 << 24  # both buffers of a block of rows
_MAX_ROWS, _MIN_ROWS = 512, 128
_FACTORS_BEFORE_SCALING = 4  # a factor is seldom below 1e-7, float32 ends at 1e-38
_MIN_TRANSITION = 1e-7


@dataclass(frozen=True)
class LatentTree:
    """A tree of latent variables Z_v with h states each; Z_v emits column v of the table.

    The first of some joint columns has their latent variable; the others are no vertices, though
    they name it as their parent.
    """

    parents: IntArray  # (n_variables,), parent of each latent variable, -1 at the root
    prior: FloatArray  # (h,), distribution of the root
    transitions: FloatArray  # (n_variables, h, h), P(Z_v = j | Z_parent = i) at v, i, j
    emissions: Emissions  # together they cover every column once

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


class LatentTotals(NamedTuple):
    """Expected counts of root states (h,), pairs of states (n_variables, h, h), and emissions."""

    prior: FloatArray
    transitions: FloatArray
    emissions: EmissionTotals

    @classmethod
    def empty(cls, tree: LatentTree) -> LatentTotals:
        """Statistics of no row."""
        return cls(
            np.zeros_like(tree.prior),
            np.zeros_like(tree.transitions),
            tree.emissions.no_totals(),
        )

    def blend(self, other: LatentTotals, keep: float, gain: float) -> None:
        """Replace by ``keep * self + gain * other``, in place."""
        pairs = [
            (self.prior, other.prior),
            (self.transitions, other.transitions),
            (self.emissions.counts, other.emissions.counts),
        ]
        for own, added in pairs:
            own *= keep
            own += gain * added
        joint = self.emissions.joint
        for first, sums in other.emissions.joint.items():
            joint[first] = joined_sums([joint[first], sums], [keep, gain])


class BeliefPropagation:
    """Sends messages through trees of the shape of one; owns the buffers."""

    def __init__(self, tree: LatentTree) -> None:
        self.dtype = np.dtype(tree.emissions.dtype)
        self._order, self._children = tree.order, tree.children
        n_variables, n_states = len(tree.parents), tree.n_states
        row_bytes = 2 * n_variables * n_states * self.dtype.itemsize
        self.n_rows = int(np.clip(_CACHE_BYTES // row_bytes, _MIN_ROWS, _MAX_ROWS))
        shape = n_variables, n_states, self.n_rows
        # Messages of a block of rows, of all variables: they are written anew for each block
        self._below, self._seen = np.empty(shape, self.dtype), np.empty(shape, self.dtype)
        self._work = np.empty(shape[1:], self.dtype)

    def log_prob(self, tree: LatentTree, codes: FloatArray) -> FloatArray:
        """Log probability (n,) of the cells of rows (n, n_variables), NaN where missing."""
        transitions = self._rounded(tree.transitions)
        parts = [
            self._upward(tree, transitions, codes[start : start + self.n_rows])[0]
            for start in range(0, len(codes), self.n_rows)
        ]
        return np.concatenate(parts)

    def totals(self, tree: LatentTree, codes: FloatArray, weight: FloatArray) -> LatentTotals:
        """Expected statistics of the cells of rows (n, n_variables) of some weight (n,)."""
        transitions = self._rounded(tree.transitions)
        totals = LatentTotals.empty(tree)
        for start in range(0, len(codes), self.n_rows):
            rows = slice(start, start + self.n_rows)
            _, root, evidence = self._upward(tree, transitions, codes[rows])
            root *= weight[rows].astype(self.dtype)
            self._downward(tree, transitions, root, evidence, totals)
        # The factor that all rows have in common, once at the end
        totals.transitions[...] *= tree.transitions
        return totals

    def _rounded(self, transitions: FloatArray) -> FloatArray:
        # The downward pass would divide by a message of zero
        return np.maximum(transitions, _MIN_TRANSITION).astype(self.dtype)

    def _upward(
        self, tree: LatentTree, transitions: FloatArray, codes: FloatArray
    ) -> tuple[FloatArray, FloatArray, Evidence]:
        """Likelihoods of a block: log density, posterior of the root, prepared cells."""
        evidence = tree.emissions.evidence(codes)
        n_rows = len(codes)
        log_scale = np.zeros(n_rows)
        for vertex in reversed(self._order):
            below = self._below[vertex, :, :n_rows]
            log_scale += tree.emissions.likelihood(vertex, evidence, below)
            for n_factors, child in enumerate(self._children[vertex], start=1):
                below *= self._seen[child, :, :n_rows]
                # Scaling takes a pass over the rows: as rarely as floats allow
                if n_factors % _FACTORS_BEFORE_SCALING == 0:
                    log_scale += _scale_to_one(below)
            log_scale += _scale_to_one(below)
            np.matmul(transitions[vertex], below, out=self._seen[vertex, :, :n_rows])
        root = below * tree.prior.astype(self.dtype)[:, None]
        total = root.sum(axis=0)
        root /= total
        return log_scale + np.log(total), root, evidence

    def _downward(
        self,
        tree: LatentTree,
        transitions: FloatArray,
        root: FloatArray,
        evidence: Evidence,
        totals: LatentTotals,
    ) -> None:
        """Posteriors of a block, added to the totals (those of transitions lack a factor)."""
        n_rows = root.shape[1]
        fraction = self._work[:, :n_rows]
        totals.prior[...] += root.sum(axis=1)
        # The posterior of a variable replaces its message to the parent.
        posteriors = self._seen
        posteriors[self._order[0], :, :n_rows] = root
        for vertex in self._order:
            posterior = posteriors[vertex, :, :n_rows]
            tree.emissions.add(totals.emissions, vertex, posterior, evidence)
            for child in self._children[vertex]:
                seen, below = self._seen[child, :, :n_rows], self._below[child, :, :n_rows]
                np.divide(posterior, seen, out=fraction)
                totals.transitions[child] += fraction @ below.T
                np.matmul(transitions[child].T, fraction, out=seen)
                seen *= below


def _scale_to_one(message: FloatArray) -> FloatArray:
    """Divide each row of the table by its largest entry, in place; return the logs."""
    largest = message.max(axis=0)
    message /= largest
    return np.log(largest)
