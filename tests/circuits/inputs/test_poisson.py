"""Poisson units: a family without a list of states, in every query."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp, xlogy

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    Poisson,
    entropy,
    multiply,
)
from skcircuits.circuits.engine._passes import log_values
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.inputs.restriction import Evidence, restrict
from skcircuits.circuits.inputs.restriction._evidence import Feature
from skcircuits.circuits.queries._boxes import RestrictedCircuit
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.kernels import RBF, expected_kernel_matrix
from skcircuits.learning import fit_parameters
from skcircuits.stein import stein_discrepancy
from tests.reference.enumeration import unit_values

RATES = [0.0, 0.3, 5.0, 200.0]


def mixture():
    """Counts beside a category and a number."""
    return Circuit(
        0.3 * Poisson(0, 2.0) * Bernoulli(1, 0.2) * Gaussian(2, 0.0, 1.0)
        + 0.7 * Poisson(0, 9.0) * Bernoulli(1, 0.9) * Gaussian(2, 3.0, 1.0)
    )


@pytest.mark.parametrize("rate", RATES)
def test_masses_agree_with_scipy(rate):
    counts = np.array([0, 1, 5, 100, 1000, 0.5, -1.0])
    found = Circuit(Poisson(0, rate)).log_prob(counts[:, None])
    np.testing.assert_allclose(found, stats.poisson(rate).logpmf(counts), rtol=1e-12)


@pytest.mark.parametrize("closed", ["both", "left", "right", "neither"])
@pytest.mark.parametrize("rate", RATES)
def test_intervals_agree_with_sums_of_masses(rate, closed):
    """Tails as far as e^-10000 keep their digits."""
    bounds = [(0, 3), (4, 4), (2.5, 7.5), (-3, 1), (0, 10), (150, 160), (1000, 1005), (1000, 1500)]
    lower, upper = np.array(bounds, dtype=float).T[:, :, None]
    found = Circuit(Poisson(0, rate)).log_prob_box(lower, upper, closed=closed)
    k = np.arange(3000)
    log_masses = stats.poisson(rate).logpmf(k)
    above = k >= lower if closed in ("both", "left") else k > lower
    below = k <= upper if closed in ("both", "right") else k < upper
    with np.errstate(divide="ignore"):
        expected = logsumexp(np.where(above & below, log_masses, -np.inf), axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rate", RATES)
def test_draws_are_the_first_counts_that_reach_a_uniform_number(rate):
    counts = np.arange(stats.poisson(rate).ppf(0.999) + 1.0)
    reached = stats.poisson(rate).cdf(counts)
    before = np.append(0.0, reached[:-1])
    layer = Circuit(Poisson(0, rate)).plan.inputs[0][1]
    units = np.zeros(len(counts), dtype=int)
    free = np.full((len(counts), 1), np.nan)
    # The number that a count reaches exactly is where the inversion rounds
    for uniform in (reached, (reached + before) / 2.0, np.minimum(before + 1e-12, reached)):
        drawn = layer.draw(units, free, SimpleNamespace(random=lambda n, u=uniform: u))
        np.testing.assert_array_equal(drawn[:, 0], counts)


def test_open_intervals():
    circuit = Circuit(Poisson(0, 5.0))
    nothing = np.full((1, 1), np.nan)
    assert circuit.log_prob_box(nothing, nothing)[0] == 0.0
    found = circuit.log_prob_box([[8.0]], nothing)
    np.testing.assert_allclose(np.exp(found), stats.poisson(5.0).sf(7), rtol=1e-12)
    found = circuit.log_prob_box([[900.0]], nothing)
    tail = logsumexp(stats.poisson(5.0).logpmf(np.arange(900, 1200)))
    np.testing.assert_allclose(found, tail, rtol=1e-12)
    assert np.isneginf(circuit.log_prob_box([[3.2]], [[3.8]])[0])


def test_moments_and_conditionals_against_enumeration():
    circuit = mixture()
    X = np.array([[np.nan, 1.0, 2.0], [4.0, np.nan, np.nan], [np.nan, np.nan, np.nan]])
    k = np.arange(200.0)
    weights = np.exp(circuit.log_prob(np.stack([k, np.ones(200), np.full(200, 2.0)], axis=1)))
    mean = weights @ k / weights.sum()
    found = circuit.expectation(X)
    assert found[0, 0] == pytest.approx(mean, rel=1e-12)
    assert found[1, 0] == 4.0
    assert found[2, 0] == pytest.approx(0.3 * 2.0 + 0.7 * 9.0)
    variance = weights @ (k - mean) ** 2 / weights.sum()
    assert circuit.variance(X)[0, 0] == pytest.approx(variance, rel=1e-12)
    conditional = circuit.condition(X[0])
    np.testing.assert_allclose(
        np.exp(conditional.log_prob(np.stack([k, k, k], axis=1))), weights / weights.sum()
    )
    assert circuit.marginalize([0]).variables == (1, 2)
    assert circuit.cardinalities == {1: 2}


def test_optimised_plans_agree_with_the_pass_in_log_space():
    circuit = mixture()
    X = circuit.sample(5000, random_state=0)
    X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    expected = log_values(circuit.plan, X)[circuit.plan.root]
    np.testing.assert_allclose(circuit.log_prob(X), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rate", [0.0, 0.4, 30.0, 1e6])
def test_draws_follow_the_distribution(rate):
    drawn = Circuit(Poisson(0, rate)).sample(4000, random_state=0)[:, 0]
    assert (drawn == np.floor(drawn)).all() and (drawn >= 0).all()
    assert drawn.mean() == pytest.approx(rate, abs=4 * np.sqrt(rate / 4000) + 1e-12)
    assert drawn.var() == pytest.approx(rate, rel=0.15, abs=1e-12)


def test_completions_keep_what_was_observed():
    circuit = mixture()
    X = np.array([[np.nan, 1.0, np.nan], [7.0, np.nan, 0.1]])
    completed = circuit.mpe(X, method="max_product")
    assert completed[0, 0] == 9.0
    assert completed[1, 0] == 7.0


def test_expectation_maximisation_finds_the_rates():
    """Of two groups of counts; missing values do not shift them."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.poisson(2.0, 600), rng.poisson(30.0, 400)]).astype(float)[:, None]
    X[::7] = np.nan
    start = Circuit(0.5 * Poisson(0, 1.0) + 0.5 * Poisson(0, 10.0))
    fitted = fit_parameters(start, X, pseudo_count=0.0)
    low, high = sorted(fitted.root.children, key=lambda unit: unit.rate)
    seen = np.where(np.isnan(X), np.nan, X)
    assert low.rate == pytest.approx(np.nanmean(seen[:600]), rel=0.02)
    assert high.rate == pytest.approx(np.nanmean(seen[600:]), rel=0.02)
    np.testing.assert_allclose(np.sort(fitted.root.weights), [0.4, 0.6], atol=0.01)


def test_files_hold_them(tmp_path):
    circuit = mixture()
    circuit.save(tmp_path / "counts.npz")
    X = circuit.sample(5, random_state=0)
    loaded = Circuit.load(tmp_path / "counts.npz")
    np.testing.assert_array_equal(loaded.log_prob(X), circuit.log_prob(X))


def test_what_counts_lack_is_refused():
    circuit = Circuit(Poisson(0, 2.0))
    with pytest.raises(CircuitPropertyError, match="must be of families with a rule"):
        multiply(circuit, circuit)
    with pytest.raises(CircuitPropertyError, match="must be of families with a rule"):
        entropy(circuit)
    with pytest.raises(CircuitPropertyError, match="gradient of the log density"):
        circuit.grad_log_prob([[1.0]])
    with pytest.raises(CircuitPropertyError, match="closed-form expectation"):
        expected_kernel_matrix([[np.nan]], [[1.0]], circuit=circuit, kernel=RBF(1.0))
    with pytest.raises(CircuitPropertyError, match="continuous or have finitely many states"):
        stein_discrepancy(np.ones((2, 1)), circuit, RBF(1.0))


def test_counts_mix_with_masses_but_not_with_densities():
    p = Circuit(0.5 * Poisson(0, 1.0) + 0.5 * Categorical(0, [0.5, 0.5]))
    X = np.array([[0.0], [1.0], [2.0], [np.nan]] * 200)
    masses = 0.5 * stats.poisson(1.0).pmf([0, 1, 2]) + [0.25, 0.25, 0.0]
    np.testing.assert_allclose(np.exp(p.log_prob(X)), np.tile([*masses, 1.0], 200), rtol=1e-12)
    with pytest.raises(CircuitPropertyError, match="be all discrete or all continuous"):
        Circuit(0.5 * Poisson(0, 1.0) + 0.5 * Gaussian(0, 0.0, 1.0)).log_prob([[0.0]])


@pytest.mark.parametrize("rate", [-1.0, np.nan, np.inf, 1e10])
def test_rates_are_checked(rate):
    with pytest.raises(ValueError, match="rate of a Poisson unit must lie in"):
        Poisson(0, rate)


def test_beyond_all_counts_is_no_mass():
    p = Circuit(Poisson(0, 3.0))
    assert p.log_prob_box([[np.inf]], [[np.inf]]).tolist() == [-np.inf]
    np.testing.assert_allclose(p.log_prob_box([[2.0]], [[np.inf]]), stats.poisson(3.0).logsf(1))


@pytest.mark.filterwarnings("error")
def test_sums_of_some_intervals_go_on_after_others_end():
    p = Circuit(Poisson(0, 1e4))
    found = p.log_prob_box([[0.0], [5e3]], [[3.0], [5.2e3]])
    for value, counts in zip(found, [np.arange(4), np.arange(5000, 5201)]):
        np.testing.assert_allclose(value, logsumexp(stats.poisson(1e4).logpmf(counts)), rtol=1e-11)
    p = Circuit(Poisson(0, 1e-300))
    assert p.log_prob_box([[1e15]], [[1e15 + 3]])[0] == p.log_prob([[1e15]])[0]


COUNTS = np.stack(np.meshgrid(np.arange(90.0), [0.0, 1.0], np.arange(140.0), indexing="ij"), -1)
COUNTS = COUNTS.reshape(-1, 3)


def two_counts():
    return Circuit(
        0.3 * Poisson(0, 2.3) * Bernoulli(1, 0.2) * Poisson(2, 0.0)
        + 0.5 * Poisson(0, 9.0) * Bernoulli(1, 0.9) * Poisson(2, 40.6)
        + 0.2 * Poisson(0, 0.05) * Bernoulli(1, 0.5) * Poisson(2, 11.0)
    )


@pytest.mark.parametrize("closed", ["both", "left", "right", "neither"])
def test_counts_in_intervals_against_enumeration(closed):
    circuit = two_counts()
    lower = np.array([[np.nan, 1, 3], [2.0, 0, np.nan], [3.5, 0, 70], [60, 0, -3], [np.nan] * 3])
    upper = np.array([[4.0, 1, 3.5], [np.nan, 1, 20], [7, 1, 71.5], [np.nan] * 3, [0.5, 1, np.nan]])
    if closed in ("right", "neither"):
        lower[0] -= [0, 1, 1]
    if closed in ("left", "neither"):
        upper[0] += 1
        upper[:, 1] = np.nan
    X = np.full(lower.shape, np.nan)
    X[3, 2] = 44.0
    evidence = Evidence(X, Box(lower, upper, closed))
    restricted = RestrictedCircuit(circuit.plan, evidence)
    log_mass, (mean, variance) = restricted.log_mass(), restricted.moments()
    covariance = restricted.covariance([Feature(j) for j in range(3)])
    points, heights = restricted.mpe()
    drawn = restricted.sample(np.full(len(X), 500), np.random.default_rng(0)).reshape(-1, 500, 3)
    masses = unit_values(circuit, COUNTS)
    for row, (low, high) in enumerate(zip(lower, upper)):
        counts = COUNTS
        below = counts < low if closed in ("both", "left") else counts <= low
        above = counts > high if closed in ("both", "right") else counts >= high
        differs = np.isfinite(X[row]) & (counts != X[row])
        is_in = ~(below | above | differs).any(axis=1)
        own = counts[is_in]
        total = masses[is_in].sum()
        weights = masses[is_in] / total
        np.testing.assert_allclose(log_mass[row], np.log(total), rtol=1e-9)
        np.testing.assert_allclose(mean[row], weights @ own, rtol=1e-9, atol=1e-12)
        centred = own - weights @ own
        spread = (centred * weights[:, None]).T @ centred
        np.testing.assert_allclose(covariance[row], spread, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(variance[row], np.diag(spread), rtol=1e-8, atol=1e-9)
        height = unit_values(circuit, points[row][None])
        np.testing.assert_allclose(heights[row], np.log(height), rtol=1e-9)
        assert (drawn[row][:, None] == own[None, weights > 0]).all(axis=2).any(axis=1).all()
        error = np.abs(drawn[row].mean(axis=0) - mean[row])
        assert (error <= 4.5 * np.sqrt(variance[row] / 500) + 1e-12).all()


@pytest.mark.parametrize("rate", [0.0, 0.3, 5.0, 2e3, 1e6])
def test_moments_of_one_unit_in_intervals(rate):
    """Also where masses are no floats, and where they are nearly one."""
    center = np.floor(rate)
    low = np.array([np.nan, center, center + 1, 3 * center + 400, np.nan, max(0, center - 2)])
    high = np.array([center, np.nan, center + 3, np.nan, np.nan, center])
    evidence = Evidence(np.full((6, 1), np.nan), Box(low[:, None], high[:, None]))
    layer = Circuit(Poisson(0, rate)).plan.inputs[0][1]
    mean, variance = (values[0, :, 0] for values in restrict(layer, evidence).moments())
    for row in range(6) if rate else (0, 1, 4, 5):
        first, last = np.nan_to_num([low[row], high[row]], nan=np.inf) * [1, 1]
        start = 0.0 if np.isinf(first) else first
        start = max(start, center - 12 * np.sqrt(rate) - 50)
        stop = min(last, max(start, center) + 12 * np.sqrt(rate) + 80)
        counts = np.arange(max(0.0, np.floor(start)), stop + 1)
        logs = xlogy(counts, rate) - gammaln(counts + 1)
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        offset = counts[0]
        expected = weights @ (counts - offset)
        assert mean[row] - offset == pytest.approx(expected, rel=1e-7, abs=1e-9)
        squares = weights @ (counts - offset - expected) ** 2
        assert variance[row] == pytest.approx(squares, rel=1e-6, abs=1e-9)


def test_few_counts_at_a_high_rate_do_not_depend_on_other_units():
    low = np.repeat([[1e9], [2e9], [3.0]], 100, axis=0)
    evidence = Evidence(np.full(low.shape, np.nan), Box(low, low + 7.0))
    both = 0.5 * Poisson(0, 1e9) + 0.5 * Poisson(0, 5.0)
    layer = Circuit(both).plan.inputs[0][1]
    moments = np.array(restrict(layer, evidence).moments())
    for rate in (1e9, 5.0):
        alone = restrict(Circuit(Poisson(0, rate)).plan.inputs[0][1], evidence).moments()
        own = np.argmin(np.abs(layer.rates - rate))
        np.testing.assert_allclose(moments[:, own], np.array(alone)[:, 0], rtol=1e-9, atol=1e-12)
        assert (alone[0][0, :, 0] >= low[:, 0]).all() and (alone[0][0, :, 0] <= low[:, 0] + 7).all()
