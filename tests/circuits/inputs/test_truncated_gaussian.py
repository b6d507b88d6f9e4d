"""Truncated Gaussians against boxes of Gaussians without truncation, and quadrature."""

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy.optimize import minimize
from scipy.stats import truncnorm

from skcircuits.circuits import Circuit, MultivariateGaussian, TruncatedGaussian
from skcircuits.circuits.inputs.base import Box
from skcircuits.circuits.inputs.restriction import Evidence
from skcircuits.circuits.queries._restricted import RestrictedCircuit
from skcircuits.exceptions import CircuitPropertyError

NAN, INF = np.nan, np.inf
MEAN, COVARIANCE = [0.3, -0.2, 0.5], [[1.0, 0.5, 0.2], [0.5, 0.8, -0.3], [0.2, -0.3, 0.6]]
LOWER, UPPER = np.array([-INF, 0.1, -0.4]), np.array([INF, INF, 0.9])
PLAIN = Circuit(MultivariateGaussian([0, 1, 2], MEAN, COVARIANCE))
TRUNCATED = Circuit(TruncatedGaussian([0, 1, 2], MEAN, COVARIANCE, LOWER, UPPER))
CASES = [[NAN, NAN, NAN], [0.5, NAN, NAN], [NAN, 0.4, NAN], [0.5, NAN, 0.2], [0.5, 0.3, 0.2]]


def within(cells, lower=LOWER, upper=UPPER):
    """Gaussians without truncation, given that their free variables lie in the box."""
    box = Box(np.array([lower], float), np.array([upper], float))
    return RestrictedCircuit(PLAIN.plan, Evidence(np.array([cells]), box))


@pytest.mark.parametrize("cells", CASES, ids=str)
def test_queries_are_those_of_gaussians_within_the_box(cells):
    total = within([NAN] * 3).log_mass()[0]
    row = np.array([cells])
    assert TRUNCATED.log_prob(row)[0] == pytest.approx(within(cells).log_mass()[0] - total)
    mean, variance = within(cells).moments()
    np.testing.assert_allclose(TRUNCATED.expectation(row), mean, rtol=1e-9)
    np.testing.assert_allclose(TRUNCATED.variance(row), variance, rtol=1e-9, atol=1e-12)
    lower, upper = np.array([-0.5, 0.3, NAN]), np.array([0.7, NAN, 0.5])
    both = np.fmax(lower, LOWER), np.fmin(upper, UPPER)
    known = RestrictedCircuit(TRUNCATED.plan, Evidence(row, Box(lower[None], upper[None])))
    expected = within(cells, *both)
    assert known.log_mass()[0] == pytest.approx(expected.log_mass()[0] - total)
    for found, right in zip(known.moments(), expected.moments(), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-12)


def test_densities_integrate_to_one():
    nodes, weights = leggauss(80)
    second, third = 3.0 + 2.9 * nodes, 0.25 + 0.65 * nodes
    first = 10.0 * nodes
    points = np.stack(np.meshgrid(first, second, third, indexing="ij"), axis=-1).reshape(-1, 3)
    masses = np.exp(TRUNCATED.log_prob(points))
    masses *= np.einsum("i,j,k->ijk", 10.0 * weights, 2.9 * weights, 0.65 * weights).ravel()
    assert masses.sum() == pytest.approx(1.0, abs=1e-9)
    mean = masses @ points
    np.testing.assert_allclose(TRUNCATED.expectation(np.full((1, 3), NAN))[0], mean, rtol=1e-8)


def test_one_column_is_scipys():
    x = np.linspace(-1.0, 4.0, 23)
    peer = truncnorm((0.5 - 1.2) / 0.7, (3.0 - 1.2) / 0.7, loc=1.2, scale=0.7)
    circuit = Circuit(TruncatedGaussian([0], [1.2], [[0.49]], [0.5], [3.0]))
    np.testing.assert_allclose(circuit.log_prob(x[:, None]), peer.logpdf(x), rtol=1e-12)
    assert circuit.expectation([[NAN]])[0, 0] == pytest.approx(peer.mean())
    assert circuit.variance([[NAN]])[0, 0] == pytest.approx(peer.var())


def test_draws_stay_in_the_box_and_have_its_moments():
    drawn = TRUNCATED.sample(40_000, random_state=0)
    assert ((drawn >= LOWER) & (drawn <= UPPER)).all()
    nothing = np.full((1, 3), NAN)
    errors = 5.0 * np.sqrt(TRUNCATED.variance(nothing)[0] / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - TRUNCATED.expectation(nothing)[0]) < errors).all()
    given = TRUNCATED.sample(20_000, [[0.5, NAN, 0.2]], random_state=0)[:, 0]
    mean = TRUNCATED.expectation([[0.5, NAN, 0.2]])[0]
    np.testing.assert_allclose(given.mean(axis=0), mean, atol=0.02)


@pytest.mark.parametrize("cells", CASES[:-1], ids=str)
def test_completions_are_the_most_probable(cells):
    row = np.array(cells)
    best = TRUNCATED.mpe(row[None], method="max_product")[0]
    missing = np.isnan(row)
    np.testing.assert_array_equal(best[~missing], row[~missing])

    def loss(free):
        filled = row.copy()
        filled[missing] = free
        return -TRUNCATED.log_prob(filled[None])[0]

    bounds = list(zip(LOWER[missing], UPPER[missing], strict=True))
    found = minimize(loss, best[missing], method="Nelder-Mead", bounds=bounds)
    assert loss(best[missing]) <= found.fun + 1e-9


def test_conditionals_are_truncated_where_they_must_be(tmp_path):
    given = TRUNCATED.condition([NAN, 0.4, NAN])
    assert isinstance(given.root, TruncatedGaussian)
    point = [[0.2, 0.4, 0.1]]
    expected = TRUNCATED.log_prob(point) - TRUNCATED.log_prob([[NAN, 0.4, NAN]])
    np.testing.assert_allclose(given.log_prob(point), expected)
    assert isinstance(TRUNCATED.condition([NAN, 0.4, 0.1]).root, MultivariateGaussian)
    np.testing.assert_allclose(
        TRUNCATED.marginalize([0]).log_prob(point), TRUNCATED.log_prob([[NAN, 0.4, 0.1]])
    )
    with pytest.raises(CircuitPropertyError, match="not be truncated"):
        TRUNCATED.marginalize([1])
    TRUNCATED.save(tmp_path / "truncated.npz")
    again = Circuit.load(tmp_path / "truncated.npz")
    np.testing.assert_array_equal(again.log_prob(point), TRUNCATED.log_prob(point))


def test_boxes_must_be_boxes():
    with pytest.raises(ValueError, match="be less than upper"):
        TruncatedGaussian([0], [0.0], [[1.0]], [1.0], [1.0])
    with pytest.raises(ValueError, match="shape"):
        TruncatedGaussian([0, 1], [0.0, 0.0], np.eye(2), [1.0], [2.0])
