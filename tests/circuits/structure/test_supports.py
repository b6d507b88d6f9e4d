"""Supports: what is said to be disjoint is."""

import numpy as np

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    PiecewisePolynomial,
    Product,
    Sum,
)
from skcircuits.circuits.structure.properties import Supports
from skcircuits.circuits.structure.units import topological_order
from tests.reference.case import for_seeds
from tests.reference.enumeration import Completions
from tests.reference.random_circuits import random_circuit


@for_seeds(30)
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


def test_pieces_and_point_masses():
    low = PiecewisePolynomial(0, [0.0, 1.0], [1.0])
    high = PiecewisePolynomial(0, [0.0, 1.0, 3.0, 4.0], [0.0, 1.0, 0.0])
    smooth = PiecewisePolynomial(0, [0.0, 1.0, 2.0, 3.0], [0.0, 0.0, 0.0, 1.0])
    tail = PiecewisePolynomial(0, [3.0, 4.0], [0.0], tail_masses=[0.0, 1.0])
    atoms = {
        x: PiecewisePolynomial(0, [0.0, 1.0], [0.0, 0.0], [x, x + 9.0], [1.0, 0.0])
        for x in (-1.0, 0.0, 0.5, 1.0, 5.0)
    }
    other = PiecewisePolynomial(1, [0.0, 1.0], [1.0])
    units = [low, high, smooth, tail, other, *atoms.values()]
    supports = Supports(units)

    def meet(left, right):
        return supports.may_meet(supports.states(left), supports.states(right))

    # Open intervals that touch do not meet; a basis function of degree one spans two.
    assert not meet(low, high) and not meet(low, tail) and not meet(high, tail)
    assert meet(high, smooth) and not meet(low, smooth) and not meet(smooth, tail)
    assert [meet(atom, low) for atom in atoms.values()] == [False, True, True, True, False]
    assert meet(atoms[1.0], high) and meet(atoms[5.0], tail)
    for x, atom in atoms.items():
        assert [meet(atom, atoms[y]) for y in atoms] == [x == y for y in atoms]
    assert all(meet(unit, other) for unit in units)


@for_seeds(20)
def test_random_piecewise_polynomials_that_never_meet_share_no_interval(seed):
    rng = np.random.default_rng(seed)
    units = []
    for _ in range(12):
        knots = np.unique(rng.integers(0, 8, size=4).astype(float))
        knots = knots if len(knots) > 1 else np.array([0.0, 1.0])
        degree = rng.integers(0, 3)
        masses = rng.random(len(knots) + 1 + degree) * (rng.random(len(knots) + 1 + degree) < 0.4)
        masses[2] += 1e-3
        masses /= masses.sum()
        units.append(PiecewisePolynomial(0, knots, masses[2:], tail_masses=masses[:2]))
    supports = Supports(units)
    inside = np.arange(-1.0, 9.0, 0.25)[:, None] + 0.1
    positive = [np.isfinite(Circuit(unit).log_prob(inside)) for unit in units]
    for left, own in zip(units, positive):
        for right, other in zip(units, positive):
            meet = supports.may_meet(supports.states(left), supports.states(right))
            assert meet == (own & other).any()
