"""Facts about circuits, and properties that hold for all of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skcircuits.circuits import Bernoulli, Categorical, Circuit, Gaussian, MultivariateGaussian
from tests.reference.random_circuits import RandomCircuit, random_rows

circuits = st.builds(
    lambda seed, cardinalities, structured: RandomCircuit(
        seed, cardinalities, structured=structured
    ).circuit(),
    st.integers(0, 2**32),
    st.lists(st.sampled_from([0, 2, 3, 4, 5]), min_size=1, max_size=6),
    st.booleans(),
)
seeds = st.integers(0, 2**32)


@given(circuits, seeds)
@settings(max_examples=25)
def test_probabilities_of_the_states_of_a_cell_add_up(circuit, seed):
    X = random_rows(np.random.default_rng(seed), circuit, 1)
    for variable, n_states in circuit.cardinalities.items():
        rows = np.repeat(X, n_states, axis=0)
        rows[:, variable] = np.arange(n_states)
        X[:, variable] = np.nan
        np.testing.assert_allclose(
            np.exp(circuit.log_prob(rows)).sum(), np.exp(circuit.log_prob(X))[0], rtol=1e-10
        )


@given(circuits, seeds)
@settings(max_examples=25)
def test_the_chain_rule(circuit, seed):
    """log p(x) = log p(x_o) + log p(x_m | x_o)."""
    rng = np.random.default_rng(seed)
    X = circuit.sample(1, random_state=rng)
    hidden = np.where(rng.random(X.shape) < 0.5, np.nan, X)
    hidden[0, rng.integers(X.shape[1])] = np.nan
    expected = circuit.log_prob(hidden) + circuit.condition(hidden[0]).log_prob(X)
    np.testing.assert_allclose(circuit.log_prob(X), expected, rtol=1e-9, atol=1e-9)


@given(circuits, seeds)
@settings(max_examples=25)
def test_boxes_grow_with_their_sides(circuit, seed):
    rng = np.random.default_rng(seed)
    centre = circuit.sample(1, random_state=rng)
    narrow, wide = np.sort(rng.uniform(0.1, 3.0, size=2))
    # One bounded variable: joint units bound few variables exactly.
    centre[0, np.arange(centre.shape[1]) != rng.integers(centre.shape[1])] = np.nan
    small = circuit.log_prob_box(centre - narrow, centre + narrow)
    large = circuit.log_prob_box(centre - wide, centre + wide)
    assert (small <= large + 1e-12).all()
    assert (large <= 1e-12).all()


@given(circuits, seeds)
@settings(max_examples=25)
def test_completed_and_drawn_rows_are_possible(circuit, seed):
    rng = np.random.default_rng(seed)
    X = random_rows(rng, circuit, 3)
    assert np.isfinite(circuit.log_prob(circuit.sample(2, X, random_state=rng)[0])).all()
    completed = circuit.mpe(X, method="max_product")
    assert np.isfinite(circuit.log_prob(completed)).all()
    assert (circuit.variance(X) >= 0).all()


def test_sizes():
    joint = MultivariateGaussian([2, 3], [0.0, 0.0], np.eye(2))
    circuit = Circuit(
        0.4 * Categorical(0, [0.2, 0.3, 0.5]) * Gaussian(1, 0.0, 1.0) * joint
        + 0.6 * Bernoulli(0, 0.5) * Gaussian(1, 1.0, 1.0) * joint
    )
    assert circuit.variables == (0, 1, 2, 3)
    assert circuit.cardinalities == {0: 3}
    assert circuit.n_units == 8
    assert circuit.n_edges == 8
    # one weight, 2 + 1 masses, 2 x 2 univariate and 2 + 3 joint parameters
    assert circuit.n_parameters == 1 + 3 + 4 + 5
    # Numbers of weights, children and parameters, and not many copies of them
    least = 8 * (2 + 8 + circuit.n_parameters)
    assert least <= circuit.size_in_bytes <= 10 * least


def test_a_circuit_is_a_target():
    circuit = Circuit(Bernoulli(0, 0.5))
    np.testing.assert_array_equal(circuit.log_prob_unnormalized([[1.0]]), circuit.log_prob([[1.0]]))


def test_queries_leave_the_table_alone():
    circuit = Circuit(0.5 * Bernoulli(0, 0.2) * Gaussian(1, 0.0, 1.0) + 0.5 * _joint_pair())
    X = np.array([[0.0, np.nan], [np.nan, 1.0], [np.nan, np.nan]] * 100)
    before = X.copy()
    circuit.log_prob(X)
    circuit.log_prob_box(X, X)
    circuit.expectation(X)
    circuit.variance(X)
    circuit.marginals(X)
    circuit.mpe(X, method="max_product")
    circuit.sample(2, X, random_state=0)
    circuit.condition(X[0])
    np.testing.assert_array_equal(X, before)


def _joint_pair():
    return Bernoulli(0, 0.9) * Gaussian(1, 3.0, 0.5)


def test_integers_that_no_float_can_hold():
    circuit = Circuit(Gaussian(0, 0.0, 1.0))
    queries = (
        circuit.log_prob,
        lambda X: circuit.log_prob_box(X, X),
        lambda X: circuit.sample(1, X),
        lambda X: circuit.condition(X[0]),
    )
    for query in queries:
        with pytest.raises(ValueError, match="must be numbers that a float can hold"):
            query([[10**400]])
