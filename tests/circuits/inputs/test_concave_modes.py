"""Most probable points of concave log densities, also where correlations are near one."""

from itertools import product

import numpy as np
import pytest
from scipy import optimize, stats

from skcircuits.circuits import Circuit, JohnsonGaussian, MultivariateGaussian
from skcircuits.circuits.inputs._gaussian_integrals import best_in_box
from skcircuits.circuits.inputs.base import Box
from skcircuits.circuits.inputs.restriction import Evidence
from skcircuits.circuits.queries._boxes import RestrictedCircuit

NAN = np.nan


def by_enumeration(center, precision, low, high):
    """Best of the optima of all faces of a box that lie in it."""
    best, least = None, np.inf
    for sides in product(["free", "low", "high"], repeat=len(center)):
        fixed = [i for i, side in enumerate(sides) if side != "free"]
        free = [i for i, side in enumerate(sides) if side == "free"]
        point = center.copy()
        point[fixed] = [low[i] if sides[i] == "low" else high[i] for i in fixed]
        if not np.isfinite(point).all():
            continue
        if free and fixed:
            pull = precision[np.ix_(free, fixed)] @ (point[fixed] - center[fixed])
            point[free] = center[free] - np.linalg.solve(precision[np.ix_(free, free)], pull)
        cost = (point - center) @ precision @ (point - center)
        if (point >= low).all() and (point <= high).all() and cost < least:
            best, least = point, cost
    return best


@pytest.mark.parametrize("correlation", [0.0, -0.4, 0.9, 0.99999])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_densest_points_in_boxes_are_those_of_all_faces(size, correlation):
    rng = np.random.default_rng(size)
    covariance = np.full((size, size), correlation) + (1.0 - correlation) * np.eye(size)
    centers = 2.0 * rng.normal(size=(200, size))
    low, high = np.sort(rng.normal(size=(2, 200, size)), axis=0)
    low[rng.random(low.shape) < 0.2] = -np.inf
    high[rng.random(high.shape) < 0.2] = np.inf
    precision = np.linalg.inv(covariance)
    found = best_in_box(centers, precision, low, high)
    for one in range(200):
        expected = by_enumeration(centers[one], precision, low[one], high[one])
        np.testing.assert_allclose(found[one], expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("correlation", [0.9, 0.9999, 1.0 - 1e-6])
@pytest.mark.parametrize("curvatures", [(0.0, 0.0), (0.5, 3.0), (5.0, 0.0)])
@pytest.mark.parametrize("ends", [(0.5, 1.5), (4.0, 5.0), (-0.1, np.inf)])
def test_modes_of_one_column_with_another_integrated_out(correlation, curvatures, ends):
    covariance = np.array([[1.0, correlation], [correlation, 1.0]])
    if any(curvatures):
        unit = JohnsonGaussian([0, 1], [0.3, 0.2], covariance, [0.0, 0.0], curvatures)
    else:
        unit = MultivariateGaussian([0, 1], [0.3, 0.2], covariance)
    box = Box(np.array([[NAN, ends[0]]]), np.array([[NAN, ends[1]]]))
    known = Evidence(np.full((1, 2), NAN), box)
    (best,), (height,) = RestrictedCircuit(Circuit(unit).plan, known).mpe(np.array([1]))
    spread = np.sqrt(1.0 - correlation**2)

    def to_normal(x, curvature):
        return np.arcsinh(curvature * np.asarray(x)) / curvature if curvature else np.asarray(x)

    def log_density(z):
        slope = np.log(np.cosh(curvatures[0] * z))
        center = 0.2 + correlation * (z - 0.3)
        low, high = ((to_normal(end, curvatures[1]) - center) / spread for end in ends)
        if low > 0.0:
            low, high = -high, -low
        upper, lower = stats.norm.logcdf(high), stats.norm.logcdf(low)
        return stats.norm.logpdf(z, 0.3) - slope + upper + np.log1p(-np.exp(lower - upper))

    found = optimize.minimize_scalar(
        lambda z: -log_density(z), bounds=(-3.0, 6.0), method="bounded", options={"xatol": 1e-10}
    )
    assert height == pytest.approx(-found.fun, abs=1e-9)
    assert to_normal(best[0], curvatures[0]) == pytest.approx(found.x, abs=1e-6)


def test_modes_of_heavy_tails_are_where_the_gradient_vanishes():
    mean, precision = np.array([6.0, -4.0]), np.linalg.inv([[4.0, 3.9], [3.9, 4.0]])
    unit = JohnsonGaussian([0, 1], mean, np.linalg.inv(precision), [0.0, 0.0], [8.0, 0.2])
    (best,) = Circuit(unit).mpe(np.full((1, 2), NAN))
    curvatures = np.array([8.0, 0.2])
    z = np.arcsinh(curvatures * best) / curvatures
    gradient = -precision @ (z - mean) - curvatures * np.tanh(curvatures * z)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-7)
