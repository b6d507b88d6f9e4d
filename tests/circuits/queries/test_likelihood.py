"""Densities, marginals, boxes and partition functions against brute force."""

import numpy as np
import pytest

from skcircuits.circuits import Bernoulli, Categorical, Circuit, Gaussian, Product, Sum
from skcircuits.exceptions import CircuitPropertyError
from tests.reference.case import QueryCase, for_seeds
from tests.reference.random_circuits import (
    RandomCircuit,
    random_cardinalities,
    random_circuit,
    random_rows,
)


class TestLogProb(QueryCase):
    def query(self, circuit, X):
        return np.exp(circuit.log_prob(X))

    def expected(self, completions):
        return completions.total


class TestImpossibleCells(QueryCase):
    """States drawn without regard to the circuit: many rows have probability zero."""

    atol = 0.0

    def circuit(self, seed):
        return random_circuit(seed, discrete=True)

    def rows(self, rng, circuit):
        X = random_rows(rng, circuit, 2)
        states = np.array([rng.integers(n + 1, size=2) for n in circuit.cardinalities.values()]).T
        return np.where(np.isnan(X) | (rng.random(X.shape) < 0.5), X, states)

    def query(self, circuit, X):
        return np.exp(circuit.log_prob(X))

    def expected(self, completions):
        return completions.total


class TestBox(QueryCase):
    """Intervals with all kinds of ends, together with a set of states of one variable."""

    def circuit(self, seed):
        # Few enough variables to list all their states.
        cardinalities = random_cardinalities(seed, discrete=True)[-5:]
        return RandomCircuit(seed, cardinalities, structured=seed % 2 == 0).circuit()

    def rows(self, rng, circuit):
        return np.full((1, len(circuit.variables)), np.nan)

    def box(self, circuit):
        rng = np.random.default_rng(circuit.n_units)
        sides = np.sort(rng.integers(-1, 6, size=(2, len(circuit.variables))).astype(float), axis=0)
        sides[rng.random(sides.shape) < 0.3] = np.nan
        variable = int(rng.choice(circuit.variables))
        states = {variable: rng.random((1, circuit.cardinalities[variable])) < 0.6}
        return sides[:1], sides[1:], rng.choice(["both", "left", "right", "neither"]), states

    def query(self, circuit, X):
        lower, upper, closed, states = self.box(circuit)
        return np.exp(circuit.log_prob_box(lower, upper, closed=closed, states=states))

    def expected(self, completions):
        lower, upper, closed, states = self.box(completions.circuit)
        above = np.greater_equal if closed in ("both", "left") else np.greater
        below = np.less_equal if closed in ("both", "right") else np.less
        nodes = completions.nodes
        inside = (above(nodes, lower) | np.isnan(lower)) & (below(nodes, upper) | np.isnan(upper))
        for variable, mask in states.items():
            inside[:, variable] &= mask[0, nodes[:, variable].astype(int)]
        return completions.mass[inside.all(axis=1)].sum()


@for_seeds(40)
def test_a_bounded_continuous_variable_is_integrated(seed):
    """One interval, everything else open: Gauss-Legendre over densities of that variable."""
    circuit = random_circuit(seed, joint=False)
    rng = np.random.default_rng(seed)
    lower, upper = np.full((2, 1, len(circuit.variables)), np.nan)
    for variable in set(circuit.variables) - set(circuit.cardinalities):
        nodes, weights = np.polynomial.legendre.leggauss(80)
        low, high = np.sort(rng.normal(size=2))
        rows = np.full((80, len(circuit.variables)), np.nan)
        rows[:, variable] = low + (high - low) / 2 * (nodes + 1)
        expected = (high - low) / 2 * weights @ np.exp(circuit.log_prob(rows))
        lower[:, variable], upper[:, variable] = low, high
        np.testing.assert_allclose(np.exp(circuit.log_prob_box(lower, upper)), expected, rtol=1e-9)
        lower[:], upper[:] = np.nan, np.nan


def test_boxes_far_in_the_tail_keep_their_digits():
    circuit = Circuit(Gaussian(0, 0.0, 1.0))
    # log(1 - Φ(40)) by the asymptotic series of the Mills ratio
    x = 40.0
    expected = -(x**2) / 2 - np.log(x * np.sqrt(2 * np.pi)) + np.log1p(-1 / x**2 + 3 / x**4)
    found = circuit.log_prob_box([[x], [np.nan]], [[np.nan], [-x]])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_empty_and_full_boxes():
    circuit = Circuit(Bernoulli(0, 0.3) * Gaussian(1, 0.0, 1.0))
    lower = [[1.0, 2.0], [np.nan, np.nan], [0.0, 2.0]]
    upper = [[0.0, 1.0], [np.nan, np.nan], [1.0, 2.0]]
    np.testing.assert_array_equal(circuit.log_prob_box(lower, upper), [-np.inf, 0.0, -np.inf])


def test_infinite_bounds_are_open_bounds():
    circuit = Circuit(Bernoulli(0, 0.3) * Gaussian(1, 0.0, 1.0))
    found = circuit.log_prob_box([[-np.inf, -np.inf]], [[np.inf, 0.0]])
    np.testing.assert_allclose(np.exp(found), [0.5])


def test_state_masks_must_fit():
    circuit = Circuit(Bernoulli(0, 0.3) * Gaussian(1, 0.0, 1.0))
    nothing = np.full((1, 2), np.nan)
    for states in ({0: [[True]]}, {0: [[1, 0]]}):
        with pytest.raises(ValueError, match=r"states of variable 0 must be a boolean array"):
            circuit.log_prob_box(nothing, nothing, states=states)
    for variable in (1, 5):
        message = rf"must belong to discrete variables with states, \[0\]; got variable={variable}"
        with pytest.raises(ValueError, match=message):
            circuit.log_prob_box(nothing, nothing, states={variable: [[True, False]]})
    for closed in ("open", np.array(["both", "left"])):
        with pytest.raises(ValueError, match="closed must be one of"):
            circuit.log_prob_box(nothing, nothing, closed=closed)
    with pytest.raises(ValueError, match="lower and upper must have one shape"):
        circuit.log_prob_box(nothing, np.full((2, 2), np.nan))


def test_log_probabilities_far_below_the_smallest_float():
    """200 factors of e^-50 each: the log keeps nine digits where the value is no number."""
    tiny = np.exp(-50.0)
    circuit = Circuit(
        0.5 * Product([Bernoulli(v, tiny) for v in range(200)])
        + 0.5 * Product([Bernoulli(v, tiny / 2) for v in range(200)])
    )
    expected = -50.0 * 200 + np.log(0.5) + np.log1p(0.5**200)
    np.testing.assert_allclose(circuit.log_prob(np.ones((1, 200))), expected, rtol=1e-12)


def test_log_partition_of_unnormalised_circuits():
    circuit = Circuit(2.0 * Bernoulli(0, 0.5) * Gaussian(1, 0.0, 1.0) + 3.0 * _pair())
    assert circuit.log_partition == pytest.approx(np.log(5.0), rel=1e-14)
    assert circuit.normalize().log_partition == pytest.approx(0.0, abs=1e-14)


def _pair():
    return Product([Bernoulli(0, 0.1), Gaussian(1, 1.0, 2.0)])


def test_rows_without_any_observed_cell_and_empty_tables():
    circuit = random_circuit(3)
    width = len(circuit.variables)
    assert circuit.log_prob(np.full((1, width), np.nan)) == pytest.approx(0.0, abs=1e-12)
    assert circuit.log_prob(np.empty((0, width))).shape == (0,)
    nothing = np.empty((0, width))
    assert circuit.log_prob_box(nothing, nothing).shape == (0,)


def test_codes_that_are_no_state_have_probability_zero():
    circuit = Circuit(Categorical(0, [0.2, 0.8]) * Categorical(1, [0.1, 0.3, 0.6]))
    X = [[2.0, 0.0], [-1.0, 0.0], [0.5, 0.0], [1.0, 7.0], [1.0, 1e300]]
    assert np.isneginf(circuit.log_prob(X)).all()


def test_zero_times_an_impossible_child_is_zero():
    circuit = Circuit(Sum([Bernoulli(0, 1.0), Bernoulli(0, 0.5)], weights=[0.0, 1.0]))
    np.testing.assert_allclose(np.exp(circuit.log_prob([[0.0], [1.0], [np.nan]])), [0.5, 0.5, 1.0])


def test_missing_cells_need_a_smooth_and_decomposable_circuit():
    rough = Circuit(0.5 * Bernoulli(0, 0.5) + 0.5 * Bernoulli(1, 0.5))
    np.testing.assert_allclose(np.exp(rough.log_prob([[0.0, 1.0]])), [0.5])
    with pytest.raises(CircuitPropertyError, match="must be smooth and decomposable"):
        rough.log_prob([[np.nan, 1.0]])
    for query in (rough.expectation, rough.variance, rough.marginals, rough.mpe):
        with pytest.raises(CircuitPropertyError, match="smooth=False"):
            query([[0.0, 1.0]])


def test_tables_must_fit_the_circuit():
    circuit = Circuit(Gaussian(0, 0.0, 1.0) * Gaussian(2, 0.0, 1.0))
    with pytest.raises(ValueError, match="X must have at least 3 columns"):
        circuit.log_prob([[0.0, 0.0]])
    with pytest.raises(ValueError, match="X must be a table with two axes"):
        circuit.log_prob([0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="Look at row 1, column 2"):
        circuit.log_prob([[0.0, 0.0, 0.0], [0.0, 0.0, np.inf]])
    # Columns of no variable are ignored, whatever they hold.
    assert circuit.log_prob([[0.0, np.nan, 0.0, 5.0]]) == circuit.log_prob([[0.0, 9.0, 0.0]])
