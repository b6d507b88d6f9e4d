"""The score function of a circuit: brute force, finite differences, tails and refusals."""

import numpy as np
import pytest

from skcircuits.circuits import (
    Categorical,
    Circuit,
    Gaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Product,
    Sum,
)
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.graphical import GaussianMRF
from tests.reference.case import QueryCase
from tests.reference.enumeration import unit_gradients, unit_values
from tests.reference.random_circuits import RandomCircuit


def mixture(n_components, n_columns, seed=0):
    rng = np.random.default_rng(seed)
    units = []
    for _ in range(n_components):
        factor = rng.normal(size=(n_columns, n_columns))
        covariance = factor @ factor.T / n_columns + 0.3 * np.eye(n_columns)
        mean = 2 * rng.normal(size=n_columns)
        units.append(MultivariateGaussian(range(n_columns), mean, covariance))
    return Circuit(Sum(units, weights=rng.dirichlet(np.ones(n_components))))


class TestScore(QueryCase):
    """Of a marginal density: ∂ log p(x_o) = ∫ ∂p(x) dx_m / p(x_o)."""

    def circuit(self, seed):
        return RandomCircuit(seed, [0] * (1 + seed % 4), structured=seed % 2 == 0).circuit()

    def query(self, circuit, X):
        return circuit.grad_log_prob(X)

    def expected(self, completions):
        gradients = unit_gradients(completions.circuit, completions.nodes) * completions.step
        return np.where(
            np.isnan(completions.row), np.nan, gradients.sum(axis=0) / completions.total
        )


@pytest.mark.parametrize("fraction", [0.0, 0.3])
def test_equals_finite_differences_in_many_batches(fraction):
    circuit = mixture(6, 5)
    rng = np.random.default_rng(0)
    X = circuit.sample(1200, random_state=rng)
    X[rng.random(X.shape) < fraction] = np.nan
    step = 1e-5
    expected = np.stack(
        [
            (circuit.log_prob(X + shift) - circuit.log_prob(X - shift)) / (2 * step)
            for shift in step * np.eye(5)
        ],
        axis=1,
    )
    score = circuit.grad_log_prob(X)
    np.testing.assert_array_equal(np.isnan(score), np.isnan(X))
    observed = ~np.isnan(X)
    np.testing.assert_allclose(score[observed], expected[observed], rtol=1e-6, atol=1e-6)
    for row in (0, 700):
        np.testing.assert_allclose(circuit.grad_log_prob(X[[row]])[0], score[row], rtol=1e-10)
    doubled = circuit.grad_log_prob(X[[5, 5, 6, 5]])
    np.testing.assert_allclose(doubled, score[[5, 5, 6, 5]], rtol=1e-10)
    assert circuit.grad_log_prob(np.empty((0, 5))).shape == (0, 5)


def test_one_joint_unit_equals_the_gaussian_field():
    mean, covariance = [1.0, -2.0, 0.5], [[2.0, 0.3, 0.1], [0.3, 1.0, -0.4], [0.1, -0.4, 0.7]]
    circuit = Circuit(MultivariateGaussian([2, 0, 1], mean, covariance))
    field = GaussianMRF.from_moments(mean, covariance)
    X = np.random.default_rng(0).normal(size=(20, 3))
    expected = field.grad_log_prob(X[:, [2, 0, 1]])[:, [1, 2, 0]]
    np.testing.assert_allclose(circuit.grad_log_prob(X), expected, rtol=1e-12, atol=1e-12)


def test_far_rows_feel_the_nearest_component():
    """Densities of exp(-1e5) and less: responsibilities are a softmax of logarithms."""
    far = np.array([[-450.0], [450.0], [1e9], [-1e100]])
    circuit = Circuit(0.3 * Gaussian(0, -2.0, 1.0) + 0.7 * Gaussian(0, 3.0, 1.0))
    assert (circuit.log_prob(far) < -9e4).all()
    # Beyond 1e16 the means themselves are below the last digit, but flows are fractions
    nearest = np.array([[-2.0], [3.0], [3.0], [-2.0]])
    np.testing.assert_allclose(circuit.grad_log_prob(far), nearest - far, rtol=1e-12)
    # Between them, where both densities vanish, the responsibilities are still even
    split = Circuit(0.5 * Gaussian(0, -1000.0, 1.0) + 0.5 * Gaussian(0, 1000.0, 1.0))
    tilt = 1000.0 * np.tanh(1000.0 * 1e-3) - 1e-3
    np.testing.assert_allclose(split.grad_log_prob([[0.0], [1e-3]]), [[0.0], [tilt]], rtol=1e-9)
    joint = mixture(4, 3)
    X = 300.0 * np.random.default_rng(1).normal(size=(50, 3))
    values = np.array([unit_values(joint, x[None]) for x in X])
    assert values.max() == 0.0 and np.isfinite(joint.grad_log_prob(X)).all()


def test_rows_whose_density_has_no_logarithm_are_marked():
    circuit = Circuit(0.5 * Gaussian(0, 0.0, 1.0) + 0.5 * Gaussian(0, 1.0, 2.0))
    with np.errstate(over="ignore"):
        score = circuit.grad_log_prob([[1e200], [2.0]])
    assert np.isnan(score[0]) and np.isfinite(score[1])


@pytest.mark.parametrize("scale", [1e-100, 1e-8, 1e8, 1e100])
def test_units_of_columns_do_not_matter(scale):
    units = np.array([1.0, scale])
    plain = mixture(3, 2)
    rescaled = Circuit(
        Sum(
            [
                MultivariateGaussian(
                    [0, 1], unit.mean * units, unit.covariance * np.outer(units, units)
                )
                for unit in plain.root.children
            ],
            weights=plain.root.weights,
        )
    )
    X = plain.sample(50, random_state=0)
    X[::7, 0] = np.nan
    expected = plain.grad_log_prob(X) / units
    np.testing.assert_allclose(rescaled.grad_log_prob(X * units), expected, rtol=1e-9)


def test_a_narrow_component_far_away_adds_nothing():
    circuit = Circuit(0.5 * Gaussian(0, 0.0, 1e-160) + 0.5 * Gaussian(0, 0.0, 1.0))
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(circuit.grad_log_prob([[1.5]]), [[-1.5]])


def test_missing_and_foreign_columns():
    circuit = Circuit(Gaussian(0, 1.0, 2.0) * Gaussian(3, 0.0, 1.0))
    X = [[np.nan, 7.0, np.nan, 5.0], [3.0, np.nan, 1.0, np.nan]]
    expected = [[np.nan, 0.0, np.nan, -5.0], [-0.5, np.nan, 0.0, np.nan]]
    np.testing.assert_array_equal(circuit.grad_log_prob(X), expected)


def test_complete_rows_need_no_property():
    """A square of a density, and terms over different columns: functions all the same."""
    left, right = Gaussian(0, 0.0, 1.0), Gaussian(1, 2.0, 1.0)
    circuit = Circuit(Sum([Product([left, left]), right], weights=[0.5, 0.5]))
    X = np.random.default_rng(0).normal(size=(10, 2))
    expected = unit_gradients(circuit, X) / unit_values(circuit, X)[:, None]
    np.testing.assert_allclose(circuit.grad_log_prob(X), expected, rtol=1e-12)
    with pytest.raises(CircuitPropertyError, match="for grad_log_prob with NaN cells"):
        circuit.grad_log_prob([[np.nan, 0.0]])


@pytest.mark.parametrize(
    "other", [Categorical(1, [0.5, 0.5]), PiecewisePolynomial(1, [0.0, 1.0], [1.0])]
)
def test_other_input_units_are_refused_by_name(other):
    circuit = Circuit(Gaussian(0, 1.0, 2.0) * other)
    message = rf"input_units=\['{type(other).__name__}'\]. Remove .* by condition\(\) or"
    with pytest.raises(CircuitPropertyError, match=message):
        circuit.grad_log_prob([[0.0, 0.0]])
    # The way out that the message names
    X = [[4.0, np.nan]]
    np.testing.assert_allclose(circuit.marginalize([1]).grad_log_prob(X)[0, 0], -0.75)
    np.testing.assert_allclose(circuit.condition([np.nan, 1.0]).grad_log_prob(X)[0, 0], -0.75)


def test_infinite_cells_are_refused():
    with pytest.raises(ValueError, match="cells of X must be finite or NaN"):
        Circuit(Gaussian(0, 1.0, 2.0)).grad_log_prob([[np.inf]])


def test_stein_identity():
    """E[s f' + f''] = 0 for samples of the circuit, for functions f of each column."""
    circuit = mixture(3, 2)
    X = circuit.sample(200_000, random_state=0)
    score = circuit.grad_log_prob(X)
    for terms in (score, X * score + 1, np.cos(X) * score - np.sin(X)):
        error = terms.mean(axis=0) / (terms.std(axis=0) / np.sqrt(len(X)))
        assert np.abs(error).max() < 4
