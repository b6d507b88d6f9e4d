"""Compatibility of two circuits."""

from skcircuits.circuits import (
    Bernoulli,
    Circuit,
    Gaussian,
    MultivariateGaussian,
    Product,
    are_compatible,
)
from skcircuits.circuits.structure.properties import find_conflict
from tests.reference.case import for_seeds
from tests.reference.random_circuits import compatible_circuits, random_circuit

A, B, C, D = (Bernoulli(v, 0.5) for v in range(4))
PAIR = MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]])


@for_seeds(60)
def test_circuits_of_one_structure_are_compatible(seed):
    p, q = compatible_circuits(seed)
    assert are_compatible(p, q)
    assert are_compatible(q, p)
    assert are_compatible(p, p)


def test_a_fully_factorised_circuit_fits_everything():
    flat = Circuit(Product([A, B, C, D]))
    left = Circuit(Product([A, Product([B, Product([C, D])])]))
    right = Circuit(Product([Product([Product([A, B]), C]), D]))
    assert are_compatible(flat, left)
    assert are_compatible(flat, right)
    # Chains in opposite directions: the common blocks of {A, BCD} and {ABC, D} are one.
    assert not are_compatible(left, right)


def test_the_conflict_names_both_partitions():
    p = Circuit(Product([Product([A, B]), Product([C, D])]))
    q = Circuit(Product([Product([A, C]), Product([B, D])]))
    conflict = find_conflict(p, q)
    assert conflict.left == ((0, 1), (2, 3))
    assert conflict.right == ((0, 2), (1, 3))


def test_conflicts_deep_inside_are_found():
    p = Circuit(Product([Product([Product([A, B]), C]), D]))
    q = Circuit(Product([Product([A, Product([B, C])]), D]))
    conflict = find_conflict(p, q)
    assert (conflict.left, conflict.right) == (((0, 1), (2,)), ((0,), (1, 2)))


def test_other_variables_are_incompatible():
    assert not are_compatible(Circuit(A), Circuit(B))
    assert not are_compatible(Circuit(A), Circuit(Product([A, B])))


def test_circuits_that_are_not_smooth_or_decomposable_fit_nothing():
    rough = Circuit(0.5 * A + 0.5 * Product([A, B]))
    overlapping = Circuit(Product([A, Product([A, B])]))
    fine = Circuit(Product([A, B]))
    assert not are_compatible(rough, fine)
    assert not are_compatible(fine, overlapping)


def test_joint_units_stand_against_joint_units_only():
    joint, split = Circuit(PAIR), Circuit(Gaussian(0, 0.0, 1.0) * Gaussian(1, 0.0, 1.0))
    assert are_compatible(joint, joint)
    assert not are_compatible(joint, split)
    conflict = find_conflict(joint, split)
    assert (conflict.left, conflict.right) == (((0, 1),), ((0,), (1,)))


def test_unstructured_circuits_rarely_fit_themselves():
    """A circuit with two splits of one scope meets itself in two ways."""
    both = Circuit(0.5 * Product([A, Product([B, C])]) + 0.5 * Product([Product([A, B]), C]))
    assert not are_compatible(both, both)
    structured = random_circuit(4)
    assert are_compatible(structured, structured)
