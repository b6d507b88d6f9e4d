import numpy as np
import pytest

from skcircuits.circuits import Categorical, Circuit, is_decomposable, is_smooth
from skcircuits.trees._trees import TreeInference, conditional_tables, tree_unit
from skcircuits.trees.mixture_of_all_trees._model import sample_trees, sampled_circuit
from tests.trees.conftest import all_states


def _with_missing_values(cardinalities, seed=1):
    rows = all_states(cardinalities).astype(float)
    rows[np.random.default_rng(seed).random(rows.shape) < 0.4] = np.nan
    return rows, np.where(np.isnan(rows), -1, rows).astype(int)


def test_one_tree(mixed_model, two_components):
    _, parents = sample_trees(two_components, 5, np.random.default_rng(0))
    rows, codes = _with_missing_values(mixed_model.layout.cardinalities)
    evidence = mixed_model.layout.evidence(codes)[None]
    inference = TreeInference(
        parents, mixed_model.layout, mixed_model.nodes, mixed_model.ratios(), evidence
    )
    for parent, expected in zip(parents, inference.log_evidence, strict=True):
        model = mixed_model
        tables = conditional_tables(model.layout, model.nodes, model.pairs, parent)
        circuit = Circuit(tree_unit(tables, parent, Categorical))
        np.testing.assert_allclose(circuit.log_prob(rows), expected, atol=1e-10)


def test_mixture_of_drawn_trees(two_components):
    circuit = sampled_circuit(two_components, 12, np.random.default_rng(0), Categorical)
    components, parents = sample_trees(two_components, 12, np.random.default_rng(0))
    rows, codes = _with_missing_values(two_components.cardinalities)
    expected = 0.0
    for component, parent in zip(components, parents, strict=True):
        model = two_components.components[component]
        evidence = model.layout.evidence(codes)[None]
        inference = TreeInference(parent[None], model.layout, model.nodes, model.ratios(), evidence)
        expected = expected + np.exp(inference.log_evidence[0]) / 12
    np.testing.assert_allclose(np.exp(circuit.log_prob(rows)), expected, rtol=1e-9)


def test_circuit_is_well_formed(two_components):
    circuit = sampled_circuit(two_components, 20, np.random.default_rng(1), Categorical)
    assert is_smooth(circuit) and is_decomposable(circuit)
    assert np.exp(circuit.log_partition) == pytest.approx(1)


def test_equal_trees_are_merged(two_components):
    few = sampled_circuit(two_components, 1, np.random.default_rng(2), Categorical)
    many = sampled_circuit(two_components, 2000, np.random.default_rng(2), Categorical)
    # Four variables have sixteen trees, so two components have at most 32.
    assert many.n_units <= 40 * few.n_units
