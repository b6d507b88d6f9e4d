"""Products, quotients and shifts of circuits against their definitions."""

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
    are_compatible,
    cyclic_shift,
    divide,
    entropy,
    is_decomposable,
    is_deterministic,
    is_smooth,
    is_structured_decomposable,
    kl_divergence,
    multiply,
)
from skcircuits.exceptions import CircuitPropertyError, IncompatibleCircuitsError
from tests.reference.case import AlgebraCase, for_seeds
from tests.reference.enumeration import Completions, unit_values
from tests.reference.random_circuits import (
    RandomCircuit,
    deterministic_circuit,
    random_cardinalities,
    random_circuit,
)

PAIR = (0.3, 0.5), (-1.0, 2.0)  # means and standard deviations


class TestMultiply(AlgebraCase):
    def operation(self, p, q):
        return multiply(p, q)

    def expected(self, p_values, q_values):
        return p_values * q_values

    @for_seeds(step=10)
    def test_the_result_keeps_its_properties(self, seed):
        p, q = self.circuits(seed)
        product = multiply(p, q)
        assert is_smooth(product) and is_decomposable(product)
        assert is_structured_decomposable(product)
        assert are_compatible(product, p) and are_compatible(product, q)

    @for_seeds(step=10)
    def test_the_partition_function_is_the_inner_product(self, seed):
        p, q = self.circuits(seed)
        completions = Completions(p, _few_missing_values(p, seed))
        product = multiply(p, q)
        expected = completions.mass @ unit_values(q, completions.nodes)
        found = np.exp(product.log_prob(completions.row[None]))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def _few_missing_values(circuit, seed):
    """A row in which at most two cells are unknown."""
    x = circuit.sample(1, random_state=seed)[0]
    x[:2] = np.nan
    return x


class TestMultiplyByAFactorisedCircuit(AlgebraCase):
    """A product of all variables fits circuits of every structure, unstructured ones too."""

    def circuits(self, seed):
        cardinalities = random_cardinalities(seed, discrete=True)[-6:]
        p = RandomCircuit(seed, cardinalities, structured=False).circuit()
        rng = np.random.default_rng(seed)
        return p, Circuit(
            Product(
                [Categorical(v, rng.dirichlet(np.ones(n))) for v, n in enumerate(cardinalities)]
            )
        )

    operation = TestMultiply.operation
    expected = TestMultiply.expected


class TestMultiplyDeterministic(AlgebraCase):
    def circuits(self, seed):
        cardinalities = tuple(random_cardinalities(seed, discrete=True)[-5:])
        return tuple(deterministic_circuit(s, cardinalities, zeros=0.2) for s in (seed, seed + 1))

    def operation(self, p, q):
        product = multiply(p, q)
        assert is_deterministic(product)
        return product

    expected = TestMultiply.expected


class TestDivide(AlgebraCase):
    def circuits(self, seed):
        cardinalities = tuple(random_cardinalities(seed, discrete=True)[-5:])
        chain = {
            tuple(range(v, len(cardinalities))): ((v,), tuple(range(v + 1, len(cardinalities))))
            for v in range(len(cardinalities) - 1)
        }
        p = RandomCircuit(seed, cardinalities, splits=chain).circuit()
        return p, deterministic_circuit(seed, cardinalities, zeros=0.2)

    def operation(self, p, q):
        return divide(p, q)

    def expected(self, p_values, q_values):
        return np.divide(p_values, q_values, where=q_values > 0, out=np.zeros_like(p_values))


@for_seeds()
def test_cyclic_shift_moves_the_states(seed):
    circuit = random_circuit(seed)
    rng = np.random.default_rng(seed)
    variable = int(rng.choice(list(circuit.cardinalities)))
    shift = int(rng.integers(-7, 8))
    X = circuit.sample(10, random_state=rng)
    moved = X.copy()
    moved[:, variable] = (X[:, variable] + shift) % circuit.cardinalities[variable]
    result = cyclic_shift(circuit, variable, shift)
    np.testing.assert_allclose(np.exp(result.log_prob(X)), unit_values(circuit, moved), rtol=1e-9)
    assert result.n_units == circuit.n_units


def test_shifts_compose_to_the_identity():
    circuit = deterministic_circuit(3, (3, 4, 2))
    X = circuit.sample(20, random_state=0)
    around = circuit
    for _ in range(4):
        around = cyclic_shift(around, 1)
        assert is_deterministic(around)
    np.testing.assert_array_equal(around.log_prob(X), circuit.log_prob(X))


def test_units_with_fewer_states_shift_around_the_whole_cycle():
    circuit = Circuit(0.5 * Bernoulli(0, 0.25) + 0.5 * Categorical(0, [0.0, 0.0, 1.0]))
    found = np.exp(cyclic_shift(circuit, 0).log_prob([[0.0], [1.0], [2.0]]))
    np.testing.assert_allclose(found, [0.125, 0.5, 0.375])


def test_only_discrete_variables_shift():
    circuit = Circuit(Bernoulli(0, 0.5) * Gaussian(1, 0.0, 1.0))
    for variable in (1, 7):
        with pytest.raises(ValueError, match=r"one of \[0\]; got variable="):
            cyclic_shift(circuit, variable)


def test_joint_gaussians():
    rng = np.random.default_rng(0)
    p, q = (
        Circuit(MultivariateGaussian([0, 1], rng.normal(size=2), scale * np.eye(2) + 0.3))
        for scale in (0.5, 2.0)
    )
    X = rng.normal(size=(10, 2))
    product, ratio = multiply(p, q), divide(p, q)
    np.testing.assert_allclose(product.log_prob(X), p.log_prob(X) + q.log_prob(X), rtol=1e-10)
    np.testing.assert_allclose(ratio.log_prob(X), p.log_prob(X) - q.log_prob(X), rtol=1e-10)


def test_joint_gaussians_of_one_column_are_gaussians():
    joint = [Circuit(MultivariateGaussian([1], [mean], [[std**2]])) for mean, std in PAIR]
    plain = [Circuit(Gaussian(1, mean, std)) for mean, std in PAIR]
    X = np.array([[np.nan, -1.0], [np.nan, 0.5], [np.nan, 3.0]])
    for operation in (multiply, divide):
        expected = operation(*plain).log_prob(X)
        for left, right in ((joint[0], joint[1]), (joint[0], plain[1]), (plain[0], joint[1])):
            np.testing.assert_allclose(operation(left, right).log_prob(X), expected, rtol=1e-12)
    assert entropy(joint[0]) == pytest.approx(entropy(plain[0]), rel=1e-12)
    assert kl_divergence(*joint) == pytest.approx(kl_divergence(*plain), rel=1e-12)


def test_gaussian_quotients():
    narrow, wide = Circuit(Gaussian(0, 1.0, 0.5)), Circuit(Gaussian(0, -1.0, 2.0))
    X = np.linspace(-3, 3, 7)[:, None]
    expected = narrow.log_prob(X) - wide.log_prob(X)
    np.testing.assert_allclose(divide(narrow, wide).log_prob(X), expected, rtol=1e-10)
    for divisor in (narrow, Circuit(Gaussian(0, 0.0, 0.1))):
        with pytest.raises(CircuitPropertyError, match="be wider in every direction"):
            divide(narrow, divisor)


def test_disjoint_supports_give_the_zero_circuit():
    p, q = (Circuit(Indicator(0, state, 2) * Bernoulli(1, 0.5)) for state in (0, 1))
    X = np.array([[0.0, 0.0], [1.0, 1.0], [np.nan, np.nan]])
    for zero in (multiply(p, q), divide(p, q)):
        assert np.isneginf(zero.log_prob(X)).all()
        assert zero.variables == (0, 1)


def test_factors_beyond_the_range_of_floats():
    """∫ p q is about e^-50000: the factor is spread over several sums."""
    p, q = (Circuit(Product([Gaussian(v, mean, 1.0) for v in range(20)])) for mean in (0.0, 100.0))
    product = multiply(p, q)
    X = np.full((1, 20), 50.0)
    np.testing.assert_allclose(product.log_prob(X), p.log_prob(X) + q.log_prob(X), rtol=1e-12)
    assert product.log_partition == pytest.approx(20 * (-2500.0 - 0.5 * np.log(4 * np.pi)))
    assert product.normalize().log_partition == pytest.approx(0.0, abs=1e-9)


def test_conflicts_name_both_partitions():
    a, b, c = (Bernoulli(v, 0.5) for v in range(3))
    p = Circuit(Product([a, Product([b, c])]))
    q = Circuit(Product([Product([a, b]), c]))
    for operation in (multiply, divide):
        with pytest.raises(IncompatibleCircuitsError) as caught:
            operation(p, q)
        assert "left=((0,), (1, 2))" in str(caught.value)
        assert "right=((0, 1), (2,))" in str(caught.value)


def test_refusals_say_why():
    mixture = Circuit(0.5 * Bernoulli(0, 0.2) + 0.5 * Bernoulli(0, 0.7))
    with pytest.raises(CircuitPropertyError, match="must be deterministic to be divided by"):
        divide(mixture, mixture)
    with pytest.raises(IncompatibleCircuitsError, match="have the same variables"):
        multiply(mixture, Circuit(Bernoulli(1, 0.5)))
    with pytest.raises(CircuitPropertyError, match=r"must be of families with a rule for it"):
        multiply(mixture, Circuit(Gaussian(0, 0.0, 1.0)))
    rough = Circuit(Sum([Bernoulli(0, 0.5), Product([Bernoulli(0, 0.5), Bernoulli(1, 0.5)])]))
    with pytest.raises(CircuitPropertyError, match="both be smooth and decomposable"):
        multiply(rough, rough)


def test_deep_circuits_need_no_recursion():
    unit = Bernoulli(0, 0.5)
    for variable in range(1, 500):
        unit = Sum([Product([unit, Bernoulli(variable, 0.5)])])
    circuit = Circuit(unit)
    assert multiply(circuit, circuit).log_partition == pytest.approx(-500 * np.log(2))


def test_products_of_tiny_masses_keep_their_logarithms():
    p = Circuit(Categorical(0, [1e-200, 1 - 1e-200, 0.0]))
    q = Circuit(Categorical(0, [1e-200, 0.0, 1 - 1e-200]))
    product = multiply(p, q)
    X = np.array([[0.0], [1.0], [2.0]])
    np.testing.assert_allclose(product.log_prob(X), [-400 * np.log(10), -np.inf, -np.inf])
    ratio = divide(p, Circuit(Categorical(0, [1e-310, 1.0, 0.0])))
    assert ratio.log_prob([[0.0]])[0] == pytest.approx(110 * np.log(10), rel=1e-12)


def test_states_that_no_unit_can_hold_are_refused():
    p = Circuit(Categorical(0, [1 - 1e-300, 1e-300]))
    with pytest.raises(CircuitPropertyError, match=r"5e-324 .* variable=0, states=\[1\]"):
        multiply(p, p)


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_gaussian_rules_in_any_unit(unit):
    """The squares of these standard deviations are no floats."""
    p, q = (Circuit(Gaussian(0, mean * unit, std * unit)) for mean, std in [(1, 0.5), (-1, 2)])
    X = unit * np.array([[-3.0], [0.0], [2.0]])
    own, other = p.log_prob(X), q.log_prob(X)
    np.testing.assert_allclose(multiply(p, q).log_prob(X), own + other, rtol=1e-12)
    np.testing.assert_allclose(divide(p, q).log_prob(X), own - other, rtol=1e-12)
    # In units of one these are the textbook numbers.
    assert kl_divergence(p, q) == pytest.approx(np.log(4) + (0.25 + 4) / 8 - 0.5, rel=1e-12)
    expected = 0.5 * np.log(2 * np.pi * np.e) + np.log(0.5) + np.log(unit)
    assert entropy(p) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("std", [1e-200, 1e-8])
def test_factors_out_of_all_proportion_are_refused(std):
    """A factor of e^-1e16 would take millions of sums."""
    p, q = (Circuit(Gaussian(0, mean, std)) for mean in (0.0, 1.0))
    with pytest.raises(CircuitPropertyError, match="logarithm of a factor"):
        multiply(p, q)


@pytest.mark.parametrize("shift", [1.5, 1.0, True, "1"])
def test_shifts_are_integers(shift):
    with pytest.raises(ValueError, match="shift must be an integer"):
        cyclic_shift(Circuit(Categorical(0, [0.2, 0.3, 0.5])), 0, shift)


@pytest.mark.parametrize("operation", [multiply, divide])
def test_weights_of_products_and_quotients_do_not_underflow(operation):
    """The second state weighs e^-1381 of the first in p."""
    terms = [Product([Indicator(0, s, 2), Bernoulli(1, 0.5)]) for s in range(2)]
    small = Sum([Sum([terms[1]], weights=[1e-300])], weights=[1e-300])
    p = Circuit(Sum([terms[0], small], weights=[1.0, 1.0]))
    q = Circuit(Sum(terms, weights=[0.5, 0.5]))
    X = [[0.0, 0.0], [1.0, 0.0]]
    sign = 1.0 if operation is multiply else -1.0
    expected = p.log_prob(X) + sign * q.log_prob(X)
    np.testing.assert_allclose(operation(p, q).log_prob(X), expected, rtol=1e-12)
