"""Shallow circuits: the same function with fewer levels, for passes that pay per level.

Sums merge into sums and products into products. Products of sums are multiplied out where
that takes few more edges, so a small circuit becomes one mixture of products. Sums over a
single variable stay as they are: they are the factors of these products.
"""

from __future__ import annotations

from collections import Counter
from itertools import product as product_of
from math import prod

import numpy as np

from skcircuits.circuits.engine._policy import MAX_EDGE_GROWTH
from skcircuits.circuits.structure.units import Product, Sum, Unit, topological_order

_Terms = list[tuple[float, tuple[Unit, ...]]]


def flatten(root: Unit) -> Unit:
    """Rewrite a smooth and decomposable circuit with fewer levels."""
    return _Flattening(root).unit(root)


class _Flattening:
    """Every unit as a list of weighted products, and as a unit where it stays one."""

    def __init__(self, root: Unit) -> None:
        order = topological_order(root)
        self._n_parents = Counter(id(child) for unit in order for child in unit.children)
        self._built: dict[int, Unit] = {}
        self._terms: dict[int, _Terms] = {}
        # Edges below a unit that no other unit uses
        self._n_edges: dict[int, int] = {}
        for unit in order:
            self._n_edges[id(unit)] = len(unit.children) + sum(
                self._n_edges[id(child)] for child in unit.children if not self._is_shared(child)
            )
            self._terms[id(unit)] = self._expand(unit)

    def unit(self, original: Unit) -> Unit:
        """Build the unit that stands for one of the circuit, once."""
        key = id(original)
        if key not in self._built:
            terms = self._terms[key]
            children = [part[0] if len(part) == 1 else Product(part) for _, part in terms]
            weights = np.array([weight for weight, _ in terms])
            if isinstance(original, Sum) or len(children) > 1 or weights[0] != 1.0:
                self._built[key] = Sum(children, weights=weights)
            else:
                (self._built[key],) = children
        return self._built[key]

    def _expand(self, unit: Unit) -> _Terms:
        if isinstance(unit, Sum):
            return [
                (weight * inner, part)
                for child, weight in zip(unit.children, unit.weights)
                for inner, part in self._terms_in_sum(child)
            ]
        if isinstance(unit, Product):
            return self._multiply(unit)
        return [(1.0, (unit,))]

    def _terms_in_sum(self, child: Unit) -> _Terms:
        """Merge a child's terms into the sum above, unless other units use them too."""
        terms = self._terms[id(child)]
        # Merged into every parent, a shared child would be evaluated once for each.
        do_keep = self._is_shared(child) and len(terms) > 1
        return [(1.0, (self.unit(child),))] if do_keep else terms

    def _is_shared(self, child: Unit) -> bool:
        return self._n_parents[id(child)] > 1

    def _multiply(self, product: Product) -> _Terms:
        """Multiply the factors out where that pays."""
        factors = [self._terms_in_product(factor) for factor in product.children]
        n_terms = prod(len(terms) for terms in factors)
        n_edges = sum(
            n_terms // len(terms) * sum(len(part) for _, part in terms) for terms in factors
        )
        # Products of sums multiply their terms: chains stay as they are, small ones get shallow.
        if n_edges > MAX_EDGE_GROWTH * self._n_edges[id(product)]:
            factors = [
                terms if len(terms) == 1 else [(1.0, (self.unit(factor),))]
                for terms, factor in zip(factors, product.children)
            ]
        return [
            (
                prod(weight for weight, _ in chosen),
                tuple(unit for _, part in chosen for unit in part),
            )
            for chosen in product_of(*factors)
        ]

    def _terms_in_product(self, factor: Unit) -> _Terms:
        """Terms of a factor; a sum over one variable is one of its own."""
        # Multiplied out, one mixture of masses would become as many products as it has children.
        is_term = len(factor.scope) == 1
        return [(1.0, (self.unit(factor),))] if is_term else self._terms[id(factor)]
