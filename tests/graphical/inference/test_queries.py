"""Joint marginals, most probable states, entropies: against enumeration."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.graphical import BayesianNetwork, Factor, FactorGraph, IsingModel


def random_graph(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    states = np.array([2, 3, 2, 1, 3, 2, 2])
    scopes = [(0, 1), (1, 2), (2, 4), (4, 0, 3), (5,)]  # the last variable has no factor
    tables = [scale * rng.normal(size=states[list(scope)]) for scope in scopes]
    tables[2][0, 1] = -np.inf
    return FactorGraph(list(map(Factor, scopes, tables)), states)


def random_network(seed):
    rng = np.random.default_rng(seed)
    parents = [[], [0], [0, 1], [], [2, 3], [4], [1]]
    return BayesianNetwork(parents, [rng.dirichlet([1, 1, 1], [3] * len(p)) for p in parents])


MODELS = [random_graph(0), random_graph(1, scale=400.0), random_network(0)]
EVIDENCE = [None, {0: 1, 5: 0}, {4: 2}]


def joint_of(model, evidence):
    states = np.array(list(product(*map(range, model.cardinalities))), dtype=float)
    log_prob = model.log_prob_unnormalized(states)
    for variable, state in (evidence or {}).items():
        log_prob[states[:, variable] != state] = -np.inf
    weights = np.exp(log_prob - log_prob.max())
    return (weights / weights.sum()).reshape(model.cardinalities), log_prob


def marginal_of(joint, variables):
    kept = joint.sum(axis=tuple(v for v in range(joint.ndim) if v not in variables))
    return kept.transpose(np.argsort(np.argsort(variables)))


def entropy_of(table):
    return -sum(p * np.log(p) for p in table.ravel() if p > 0)


@pytest.mark.parametrize("model", MODELS, ids=["graph", "wide_range", "network"])
@pytest.mark.parametrize("evidence", EVIDENCE, ids=str)
def test_joint_marginals_and_information(model, evidence):
    joint, _ = joint_of(model, evidence)
    for variables in ([2], [4, 1], [6, 0, 5], [1, 3, 4, 2]):
        expected = marginal_of(joint, variables)
        found = model.joint_marginal(variables, evidence)
        assert_allclose(found, expected, rtol=1e-9, atol=1e-14)
        assert_allclose(model.entropy(variables, evidence), entropy_of(expected), atol=1e-9)
    assert_allclose(model.entropy(evidence=evidence), entropy_of(joint), rtol=1e-9, atol=1e-9)
    entropy = {
        group: entropy_of(marginal_of(joint, list(group)))
        for group in [(1, 4), (2, 4), (1, 2, 4), (4,)]
    }
    expected = entropy[1, 4] + entropy[2, 4] - entropy[1, 2, 4] - entropy[4,]
    assert_allclose(model.mutual_information([1], [2], [4], evidence), expected, atol=1e-9)


@pytest.mark.parametrize("model", MODELS, ids=["graph", "wide_range", "network"])
@pytest.mark.parametrize("evidence", EVIDENCE, ids=str)
def test_most_probable_states(model, evidence):
    _, log_prob = joint_of(model, evidence)
    row = np.full((1, 7), np.nan)
    for variable, state in (evidence or {}).items():
        row[0, variable] = state
    found = model.mpe(row)
    assert_allclose(model.log_prob_unnormalized(found)[0], log_prob.max(), rtol=1e-12)
    observed = ~np.isnan(row)
    assert_array_equal(found[observed], row[observed])


def test_most_probable_states_of_many_rows():
    model = random_graph(2)
    rows = model.sample(40, random_state=0)
    rows[np.random.default_rng(1).random(rows.shape) < 0.5] = np.nan
    together = model.mpe(rows)
    for row, found in zip(rows, together):
        assert_array_equal(found, model.mpe(row[None])[0])


def test_names_and_mistakes():
    model = BayesianNetwork(
        [[], [0]], [[0.5, 0.5], [[1.0, 0.0], [0.2, 0.8]]], variable_names=["rain", "wet"]
    )
    assert_allclose(model.joint_marginal(["wet", "rain"]), [[0.5, 0.1], [0.0, 0.4]])
    assert model.joint_marginal([]) == 1.0
    assert_allclose(model.mutual_information(["rain"], ["wet"]), model.mutual_information([1], [0]))
    for variables, message in [
        (["wet", 1], "variables must be different"),
        ([2], "variable must be between 0 and 1"),
        ("wet", "variables must be a sequence"),
        (["snow"], "variable must be one of"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.joint_marginal(variables)
    with pytest.raises(ZeroProbabilityError):
        model.mpe([[0.0, 1.0]])
    wide = FactorGraph([((v, v + 1), np.ones((9, 9))) for v in range(11)], [9] * 12)
    with pytest.raises(MemoryError):
        wide.joint_marginal(range(12))
    assert_allclose(wide.entropy(), 12 * np.log(9))


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, states: model.mutual_information([1], [2], states),
        lambda model, states: model.entropy(states),
        lambda model, states: model.joint_marginal(states),
    ],
)
def test_observed_states_are_not_taken_for_variables(ask):
    model = BayesianNetwork([[], [0], [0]], [[0.5, 0.5], np.eye(2), np.eye(2)])
    with pytest.raises(ValueError, match=r"variables must be .* Observed states are passed as "):
        ask(model, {0: 1})


def test_dataframes_with_names_in_every_query():
    frames = pytest.importorskip("pandas")
    tables = [[0.3, 0.7], [[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]]]
    names, states = ["a b", "é"], [["no", "yes"], ["1", "2", "x"]]
    model = BayesianNetwork([(), (0,)], tables, variable_names=names, state_names=states)
    frame = frames.DataFrame({"é": ["x", None, "1"], "a b": [None, "yes", "no"]})
    X = [[np.nan, 2.0], [1.0, np.nan], [0.0, 0.0]]
    for query in (model.conditional_marginals, model.mpe, model.log_prob_unnormalized):
        for found, expected in zip(query(frame), query(X)):
            np.testing.assert_array_equal(found, expected)
    drawn, expected = (model.sample(5, X=rows, random_state=0) for rows in (frame, X))
    np.testing.assert_array_equal(drawn, expected)


@pytest.fixture
def named():
    rng = np.random.default_rng(4)
    parents = [[], [0], [0, 1], [2]]
    counts = [2, 3, 4, 2]
    tables = [
        rng.dirichlet(np.ones(k), [counts[p] for p in given]) for given, k in zip(parents, counts)
    ]
    tables[1][0] = [0.0, 0.4, 0.6]
    return BayesianNetwork(
        parents,
        tables,
        variable_names=["rain", "wind", "sky", "walk"],
        state_names=[["no", "yes"], list("abc"), list("pqrs"), ["no", "yes"]],
    )


@pytest.mark.parametrize(
    ("query", "evidence"),
    [
        ({"rain": "yes"}, None),
        ({"rain": "yes", "wind": {"a", "c"}}, {"walk": "no"}),
        ({0: 1, "sky": [0, "q", 3.0]}, {"walk": 1, "wind": "b"}),
        ({"wind": {"a", "b", "c"}}, {"sky": "p"}),
        ({"wind": "a"}, {"rain": "no"}),
        ({"wind": "a", "rain": "yes"}, {"wind": "b"}),
        ({"wind": {"a", "b"}, "rain": "yes"}, {"wind": "b"}),
        ({}, {"walk": "yes"}),
    ],
)
def test_probabilities_of_named_states_are_those_of_all_states(named, query, evidence):
    states = np.array(list(np.ndindex(2, 3, 4, 2)))
    mass = np.exp(named.log_prob_unnormalized(states))

    def holds(conditions):
        is_true = np.ones(len(states), dtype=bool)
        for variable, wanted in (conditions or {}).items():
            v = named.variable_names.index(variable) if isinstance(variable, str) else variable
            several = [wanted] if isinstance(wanted, str | int) else list(wanted)
            numbers = [
                named.state_names[v].index(one) if isinstance(one, str) else int(one)
                for one in several
            ]
            is_true &= np.isin(states[:, v], numbers)
        return is_true

    given = holds(evidence)
    expected = mass[given & holds(query)].sum() / mass[given].sum()
    assert_allclose(named.probability(query, evidence), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"snow": "yes"}, "^variable must be one of"),
        ({"rain": "maybe"}, "state of variable 'rain' must be one of"),
        ({"rain": 2}, "state of variable 'rain' must be between 0 and 1"),
        ({"rain": []}, "states of variable 'rain' must be at least one"),
        ({"rain": 1, 0: 1}, "must be different"),
        ({"rain": 0.5}, "be a name or an integer"),
    ],
)
def test_queries_that_the_network_does_not_know(named, query, message):
    with pytest.raises(ValueError, match=message):
        named.probability(query)


def test_queries_are_mappings_and_given_the_possible(named):
    with pytest.raises(TypeError, match="query must be a mapping"):
        named.probability("rain == 'yes'")
    with pytest.raises(ZeroProbabilityError):
        named.probability({"walk": "yes"}, {"rain": "no", "wind": "a"})
    many = IsingModel.grid(1, 3)
    assert many.probability({v: {0, 1} for v in range(3)}) == 1.0
    wide = FactorGraph([], [3] * 20)
    with pytest.raises(ValueError, match="at most 100000 joint states"):
        wide.probability({v: {0, 1} for v in range(20)})


def test_draws_for_many_patterns_of_evidence_share_a_structure():
    """As by one structure per pattern, and of the right distribution."""
    rng = np.random.default_rng(0)
    model = IsingModel.grid(2, 4, couplings=0.4, fields=rng.normal(size=8) / 2)
    X = model.sample(60, random_state=0)
    X[rng.random(X.shape) < 0.5] = np.nan
    codes, missing = model._read_rows(X)
    assert any(group.switched for group in model._posteriors.groups(codes, missing))
    drawn = model.sample(4000, X=X, random_state=0)
    assert (drawn[:, ~np.isnan(X)] == X[~np.isnan(X)]).all()
    expected = np.array([table[:, 1] for table in model.conditional_marginals(X)]).T
    assert np.abs(drawn.mean(axis=0) - expected).max() < 0.04
