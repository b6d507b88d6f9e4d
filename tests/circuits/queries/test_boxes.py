"""Box probabilities: the linear pass on reduced circuits against the plain pass in log space."""

import numpy as np
import pytest
from scipy.stats import norm, poisson

from skcircuits.circuits import (
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    MultivariateGaussian,
    PiecewisePolynomial,
    Poisson,
    Product,
    Sum,
)
from skcircuits.circuits.engine._passes import feedforward
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.queries import _boxes as boxes
from skcircuits.circuits.queries._boxes import MANY_ROWS, _log_pass, _plan_over
from skcircuits.circuits.structure.units import scale_unit


def random_circuit(seed=0, n_components=6):
    rng = np.random.default_rng(seed)

    def polynomial(variable):
        knots = np.cumsum(rng.gamma(1.0, size=5) + 0.1)
        parts = rng.dirichlet(np.ones(4 + 2 + 1 + 2))
        atoms = [1.0], parts[6:7]
        return PiecewisePolynomial(variable, knots, parts[:6], *atoms, parts[7:], [1.0, 2.0])

    def component():
        low = Sum([polynomial(0), polynomial(0)], weights=rng.dirichlet([1, 1]))
        high = [Product([polynomial(1), Gaussian(2, rng.normal(), 1.0)]) for _ in range(2)]
        labels = Categorical(4, rng.dirichlet(np.ones(3)))
        return Product([low, Sum(high, weights=rng.dirichlet([1, 1])), labels])

    components = [component() for _ in range(n_components)]
    return Circuit(Sum(components, weights=rng.dirichlet(np.ones(n_components))))


def random_boxes(seed, n, scale=4.0):
    rng = np.random.default_rng(seed)
    bounds = np.sort(rng.normal(1.0, scale, size=(2, n, 5)), axis=0)
    bounds[rng.random(bounds.shape) < 0.4] = np.nan
    bounds[:, :, 3:] = np.nan
    states = {4: rng.random((n, 3)) < 0.7}
    return bounds[0], bounds[1], states


@pytest.mark.parametrize("n", [1, 40, 12 * MANY_ROWS])
@pytest.mark.parametrize("closed", ["both", "neither"])
def test_fast_pass_agrees_with_the_plain_one(n, closed):
    p = random_circuit()
    lower, upper, states = random_boxes(1, n)
    found = p.log_prob_box(lower, upper, closed=closed, states=states)
    expected = _log_pass(p.plan, Box(lower, upper, closed, states))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_tiny_probabilities_keep_their_digits():
    p = random_circuit()
    far = np.full((600, 5), np.nan)
    far[:, 0] = np.linspace(100.0, 5e3, 600)
    found = p.log_prob_box(far, far * np.nan)
    np.testing.assert_allclose(found, _log_pass(p.plan, Box(far, far * np.nan)), rtol=1e-12)
    assert found[-1] < -2e3


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("far", [1e155, 1e200, 1e308])
def test_bounds_that_no_density_reaches(far):
    pair = MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]])
    single = Product([Gaussian(0, 1.0, 1e-3), Gaussian(1, 0.0, 1e3)])
    p = Circuit(Sum([pair, single], weights=[0.5, 0.5]))
    bound, unbounded = np.array([[far, np.nan], [far, far]]), np.full((2, 2), np.nan)
    assert (p.log_prob_box(bound, unbounded) == -np.inf).all()
    assert (p.log_prob_box(unbounded, -bound) == -np.inf).all()
    for lower, upper in ((unbounded, bound), (-bound, unbounded), (-bound, bound)):
        np.testing.assert_allclose(p.log_prob_box(lower, upper), 0.0, atol=1e-9)


def test_complements_add_up_to_one():
    p = random_circuit()
    cut = np.full((300, 5), np.nan)
    cut[:, 1] = np.linspace(-3.0, 8.0, 300)
    none = np.full_like(cut, np.nan)
    below, above = p.log_prob_box(none, cut, closed="left"), p.log_prob_box(cut, none)
    np.testing.assert_allclose(np.exp(below) + np.exp(above), 1.0, atol=1e-12)
    assert p.log_prob_box(none, none)[0] == pytest.approx(0.0, abs=1e-12)


def test_unnormalised_circuits_keep_their_scale():
    p = random_circuit()
    lower, upper, states = random_boxes(2, 500)
    for factor in (1e-30, 1e30):
        scaled = Circuit(Sum([p.root], weights=[factor]))
        np.testing.assert_allclose(
            scaled.log_prob_box(lower, upper, states=states),
            p.log_prob_box(lower, upper, states=states) + np.log(factor),
            atol=1e-8,
        )


def test_columns_that_are_no_variables_are_ignored():
    p = random_circuit()
    lower, upper, _ = random_boxes(3, 10)
    wide = lower.copy(), upper.copy()
    wide[0][:, 3], wide[1][:, 3] = -1.0, 1.0
    np.testing.assert_array_equal(p.log_prob_box(*wide), p.log_prob_box(lower, upper))


def test_reduced_circuits_are_small_and_remembered():
    p = random_circuit()
    alone = _plan_over(p.plan, frozenset({0}))
    assert alone.variables == (0,) and alone.n_units < p.n_units
    assert _plan_over(p.plan, frozenset({0})) is alone


class SharedDict(dict):
    """Another thread takes everything out as soon as one looks."""

    def __iter__(self):
        seen = list(super().__iter__())
        self.clear()
        return iter(seen)


def test_threads_may_take_out_the_same_reduced_circuit(monkeypatch):
    monkeypatch.setattr("skcircuits.circuits.queries._boxes.MAX_KEPT", 1)
    plan = random_circuit().plan
    plan.remember("boxes", SharedDict)
    for variable in range(3):
        assert _plan_over(plan, frozenset({variable})).units[-1].scope == (variable,)


def far_tails():
    """Mixture of two far leaves on two columns: tails decide, sums of masses hide them."""

    def leaf(variable, start):
        return PiecewisePolynomial(variable, [start, start + 1.0], [0.98], tail_masses=[0.01, 0.01])

    return Circuit(
        Sum(
            [Product([leaf(0, 0.0), leaf(1, 0.0)]), Product([leaf(0, 20.0), leaf(1, 20.0)])],
            weights=[0.5, 0.5],
        )
    )


@pytest.mark.parametrize("n", [1, 30, 700])
def test_tails_that_other_components_hide_keep_their_digits(n):
    lower = np.full((n, 2), 8.0)
    upper = lower + np.linspace(0.5, 2.0, 2 * n).reshape(n, 2)
    # Tails of scale one: right of 1 for the first component, left of 20 for the second
    first = 0.01 * np.exp(1.0 - lower) * -np.expm1(lower - upper)
    second = 0.01 * np.exp(upper - 20.0) * -np.expm1(lower - upper)
    expected = np.log(0.5 * first.prod(axis=1) + 0.5 * second.prod(axis=1))
    assert expected.max() < np.log(1e-6)
    np.testing.assert_allclose(far_tails().log_prob_box(lower, upper), expected, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 700])
def test_empty_intervals_are_impossible(n):
    point = np.full((n, 2), 0.5)
    assert np.isneginf(far_tails().log_prob_box(point, point)).all()


def test_repeated_and_distinct_bounds_agree():
    p = random_circuit()
    lower, upper, _ = random_boxes(2, 3000)
    # Off the point mass at 1
    lower, upper = lower.round(1) + 0.05, upper.round(1) + 0.05
    one_by_one = np.array(
        [p.log_prob_box(*row)[0] for row in zip(lower[:50, None], upper[:50, None])]
    )
    np.testing.assert_allclose(p.log_prob_box(lower, upper)[:50], one_by_one, rtol=1e-9)
    nudged = lower + 1e-13 * np.arange(3000)[:, None]
    np.testing.assert_allclose(
        p.log_prob_box(nudged, upper), p.log_prob_box(lower, upper), rtol=1e-6, atol=1e-6
    )


def test_rows_with_bounds_on_different_variables_share_a_pass(monkeypatch):
    p = random_circuit()
    lower, upper, states = random_boxes(4, 40)
    together = p.log_prob_box(lower, upper, states=states)
    one_by_one = [
        p.log_prob_box(
            *(bound[i : i + 1] for bound in (lower, upper)), states={4: states[4][i, None]}
        )
        for i in range(40)
    ]
    np.testing.assert_allclose(together, np.ravel(one_by_one), rtol=1e-9, atol=1e-12)
    passes = []
    monkeypatch.setattr(
        "skcircuits.circuits.queries._boxes.feedforward",
        lambda plan, *rest: passes.append(plan) or feedforward(plan, *rest),
    )
    p.log_prob_box(lower, upper, states=states)
    assert 1 <= len(passes) <= 4


def test_no_box_has_a_probability_under_the_zero_function():
    zero = Circuit(0.0 * (Gaussian(0, 0.0, 1.0) * Gaussian(1, 0.0, 1.0)))
    bounds = np.array([[0.0, np.nan], [0.0, 1.0], [np.nan, np.nan]])
    np.testing.assert_array_equal(zero.log_prob_box(bounds, bounds + 1.0), -np.inf)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("log_factor", [-2000.0, 2000.0])
@pytest.mark.parametrize("n", [1, 3, 2 * MANY_ROWS])
def test_factors_beyond_all_floats_stay_in_the_logarithm(log_factor, n):
    p = random_circuit()
    lower, upper, states = random_boxes(5, n)
    scaled = Circuit(scale_unit(p.root, log_factor))
    np.testing.assert_allclose(
        scaled.log_prob_box(lower, upper, states=states),
        p.log_prob_box(lower, upper, states=states) + log_factor,
        atol=1e-9,
    )


def test_factors_that_cancel_inside_a_circuit_do_not_underflow():
    low, high = (scale_unit(Gaussian(v, 0.0, 1.0), factor) for v, factor in ((0, -900), (1, 900)))
    p = Circuit(Product([low, high]))
    np.testing.assert_allclose(p.log_prob_box([[0.0, 0.0]], [[np.nan] * 2]), np.log(0.25))


def test_weights_that_underflow_are_no_proof_of_an_impossible_box():
    # Only one path is possible, whose weights multiply to 2^-1200
    bits = [Sum([Indicator(v, 0, 2), Indicator(v, 1, 2)], weights=[0.5, 0.5]) for v in range(1200)]
    p = Circuit(Product(bits))
    X = np.zeros((2, 1200))
    X[1, 7] = 2.0
    np.testing.assert_allclose(p.log_prob_box(X, X), [1200 * np.log(0.5), -np.inf])


def test_points_without_mass_are_impossible_on_the_linear_scale(monkeypatch):
    """Only zeros that may come from rounding or underflow are evaluated in logarithms."""
    knots, parts = [0.0, 1.0, 2.0], [0.3, 0.2]
    units = [PiecewisePolynomial(0, knots, parts, [atom], [0.5]) for atom in (1.0, 3.0)]
    far = [Gaussian(1, mean, 1.0) for mean in (0.0, 1.0)]
    p = Circuit(Sum([Product(pair) for pair in zip(units, far)], weights=[0.4, 0.6]))
    points = np.tile([0.5, 1.0, 3.0, 4.0], 300)
    lower = np.column_stack([points, np.full(len(points), 50.0)])
    upper = np.column_stack([points, np.full(len(points), np.nan)])
    passed = []
    plainly = boxes._log_pass
    monkeypatch.setattr(
        boxes, "_log_pass", lambda *a: passed.append(len(a[1].lower)) or plainly(*a)
    )
    found = p.log_prob_box(lower, upper)
    assert passed == [600]
    expected = np.log([0.2, 0.3]) + norm.logsf([50.0, 49.0])
    np.testing.assert_allclose(found[:4], [-np.inf, *expected, -np.inf], rtol=1e-12)
    np.testing.assert_array_equal(found, np.tile(found[:4], 300))


def test_points_of_counts_may_underflow():
    p = Circuit(Sum([Poisson(0, 0.1), Poisson(0, 0.2)], weights=[0.5, 0.5]))
    expected = np.logaddexp(poisson.logpmf(400, 0.1), poisson.logpmf(400, 0.2)) - np.log(2.0)
    np.testing.assert_allclose(p.log_prob_box([[400.0]], [[400.0]]), expected, rtol=1e-12)


def test_nested_sums_are_merged_unless_they_are_shared_or_weights_underflow():
    def gaussian(mean):
        return Gaussian(0, mean, 1.0)

    shared = Sum([gaussian(0.0), gaussian(1.0)], weights=[0.3, 0.7])
    inner = Sum([gaussian(2.0), shared], weights=[0.6, 0.4])
    tiny = Sum([gaussian(30.0), gaussian(4.0)], weights=[1e-200, 1.0])
    outer = Sum([tiny, gaussian(5.0)], weights=[1e-200, 1.0])
    p = Circuit(Sum([inner, shared, outer], weights=[0.5, 0.2, 0.3]))
    found = p.log_prob_box([[29.0], [0.0]], [[31.0], [2.5]])
    np.testing.assert_allclose(
        found,
        _log_pass(p.plan, Box(np.array([[29.0], [0.0]]), np.array([[31.0], [2.5]]))),
        rtol=1e-12,
    )
    part = _plan_over(p.plan, frozenset([0]))
    assert [len(unit.children) for unit in part.units if isinstance(unit, Sum)] == [2, 2, 5]
