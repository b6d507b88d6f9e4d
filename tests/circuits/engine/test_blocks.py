"""Blocks of sums of any widths: every query against enumeration, for few rows and for many."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.reference.enumeration import Completions, unit_values
from tests.reference.latent_trees import blocks_of_any_widths
from tests.reference.random_circuits import random_rows

CARDINALITIES = [2, 3, 2, 4]


@pytest.fixture(params=range(8))
def case(request):
    """A circuit with folded sums, incomplete rows and their completions."""
    seed = request.param
    cardinalities = [*CARDINALITIES[: 3 + seed % 2], *([0] if seed % 3 == 0 else [])]
    circuit = blocks_of_any_widths(seed, cardinalities)
    X = random_rows(np.random.default_rng(seed), circuit, 6, 0.5)
    return circuit, X, [Completions(circuit, x) for x in X]


def test_some_sums_are_folded():
    shapes = [
        layer.block_shape
        for seed in range(8)
        for layer in blocks_of_any_widths(seed, CARDINALITIES).plan.sum_layers
        if layer.block_shape is not None
    ]
    assert any(n_blocks > 1 for n_blocks, _, _ in shapes)
    assert any(n_sums < n_children for _, n_sums, n_children in shapes)
    assert any(n_sums > n_children for _, n_sums, n_children in shapes)


@pytest.mark.parametrize("n_copies", [1, 100])
def test_probabilities_and_moments(case, n_copies):
    circuit, X, rows = case
    many = np.tile(X, (n_copies, 1))

    def check(found, expected):
        assert_allclose(found, np.tile(expected, (n_copies, 1)), rtol=1e-9, atol=1e-11)

    check(circuit.log_prob(many)[:, None], [[np.log(row.total)] for row in rows])
    means = np.array([row.expectation(lambda nodes: nodes) for row in rows])
    check(circuit.expectation(many), means)
    centred = [
        row.expectation(lambda nodes, mean=mean: (nodes - mean) ** 2)
        for row, mean in zip(rows, means)
    ]
    check(circuit.variance(many), centred)
    for variable, table in circuit.marginals(many).items():
        states = np.arange(table.shape[1])
        check(
            table,
            [
                row.expectation(lambda x, v=variable, own=states: x[:, v, None] == own)
                for row in rows
            ],
        )


def test_conditions_and_marginals(case):
    circuit, X, rows = case
    for x, row in zip(X, rows):
        if row.missing:
            found = circuit.condition(x).log_prob(row.nodes)
            assert_allclose(found, np.log(unit_values(circuit, row.nodes) / row.total), rtol=1e-9)
        observed = [v for v in circuit.variables if v not in row.missing]
        if observed and row.missing:
            found = circuit.marginalize(row.missing).log_prob(x[None])
            assert_allclose(found, np.log(row.total), rtol=1e-9)


def test_draws_follow_the_distribution(case):
    circuit, X, rows = case
    for x, row in zip(X[:3], rows):
        drawn = circuit.sample(4000, x[None], random_state=0)[:, 0]
        mean = row.expectation(lambda nodes: nodes)
        error = np.sqrt(row.expectation(lambda nodes, mean=mean: (nodes - mean) ** 2) / 4000)
        assert (np.abs(drawn.mean(axis=0) - mean) <= 5 * error + 1e-9).all()
        assert_allclose(
            np.cov(drawn.T, ddof=0),
            np.cov(row.nodes.T, aweights=row.mass, ddof=0),
            atol=0.15,
        )
