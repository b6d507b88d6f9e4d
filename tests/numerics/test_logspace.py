import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.special import logsumexp as scipy_logsumexp

from skcircuits.numerics._arrays import (
    divisors,
    finite_peaks,
    log1mexp,
    log_ndtr_difference,
    logsumexp,
    posterior,
)


@pytest.mark.filterwarnings("error")
def test_logsumexp():
    values = np.random.default_rng(0).normal(scale=300, size=(4, 5, 3))
    values[:, 1] = -np.inf
    values[0, 2] = -np.inf
    for axis in range(3):
        np.testing.assert_allclose(
            logsumexp(values, axis), scipy_logsumexp(values, axis=axis), rtol=1e-13
        )
    assert logsumexp(np.array([np.inf, 0.0])) == np.inf


@pytest.mark.filterwarnings("error")
def test_posterior_is_zero_where_all_are_impossible():
    logs = np.log([[1.0, 3.0], [3.0, 1.0]])
    logs = np.column_stack([logs, [-np.inf, 2.0], [-np.inf, -np.inf]])
    probabilities, sums = posterior(logs)
    np.testing.assert_allclose(probabilities, [[0.25, 0.75, 0.0, 0.0], [0.75, 0.25, 1.0, 0.0]])
    np.testing.assert_allclose(sums, [np.log(4.0), np.log(4.0), 2.0, -np.inf])


def test_divisors_and_references():
    values = np.array([[0.0, 2.0], [1e-300, -1.0]])
    np.testing.assert_array_equal(divisors(values), [[1.0, 2.0], [1e-300, 1.0]])
    peaks = np.array([-np.inf, -3.0, np.inf])
    np.testing.assert_array_equal(finite_peaks(peaks), [0.0, -3.0, np.inf])
    assert peaks[0] == 0.0


@pytest.mark.filterwarnings("error")
def test_log1mexp():
    values = np.array([0.0, -1e-300, -1e-10, -0.5, -np.log(2.0), -1.0, -40.0, -1e3, -np.inf])
    expected = [-np.inf, np.log(1e-300), np.log(1e-10) - 5e-11, np.log(1 - np.exp(-0.5))]
    expected += [-np.log(2.0), np.log(1 - np.exp(-1.0)), -np.exp(-40.0), 0.0, 0.0]
    np.testing.assert_allclose(log1mexp(values), expected, rtol=1e-14)


@pytest.mark.parametrize(
    "lower, upper", [(-1.0, 2.0), (0.1, 0.2), (3.0, 9.0), (-30.0, -29.9), (5.0, 5.0 + 1e-7)]
)
def test_log_ndtr_difference_by_quadrature(lower, upper):
    # the density relative to that at the end nearer to zero
    nearest = min(abs(lower), abs(upper)) if lower * upper > 0 else 0.0
    mass, _ = quad(lambda z: np.exp(-0.5 * (z**2 - nearest**2)), lower, upper, epsabs=0)
    expected = np.log(mass) - 0.5 * nearest**2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(log_ndtr_difference(lower, upper), expected, rtol=1e-13)
    np.testing.assert_allclose(log_ndtr_difference(-upper, -lower), expected, rtol=1e-13)


@pytest.mark.filterwarnings("error")
def test_log_ndtr_difference_at_the_limits():
    assert log_ndtr_difference(-np.inf, np.inf) == 0.0
    assert log_ndtr_difference(-np.inf, 1.5) == log_ndtr(1.5)
    np.testing.assert_allclose(log_ndtr_difference(50.0, np.inf), log_ndtr(-50.0))
    empty = log_ndtr_difference([1.0, 2.0, np.inf, -np.inf], [1.0, 1.0, np.inf, -np.inf])
    assert (empty == -np.inf).all()
    far = np.array([1e153, 1e155, 1e200, 1e307])
    beyond = [-5e305, -np.inf, -np.inf, -np.inf]
    np.testing.assert_allclose(log_ndtr_difference(far, np.inf), beyond)
    np.testing.assert_allclose(log_ndtr_difference(-np.inf, -far), beyond)
    np.testing.assert_allclose(log_ndtr_difference(far, 1.5 * far), beyond)
    for low in (-np.inf, -far, -far[::-1]):
        assert (log_ndtr_difference(low, far) == 0.0).all()
    assert log_ndtr_difference(np.zeros((3, 1)), np.ones(2)).shape == (3, 2)
