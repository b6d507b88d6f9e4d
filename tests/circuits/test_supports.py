"""Supports: what is said to be disjoint is."""

import numpy as np
import pytest

from skcircuits.circuits import Bernoulli, Categorical, Circuit, Gaussian, Indicator, Product, Sum
from skcircuits.circuits.supports import Supports
from skcircuits.circuits.units import topological_order
from tests.reference.enumeration import Completions
from tests.reference.random_circuits import random_circuit


@pytest.mark.parametrize("seed", range(30))
def test_units_that_never_meet_share_no_row(seed):
    circuit = random_circuit(seed, discrete=True)
    order = [u for u in topological_order(circuit.root) if u.scope == circuit.root.scope]
    supports = Supports(topological_order(circuit.root))
    nothing = np.full(len(circuit.variables), np.nan)
    possible = [Completions(Circuit(unit), nothing).mass > 0 for unit in order]
    for left, rows in zip(order, possible):
        for right, others in zip(order, possible):
            if not supports.may_meet(supports.states(left), supports.states(right)):
                assert not (rows & others).any()


def test_masks_by_hand():
    a, b = Categorical(3, [0.5, 0.0, 0.5]), Indicator(3, 1, 3)
    narrow, wide = Bernoulli(3, 1.0), Gaussian(5, 0.0, 1.0)
    either = Sum([a, b], weights=[1.0, 0.0])
    both, mixed = Product([a, wide]), Sum([a, wide])
    supports = Supports([a, b, narrow, wide, either, both, mixed])

    def meet(left, right):
        return supports.may_meet(supports.states(left), supports.states(right))

    assert not meet(a, b) and meet(b, narrow) and not meet(a, narrow)
    # A child of weight zero adds nothing, a continuous one excludes nothing.
    assert not meet(either, b) and not meet(both, b) and meet(mixed, b) and meet(wide, b)
    assert not supports.may_meet(supports.states(wide, a), supports.states(b))
    assert supports.may_meet(supports.states(), supports.states())


def test_circuits_without_discrete_variables_always_meet():
    unit = Gaussian(0, 0.0, 1.0)
    supports = Supports([unit])
    assert supports.may_meet(supports.states(unit), supports.states(unit))
