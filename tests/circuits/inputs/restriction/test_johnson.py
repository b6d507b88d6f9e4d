"""Hyperbolic sines of normals under intervals, against draws and quadrature."""

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy.stats import multivariate_normal

from skcircuits.circuits import Circuit, JohnsonGaussian, MultivariateGaussian
from skcircuits.circuits.inputs.base import Box
from skcircuits.circuits.inputs.restriction import Evidence
from skcircuits.circuits.inputs.restriction._evidence import Feature
from skcircuits.circuits.queries._boxes import RestrictedCircuit

NAN = np.nan
SPREAD = [[1.0, 0.5, 0.2], [0.5, 0.8, -0.3], [0.2, -0.3, 0.6]]
UNIT = JohnsonGaussian([0, 1, 2], [0.3, -0.2, 0.5], SPREAD, [0, 1, -1], [0.7, 0, 0.4])
OTHER = JohnsonGaussian([0, 1, 2], [-0.3, 0.2, 0], SPREAD, [0, 1, -1], [0.7, 0, 0.4])
CASES = [
    ([NAN, NAN, NAN], [0.2, NAN, -2.0], [1.5, 1.4, NAN]),
    ([0.5, NAN, NAN], [NAN, NAN, -1.0], [NAN, NAN, 1.0]),
    ([NAN, NAN, NAN], [NAN, NAN, NAN], [NAN, NAN, NAN]),
]


def restricted(circuit, cells, lower, upper):
    box = Box(np.array([lower]), np.array([upper]))
    return RestrictedCircuit(circuit.plan, Evidence(np.array([cells]), box))


@pytest.mark.parametrize(("cells", "lower", "upper"), CASES)
def test_moments_are_those_of_draws(cells, lower, upper):
    known = restricted(Circuit(0.4 * UNIT + 0.6 * OTHER), cells, lower, upper)
    rows = Circuit(0.4 * UNIT + 0.6 * OTHER).sample(1, np.array([cells] * 60_000), random_state=0)
    rows = rows.reshape(-1, 3)
    outside = (rows < lower) | (rows > upper)
    rows = rows[~outside.any(axis=1)]
    own = known.sample(np.array([60_000]), np.random.default_rng(1))
    assert not ((own < lower) | (own > upper)).any()
    (mean,), (variance,) = known.moments()
    (covariance,) = known.covariance([Feature(j) for j in range(3)])
    np.testing.assert_allclose(np.diagonal(covariance), variance, rtol=1e-9, atol=1e-9)
    for drawn in (rows, own):
        errors = np.sqrt(variance / len(drawn)) + 1e-12
        assert (np.abs(drawn.mean(axis=0) - mean) < 4.0 * errors).all()
        np.testing.assert_allclose(np.cov(drawn.T), covariance, rtol=0.05, atol=0.03)


def by_quadrature(curvatures, cells, lower, upper, n_nodes=48):
    """Log mass, mean and covariance of the mixture, from a grid over its normal variables."""
    centers = np.array([0.0, 1.0, -1.0])
    flat = curvatures == 0.0
    safe = np.where(flat, 1.0, curvatures)

    def normal(x):
        return np.where(flat, x - centers, np.arcsinh(safe * (x - centers)) / safe)

    nodes, weights = leggauss(n_nodes)
    axes, masses = [], []
    for z, low, high in zip(normal(cells), normal(lower), normal(upper)):
        low, high = np.fmax(low, -7.5), np.fmin(high, 7.5)
        axes.append(low + (high - low) * (nodes + 1) / 2 if np.isnan(z) else np.array([z]))
        masses.append((high - low) / 2 * weights if np.isnan(z) else np.ones(1))
    z = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    mass = np.einsum("i,j,k->ijk", *masses).ravel()
    means = np.array([[0.3, -0.2, 0.5], [-0.3, 0.2, 0.0]])
    mass = mass * sum(w * multivariate_normal(m, SPREAD).pdf(z) for w, m in zip([0.4, 0.6], means))
    x = centers + np.where(flat, z, np.sinh(curvatures * z) / safe)
    slopes = np.sqrt(1.0 + (curvatures * (x[0] - centers)) ** 2)[~np.isnan(cells)]
    fraction = mass / mass.sum()
    mean = fraction @ x
    return (
        np.log(mass.sum()) - np.log(slopes).sum(),
        mean,
        (fraction[:, None] * (x - mean)).T @ (x - mean),
    )


@pytest.mark.parametrize("curvatures", [[0.7, 0.0, 0.4], [0.0, 0.0, 0.0]], ids=str)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_masses_and_moments_agree_with_quadrature(case, curvatures):
    """Rows of several kinds at once, the asked one first or last."""
    circuit = Circuit(0.4 * UNIT + 0.6 * OTHER)
    if not any(curvatures):
        flat = [
            MultivariateGaussian([0, 1, 2], m, SPREAD) for m in ([0.3, 0.8, -0.5], [-0.3, 1.2, -1])
        ]
        circuit = Circuit(0.4 * flat[0] + 0.6 * flat[1])
    log_mass, mean, covariance = by_quadrature(np.array(curvatures), *map(np.array, CASES[case]))
    features = [Feature(j) for j in (2, 0, 1)]
    for order in ([case, *range(3)], [*range(3), case]):
        place = order.index(case) if order[0] == case else len(order) - 1
        X, lower, upper = (np.array([CASES[i][part] for i in order]) for part in range(3))
        known = RestrictedCircuit(circuit.plan, Evidence(X, Box(lower, upper)))
        means, variances = known.moments()
        np.testing.assert_allclose(known.log_mass()[place], log_mass, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(means[place], mean, rtol=1e-7)
        np.testing.assert_allclose(variances[place], np.diag(covariance), rtol=1e-6, atol=1e-14)
        found = known.covariance(features)[place]
        expected = covariance[np.ix_([2, 0, 1], [2, 0, 1])]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("cells", "lower", "upper"), CASES)
def test_no_neighbour_is_more_probable_than_the_mode(cells, lower, upper):
    circuit = Circuit(UNIT)
    (best,), (height,) = restricted(circuit, cells, lower, upper).mpe()
    steps = np.random.default_rng(0).normal(size=(5000, 3)) * 0.1
    near = np.fmin(np.fmax(best + steps, lower), upper)
    near = np.where(np.isnan(cells), near, cells)
    assert circuit.log_prob(near).max() <= height + 1e-9
    np.testing.assert_allclose(circuit.log_prob(best[None]), height, rtol=1e-12)


@pytest.mark.parametrize(
    ("cells", "lower", "upper", "left_out"),
    [
        ([NAN, NAN, NAN], [NAN, NAN, NAN], [NAN, NAN, NAN], [1, 2]),
        ([NAN, NAN, NAN], [NAN, 1.5, NAN], [NAN, NAN, NAN], [1, 2]),
        ([NAN, NAN, NAN], [0.2, 1.5, -2.0], [NAN, 3.0, -1.5], [1, 2]),
        ([NAN, 1.5, NAN], [NAN, NAN, -1.2], [NAN, NAN, NAN], [1, 2]),
        ([NAN, NAN, 0.5], [NAN, 1.5, NAN], [NAN, NAN, NAN], [1]),
    ],
)
def test_best_points_of_one_column_are_those_of_a_grid(cells, lower, upper, left_out):
    parts = [(0.4, UNIT), (0.6, OTHER)]
    known = restricted(Circuit(0.4 * UNIT + 0.6 * OTHER), cells, lower, upper)
    (best,), (height,) = known.mpe(np.array(left_out))
    grid = np.linspace(np.fmax(lower[0], -3.0), np.fmin(upper[0], 3.0), 6001)
    X = np.repeat([cells], len(grid), axis=0)
    X[:, 0] = grid
    box = Box(*(np.repeat([ends], len(grid), axis=0) for ends in (lower, upper)))
    terms = [
        np.log(weight) + RestrictedCircuit(Circuit(unit).plan, Evidence(X, box)).log_mass()
        for weight, unit in parts
    ]
    found = np.max(terms, axis=0)
    assert height == pytest.approx(found.max(), abs=1e-5)
    assert best[0] == pytest.approx(grid[found.argmax()], abs=2e-3)
