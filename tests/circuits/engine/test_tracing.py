"""Traces: one child per sum, all children per product, one input unit per variable."""

import numpy as np

from skcircuits.circuits.engine._passes import log_values, pairs_by_block, trace
from tests.reference.case import for_seeds
from tests.reference.latent_trees import latent_tree
from tests.reference.random_circuits import random_circuit


def first_edges(layer, own, rows):
    return layer.starts[own]


@for_seeds(30)
def test_every_row_reaches_one_input_unit_per_variable(seed):
    circuit = random_circuit(seed)
    reached = np.zeros((5, len(circuit.variables)), dtype=int)
    for layer, units, rows in trace(circuit.plan, 5, first_edges):
        for place in range(layer.scopes.shape[1]):
            np.add.at(reached, (rows, layer.scopes[units, place]), 1)
    assert (reached == 1).all()


def test_rows_may_go_different_ways():
    circuit = latent_tree(np.random.default_rng(0), 4, 5)
    plan = circuit.plan

    def choose(layer, own, rows):
        return layer.starts[own] + rows % layer.lengths[own]

    values = log_values(plan, np.full((1, 4), np.nan))
    assert np.isfinite(values).all()
    units_of_row = {row: [] for row in range(5)}
    for layer, units, rows in trace(plan, 5, choose):
        assert layer is plan.inputs[0][1]
        for unit, row in zip(units, rows):
            units_of_row[int(row)].append(int(unit))
    assert {len(units) for units in units_of_row.values()} == {4}
    assert len({tuple(units) for units in units_of_row.values()}) == 5


def test_pairs_are_grouped_by_block_in_order():
    circuit = latent_tree(np.random.default_rng(0), 8, 5)
    layer = next(layer for layer in circuit.plan.sum_layers if layer.block_shape)
    n_blocks, n_sums, _ = layer.block_shape
    own = np.array([n_sums, 0, n_sums + 2, 1])
    groups = {
        block: (pairs.tolist(), sums.tolist()) for block, pairs, sums in pairs_by_block(layer, own)
    }
    assert n_blocks > 1
    assert groups == {0: ([1, 3], [0, 1]), 1: ([0, 2], [0, 2])}
