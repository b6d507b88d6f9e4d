"""Fits of many small samples: densities, criteria, cells."""

import numpy as np
import pytest

from skcircuits.circuits import Circuit, PiecewisePolynomial
from skcircuits.learning._polynomials import PolynomialSettings, Samples, fit_polynomials


def samples_of(values, resolution=1e-9):
    weights = [np.ones(len(x)) for x in values]
    return Samples.summarize(values, weights, [resolution] * len(values))


def held_out(fit, x):
    return Circuit(PiecewisePolynomial(0, *fit)).log_prob(x[:, None])


@pytest.mark.parametrize("binning", ["quantile", "uniform", "mean"])
@pytest.mark.parametrize("n_bins", ["bic", 1, 3, 7])
def test_fits_are_densities(binning, n_bins):
    rng = np.random.default_rng(0)
    values = [rng.normal(size=200), rng.exponential(size=50), np.array([3.0, 3.0]), np.zeros(1)]
    for knots, weights in fit_polynomials(samples_of(values), PolynomialSettings(n_bins, binning)):
        assert (np.diff(knots) > 0).all() and (weights >= 0).all()
        assert weights.sum() == pytest.approx(1.0, abs=1e-12)
        assert n_bins == "bic" or len(knots) == n_bins + 1


def test_close_to_the_truth_on_large_samples():
    rng = np.random.default_rng(1)
    train, test = rng.normal(size=3000), rng.normal(size=3000)
    (fit,) = fit_polynomials(samples_of([train]), PolynomialSettings())
    inside = (test > fit[0][0]) & (test < fit[0][-1])
    truth = -0.5 * test**2 - 0.5 * np.log(2 * np.pi)
    assert np.mean(held_out(fit, test[inside]) - truth[inside]) > -0.02


def test_uniform_numbers_need_one_constant():
    x = np.random.default_rng(2).uniform(size=2000)
    ((knots, weights),) = fit_polynomials(samples_of([x]), PolynomialSettings())
    assert len(knots) == 2 and len(weights) == 1


def test_histograms_and_fixed_shapes():
    x = np.random.default_rng(3).normal(size=500)
    ((knots, weights),) = fit_polynomials(samples_of([x]), PolynomialSettings(5, max_degree=0))
    assert len(weights) == 5
    np.testing.assert_allclose(weights, 0.2, atol=0.02)
    np.testing.assert_allclose(np.quantile(x, [0.2, 0.4, 0.6, 0.8]), knots[1:-1], atol=0.1)


def test_samples_do_not_influence_each_other():
    rng = np.random.default_rng(4)
    values = [rng.normal(size=n) for n in (30, 200, 70)]
    together = fit_polynomials(samples_of(values), PolynomialSettings())
    for x, (knots, weights) in zip(values, together):
        ((alone_knots, alone_weights),) = fit_polynomials(samples_of([x]), PolynomialSettings())
        np.testing.assert_allclose(knots, alone_knots, rtol=1e-12)
        np.testing.assert_allclose(weights, alone_weights, atol=1e-4)


def test_weights_count_as_repeated_rows():
    x = np.arange(20.0)
    repeated = Samples.summarize([np.repeat(x, 3)], [np.ones(60)], [1.0])
    weighted = Samples.summarize([x], [np.full(20, 3.0)], [1.0])
    for a, b in zip(
        fit_polynomials(repeated, PolynomialSettings()),
        fit_polynomials(weighted, PolynomialSettings()),
    ):
        np.testing.assert_allclose(a[1], b[1], rtol=1e-9)


def test_units_of_measurement_do_not_matter():
    x = np.random.default_rng(5).gamma(2.0, size=150)
    ((knots, weights),) = fit_polynomials(samples_of([x], 1e-9), PolynomialSettings())
    ((far, same),) = fit_polynomials(samples_of([x * 1e50], 1e41), PolynomialSettings())
    np.testing.assert_allclose(far, knots * 1e50, rtol=1e-6)
    np.testing.assert_allclose(same, weights, atol=1e-5)


def test_ties_do_not_make_spikes():
    # 40 % of the rows share one value: the density there is bounded by the finest cell
    x = np.concatenate([np.zeros(40), np.random.default_rng(6).normal(size=60)])
    (fit,) = fit_polynomials(samples_of([x]), PolynomialSettings())
    assert held_out(fit, np.zeros(1))[0] < np.log(1e4)


def test_intervals_narrower_than_floats_tell_apart_are_no_candidates():
    first = 2.0**53  # the next float is two larger
    samples = Samples(
        np.array([first + 2.0 * np.arange(5)]),
        np.array([first + 2.0 * np.arange(1, 6)]),
        np.array([[900.0, 1.0, 600.0, 1.0, 900.0]]),
    )
    # More intervals than floats between their ends: knots coincide
    ((knots, weights),) = fit_polynomials(samples, PolynomialSettings(n_bins="bic", max_degree=3))
    assert (np.diff(knots) > 0.0).all() and np.isfinite(weights).all()
