"""Scopes as bit sets."""

import time
from itertools import combinations

import numpy as np
import pytest

from skcircuits.circuits import (
    are_compatible,
    is_structured_decomposable,
    multiply,
)
from skcircuits.circuits.structure.properties import (
    VariableSets,
    common_blocks,
    mask_of,
    masks_are_laminar,
    variables_of,
)
from skcircuits.circuits.structure.units import topological_order
from tests.reference.case import for_seeds
from tests.reference.random_circuits import binary_chain


def test_masks_are_sets():
    assert variables_of(mask_of([70, 0, 5])) == (0, 5, 70)
    assert variables_of(mask_of([])) == ()


@pytest.mark.parametrize(
    ("scopes", "laminar"),
    [
        ([(0,), (1,), (0, 1)], True),
        ([(0, 1, 2), (0, 1), (2,)], True),
        ([(0, 1), (1, 2)], False),
        ([(0, 1, 2, 3), (0, 1), (2, 3), (1, 2)], False),
        ([(0, 1), (2, 3), (0, 1, 2)], False),
        ([], True),
    ],
)
def test_laminar_scopes(scopes, laminar):
    assert masks_are_laminar(map(mask_of, scopes)) is laminar


@for_seeds(200)
def test_laminar_is_nested_or_disjoint(seed):
    rng = np.random.default_rng(seed)
    masks = [int(mask) for mask in rng.integers(1, 2**5, size=rng.integers(1, 5))]
    expected = all(a & b in (0, a, b) for a, b in combinations(masks, 2))
    assert masks_are_laminar(masks) is expected


@for_seeds(50)
def test_blocks_are_the_finest_common_coarsening(seed):
    rng = np.random.default_rng(seed)
    sides = []
    for _ in range(2):
        owner = rng.integers(5, size=8)
        sides.append([mask_of(np.flatnonzero(owner == i).tolist()) for i in set(owner.tolist())])
    left, right = sides
    sets = VariableSets()
    blocks = common_blocks(*(list(map(sets.of, side)) for side in sides))
    unions = [[sum(side[i] for i in part) for side, part in zip(sides, block)] for block in blocks]
    assert all(own == other for own, other in unions)
    assert sum(own for own, _ in unions) == 2**8 - 1
    # Within a block, overlaps connect all factors: no block falls apart.
    for own, other in blocks:
        reached = {own[0]}
        for _ in range(8):
            seen = {j for j in other if any(left[i] & right[j] for i in reached)}
            reached = {i for i in own if any(left[i] & right[j] for j in seen)}
        assert reached == set(own)


def test_long_chains_take_little_time():
    p, q = binary_chain(1600, 0), binary_chain(1600, 1)
    start = time.process_time()
    assert are_compatible(p, q)
    assert is_structured_decomposable(p)
    # A quarter of a second; a minute where every scope is compared with each.
    assert time.process_time() - start < 8


def test_products_of_long_chains():
    p, q = binary_chain(400, 0), binary_chain(400, 1)
    X = p.sample(3, random_state=0)
    product = multiply(p, q)
    np.testing.assert_allclose(product.log_prob(X), p.log_prob(X) + q.log_prob(X), rtol=1e-12)


def test_equal_scopes_are_one_object():
    p, q = binary_chain(60, 0), binary_chain(60, 1)
    sets = VariableSets()
    order = [unit for circuit in (p, q) for unit in topological_order(circuit.root)]
    scopes = sets.of_units(order)
    assert [scopes[id(unit)].variables for unit in order] == [unit.scope for unit in order]
    # 60 variables, and 59 prefixes of the chain
    assert len(set(scopes.values())) == 119
    assert sets.of(scopes[id(p.root)].mask) is scopes[id(q.root)]


def test_units_of_a_chain_do_not_list_their_scopes():
    p, q = binary_chain(40, 0), binary_chain(40, 1)
    row = np.where(np.arange(40) % 3 == 0, 0.0, np.nan)
    for circuit in (p, multiply(p, q), p.condition(row), p.marginalize([3])):
        circuit.log_prob(row[None])
        assert are_compatible(circuit, circuit)
        inner = [unit for unit in topological_order(circuit.root) if unit.children]
        assert not [unit for unit in inner if "scope" in vars(unit)]
