"""Building circuits from units with + and *."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone

from skcircuits.circuits import Bernoulli, Circuit, Gaussian, Product, Sum
from skcircuits.circuits.engine._passes import log_values
from skcircuits.circuits.structure.units import (
    WeightedUnit,
    as_unit,
    topological_order,
    union_of_scopes,
)
from tests.reference.case import for_seeds


@pytest.fixture
def a():
    return Bernoulli(0, 0.2)


@pytest.fixture
def b():
    return Bernoulli(1, 0.6)


def test_products_are_flat(a, b):
    c = Gaussian(4, 0.0, 1.0)
    product = a * (b * c)
    assert isinstance(product, Product)
    assert product.children == (a, b, c)
    assert product.scope == (0, 1, 4)


def test_sums_written_inline_are_flat(a):
    other = Bernoulli(0, 0.9)
    total = 0.2 * a + 0.3 * other + 0.5 * a
    assert isinstance(total, Sum)
    assert total.children == (a, other, a)
    np.testing.assert_array_equal(total.weights, [0.2, 0.3, 0.5])


def test_weights_multiply_through(a, b):
    term = 0.5 * (0.4 * a) * (2 * b)
    assert isinstance(term, WeightedUnit)
    assert term.weight == pytest.approx(0.4)
    assert term.unit.children == (a, b)
    np.testing.assert_allclose((0.5 * (0.2 * a + 0.8 * a) + 0.5 * a).weights, [0.1, 0.4, 0.5])


def test_a_sum_is_one_factor_of_a_product(a, b):
    mixture = 0.5 * a + 0.5 * Bernoulli(0, 0.9)
    assert (mixture * b).children == (mixture, b)


def test_both_ways_of_writing_agree(a, b):
    inline = Circuit(0.3 * a * b + 0.7 * b * a)
    spelled = Circuit(Sum([Product([a, b]), Product([b, a])], weights=[0.3, 0.7]))
    X = np.array([[0.0, 1.0], [1.0, np.nan]])
    np.testing.assert_array_equal(inline.log_prob(X), spelled.log_prob(X))


def test_a_weighted_unit_is_a_circuit(a):
    circuit = Circuit(2.0 * a)
    assert np.exp(circuit.log_partition) == pytest.approx(2.0)
    assert Circuit(1.0 * (a * Bernoulli(1, 0.5))).n_units == 4


def test_shared_units_are_listed_once(a, b):
    shared = Product([a, b])
    root = Sum([shared, shared, Product([a, b])], weights=[0.2, 0.3, 0.5])
    order = topological_order(root)
    assert len(order) == 5
    assert order[-1] is root
    position = {id(unit): i for i, unit in enumerate(order)}
    assert all(position[id(c)] < position[id(unit)] for unit in order for c in unit.children)


def test_chains_deeper_than_the_recursion_limit(a):
    unit = a
    for _ in range(5_000):
        unit = Sum([unit], weights=[1.0])
    assert np.exp(Circuit(unit).log_prob([[1.0]])) == pytest.approx(0.2)


@pytest.mark.parametrize("weight", [-0.1, np.nan, np.inf])
def test_weights_must_be_finite_and_non_negative(a, weight):
    with pytest.raises(ValueError, match="weight of a unit must be finite and non-negative"):
        weight * a
    with pytest.raises(ValueError, match="weights of a sum unit must be finite"):
        Sum([a, a], weights=[weight, 0.5])


def test_a_sum_needs_one_weight_per_child(a):
    with pytest.raises(ValueError, match="have one entry for each of its 2 children"):
        Sum([a, a], weights=[1.0])
    np.testing.assert_array_equal(Sum([a, a]).weights, [1.0, 1.0])


def test_units_need_children(a):
    for kind in (Sum, Product):
        with pytest.raises(ValueError, match="must have at least one child"):
            kind([])
        with pytest.raises(TypeError, match="must be built from units"):
            kind([a, 3])
    with pytest.raises(TypeError, match=r"Combine Categorical\(...\)"):
        as_unit("text")


@pytest.mark.parametrize("other", ["x", None, [1.0], True])
def test_foreign_operands_are_refused(a, other):
    with pytest.raises(TypeError):
        a * other
    with pytest.raises(TypeError):
        a + other


def test_units_cannot_be_changed(a):
    total = Sum([a, a], weights=[0.5, 0.5])
    with pytest.raises(ValueError, match="read-only"):
        total.weights[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        a.probabilities[0] = 1.0


def test_clone_returns_units_and_circuits_unchanged(a):
    assert clone(a) is a
    circuit = Circuit(a)
    assert clone(circuit) is circuit


def test_pickles_and_copies_answer_alike(a, b):
    circuit = Circuit(0.3 * a * b + 0.7 * b * a)
    X = np.array([[0.0, 1.0], [1.0, np.nan]])
    expected = circuit.log_prob(X)
    for other in (pickle.loads(pickle.dumps(circuit)), copy.deepcopy(circuit)):
        np.testing.assert_array_equal(other.log_prob(X), expected)
        assert other.n_units == circuit.n_units


def deep_circuit(n_levels=5000):
    """A chain of products and sums around one shared unit."""
    shared = Bernoulli(0, 0.3)
    root = Sum([shared, shared], weights=[0.1, 0.9])
    for level in range(n_levels // 2):
        root = Sum([Product([root]), shared], weights=[0.1 + 0.2, 1 / (level + 3)])
    return Circuit(root)


def test_deep_circuits_are_pickled_and_copied():
    """Linked units would be pickled level by level, by recursion."""
    circuit = deep_circuit()
    for other in (pickle.loads(pickle.dumps(circuit)), copy.deepcopy(circuit)):
        assert (other.n_units, other.n_edges) == (circuit.n_units, circuit.n_edges)
        units = zip(topological_order(circuit.root), topological_order(other.root))
        for own, copied in units:
            assert type(own) is type(copied) and own.scope == copied.scope
            if isinstance(own, Sum):
                np.testing.assert_array_equal(own.weights, copied.weights)
                assert not copied.weights.flags.writeable


def test_deep_plans_are_pickled():
    plan = deep_circuit(300).plan
    again = pickle.loads(pickle.dumps(plan))
    assert [again.position[id(unit)] for unit in again.units] == list(range(plan.n_units))
    X = np.array([[0.0], [1.0]])
    np.testing.assert_array_equal(log_values(again, X), log_values(plan, X))


def test_input_units_pickle_as_they_are():
    """No constructor rounds them again, and units shared by circuits stay shared."""
    leaf = Bernoulli(0, 0.1 + 0.2)
    leaf.note = "kept"
    first, second = pickle.loads(pickle.dumps((Circuit(leaf), Circuit(Sum([leaf])))))
    assert first.root is second.root.children[0]
    assert (first.root.p, first.root.note) == (leaf.p, "kept")


@for_seeds(20)
def test_unions_of_scopes_of_any_widths(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 2, 3, 60], size=rng.integers(1, 5))
    scopes = [tuple(sorted(rng.choice(70, size=n, replace=False).tolist())) for n in sizes]
    assert union_of_scopes(scopes) == tuple(sorted(set().union(*scopes)))
