"""Circuits given observed cells and boxes: against boxes, quadrature and their own draws."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats
from sklearn import config_context

from skcircuits.circuits import (
    Categorical,
    Circuit,
    FactorGaussian,
    Gaussian,
    Indicator,
    JohnsonGaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Product,
    Sum,
)
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.inputs.restriction._evidence import NO_COLUMNS
from skcircuits.circuits.queries._boxes import (
    Evidence,
    Feature,
    RestrictedCircuit,
    feature_means,
)
from skcircuits.exceptions import CircuitPropertyError, ZeroProbabilityError
from tests.reference.case import for_seeds
from tests.reference.enumeration import Completions
from tests.reference.random_circuits import (
    RandomCircuit,
    random_cardinalities,
    random_circuit,
    random_rows,
)

NAN = np.nan
WEIGHTS = [0.2, 0.2, 0.1, 0.1, 0.1]


def mixed_circuit():
    """Columns: categorical, three joint Gaussians, a piecewise polynomial with atoms and tails."""
    first = MultivariateGaussian(
        [1, 2, 3], [0.0, 1, 2], [[1, 0.5, 0.2], [0.5, 2, 0.1], [0.2, 0.1, 1]]
    )
    second = MultivariateGaussian(
        [1, 2, 3], [1.0, -1, 0], [[1, -0.5, 0.2], [-0.5, 2, 0.4], [0.2, 0.4, 1]]
    )
    left = PiecewisePolynomial(
        4, [0.0, 1, 3, 4], WEIGHTS, [0.5, 2], [0.1, 0.05], [0.05, 0.1], [1.0, 2.0]
    )
    right = PiecewisePolynomial(
        4, [0.0, 1, 3], [0.2, 0.3, 0.3], [0.5, 2], [0.05, 0.05], [0.05, 0.05]
    )
    return Circuit(
        0.3 * Categorical(0, [0.2, 0.5, 0.3]) * first * left
        + 0.7 * Categorical(0, [0.6, 0.1, 0.3]) * second * right
    )


LOWER = np.array(
    [
        [NAN, 0, NAN, NAN, 0.2],
        [NAN, 0, -1, NAN, NAN],
        [NAN, NAN, NAN, 0, -2.0],
        [NAN, NAN, NAN, 2.0, 2.5],
        [NAN, NAN, NAN, NAN, 4.5],
        [NAN] * 5,
    ]
)
UPPER = np.array(
    [
        [NAN, 1, NAN, NAN, 2.5],
        [NAN, 1, 1, NAN, NAN],
        [NAN, NAN, NAN, 3, 4.0],
        [NAN, NAN, NAN, NAN, NAN],
        [NAN, NAN, NAN, NAN, 5.0],
        [NAN] * 5,
    ]
)
STATES = {0: np.array([[1, 1, 0]] * 5 + [[1, 1, 1]], dtype=bool)}


def evidence():
    X = np.full(LOWER.shape, NAN)
    X[0, 2], X[2, 0] = 0.5, 1
    return Evidence(X, Box(LOWER, UPPER, "both", STATES))


def test_masses_of_boxes_and_of_observed_cells():
    p, known = mixed_circuit(), evidence()
    log_mass = RestrictedCircuit(p.plan, known).log_mass()
    boxes = p.log_prob_box(LOWER, UPPER, states=STATES)
    np.testing.assert_allclose(log_mass[[1, 3, 4, 5]], boxes[[1, 3, 4, 5]], atol=1e-12)
    # A box given a cell, times the density of the cell
    given = p.condition(known.X[0])
    states = {0: STATES[0][:1]}
    expected = p.log_prob(known.X[:1]) + given.log_prob_box(LOWER[:1], UPPER[:1], states=states)
    np.testing.assert_allclose(log_mass[0], expected[0], atol=1e-12)


def test_moments_and_draws_agree():
    p, known, n = mixed_circuit(), evidence(), 20_000
    restricted = RestrictedCircuit(p.plan, known)
    mean, variance = restricted.moments()
    counts = np.full(len(LOWER), n)
    drawn = restricted.sample(counts, np.random.default_rng(0)).reshape(len(LOWER), n, 5)
    assert not (drawn < LOWER[:, None]).any() and not (drawn > UPPER[:, None]).any()
    assert (drawn[0, :, 2] == 0.5).all() and (drawn[2, :, 0] == 1).all()
    error = np.abs(drawn.mean(axis=1) - mean)
    assert (error <= 4 * np.sqrt(variance / n) + 1e-12).all()
    np.testing.assert_allclose(drawn.var(axis=1), variance, rtol=0.12, atol=1e-12)
    covariance = restricted.covariance([Feature(j) for j in range(5)])
    np.testing.assert_allclose(np.diagonal(covariance, axis1=1, axis2=2), variance, atol=1e-12)
    spread = np.sqrt(variance[:, :, None] * variance[:, None])
    sampled = np.stack([np.cov(rows.T) for rows in drawn])
    assert (np.abs(sampled - covariance) <= 0.1 * spread + 1e-12).all()
    for variable, masses in restricted.state_probabilities().items():
        seen = np.stack([np.bincount(r[:, variable].astype(int), minlength=3) for r in drawn]) / n
        np.testing.assert_allclose(seen, masses, atol=0.015)


@pytest.mark.parametrize("low, high", [(2.0, 3.5), (NAN, 2.9), (4.0, NAN), (3.0, 3.01)])
def test_one_gaussian_in_an_interval(low, high):
    known = Evidence(np.full((1, 1), NAN), Box(np.array([[low]]), np.array([[high]]), "both", {}))
    restricted = RestrictedCircuit(Circuit(Gaussian(0, 3.0, 0.2)).plan, known)
    ends = np.nan_to_num([low, high], nan=np.inf) * [-1 if np.isnan(low) else 1, 1]
    expected = stats.truncnorm(*(ends - 3.0) / 0.2, loc=3.0, scale=0.2)
    mean, variance = restricted.moments()
    assert (mean.item(), variance.item()) == pytest.approx(expected.stats(), rel=1e-6)
    drawn = restricted.sample(np.array([2000]), np.random.default_rng(0))[:, 0]
    assert stats.kstest(drawn, expected.cdf).pvalue > 0.01


def test_without_restrictions_they_are_the_queries_of_the_circuit():
    p = mixed_circuit()
    X = np.full((3, 5), NAN)
    X[1, [0, 2]], X[2, [1, 4]] = [1, 0.3], [0.2, 0.5]
    nothing = np.full(X.shape, NAN)
    restricted = RestrictedCircuit(p.plan, Evidence(X, Box(nothing, nothing)))
    mean, variance = restricted.moments()
    np.testing.assert_allclose(mean, p.expectation(X), atol=1e-12)
    np.testing.assert_allclose(variance, p.variance(X), atol=1e-12)
    np.testing.assert_allclose(restricted.log_mass(), p.log_prob(X), atol=1e-12)
    np.testing.assert_allclose(restricted.mpe()[0], p.mpe(X, method="search"), atol=1e-8)


@pytest.mark.parametrize(("low", "high"), [(0.2, 2.5), (-3.0, 0.4), (3.5, np.inf), (-np.inf, 0.7)])
def test_polynomial_units_against_quadrature(low, high):
    unit = PiecewisePolynomial(
        0, [0.0, 1, 3, 4], WEIGHTS, [0.5, 2], [0.1, 0.05], [0.05, 0.1], [1.0, 2.0]
    )
    p = Circuit(unit)
    box = Box(np.array([[low]]), np.array([[high]]))
    restricted = RestrictedCircuit(p.plan, Evidence(np.array([[NAN]]), box))
    breaks = [-60, 0, 0.5, 1, 2, 3, 4, 120]
    ends = np.unique(np.clip(breaks, low, high))
    nodes, weights = np.polynomial.legendre.leggauss(80)
    total = first = second = 0.0
    for a, b in pairwise(ends):
        x = a + (b - a) * (nodes + 1) / 2
        density = np.exp(p.log_prob(x[:, None])) * weights * (b - a) / 2
        total, first, second = (
            total + density.sum(),
            first + density @ x,
            second + density @ x**2,
        )
    for atom, mass in zip(unit.atoms, unit.atom_masses):
        if low <= atom <= high:
            total, first, second = total + mass, first + mass * atom, second + mass * atom**2
    mean, variance = restricted.moments()
    np.testing.assert_allclose(mean[0, 0], first / total, rtol=1e-8)
    np.testing.assert_allclose(variance[0, 0], second / total - (first / total) ** 2, rtol=1e-7)
    drawn = restricted.sample(np.array([5000]), np.random.default_rng(1))[:, 0]
    below = np.exp(p.log_prob_box(np.full((5000, 1), low), drawn[:, None])) / total
    just_below = (
        np.exp(p.log_prob_box(np.full((5000, 1), low), drawn[:, None], closed="left")) / total
    )
    # Distribution functions at draws are uniform, spread over the jump at atoms
    uniform = just_below + np.random.default_rng(2).random(5000) * (below - just_below)
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(("low", "high"), [(0.2, 2.5), (0.6, 0.9), (-3.0, 0.4), (3.5, 9.0)])
def test_polynomial_units_are_highest_at_their_modes(low, high):
    weights = np.array([0.1, 0.3, 0.05, 0.3, 0.1])
    p = Circuit(
        PiecewisePolynomial(
            0, [0.0, 1, 3, 4], weights, tail_masses=[0.05, 0.1], tail_scales=[1.0, 2.0]
        )
    )
    box = Box(np.array([[low]]), np.array([[high]]))
    best, _ = RestrictedCircuit(p.plan, Evidence(np.array([[NAN]]), box)).mpe()
    assert low <= best[0, 0] <= high
    grid = np.linspace(low, high, 20_001)[:, None]
    assert p.log_prob(best)[0] == pytest.approx(p.log_prob(grid).max(), abs=1e-6)


def test_modes_are_the_best_points_of_boxes():
    p, known = mixed_circuit(), evidence()
    best, heights = RestrictedCircuit(p.plan, known).mpe()
    assert not (best < LOWER).any() and not (best > UPPER).any()
    rng = np.random.default_rng(0)
    drawn = RestrictedCircuit(p.plan, known).sample(np.full(len(best), 500), rng)
    terms = [Circuit(child) for child in p.root.children]
    weights = np.log(p.root.weights)
    values = np.max([t.log_prob(drawn) + w for t, w in zip(terms, weights)], axis=0)
    assert (values.reshape(len(best), -1) <= heights[:, None] + 1e-9).all()


def test_searched_rows_are_allowed_and_hardly_ever_below_the_best():
    n_best, n_rows = 0, 0
    for seed in range(20):
        p, rng = random_circuit(seed, discrete=True), np.random.default_rng(seed)
        cardinalities, (x,) = p.cardinalities, random_rows(rng, p, 1)
        allowed = {v: rng.random((1, n)) < 0.7 for v, n in cardinalities.items()}
        nothing = np.full((1, len(x)), NAN)
        rows = Completions(p, x).nodes
        masks = [allowed[v][0, rows[:, v].astype(int)] | ~np.isnan(x[v]) for v in cardinalities]
        for v in cardinalities:
            allowed[v] |= ~np.isnan(x[v])
        rows = rows[np.all(masks, axis=0)]
        heights = p.log_prob(rows) if len(rows) else np.array([-np.inf])
        if np.isneginf(heights.max()):
            continue
        box = Box(nothing, nothing, states=allowed)
        best, height = RestrictedCircuit(p.plan, Evidence(x[None], box)).mpe()
        assert (rows == best).all(axis=1).any()
        assert height == pytest.approx(p.log_prob(best), rel=1e-12, abs=1e-12)
        n_best += height[0] > heights.max() - 1e-9
        n_rows += 1
    assert n_best >= 0.9 * n_rows


def test_searched_rows_agree_with_evidence_that_some_children_of_the_root_exclude():
    p = Circuit(
        0.4 * Indicator(0, 0, 2) * Categorical(1, [0.9, 0.1])
        + 0.6 * Categorical(0, [0.8, 0.2]) * Categorical(1, [0.3, 0.7])
    )
    nothing = np.full((1, 2), NAN)
    for x, states in [([1.0, NAN], {}), ([NAN, NAN], {0: np.array([[False, True]])})]:
        known = Evidence(np.array([x]), Box(nothing, nothing, states=states))
        best, height = RestrictedCircuit(p.plan, known).mpe()
        np.testing.assert_array_equal(best, [[1.0, 1.0]])
        np.testing.assert_allclose(height, p.log_prob(best))


def test_searched_rows_do_not_leave_their_boxes_by_rounding_errors():
    # The best second cell lies between the components, all of which have the first at its bound
    means = [[4.0, m] for m in (0.0, 0.6, 1.1, 1.7)]
    units = [MultivariateGaussian([0, 1], mean, np.eye(2)) for mean in means]
    p = Circuit(Sum(units, [0.25] * 4))
    upper = np.column_stack([np.random.default_rng(0).uniform(0.0, 2.0, 100), np.full(100, NAN)])
    free = np.full(upper.shape, NAN)
    best, _ = RestrictedCircuit(p.plan, Evidence(free, Box(free, upper))).mpe()
    assert (best[:, 0] <= upper[:, 0]).all()
    assert (np.abs(best[:, 1] - 0.85) < 0.1).all()


def numbers_and_a_category(rng):
    """A mixture over two integers that may have point masses, another one, and a category."""

    def numbers(variable):
        knots = np.sort(rng.choice(12, 4, replace=False)) + 0.5
        atoms = np.unique(rng.integers(0, 12, 3)).astype(float)
        masses = rng.dirichlet(np.ones(3 + len(atoms)))
        return PiecewisePolynomial(variable, knots, masses[:3], atoms, masses[3:])

    def term():
        bell = Gaussian(1, rng.uniform(0, 11), rng.uniform(0.5, 3))
        return Product([numbers(0), bell, Categorical(2, rng.dirichlet(np.ones(3))), numbers(3)])

    return Circuit(Sum([term() for _ in range(6)], weights=rng.dirichlet(np.full(6, 3.0))))


def test_a_search_finds_nearly_all_of_the_best_integers_in_bounds():
    n_found, n_rows = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        circuit = numbers_and_a_category(rng)
        drawn, kind = np.round(circuit.sample(6, random_state=seed)), rng.random((6, 4))
        X = np.where(kind < 0.25, drawn, NAN)
        is_bounded = (kind > 0.25) & (kind < 0.5) & (np.arange(4) != 2)
        lower = np.where(is_bounded, drawn - rng.integers(0, 4, drawn.shape), NAN)
        upper = np.where(is_bounded, drawn + rng.integers(0, 4, drawn.shape), NAN)
        best = np.empty(6)
        for i, (x, low, high) in enumerate(zip(X, lower, upper)):
            supports = [np.arange(13.0), np.arange(-8.0, 22.0), np.arange(3.0), np.arange(13.0)]
            axes = [a if np.isnan(own) else np.array([own]) for own, a in zip(x, supports)]
            axes = [a[~((a < low[j]) | (a > high[j]))] for j, a in enumerate(axes)]
            best[i] = circuit.log_prob(np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 4)).max()
        possible = np.isfinite(best)
        box = Box(lower[possible], upper[possible])
        evidence = Evidence(X[possible], box, integers=np.array([0, 1, 3]))
        found, heights = RestrictedCircuit(circuit.plan, evidence).mpe()
        assert_allclose(circuit.log_prob(found), heights)
        assert ((found == evidence.X) | np.isnan(evidence.X)).all()
        assert not ((found < box.lower) | (found > box.upper)).any()
        assert (heights < best[possible] + 1e-9).all()
        n_found += (heights > best[possible] - 1e-9).sum()
        n_rows += len(heights)
    # An ascent from the best start alone finds 98.6 percent
    assert n_found >= 0.99 * n_rows > 300


@for_seeds(30)
def test_best_integers_of_joint_units_far_from_their_means_are_those_of_enumeration(seed):
    """Bounds move other columns: integers around the mean were as much as 600 nats too low."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(4, 4))
    mean, covariance = rng.normal(0.0, 3.0, 4), factors @ factors.T + 0.1 * np.eye(4)
    bounded, spreads = np.array([0, 2, 3]), np.sqrt(np.diag(covariance))
    lower, upper = np.full((2, 1, 4), NAN)
    lower[0, bounded] = (mean + rng.normal(0.0, 2.0, 4) * spreads)[bounded]
    lower[0, 0] = np.round(lower[0, 0]) - 0.5
    circuit = Circuit(MultivariateGaussian(range(4), mean, covariance))
    free = np.full((1, 4), NAN)
    whole = Evidence(free, Box(lower, upper), integers=np.array([0, 1]))
    found, height = RestrictedCircuit(circuit.plan, whole).mpe()
    assert_allclose(circuit.log_prob(found), height)

    # The best real numbers are known for each pair of integers
    around = np.round(RestrictedCircuit(circuit.plan, replace(whole, integers=NO_COLUMNS)).mpe()[0])
    pairs = around[0, :2] + np.indices((13, 13)).reshape(2, -1).T - 6.0
    pairs = pairs[pairs[:, 0] >= lower[0, 0]]
    rows, sides = np.full((2, len(pairs), 4), NAN)
    rows[:, :2], sides[:, 2:] = pairs, lower[0, 2:]
    known = Evidence(rows, Box(sides, np.full(sides.shape, NAN)))
    best = circuit.log_prob(RestrictedCircuit(circuit.plan, known).mpe()[0]).max()
    assert_allclose(height, [best], atol=1e-9)


def test_integers_are_searched_where_bounds_are_far_from_a_unit():
    """Its density there is no float, nor are its parts of the sum."""
    units = [Gaussian(0, mean, std) for mean, std in [(0.0, 1.0), (60.0, 2.0), (63.0, 2.0)]]
    circuit = Circuit(Sum(units, weights=[0.4, 0.3, 0.3]))
    box = Box(np.array([[50.5]]), np.array([[NAN]]))
    evidence = Evidence(np.array([[NAN]]), box, integers=np.array([0]))
    found, height = RestrictedCircuit(circuit.plan, evidence).mpe()
    scores = circuit.log_prob(np.arange(51.0, 80.0)[:, None])
    assert_allclose(height, [scores.max()])
    assert found[0, 0] in (61.0, 62.0)


def test_joint_modes_on_faces_of_boxes():
    p = Circuit(MultivariateGaussian([0, 1], [0.0, 0.0], [[1, 0.9], [0.9, 1]]))
    box = Box(np.array([[1.0, -1.0]]), np.array([[2.0, 0.5]]))
    best, _ = RestrictedCircuit(p.plan, Evidence(np.full((1, 2), NAN), box)).mpe()
    np.testing.assert_allclose(best, [[1.0, 0.5]], atol=1e-9)


def test_joint_units_of_columns_that_are_left_out_count_by_density():
    wide = MultivariateGaussian([0, 1], [0.0, 0.0], [[4.0, 1.0], [1.0, 4.0]])
    narrow = MultivariateGaussian([0, 1], [1.0, 3.0], [[0.01, 0.0], [0.0, 0.01]])
    p = Circuit(0.8 * wide + 0.2 * narrow)
    box = Box(np.array([[-1.0, NAN]]), np.array([[2.0, NAN]]))
    known = Evidence(np.full((1, 2), NAN), box)
    best, heights = RestrictedCircuit(p.plan, known).mpe(np.array([1]))
    np.testing.assert_allclose(best, [[1.0, 3.0]])
    # The second column is integrated out, where the wide component has more of the mass.
    assert heights[0] == pytest.approx(np.log(0.2) + stats.norm.logpdf(1.0, 1.0, 0.1))


def marginal_term(mean, covariance, point, box):
    """Log density of the first column times the probability of the others' sides given it."""
    gain, spread = covariance[1:, 0] / covariance[0, 0], covariance[1:, 1:].copy()
    spread -= np.outer(gain, covariance[0, 1:])
    moved = mean[1:] + gain * (point - mean[0])
    inner = stats.multivariate_normal(moved, spread, abseps=1e-9, releps=1e-9)
    ends = np.nan_to_num(box.lower[0, 1:], nan=-50.0), np.nan_to_num(box.upper[0, 1:], nan=50.0)
    mass = inner.cdf(ends[1], lower_limit=ends[0])
    return stats.norm.logpdf(point, mean[0], np.sqrt(covariance[0, 0])) + np.log(mass)


@pytest.mark.parametrize("factors", [False, True])
@pytest.mark.parametrize("first", [NAN, 0.5])
@pytest.mark.parametrize("width", [2, 3])
def test_intervals_of_columns_left_out_move_the_best_point_of_a_joint_unit(width, first, factors):
    loadings = np.array([[0.9], [0.9], [-0.5]])[:width]
    noise = np.full(width, 0.2)
    means = np.zeros(width), np.full(width, 1.5)
    covariance = loadings @ loadings.T + np.diag(noise)
    units = [
        FactorGaussian(range(width), mean, loadings, noise)
        if factors
        else MultivariateGaussian(range(width), mean, covariance)
        for mean in means
    ]
    p = Circuit(Sum(units, weights=[0.6, 0.4]))
    box = Box(
        np.array([[NAN, 1.0, -1.0]])[:, :width], np.array([[first, NAN, 0.5]])[:, :width], "both"
    )
    known = Evidence(np.full((1, width), NAN), box)
    best, heights = RestrictedCircuit(p.plan, known).mpe(np.arange(1, width))
    terms = []
    for weight, mean in zip([0.6, 0.4], means):
        # Log-concave: a bounded search finds the only maximum
        found = optimize.minimize_scalar(
            lambda x, mean=mean: -marginal_term(mean, covariance, x, box),
            bounds=(-4.0, np.fmin(first, 5.0)),
            method="bounded",
            options={"xatol": 1e-9},
        )
        terms.append((np.log(weight) - found.fun, found.x))
    height, point = max(terms)
    assert heights[0] == pytest.approx(height, abs=1e-5)
    assert best[0, 0] == pytest.approx(point, abs=1e-4)


def test_observed_columns_that_are_left_out_count_in_heights():
    p = Circuit(MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]]))
    known = Evidence(np.array([[NAN, 2.0]]), Box(np.full((1, 2), NAN), np.full((1, 2), NAN)))
    best, heights = RestrictedCircuit(p.plan, known).mpe(np.array([1]))
    assert best[0, 0] == pytest.approx(1.6)
    assert heights[0] == pytest.approx(p.log_prob([[1.6, 2.0]])[0])


@pytest.mark.parametrize(
    "unit",
    [
        MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]]),
        JohnsonGaussian([0, 1], [0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]], [0.0, 0.3], [0.0, 0.5]),
    ],
)
def test_rows_that_are_observed_whole_are_their_own_most_probable_completion(unit):
    p, rows = Circuit(unit), np.array([[0.5, 2.0], [NAN, 1.0], [0.1, -0.3]])
    free = np.full(rows.shape, NAN)
    for left_out in ([], [1]):
        best, heights = RestrictedCircuit(p.plan, Evidence(rows, Box(free, free))).mpe(
            np.array(left_out, dtype=int)
        )
        whole = np.where(np.isnan(rows[:, 0]), best[:, 0], rows[:, 0])
        np.testing.assert_array_equal(best[:, 0], whole)
        np.testing.assert_allclose(heights[[0, 2]], p.log_prob(rows)[[0, 2]], rtol=1e-12)


@pytest.mark.parametrize("ends", [(40.0, 41.0), (-60.0, -60.0), (1e9, 2e9)])
def test_improbable_intervals_of_columns_left_out_leave_finite_modes(ends):
    p = Circuit(
        0.5 * MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]])
        + 0.5 * MultivariateGaussian([0, 1], [9.0, 9.0], [[1.0, -0.99], [-0.99, 1.0]])
    )
    box = Box(np.array([[NAN, ends[0]]]), np.array([[NAN, ends[1]]]), "both")
    if ends[0] == ends[1]:
        with pytest.raises(ZeroProbabilityError):
            RestrictedCircuit(p.plan, Evidence(np.full((1, 2), NAN), box)).mpe(np.array([1]))
        return
    best, heights = RestrictedCircuit(p.plan, Evidence(np.full((1, 2), NAN), box)).mpe(
        np.array([1])
    )
    assert np.isfinite(best[0, 0])
    assert not np.isnan(heights[0])


def best_term(unit, box, left_out):
    """Value of a unit in one box: sums maximise, but over columns that are left out alone."""
    if left_out.issuperset(unit.scope):
        own = {variable: box.states[variable] for variable in unit.scope if variable in box.states}
        return np.exp(Circuit(unit).log_prob_box(box.lower, box.upper, states=own))[0]
    below = [best_term(child, box, left_out) for child in unit.children]
    if isinstance(unit, Sum):
        return np.max(unit.weights * below)
    if isinstance(unit, Product):
        return np.prod(below)
    (variable,) = unit.scope
    if isinstance(unit, Gaussian):
        nearest = np.clip(unit.mean, box.lower[0, variable], box.upper[0, variable])
        return stats.norm.pdf(nearest, unit.mean, unit.std)
    return unit.probabilities[box.states[variable][0, : unit.n_states]].max(initial=0.0)


@for_seeds(20)
def test_sums_over_columns_that_are_left_out_sum(seed):
    rng = np.random.default_rng(seed)
    cardinalities = random_cardinalities(seed)[-5:]
    grower = RandomCircuit(seed, cardinalities, structured=seed % 2 == 0, joint=False, zeros=0.0)
    p = grower.circuit()
    n_rows, width = 3, len(cardinalities)
    ends = np.sort(rng.normal(size=(2, n_rows, width)), axis=0)
    lower, upper = ends * np.array([-2, 2])[:, None, None] ** (ends[0] * ends[1] < 0)
    states = {}
    for variable, n_states in p.cardinalities.items():
        lower[:, variable] = upper[:, variable] = NAN
        states[variable] = rng.random((n_rows, n_states)) < 0.7
        states[variable][np.arange(n_rows), rng.integers(n_states, size=n_rows)] = True
    left_out = np.flatnonzero(rng.random(width) < 0.5)
    box = Box(lower, upper, "both", states)
    known = Evidence(np.full(lower.shape, NAN), box)
    best, heights = RestrictedCircuit(p.plan, known).mpe(left_out)
    for row in range(n_rows):
        own = Box(
            lower[[row]], upper[[row]], "both", {v: mask[[row]] for v, mask in states.items()}
        )
        expected = best_term(p.root, own, set(left_out.tolist()))
        assert heights[row] == pytest.approx(np.log(expected), abs=1e-9)
        shown = {v: int(best[row, v]) for v in states if v not in left_out}
        assert all(states[v][row, state] for v, state in shown.items())


@pytest.mark.parametrize(
    "unit",
    [
        Product([Gaussian(0, 0.0, 1.0), Gaussian(1, 0.0, 1.0)]),
        MultivariateGaussian([0, 1], [0.0, 0], [[1, 0.5], [0.5, 1]]),
        JohnsonGaussian([0, 1], [0.0, 0], [[1, 0.5], [0.5, 1]], [0.0, 0], [1.0, 0]),
    ],
)
def test_observed_cells_outside_of_their_intervals_have_no_most_probable_row(unit):
    lower, upper = np.array([[1.0, NAN]]), np.full((1, 2), NAN)
    evidence = Evidence(np.array([[0.5, NAN]]), Box(lower, upper))
    with pytest.raises(ZeroProbabilityError):
        RestrictedCircuit(Circuit(unit).plan, evidence).mpe()


def test_impossible_and_unsupported_conditions():
    p = Circuit(Gaussian(0, 0.0, 1.0) * Categorical(1, [1.0, 0.0]))
    nothing = np.full((2, 2), NAN)
    box = Box(nothing, nothing, "both", {1: np.array([[True, True], [False, True]])})
    known = RestrictedCircuit(p.plan, Evidence(nothing, box))
    for ask in (
        known.moments,
        known.mpe,
        lambda: known.sample(np.array([1, 1]), np.random.default_rng(0)),
        lambda: known.sample(np.array([3, 2]), np.random.default_rng(0)),
    ):
        with pytest.raises(ZeroProbabilityError) as caught:
            ask()
        assert caught.value.rows == [1]
    joint = Circuit(MultivariateGaussian(range(4), np.zeros(4), np.eye(4)))
    zeros = np.zeros((1, 4))
    with pytest.raises(CircuitPropertyError, match="at most 3 columns"):
        RestrictedCircuit(joint.plan, Evidence(zeros * NAN, Box(zeros, zeros + 1))).log_mass()


@pytest.mark.parametrize("seed", range(8))
def test_weights_of_all_sizes_scale_masses_alone(seed):
    cardinalities = random_cardinalities(seed)[-5:]
    p = RandomCircuit(seed, cardinalities, structured=seed % 2 == 0, spread=30).circuit()
    normalised = p.normalize()
    first, second = normalised.sample(12, random_state=seed).reshape(2, 6, -1)
    is_free = np.random.default_rng(seed).random((2, *first.shape)) < 0.5
    lower = np.where(is_free[0], NAN, np.minimum(first, second))
    upper = np.where(is_free[1], NAN, np.maximum(first, second))
    known = Evidence(np.full(lower.shape, NAN), Box(lower, upper))
    found, expected = (RestrictedCircuit(q.plan, known) for q in (p, normalised))
    log_mass = expected.log_mass() + p.log_partition
    np.testing.assert_allclose(found.log_mass(), log_mass, rtol=1e-10, atol=1e-8)
    np.testing.assert_allclose(p.log_prob_box(lower, upper), log_mass, rtol=1e-10, atol=1e-8)
    features = [Feature(variable) for variable in p.variables]
    asked = [
        lambda one: one.moments(),
        lambda one: list(one.state_probabilities().values()),
        lambda one: one.covariance(features),
        lambda one: one.mpe()[0],
    ]
    for ask in asked:
        for one, other in zip(ask(found), ask(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8)
    drawn = found.sample(np.full(6, 50), np.random.default_rng(0)).reshape(6, 50, -1)
    assert not (drawn < lower[:, None]).any() and not (drawn > upper[:, None]).any()


def test_answers_do_not_depend_on_the_batches():
    p, known = mixed_circuit(), evidence().rows(np.tile(np.arange(6), 10))
    restricted = RestrictedCircuit(p.plan, known)
    features = [Feature(4), Feature(0, np.array([1.0, -1.0, 2.0]))]
    asked = [
        lambda: [restricted.log_mass()],
        restricted.moments,
        restricted.mpe,
        lambda: [restricted.covariance(features), feature_means(restricted, features)],
        lambda: list(restricted.state_probabilities().values()),
    ]
    assert len(list(restricted._batches())) == 1
    whole = [ask() for ask in asked]
    with config_context(working_memory=0.006):
        assert len(list(restricted._batches())) > 2
        for ask, expected in zip(asked, whole):
            for found, other in zip(ask(), expected, strict=True):
                np.testing.assert_allclose(found, other, rtol=1e-12, atol=1e-14)
        counts = np.tile([1, 0, 3, 2, 1, 1], 10)
        drawn = restricted.sample(counts, np.random.default_rng(0))
    rows = np.repeat(np.arange(len(counts)), counts)
    assert len(drawn) == len(rows) and not np.isnan(drawn).any()
    assert not (drawn < known.box.lower[rows]).any() and not (drawn > known.box.upper[rows]).any()
    seen = ~np.isnan(known.X[rows])
    np.testing.assert_array_equal(drawn[seen], known.X[rows][seen])
