"""Balanced trees of latent variables: dense, layered circuits of any size."""

from __future__ import annotations

import numpy as np

from skcircuits.circuits import Categorical, Circuit, Gaussian, Product, Sum


def latent_tree(rng, n_variables, n_states, *, n_categories=2, zeros=0.0) -> Circuit:
    """A latent tree with ``n_states`` states per latent variable, balanced over columns.

    Every region has one unit per state of its latent variable; the sums of a region mix all
    element-wise products of its two halves.
    """

    def simplex(size):
        weights = rng.dirichlet(np.ones(size))
        weights[rng.random(size) < zeros] = 0.0
        return weights / weights.sum() if weights.sum() > 0 else np.full(size, 1.0 / size)

    def region(variables, n_sums):
        if len(variables) == 1:
            return [Categorical(variables[0], simplex(n_categories)) for _ in range(n_states)]
        half = (len(variables) + 1) // 2
        sides = region(variables[:half], n_states), region(variables[half:], n_states)
        products = [Product(pair) for pair in zip(*sides)]
        return [Sum(products, weights=simplex(n_states)) for _ in range(n_sums)]

    return Circuit(region(list(range(n_variables)), 1)[0])


def blocks_of_any_widths(seed, cardinalities, *, structure=None) -> Circuit:
    """Regions with other numbers of sums than of products below, each sum over all of them.

    Cardinalities of 0 stand for continuous variables; circuits of one `structure` (a seed) are
    compatible.
    """
    rng = np.random.default_rng(seed)
    first = seed if structure is None else structure

    def leaf(variable):
        if not cardinalities[variable]:
            return Gaussian(variable, rng.normal(), rng.uniform(0.5, 1.5))
        return Categorical(variable, rng.dirichlet(np.ones(cardinalities[variable])))

    def region(variables, n_sums):
        # Regions of one size are alike, so that their blocks belong together
        widths = np.random.default_rng([first, len(variables)])
        if len(variables) == 1:
            below = [leaf(variables[0]) for _ in range(widths.integers(3, 8))]
        else:
            half = (len(variables) + 1) // 2
            n = widths.integers(3, 8)
            left, right = (region(part, n) for part in (variables[:half], variables[half:]))
            pairs = widths.permutation(n * n)[: widths.integers(4, 9)]
            below = [Product([left[i // n], right[i % n]]) for i in pairs]
        return [Sum(below, weights=rng.dirichlet(np.ones(len(below)))) for _ in range(n_sums)]

    return Circuit(region(list(range(len(cardinalities))), 1)[0])
