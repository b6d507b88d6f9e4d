"""Piecewise polynomial units against quadrature, their own samples and exact limits."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import fixed_quad

from skcircuits.circuits import Circuit, PiecewisePolynomial, Sum
from skcircuits.circuits.inputs import Box, PiecewisePolynomialLayer
from skcircuits.circuits.inputs.restriction import Evidence, restrict


def random_unit(rng, degree=3, n_pieces=4, n_atoms=2, scale=1.0, variable=0, tails=True):
    knots = scale * np.cumsum(rng.gamma(1.0, size=n_pieces + 1) + 0.05)
    atoms = scale * np.sort(rng.uniform(0.0, 6.0, size=n_atoms))
    parts = rng.dirichlet(np.ones(n_pieces + degree + n_atoms + 2 * tails))
    weights, masses = parts[: n_pieces + degree], parts[n_pieces + degree :][:n_atoms]
    tail_masses = parts[-2:] if tails else (0.0, 0.0)
    tail_scales = scale * rng.gamma(2.0, size=2) if tails else None
    return PiecewisePolynomial(variable, knots, weights, atoms, masses, tail_masses, tail_scales)


def density(unit, x):
    """Density of a unit at points of any shape."""
    return np.exp(Circuit(unit).log_prob(np.reshape(x, (-1, 1)))).reshape(np.shape(x))


def integral(function, low, high):
    """By Gauss's rule, exact for polynomials and close for tails of a few scales."""
    return fixed_quad(function, low, high, n=40)[0]


def mass_by_quadrature(unit, lower, upper):
    """Integral of the density between finite bounds plus the atoms inside."""
    breaks = np.unique(np.clip([lower, *unit.knots, upper], lower, upper))
    total = sum(integral(lambda x: density(unit, x), a, b) for a, b in pairwise(breaks))
    inside = (unit.atoms >= lower) & (unit.atoms <= upper)
    return total + unit.atom_masses[inside].sum()


@pytest.mark.parametrize("degree", range(7))
def test_density_integrates_to_the_box_probability(degree):
    rng = np.random.default_rng(degree)
    unit = random_unit(rng, degree)
    p = Circuit(unit)
    bounds = np.sort(rng.uniform(unit.knots[0] - 1, unit.knots[-1] + 1, size=(4, 2)), axis=1)
    found = np.exp(p.log_prob_box(bounds[:, :1], bounds[:, 1:]))
    expected = [mass_by_quadrature(unit, low, high) for low, high in bounds]
    np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_whole_line_has_probability_one(scale):
    unit = random_unit(np.random.default_rng(0), scale=scale)
    p = Circuit(unit)
    middle = unit.knots[2]
    below, above = p.log_prob_box([[np.nan], [middle]], [[middle], [np.nan]])
    total = np.exp(below) + np.exp(above)
    on_both_sides = unit.atom_masses[unit.atoms == middle].sum()
    assert total == pytest.approx(1.0 + on_both_sides, abs=1e-12)
    assert p.log_prob_box([[np.nan]], [[np.nan]])[0] == 0.0


def test_closed_ends_decide_about_atoms():
    unit = PiecewisePolynomial(0, [0.0, 2.0], [0.5], atoms=[1.0], atom_masses=[0.5])
    p = Circuit(unit)
    box = [[1.0]], [[1.0]]
    for closed, expected in [("both", 0.5), ("left", 0.0), ("right", 0.0), ("neither", 0.0)]:
        assert np.exp(p.log_prob_box(*box, closed=closed)[0]) == pytest.approx(expected)
    assert np.exp(p.log_prob_box([[0.0]], [[1.0]], closed="left")[0]) == pytest.approx(0.25)
    assert np.exp(p.log_prob_box([[0.0]], [[1.0]], closed="right")[0]) == pytest.approx(0.75)


def test_atoms_of_one_unit_are_masses_for_all_units_of_the_variable():
    smooth = PiecewisePolynomial(0, [0.0, 2.0], [1.0])
    lumpy = PiecewisePolynomial(0, [0.0, 2.0], [0.6], atoms=[1.0], atom_masses=[0.4])
    p = Circuit(Sum([smooth, lumpy], weights=[0.5, 0.5]))
    assert np.exp(p.log_prob([[1.0]])[0]) == pytest.approx(0.2)
    assert np.exp(p.log_prob([[1.5]])[0]) == pytest.approx(0.4)


def test_small_masses_keep_their_digits():
    # Degree 3 with one weight: density 4 u^3 on [0, 1], mass a^4 of [0, a]
    unit = PiecewisePolynomial(0, [0.0, 1.0], [0.0, 0.0, 0.0, 1.0])
    a = np.array([1e-2, 1e-10, 1e-60])
    found = Circuit(unit).log_prob_box(np.full((3, 1), np.nan), a[:, None])
    np.testing.assert_allclose(found, 4 * np.log(a), rtol=1e-12)
    # From the other end powers of u cancel: digits are those of the highest density
    mirrored = PiecewisePolynomial(0, [0.0, 1.0], [1.0, 0.0, 0.0, 0.0])
    found = Circuit(mirrored).log_prob_box([[1 - 1e-2]], [[1.0]])
    assert np.exp(found[0]) == pytest.approx(1e-8, rel=1e-9)
    narrow = Circuit(mirrored).log_prob_box([[0.5]], [[0.5 + 2.0**-40]])
    assert np.exp(narrow[0]) == pytest.approx(0.5 * 2.0**-40, rel=1e-9)
    # In a piece that does not begin at zero, and across a knot
    steps = Circuit(PiecewisePolynomial(0, [-1.0, 1.0, 1.5, 3.0], [0.2, 0.3, 0.5]))
    lower, width = np.array([[1.25], [2.0], [-0.5], [1.5 - 2.0**-40]]), 2.0**-39
    found = np.exp(steps.log_prob_box(lower, lower + width))
    heights = np.array([0.6, 1 / 3, 0.1, (0.6 + 1 / 3) / 2])
    np.testing.assert_allclose(found, heights * width, rtol=1e-12)


def test_tails_reach_log_probabilities_of_minus_ten_thousand():
    unit = PiecewisePolynomial(0, [0.0, 1.0], [0.8], tail_masses=[0.1, 0.1], tail_scales=[1.0, 2.0])
    p = Circuit(unit)
    np.testing.assert_allclose(
        p.log_prob([[-1e4], [2e4 + 1.0]]), [np.log(0.1) - 1e4, np.log(0.05) - 1e4], rtol=1e-12
    )
    box = p.log_prob_box([[-1e4], [np.nan], [2e4 + 1]], [[-9999.0], [-1e4], [np.nan]])
    expected = [np.log(0.1) - 9999 + np.log1p(-np.exp(-1.0)), np.log(0.1) - 1e4, np.log(0.1) - 1e4]
    np.testing.assert_allclose(box, expected, rtol=1e-12)


def test_empty_and_crossed_intervals_are_impossible():
    p = Circuit(random_unit(np.random.default_rng(3), n_atoms=0))
    assert np.isneginf(p.log_prob_box([[1.0], [2.0]], [[1.0], [1.5]])).all()


@pytest.mark.parametrize("repeats", [1, 300, 900])
def test_masses_of_empty_and_crossed_intervals_are_zero(repeats):
    """However many intervals there are at once, and whether their ends repeat."""
    layer = Circuit(random_unit(np.random.default_rng(3), n_atoms=0)).plan.inputs[0][1]
    lower, upper = np.tile([[0.5, 1.0, 2.0], [1.5, 1.0, 1.5]], repeats)
    for shift in (np.zeros(3 * repeats), np.linspace(0.0, 0.1, 3 * repeats)):
        box = Box((lower + shift)[:, None], (upper + shift)[:, None])
        masses = np.full((1, 3 * repeats), np.nan)
        layer.prepare_boxes(box)(slice(None), masses)
        assert (masses[0, ::3] > 0.0).all()
        np.testing.assert_array_equal(masses[0, 1::3], 0.0)
        np.testing.assert_array_equal(masses[0, 2::3], 0.0)


def test_bounded_units_are_zero_outside_and_own_both_ends():
    p = Circuit(PiecewisePolynomial(0, [0.0, 1.0], [1.0]))
    found = p.log_prob([[-0.1], [0.0], [1.0], [1.1]])
    np.testing.assert_array_equal(found, [-np.inf, 0, 0, -np.inf])


@pytest.mark.parametrize("degree", [0, 2, 5])
def test_moments_agree_with_quadrature(degree):
    unit = random_unit(np.random.default_rng(degree), degree)
    mean, variance = unit.moments()
    below, above = np.linspace(-60, unit.knots[0], 9), np.linspace(unit.knots[-1] + 1e-9, 90, 9)
    breaks = [*below, *unit.knots[1:], *above]

    def integrate(f):
        parts = [integral(lambda x: f(x) * density(unit, x), a, b) for a, b in pairwise(breaks)]
        return sum(parts) + unit.atom_masses @ f(unit.atoms)

    assert mean == pytest.approx(integrate(lambda x: x), rel=1e-6)
    assert variance == pytest.approx(integrate(lambda x: (x - mean) ** 2), rel=1e-5)
    far = random_unit(np.random.default_rng(degree), degree, scale=1e-6)
    shifted = PiecewisePolynomial(0, far.knots + 1e6, far.weights / far.weights.sum())
    plain = PiecewisePolynomial(0, far.knots, far.weights / far.weights.sum())
    assert shifted.moments()[1] == pytest.approx(plain.moments()[1], rel=1e-3)


def test_samples_follow_the_distribution():
    units = [random_unit(np.random.default_rng(k), degree=k, n_atoms=k % 3) for k in range(4)]
    p = Circuit(Sum(units, weights=[0.1, 0.2, 0.3, 0.4]))
    n = 100_000
    draws = p.sample(n, random_state=0)[:, 0]
    edges = np.quantile(draws, np.linspace(0.02, 0.98, 25))
    expected = np.exp(p.log_prob_box(np.full((25, 1), np.nan), edges[:, None]))
    found = (draws <= edges[:, None]).mean(axis=1)
    np.testing.assert_array_less(
        np.abs(found - expected), 4.5 * np.sqrt(expected * (1 - expected) / n)
    )
    for atom in units[2].atoms:
        mass = np.exp(p.log_prob([[atom]])[0])
        assert (draws == atom).mean() == pytest.approx(mass, abs=5 * np.sqrt(mass / n))


def test_quantiles_invert_the_cumulative_distribution():
    units = [random_unit(np.random.default_rng(seed), degree=6, n_atoms=0) for seed in range(3)]
    layer = PiecewisePolynomialLayer.stack(units)

    class Fixed:
        def random(self, size):
            return np.tile([1e-9, 0.01, 0.3, 0.5, 0.99, 1 - 1e-9], 3)[:size]

    which = np.repeat(np.arange(3), 6)
    x = layer.draw(which, np.full((18, 1), np.nan), Fixed())
    for unit, own in zip(units, x.reshape(3, 6)):
        below = Circuit(unit).log_prob_box(np.full((6, 1), np.nan), own[:, None])
        np.testing.assert_allclose(np.exp(below), Fixed().random(6), rtol=1e-7)


def test_mode_is_the_highest_point():
    unit = random_unit(np.random.default_rng(5), degree=4, n_atoms=0)
    p = Circuit(unit)
    best = p.mpe([[np.nan]])
    grid = np.linspace(unit.knots[0] - 1, unit.knots[-1] + 1, 20001)[:, None]
    assert p.log_prob(best)[0] >= p.log_prob(grid).max() - 1e-9
    lumpy = PiecewisePolynomial(0, [0.0, 9.0], [0.5], atoms=[4.0], atom_masses=[0.5])
    assert Circuit(lumpy).mpe([[np.nan]])[0, 0] == 4.0


def test_modes_are_where_the_density_is_so_high():
    """Beside the point mass of another unit, and beyond the edge of a tail."""
    massive = PiecewisePolynomial(0, [0.0, 1.0, 2.0], [0.3, 0.2], [0.0], [0.5])
    start = PiecewisePolynomial(0, [0.0, 1.0, 2.0], [0.9, 0.1, 0.0])
    end = PiecewisePolynomial(0, [-2.0, -1.0, 0.0], [0.0, 0.0, 1.0])
    tail = PiecewisePolynomial(0, [-1.0, 1.0], [0.5], tail_masses=[0, 0.5], tail_scales=[1, 0.1])
    for unit, best, height in ((start, 0.0, 1.8), (end, 0.0, 2.0), (tail, 1.0, 5.0)):
        circuit = Circuit(0.01 * massive + 0.99 * unit)
        (row,) = circuit.mpe([[np.nan]], method="max_product")
        assert row[0] == pytest.approx(best, abs=1e-12)
        assert circuit.log_prob(row[None])[0] >= np.log(0.99 * height) - 1e-9
    rows = Circuit(0.8 * massive + 0.2 * start).mpe([[np.nan]], method="max_product")
    assert rows[0, 0] == 0.0


def test_the_mode_of_a_uniform_piece_is_its_middle():
    unit = PiecewisePolynomial(0, [0.0, 1.0, 4.0], [0.3, 0.5], tail_masses=[0.1, 0.1])
    assert Circuit(unit).mpe([[np.nan]])[0, 0] == 0.5
    # And of the part of it that lies in an interval
    box = Box(np.array([[1.5]]), np.array([[3.0]]))
    inside = restrict(PiecewisePolynomialLayer([unit]), Evidence(np.full((1, 1), np.nan), box))
    row = np.zeros(1, dtype=int)
    assert inside.mode(row, row)[0, 0] == pytest.approx(2.25, rel=1e-12)


def test_missing_cells_are_marginalised():
    rng = np.random.default_rng(0)
    p = Circuit(random_unit(rng) * random_unit(rng, variable=1))
    np.testing.assert_allclose(
        p.log_prob([[2.0, np.nan]]), Circuit(p.root.children[0]).log_prob([[2.0, np.nan]])
    )
    assert p.log_prob([[np.nan, np.nan]])[0] == 0.0
    assert p.expectation([[np.nan, 3.0]])[0, 0] == pytest.approx(p.root.children[0].moments()[0])


def test_files_keep_every_parameter(tmp_path):
    rng = np.random.default_rng(0)
    p = Circuit(random_unit(rng) * random_unit(rng, degree=0, n_atoms=0, variable=2))
    p.save(tmp_path / "p.npz")
    X = rng.uniform(-1, 8, size=(20, 3))
    np.testing.assert_array_equal(Circuit.load(tmp_path / "p.npz").log_prob(X), p.log_prob(X))
    assert p.n_parameters == (7 + 2 - 1) + (4 - 1)
    assert p.size_in_bytes > 0


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"knots": [0.0, 0.0, 1.0]}, "knots .* strictly increasing"),
        ({"knots": [0.0]}, "knots .* at least 2"),
        ({"weights": [1.0]}, "at least one entry per interval"),
        ({"weights": [0.5, -0.5, 1.0]}, "weights .* non-negative"),
        ({"weights": [0.5, 0.2]}, "add up to one"),
        ({"atoms": [0.5]}, "equal lengths"),
        ({"tail_masses": [0.1]}, "left and the right side"),
        ({"tail_scales": [0.0, 1.0]}, "positive scale"),
    ],
)
def test_wrong_parameters_are_refused(changes, message):
    parameters = {"knots": [0.0, 0.5, 1.0], "weights": [0.5, 0.5], **changes}
    with pytest.raises(ValueError, match=message):
        PiecewisePolynomial(0, **parameters)


def test_a_point_mass_of_zero_is_none():
    unit = PiecewisePolynomial(0, [0.0, 2.0], [0.7], atoms=[1.0, 3.0], atom_masses=[0.0, 0.3])
    assert unit.atoms.tolist() == [3.0]
    found = np.exp(Circuit(unit).log_prob([[1.0], [3.0]]))
    np.testing.assert_allclose(found, [0.35, 0.3], rtol=1e-12)


@pytest.mark.parametrize("degrees", [(3, 3), (4, 1), (0, 2)])
def test_many_masses_at_once_are_those_of_few(degrees):
    """Of units whose pieces and tails overlap: polynomials are collected on common intervals."""
    rng = np.random.default_rng(0)
    units = [random_unit(rng, degree=degree) for degree in degrees]
    circuit = Circuit(Sum(units, weights=[0.4, 0.6]))
    lower = rng.uniform(-6.0, 6.0, (2000, 1))
    upper = lower + rng.exponential(2.0, (2000, 1))
    found = circuit.log_prob_box(lower, upper)
    few = [
        circuit.log_prob_box(*ends)
        for ends in zip(lower.reshape(40, 50, 1), upper.reshape(40, 50, 1))
    ]
    np.testing.assert_allclose(found, np.concatenate(few), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n_rows", [3, 3000])
def test_masses_in_the_tail_of_one_unit_amid_the_pieces_of_another(n_rows):
    units = [
        PiecewisePolynomial(0, knots, [0.5, 0.2], tail_masses=[0.1, 0.2], tail_scales=[2.0, 3.0])
        for knots in ([0.0, 1.0, 2.0], [4.0, 5.0, 9.0])
    ]

    def below(x, first, middle, last):
        left = 0.1 * np.exp(np.minimum(x - first, 0.0) / 2.0)
        inner = np.interp(x, [first, middle, last], [0.0, 0.5, 0.7])
        return left + inner + 0.2 * -np.expm1(-np.maximum(x - last, 0.0) / 3.0)

    ends = np.linspace(-6.0, 20.0, n_rows)
    circuit = Circuit(Sum(units, weights=[0.4, 0.6]))
    found = np.exp(circuit.log_prob_box(np.full((n_rows, 1), -np.inf), ends[:, None]))
    expected = 0.4 * below(ends, 0.0, 1.0, 2.0) + 0.6 * below(ends, 4.0, 5.0, 9.0)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("side", [0, 1])
def test_modes_of_tails_are_possible(side):
    tails = [0.9, 0.0] if side == 0 else [0.0, 0.9]
    circuit = Circuit(PiecewisePolynomial(0, [0.0, 1.0], [0.1], (), (), tails, [0.5, 0.5]))
    mode = circuit.mpe(np.array([[np.nan]]))
    assert circuit.log_prob(mode) == pytest.approx(np.log(1.8))
