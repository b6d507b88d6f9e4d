"""Johnson units: normal variables seen through hyperbolic sines, against quadrature and scipy."""

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize

from skcircuits.circuits import (
    Categorical,
    Circuit,
    JohnsonGaussian,
    MultivariateGaussian,
    multiply,
)
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.kernels import RBF, expected_kernel_matrix

MEAN, COVARIANCE = np.array([0.8, -0.3, 0.1]), np.diag([0.2, 0.4, 0.1]) + 0.15
CENTERS, CURVATURES = [-1.0, 0.5, 2.0], [0.7, 0.0, 0.4]
NOTHING = np.full((1, 3), np.nan)


@pytest.fixture
def joint():
    return Circuit(JohnsonGaussian([0, 1, 2], MEAN, COVARIANCE, CENTERS, CURVATURES))


@pytest.fixture
def mixture():
    other = JohnsonGaussian([0, 1, 2], MEAN - 1.0, 2 * COVARIANCE, CENTERS, CURVATURES)
    own = JohnsonGaussian([0, 1, 2], MEAN, COVARIANCE, CENTERS, CURVATURES)
    return Circuit(
        0.3 * own * Categorical(3, [0.2, 0.8]) + 0.7 * other * Categorical(3, [0.9, 0.1])
    )


def test_one_column_is_scipys():
    x = np.linspace(-8.0, 8.0, 33)
    # z = width asinh((x - center) / width) has mean m and standard deviation s
    m, s, center, width = 0.7, 1.3, -0.4, 0.9
    peer = stats.johnsonsu(-m / s, width / s, loc=center, scale=width)
    circuit = Circuit(JohnsonGaussian([0], [m], [[s**2]], [center], [1.0 / width]))
    np.testing.assert_allclose(circuit.log_prob(x[:, None]), peer.logpdf(x), rtol=1e-12)
    nothing = np.array([[np.nan]])
    assert circuit.expectation(nothing)[0, 0] == pytest.approx(peer.mean(), rel=1e-12)
    assert circuit.variance(nothing)[0, 0] == pytest.approx(peer.var(), rel=1e-10)
    masses = np.exp(circuit.log_prob_box(x[:-1, None], x[1:, None]))
    np.testing.assert_allclose(masses, np.diff(peer.cdf(x)), rtol=1e-9, atol=1e-14)


def test_without_curvature_columns_are_normal():
    bent = Circuit(JohnsonGaussian([0, 1], MEAN[:2], COVARIANCE[:2, :2], [1, 2], [0.0, 0.0]))
    plain = Circuit(MultivariateGaussian([0, 1], MEAN[:2] + np.array([1, 2]), COVARIANCE[:2, :2]))
    X = plain.sample(20, random_state=0)
    X[::3, 0] = np.nan
    np.testing.assert_allclose(bent.log_prob(X), plain.log_prob(X))
    np.testing.assert_allclose(bent.expectation(X), plain.expectation(X))
    np.testing.assert_allclose(bent.variance(X), plain.variance(X))
    for row in X:
        best = [own.mpe(row[None], method="max_product") for own in (bent, plain)]
        np.testing.assert_allclose(*best)


def test_conditionals_and_marginals_against_quadrature(joint):
    row = np.array([[np.nan, 0.4, np.nan]])

    nodes, weights = leggauss(300)
    first, second = 25.0 * nodes, 2.0 + 12.0 * nodes
    points = np.stack(np.meshgrid(first, 0.4, second, indexing="ij"), axis=-1).reshape(-1, 3)
    masses = np.exp(joint.log_prob(points)) * np.outer(25.0 * weights, 12.0 * weights).ravel()
    assert np.exp(joint.log_prob(row))[0] == pytest.approx(masses.sum(), rel=1e-9)
    mean = masses @ points[:, 0] / masses.sum()
    assert joint.expectation(row)[0, 0] == pytest.approx(mean, rel=1e-9)
    variance = masses @ np.square(points[:, 0] - mean) / masses.sum()
    assert joint.variance(row)[0, 0] == pytest.approx(variance, rel=1e-8)
    conditional = joint.condition(row[0])
    assert conditional.variables == (0, 2)
    point = np.array([[0.3, 0.4, 2.5]])
    expected = joint.log_prob(point) - joint.log_prob(row)
    np.testing.assert_allclose(conditional.log_prob(point), expected)
    assert joint.marginalize([1, 2]).log_prob(point) == pytest.approx(
        joint.log_prob([[0.3, np.nan, np.nan]])[0]
    )


def test_boxes_are_boxes(joint):
    lower, upper = np.array([[-0.5, np.nan, 1.0]]), np.array([[1.0, 0.7, np.nan]])
    found = np.exp(joint.log_prob_box(lower, upper))[0]
    drawn = joint.sample(200_000, random_state=0)
    inside = (drawn[:, 0] > -0.5) & (drawn[:, 0] < 1.0) & (drawn[:, 1] < 0.7) & (drawn[:, 2] > 1.0)
    assert found == pytest.approx(inside.mean(), abs=4 * np.sqrt(0.25 / len(drawn)))


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_completions_are_the_most_probable(scale):
    joint = Circuit(JohnsonGaussian([0, 1, 2], MEAN, scale * COVARIANCE, CENTERS, CURVATURES))
    for row in ([np.nan, 0.4, np.nan], [0.5, np.nan, np.nan], [np.nan] * 3, [1.0, 2.0, 3.0]):
        row = np.array(row)
        best = joint.mpe(row[None], method="max_product")[0]
        missing = np.isnan(row)
        np.testing.assert_array_equal(best[~missing], row[~missing])

        def loss(cells, row=row, missing=missing):
            filled = row.copy()
            filled[missing] = cells
            return -joint.log_prob(filled[None])[0]

        if missing.any():
            found = minimize(loss, best[missing], method="Nelder-Mead", options={"xatol": 1e-9})
            assert loss(best[missing]) <= found.fun + 1e-9


def test_mixtures_answer_all_that_densities_do(mixture, tmp_path):
    X = mixture.sample(400, random_state=1)
    X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    parts = [child.children for child in mixture.root.children]
    log_terms = [
        np.log(weight) + sum(Circuit(unit).log_prob(X) for unit in children)
        for weight, children in zip(mixture.root.weights, parts, strict=True)
    ]
    np.testing.assert_allclose(mixture.log_prob(X), np.logaddexp(*log_terms), atol=1e-12)
    completed = mixture.sample(1, X=X, random_state=0)[0]
    np.testing.assert_array_equal(completed[~np.isnan(X)], X[~np.isnan(X)])
    best = mixture.mpe(X, method="max_product")
    assert np.isfinite(best).all()
    mixture.save(tmp_path / "bent.npz")
    np.testing.assert_array_equal(
        Circuit.load(tmp_path / "bent.npz").log_prob(X), mixture.log_prob(X)
    )


def test_draws_follow_the_moments(joint):
    drawn = joint.sample(100_000, random_state=0)
    np.testing.assert_allclose(drawn.mean(axis=0), joint.expectation(NOTHING)[0], atol=0.02)
    np.testing.assert_allclose(drawn.var(axis=0), joint.variance(NOTHING)[0], rtol=0.04)


def test_far_cells_keep_their_tails():
    circuit = Circuit(JohnsonGaussian([0], [0.0], [[1.0]], [0.0], [1.0]))
    x = np.array([1e3, 1e100, 1e300])
    expected = stats.norm.logpdf(np.arcsinh(x)) - np.log(x)
    np.testing.assert_allclose(circuit.log_prob(x[:, None]), expected)
    assert quad(lambda v: np.exp(circuit.log_prob([[v]])[0]), -np.inf, np.inf)[0] == (
        pytest.approx(1.0)
    )


def test_what_it_lacks_is_refused(joint):
    with pytest.raises(CircuitPropertyError):
        multiply(joint, joint)
    with pytest.raises(CircuitPropertyError):
        expected_kernel_matrix(NOTHING, circuit=joint, kernel=RBF(1.0))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"curvatures": [1.0, -0.1]}, "be finite, and not negative"),
        ({"centers": [0.0, np.nan]}, "finite"),
        ({"curvatures": [1.0]}, r"have shape \(2,\)"),
        ({"mean": [500.0, 0.0]}, "stay below 300 divided by the curvatures"),
    ],
)
def test_malformed_units_are_refused(changed, message):
    own = {"mean": [0.0, 0.0], "covariance": np.eye(2), "centers": [0, 0], "curvatures": [1, 1]}
    with pytest.raises(ValueError, match=message):
        JohnsonGaussian([0, 1], **(own | changed))


def test_means_beside_densities_are_those_of_the_moments(mixture):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(50, 3)), rng.integers(0, 2, 50)])
    X[rng.random(X.shape) < 0.4] = np.nan
    weights = np.exp(
        [
            np.log(fraction) + Circuit(unit).log_prob(X)
            for fraction, unit in zip((0.3, 0.7), (_unit(0.0, 1.0, 0.2), _unit(1.0, 2.0, 0.9)))
        ]
    )
    weights /= weights.sum(axis=0)
    parts = [_unit(0.0, 1.0, 0.2), _unit(1.0, 2.0, 0.9)]
    moments = [Circuit(unit).expectation(X)[:, :3] for unit in parts]
    expected = np.einsum("kn,knd->nd", weights, np.stack(moments))
    np.testing.assert_allclose(mixture.expectation(X)[:, :3], expected, rtol=1e-11)


def _unit(shift, spread, fraction):
    joint = JohnsonGaussian([0, 1, 2], MEAN - shift, spread * COVARIANCE, CENTERS, CURVATURES)
    return joint * Categorical(3, [fraction, 1.0 - fraction])
