"""Which factors a query needs: structures for evidence and marginals, without barren variables.

A variable that is neither asked for nor observed, nor above one that is, sums to one with its
table: it is barren. Every variable asked for alone leaves others barren, so that the marginals
of a dense network may be cheaper from several small trees than from one of all variables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache
from itertools import chain

from skcircuits.graphical.factor import Factor
from skcircuits.graphical.inference._elimination import elimination_order, quick_order
from skcircuits.graphical.inference._elimination_tree import order_ending_with
from skcircuits.graphical.inference._posterior import Posterior, ScaledFactor, scaled_factors
from skcircuits.protocols import IntArray

# Below, one tree of all variables is quicker solved than smaller ones are found.
_MAX_SINGLE_CELLS = 2**20
# Below, both passes take less time than the search for several trees, or a tree of its own.
_MIN_SPLIT_CELLS = 2**18
_MIN_OWN_CELLS = 2**14
# Time of both passes, where the way to the root takes one.
_TWO_PASSES = 2.5
# Rows with missing values have few patterns and come again.
_MAX_KEPT = 1024


class Posteriors:
    """Structures of exact inference for sets of hidden variables, kept once found.

    ``children[i]`` is the variable that factor i is a conditional distribution of; None where
    the factors are mere potentials, of which none may be left out.
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        cardinalities: IntArray,
        children: Sequence[int] | None = None,
    ) -> None:
        self.factors = factors
        self.cardinalities = cardinalities
        self.families = None
        if children is not None:
            self.families = {child: index for index, child in enumerate(children)}
        self.all_hidden = lru_cache(maxsize=_MAX_KEPT)(self._all_hidden)
        self.for_evidence = lru_cache(maxsize=_MAX_KEPT)(self._for_evidence)
        self.for_marginals = lru_cache(maxsize=_MAX_KEPT)(self._for_marginals)

    @cached_property
    def scaled(self) -> tuple[ScaledFactor, ...]:
        """The factors, ready for products."""
        return scaled_factors(self.factors)

    def relevant(self, variables: Collection[int]) -> frozenset[int]:
        """Variables that some of them may depend on: they and all above them."""
        if self.families is None:
            return frozenset(range(len(self.cardinalities)))
        found, frontier = set(variables), list(variables)
        while frontier:
            fresh = set(self.factors[self.families[frontier.pop()]].scope) - found
            found |= fresh
            frontier += fresh
        return frozenset(found)

    def restricted(
        self,
        hidden: frozenset[int],
        variables: frozenset[int],
        order: Sequence[int] | str = "auto",
    ) -> Posterior:
        """Give the structure of the relevant variables alone."""
        if self.families is None:
            return Posterior(self.scaled, self.cardinalities, hidden, order)
        factors = [self.scaled[self.families[v]] for v in sorted(variables)]
        return Posterior(factors, self.cardinalities, hidden & variables, order)

    def for_joint(self, hidden: frozenset[int], variables: Sequence[int]) -> Posterior:
        """Give a structure that sums out all but some of the hidden variables first."""
        observed = set(range(len(self.cardinalities))) - hidden
        relevant = self.relevant([*observed, *variables])
        scopes = [hidden.intersection(factor.scope) & relevant for factor in self.factors]
        # Joined with each other, as they will be in the end.
        order = elimination_order(
            [*scopes, *({v} for v in hidden), set(variables)], self.cardinalities
        )
        first = [v for v in order if v not in set(variables)]
        return self.restricted(hidden, relevant, [*first, *variables])

    def _all_hidden(self, hidden: frozenset[int]) -> Posterior:
        return Posterior(self.scaled, self.cardinalities, hidden)

    def _for_evidence(self, hidden: frozenset[int]) -> Posterior:
        observed = set(range(len(self.cardinalities))) - hidden
        return self.restricted(hidden, self.relevant(observed))

    def _for_marginals(self, hidden: frozenset[int]) -> list[tuple[Posterior, frozenset[int]]]:
        """Structures, and which of their hidden variables each answers for."""
        if self.families is None:
            return [(self.all_hidden(hidden), hidden)]
        # One order tells whether a single tree is out of the question: others save a factor of
        # two at times, and take as long as the marginals of a dense network of thirty variables.
        n_cells = self._quick_order(hidden, frozenset(self.families))[1]
        if n_cells <= 4 * _MAX_SINGLE_CELLS:
            whole = self.all_hidden(hidden)
            if whole.n_cells <= _MAX_SINGLE_CELLS:
                return [(whole, hidden)]
        return self._peeled(hidden, n_cells)

    def _peeled(
        self, hidden: frozenset[int], n_cells: int
    ) -> list[tuple[Posterior, frozenset[int]]]:
        """Answer layer by layer for variables that no other one depends on, if that is cheaper.

        Each is the root of a tree of its own, which takes a single pass; all others do without it.
        """
        observed = set(range(len(self.cardinalities))) - hidden
        sets = {v: self.relevant([*observed, v]) for v in hidden}
        jobs: list[tuple[Posterior, frozenset[int]]] = []
        open_variables = hidden
        while n_cells > _MIN_SPLIT_CELLS:
            n_dependent = Counter(chain.from_iterable(sets[v] for v in open_variables))
            last = [v for v in sorted(open_variables) if n_dependent[v] == 1]
            layer = {v: self._quick_order(hidden, sets[v]) for v in last}
            layer = {v: found for v, found in layer.items() if found[1] > _MIN_OWN_CELLS}
            others = open_variables.difference(layer)
            relevant = frozenset().union(*(sets[v] for v in others))
            below = self._quick_order(hidden, relevant)
            total = sum(cells for _, cells in layer.values()) + _TWO_PASSES * below[1]
            if not layer or total >= _TWO_PASSES * n_cells:
                break
            for v, found in layer.items():
                top = self._improved(hidden, sets[v], found)
                order = [u for part in top.components for u in order_ending_with(part.tree, v)]
                jobs.append((self.restricted(hidden, sets[v], order), frozenset({v})))
            rest, n_cells, open_variables = (relevant, below), below[1], others
        # Where nothing was peeled, other queries may know the tree of all variables.
        whole = self._improved(hidden, *rest) if jobs else self.all_hidden(hidden)
        return [*jobs, (whole, open_variables)]

    def _quick_order(
        self, hidden: frozenset[int], variables: frozenset[int]
    ) -> tuple[list[int], int]:
        """An order of the relevant variables alone, and its cells."""
        assert self.families is not None
        scopes = [self.factors[self.families[v]].scope for v in sorted(variables)]
        return quick_order([hidden.intersection(scope) for scope in scopes], self.cardinalities)

    def _improved(
        self, hidden: frozenset[int], variables: frozenset[int], quick: tuple[list[int], int]
    ) -> Posterior:
        """Try the other criteria too: on small structures they take longer than they save."""
        order, n_cells = quick
        return self.restricted(hidden, variables, "auto" if n_cells > _MAX_SINGLE_CELLS else order)
