"""What is exact: the promise per family of input units and query, as one table.

Inside the table every answer equals enumeration or quadrature to 1e-9; outside it the query
raises ``CircuitPropertyError``.
"""

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy.stats import norm

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
    TruncatedGaussian,
)
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.kernels import (
    RBF,
    Delta,
    Hamming,
    Laplacian,
    Linear,
    Polynomial,
    expected_kernel_matrix,
)

UNITS = {
    "Bernoulli": Bernoulli(0, 0.3),
    "Categorical": Categorical(0, [0.2, 0.0, 0.8]),
    "Indicator": Indicator(0, 1, 3),
    "Gaussian": Gaussian(0, 0.4, 1.2),
    "FactorGaussian": FactorGaussian([0, 1], [0.4, -1], [[1.0], [0.3]], [0.4, 0.9]),
    "JohnsonGaussian": JohnsonGaussian([0], [0.4], [[0.4]], [-0.5], [0.6]),
    "MultivariateGaussian": MultivariateGaussian([0, 1], [0.4, -1], [[1.4, 0.3], [0.3, 1]]),
    "Poisson": Poisson(0, 1.7),
    "PiecewisePolynomial": PiecewisePolynomial(
        0, [-1, 0, 0.5, 2], [0.1, 0.3, 0.1, 0.2], [0.25], [0.1], [0.1, 0.1], [1, 0.5]
    ),
    "TruncatedGaussian": TruncatedGaussian([0], [0.4], [[1.4]], [-0.7], [0.9]),
}
KERNELS = {
    "rbf": RBF(0.7),
    "laplacian": Laplacian(0.7),
    "hamming": Hamming(1.3),
    "delta": Delta(),
    "linear": Linear(),
    "polynomial": Polynomial(3, 0.5),
}
BASIC = {"density", "missing", "moments", "sampling", "interval"}
EXACT = {
    **dict.fromkeys(["Bernoulli", "Categorical", "Indicator"], BASIC | set(KERNELS)),
    "Gaussian": BASIC | {"score", "rbf", "laplacian", "linear", "polynomial"},
    "FactorGaussian": BASIC | {"score", "rbf", "linear", "polynomial"},
    "JohnsonGaussian": BASIC,
    "MultivariateGaussian": BASIC | {"score", "rbf", "linear", "polynomial"},
    "Poisson": BASIC,
    "PiecewisePolynomial": BASIC | {"rbf", "laplacian", "linear", "polynomial"},
    "TruncatedGaussian": BASIC,
}
POINT = np.array([[1.0, -0.5]])
LOWER, UPPER = np.array([[0.2, np.nan]]), np.array([[1.0, 0.3]])
NOTHING = np.full((1, 2), np.nan)


class Measure:
    """Nodes and masses that integrate smooth functions between the kinks."""

    def __init__(self, circuit, kinks=()):
        self.circuit, self.variables = circuit, list(circuit.variables)
        unit = circuit.root
        if circuit.plan.inputs[0][1].is_discrete:
            n_states = circuit.cardinalities.get(0, 60)  # counts beyond have no mass to speak of
            self.nodes = np.arange(n_states, dtype=float)[:, None]
            widths, atoms = 1.0, ()
        elif len(self.variables) == 2:
            axis = np.linspace(-10, 10, 401)
            self.nodes = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
            widths, atoms = (axis[1] - axis[0]) ** 2, ()
        else:
            atoms = getattr(unit, "atoms", ())
            ends = [getattr(unit, name, ()) for name in ("knots", "lower", "upper")]
            cuts = np.unique(np.concatenate([np.linspace(-30, 30, 240), *ends, kinks]))
            x, w = leggauss(20)
            half = np.diff(cuts)[:, None] / 2
            self.nodes = (cuts[:-1, None] + half + half * x).reshape(-1, 1)
            widths = (half * w).ravel()
        self.mass = np.exp(circuit.log_prob(self.nodes)) * widths
        if len(atoms):
            self.nodes = np.append(self.nodes, np.reshape(atoms, (-1, 1)), axis=0)
            self.mass = np.append(self.mass, unit.atom_masses)

    def mean(self, function):
        return np.tensordot(self.mass, function(self.nodes), axes=1)


def check_density(circuit):
    assert Measure(circuit).mass.sum() == pytest.approx(1.0, abs=1e-9)


def check_missing(circuit):
    assert circuit.log_prob(NOTHING) == pytest.approx(0.0, abs=1e-12)
    if len(circuit.variables) == 2:
        slice_of = circuit.marginalize([1])
        half_known = np.array([[0.7, np.nan]])
        assert circuit.log_prob(half_known) == pytest.approx(slice_of.log_prob([[0.7]])[0])


def check_moments(circuit):
    measure = Measure(circuit)
    own = measure.variables
    mean = measure.mean(lambda x: x)
    variance = measure.mean(lambda x: (x - mean) ** 2)
    np.testing.assert_allclose(circuit.expectation(NOTHING)[0, own], mean, rtol=1e-9)
    np.testing.assert_allclose(circuit.variance(NOTHING)[0, own], variance, rtol=1e-9, atol=1e-12)


def check_sampling(circuit):
    n_samples = 40_000
    measure = Measure(circuit)
    drawn = circuit.sample(n_samples, random_state=0)[:, measure.variables]
    for threshold in (-0.5, 0.25, 0.8):
        upper = np.array([[threshold, np.nan]])
        expected = np.exp(circuit.log_prob_box(NOTHING, upper))[0]
        error = 5 * np.sqrt(expected * (1 - expected) / n_samples) + 1e-12
        assert np.mean(drawn[:, 0] <= threshold) == pytest.approx(expected, abs=error)


def check_interval(circuit):
    measure = Measure(circuit, kinks=(LOWER[0, 0], UPPER[0, 0]))
    own = measure.variables
    if len(own) == 2:
        expected = box_of_joint(circuit.root)
    else:
        inside = (measure.nodes >= LOWER[:, own]) & (measure.nodes <= UPPER[:, own])
        expected = measure.mass[inside[:, 0]].sum()
    probability = np.exp(circuit.log_prob_box(LOWER, UPPER))[0]
    assert probability == pytest.approx(expected, abs=1e-12, rel=1e-9)


def check_score(circuit):
    score = circuit.grad_log_prob(POINT)
    # Log densities of single units are quadratic: central differences are exact
    steps = np.eye(2)
    rise = circuit.log_prob(POINT + steps) - circuit.log_prob(POINT - steps)
    np.testing.assert_allclose(score[0], rise / 2, rtol=1e-9)


def box_of_joint(unit):
    """P(x_0 in [a, b], x_1 <= c) by integrating over x_0."""
    x, w = leggauss(60)
    half = (UPPER[0, 0] - LOWER[0, 0]) / 2
    nodes = LOWER[0, 0] + half + half * x
    slope = unit.covariance[0, 1] / unit.covariance[0, 0]
    rest = np.sqrt(unit.covariance[1, 1] - slope * unit.covariance[0, 1])
    below = norm(unit.mean[1] + slope * (nodes - unit.mean[0]), rest).cdf(UPPER[0, 1])
    return half * w @ (norm(unit.mean[0], np.sqrt(unit.covariance[0, 0])).pdf(nodes) * below)


def check_kernel(circuit, kernel):
    measure = Measure(circuit, kinks=POINT[0])
    expected = measure.mean(lambda x: kernel(x, POINT[:, measure.variables]))
    matrix = expected_kernel_matrix(NOTHING, POINT, circuit=circuit, kernel=kernel)
    np.testing.assert_allclose(matrix[0], expected, rtol=1e-9)


CHECKS = {
    "density": check_density,
    "missing": check_missing,
    "moments": check_moments,
    "sampling": check_sampling,
    "interval": check_interval,
    "score": check_score,
    **{name: lambda c, k=kernel: check_kernel(c, k) for name, kernel in KERNELS.items()},
}


@pytest.mark.parametrize("query", CHECKS)
@pytest.mark.parametrize("family", UNITS)
def test_capability(family, query):
    circuit = Circuit(UNITS[family])
    if query in EXACT[family]:
        CHECKS[query](circuit)
    else:
        missing = "gradient of the log density" if query == "score" else "closed-form expectation"
        with pytest.raises(CircuitPropertyError, match=missing):
            CHECKS[query](circuit)


def test_boxes_of_joint_units_stop_at_three_dimensions():
    circuit = Circuit(MultivariateGaussian(range(4), np.zeros(4), np.eye(4) + 0.2))
    unbounded = np.full((1, 4), np.nan)
    three = np.array([[0.0, 0.1, -0.2, np.nan]])
    assert np.isfinite(circuit.log_prob_box(three, unbounded)).all()
    with pytest.raises(CircuitPropertyError):
        circuit.log_prob_box(np.zeros((1, 4)), unbounded)


def test_most_probable_completions_need_determinism():
    mixture = Circuit(0.5 * Bernoulli(0, 0.2) + 0.5 * Bernoulli(0, 0.7))
    with pytest.raises(CircuitPropertyError, match="Pass method='search'"):
        mixture.mpe(NOTHING)
    decision = Circuit(0.4 * Indicator(0, 0, 2) + 0.6 * Indicator(0, 1, 2))
    assert decision.mpe(NOTHING)[0, 0] == 1.0
