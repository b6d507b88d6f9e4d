"""Entropy of a circuit and divergence between two, exact where sums are deterministic."""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from skcircuits.circuits.algebra.operations import fold_pairs
from skcircuits.circuits.circuit import Circuit
from skcircuits.circuits.engine._layers import SumLayer
from skcircuits.circuits.inputs import InputUnit
from skcircuits.circuits.inputs import registry as input_rules
from skcircuits.circuits.structure.properties import require_compatible, require_deterministic
from skcircuits.exceptions import require
from skcircuits.protocols import FloatArray

WAY_OUT = "Average log probabilities of samples for an estimate: p.log_prob(p.sample(n))."
# Rounding of the mass that one distribution puts on the support of another.
MASS_TOLERANCE = 1e-12


def entropy(p: Circuit) -> float:
    """Entropy of a deterministic circuit.

    Parameters
    ----------
    p : Circuit
        Smooth, decomposable, deterministic; normalised first.

    Returns
    -------
    float
        -E[log p(X)] in nats (the differential entropy of continuous variables).

    Raises
    ------
    CircuitPropertyError
        If the circuit is not provably deterministic or an input unit has no closed form.

    Notes
    -----
    The children of a deterministic sum have disjoint supports, hence
    H(Σ w_i p_i) = Σ w_i (H(p_i) - log w_i); the entropies of factors add up.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit, entropy
    >>> round(entropy(Circuit(Bernoulli(0, 0.5) * Bernoulli(1, 0.5))), 4)
    1.3863
    """
    require("root", "a circuit", p=p)
    require_deterministic(p, "for its entropy", WAY_OUT)
    plan = p.normalize().plan
    values = np.zeros(plan.n_units)
    for units, _ in plan.inputs:
        values[units] = [
            input_rules.entropy(unit) for unit in plan.units[units] if isinstance(unit, InputUnit)
        ]
    for layer in plan.layers:
        below = values[layer.children]
        if isinstance(layer, SumLayer):
            weights = plan.weights.linear[layer.edges]
            terms = weights * below - xlogy(weights, weights)
            values[layer.units] = np.add.reduceat(terms, layer.starts)
        else:
            values[layer.units] = below.sum(axis=1)
    return float(values[plan.root])


def kl_divergence(p: Circuit, q: Circuit) -> float:
    """Kullback-Leibler divergence between two compatible deterministic circuits.

    Parameters
    ----------
    p, q : Circuit
        Smooth, decomposable, deterministic and compatible; normalised first.

    Returns
    -------
    float
        E_p[log p(X) - log q(X)] in nats; infinite if q is zero where p is not.

    Raises
    ------
    IncompatibleCircuitsError
        If the circuits decompose a scope differently; both partitions are named.
    CircuitPropertyError
        If one is not provably deterministic or two input units have no closed form.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit, kl_divergence
    >>> round(kl_divergence(Circuit(Bernoulli(0, 0.5)), Circuit(Bernoulli(0, 0.25))), 4)
    0.1438
    """
    require("root", "a circuit", p=p, q=q)
    require_compatible(p, q)
    # Where children overlap, the logarithm of a sum is no sum of logarithms.
    for circuit in (p, q):
        require_deterministic(circuit, "for a divergence", WAY_OUT)
    mass, divergence = fold_pairs(p.normalize().root, q.normalize().root, _Divergence())
    # The mass of p that q's support misses has an infinite log ratio.
    if mass < 1.0 - MASS_TOLERANCE:
        return float("inf")
    # Equal circuits may differ by rounding.
    return max(divergence, 0.0)


class _Divergence:
    """Rules for pairs (u, v): ∫ u and ∫ u log(u / v), both over the support of v."""

    def inputs(self, left: InputUnit, right: InputUnit) -> tuple[float, float]:
        """Use the closed form of the two families."""
        return input_rules.divergence(left, right)

    def product(self, factors: list[tuple[float, float]]) -> tuple[float, float]:
        """Masses multiply; each log ratio is weighted by the masses of the other blocks."""
        mass, divergence = 1.0, 0.0
        for own_mass, own_divergence in factors:
            divergence = divergence * own_mass + mass * own_divergence
            mass *= own_mass
        return mass, divergence

    def mixture(
        self,
        left_weights: FloatArray,
        right_weights: FloatArray,
        terms: list[tuple[float, float]],
    ) -> tuple[float, float]:
        """Add up disjoint supports; the weights join the log ratio."""
        masses, divergences = np.reshape(terms, (-1, 2)).T
        divergences = divergences + masses * (np.log(left_weights) - np.log(right_weights))
        return float(left_weights @ masses), float(left_weights @ divergences)
