"""Input units: what every family promises, unit by unit."""

import numpy as np
import pytest
from scipy import stats

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    FactorGaussian,
    Gaussian,
    Indicator,
    JohnsonGaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Poisson,
    Sum,
    TruncatedGaussian,
)
from skcircuits.circuits.inputs import MultivariateGaussianLayer

JOINT = MultivariateGaussian(
    [3, 0, 2], [1.0, -1.0, 0.5], [[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 0.8]]
)
UNITS = [
    Bernoulli(0, 0.3),
    Categorical(1, [0.2, 0.0, 0.8]),
    Indicator(2, 1, 3),
    Gaussian(1, 0.5, 2.0),
    JOINT,
    Poisson(2, 3.5),
    PiecewisePolynomial(0, [0.0, 1.0, 3.0], [0.2, 0.5], [2.0], [0.1], [0.1, 0.1], [1.0, 2.0]),
    TruncatedGaussian([2, 0], [1, 0], [[1, 0.5], [0.5, 2]], [0.5, -np.inf], [np.inf, 2.0]),
]


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_parameters_rebuild_the_unit(unit):
    twin = type(unit)(**unit.parameters())
    X = np.tile(Circuit(unit).sample(5, random_state=0), 1)
    np.testing.assert_array_equal(Circuit(twin).log_prob(X), Circuit(unit).log_prob(X))
    assert twin.scope == unit.scope


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_a_unit_whose_cells_are_unknown_has_value_one(unit):
    layer = type(unit).layer_type.stack([unit, unit])
    nothing = np.full((3, 5), np.nan)
    np.testing.assert_array_equal(layer.log_prob(nothing), np.zeros((2, 3)))
    assert len(layer) == 2
    assert layer.size_in_bytes > 0


@pytest.mark.parametrize(
    ("unit", "n_parameters"),
    [
        (Bernoulli(0, 0.3), 1),
        (Categorical(0, [0.2, 0.3, 0.1, 0.4]), 3),
        (Indicator(2, 1, 3), 0),
        (Gaussian(0, 0.5, 2.0), 2),
        (JOINT, 3 + 6),
        (Poisson(0, 3.5), 1),
        (PiecewisePolynomial(0, [0.0, 1.0, 3.0], [0.2, 0.5], [2.0], [0.3]), 2),
        # Two factors of four columns, which may be rotated
        (FactorGaussian(range(4), np.zeros(4), np.eye(4)[:, :2], np.ones(4)), 4 + 4 * 2 - 1 + 4),
        # Two columns are bent, by a center and a curvature each
        (
            JohnsonGaussian([0, 1, 2], np.zeros(3), np.eye(3), np.ones(3), [1.0, 0.0, 0.5]),
            3 + 6 + 2 * 2,
        ),
        # One bound
        (TruncatedGaussian([0, 1], [0, 0], np.eye(2), [-np.inf, 0.5], [np.inf, np.inf]), 2 + 3 + 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_parameters_are_counted(unit, n_parameters):
    assert Circuit(unit).n_parameters == n_parameters
    layer = type(unit).layer_type.stack([unit])
    held = sum(np.asarray(value).nbytes for value in unit.parameters().values())
    # At least the numbers, and not many copies of them
    assert held / 2 <= layer.size_in_bytes <= 10 * held + 1000


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_units_cannot_be_changed(unit):
    before = repr(unit)
    for name in (*vars(unit), *unit.parameters()):
        with pytest.raises(AttributeError, match=r"stay as they are|no setter"):
            setattr(unit, name, 50)
        with pytest.raises(AttributeError):
            delattr(unit, name)
    arrays = [value for value in vars(unit).values() if isinstance(value, np.ndarray)]
    assert not any(array.flags.writeable for array in arrays)
    assert repr(unit) == before


def test_inner_units_and_circuits_cannot_be_changed():
    term = Gaussian(0, 0.0, 1.0)
    circuit = Circuit(0.5 * term + 0.5 * Gaussian(0, 1.0, 1.0))
    for name in ("children", "weights", "scope"):
        with pytest.raises(AttributeError, match="attributes of a Sum must stay as they are"):
            setattr(circuit.root, name, ())
    with pytest.raises(ValueError, match="read-only"):
        circuit.root.weights[0] = 1.0
    with pytest.raises(AttributeError, match="attributes of a Circuit must stay as they are"):
        circuit.root = term


def test_gaussian_agrees_with_scipy():
    X = np.array([[0.0, -3.0], [0.0, np.nan], [0.0, 400.0]])
    found = Circuit(Gaussian(1, 0.5, 2.0)).log_prob(X)
    expected = stats.norm(0.5, 2.0).logpdf(X[:, 1])
    expected[1] = 0.0
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_joint_gaussian_agrees_with_scipy():
    """Variables may come in any order; mean and covariance follow them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 4))
    covariance = [[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 0.8]]
    expected = stats.multivariate_normal([1.0, -1.0, 0.5], covariance).logpdf(X[:, [3, 0, 2]])
    np.testing.assert_allclose(Circuit(JOINT).log_prob(X), expected, rtol=1e-12)
    X[:, 0] = np.nan
    expected = stats.multivariate_normal([1.0, 0.5], [[2.0, 0.1], [0.1, 0.8]]).logpdf(X[:, [3, 2]])
    np.testing.assert_allclose(Circuit(JOINT).log_prob(X), expected, rtol=1e-12)


def test_log_max_of_joint_gaussians_is_the_density_at_the_mode():
    rng = np.random.default_rng(1)
    units = []
    for _ in range(4):
        factor = rng.normal(size=(3, 3))
        units.append(
            MultivariateGaussian([0, 1, 2], rng.normal(size=3), factor @ factor.T + np.eye(3))
        )
    layer = MultivariateGaussianLayer.stack(units)
    X = rng.normal(size=(40, 3))
    X[rng.random(X.shape) < 0.5] = np.nan
    found = layer.log_max(X)
    for number, unit in enumerate(units):
        completed = layer.mode(np.full(len(X), number), X)
        np.testing.assert_allclose(found[number], Circuit(unit).log_prob(completed), rtol=1e-11)


def test_conditional_of_a_joint_gaussian():
    conditional = Circuit(JOINT).condition([np.nan, 0.0, 0.4, np.nan]).root
    assert conditional.scope == (0, 3)
    # Σ_mm - Σ_mo Σ_oo⁻¹ Σ_om with the variables (0, 3) given variable 2
    covariance = np.array([[1.0, 0.5], [0.5, 2.0]])
    across = np.array([-0.3, 0.1])
    np.testing.assert_allclose(conditional.covariance, covariance - np.outer(across, across) / 0.8)
    np.testing.assert_allclose(conditional.mean, [-1.0, 1.0] + across / 0.8 * (0.4 - 0.5))


def test_extreme_scales():
    circuit = Circuit(Gaussian(0, 1e-300, 1e-200) * Gaussian(1, 1e150, 1e140))
    found = circuit.log_prob([[1e-200, 1e150]])
    expected = -0.5 - np.log(2 * np.pi) - np.log(1e-200) - np.log(1e140)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bernoulli(0, 1.5), r"must lie in \[0, 1\]; got p=1.5"),
        (lambda: Bernoulli(0, np.nan), r"must lie in \[0, 1\]"),
        (lambda: Bernoulli(-1, 0.5), "non-negative column number"),
        (lambda: Bernoulli(1.0, 0.5), "non-negative column number"),
        (lambda: Bernoulli(True, 0.5), "non-negative column number"),
        (lambda: Categorical(0, [0.5, 0.6]), "sum one"),
        (lambda: Categorical(0, [1.5, -0.5]), "non-negative numbers"),
        (lambda: Categorical(0, []), "non-negative numbers"),
        (lambda: Categorical(0, [np.nan, 1.0]), "non-negative numbers"),
        (lambda: Indicator(0, 3, 3), "be one of 0, ..., 2; got state=3"),
        (lambda: Indicator(0, 10**60, 3), "state must be a non-negative integer"),
        (lambda: Indicator(0, 0, np.ones(2)), "n_states must be a positive integer"),
        (lambda: Gaussian(0, 0.0, 0.0), "finite and positive; got std=0.0"),
        (lambda: Gaussian(0, 0.0, np.inf), "finite and positive"),
        (lambda: Gaussian(0, np.nan, 1.0), "mean of a Gaussian unit must be finite"),
        (lambda: MultivariateGaussian([0, 0], [0, 0], np.eye(2)), "distinct"),
        (lambda: MultivariateGaussian([0, 1], [0, 0], np.eye(3)), "shapes"),
        (lambda: MultivariateGaussian([0, 1], [0, np.nan], np.eye(2)), "be finite"),
        (lambda: MultivariateGaussian([0, 1], [0, 0], [[1, 2], [2, 1]]), "positive definite"),
        (lambda: MultivariateGaussian([0, 1], [0, 0], [[1, 0.5], [0, 1]]), "be symmetric"),
    ],
)
def test_parameters_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_units_of_one_variable_may_have_different_numbers_of_states():
    circuit = Circuit(0.5 * Categorical(0, [0.5, 0.5]) + 0.5 * Categorical(0, [0.2, 0.3, 0.5]))
    np.testing.assert_allclose(np.exp(circuit.log_prob([[0.0], [2.0], [3.0]])), [0.35, 0.25, 0.0])
    assert circuit.cardinalities == {0: 3}
    np.testing.assert_allclose(circuit.marginals([[np.nan]])[0], [[0.35, 0.4, 0.25]])


def test_probabilities_of_a_bernoulli_unit_and_variances_of_a_number():
    np.testing.assert_allclose(Bernoulli(0, 0.3).probabilities, [0.7, 0.3])
    np.testing.assert_allclose(
        Circuit(Gaussian(0, 1.0, 2.0)).variance([[5.0], [np.nan]]), [[0.0], [4.0]]
    )


def test_errors_say_what_is_wrong_with_many_numbers():
    with pytest.raises(ValueError, match=r"must be symmetric; got largest_difference=0\.125"):
        MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.25], [0.125, 1.0]])
    with pytest.raises(ValueError, match=r"total=2000\.0\. Divide frequencies by their sum"):
        Categorical(0, np.full(1000, 2.0))
    with pytest.raises(ValueError, match=r"got child=7, weight=-1\.0\.$"):
        Sum([Gaussian(0, 0.0, 1.0)] * 1000, weights=[1.0] * 7 + [-1.0] * 993)


def test_units_of_many_states_do_not_widen_those_of_few():
    """A column of 1,000 categories took 1,000 columns for every unit of a mixture: 4 GB."""
    wide = [Categorical(0, np.full(1000, 1e-3)) * Categorical(1, [0.2, 0.8])]
    narrow = [Categorical(0, [0.5, 0.5]) * Categorical(1, [1 - p, p]) for p in (0.1, 0.2, 0.3)]
    circuit = Circuit(Sum(wide + narrow, weights=[0.25] * 4))
    sizes = [layer.log_masses.size for _, layer in circuit.plan.inputs]
    assert sum(sizes) == 1000 + 2 * 7
    rows = np.array([[0, 1], [999, np.nan], [np.nan, 0], [1000, 1], [2, 0]], dtype=float)
    expected = [0.125 * (0.1 + 0.2 + 0.3) + 0.25e-3 * 0.8, 0.25e-3, 0.65, 0.0, 0.25e-3 * 0.2]
    np.testing.assert_allclose(np.exp(circuit.log_prob(rows)), expected, rtol=1e-13)
    np.testing.assert_allclose(circuit.marginals(rows[:3])[0][2].sum(), 1.0, rtol=1e-13)
