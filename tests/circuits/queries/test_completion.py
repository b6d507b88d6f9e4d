"""Most probable completions and samples."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from sklearn import config_context

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    MultivariateGaussian,
    Product,
    Sum,
)
from skcircuits.exceptions import CircuitPropertyError, ZeroProbabilityError
from tests.reference.case import QueryCase, for_seeds
from tests.reference.enumeration import Completions, unit_values
from tests.reference.random_circuits import deterministic_circuit, random_circuit, random_rows


class TestExactCompletion(QueryCase):
    """The completed row is as probable as the most probable one of all."""

    def circuit(self, seed):
        return deterministic_circuit(seed)

    def query(self, circuit, X):
        completed = circuit.mpe(X)
        np.testing.assert_array_equal(completed[~np.isnan(X)], X[~np.isnan(X)])
        return unit_values(circuit, completed)

    def expected(self, completions):
        return completions.best()


@for_seeds(60)
def test_max_product_bounds_the_best_completion_from_below(seed):
    circuit = random_circuit(seed, discrete=True)
    X = random_rows(np.random.default_rng(seed), circuit, 3)
    found = unit_values(circuit, circuit.mpe(X, method="max_product"))
    best = np.array([Completions(circuit, x).best() for x in X])
    assert (found > 0).all()
    assert (found <= best * (1 + 1e-12)).all()


def test_a_search_finds_most_of_the_best_completions():
    n_found = {"max_product": 0, "search": 0}
    for seed in range(60):
        circuit = random_circuit(seed, discrete=True)
        X = random_rows(np.random.default_rng(seed), circuit, 4, missing=0.7)
        best = np.array([Completions(circuit, x).best() for x in X])
        values = {}
        for method in n_found:
            completed = circuit.mpe(X, method=method)
            np.testing.assert_array_equal(completed[~np.isnan(X)], X[~np.isnan(X)])
            values[method] = unit_values(circuit, completed)
            n_found[method] += (values[method] > best * (1 - 1e-9)).sum()
        assert (values["search"] >= values["max_product"] * (1 - 1e-12)).all()
        # No row depends on the others
        np.testing.assert_array_equal(circuit.mpe(X[1:2], method="search")[0], completed[1])
    # An ascent from the best start alone finds 96.7 percent
    assert n_found["search"] > 0.975 * 240
    assert n_found["max_product"] < 0.75 * 240


def test_a_search_is_exact_for_deterministic_circuits():
    for seed in range(10):
        circuit = deterministic_circuit(seed)
        X = random_rows(np.random.default_rng(seed), circuit, 3)
        np.testing.assert_array_equal(circuit.mpe(X, method="search"), circuit.mpe(X))


def test_a_search_finds_the_mode_between_components():
    near = 0.5 * Gaussian(0, 0.0, 1.0) + 0.5 * Gaussian(0, 1.0, 1.0)
    circuit = Circuit(near * Bernoulli(1, 0.3))
    X = np.array([[np.nan, np.nan], [np.nan, 1.0], [7.0, np.nan]])
    found = circuit.mpe(X, method="search")
    np.testing.assert_allclose(found[:, 0], [0.5, 0.5, 7.0], atol=0.05)
    np.testing.assert_array_equal(found[:, 1], [0.0, 1.0, 0.0])


def test_a_search_changes_single_columns_that_are_not_better_together():
    """State 1 gains in either column, as all terms with it add up, but not in both."""
    terms = [(0.16, 0, 0)] + 3 * [(0.1, 1, 0)] + 3 * [(0.09, 0, 1)] + [(0.12, 2, 2), (0.15, 3, 3)]
    products = [Indicator(0, a, 4) * Indicator(1, b, 4) for _, a, b in terms]
    circuit = Circuit(Sum(products, [weight for weight, _, _ in terms]))
    np.testing.assert_array_equal(circuit.mpe([[np.nan] * 2], method="max_product"), [[0, 0]])
    np.testing.assert_array_equal(circuit.mpe([[np.nan] * 2], method="search"), [[1, 0]])


@for_seeds(30)
def test_a_search_compares_the_states_of_units_with_few_and_many(seed):
    """They are in different layers: states were compared by the units of one layer at a time."""
    rng = np.random.default_rng(seed)
    sizes = [[(3, 20)[(k + j) % 2] for j in range(3)] for k in range(8)]
    parameters = [[rng.dirichlet(np.full(n, 2.0)) for n in own] for own in sizes]
    weights = rng.dirichlet(np.full(8, 5.0))

    def found(n_states):
        padded = [[np.pad(p, (0, max(0, n_states - len(p)))) for p in own] for own in parameters]
        terms = [Product([Categorical(j, p) for j, p in enumerate(own)]) for own in padded]
        return Circuit(Sum(terms, weights=weights)).mpe(np.full((1, 3), np.nan), method="search")

    np.testing.assert_array_equal(found(0), found(20))


def test_exact_completion_needs_determinism():
    circuit = Circuit(0.5 * Bernoulli(0, 0.2) + 0.5 * Bernoulli(0, 0.7))
    with pytest.raises(CircuitPropertyError, match="Pass method='search'"):
        circuit.mpe([[np.nan]])
    with pytest.raises(ValueError, match="method must be 'exact', 'search' or 'max_product'"):
        circuit.mpe([[np.nan]], method="best")


def test_ties_go_to_the_first_term():
    circuit = Circuit(0.5 * Indicator(0, 1, 2) + 0.5 * Indicator(0, 0, 2))
    np.testing.assert_array_equal(circuit.mpe([[np.nan]] * 3), [[1.0]] * 3)


def test_completion_of_continuous_cells_is_the_conditional_mode():
    covariance = np.array([[1.0, 0.6], [0.6, 2.0]])
    circuit = Circuit(
        0.3 * Indicator(0, 0, 2) * MultivariateGaussian([1, 2], [0.0, 0.0], covariance)
        + 0.7 * Indicator(0, 1, 2) * MultivariateGaussian([1, 2], [5.0, 5.0], covariance)
    )
    completed = circuit.mpe([[0.0, 1.0, np.nan], [np.nan, 5.0, 5.0], [np.nan] * 3])
    np.testing.assert_allclose(completed, [[0, 1, 0.6], [1, 5, 5], [1, 5, 5]])


def test_samples_follow_the_distribution():
    """Chi-square over all joint states of a mixed-scope circuit with shared units."""
    circuit = random_circuit(8, discrete=True)
    rows = Completions(circuit, np.full(len(circuit.variables), np.nan))
    draws = circuit.sample(40_000, random_state=0)
    _assert_frequencies(rows, draws)


def test_completions_follow_the_conditional_distribution():
    circuit = random_circuit(8, discrete=True)
    X = random_rows(np.random.default_rng(1), circuit, 3, missing=0.7)
    draws = circuit.sample(20_000, X, random_state=0)
    assert draws.shape == (20_000, *X.shape)
    for x, completed in zip(X, draws.transpose(1, 0, 2)):
        _assert_frequencies(Completions(circuit, x), completed)


def _assert_frequencies(completions, draws):
    """Counts of every joint state agree with its probability."""
    possible = completions.mass > 0
    nodes = completions.nodes[possible]
    probabilities = completions.mass[possible] / completions.total
    distinct, counts = np.unique(draws, axis=0, return_counts=True)
    number = {tuple(node): i for i, node in enumerate(nodes)}
    observed = np.zeros(len(nodes))
    observed[[number[tuple(row)] for row in distinct]] = counts
    expected = probabilities * len(draws)
    # Rare states are pooled: the test needs a few expected counts per cell.
    rare = expected < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    filled = expected > 0
    if filled.sum() > 1:
        assert stats.chisquare(observed[filled], expected[filled]).pvalue > 1e-4


def test_continuous_samples_pass_kolmogorov_smirnov():
    circuit = Circuit(
        0.3 * MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]])
        + 0.7 * Gaussian(0, 3.0, 2.0) * Gaussian(1, -1.0, 0.5)
    )
    draws = circuit.sample(20_000, random_state=0)

    def cdf(values):
        open_side = np.full((len(values), 2), np.nan)
        upper = open_side.copy()
        upper[:, 1] = values
        return np.exp(circuit.log_prob_box(open_side, upper))

    assert stats.kstest(draws[:, 1], cdf).pvalue > 1e-3
    given = np.array([[2.0, np.nan]])
    completed = circuit.sample(20_000, given, random_state=1)[:, 0]
    np.testing.assert_array_equal(completed[:, 0], 2.0)
    mean, variance = circuit.expectation(given)[0, 1], circuit.variance(given)[0, 1]
    assert completed[:, 1].mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / 20_000))


def test_states_of_probability_zero_are_never_drawn():
    circuit = Circuit(Categorical(0, [0.0, 1.0, 0.0]) * Categorical(1, [0.5, 0.0, 0.5]))
    draws = circuit.sample(5_000, random_state=0)
    assert set(draws[:, 0]) == {1.0}
    assert set(draws[:, 1]) == {0.0, 2.0}
    # Nor by a uniform number that is exactly zero
    layer = Circuit(Categorical(0, [0.0, 0.0, 1.0])).plan.inputs[0][1]
    zeros = SimpleNamespace(random=np.zeros)
    assert layer.draw(np.zeros(1, int), np.full((1, 1), np.nan), zeros)[0, 0] == 2.0


def test_draws_depend_on_the_seed_only():
    circuit = random_circuit(4)
    X = random_rows(np.random.default_rng(0), circuit, 700)
    free, given = circuit.sample(700, random_state=3), circuit.sample(2, X, random_state=3)
    with config_context(working_memory=1e-3):
        np.testing.assert_array_equal(circuit.sample(700, random_state=3), free)
        np.testing.assert_array_equal(circuit.sample(2, X, random_state=3), given)
    assert (circuit.sample(700, random_state=4) != free).any()


def test_shapes_of_samples():
    circuit = Circuit(Bernoulli(1, 0.5) * Gaussian(3, 0.0, 1.0))
    draws = circuit.sample(5, random_state=0)
    assert draws.shape == (5, 4)
    assert circuit.sample().shape == (1, 4)
    # Columns of no variable stay unknown.
    assert np.isnan(draws[:, [0, 2]]).all() and not np.isnan(draws[:, [1, 3]]).any()
    assert circuit.sample(0, random_state=0).shape == (0, 4)
    assert circuit.sample(2, draws[:0], random_state=0).shape == (2, 0, 4)
    assert circuit.sample(0, draws, random_state=0).shape == (0, 5, 4)
    wide = np.column_stack([draws, np.arange(5)])
    np.testing.assert_array_equal(circuit.sample(1, wide, random_state=0)[0], wide)


def test_sampling_refuses_what_it_cannot_do():
    circuit = Circuit(Indicator(0, 0, 2) * Bernoulli(1, 0.5))
    with pytest.raises(ZeroProbabilityError, match="rows 1") as caught:
        circuit.sample(2, [[0.0, np.nan], [1.0, np.nan]], random_state=0)
    assert caught.value.rows == [1]
    for n_samples in (-1, 1.5, "two"):
        with pytest.raises(ValueError, match="n_samples must be a non-negative integer"):
            circuit.sample(n_samples)


def test_unnormalised_circuits_are_sampled_as_if_normalised():
    circuit = Circuit(3.0 * Bernoulli(0, 1.0) + 1.0 * Bernoulli(0, 0.0))
    draws = circuit.sample(20_000, random_state=0)
    assert draws.mean() == pytest.approx(0.75, abs=0.015)
