"""Expected kernels of pairs of circuits against enumeration."""

from types import SimpleNamespace

import numpy as np
import pytest

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    MultivariateGaussian,
    Product,
    Sum,
)
from skcircuits.exceptions import IncompatibleCircuitsError
from skcircuits.kernels import (
    RBF,
    Delta,
    Hamming,
    Linear,
    Polynomial,
    expected_kernel,
    is_kernel_compatible,
    mmd2,
)
from tests.reference.case import for_seeds
from tests.reference.enumeration import Completions
from tests.reference.random_circuits import RandomCircuit, compatible_circuits


def kernels_for(p):
    """Product kernels, sums of them and polynomial ones, over mixed variables."""
    labels = sorted(p.cardinalities)
    numbers = [v for v in p.variables if v not in labels]
    product = RBF(0.2, variables=numbers) * Hamming(1.3, variables=labels)
    yield product + 0.5 * RBF(0.1)
    yield Polynomial(2, 0.7) + Linear(variables=labels)
    if not numbers:
        yield Polynomial(1, 0.5) * RBF(0.2) * (Delta(variables=[0]) + Hamming(2.0, variables=[0]))


def everything(circuit):
    return Completions(circuit, np.full(max(circuit.variables) + 1, np.nan))


def brute_force(p, q, kernel):
    left, right = everything(p), everything(q)
    return left.mass @ kernel(left.nodes, right.nodes) @ right.mass


def n_nodes(circuit):
    return np.prod([float(len(nodes)) for nodes, _ in everything(circuit)._axes])


@for_seeds(200)
def test_equals_enumeration(seed):
    p, q = compatible_circuits(seed)
    if n_nodes(p) * n_nodes(q) > 3e6:
        p, q = compatible_circuits(seed, discrete=True)
    for kernel in kernels_for(p):
        assert is_kernel_compatible(kernel, p, q)
        expected = brute_force(p, q, kernel)
        np.testing.assert_allclose(expected_kernel(p, q, kernel), expected, rtol=1e-9)


def test_finer_products_meet_coarser_ones():
    """A product of three factors against nested products of two, on either side."""
    leaves = [Categorical(v, [0.2, 0.3, 0.5]) for v in range(3)]
    other = [Categorical(v, [0.6, 0.1, 0.3]) for v in range(3)]
    flat = Circuit(0.4 * Product(leaves) + 0.6 * Product(other))
    nested = Circuit(
        Product([other[0], Sum([other[1] * leaves[2], leaves[1] * other[2]], weights=[0.3, 0.7])])
    )
    kernel = Hamming(1.5) + Polynomial(2, 1.0)
    for p, q in ((flat, nested), (nested, flat), (flat, flat), (nested, nested)):
        np.testing.assert_allclose(expected_kernel(p, q, kernel), brute_force(p, q, kernel))


def test_sums_of_sums_and_repeated_children():
    a, b = Bernoulli(0, 0.2), Bernoulli(0, 0.9)
    inner = Sum([a, b, a], weights=[0.2, 0.5, 0.3])
    p = Circuit(Sum([inner, b, Sum([inner])], weights=[0.5, 0.25, 0.25]))
    q = Circuit(Product([Product([a])]))
    np.testing.assert_allclose(expected_kernel(p, q, Delta()), brute_force(p, q, Delta()))


def test_unnormalised_circuits_are_integrated_as_they_are():
    p = Circuit(3.0 * Bernoulli(0, 0.5))
    assert expected_kernel(p, p, Delta()) == pytest.approx(4.5)


def test_incompatible_circuits_name_their_products():
    def pair(first, rest):
        inner = Product([Bernoulli(v, 0.3) for v in rest])
        other = Product([Bernoulli(v, 0.6) for v in rest])
        return Circuit(Bernoulli(first, 0.5) * Sum([inner, other], weights=[0.5, 0.5]))

    p, q = pair(0, (1, 2)), pair(2, (0, 1))
    with pytest.raises(
        IncompatibleCircuitsError, match=r"\(\(0,\), \(1, 2\)\).*\(\(0, 1\), \(2,\)\)"
    ):
        expected_kernel(p, q, Delta())
    assert not is_kernel_compatible(Delta(), p, q)
    # A fully factorised circuit fits to every other one.
    independent = Circuit(Product([Bernoulli(v, 0.3) for v in range(3)]))
    np.testing.assert_allclose(
        expected_kernel(p, independent, Delta()), brute_force(p, independent, Delta())
    )


def test_joint_units_do_not_meet_products():
    joint = Circuit(MultivariateGaussian([0, 1], [0, 0], np.eye(2)))
    apart = Circuit(Gaussian(0, 0, 1) * Gaussian(1, 0, 1))
    with pytest.raises(IncompatibleCircuitsError, match="split their scope alike"):
        expected_kernel(joint, apart, RBF())


def test_other_variables_are_refused():
    p, q = Circuit(Bernoulli(0, 0.2)), Circuit(Bernoulli(1, 0.2))
    with pytest.raises(IncompatibleCircuitsError, match="have the same variables"):
        expected_kernel(p, q, Delta())
    with pytest.raises(ValueError, match="variables of a kernel must belong to the circuit"):
        expected_kernel(p, p, Delta(variables=[4]))
    with pytest.raises(TypeError, match="kernel must be a kernel object"):
        expected_kernel(p, p, lambda x, y: 1.0)


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_mmd(seed):
    p, q = compatible_circuits(seed, discrete=True)
    kernel = Hamming(2.0)
    nodes = everything(p).nodes
    difference = everything(p).mass - everything(q).mass
    expected = difference @ kernel(nodes) @ difference
    assert mmd2(p, q, kernel) == pytest.approx(expected, abs=1e-12)
    assert mmd2(p, q, kernel, n_jobs=2) == mmd2(p, q, kernel)
    assert mmd2(p, p, kernel) <= 1e-15


def test_indicators_give_point_evaluations():
    p = Circuit(Indicator(0, 1, 3) * Indicator(1, 2, 3))
    q = Circuit(Indicator(0, 1, 3) * Indicator(1, 0, 3))
    assert expected_kernel(p, q, Hamming(1.0)) == pytest.approx(np.exp(-1.0))


def test_irregular_circuits_stay_exact():
    p = RandomCircuit(3, [2, 3, 2, 2], structured=False).circuit()
    q = Circuit(Product([Categorical(v, np.full(k, 1 / k)) for v, k in enumerate([2, 3, 2, 2])]))
    np.testing.assert_allclose(
        expected_kernel(p, q, Hamming(1.0)), brute_force(p, q, Hamming(1.0)), rtol=1e-9
    )


@pytest.mark.parametrize("seed", range(6))
def test_irregular_circuits_meet_mixtures_of_products(seed):
    """Parts of one scope divide it differently; the other side has several products of it."""
    states = [2, 3, 2, 2]
    p = RandomCircuit(seed, states, structured=False).circuit()
    rng = np.random.default_rng(seed)
    terms = [
        Product([Categorical(v, rng.dirichlet(np.ones(k))) for v, k in enumerate(states)])
        for _ in range(2)
    ]
    q = Circuit(Sum(terms, weights=[0.3, 0.7]))
    expected = brute_force(p, q, Hamming(1.0))
    np.testing.assert_allclose(expected_kernel(p, q, Hamming(1.0)), expected, rtol=1e-9)
    np.testing.assert_allclose(expected_kernel(q, p, Hamming(1.0)), expected, rtol=1e-9)


@pytest.mark.parametrize("n_variables", [63, 64, 65, 130])
def test_many_variables(n_variables):
    """More joint states than 64-bit integers count."""
    rng = np.random.default_rng(0)
    scale = float(n_variables)

    def mixture():
        chances = rng.random((3, n_variables))
        halves = [
            [Product([Bernoulli(v, row[v]) for v in part]) for part in np.array_split(range(n), 2)]
            for row, n in zip(chances, [n_variables] * 3, strict=True)
        ]
        weights = rng.dirichlet(np.ones(3))
        return chances, weights, Circuit(Sum([Product(h) for h in halves], weights=weights))

    (left, u, p), (right, v, q) = mixture(), mixture()
    differ = left[:, None] * (1 - right) + (1 - left[:, None]) * right
    unequal = Hamming(scale)(np.zeros((1, 1)), np.ones((1, 1)))[0, 0]
    expected = u @ (1 + (unequal - 1) * differ).prod(axis=2) @ v
    np.testing.assert_allclose(expected_kernel(p, q, Hamming(scale)), expected, rtol=1e-12)


def test_densities_name_their_circuit():
    density = SimpleNamespace(circuit_=None)
    with pytest.raises(TypeError, match=r"q must be a circuit; .*Pass q\.circuit_\."):
        mmd2(Circuit(Bernoulli(0, 0.5)), density, Hamming())
