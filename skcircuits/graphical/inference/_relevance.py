"""Which factors a query needs: structures for evidence and marginals, without barren variables.

A variable that is neither asked for nor observed, nor above one that is, sums to one with its
table: it is barren. Every variable asked for alone leaves others barren, so that the marginals
of a dense network may be cheaper from several small trees than from one of all variables.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache

from skcircuits.graphical.factor import Factor
from skcircuits.graphical.inference._elimination import elimination_order
from skcircuits.graphical.inference._posterior import Posterior, ScaledFactor, scaled_factors
from skcircuits.protocols import IntArray

# Below, one tree of all variables is quicker solved than smaller ones are found.
_MAX_SINGLE_CELLS = 2**20
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
        parts = None if self.families is None else self._cheaper_parts(hidden)
        if parts is None:
            return [(self.all_hidden(hidden), hidden)]
        # The largest first: what they answer on the way costs nothing.
        jobs, open_variables = [], set(hidden)
        for part in sorted(parts, key=lambda part: part.n_cells, reverse=True):
            jobs.append((part, frozenset(open_variables & part.hidden)))
            open_variables -= part.hidden
        return jobs

    def _cheaper_parts(self, hidden: frozenset[int]) -> list[Posterior] | None:
        """Structures that together are cheaper than one of all hidden variables, if there are."""
        # One order tells whether a single tree is out of the question: others save a factor of
        # two at times, and take as long as the marginals of a dense network of thirty variables.
        rough = Posterior(self.scaled, self.cardinalities, hidden, "min_fill").n_cells
        if rough <= 4 * _MAX_SINGLE_CELLS and self.all_hidden(hidden).n_cells <= _MAX_SINGLE_CELLS:
            return None
        parts = self._parts(hidden)
        n_cells = sum(part.n_cells for part in parts)
        if n_cells >= rough / 2 and n_cells >= self.all_hidden(hidden).n_cells:
            return None
        return parts

    def _parts(self, hidden: frozenset[int]) -> list[Posterior]:
        """Structures that together hold all hidden variables, one per variable without children.

        Two are merged where one tree for both is cheaper.
        """
        observed = set(range(len(self.cardinalities))) - hidden
        sets = {self.relevant([*observed, v]) for v in hidden}
        maximal = [mine for mine in sets if not any(mine < other for other in sets)]
        parts: list[tuple[frozenset[int], Posterior]] = []
        # In a fixed order: sets have none of their own.
        for variables in sorted(maximal, key=lambda mine: (-len(mine), sorted(mine))):
            part = self.restricted(hidden, variables, "min_fill")
            near = max(parts, key=lambda other: len(other[0] & variables), default=None)
            if near is not None:
                union = near[0] | variables
                merged = self.restricted(hidden, union, "min_fill")
                if merged.n_cells <= near[1].n_cells + part.n_cells:
                    parts.remove(near)
                    variables, part = union, merged
            parts.append((variables, part))
        # The other criteria take longer than they save on small structures.
        return [
            part if part.n_cells <= _MAX_SINGLE_CELLS else self.restricted(hidden, variables)
            for variables, part in parts
        ]
