"""Linear comparisons of two and three columns: against closed forms and draws."""

from itertools import pairwise, product
from math import factorial
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from numpy.testing import assert_allclose
from scipy.stats import chisquare, erlang, ks_2samp, kstest, norm

from skcircuits.circuits import (
    Categorical,
    Circuit,
    Gaussian,
    JohnsonGaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Product,
    Sum,
)
from skcircuits.circuits.inputs import Box, _gaussian_integrals
from skcircuits.circuits.queries._boxes import Evidence, Feature
from skcircuits.circuits.queries._linear import (
    Atoms,
    LinearBound,
    LinearCircuit,
    Panels,
    Rules,
    Triangles,
    cut_plane,
)
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.numerics._random import draw_from_nodes


def given(circuit, *bounds, lower=None, integers=()):
    """The circuit given bounds (factors, lower, upper), and lower bounds of columns."""
    free = np.full((1, circuit.plan.n_columns), np.nan)
    box = Box(free if lower is None else np.array([lower]), free.copy())
    linear = [
        LinearBound({j: factor for j, factor in enumerate(factors) if factor}, low, high)
        for factors, low, high in bounds
    ]
    return LinearCircuit(circuit.plan, [(Evidence(free.copy(), box), linear)], frozenset(integers))


def probability(circuit, *bounds, **options):
    return float(np.exp(given(circuit, *bounds, **options).log_mass()[0]))


def half_cube(normal, end):
    """Volume of the unit cube where normal @ x <= end (inclusion and exclusion of corners)."""
    corners = np.array(list(product([0, 1], repeat=len(normal))))
    signs = (-1.0) ** corners.sum(axis=1)
    excess = np.maximum(end - corners @ normal, 0.0)
    return (signs * excess ** len(normal)).sum() / (factorial(len(normal)) * np.prod(normal))


@pytest.mark.parametrize(
    ("normal", "end"), [([1, 1, 1], 1.0), ([1, 2, 0.5], 1.7), ([0.3, 1, 1], 3.1), ([1, 1, 1], 0.01)]
)
def test_histograms_in_three_columns(normal, end):
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(3), size=(2, 3))  # component, column
    units = [
        [PiecewisePolynomial(j, [0.0, 1.0, 2.0, 3.0], own) for j, own in enumerate(component)]
        for component in weights
    ]
    circuit = Circuit(
        0.3 * (units[0][0] * units[0][1] * units[0][2])
        + 0.7 * (units[1][0] * units[1][1] * units[1][2])
    )
    expected = 0.0
    for cell in product(range(3), repeat=3):
        mass = 0.3 * np.prod(weights[0, range(3), cell]) + 0.7 * np.prod(weights[1, range(3), cell])
        expected += mass * half_cube(np.array(normal), end - np.dot(normal, cell))
    assert_allclose(probability(circuit, (normal, -np.inf, end)), expected, rtol=1e-10)
    # Comparisons turned round, and two of them at once
    flipped = [-factor for factor in normal]
    assert_allclose(probability(circuit, (flipped, -end, np.inf)), expected, rtol=1e-10)
    between = probability(circuit, (normal, end / 2, end), (flipped, -np.inf, -end / 2))
    below = probability(circuit, (normal, -np.inf, end / 2))
    assert_allclose(between, expected - below, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pair", [(1.0, 0.0, 1.0), (0.0, 1.0, 1.0), (1.0, 1.0, 0.0)])
def test_bounds_of_three_and_of_two_columns_at_once(pair):
    """Given the third column, the smaller of two bounds on the others counts."""
    weights = np.random.default_rng(1).dirichlet(np.ones(3), size=3)
    knots = [0.0, 1.0, 2.0, 3.0]
    units = [PiecewisePolynomial(j, knots, own) for j, own in enumerate(weights)]
    end, other = 3.7, 2.9
    found = probability(
        Circuit(Product(units)), ((1.0, 1.0, 1.0), -np.inf, end), (pair, -np.inf, other)
    )
    alone = pair.index(0.0)
    rest = [PiecewisePolynomial(j, knots, weights[i]) for j, i in enumerate(np.flatnonzero(pair))]
    both = Circuit(Product(rest))
    # The bound bends at `end - other`; what it leaves, where it passes an integer
    edges = np.unique(np.clip([*knots, end - other, *(end - np.arange(7.0))], 0.0, 3.0))
    nodes, masses = leggauss(6)
    expected = 0.0
    for low, high in pairwise(edges):
        for node, mass in zip(low + (high - low) * (nodes + 1) / 2, (high - low) / 2 * masses):
            below = probability(both, ((1.0, 1.0), -np.inf, min(other, end - node)))
            expected += mass * weights[alone][int(node)] * below
    assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("normal", [[1.0, 1.0], [1.0, -0.5], [-2.0, 0.3]])
@pytest.mark.parametrize("end", [-1.0, 0.4, 2.2])
def test_histograms_in_two_columns(normal, end):
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.ones(2), size=2)
    units = [PiecewisePolynomial(j, [0.0, 1.0, 3.0], own) for j, own in enumerate(weights)]
    expected = 0.0
    for cell in product(range(2), repeat=2):
        starts, widths = np.array([0.0, 1.0])[list(cell)], np.array([1.0, 2.0])[list(cell)]
        # x = start + width * u, with u turned round where its factor is negative
        factors = normal * widths
        rest = end - normal @ starts - np.minimum(factors, 0.0).sum()
        mass = weights[0, cell[0]] * weights[1, cell[1]]
        expected += mass * half_cube(np.abs(factors), rest)
    circuit = Circuit(units[0] * units[1])
    found = probability(circuit, (normal, -np.inf, end))
    assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def number_of_cluster(k, variable):
    return PiecewisePolynomial(variable, [0.0, 1.0 + k, 3.0], [0.3, 0.2, 0.5 * k, 0.5 * (1 - k)])


def labelled_mixture():
    """Two clusters of two numbers, a label, and a column that no comparison is about."""
    parts = []
    for k in range(2):
        numbers = [number_of_cluster(k, j) for j in range(2)]
        parts.append(Product([*numbers, Categorical(2, [0.9 - 0.6 * k, 0.1 + 0.6 * k])]))
    return Circuit(Sum(parts, weights=[0.3, 0.7]))


def test_answers_given_alternatives_in_two_columns():
    """Two bands that exclude each other, against draws."""
    circuit, free = labelled_mixture(), np.full((1, 3), np.nan)
    bands = [LinearBound({0: 1.0, 1: 1.0}, *ends) for ends in ((-np.inf, 1.0), (3.5, 4.5))]
    known = Evidence(free.copy(), Box(free.copy(), free.copy()))
    conditioned = LinearCircuit(circuit.plan, [(known, [band]) for band in bands])
    plain = circuit.sample(80_000, random_state=0)
    total = plain[:, 0] + plain[:, 1]
    kept = plain[(total <= 1.0) | ((total >= 3.5) & (total <= 4.5))]
    error = kept.std(axis=0) / np.sqrt(len(kept))
    assert np.exp(conditioned.log_mass()[0]) == pytest.approx(len(kept) / 80_000, abs=0.006)
    mean, variance = (values[0] for values in conditioned.moments())
    assert (np.abs(mean - kept.mean(axis=0)) < 4.5 * error).all()
    assert_allclose(variance, kept.var(axis=0), rtol=0.05)
    fractions = conditioned.state_probabilities()[2][0]
    assert_allclose(fractions, [1.0 - kept[:, 2].mean(), kept[:, 2].mean()], atol=4.5 * error[2])
    drawn = conditioned.sample(np.array([3000]), np.random.default_rng(0))
    sums = drawn[:, 0] + drawn[:, 1]
    assert ((sums <= 1.0 + 1e-12) | ((sums >= 3.5 - 1e-12) & (sums <= 4.5 + 1e-12))).all()
    assert min(ks_2samp(drawn[:, j], kept[:, j]).pvalue for j in range(2)) > 1e-3
    with pytest.raises(CircuitPropertyError, match="one joint Gaussian for a most probable row"):
        conditioned.mpe()


@pytest.mark.parametrize("slope", [1.0, -0.7])
def test_answers_given_alternatives_are_exact(slope):
    """Two bands of x + slope y, against integrals over x of integrals over y."""
    bands = [(-3.0, 1.0), (1.7, 2.4)]
    circuit, free = labelled_mixture(), np.full((1, 3), np.nan)
    known = Evidence(free.copy(), Box(free.copy(), free.copy()))
    alternatives = [(known, [LinearBound({0: 1.0, 1: slope}, *ends)]) for ends in bands]
    conditioned = LinearCircuit(circuit.plan, alternatives)
    # Each component's densities are polynomials between 0, 1, 2 and 3
    densities = [Circuit(number_of_cluster(k, 0)) for k in range(2)]
    marks = np.array([0.0, 1.0, 2.0, 3.0])
    ends = np.concatenate([marks, *(end - slope * marks for band in bands for end in band)])
    edges = np.unique(np.clip(ends, 0.0, 3.0))
    nodes, weights = leggauss(8)
    x = (edges[:-1, None] + np.diff(edges)[:, None] * (nodes + 1) / 2).ravel()
    dx = (np.diff(edges)[:, None] * weights / 2).ravel()
    moments = np.zeros((2, 6))  # of 1, x, y, x², y², x y, under each component
    for (low, high), place in product(bands, range(3)):
        first, last = np.sort([(low - x) / slope, (high - x) / slope], axis=0)
        first, last = np.clip([first, last], marks[place], marks[place + 1])[:, :, None]
        y = first + (last - first) * (nodes + 1) / 2
        dxdy = dx[:, None] * (last - first) * weights / 2
        for k, own in enumerate(densities):
            at_x, at_y = (np.exp(own.log_prob(z.reshape(-1, 1))).reshape(z.shape) for z in (x, y))
            mass = dxdy * at_x[:, None] * at_y
            for of, powers in enumerate(((0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (1, 1))):
                moments[k, of] += (mass * x[:, None] ** powers[0] * y ** powers[1]).sum()
    masses = moments[:, 0] * [0.3, 0.7]
    assert_allclose(np.exp(conditioned.log_mass()[0]), masses.sum(), rtol=1e-9)
    fraction = masses[1] / masses.sum() * np.array([-0.6, 0.6]) + [0.9, 0.1]
    assert_allclose(conditioned.state_probabilities()[2][0], fraction, rtol=1e-9)
    _, ex, ey, exx, eyy, exy = np.array([0.3, 0.7]) @ moments / masses.sum()
    mean, variance = (values[0] for values in conditioned.moments())
    assert_allclose(mean, [ex, ey, fraction[1]], rtol=1e-9)
    assert_allclose(variance, [exx - ex**2, eyy - ey**2, fraction[0] * fraction[1]], rtol=1e-8)
    covariance = conditioned.covariance([Feature(1), Feature(0), Feature(2)])[0]
    assert_allclose(np.diag(covariance), variance[[1, 0, 2]], rtol=1e-8)
    assert_allclose(covariance[[0, 1], [1, 0]], exy - ex * ey, rtol=1e-8)


@pytest.mark.parametrize("powers", [(0, 0, 0), (3, 0, 1), (6, 6, 6), (2, 5, 3)])
def test_polynomials_over_a_simplex(powers):
    # The last B-spline on one interval is a power: Dirichlet's integral is the reference
    units = [
        PiecewisePolynomial(j, [0.0, 1.0], [0.0] * power + [1.0]) for j, power in enumerate(powers)
    ]
    circuit = Circuit(units[0] * units[1] * units[2])
    expected = np.prod([factorial(power + 1) for power in powers]) / factorial(sum(powers) + 3)
    found = probability(circuit, ([1, 1, 1], -np.inf, 1.0))
    assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("end", [0.5, 3.0, 12.0, 20.0])
def test_tails_add_up(end):
    units = [
        PiecewisePolynomial(j, [-1.0, 0.0], [0.0], tail_masses=[0, 1], tail_scales=[1, 1])
        for j in range(3)
    ]
    circuit = Circuit(units[0] * units[1] * units[2])
    found = probability(circuit, ([1, 1, 1], end, np.inf))
    assert_allclose(found, erlang.sf(end, 3), rtol=1e-8)


def test_points_with_a_mass_count_as_they_are():
    rng = np.random.default_rng(0)
    knots = np.array([0.0, 1.0, 2.0])
    dense = [PiecewisePolynomial(j, knots, rng.dirichlet(np.ones(3))) for j in range(3)]
    massive = [
        PiecewisePolynomial(j, knots, 0.75 * dense[j].weights, atoms=[0.5], atom_masses=[0.25])
        for j in range(3)
    ]
    circuit = Circuit(massive[0] * massive[1] * massive[2])
    smooth = Circuit(dense[0] * dense[1] * dense[2])
    bound = 2.2
    expected = 0.0
    for at_atom in product([False, True], repeat=3):
        factors = [0.0 if atom else 1.0 for atom in at_atom]
        mass = 0.25 ** sum(at_atom) * 0.75 ** (3 - sum(at_atom))
        rest = bound - 0.5 * sum(at_atom)
        part = probability(smooth, (factors, -np.inf, rest)) if any(factors) else 1.0
        expected += mass * part
    assert_allclose(probability(circuit, ([1, 1, 1], -np.inf, bound)), expected, rtol=1e-9)


def mixture():
    parts = []
    for k in range(2):
        units = [
            PiecewisePolynomial(j, [0.0, 1.0 + k, 3.0], [0.2, 0.3, 0.5 * k, 0.5 * (1 - k)])
            for j in range(3)
        ]
        parts.append(units[0] * units[1] * units[2])
    return Circuit(0.4 * parts[0] + 0.6 * parts[1])


def test_moments_and_draws_in_three_columns():
    circuit = mixture()
    conditioned = given(circuit, ([1.0, 1.0, -1.0], -np.inf, 0.5), lower=[0.2, np.nan, np.nan])
    plain = circuit.sample(60_000, random_state=0)
    kept = plain[(plain @ [1.0, 1.0, -1.0] <= 0.5) & (plain[:, 0] >= 0.2)]
    assert np.exp(conditioned.log_mass()[0]) == pytest.approx(len(kept) / 60_000, abs=0.006)
    mean, variance = (values[0] for values in conditioned.moments())
    error = kept.std(axis=0) / np.sqrt(len(kept))
    assert (np.abs(mean - kept.mean(axis=0)) < 4 * error).all()
    assert_allclose(variance, kept.var(axis=0), rtol=0.1)
    drawn = conditioned.sample(np.array([2000]), np.random.default_rng(0))
    assert (drawn @ [1.0, 1.0, -1.0] <= 0.5 + 1e-12).all()
    assert min(ks_2samp(drawn[:, j], kept[:, j]).pvalue for j in range(3)) > 1e-3


@pytest.mark.parametrize("far", [0.0, 60.0])
def test_draws_given_a_cell_of_next_to_no_density(far):
    """At 60 standard deviations the density is e^-1800; two alternatives, 1 to 4."""
    units = [PiecewisePolynomial(j, [0.0, 1.0], [1.0]) for j in (0, 1)]
    circuit = Circuit(Product([*units, Gaussian(2, 0.0, 1.0)]))
    free = np.full((1, 3), np.nan)
    known = Evidence(np.array([[np.nan, np.nan, far]]), Box(free, free.copy()))
    parts = [
        (known, [LinearBound({0: 1.0, 1: 1.0}, -np.inf, 0.5)]),
        (known, [LinearBound({0: 1.0, 1: 1.0}, 1.0, np.inf)]),
    ]
    linear = LinearCircuit(circuit.plan, parts)
    assert_allclose(linear.log_mass()[0], np.log(0.125 + 0.5) + norm.logpdf(far), rtol=1e-12)
    x, y, seen = linear.sample(np.array([4000]), np.random.default_rng(0)).T
    assert (seen == far).all()
    below = x + y <= 0.5
    assert abs(below.mean() - 0.2) < 4.0 * np.sqrt(0.2 * 0.8 / 4000)
    assert (below | (x + y >= 1.0)).all()
    # (x + y)² is uniform in a triangle at the origin, (2 - x - y)² in one at the other corner
    for spread in (4.0 * (x + y)[below] ** 2, (2.0 - x - y)[~below] ** 2):
        assert kstest(spread, "uniform").pvalue > 1e-3


def test_too_many_cells_are_refused_with_a_way_out():
    units = [[Gaussian(j, 30.0 * k + j, 1.0) for j in range(3)] for k in range(12)]
    circuit = Circuit(Sum([Product(own) for own in units], weights=np.full(12, 1 / 12)))
    with pytest.raises(CircuitPropertyError, match="method='bounds'"):
        probability(circuit, ([1, 1, 1], -np.inf, 1.0))


@pytest.mark.parametrize("correlation", [0.5, -0.99, 0.9999, 1.0 - 1e-8])
@pytest.mark.parametrize("factors", [(1.0, -1.0), (1.0, 1.0), (1.0, -2.0)])
def test_columns_that_nearly_determine_one_another(correlation, factors):
    """Against the closed form of Gaussians: a transformed unit without curvature is one."""
    covariance = np.array([[1.0, correlation], [correlation, 1.0]])
    unit = JohnsonGaussian([0, 1], [0.1, 0.2], covariance, [0.0, 0.0], [0.0, 0.0])
    mean, spread = np.dot(factors, [0.1, 0.2]), np.dot(factors, covariance @ factors)
    for end in (-3.0, 0.7):
        found = probability(Circuit(unit), (factors, -np.inf, end))
        assert_allclose(found, norm.cdf((end - mean) / np.sqrt(spread)), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("end", [-1.0, 3.5, 7.0])
def test_transformed_columns_with_bounds_beside_a_comparison(end):
    """Three normal columns against their closed form, also where the probability is small."""
    factor = np.random.default_rng(3).normal(size=(3, 3))
    mean, covariance = [0.1, 0.2, -0.3], factor @ factor.T + 0.1 * np.eye(3)
    arguments = [0, 1, 2], mean, covariance
    bent = Circuit(JohnsonGaussian(*arguments, np.zeros(3), np.zeros(3)))
    plain = Circuit(MultivariateGaussian(*arguments))
    lower = [np.nan, np.nan, end * np.sqrt(covariance[2, 2])]
    bound = (1.0, -1.0, 0.0), -np.inf, 0.3
    found, expected = (probability(c, bound, lower=lower) for c in (bent, plain))
    assert_allclose(found, expected, rtol=1e-9)
    # Observed cells count by their density, whose scale is no probability
    free = np.full((1, 4), np.nan)
    narrow = Gaussian(3, 0.0, 1e-12)
    low = free.copy()
    low[0, :3] = lower
    cells = np.array([[np.nan, np.nan, np.nan, 0.0]])
    known = Evidence(cells, Box(low, free.copy()))
    bounds = [LinearBound({0: 1.0, 1: -1.0}, -np.inf, 0.3)]
    beside = LinearCircuit(Circuit(Product([bent.root, narrow])).plan, [(known, bounds)])
    height = np.log(norm.pdf(0.0) * 1e12)
    assert_allclose(np.exp(beside.log_mass()[0] - height), expected, rtol=1e-9)


@pytest.mark.parametrize("width", [1e-7, 1e-10, 1e-12, 1e-14])
def test_nodes_do_not_follow_the_rounding_of_narrow_intervals(width):
    circuit = Circuit(Product([Gaussian(0, 2.0, 1.0), Gaussian(1, -1.0, 2.0)]))
    result = given(circuit, ((1.0, 1.0), 3.0, 3.0 + width))
    (slices,) = result.rows.parts
    assert len(slices.circuit.evidence) < 1000
    # Given that both sum up to three, the first one is normal with mean 2.4 and variance .8
    mean, variance = result.moments()
    error = max(1e-9, 1e-15 / width)
    assert_allclose([mean[0, 0], variance[0, 0]], [2.4, 0.8], rtol=error, atol=0.1 * width)


def test_nodes_do_not_multiply_with_components():
    units = [
        JohnsonGaussian([0, 1], [0.1 * k, -0.01 * k], np.eye(2), [0.0, 0.0], [1.0, 0.5])
        for k in range(30)
    ]
    counts = []
    for n in (1, 30):
        circuit = Circuit(Sum(units[:n], weights=np.full(n, 1 / n)))
        (slices,) = given(circuit, ((1.0, -1.0), -np.inf, 0.0)).rows.parts
        counts.append(len(slices.circuit.evidence))
    assert counts[1] < 2 * counts[0]


def test_lines_cut_cells_into_triangles():
    rng = np.random.default_rng(0)
    x, y = np.sort(rng.normal(size=(2, 6)), axis=1)
    lines = rng.normal(size=(9, 3))
    corners = cut_plane(x, y, lines)
    sides = corners[:, 1:] - corners[:, :1]
    area = 0.5 * np.abs(np.linalg.det(sides))
    assert area.sum() == pytest.approx((x[-1] - x[0]) * (y[-1] - y[0]), rel=1e-12)
    # No line passes the interior of a triangle
    ends = corners @ lines[:, :2].T - lines[:, 2]
    assert not ((ends.max(axis=1) > 1e-9) & (ends.min(axis=1) < -1e-9)).any()


def test_points_are_drawn_from_the_polynomial_through_the_nodes():
    points, weights = leggauss(6)
    x, uniform = (points + 1.0) / 2.0, (np.arange(50) + 0.5) / 50
    powers = np.array([0, 1, 2, 5])[:, None]
    masses = np.repeat(weights * (powers + 1) * x**powers, 50, axis=0)
    drawn = draw_from_nodes(masses, SimpleNamespace(random=lambda n: np.tile(uniform, 4)))
    assert_allclose(drawn.reshape(4, 50), uniform ** (1.0 / (powers + 1)), rtol=1e-12)


def test_rules_integrate_and_draw_polynomials():
    """Two triangles beside each other, a line of two panels, and three points, together."""
    corners = np.array([[[0, 0], [1, 0], [0, 1]], [[3, 1], [1, 0], [1, 3]]], dtype=float)
    triangles = Triangles(corners, (np.empty(0), np.empty(0)))
    for i, j in ((0, 0), (3, 4), (9, 2), (0, 21)):
        own = triangles.weights[:144] @ np.prod(triangles.nodes[:144] ** [i, j], axis=1)
        assert_allclose(own, factorial(i) * factorial(j) / factorial(i + j + 2), rtol=1e-12)
    assert_allclose(triangles.weights[144:].sum(), 3.0, rtol=1e-12)
    panels = Panels(np.array([[0.0, 0.5], [0.5, 2.0]]), np.empty(0), [np.nan, 5.0])
    assert (panels.nodes[:, 1] == 5.0).all()
    for power in (0, 3, 31):
        found = panels.weights @ panels.nodes[:, 0] ** power
        assert_allclose(found, 2.0 ** (power + 1) / (power + 1), rtol=1e-12)
    atoms = Atoms(np.array([[7.0, 0.0], [8.0, 1.0], [9.0, 2.0]]))
    rules = Rules([triangles, panels, atoms])
    n = 20_000
    # x² y on the triangles, x on the panels, and masses of 1, 2 and 3
    masses = rules.weights * np.concatenate(
        [np.prod(triangles.nodes ** [2, 1], axis=1), panels.nodes[:, 0], [1.0, 2.0, 3.0]]
    )
    drawn = rules.draw(masses, n, np.random.default_rng(0))
    own = [drawn[:, 0] <= 3.0, drawn[:, 1] == 5.0, drawn[:, 0] >= 7.0]
    own[0] &= ~own[1]
    for where, part in zip(own, np.split(masses, [288, 320])):
        fraction = part.sum() / masses.sum()
        assert abs(where.mean() - fraction) < 4.0 * np.sqrt(fraction * (1.0 - fraction) / n)
    assert kstest(drawn[own[1], 0] ** 2 / 4.0, "uniform").pvalue > 1e-3
    expected = np.array([1.0, 2.0, 3.0]) / 6.0 * own[2].sum()
    counts = (drawn[own[2], 0, None] == [7.0, 8.0, 9.0]).sum(axis=0)
    assert chisquare(counts, expected).pvalue > 1e-3
    inside = drawn[own[0]]
    first = inside.sum(axis=1) <= 1.0
    for where, nodes in ((first, slice(0, 144)), (~first, slice(144, 288))):
        mass, points = masses[nodes], triangles.nodes[nodes]
        mass, found = mass / masses[:288].sum(), inside[where]
        assert abs(where.mean() - mass.sum()) < 4.0 * np.sqrt(mass.sum() / len(inside))
        for i, j in ((1, 0), (0, 1), (2, 0), (0, 2), (1, 1), (3, 0), (0, 4)):
            mean = mass @ np.prod(points ** [i, j], axis=1) / mass.sum()
            values = np.prod(found ** [i, j], axis=1)
            assert abs(values.mean() - mean) < 4.0 * values.std() / np.sqrt(len(values))


def test_nodes_keep_off_points_with_a_mass():
    edges = np.array([[0.0, 1.0]])
    nodes = Panels(edges, np.empty(0), [np.nan]).nodes[:, 0]
    moved = Panels(edges, nodes[3:5], [np.nan]).nodes[:, 0]
    assert not np.isin(moved, nodes[3:5]).any()
    assert_allclose(moved, nodes, rtol=1e-15)
    assert (np.delete(moved, [3, 4]) == np.delete(nodes, [3, 4])).all()


def test_gaussians_in_three_columns():
    rng = np.random.default_rng(1)
    means, stds, weights = (
        rng.normal(size=(2, 3)),
        rng.uniform(0.3, 3, (2, 3)),
        np.array([0.3, 0.7]),
    )
    components = [
        Product([Gaussian(j, means[k, j], stds[k, j]) for j in range(3)]) for k in range(2)
    ]
    circuit = Circuit(Sum(components, weights=2.0 * weights))  # not normalised
    normal = np.array([1.0, -2.0, 0.5])
    spread = np.sqrt(stds**2 @ normal**2)
    for end in (-12.0, 0.5):
        expected = 2.0 * weights @ norm.cdf((end - means @ normal) / spread)
        found = probability(circuit, (normal, -np.inf, end))
        assert_allclose(found, expected, rtol=1e-9)


def test_weights_of_all_sizes_scale_masses_alone():
    terms = [Gaussian(0, m, 1.0) * Gaussian(1, -m, 0.5 + m) for m in (0.0, 1.0, 2.0)]
    p = Circuit(Sum(terms, weights=[3e20, 1e20, 5e-20]))
    bound = ([1.0, -2.0], 0.5, np.inf)
    one, other = given(p, bound), given(p.normalize(), bound)
    assert_allclose(one.log_mass(), other.log_mass() + p.log_partition, rtol=1e-10)
    expected = sum(w * norm.sf((0.5 - 3 * m) / np.hypot(1, 1 + 2 * m)) for w, m in [(3, 0), (1, 1)])
    assert_allclose(other.log_mass(), np.log(expected / 4), rtol=1e-10)
    for first, second in zip(one.moments(), other.moments(), strict=True):
        assert_allclose(first, second, rtol=1e-10)


def masses_of_integers(mean, std, integers):
    """Masses of what rounds to each integer."""
    return norm.cdf(integers + 0.5, mean, std) - norm.cdf(integers - 0.5, mean, std)


@pytest.mark.parametrize(
    ("factors", "low", "high"),
    [
        ((2.0, 3.0), 1.0, 7.0),
        ((-2.0, 3.0), -np.inf, 0.0),
        ((0.1, -0.3), 0.0, 0.0),  # 0.1 * 3 is not 0.3: equality is that of the sums
        ((1.0, 0.0), 2.0, np.inf),
        ((1.0, 0.0), -1.0, 2.0),  # both ends count
        ((0.0, -1.0), -1.0, 2.0),
        ((0.7, 1.0), 50.0, np.inf),
    ],
)
def test_integers_are_taken_one_by_one(factors, low, high):
    components = [(0.3, (0.2, 1.5), (2.0, 0.6)), (0.7, (-1.0, 0.8), (0.3, 4.0))]
    circuit = Circuit(
        Sum(
            [
                Product([Gaussian(j, *parameters) for j, parameters in enumerate(own)])
                for _, *own in components
            ],
            weights=[weight for weight, *_ in components],
        )
    )
    grid = np.arange(-60.0, 61.0)
    total = factors[0] * grid[:, None] + factors[1] * grid
    inside = (total >= low) & (total <= high)
    both = sum(
        weight * np.outer(masses_of_integers(*x, grid), masses_of_integers(*y, grid))
        for weight, x, y in components
    )
    conditioned = given(circuit, (factors, low, high), integers=[0, 1])
    assert_allclose(np.exp(conditioned.log_mass()[0]), both[inside].sum(), rtol=1e-9, atol=1e-15)
    sums = np.round(conditioned.sample(np.array([2000]), np.random.default_rng(0))) @ factors
    assert ((sums >= low) & (sums <= high)).all()


@pytest.mark.parametrize("factors", [(1.0, 0.5), (-1.0, 1.0), (0.3, -4.0)])
def test_one_column_of_integers_beside_a_continuous_one(factors):
    components = [(0.3, (0.2, 1.5), (2.0, 0.6)), (0.7, (-1.0, 0.8), (0.3, 2.0))]
    circuit = Circuit(
        Sum(
            [Product([Gaussian(0, *x), Gaussian(1, *y)]) for _, x, y in components],
            weights=[weight for weight, *_ in components],
        )
    )
    low, high, least = -1.3, 3.6, -0.4
    grid = np.arange(-30.0, 31.0)
    ends = np.sort((np.array([low, high])[:, None] - factors[0] * grid) / factors[1], axis=0)
    expected, first, second = 0.0, 0.0, 0.0
    for weight, x, y in components:
        inner = norm.cdf(ends[1], *y) - norm.cdf(
            np.minimum(np.maximum(ends[0], least), ends[1]), *y
        )
        inner = np.where(ends[1] > least, inner, 0.0)
        # From 2 on, as the lower bound of the first column says
        masses = weight * masses_of_integers(*x, grid) * inner * (grid >= 2.0)
        expected += masses.sum()
        first += masses @ grid
        second += masses @ grid**2
    conditioned = given(circuit, (factors, low, high), lower=[1.5, least], integers=[0])
    assert_allclose(np.exp(conditioned.log_mass()[0]), expected, rtol=1e-9)
    drawn = conditioned.sample(np.array([3000]), np.random.default_rng(0))
    rounded = np.round(drawn[:, 0])
    sums = factors[0] * rounded + factors[1] * drawn[:, 1]
    assert ((sums >= low - 1e-9) & (sums <= high + 1e-9)).all()
    assert (rounded >= 2.0).all() and (drawn[:, 1] >= least).all()
    mean = first / expected
    error = np.sqrt((second / expected - mean**2) / 3000)
    assert abs(rounded.mean() - mean) < 4.5 * error


def test_bounds_of_integers_hold_at_once():
    circuit = Circuit(Gaussian(0, 0.3, 2.0) * Gaussian(1, -0.5, 1.5))
    bounds = [((2.0, 3.0), -4.0, 7.0), ((1.0, -1.0), -2.0, 2.0), ((1.0, 0.0), -1.0, np.inf)]
    grid = np.arange(-40.0, 41.0)
    inside = np.ones((len(grid), len(grid)), dtype=bool)
    for factors, low, high in bounds:
        total = factors[0] * grid[:, None] + factors[1] * grid
        inside &= (total >= low) & (total <= high)
    both = np.outer(masses_of_integers(0.3, 2.0, grid), masses_of_integers(-0.5, 1.5, grid))
    found = probability(circuit, *bounds, integers=[0, 1])
    assert_allclose(found, both[inside].sum(), rtol=1e-9)


@pytest.mark.parametrize("factor", [2.0, -0.5])
def test_a_comparison_of_one_column_is_an_interval(factor):
    circuit = Circuit(Gaussian(0, 0.3, 2.0) * Gaussian(1, -0.5, 1.5))
    ends = sorted([-1.0 / factor, 1.5 / factor])
    expected = (
        np.diff(norm.cdf([max(ends[0], -0.3), ends[1]], 0.3, 2.0))[0] if ends[1] > -0.3 else 0
    )
    found = probability(circuit, ((factor,), -1.0, 1.5), lower=[-0.3, np.nan])
    assert_allclose(found, expected, rtol=1e-12)


def test_observed_cells_move_the_bounds():
    """Two columns observed: what remains is about one, or about none."""
    circuit = mixture()
    X, free = np.array([[0.4, np.nan, 1.2]]), np.full((1, 3), np.nan)
    known = Evidence(X, Box(free, free.copy()))
    bound = LinearBound({0: 2.0, 1: -1.5, 2: 0.5}, -1.0, 1.1)
    found = LinearCircuit(circuit.plan, [(known, [bound])]).log_mass()[0]
    ends = [(1.1 - 0.8 - 0.6) / -1.5, (-1.0 - 0.8 - 0.6) / -1.5]
    nodes, weights = leggauss(40)
    expected = 0.0
    # Densities are linear between 0, 1, 2 and 3
    for a, b in ((ends[0], 1.0), (1.0, ends[1])):
        rows = np.tile(X, (40, 1))
        rows[:, 1] = a + (b - a) * (nodes + 1.0) / 2.0
        expected += (b - a) / 2.0 * weights @ np.exp(circuit.log_prob(rows))
    assert_allclose(np.exp(found), expected, rtol=1e-10)
    rest = [LinearBound({0: 1.0, 2: 1.0}, *ends) for ends in ((1.5, 1.7), (1.61, 2.0))]
    possible, impossible = (
        LinearCircuit(circuit.plan, [(known, [own])]).log_mass()[0] for own in rest
    )
    assert_allclose(possible, circuit.log_prob(X)[0], rtol=1e-12)
    assert impossible == -np.inf


def test_integers_that_fit_nowhere_have_no_mass():
    circuit = Circuit(Gaussian(0, 0.0, 1.0) * Gaussian(1, 0.0, 1.0))
    # The even sum of two doubled integers is no odd number
    assert probability(circuit, ((2.0, 2.0), 3.0, 3.0), integers=[0, 1]) == 0.0
    wide = Circuit(Gaussian(0, 0.0, 1e7) * Gaussian(1, 0.0, 1e7))
    with pytest.raises(CircuitPropertyError, match="at most 131072 integers"):
        probability(wide, ((2.0, 2.0), 3.0, 3.0), integers=[0, 1])


def test_intervals_of_a_joint_gaussian_are_directions_too():
    circuit = Circuit(MultivariateGaussian(range(4), np.zeros(4), np.eye(4)))
    bound = ((1.0, 1.0), 0.5, np.inf)
    expected = norm.sf(np.sqrt(0.125)) * norm.sf(1.0) * norm.sf(-1.0)
    found = probability(circuit, bound, lower=[np.nan, np.nan, 1.0, -1.0])
    assert_allclose(found, expected, rtol=1e-8)
    with pytest.raises(CircuitPropertyError, match=r"at most 3 directions.*n=4"):
        probability(circuit, bound, lower=[0.0, np.nan, 1.0, -1.0])


@pytest.mark.parametrize("end", [3.0, 20.0])
def test_boxes_of_next_to_no_mass_count_only_if_no_other_has_any(end, monkeypatch):
    root = np.random.default_rng(0).normal(size=(3, 3))
    circuit = Circuit(MultivariateGaussian(range(3), np.zeros(3), root @ root.T + np.eye(3)))
    first = np.arange(-20.0, 21.0)
    second = np.ceil((end - first) / 2.0)
    free = np.full_like(first, np.nan)
    low, high = [first - 0.5, second - 0.5, np.full_like(first, 0.5)], [first + 0.5, free, free]
    parts = circuit.log_prob_box(np.stack(low, axis=1), np.stack(high, axis=1))
    calls, integral = [], _gaussian_integrals._log_integral
    # To relative errors, boxes of three sides take a thousand times as long as to absolute ones
    monkeypatch.setattr(
        _gaussian_integrals, "_log_integral", lambda *own: calls.append(1) or integral(*own)
    )
    bound = ((1.0, 2.0, 0.0), end, np.inf)
    found = given(circuit, bound, lower=[np.nan, np.nan, 0.5], integers=[0, 1]).log_mass()
    assert_allclose(found, np.logaddexp.reduce(parts), rtol=1e-9)
    assert bool(calls) is (end == 20.0)


def test_three_directions_of_a_joint_gaussian():
    rng = np.random.default_rng(0)
    mean, root = rng.normal(size=3), rng.normal(size=(3, 3))
    covariance, forms = root @ root.T + np.eye(3), rng.normal(size=(3, 3))
    circuit = Circuit(MultivariateGaussian(range(3), mean, covariance))
    ends = np.array([[-1.0, 1.5], [-np.inf, 0.7], [-0.4, np.inf]])
    turned = Circuit(MultivariateGaussian(range(3), forms @ mean, forms @ covariance @ forms.T))
    expected = turned.log_prob_box(ends[None, :, 0], ends[None, :, 1])
    conditioned = given(circuit, *((row, *end) for row, end in zip(forms, ends)))
    assert_allclose(conditioned.log_mass(), expected, rtol=1e-8)
    # Exact answers have a most probable row, which is inside
    (row,), _ = conditioned.mpe()
    assert (forms @ row > ends[:, 0] - 1e-9).all() and (forms @ row < ends[:, 1] + 1e-9).all()
    dependent = [*forms[:2], forms[0] + forms[1]]
    found = given(circuit, *((row, *end) for row, end in zip(dependent, ends)))
    drawn = circuit.sample(100_000, random_state=0) @ np.transpose(dependent)
    inside = ((drawn >= ends[:, 0]) & (drawn <= ends[:, 1])).all(axis=1).mean()
    assert np.exp(found.log_mass()[0]) == pytest.approx(inside, abs=0.007)


@pytest.mark.parametrize("curvature", [0.3, 1.0, 2.5])
def test_hyperbolic_sines_of_normals(curvature):
    """P(x - 2 y > .5) by a rule over the normal variable of x, with y given it."""
    bent = [curvature, 0.4 * curvature]
    unit = JohnsonGaussian([0, 1], [0.3, -0.2], [[1.0, 0.5], [0.5, 0.8]], [0.0, 1.0], bent)
    nodes, weights = leggauss(400)
    z = 0.3 + 10.0 * nodes
    ends = np.arcsinh(bent[1] * ((np.sinh(bent[0] * z) / bent[0] - 0.5) / 2 - 1.0)) / bent[1]
    below = norm.cdf(ends, -0.2 + 0.5 * (z - 0.3), np.sqrt(0.8 - 0.25))
    expected = 10.0 * weights @ (norm.pdf(z, 0.3) * below)
    assert_allclose(probability(Circuit(unit), ([1, -2], 0.5, np.inf)), expected, rtol=1e-9)
