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
            [*scopes, *({v} for v in hidden), set(variables)], self.cardinalities, last=variables
        )
        return self.restricted(hidden, relevant, order)

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
        # At the root of its tree, which is then summed out up to there alone.
        own = lru_cache(maxsize=None)(lambda v: self._quick_order(hidden, sets[v], [v]))
        jobs: list[tuple[Posterior, frozenset[int]]] = []
        open_variables = hidden
        while n_cells > _MIN_SPLIT_CELLS:
            n_dependent = Counter(chain.from_iterable(sets[v] for v in open_variables))
            last = [v for v in sorted(open_variables) if n_dependent[v] == 1]
            layer = {v: own(v) for v in last if own(v)[1] > _MIN_OWN_CELLS}
            others = open_variables.difference(layer)
            relevant = frozenset().union(*(sets[v] for v in others))
            below = self._quick_order(hidden, relevant)
            total = sum(cells for _, cells in layer.values()) + _TWO_PASSES * below[1]
            if not layer or total >= _TWO_PASSES * n_cells:
                break
            jobs += [
                (self._improved(hidden, sets[v], found, [v]), frozenset({v}))
                for v, found in layer.items()
            ]
            rest, n_cells, open_variables = (relevant, below), below[1], others
        # Where nothing was peeled, other queries may know the tree of all variables.
        whole = self._improved(hidden, *rest) if jobs else self.all_hidden(hidden)
        return [*jobs, (whole, open_variables)]

    def _quick_order(
        self, hidden: frozenset[int], variables: frozenset[int], last: Sequence[int] = ()
    ) -> tuple[list[int], int]:
        """An order of the relevant variables alone, and its cells."""
        return quick_order(self._hidden_scopes(hidden, variables), self.cardinalities, last)

    def _improved(
        self,
        hidden: frozenset[int],
        variables: frozenset[int],
        quick: tuple[list[int], int],
        last: Sequence[int] = (),
    ) -> Posterior:
        """Try the other criteria too: on small structures they take longer than they save."""
        order, n_cells = quick
        if n_cells > 4 * _MAX_SINGLE_CELLS:
            scopes = self._hidden_scopes(hidden, variables)
            order = elimination_order(scopes, self.cardinalities, last=last)
        return self.restricted(hidden, variables, order)

    def _hidden_scopes(
        self, hidden: frozenset[int], variables: frozenset[int]
    ) -> list[frozenset[int]]:
        assert self.families is not None
        return [hidden.intersection(self.factors[self.families[v]].scope) for v in variables]
