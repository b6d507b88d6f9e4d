"""Circuits given a sum of scores: against enumeration of all joint states."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from skcircuits.circuits import (
    Bernoulli,
    Circuit,
    Gaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Product,
    Sum,
)
from skcircuits.circuits.engine._passes import feedforward, input_buffer
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.queries._boxes import Evidence, Feature
from skcircuits.circuits.queries._scored import ScoredCircuit, Scores, _Random
from skcircuits.exceptions import CircuitPropertyError
from tests.reference.enumeration import unit_values
from tests.reference.random_circuits import RandomCircuit, random_cardinalities, random_circuit


def random_question(seed):
    """A discrete circuit, some unnormalised; evidence, scores of variables, accepted totals."""
    circuit = random_circuit(seed, discrete=True)
    if seed % 3 == 0:
        cardinalities = random_cardinalities(seed, discrete=True)
        circuit = RandomCircuit(seed, cardinalities, spread=10).circuit()
    rng = np.random.default_rng(seed)
    states = circuit.plan.cardinalities
    X = np.full((1, circuit.plan.n_columns), np.nan)
    if rng.random() < 0.3 and len(states) > 1:
        variable = int(rng.choice(list(states)))
        X[0, variable] = circuit.sample(1, random_state=seed)[0, variable]
    free = np.full(X.shape, np.nan)
    known = Evidence(X, Box(free, free.copy()))
    chosen = rng.choice(list(states), size=rng.integers(1, len(states) + 1), replace=False)
    scores, degree = {}, 0
    for variable in chosen.tolist():
        n = states[variable]
        nothing = np.full(n, np.nan)
        points = rng.integers(0, 4, n)
        scores[variable] = Scores(points - points.min(), nothing, nothing, np.eye(n, dtype=bool))
        degree += int(np.ptp(points))
    return circuit, known, scores, rng.random(degree + 1) < 0.6


def check(seed):
    circuit, known, scores, accepted = random_question(seed)
    states = circuit.plan.cardinalities
    axes = np.indices([states[v] for v in states]).reshape(len(states), -1).T.astype(float)
    rows = np.full((len(axes), circuit.plan.n_columns), np.nan)
    rows[:, list(states)] = axes
    mass = unit_values(circuit, np.nan_to_num(rows))
    total = sum(own.points[rows[:, v].astype(int)] for v, own in scores.items())
    agrees = (np.isnan(known.X[0]) | (rows == known.X[0])).all(axis=1)
    mass = np.where(accepted[total] & agrees, mass, 0.0)
    scored = ScoredCircuit(circuit.plan, known, scores, accepted)
    if mass.sum() == 0.0:
        assert np.isneginf(scored.log_mass()[0])
        return
    assert_allclose(scored.log_mass(), np.log(mass.sum()), rtol=1e-9, atol=1e-9)
    mass /= mass.sum()
    for variable, found in scored.state_probabilities().items():
        expected = np.bincount(rows[:, variable].astype(int), mass, states[variable])
        assert_allclose(found[0], expected, rtol=1e-9, atol=1e-12)
    mean, variance = scored.moments()
    expected = mass @ rows
    assert_allclose(mean[0], expected, rtol=1e-9, atol=1e-12)
    assert_allclose(variance[0], mass @ (rows - expected) ** 2, rtol=1e-7, atol=1e-10)
    features = [Feature(v, np.random.default_rng(v).normal(size=states[v])) for v in states]
    values = np.stack([own.values[rows[:, own.variable].astype(int)] for own in features])
    expected = np.cov(values, aweights=mass, ddof=0).reshape(len(features), -1)
    assert_allclose(scored.covariance(features)[0], expected, rtol=1e-8, atol=1e-11)
    check_best_row(scored, circuit, rows[accepted[total] & agrees])
    drawn = scored.sample(np.array([50]), np.random.default_rng(seed))
    columns = list(states)
    possible = {tuple(row) for row in rows[mass > 0.0][:, columns].tolist()}
    assert all(tuple(row) in possible for row in drawn[:, columns].tolist())


def check_best_row(scored, circuit, possible):
    """Against max-product at every complete row that is possible."""
    possible = possible[np.isfinite(circuit.log_prob(possible))]
    plan = circuit.plan
    inputs = input_buffer(plan, lambda layer: layer.log_prob(possible), (len(possible),))
    terms = feedforward(plan, inputs, "max")[plan.root]
    best, height = scored.mpe()
    columns = list(circuit.variables)
    found = (possible[:, columns] == best[:, columns]).all(axis=1)
    assert_allclose(terms[found], terms.max(), rtol=1e-9, atol=1e-9)
    assert_allclose(height, circuit.log_prob(best), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_answers_are_those_of_enumeration(seed):
    check(seed)


def test_joint_units_of_scored_variables_are_refused():
    circuit = Circuit(MultivariateGaussian([0, 1], [0.0, 0.0], np.eye(2)) * Bernoulli(2, 0.3))
    free = np.full((1, 3), np.nan)
    known, half = Evidence(free, Box(free, free.copy())), np.array([np.nan, 0.0])
    intervals = Scores(np.arange(2), half, half[::-1])
    with pytest.raises(CircuitPropertyError, match="have input units of single variables"):
        ScoredCircuit(circuit.plan, known, {0: intervals}, np.ones(2, dtype=bool))
    states = Scores(np.arange(2), *np.full((2, 2), np.nan), np.eye(2, dtype=bool))
    scored = ScoredCircuit(circuit.plan, known, {2: states}, np.array([False, True]))
    assert_allclose(np.exp(scored.log_mass()[0]), 0.3)


@pytest.mark.parametrize("points", [[1, 1, 1, 1, 1], [3, 1, 2, 1, 0], [1, 0, 2, 4, 3]])
def test_sums_over_products_of_many_factors_are_convolutions(points):
    """Each variable scores its points or nothing; what its probability is given each total."""
    p = np.array([0.2, 0.35, 0.5, 0.65, 0.9])
    circuit = Circuit(Product([Bernoulli(v, own) for v, own in enumerate(p)]))
    free = np.full((1, 5), np.nan)
    known = Evidence(free, Box(free, free.copy()))
    nothing = np.full(2, np.nan)
    scores = {
        v: Scores(np.array([0, own]), nothing, nothing, np.eye(2, dtype=bool))
        for v, own in enumerate(points)
    }
    rows = np.indices((2,) * 5).reshape(5, -1).T
    mass = np.where(rows, p, 1.0 - p).prod(axis=1)
    totals = rows @ points
    for total in range(sum(points) + 1):
        scored = ScoredCircuit(circuit.plan, known, scores, np.arange(sum(points) + 1) == total)
        own = mass * (totals == total)
        if not own.any():
            assert np.isneginf(scored.log_mass()[0])
            continue
        assert_allclose(np.exp(scored.log_mass()[0]), own.sum(), rtol=1e-12)
        assert_allclose(scored.moments()[0][0], own @ rows / own.sum(), rtol=1e-12, atol=1e-15)
        best, height = scored.mpe()
        assert_allclose(np.exp(height), own.max(), rtol=1e-12)
        drawn = scored.sample(np.array([20]), np.random.default_rng(total))
        assert (drawn @ points == total).all() and best[0] @ points == total


@pytest.mark.parametrize("far", [5.0, 1e308])
def test_parts_without_mass_change_nothing(far):
    # Under the second component both columns are beyond 1 with probability 3 / 11, under the
    # third, which is so narrow that 1e308 of its deviations overflow, with none
    components = [
        [PiecewisePolynomial(v, [0.0, 0.4, 1.0], [0.7, 0.3]) for v in (0, 1)],
        [PiecewisePolynomial(v, [0.2, 1.3], [1.0]) for v in (0, 1)],
        [Gaussian(v, 0.5, 0.01) for v in (0, 1)],
    ]
    circuit = Circuit(Sum([Product(own) for own in components], weights=[0.3, 0.6, 0.1]))
    free = np.full((1, 2), np.nan)
    found = []
    for n_parts in (2, 3):
        lower, upper = np.array([np.nan, 1.0, far]), np.array([1.0, far, np.nan])
        own = Scores(np.arange(n_parts), lower[:n_parts], upper[:n_parts])
        accepted = np.arange(2 * n_parts - 1) >= 1
        known = Evidence(free, Box(free, free.copy()))
        with np.errstate(invalid="ignore"):
            scored = ScoredCircuit(circuit.plan, known, {0: own, 1: own}, accepted)
            covariance = scored.covariance([Feature(0), Feature(1)])[0]
            found.append([scored.log_mass(), *scored.moments(), covariance])
    log_mass, mean, variance, covariance = found[1]
    assert_allclose(np.exp(log_mass), 0.6 * (1 - (8 / 11) ** 2))
    expected = (0.75 - 8 / 11 * 8 / 11 * 0.6) / (1 - (8 / 11) ** 2)
    assert_allclose(mean[0], [expected, expected])
    assert_allclose(np.diag(covariance), variance[0])
    assert covariance[0, 1] < 0.0
    for narrow, wide in zip(*found):
        assert_allclose(wide, narrow, rtol=1e-12)


def test_edges_of_weight_zero_set_no_scale():
    # Of two columns beyond 30 deviations the second, impossible, component has all the mass
    circuit = Circuit(
        Sum(
            [
                Product([Gaussian(v, 0.0, 1.0) for v in (0, 1)]),
                Product([Gaussian(v, 40.0, 1.0) for v in (0, 1)]),
            ],
            weights=[1.0, 0.0],
        )
    )
    free = np.full((1, 2), np.nan)
    far = Scores(np.array([0, 1]), np.array([np.nan, 30.0]), np.array([-30.0, np.nan]))
    known = Evidence(free, Box(free, free.copy()))
    scored = ScoredCircuit(circuit.plan, known, {0: far, 1: far}, np.array([False, False, True]))
    expected = 2 * stats.norm.logsf(30.0)
    assert_allclose(scored.log_mass(), expected, rtol=1e-12)
    assert_allclose(scored.moments()[0][0], [stats.truncnorm(30.0, np.inf).mean()] * 2, rtol=1e-6)


@pytest.mark.parametrize("total", [1e-3, 1.0, 50.0])
def test_columns_are_drawn_in_proportion_whatever_their_total(total):
    fractions = np.array([0.2, 0.0, 0.5, 0.3])
    weights = np.repeat(total * fractions[None], 4000, axis=0)
    drawn = _Random(np.random.default_rng(0)).columns(weights)
    counts = np.bincount(drawn, minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]], 4000 * fractions[[0, 2, 3]]).pvalue > 1e-3


@pytest.mark.slow
def test_many_answers_are_those_of_enumeration():
    for seed in range(1000, 1600):
        check(seed)
