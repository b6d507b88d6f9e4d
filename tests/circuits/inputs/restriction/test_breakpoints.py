import numpy as np
import pytest

from skcircuits.circuits import (
    Circuit,
    Gaussian,
    JohnsonGaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Poisson,
    TruncatedGaussian,
)
from skcircuits.circuits.inputs.restriction._evidence import (
    Breakpoints,
    _least_over,
    breakpoints,
)
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
        JohnsonGaussian([1], [0.3], [[0.7]], [2.0], curvatures=[1.4]),
    ],
)
def test_densities_are_integrated_panel_by_panel(unit):
    layer = only_layer(unit)
    found = breakpoints(layer, 1)
    assert len(found.atoms) == 0
    ends = found.edges()
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


def test_panels_of_many_units_are_shared():
    """As fine everywhere as the finest of the units there, whose number does not matter."""
    rng = np.random.default_rng(0)
    regions = np.array([[-9.0, 9.0, 1.2], [0.0, 1.8, 0.12], [20.0, 21.0, 0.3]]).T
    copies = np.repeat(regions, 50, axis=1) + 1e-9 * rng.normal(size=(1, 150))
    knots = np.array([0.7, 15.0])
    one, many = (Breakpoints(knots, np.empty(0), own).edges() for own in (regions, copies))
    assert np.isin(knots, one).all() and one[0] == -9.0 and one[-1] == 21.0
    for start, stop, length in regions.T:
        inside = (one[:-1] < stop - 1e-9) & (one[1:] > start + 1e-9)
        # The first and the last may reach beyond
        assert np.diff(one)[inside][1:-1].max() <= length + 1e-12
    assert len(one) <= 16 + 16 + 5 + 4
    assert abs(len(many) - len(one)) <= 2
    assert len(Breakpoints(knots, np.empty(0), regions).edges(3.0)) < len(one) / 2


def test_least_values_over_ranges():
    rng = np.random.default_rng(1)
    for n in (1, 2, 7, 64):
        first, last = np.sort(rng.integers(0, n + 1, size=(2, 9)), axis=0)
        values = rng.normal(size=9)
        covers = (first[:, None] <= np.arange(n)) & (np.arange(n) < last[:, None])
        expected = np.where(covers, values[:, None], np.inf).min(axis=0)
        np.testing.assert_array_equal(_least_over(first, last, values, n), expected)
    assert np.isinf(_least_over(np.empty(0, int), np.empty(0, int), np.empty(0), 3)).all()
