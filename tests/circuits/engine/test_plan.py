"""Compiled plans: folded against plain, chunks, batches of weights."""

import numpy as np
import pytest
from sklearn import config_context

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Product,
    Sum,
)
from skcircuits.circuits.engine import _plan
from skcircuits.circuits.engine._layers import SumLayer, SumWeights
from skcircuits.circuits.engine._passes import backward, feedforward, input_buffer, log_values
from skcircuits.circuits.engine._plan import compile_plan
from skcircuits.exceptions import CircuitPropertyError
from tests.reference.case import for_seeds
from tests.reference.latent_trees import latent_tree
from tests.reference.random_circuits import random_circuit, random_rows


def by_unit(plan, values):
    """Values by symbolic unit, so that plans of different order can be compared."""
    return {id(unit): values[position] for position, unit in enumerate(plan.units)}


def plain_plan(root):
    """The plan in which no sums are folded to blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_plan, "MIN_BLOCK", np.inf)
        return compile_plan(root)


def assert_same_values(found, expected, rtol):
    for unit, values in expected.items():
        np.testing.assert_allclose(found[unit], values, rtol=rtol, atol=1e-12)


@pytest.fixture(params=range(4))
def dense(request):
    """A latent tree with dense sums and a table with missing values."""
    rng = np.random.default_rng(request.param)
    circuit = latent_tree(rng, n_variables=6, n_states=5, zeros=0.2)
    return circuit, random_rows(rng, circuit, 40)


def test_folded_and_plain_plans_agree(dense):
    circuit, X = dense
    folded, plain = compile_plan(circuit.root), plain_plan(circuit.root)
    assert any(layer.block_shape for layer in folded.sum_layers)
    assert not any(layer.block_shape for layer in plain.sum_layers)
    values, expected = log_values(folded, X), log_values(plain, X)
    assert_same_values(by_unit(folded, values), by_unit(plain, expected), 1e-11)
    flows, expected_flows = backward(folded, values), backward(plain, expected)
    assert_same_values(by_unit(folded, flows), by_unit(plain, expected_flows), 1e-9)


@pytest.mark.parametrize("move", ["log", "linear", "max"])
def test_moves_agree_between_plans(dense, move):
    circuit, X = dense
    results = []
    for compiled in (compile_plan, plain_plan):
        plan = compiled(circuit.root)
        values = input_buffer(plan, lambda layer: layer.log_prob(X), (len(X),))
        if move == "linear":
            n_inputs = plan.inputs[-1][0].stop
            values[:n_inputs] = np.exp(values[:n_inputs])
        results.append(by_unit(plan, feedforward(plan, values, move)))
    assert_same_values(*results, 1e-11)


def test_linear_values_may_be_signed(dense):
    """Input values of any sign: the pass is multilinear, so their signs come out."""
    circuit, X = dense
    plan, plain = compile_plan(circuit.root), plain_plan(circuit.root)
    rng = np.random.default_rng(0)
    signed = {id(unit): rng.normal(size=len(X)) for unit in plan.units}
    results = []
    for each in (plan, plain):
        values = np.array([signed[id(unit)] for unit in each.units])
        results.append(by_unit(each, feedforward(each, values, "linear")))
    assert_same_values(*results, 1e-9)


def test_dense_blocks_keep_digits_where_terms_underflow():
    """Children 700 nats apart: the small term decides the sums that do not see the large."""
    children = [
        Product([Categorical(v, [p, 1 - p]) for v in range(30)])
        for p in (np.exp(-24.0), np.exp(-0.5), np.exp(-26.0), np.exp(-12.0))
    ]
    rows = np.vstack([np.eye(4), np.full(4, 0.25), [[0.5, 0, 0.5, 0]] * 3])
    sums = [Sum(children, weights=row) for row in rows]
    circuit = Circuit(Sum(sums, weights=np.full(len(sums), 1 / len(sums))))
    X = np.zeros((3, 30))
    X[1, :15] = np.nan
    folded, plain = compile_plan(circuit.root), plain_plan(circuit.root)
    assert any(layer.block_shape for layer in folded.sum_layers)
    found, expected = log_values(folded, X), log_values(plain, X)
    assert found.min() < -700.0
    assert_same_values(by_unit(folded, found), by_unit(plain, expected), 1e-12)


@pytest.mark.parametrize("batch_shape", [(3,), (3, 4)])
def test_a_batch_of_weights_is_many_circuits(dense, batch_shape):
    circuit, X = dense
    plan = circuit.plan
    rng = np.random.default_rng(0)
    log_weights = plan.weights.log.reshape(-1, *[1] * len(batch_shape))
    log_weights = log_weights + rng.normal(size=(len(plan.weights.log), *batch_shape))
    x = X[:1]
    values = input_buffer(plan, lambda layer: layer.log_prob(x).reshape(-1, 1), (1,))
    batched = np.repeat(values.reshape(-1, *[1] * len(batch_shape)), batch_shape[0], axis=1)
    batched = np.broadcast_to(batched, (plan.n_units, *batch_shape)).copy()
    found = feedforward(plan, batched, weights=SumWeights(log_weights))[plan.root]
    for index in np.ndindex(batch_shape):
        single = feedforward(plan, values.copy(), weights=SumWeights(log_weights[:, *index]))
        np.testing.assert_allclose(found[index], single[plan.root, 0], rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_results_do_not_depend_on_the_working_memory(seed):
    circuit = random_circuit(seed)
    X = random_rows(np.random.default_rng(seed), circuit, 300)
    expected = [circuit.log_prob(X), circuit.expectation(X), circuit.variance(X)]
    with config_context(working_memory=1e-3):
        found = [circuit.log_prob(X), circuit.expectation(X), circuit.variance(X)]
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-10)


@for_seeds(20)
def test_a_row_scores_alike_alone_and_among_others(seed):
    circuit = random_circuit(seed)
    X = random_rows(np.random.default_rng(seed), circuit, 7)
    alone = np.concatenate([circuit.log_prob(x[None]) for x in X])
    np.testing.assert_allclose(alone, circuit.log_prob(X), rtol=1e-12)


def test_plans_place_children_before_parents():
    plan = random_circuit(5).plan
    assert plan.units[plan.root] is random_circuit(5).root
    for layer in plan.layers:
        assert layer.children.max() < layer.units.start
    ends = [layer.units.stop for layer in plan.layers]
    assert ends == sorted(ends)
    assert ends[-1] == plan.n_units


def test_small_blocks_are_not_folded():
    children = [Bernoulli(0, p) for p in (0.1, 0.9)]
    pair = [Sum(children, weights=[w, 1 - w]) for w in (0.2, 0.7)]
    plan = compile_plan(Sum(pair, weights=[0.5, 0.5]))
    assert all(isinstance(layer, SumLayer) and not layer.block_shape for layer in plan.layers)


def test_flows_add_up(dense):
    """Every complete explanation uses one input unit per variable."""
    circuit, X = dense
    plan = circuit.plan
    values = log_values(plan, X)
    flows = backward(plan, values)
    totals = np.zeros((len(circuit.variables), len(X)))
    for units, layer in plan.inputs:
        np.add.at(totals, layer.scopes[:, 0], flows[units])
    np.testing.assert_allclose(totals, 1.0, rtol=1e-10)
    doubled = backward(plan, values, root_flow=np.full(len(X), 2.0))
    np.testing.assert_allclose(doubled, 2 * flows, rtol=1e-12)


def test_states_are_counted_per_variable():
    """Variable 0 has units of two and of three states."""
    p = Bernoulli(0, 0.5) * Gaussian(1, 0.0, 1.0) * Categorical(2, [0.5, 0.5])
    q = Categorical(0, [0.2, 0.3, 0.5]) * Gaussian(1, 1.0, 1.0) * Bernoulli(2, 0.5)
    circuit = Circuit(0.5 * p + 0.5 * q)
    assert circuit.plan.cardinalities == circuit.cardinalities == {0: 3, 2: 2}
    assert {v: t.shape for v, t in circuit.marginals([[np.nan] * 3]).items()} == {
        0: (1, 3),
        2: (1, 2),
    }


SPIKE = PiecewisePolynomial(0, [-1.0, 1.0], [0.5], [0.0], [0.5])


@pytest.mark.parametrize(
    ("massive", "dense"),
    [
        (SPIKE, Gaussian(0, 0.0, 0.001)),
        (Categorical(0, [0.5, 0.5]), Gaussian(0, 0.0, 1.0)),
        (Categorical(0, [0.5, 0.5]), PiecewisePolynomial(0, [0.0, 1.0], [1.0])),
        (Categorical(0, [0.5, 0.5]), SPIKE),
    ],
)
def test_masses_of_one_family_among_densities_of_another_are_refused(massive, dense):
    circuit = Circuit(0.5 * massive * Bernoulli(1, 0.9) + 0.5 * dense * Bernoulli(1, 0.1))
    with pytest.raises(CircuitPropertyError, match="over variable 0 must be all discrete or all"):
        circuit.marginals([[0.0, np.nan]])


def test_joint_densities_among_masses_are_refused():
    pair = MultivariateGaussian([0, 1], [0.0, 0.0], np.eye(2))
    with pytest.raises(CircuitPropertyError, match="MultivariateGaussian', 'PiecewisePolynomial"):
        Circuit(0.5 * pair + 0.5 * SPIKE * Gaussian(1, 0.0, 1.0)).log_prob([[0.0, 0.0]])


def test_families_of_one_measure_may_be_mixed():
    """A mass beats the densities of its own family; densities of all families add up."""
    flat = PiecewisePolynomial(0, [-1.0, 1.0], [1.0])
    p = Circuit(0.5 * SPIKE * Bernoulli(1, 0.9) + 0.5 * flat * Bernoulli(1, 0.1))
    np.testing.assert_allclose(p.marginals([[0.0, np.nan]])[1], [[0.1, 0.9]], rtol=1e-12)
    mixed = Circuit(0.5 * flat + 0.5 * Gaussian(0, 0.0, 1.0))
    expected = 0.25 + 0.5 / np.sqrt(2.0 * np.pi)
    assert np.exp(mixed.log_prob([[0.0]])[0]) == pytest.approx(expected)
