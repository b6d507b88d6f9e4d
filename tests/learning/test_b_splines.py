"""B-splines beside piecewise polynomials on the range of small samples."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import norm

from skcircuits.circuits.inputs.polynomial._pieces import basis_cdf, knot_windows
from skcircuits.learning._polynomials import (
    PolynomialSettings,
    Samples,
    _Mixture,
    fit_densities,
    fit_polynomials,
    tail_fraction,
)

SETTINGS = PolynomialSettings()


def summarize(*samples, resolution=0.1):
    weights = [np.ones(len(sample)) for sample in samples]
    return Samples.summarize(samples, weights, [resolution] * len(samples))


def normal_samples(n_rows, n_samples=40, scale=1.0):
    draws = np.random.default_rng(0).normal(scale=scale, size=(n_samples, n_rows))
    return [np.round(sample, 1) for sample in draws]


def mass(density, lower, upper):
    degree = len(density.weights) - len(density.knots) + 1
    cdf = basis_cdf(np.array([[lower, upper]]), density.knots[None], degree)[0] @ density.weights
    return cdf[1] - cdf[0]


def is_b_spline(density):
    return density.beyond.any()


def test_candidates_are_given_up_only_where_they_cannot_win(monkeypatch):
    rng = np.random.default_rng(0)
    samples = summarize(
        *(rng.normal(rng.choice([-9, 9], n), 2).round(1) for n in range(5, 300, 30))
    )
    fitted = fit_polynomials(samples, SETTINGS)
    monkeypatch.setattr(
        _Mixture, "_upper_bounds", lambda self, weights: np.full(len(weights), np.inf)
    )
    for found, expected in zip(fitted, fit_polynomials(samples, SETTINGS)):
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
    assert len({len(weights) for _, weights in fitted}) > 3


def test_small_normal_samples_take_bells_and_uniform_ones_do_not():
    of_normal = fit_densities(summarize(*normal_samples(30, scale=3.0)), SETTINGS)
    uniform = np.random.default_rng(1).uniform(0, 10, size=(40, 200)).round(1)
    of_uniform = fit_densities(summarize(*uniform), SETTINGS)
    assert np.mean([is_b_spline(density) for density in of_normal]) > 0.5
    assert np.mean([is_b_spline(density) for density in of_uniform]) < 0.05


def test_bells_predict_new_numbers_better_than_ranges():
    samples = summarize(*normal_samples(30, scale=3.0))
    points = np.arange(-10.0, 10.0, 0.5)
    chance = norm.cdf(points + 0.5, scale=3.0) - norm.cdf(points, scale=3.0)

    def expected_log_mass(densities):
        fractions = tail_fraction(samples.totals)[0]
        return np.mean(
            [chance @ np.log([mass(d, x, x + 0.5) + 0.1 * fractions for x in points])
             for d in densities]
        )  # fmt: skip

    b_splines = fit_densities(samples, SETTINGS)
    ranges = fit_densities(samples, PolynomialSettings(n_bins=1))
    assert expected_log_mass(b_splines) > expected_log_mass(ranges) + 0.03


def test_a_b_spline_density_has_the_moments_of_its_sample_and_no_gaps():
    sample = normal_samples(60, 1, scale=3.0)[0]
    (density,) = fit_densities(summarize(sample), SETTINGS)
    windows = knot_windows(density.knots[None], 3)[0]
    mean = density.weights @ windows.mean(axis=1)
    assert is_b_spline(density)
    assert mean == pytest.approx(sample.mean(), abs=0.1)
    assert np.sqrt(
        density.weights @ (windows.var(axis=1) / 6 + (windows.mean(axis=1) - mean) ** 2)
    ) == pytest.approx(sample.std(), rel=0.05)
    inside = np.linspace(*density.knots[[0, -1]], 50)
    assert all(mass(density, low, high) > 0 for low, high in pairwise(inside))
    assert density.weights.sum() == pytest.approx(1.0)


def test_mass_beyond_the_sample_is_that_of_the_bell():
    sample = normal_samples(40, 1, scale=5.0)[0]
    (density,) = fit_densities(summarize(sample), SETTINGS)
    ends = sample.min() - 0.05, sample.max() + 0.05
    expected = [mass(density, -1e3, ends[0]), mass(density, ends[1], 1e3)]
    np.testing.assert_allclose(density.beyond, expected, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [PolynomialSettings(n_bins=2), PolynomialSettings(max_degree=2)],
    ids=["fixed intervals", "low degree"],
)
def test_choices_of_the_user_exclude_bells(settings):
    samples = summarize(*normal_samples(30, 5))
    for density, (knots, weights) in zip(
        fit_densities(samples, settings), fit_polynomials(samples, settings)
    ):
        assert not is_b_spline(density)
        np.testing.assert_array_equal(density.knots, knots)
        np.testing.assert_array_equal(density.weights, weights)


@pytest.mark.parametrize("sample", [[3.0], [3.0] * 30, [1.0, 2.0], [0.0] * 20 + [1e6]])
def test_degenerate_samples_give_proper_densities(sample):
    (density,) = fit_densities(summarize(np.array(sample)), SETTINGS)
    assert np.isfinite(density.knots).all()
    assert (np.diff(density.knots) > 0).all()
    assert (density.weights >= 0).all()
    assert density.weights.sum() == pytest.approx(1.0)


def test_a_shift_and_a_scale_carry_over():
    sample = normal_samples(30, 1, scale=3.0)[0]
    (one,) = fit_densities(summarize(sample), SETTINGS)
    (other,) = fit_densities(summarize(100 + 7 * sample, resolution=0.7), SETTINGS)
    np.testing.assert_allclose(other.knots, 100 + 7 * one.knots, rtol=1e-9)
    np.testing.assert_allclose(other.weights, one.weights, atol=1e-9)


def test_tails_share_the_line_without_rows():
    np.testing.assert_allclose(tail_fraction(np.array([0.0, 7.0])), [1 / 3, 0.1])
