"""Hyperbolic sines of normals under intervals, against draws and among themselves."""

import numpy as np
import pytest

from skcircuits.circuits import Circuit, JohnsonGaussian
from skcircuits.circuits.inputs.base import Box
from skcircuits.circuits.inputs.restriction import Evidence
from skcircuits.circuits.inputs.restriction._evidence import Feature
from skcircuits.circuits.queries._restricted import RestrictedCircuit

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


@pytest.mark.parametrize(("cells", "lower", "upper"), CASES)
def test_no_neighbour_is_more_probable_than_the_mode(cells, lower, upper):
    circuit = Circuit(UNIT)
    (best,), (height,) = restricted(circuit, cells, lower, upper).mpe()
    steps = np.random.default_rng(0).normal(size=(5000, 3)) * 0.1
    near = np.fmin(np.fmax(best + steps, lower), upper)
    near = np.where(np.isnan(cells), near, cells)
    assert circuit.log_prob(near).max() <= height + 1e-9
    np.testing.assert_allclose(circuit.log_prob(best[None]), height, rtol=1e-12)
