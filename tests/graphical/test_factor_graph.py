"""Factor graphs against enumeration of all states."""

import pickle
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.graphical import Factor, FactorGraph, IsingModel

CARDINALITIES = [
    (2, 3, 2, 4),
    (2, 2, 2, 2, 2, 2),
    (3, 1, 2, 3),
]


def random_graph(cardinalities, seed=0, zeros=0.0):
    """Factors of one to three variables; the last variable has a factor of its own."""
    rng = np.random.default_rng(seed)
    d = len(cardinalities)
    factors = [((d - 1,), rng.uniform(0.2, 2, cardinalities[-1]))]
    for size in (2, 2, 3):
        scope = tuple(rng.permutation(d)[:size].tolist())
        table = rng.uniform(0.1, 2, [cardinalities[v] for v in scope])
        table[rng.random(table.shape) < zeros] = 0.0
        factors.append((scope, table))
    return FactorGraph(factors, cardinalities)


def all_states(cardinalities):
    return np.array(list(product(*map(range, cardinalities))), dtype=float)


def enumerate_probabilities(graph):
    """Multiply the tables state by state."""
    states = all_states(graph.cardinalities)
    weights = np.ones(len(states))
    for factor in graph.factors:
        cells = states[:, list(factor.scope)].astype(int)
        weights *= np.exp(factor.log_table)[tuple(cells.T)]
    return states, weights


@pytest.fixture(params=CARDINALITIES, ids=str)
def graph(request):
    return random_graph(request.param)


def test_log_prob_and_partition_equal_enumeration(graph):
    states, weights = enumerate_probabilities(graph)
    assert_allclose(graph.log_prob_unnormalized(states), np.log(weights), rtol=1e-12, atol=1e-12)
    assert_allclose(graph.log_partition(), np.log(weights.sum()), rtol=1e-12)


def test_missing_cells_are_summed_out(graph):
    states, weights = enumerate_probabilities(graph)
    rng = np.random.default_rng(1)
    rows = states[rng.integers(len(states), size=20)]
    rows[rng.random(rows.shape) < 0.5] = np.nan
    expected = [
        np.log(weights[((states == row) | np.isnan(row)).all(axis=1)].sum()) for row in rows
    ]
    assert_allclose(graph.log_prob_unnormalized(rows), expected, rtol=1e-12)


def test_conditional_marginals_equal_enumeration(graph):
    states, weights = enumerate_probabilities(graph)
    rng = np.random.default_rng(2)
    rows = states[rng.integers(len(states), size=10)]
    rows[rng.random(rows.shape) < 0.6] = np.nan
    tables = graph.conditional_marginals(rows)
    for index, row in enumerate(rows):
        agree = weights * ((states == row) | np.isnan(row)).all(axis=1)
        for variable, table in enumerate(tables):
            expected = np.bincount(
                states[:, variable].astype(int), agree, minlength=graph.cardinalities[variable]
            )
            assert_allclose(table[index], expected / agree.sum(), rtol=1e-10, atol=1e-14)


def test_full_conditional_is_the_normalised_slice(graph):
    states = all_states(graph.cardinalities)
    for variable, k in enumerate(graph.cardinalities):
        logits = graph.log_full_conditionals(states)[variable]
        assert logits.shape == (len(states), k)
        moved = states.repeat(k, axis=0)
        moved[:, variable] = np.tile(np.arange(k), len(states))
        joint = graph.log_prob_unnormalized(moved).reshape(-1, k)
        assert_allclose(logits - logits[:, :1], joint - joint[:, :1], rtol=1e-10, atol=1e-12)


def test_full_conditional_with_large_blanket_uses_several_tables():
    rng = np.random.default_rng(0)
    factors = [((0, j), rng.uniform(0.5, 2, (2, 3))) for j in range(1, 12)]
    graph = FactorGraph(factors, [2] + [3] * 11)
    rows = rng.integers(graph.cardinalities, size=(5, 12)).astype(float)
    flipped = rows.copy()
    flipped[:, 0] = 1 - rows[:, 0]
    logits = graph.log_full_conditionals(rows)[0]
    own = rows[:, 0].astype(int)
    difference = logits[range(5), 1 - own] - logits[range(5), own]
    expected = graph.log_prob_unnormalized(flipped) - graph.log_prob_unnormalized(rows)
    assert_allclose(difference, expected, rtol=1e-10)


def test_exact_samples_follow_the_marginals(graph):
    drawn = graph.sample(20_000, random_state=0)
    for variable, marginal in enumerate(graph.marginals()):
        fractions = np.bincount(drawn[:, variable].astype(int), minlength=len(marginal)) / 20_000
        assert_allclose(fractions, marginal, atol=0.02)


def test_completions_keep_observed_cells(graph):
    row = np.full(len(graph.cardinalities), np.nan)
    row[0] = 1
    drawn = graph.sample(4000, X=[row, row], random_state=0)
    assert drawn.shape == (4000, 2, len(row))
    assert (drawn[..., 0] == 1).all()
    marginal = graph.marginals({0: 1})[2]
    assert_allclose((drawn[:, 0, 2] == 1).mean(), marginal[1], atol=0.04)


def test_marginalize_keeps_the_rest(graph):
    rest = graph.marginalize([0, 2])
    rows = all_states(graph.cardinalities)[:7]
    kept = rows.copy()
    rows[:, [0, 2]] = np.nan
    kept[:, [0, 2]] = 0
    assert_allclose(rest.log_prob_unnormalized(kept), graph.log_prob_unnormalized(rows), rtol=1e-10)


def test_names_of_states_stay_after_other_variables_are_summed_out():
    graph = FactorGraph(
        [((0, 1), [[2, 1, 4], [1, 2, 3]])],
        [2, 3],
        variable_names=["sky", "ground"],
        state_names=[["sun", "rain"], ["dry", "damp", "wet"]],
    )
    rest = graph.marginalize([0])
    assert rest.state_names == (("any",), ("dry", "damp", "wet"))
    assert rest.probability({"ground": ["damp", "wet"]}) == pytest.approx(10 / 13)


def test_soften_is_positive_and_near():
    graph = random_graph((2, 2, 3), zeros=0.2)
    soft = graph.soften(1e-3)
    states = all_states(graph.cardinalities)
    assert np.isneginf(graph.log_prob_unnormalized(states)).any()
    assert np.isfinite(soft.log_prob_unnormalized(states)).all()
    assert_allclose(soft.marginals()[0], graph.marginals()[0], atol=0.01)
    with pytest.raises(ValueError, match=r"amount must be in \(0, 1\]"):
        graph.soften(0)


def test_neighbors_are_markov_blankets():
    graph = FactorGraph([((0, 1), np.ones((2, 2))), ((1, 2, 3), np.ones((2, 2, 2)))], [2] * 5)
    assert [blanket.tolist() for blanket in graph.neighbors] == [[1], [0, 2, 3], [1, 3], [1, 2], []]


def test_variables_without_factors_are_uniform():
    graph = FactorGraph([((0,), [1.0, 3.0])], [2, 4])
    assert_allclose(graph.marginals()[1], np.full(4, 0.25))
    assert_allclose(graph.log_partition(), np.log(16.0))
    assert_allclose(graph.gibbs_sample(4000, random_state=0)[:, 0].mean(), 0.75, atol=0.03)


def test_extreme_tables_stay_finite():
    table = np.array([[0.0, -9000.0], [-9000.0, -20_000.0]])
    graph = FactorGraph([Factor((0, 1), table), Factor((1, 2), table)], [2, 2, 2])
    assert_allclose(graph.log_partition({0: 1, 1: 1, 2: 1}), -40_000.0)
    assert_allclose(graph.marginals({0: 1})[1], [1.0, 0.0])


def test_single_variable_and_single_state():
    graph = FactorGraph([((0,), [2.0])], [1])
    assert_allclose(graph.log_partition(), np.log(2.0))
    assert_array_equal(graph.sample(3, random_state=0), np.zeros((3, 1)))


def test_gibbs_reaches_the_target_and_repeats(graph):
    drawn = graph.gibbs_sample(20_000, burn_in=50, n_chains=50, random_state=0)
    assert drawn.shape == (20_000, len(graph.cardinalities))
    for variable, marginal in enumerate(graph.marginals()):
        fractions = np.bincount(drawn[:, variable].astype(int), minlength=len(marginal)) / 20_000
        assert_allclose(fractions, marginal, atol=0.03)
    again = graph.gibbs_sample(20_000, burn_in=50, n_chains=50, random_state=0)
    assert_array_equal(drawn, again)


def test_collapsed_gibbs_samples_the_marginal():
    graph = random_graph((2, 3, 2, 2))
    drawn = graph.marginalize([1]).gibbs_sample(8000, burn_in=20, n_chains=40, random_state=0)
    assert (drawn[:, 1] == 0).all()
    assert_allclose(drawn[:, 2].mean(), graph.marginals()[2][1], atol=0.03)


def test_gibbs_escapes_an_impossible_start():
    graph = FactorGraph([((0, 1), [[0.0, 0.0], [0.0, 1.0]])], [2, 2])
    drawn = graph.gibbs_sample(5, burn_in=50, start=[[0, 0]], random_state=0)
    assert (drawn == 1).all()


def test_gibbs_refuses_chains_that_never_become_possible():
    # All twelve variables must be one at once, which moves of one of them hardly find.
    table = np.zeros((2,) * 12)
    table[(1,) * 12] = 1.0
    graph = FactorGraph([(range(12), table)], [2] * 12)
    start = np.array([np.ones(12), np.zeros(12)])
    with pytest.raises(ZeroProbabilityError, match="possible state during the burn-in") as caught:
        graph.gibbs_sample(4, burn_in=0, start=start, random_state=0)
    assert caught.value.rows == [1]
    with pytest.raises(ZeroProbabilityError, match="chains must find"):
        FactorGraph([((0,), [0.0, 0.0])], [2]).gibbs_sample(4, burn_in=3, random_state=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": -1}, "n_samples must be a non-negative integer"),
        ({"burn_in": -1}, "burn_in must be a non-negative integer"),
        ({"thin": 0}, "thin must be a positive integer"),
        ({"n_chains": 0}, "n_chains must be a positive integer"),
        ({"start": [[np.nan, 0]]}, "start must be complete rows"),
        ({"start": np.empty((0, 2))}, "start must be complete rows"),
        ({"start": [[2, 0]]}, "be states between 0 and 1"),
    ],
)
def test_gibbs_refuses_what_means_nothing(options, message):
    graph = FactorGraph([((0, 1), np.ones((2, 2)))], [2, 2])
    with pytest.raises(ValueError, match=message):
        graph.gibbs_sample(**{"n_samples": 3, "burn_in": 1, **options})


def test_no_samples_and_fewer():
    graph = FactorGraph([((0, 1), np.ones((2, 3)))], [2, 3])
    assert graph.sample(0).shape == (0, 2)
    assert graph.sample(0, X=[[np.nan, 1]]).shape == (0, 1, 2)
    assert graph.gibbs_sample(0, burn_in=1).shape == (0, 2)
    with pytest.raises(ValueError, match="n_samples must be a non-negative integer"):
        graph.sample(-1)


@pytest.mark.parametrize("variables", [[2], [-1]])
def test_variables_that_do_not_exist(variables):
    graph = FactorGraph([((0, 1), np.ones((2, 2)))], [2, 2])
    with pytest.raises(ValueError, match="variables must be below 2"):
        graph.marginalize(variables)
    with pytest.raises(ValueError, match="variables must be below 2"):
        graph.posterior(variables)


def test_pickle_and_clone(graph):
    assert clone(graph) is graph
    copy = pickle.loads(pickle.dumps(graph))
    states = all_states(graph.cardinalities)
    assert_array_equal(copy.log_prob_unnormalized(states), graph.log_prob_unnormalized(states))


def test_impossible_evidence_is_refused():
    graph = FactorGraph([((0, 1), [[1.0, 0.0], [0.0, 1.0]])], [2, 2])
    assert graph.log_partition({0: 0, 1: 1}) == -np.inf
    with pytest.raises(ZeroProbabilityError, match="evidence must have positive") as caught:
        graph.conditional_marginals([[0, np.nan], [0, 1]])
    assert caught.value.rows == [1]
    with pytest.raises(ZeroProbabilityError):
        graph.sample(1, X=[[0, 1]])


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([((0, 5), np.ones((2, 2)))], "name variables between 0 and 1"),
        ([((0, 0), np.ones((2, 2)))], "name each variable once"),
        ([((0, 1), np.ones((2, 3)))], "have shape"),
        ([((0,), np.ones((2, 2)))], "one axis per variable"),
        ([((0,), [1.0, -1.0])], "be non-negative"),
        ([((0,), [1.0, np.nan])], "be finite"),
    ],
)
def test_bad_factors(factors, message):
    with pytest.raises(ValueError, match=message):
        FactorGraph(factors, [2, 2])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0, 2]], "cells of column 1 of X must be states between 0 and 1"),
        ([[0.5, 0]], "cells of column 0"),
        ([[-1, 0]], "cells of column 0"),
        ([[0, np.inf]], "cells of column 1"),
        ([[0, 0, 0]], "have shape"),
        ([0, 0], "have shape"),
    ],
)
def test_bad_rows(rows, message):
    with pytest.raises(ValueError, match=message):
        FactorGraph([], [2, 2]).log_prob_unnormalized(rows)


def test_names_in_evidence():
    graph = FactorGraph(
        [((0, 1), [[2.0, 1.0], [1.0, 2.0]])],
        [2, 2],
        variable_names=["rain", "wet"],
        state_names=[["no", "yes"]] * 2,
    )
    assert_allclose(graph.marginals({"rain": "yes"})[1], [1 / 3, 2 / 3])
    assert_allclose(graph.marginals({"rain": 1})[1], graph.marginals([1, np.nan])[1])
    with pytest.raises(ValueError, match="variable of the evidence must be one of"):
        graph.marginals({"snow": "yes"})
    with pytest.raises(ValueError, match="state of variable 'rain'"):
        graph.marginals({"rain": "maybe"})
    with pytest.raises(ValueError, match="be between 0 and 1"):
        graph.marginals({7: 0})


def test_from_pgmpy_like_object():
    def factor(variables, values):
        states = {"a": ["no", "yes"], "b": ["x", "y", "z"]}
        return SimpleNamespace(
            variables=variables,
            values=np.asarray(values),
            state_names={v: states[v] for v in variables},
        )

    tables = [[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [1.0, 3.0]]
    factors = [factor(["b", "a"], tables[0]), factor(["a"], tables[1])]
    graph = FactorGraph.from_pgmpy(SimpleNamespace(get_factors=lambda: factors))
    assert graph.variable_names == ("b", "a")
    assert graph.cardinalities.tolist() == [3, 2]
    assert_allclose(graph.marginals({"b": "z"})[1], np.array([5, 18]) / 23)


def test_variables_of_pgmpy_without_factors_are_not_lost():
    table = SimpleNamespace(
        variables=["a", "b"], values=np.ones((2, 2)), state_names={"a": [0, 1], "b": [0, 1]}
    )
    model = SimpleNamespace(get_factors=lambda: [table], nodes=["a", "b", ("a", "b")])
    assert FactorGraph.from_pgmpy(model).variable_names == ("a", "b")
    model.nodes.append("c")
    with pytest.raises(ValueError, match=r"factor for every variable; got variables=\['c'\]"):
        FactorGraph.from_pgmpy(model)
    with pytest.raises(ValueError, match="factor for every variable"):
        FactorGraph.from_pgmpy(SimpleNamespace(get_factors=list, nodes=["c"]))


def test_repr_and_read_only():
    graph = FactorGraph([((0,), [1.0, 2.0])], [2])
    assert repr(graph) == "FactorGraph(1 variables, 1 factors)"
    with pytest.raises(ValueError, match="read-only"):
        graph.factors[0].log_table[0] = 1.0


def test_constant_factors_scale_and_nothing_else():
    plain = FactorGraph([((0, 1), [[1, 2, 3], [4, 5, 7]])], [2, 3])
    scaled = FactorGraph([((), 2.5), *plain.factors, Factor((), np.log(2.0))], [2, 3])
    X = np.array([[0, 1], [1, np.nan], [np.nan, np.nan]])
    difference = scaled.log_prob_unnormalized(X) - plain.log_prob_unnormalized(X)
    np.testing.assert_allclose(difference, np.log(5.0), rtol=1e-12)
    assert scaled.log_partition() == pytest.approx(np.log(5.0 * 22))
    for ours, theirs in zip(scaled.marginals({0: 1}), plain.marginals({0: 1})):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    np.testing.assert_allclose(scaled.compile().log_prob([[1, 2]]), np.log(7 / 22), rtol=1e-12)
    rest = scaled.marginalize([0, 1])
    assert rest.log_partition() == pytest.approx(np.log(5.0 * 22))
    assert scaled.soften(1.0).log_partition() == pytest.approx(np.log(5.0 * 22))
    assert scaled.gibbs_sample(3, burn_in=1, random_state=0).shape == (3, 2)
    again = pickle.loads(pickle.dumps(scaled))
    assert again.log_partition() == scaled.log_partition()
    with pytest.raises(ValueError, match="be non-negative"):
        FactorGraph([((), -1.0)], [2])


def test_full_conditionals_of_some_variables():
    model = IsingModel.grid(2, 3, couplings=0.4, fields=0.2)
    rows = model.sample(5, random_state=0)
    every = model.log_full_conditionals(rows)
    some = model.log_full_conditionals(rows, [4, 1])
    assert len(some) == 2
    assert (some[0] == every[4]).all() and (some[1] == every[1]).all()
    with pytest.raises(ValueError, match="between 0 and 5"):
        model.log_full_conditionals(rows, [6])


def test_full_conditionals_of_rows_without_some_variables():
    rng = np.random.default_rng(0)
    scopes = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (5,), (2, 6)]
    states = np.array([2, 3, 2, 3, 2, 2, 4])
    tables = [rng.random(states[list(scope)]) for scope in scopes]
    tables[0][1, 2] = tables[2][0] = 0.0
    graph = FactorGraph(list(zip(scopes, tables)), states)
    rows = rng.integers(states, size=(20, 7)).astype(float)
    rows[:, 2] = 1.0
    rows[:, [1, 4, 6]] = np.nan
    for variable, table in zip([0, 2, 3, 5], graph.log_full_conditionals(rows, [0, 2, 3, 5])):
        moved = np.repeat(rows, states[variable], axis=0)
        moved[:, variable] = np.tile(np.arange(states[variable]), len(rows))
        expected = np.exp(graph.log_prob_unnormalized(moved)).reshape(table.shape)
        expected /= expected.sum(axis=1, keepdims=True)
        found = np.exp(table - table.max(axis=1, keepdims=True))
        assert_allclose(found / found.sum(axis=1, keepdims=True), expected, rtol=1e-12)
    rows[0, 5] = np.nan
    with pytest.raises(ValueError, match="lack the same variables in all rows"):
        graph.log_full_conditionals(rows)
