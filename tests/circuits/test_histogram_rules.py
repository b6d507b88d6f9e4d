"""Products and quotients of histograms against their values and quadrature."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate

from skcircuits.circuits import (
    Bernoulli,
    Circuit,
    Gaussian,
    PiecewisePolynomial,
    divide,
    multiply,
)
from skcircuits.exceptions import CircuitPropertyError


def histogram(rng, first, last, tails=(0.0, 0.0), zeros=0.0):
    inner = np.sort(rng.uniform(first, last, rng.integers(1, 6)))
    knots = np.array([first, *inner, last])
    masses = rng.dirichlet(np.ones(len(knots) + 1))
    masses[3:][rng.random(len(knots) - 2) < zeros] = 0.0
    masses[:2] *= tails
    masses /= masses.sum()
    return PiecewisePolynomial(
        0, knots, masses[2:], tail_masses=masses[:2], tail_scales=rng.uniform(0.5, 2.0, 2)
    )


def points(*circuits):
    """Points inside of all intervals and beyond the last knots."""
    knots = np.unique(np.concatenate([circuit.root.knots for circuit in circuits]))
    middles = (knots[1:] + knots[:-1]) / 2
    beyond = [knots[0] - 3.0, knots[0] - 0.1, knots[-1] + 0.1, knots[-1] + 3.0]
    return np.concatenate([middles, beyond])[:, None]


@pytest.mark.parametrize("zeros", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(20))
def test_values_multiply(seed, zeros):
    rng = np.random.default_rng(seed)
    p = Circuit(histogram(rng, -1.0, 2.0, zeros=zeros))
    q = Circuit(histogram(rng, *rng.uniform([-3.0, 1.0], [1.0, 4.0]), zeros=zeros))
    X = points(p, q)
    own, other = np.exp(p.log_prob(X)), np.exp(q.log_prob(X))
    np.testing.assert_allclose(np.exp(multiply(p, q).log_prob(X)), own * other, rtol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_tails_from_one_knot_multiply(seed):
    rng = np.random.default_rng(seed)
    p, q = (Circuit(histogram(rng, 0.0, 3.0, tails=(1.0, 1.0))) for _ in "pq")
    X = points(p, q)
    product = multiply(p, q)
    np.testing.assert_allclose(product.log_prob(X), p.log_prob(X) + q.log_prob(X), rtol=1e-11)

    def value(x):
        return np.exp(p.log_prob([[x]]) + q.log_prob([[x]]))[0]

    knots = np.unique(np.concatenate([[-40.0], p.root.knots, q.root.knots, [43.0]]))
    total = sum(integrate.quad(value, a, b)[0] for a, b in pairwise(knots))
    assert np.exp(product.log_partition) == pytest.approx(total, rel=1e-8)


@pytest.mark.parametrize("seed", range(10))
def test_quotients_undo_products(seed):
    rng = np.random.default_rng(seed)
    p, q = (Circuit(histogram(rng, 0.0, 3.0, tails=(1.0, 1.0))) for _ in "pq")
    X = points(p, q)
    back = divide(multiply(p, q), q)
    np.testing.assert_allclose(back.log_prob(X), p.log_prob(X), rtol=1e-10, atol=1e-10)


def test_quotients_are_zero_where_the_divisor_is():
    p = Circuit(PiecewisePolynomial(0, [0.0, 4.0], [1.0]))
    q = Circuit(PiecewisePolynomial(0, [1.0, 2.0, 3.0, 6.0], [0.5, 0.0, 0.5]))
    found = np.exp(divide(p, q).log_prob([[0.5], [1.5], [2.5], [3.5], [5.0]]))
    np.testing.assert_allclose(found, [0.0, 0.5, 0.0, 1.5, 0.0])


def test_disjoint_histograms_give_zero():
    p, q = (Circuit(PiecewisePolynomial(0, [a, a + 1.0], [1.0])) for a in (0.0, 1.0))
    assert np.isneginf(multiply(p, q).log_prob([[0.5], [1.5]])).all()
    holes = Circuit(PiecewisePolynomial(0, [0.0, 1.0, 2.0], [0.0, 1.0]))
    assert multiply(p, holes).log_partition == -np.inf


def test_extreme_scales():
    """Heights of 1e200: their product is beyond every float, its logarithm is not."""
    p, q = (Circuit(PiecewisePolynomial(0, [0.0, w], [1.0])) for w in (1e-200, 2e-200))
    found = multiply(p, q)
    assert found.log_partition == pytest.approx(np.log(0.5) + 200 * np.log(10), rel=1e-14)


def test_circuits_of_histograms():
    """Mixtures with a label: products, conditioning, marginals and normalisation."""
    rng = np.random.default_rng(0)
    p, q = (
        Circuit(
            0.3 * Bernoulli(1, 0.2) * histogram(rng, 0.0, 2.0)
            + 0.7 * Bernoulli(1, 0.6) * histogram(rng, 1.0, 3.0)
        )
        for _ in "pq"
    )
    X = np.column_stack([rng.uniform(0, 3, 30), rng.integers(0, 2, 30)])
    product = multiply(p, q)
    expected = np.exp(p.log_prob(X) + q.log_prob(X))
    np.testing.assert_allclose(np.exp(product.log_prob(X)), expected, rtol=1e-12)
    normal = product.normalize()
    np.testing.assert_allclose(
        normal.log_prob(X), product.log_prob(X) - product.log_partition, rtol=1e-10
    )
    given = p.condition([np.nan, 1.0])
    alone = np.column_stack([X[:, 0], np.full(30, np.nan)])
    X[:, 1] = 1.0
    joint = p.log_prob(X) - p.log_prob([[np.nan, 1.0]])
    np.testing.assert_allclose(given.log_prob(X), joint, rtol=1e-11)
    np.testing.assert_allclose(p.marginalize([1]).log_prob(X), p.log_prob(alone), rtol=1e-12)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (PiecewisePolynomial(0, [0.0, 1.0], [0.5, 0.5]), PiecewisePolynomial(0, [0, 1.0], [1.0])),
        (
            PiecewisePolynomial(0, [0.0, 1.0], [0.5], atoms=[0.5], atom_masses=[0.5]),
            PiecewisePolynomial(0, [0.0, 1.0], [1.0]),
        ),
    ],
)
def test_what_is_no_histogram_is_refused(left, right):
    for operation in (multiply, divide):
        with pytest.raises(CircuitPropertyError, match="be histograms without atoms"):
            operation(Circuit(left), Circuit(right))


def test_tails_that_reach_into_the_other_unit_are_refused():
    rng = np.random.default_rng(0)
    p = Circuit(histogram(rng, 0.0, 1.0, tails=(1.0, 1.0)))
    for first, last in ((-1.0, 1.0), (0.0, 2.0)):
        q = Circuit(histogram(rng, first, last, tails=(1.0, 1.0)))
        for pair in ((p, q), (q, p)):
            with pytest.raises(CircuitPropertyError, match="begin at the same knot"):
                multiply(*pair)


def test_other_refusals():
    p = Circuit(PiecewisePolynomial(0, [0.0, 1.0], [0.5], tail_masses=[0.25, 0.25]))
    wide = Circuit(
        PiecewisePolynomial(0, [0.0, 1.0], [0.5], tail_masses=[0.25, 0.25], tail_scales=[1, 2])
    )
    with pytest.raises(CircuitPropertyError, match="be longer than those they divide"):
        divide(p, wide)
    with pytest.raises(CircuitPropertyError, match="PiecewisePolynomial', 'Gaussian"):
        multiply(p, Circuit(Gaussian(0, 0.0, 1.0)))
