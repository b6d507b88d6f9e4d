"""Balanced trees of latent variables: dense, layered circuits of any size."""

from __future__ import annotations

import numpy as np

from skcircuits.circuits import Categorical, Circuit, Product, Sum


def latent_tree(rng, n_variables, n_states, *, n_categories=2, zeros=0.0) -> Circuit:
    """A hidden tree with ``n_states`` states per latent variable, balanced over columns.

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
