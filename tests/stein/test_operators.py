"""Stein operators as signed measures, what targets tell, and kernels as tables."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.circuits import Categorical, Circuit, Gaussian, Product
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.graphical import FactorGraph, GaussianMRF
from skcircuits.kernels import RBF, Delta, Hamming, Laplacian, Linear, Polynomial
from skcircuits.stein._measures import (
    barker_atoms,
    contract,
    difference_atoms,
    moved_rows,
    point_block,
    product_block,
    product_terms,
    state_vectors,
    stein_measures,
)
from skcircuits.stein._targets import full_conditionals, is_continuous, state_counts


def conditional(p):
    """The full conditional of one variable at each of its states."""
    p = np.asarray(p, dtype=float)
    with np.errstate(divide="ignore"):
        return np.tile(np.log(p), (len(p), 1)), np.arange(len(p))


# ------------------------------------------------------------------------ operators


@pytest.mark.parametrize("p", [[0.2, 0.8], [0.1, 0.6, 0.3], [0.05, 0.05, 0.1, 0.8]], ids=len)
@pytest.mark.parametrize("operator", [barker_atoms, difference_atoms])
def test_expectation_of_every_function_is_zero(p, operator):
    measures = operator(*conditional(p)).by_state(len(p))
    assert_allclose(np.asarray(p) @ measures, 0.0, atol=1e-15)


def test_barker_measures_have_mass_zero_and_balanced_rates():
    p = np.array([0.1, 0.6, 0.3])
    measures = barker_atoms(*conditional(p)).by_state(3)
    assert_allclose(measures.sum(axis=1), 0.0, atol=1e-15)
    flow = p[:, None] * measures
    assert_allclose(flow, flow.T)
    assert_allclose(measures[0, 1], 0.6 / 0.7)
    assert np.abs(measures).max() <= 2.0


def test_barker_at_zeros_and_extremes():
    atoms = barker_atoms(*conditional([0.0, 0.0, 1.0]))
    measures = atoms.by_state(3)
    assert_allclose(measures[2], 0.0)
    assert_allclose(measures[0, 2], 1.0)
    assert np.isfinite(measures).all()
    assert atoms.meets_zeros.all()
    rugged = barker_atoms(np.array([[0.0, 5000.0]]), np.array([0])).by_state(2)
    assert_allclose(rugged, [[-1.0, 1.0]])


def test_difference_moves_forward_and_back():
    atoms = difference_atoms(*conditional([0.2, 0.5, 0.3]))
    assert_allclose(atoms.coefficients[:, 0], [2.5, 0.6, 2 / 3])
    assert_array_equal(atoms.locations, [[0, 2], [1, 0], [2, 1]])
    assert_array_equal(atoms.evidence, [[1, 0], [2, 1], [0, 2]])
    with pytest.raises(ValueError, match="positive everywhere"):
        difference_atoms(*conditional([0.5, 0.5, 0.0]))


def test_atoms_can_be_cut_and_spread():
    atoms = barker_atoms(*conditional([0.2, 0.5, 0.3]))
    spread = atoms.spread(np.array([True, False, True, False, True]))
    assert spread.coefficients.shape == (5, 3)
    assert_array_equal(spread.coefficients[[1, 3]], 0.0)
    assert_array_equal(spread[0:5:2].coefficients, atoms.coefficients)


# ------------------------------------------------------------------------ targets


def test_kinds_of_targets():
    assert is_continuous(GaussianMRF([[1.0]], [0.0]))
    assert not is_continuous(FactorGraph([], [2]))
    assert is_continuous(Circuit(Gaussian(0, 0.0, 1.0)))
    assert not is_continuous(Circuit(Categorical(0, [0.5, 0.5])))
    assert not is_continuous(Circuit(Gaussian(0, 0.0, 1.0) * Categorical(1, [0.5, 0.5])))
    with pytest.raises(TypeError, match="target must have log_prob_unnormalized"):
        is_continuous("target")


def test_state_counts_of_circuits_and_arrays():
    circuit = Circuit(Product([Categorical(2, [0.5, 0.5]), Categorical(0, [0.2, 0.3, 0.5])]))
    assert_array_equal(state_counts(circuit, 4), [3, 1, 2, 1])
    assert_array_equal(state_counts(FactorGraph([], [2, 5]), 2), [2, 5])
    with pytest.raises(ValueError, match="have the 2 columns of the target"):
        state_counts(FactorGraph([], [2, 5]), 3)


def test_full_conditional_by_any_means():
    rng = np.random.default_rng(0)
    graph = FactorGraph([((0, 1), rng.uniform(0.1, 1, (3, 2)))], [3, 2])
    rows = np.array([[0, 1], [2, 0]], dtype=float)
    # What does not know its graph is evaluated at every state.
    plain = SimpleNamespace(
        cardinalities=graph.cardinalities, log_prob_unnormalized=graph.log_prob_unnormalized
    )
    expected = graph.log_full_conditionals(rows)
    for target in (graph, plain):
        found = dict(full_conditionals(target, rows))
        assert list(found) == [0, 1]
        assert_allclose(found[0], expected[0])
        assert_allclose(found[1], expected[1])
    ((variable, summed),) = full_conditionals(graph, np.array([[0, np.nan]]))
    assert variable == 0
    assert_allclose(summed, [np.log(np.exp(graph.factors[0].log_table).sum(axis=1))])


# ------------------------------------------------------------------------ kernels as tables


@pytest.mark.parametrize(
    "kernel",
    [
        Hamming(2.0),
        Delta(),
        RBF(0.3),
        Laplacian(0.4),
        Hamming(2.0, variables=[1]) * RBF(0.2, variables=[0, 2]),
        0.3 * Delta() + 2.0 * Hamming(1.0) * RBF(0.5),
    ],
    ids=str,
)
def test_terms_rebuild_the_kernel(kernel):
    counts = np.array([3, 1, 4])
    rows = np.random.default_rng(0).integers(counts, size=(10, 3))
    values = np.zeros((10, 10))
    for term in product_terms(kernel, counts):
        product = np.full((10, 10), term.weight)
        for variable, table in term.tables.items():
            product *= table[np.ix_(rows[:, variable], rows[:, variable])]
        values += product
    assert_allclose(values, kernel(rows.astype(float), rows.astype(float)), rtol=1e-12)


def test_kernels_that_are_no_products():
    counts = np.array([2, 2])
    assert product_terms(Polynomial(degree=2), counts) is None
    assert product_terms(Linear() + Delta(), counts) is None
    assert product_terms(lambda X, Y: np.ones((len(X), len(Y))), counts) is None


# ------------------------------------------------------------------------ blocks


@pytest.mark.parametrize("operator", ["barker", "difference"])
@pytest.mark.parametrize("kernel", [Delta(), 0.3 * Delta() + Hamming(2.0)], ids=["delta", "sum"])
def test_product_rule_equals_the_plain_sum(operator, kernel):
    rng = np.random.default_rng(0)
    counts = (3, 2, 4, 1, 2)
    scopes = [(0, 1), (1, 2), (2, 4)]
    graph = FactorGraph([(s, rng.uniform(0.1, 1, [counts[v] for v in s])) for s in scopes], counts)
    measures = stein_measures(graph, rng.integers(counts, size=(30, 5)).astype(float), operator)
    left, right = measures[:12], measures[12:]
    expected = point_block(left, right, kernel=kernel)
    terms = product_terms(kernel, graph.cardinalities)
    block = product_block(state_vectors(left), state_vectors(right), terms=terms)
    assert_allclose(block, expected, rtol=1e-10, atol=1e-12)
    assert set(measures.atoms) == {0, 1, 2, 4}


def test_contraction_and_moved_rows():
    rows = moved_rows(np.array([[0.0, 9.0], [1.0, 8.0]]), 0, np.array([[2, 3], [4, 5]]))
    assert_array_equal(rows, [[2, 9], [3, 9], [4, 8], [5, 8]])
    atoms = barker_atoms(*conditional([0.2, 0.8]))
    values = np.random.default_rng(0).normal(size=(4, 4))
    expected = [
        [
            sum(
                atoms.coefficients[i, a] * atoms.coefficients[j, b] * values[2 * i + a, 2 * j + b]
                for a in range(2)
                for b in range(2)
            )
            for j in range(2)
        ]
        for i in range(2)
    ]
    assert_allclose(contract(atoms, atoms, values), expected)


def test_continuous_circuits_are_no_categorical_targets():
    circuit = Circuit(Gaussian(0, 0.0, 1.0) * Categorical(1, [0.5, 0.5]))
    with pytest.raises(CircuitPropertyError, match=r"continuous_variables=\[0\]"):
        state_counts(circuit, 2)
