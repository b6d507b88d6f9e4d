"""Rules for histograms against their values, quadrature and enumeration."""

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
    entropy,
    kl_divergence,
    multiply,
)
from skcircuits.exceptions import CircuitPropertyError
from tests.reference.case import for_seeds


def histogram(rng, first, last, tails=(0.0, 0.0), zeros=0.0, atoms=()):
    inner = np.sort(rng.uniform(first, last, rng.integers(1, 6)))
    knots = np.array([first, *inner, last])
    masses = rng.dirichlet(np.ones(len(knots) + 1))
    masses[3:][rng.random(len(knots) - 2) < zeros] = 0.0
    masses[:2] *= tails
    atom_masses = rng.dirichlet(np.ones(len(atoms))) if len(atoms) else np.empty(0)
    rest = masses.sum() + atom_masses.sum()
    return PiecewisePolynomial(
        0,
        knots,
        masses[2:] / rest,
        atoms,
        atom_masses / rest,
        tail_masses=masses[:2] / rest,
        tail_scales=rng.uniform(0.5, 2.0, 2),
    )


def points(*circuits):
    """Points inside of all intervals and beyond the last knots."""
    knots = np.unique(np.concatenate([circuit.root.knots for circuit in circuits]))
    middles = (knots[1:] + knots[:-1]) / 2
    beyond = [knots[0] - 3.0, knots[0] - 0.1, knots[-1] + 0.1, knots[-1] + 3.0]
    return np.concatenate([middles, beyond])[:, None]


@pytest.mark.parametrize("zeros", [0.0, 0.4])
@for_seeds(20)
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
        return np.exp(p.log_prob(x[:, None]) + q.log_prob(x[:, None]))

    knots = np.unique(np.concatenate([[-40.0], p.root.knots, q.root.knots, [43.0]]))
    total = sum(integrate.fixed_quad(value, a, b, n=100)[0] for a, b in pairwise(knots))
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
    gap = Circuit(PiecewisePolynomial(0, [0.0, 1.0, 2.0], [0.0, 1.0]))
    assert multiply(p, gap).log_partition == -np.inf


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


def log_ratio_integral(p, q, atoms):
    """E_p[log p - log q] by quadrature between knots and enumeration of atoms; q may be 1."""

    def log_ratio(x):
        own = p.log_prob(x[:, None])
        other = q.log_prob(x[:, None]) if q else 0.0
        with np.errstate(invalid="ignore"):
            return np.where(np.isneginf(own), 0.0, np.exp(own) * (own - other))

    knots = [c.root.knots for c in (p, q) if c]
    ends = np.unique(np.concatenate([[-60.0], *knots, [60.0]]))
    total = sum(integrate.fixed_quad(log_ratio, a, b, n=100)[0] for a, b in pairwise(ends))
    return total + log_ratio(np.array(atoms)).sum()


@pytest.mark.parametrize("atoms", [[], [-1.5, 0.5, 4.0]])
@pytest.mark.parametrize("tails", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_entropies_and_divergences_by_quadrature(seed, tails, atoms):
    rng = np.random.default_rng(seed)
    p, q = (Circuit(histogram(rng, 0.0, 3.0, (tails, tails), atoms=atoms)) for _ in "pq")
    expected = -log_ratio_integral(p, None, atoms)
    assert entropy(p) == pytest.approx(expected, rel=1e-7, abs=1e-9)
    expected = log_ratio_integral(p, q, atoms)
    assert kl_divergence(p, q) == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_divergences_of_tails_over_intervals_of_the_other_by_quadrature(seed):
    rng = np.random.default_rng(seed)
    p = Circuit(histogram(rng, 0.0, 3.0, (1.0, 1.0)))
    q = Circuit(histogram(rng, *rng.uniform([-2.0, 1.0], [1.0, 5.0]), (1.0, 1.0)))
    for own, other in ((p, q), (q, p)):
        expected = log_ratio_integral(own, other, [])
        assert kl_divergence(own, other) == pytest.approx(expected, rel=1e-7, abs=1e-9)
    bounded = Circuit(histogram(rng, 0.5, 2.5))
    assert kl_divergence(p, bounded) == np.inf
    expected = log_ratio_integral(bounded, p, [])
    assert kl_divergence(bounded, p) == pytest.approx(expected, rel=1e-7, abs=1e-9)
    far = Circuit(histogram(rng, 1e3, 1e3 + 1.0, (1.0, 1.0)))
    assert np.isfinite(kl_divergence(far, p)) and np.isfinite(kl_divergence(p, far))


@pytest.mark.filterwarnings("error")
def test_divergences_of_tails_over_point_masses_of_the_other():
    rng = np.random.default_rng(0)
    p = Circuit(histogram(rng, 10.0, 11.0, (1.0, 1.0)))
    parts = {"tail_masses": [0.1, 0.1], "tail_scales": [1.0, 2.0]}
    # The bin of a point mass, as densities over bins have it, is too narrow for distances from 10
    knots = [-1.0, -1e-150, 1e-150, 1.0]
    q = Circuit(PiecewisePolynomial(0, knots, [0.2, 0.0, 0.3], [0.0], [0.3], **parts))
    assert kl_divergence(q, p) == np.inf
    # For p it matters nowhere
    other = Circuit(PiecewisePolynomial(0, [-1.0, 0.0, 1.0], [0.2, 0.3], [5.0], [0.3], **parts))
    assert kl_divergence(p, q) == pytest.approx(kl_divergence(p, other), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_point_masses_multiply(seed):
    rng = np.random.default_rng(seed)
    p = Circuit(histogram(rng, 0.0, 3.0, atoms=[-1.0, 0.5, 4.0]))
    q = Circuit(histogram(rng, 0.0, 3.0, atoms=[-1.0, 0.5, 5.0]))
    X = np.append(points(p, q), [[-1.0], [0.5], [4.0], [5.0]], axis=0)
    own, other = np.exp(p.log_prob(X)), np.exp(q.log_prob(X))
    np.testing.assert_allclose(np.exp(multiply(p, q).log_prob(X)), own * other, rtol=1e-12)
    ratio = np.divide(own, other, where=other > 0, out=np.zeros_like(own))
    np.testing.assert_allclose(np.exp(divide(p, q).log_prob(X)), ratio, rtol=1e-12)
    # The mass of p at 4 is missed by q.
    assert kl_divergence(p, q) == np.inf


def test_point_masses_alone():
    """Intervals without mass may lie anywhere."""
    p = Circuit(PiecewisePolynomial(0, [-9.0, -8.0], [0.0], [1.0, 2.0], [0.25, 0.75]))
    q = Circuit(PiecewisePolynomial(0, [5.0, 6.0], [0.0], [2.0, 3.0], [0.5, 0.5]))
    X = [[1.0], [2.0], [3.0], [-8.5]]
    np.testing.assert_allclose(np.exp(multiply(p, q).log_prob(X)), [0.0, 0.375, 0.0, 0.0])
    np.testing.assert_allclose(np.exp(divide(q, p).log_prob(X)), [0.0, 2 / 3, 0.0, 0.0])
    assert entropy(q) == pytest.approx(np.log(2.0))


def test_smooth_pieces_are_refused():
    smooth = Circuit(PiecewisePolynomial(0, [0.0, 1.0], [0.5, 0.5]))
    flat = Circuit(PiecewisePolynomial(0, [0, 1.0], [1.0]))
    for operation in (multiply, divide, kl_divergence):
        with pytest.raises(CircuitPropertyError, match="must be histograms"):
            operation(smooth, flat)
    with pytest.raises(CircuitPropertyError, match="must be histograms"):
        entropy(smooth)


@pytest.mark.parametrize("atom", [0.0, 0.5, 1.0])
def test_a_mass_within_a_piece_of_the_other_is_refused(atom):
    heavy = Circuit(PiecewisePolynomial(0, [0.0, 1.0], [0.5], [atom], [0.5]))
    flat = Circuit(PiecewisePolynomial(0, [0.0, 1.0], [1.0]))
    for operation in (multiply, divide):
        for pair in ((heavy, flat), (flat, heavy)):
            with pytest.raises(CircuitPropertyError, match="has a point mass or is zero"):
                operation(*pair)
    assert kl_divergence(heavy, flat) == np.inf
    assert kl_divergence(flat, heavy) == pytest.approx(np.log(2.0))


def test_tails_that_reach_into_the_other_unit_are_refused():
    rng = np.random.default_rng(0)
    p = Circuit(histogram(rng, 0.0, 1.0, tails=(1.0, 1.0)))
    for first, last in ((-1.0, 1.0), (0.0, 2.0)):
        q = Circuit(histogram(rng, first, last, tails=(1.0, 1.0)))
        for pair in ((p, q), (q, p)):
            with pytest.raises(CircuitPropertyError, match="begin at the same knot"):
                multiply(*pair)


@pytest.mark.parametrize("side", [0, 1])
def test_tails_may_begin_outside_of_the_other_unit(side):
    rng = np.random.default_rng(side)
    tails = [0.0, 0.0]
    tails[side] = 1.0
    inner, outer = Circuit(histogram(rng, 0.0, 1.0)), Circuit(histogram(rng, -1.0, 2.0, tails))
    X = points(inner, outer)
    expected = np.exp(inner.log_prob(X)) * np.exp(outer.log_prob(X))
    for pair in ((inner, outer), (outer, inner)):
        np.testing.assert_allclose(np.exp(multiply(*pair).log_prob(X)), expected, rtol=1e-12)
    inner = Circuit(histogram(rng, 0.0, 1.0, tails))
    outer = Circuit(histogram(rng, -1.0, 2.0))
    for pair in ((inner, outer), (outer, inner)):
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
