import numpy as np
import pytest

from skcircuits.circuits import (
    Circuit,
    Gaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Poisson,
    TruncatedGaussian,
)
from skcircuits.circuits.inputs.restriction._evidence import breakpoints
from skcircuits.circuits.inputs.restriction._gaussians import can_bound_forms
from skcircuits.exceptions import CircuitPropertyError


def only_layer(unit):
    return Circuit(unit).plan.inputs[0][1]


@pytest.mark.parametrize(
    "unit",
    [
        Gaussian(1, mean=3.0, std=0.2),
        MultivariateGaussian([0, 1], [5.0, -1.0], [[2.0, 0.5], [0.5, 0.3]]).marginalize(
            frozenset({0})
        ),
        PiecewisePolynomial(1, [0.0, 1.0, 3.0], [0.25, 0.5, 0.25]),
        PiecewisePolynomial(1, [0.0, 1.0], [0.5], tail_masses=[0.3, 0.2], tail_scales=[1e-3, 20.0]),
        TruncatedGaussian([1], [3.0], [[2.0]], [2.5], [4.2]),
    ],
)
def test_densities_are_integrated_panel_by_panel(unit):
    layer = only_layer(unit)
    ends, atoms = breakpoints(layer, 1)
    assert len(atoms) == 0
    ends = np.unique(ends)
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = np.diff(ends)[:, None] / 2
    x = (ends[:-1, None] + half * (1 + nodes)).ravel()
    density = np.exp(layer.log_prob(np.column_stack([np.zeros_like(x), x])))[0]
    assert density @ (half * weights).ravel() == pytest.approx(1.0, abs=1e-12)


def test_families_without_a_rule_are_refused():
    layer = only_layer(Poisson(0, 2.0))
    with pytest.raises(CircuitPropertyError, match="PoissonLayer"):
        breakpoints(layer, 0)
    assert not can_bound_forms(layer, [0])


def test_linear_forms_need_all_variables_in_one_unit():
    layer = only_layer(MultivariateGaussian([0, 2], np.zeros(2), np.eye(2)))
    assert can_bound_forms(layer, [0, 2])
    assert not can_bound_forms(layer, [0, 1])
    assert not can_bound_forms(only_layer(Gaussian(0, 0.0, 1.0)), [0])
