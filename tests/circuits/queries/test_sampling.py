"""The ways to choose an edge: all agree with the posterior of the edges."""

import numpy as np
import pytest
from scipy import stats

from skcircuits.circuits import Bernoulli, Circuit, Product, Sum
from skcircuits.circuits.engine._passes import backward, linear_values, log_values
from skcircuits.circuits.queries._completion import _Posterior, sample_completions
from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.numerics._random import RowStreams
from tests.reference.latent_trees import latent_tree
from tests.reference.random_circuits import random_circuit, random_rows


@pytest.fixture
def dense():
    rng = np.random.default_rng(0)
    circuit = latent_tree(rng, 6, 6, zeros=0.2)
    return circuit, random_rows(rng, circuit, 40)


def test_linear_and_log_values_give_the_same_draws(dense):
    circuit, X = dense
    plan = circuit.plan
    linear, log = linear_values(plan, X), log_values(plan, X)
    np.testing.assert_allclose(np.log(linear[plan.root]), log[plan.root], rtol=1e-11)
    chosen = []
    for values, is_log in ((linear, False), (log, True)):
        rng = np.random.default_rng(0)
        choose = _Posterior(plan, values, is_log).chooser(lambda pairs, places, rng=rng: rng, 1)
        edges = []
        for layer in plan.sum_layers:
            own, rows = np.nonzero(np.isfinite(log[layer.units]))
            edges.append(choose(layer, own, rows))
            if len(own) > 1:
                # Few of many pairs take the way of a gather instead of whole rows.
                edges.append(choose(layer, own[:1], rows[:1]))
        chosen.append(np.concatenate(edges))
    np.testing.assert_array_equal(*chosen)


@pytest.mark.parametrize("seed", [4, 8, 12])
def test_units_are_reached_as_often_as_their_flows_say(seed):
    """The fraction of draws that put a variable into a state is the exact marginal."""
    circuit = random_circuit(seed, discrete=True)
    X = random_rows(np.random.default_rng(seed), circuit, 4, missing=0.6)
    draws = circuit.sample(4000, X, random_state=0)
    for variable, expected in circuit.marginals(X).items():
        fractions = (draws[:, :, variable, None] == np.arange(expected.shape[1])).mean(axis=0)
        spread = np.sqrt(expected * (1 - expected) / 4000)
        assert (np.abs(fractions - expected) <= 5 * spread + 1e-12).all()
    flows = backward(circuit.plan, log_values(circuit.plan, X))
    assert flows.max() <= 1 + 1e-9


def test_rows_too_improbable_for_linear_values_are_drawn_in_log_space():
    tiny = np.exp(-30.0)
    parts = [
        Product([*(Bernoulli(v, tiny) for v in range(50)), Bernoulli(50, p)]) for p in (0.1, 0.9)
    ]
    circuit = Circuit(Sum(parts, weights=[0.25, 0.75]))
    X = np.ones((3, 51))
    X[:, 50] = np.nan
    assert linear_values(circuit.plan, X) is None
    draws = sample_completions(circuit.plan, X, 4000, np.random.default_rng(0))[:, :, 50]
    count = int(draws.sum())
    assert stats.binomtest(count, draws.size, 0.25 * 0.1 + 0.75 * 0.9).pvalue > 1e-3


def test_blocks_are_drawn_alike_with_many_and_few_rows(dense):
    """Marginals of completions of a folded circuit, drawn one row and many rows at a time."""
    circuit, X = dense
    exact = circuit.marginals(X[:1])
    alone = circuit.sample(20_000, X[:1], random_state=0)[:, 0]
    among = circuit.sample(1, np.repeat(X[:1], 20_000, axis=0), random_state=0)[0]
    for variable in circuit.variables:
        fraction = exact[variable][0, 1]
        spread = 5 * np.sqrt(fraction * (1 - fraction) / 20_000) + 1e-12
        assert abs(alone[:, variable].mean() - fraction) <= spread
        assert abs(among[:, variable].mean() - fraction) <= spread


def test_draws_of_a_row_do_not_depend_on_each_other(dense):
    """Pairs of draws of one row are spread like two draws from its posterior."""
    circuit, X = dense
    rows = np.full((5, X.shape[1]), np.nan)
    rows[1:, 0] = 0.0
    first, second = np.concatenate(
        [circuit.sample(2, rows, random_state=seed) for seed in range(1000)], axis=1
    )
    table = np.zeros((2, 2))
    np.add.at(table, (first[:, 1].astype(int), second[:, 1].astype(int)), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_a_draw_is_the_same_alone_and_among_others(dense):
    circuit, X = dense
    together = circuit.sample(3, X, random_state=RowStreams(X, 1))
    for row in range(5):
        alone = circuit.sample(3, X[[row]], random_state=RowStreams(X[[row]], 1))
        np.testing.assert_array_equal(alone[:, 0], together[:, row])


def test_streams_draw_without_rows_too(dense):
    circuit, X = dense
    nothing = np.full((1, X.shape[1]), np.nan)
    drawn = circuit.sample(3, random_state=RowStreams(nothing, 1))
    expected = circuit.sample(3, nothing, random_state=RowStreams(nothing, 1))
    np.testing.assert_array_equal(drawn, expected[:, 0])


def test_there_must_be_a_stream_for_every_row(dense):
    circuit, X = dense
    for rows in (None, X[:3]):
        with pytest.raises(ValueError, match="hold one stream per row"):
            circuit.sample(2, rows, random_state=RowStreams(X[:4], 1))


@pytest.mark.parametrize("n_samples", [True, 2.0, -1, "3"])
def test_numbers_of_samples_are_integers(n_samples):
    with pytest.raises(ValueError, match="n_samples must be a non-negative integer"):
        Circuit(Bernoulli(0, 0.5)).sample(n_samples)


def test_circuits_without_mass_are_told_apart_from_impossible_rows():
    zero = Circuit(Sum([Bernoulli(0, 0.5)], weights=[0.0]))
    for query in (zero.sample, zero.normalize, lambda: zero.expectation([[np.nan]])):
        with pytest.raises(ZeroProbabilityError, match="must be positive somewhere"):
            query()
