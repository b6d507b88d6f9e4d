"""Units of one variable given states and intervals: against enumeration, quadrature and scipy."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from numpy.testing import assert_allclose
from scipy.interpolate import BSpline
from scipy.stats import truncnorm

from skcircuits.circuits import Categorical, Circuit, Gaussian, PiecewisePolynomial, Product, Sum
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.inputs.restriction import Evidence, restrict
from skcircuits.circuits.inputs.restriction._evidence import Feature
from skcircuits.circuits.inputs.restriction._intervals import _truncated_exponential

NAN = np.nan


class Grid:
    """Evenly spaced numbers in place of uniform ones."""

    def random(self, n):
        return (np.arange(n) + 0.5) / n


def restricted(units, X, lower, upper, states=None):
    """The layer of some units given evidence, and the places of the units in it.

    Units of the columns beside that of each one fill the circuit up.
    """
    fillers = {unit.variable: unit for unit in reversed(units)}
    parts = [
        Product([unit, *(f for v, f in fillers.items() if v != unit.variable)])
        if len(fillers) > 1
        else unit
        for unit in units
    ]
    plan = Circuit(Sum(parts, weights=np.full(len(parts), 1.0 / len(parts)))).plan
    ((span, layer),) = plan.inputs
    box = Box(np.array(lower, float), np.array(upper, float), "both", states or {})
    evidence = Evidence(np.array(X, float), box)
    return restrict(layer, evidence), np.array([plan.position[id(u)] - span.start for u in units])


def ends_of(lower, upper):
    return -np.inf if np.isnan(lower) else lower, np.inf if np.isnan(upper) else upper


class Reference:
    """A piecewise polynomial by scipy's B-splines, with tails and atoms."""

    def __init__(self, unit):
        self.unit = unit
        k, knots = unit.degree, unit.knots
        t = np.concatenate([[knots[0]] * k, knots, [knots[-1]] * k])
        scale = (k + 1) / (t[k + 1 :] - t[: -k - 1])
        self.spline = BSpline(t, unit.weights * scale, k, extrapolate=False)

    def density(self, x):
        knots, (left, right) = self.unit.knots, self.unit.tail_scales
        masses = self.unit.tail_masses
        inside = np.nan_to_num(self.spline(x))
        below = masses[0] / left * np.exp(np.minimum(x - knots[0], 0.0) / left)
        above = masses[1] / right * np.exp(np.minimum(knots[-1] - x, 0.0) / right)
        return np.where(x < knots[0], below, np.where(x > knots[-1], above, inside))

    def rule(self, low, high):
        """Points of an interval and their masses."""
        knots, scales = self.unit.knots, self.unit.tail_scales
        steps = np.arange(0.0, 45.0, 1.5)
        marks = np.concatenate([knots[0] - scales[0] * steps, knots, knots[-1] + scales[1] * steps])
        marks = np.unique(np.clip(marks, low, high))
        nodes, weights = leggauss(20)
        x = (marks[:-1, None] + np.diff(marks)[:, None] * (nodes + 1) / 2).ravel()
        mass = (np.diff(marks)[:, None] / 2 * weights).ravel() * self.density(x)
        inside = (self.unit.atoms >= low) & (self.unit.atoms <= high)
        x = np.concatenate([x, self.unit.atoms[inside]])
        mass = np.concatenate([mass, self.unit.atom_masses[inside]])
        return x, mass

    def mass(self, low, high):
        return self.rule(low, high)[1].sum()

    def moments(self, low, high):
        """Mean and variance within an interval."""
        x, mass = self.rule(low, high)
        mean = mass @ x / mass.sum()
        return mean, mass @ (x - mean) ** 2 / mass.sum()


def polynomial(rng, variable, n_pieces, degree, atoms=(), tails=True):
    parts = rng.dirichlet(np.ones(n_pieces + degree + len(atoms) + 2))
    if not tails:
        parts = np.append(parts[:-2] / parts[:-2].sum(), [0.0, 0.0])
    weights, massive, ends = np.split(parts, [n_pieces + degree, -2])
    knots = np.cumsum(rng.uniform(0.2, 1.5, n_pieces + 1)) - 2.0
    return PiecewisePolynomial(
        variable, knots, weights, atoms, massive, ends, rng.uniform(0.5, 2.0, 2)
    )


def polynomials():
    rng = np.random.default_rng(3)
    # As many pieces as runs of one, two and four of them are for
    units = [polynomial(rng, 0, n, degree) for n, degree in ((9, 0), (3, 2), (13, 3))]
    units += [polynomial(rng, 1, n, 1, atoms=[-0.3, 0.4]) for n in (4, 7)]
    return [*units, polynomial(rng, 1, 5, 2, tails=False)]


LOWER = [[NAN, 0.1], [-1.0, -9.0], [0.2, -0.3], [1.9, NAN], [-9.0, 0.3], [-0.7, NAN], [NAN, NAN]]
UPPER = [[0.5, 1.5], [3.1, -0.2], [NAN, 0.4], [2.0, NAN], [-3.0, 2.9], [3.9, 0.7], [NAN, NAN]]
CELLS = np.full((7, 2), NAN)


@pytest.mark.parametrize("place", range(6))
def test_masses_and_moments_of_polynomials(place):
    units = polynomials()
    known, places = restricted(units, CELLS, LOWER, UPPER)
    unit, own = units[place], places[place]
    log_mass, (mean, variance) = known.log_mass(), known.moments()
    for row, bounds in enumerate(zip(np.array(LOWER), np.array(UPPER))):
        ends = ends_of(*(bound[unit.variable] for bound in bounds))
        assert_allclose(np.exp(log_mass[own, row]), Reference(unit).mass(*ends), rtol=1e-9)
        found = [mean[own, row, 0], variance[own, row, 0]]
        assert_allclose(found, Reference(unit).moments(*ends), rtol=1e-8)
        means, covariances = known.feature_moments(row, [Feature(1), Feature(0)])
        feature = 1 - unit.variable
        other = 1 - feature
        assert_allclose(means[own, feature], mean[own, row, 0], rtol=1e-12)
        assert_allclose(covariances[own, feature, feature], variance[own, row, 0], rtol=1e-12)
        assert means[own, other] == 0.0
        covariances[own, feature, feature] = 0.0
        assert not covariances[own].any()


@pytest.mark.parametrize("place", range(6))
def test_draws_of_polynomials(place):
    units, n = polynomials(), 4000
    known, places = restricted(units, CELLS, LOWER, UPPER)
    unit, reference = units[place], Reference(units[place])
    for row, bounds in enumerate(zip(np.array(LOWER), np.array(UPPER))):
        low, high = ends_of(*(bound[unit.variable] for bound in bounds))
        mass = reference.mass(low, high)
        drawn = known.draw(np.full(n, places[place]), np.full(n, row), Grid())[:, 0]
        assert (drawn >= low).all() and (drawn <= high).all()
        for end in np.quantile(drawn, [0.1, 0.35, 0.6, 0.9]):
            # Just below and at the end: points may have a mass
            inside = [reference.mass(low, e) / mass for e in (np.nextafter(end, -9.0), end)]
            assert inside[0] - 0.005 < (drawn <= end).mean() < inside[1] + 0.005


@pytest.mark.parametrize("place", range(6))
def test_draws_of_polynomials_invert_the_cumulative_distribution(place):
    """From left to right over the density, then over the points with a mass."""
    units = polynomials()
    known, places = restricted(units, CELLS, LOWER, UPPER)
    unit, own, n = units[place], places[place], 30
    reference, uniform = Reference(unit), Grid().random(n)
    for row, bounds in enumerate(zip(np.array(LOWER), np.array(UPPER))):
        low, high = ends_of(*(bound[unit.variable] for bound in bounds))
        drawn = known.draw(np.full(n, own), np.full(n, row), Grid())[:, 0]
        inside = (unit.atoms >= low) & (unit.atoms <= high)
        atoms, massive = unit.atoms[inside], unit.atom_masses[inside]
        target = uniform * reference.mass(low, high)
        beyond = target - (reference.mass(low, high) - massive.sum())
        is_atom = beyond > 0.0
        below = [reference.mass(low, x) - massive @ (atoms <= x) for x in drawn[~is_atom]]
        assert_allclose(below, target[~is_atom], rtol=1e-10, atol=1e-13)
        expected = np.searchsorted(np.cumsum(massive), beyond[is_atom])
        assert (drawn[is_atom] == atoms[expected]).all()


@pytest.mark.parametrize("place", range(6))
def test_highest_points_of_polynomials(place):
    units = polynomials()
    known, places = restricted(units, CELLS, LOWER, UPPER)
    unit, own = units[place], places[place]
    rows = np.arange(len(CELLS))
    heights = known.log_max()[own]
    modes = known.mode(np.full(len(rows), own), rows)[:, 0]
    # What any unit has an atom at counts by masses alone
    atoms = np.array([-0.3, 0.4]) if unit.variable else np.empty(0)
    masses = dict(zip(unit.atoms.tolist(), unit.atom_masses.tolist()))
    for row, bounds in enumerate(zip(np.array(LOWER), np.array(UPPER))):
        low, high = ends_of(*(bound[unit.variable] for bound in bounds))
        beside = np.nextafter(np.append(unit.knots, atoms), [[-99.0], [99.0]]).ravel()
        marks = np.concatenate([unit.knots, beside, [low, high]])
        grid = np.concatenate([np.linspace(-12.0, 18.0, 60_001), marks[np.isfinite(marks)]])
        grid = grid[(grid >= low) & (grid <= high) & ~np.isin(grid, atoms)]
        best = Reference(unit).density(grid).max()
        best = max([best, *(masses.get(a, 0.0) for a in atoms.tolist() if low <= a <= high)])
        assert low <= modes[row] <= high
        assert_allclose(np.exp(heights[row]), best, rtol=1e-6)


def test_units_without_the_mass_at_a_point_are_impossible_there():
    units = [
        PiecewisePolynomial(0, [-1.0, 1.0], [0.7], [0.0], [0.3]),
        PiecewisePolynomial(0, [-1.0, 2.0], [1.0]),
    ]
    known, places = restricted(units, [[NAN]], [[0.0]], [[0.0]])
    assert_allclose(np.exp(known.log_max()[places, 0]), [0.3, 0.0])


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("family", ["gaussian", "polynomial"])
def test_best_integers_are_those_of_enumeration(family, scale):
    rng = np.random.default_rng(0)
    units = []
    for _ in range(12):
        knots, weights = np.sort(rng.normal(0.0, 6.0, 4)) * scale, rng.dirichlet(np.ones(6))
        tails = [0.1, 0.1], [2.0 * scale, 3.0 * scale]
        polynomial = PiecewisePolynomial(0, knots, 0.7 * weights, [3.0], [0.1], *tails)
        gaussian = Gaussian(0, knots[1], scale * rng.gamma(2.0))
        units.append(polynomial if family == "polynomial" else gaussian)
    lower = np.round([NAN, NAN, -4.0 * scale, 40.0 * scale, NAN, 2.0, 5.5])
    upper = np.round([NAN, 2.0 * scale, 4.0 * scale, NAN, -50.0 * scale, 2.0, 5.5])
    X = np.full((len(lower), 1), NAN)
    known, places = restricted(units, X, lower[:, None], upper[:, None])
    evidence = replace(known.evidence, integers=np.array([0]))
    known, rows = restrict(known.layer, evidence), np.arange(len(X))
    listed = np.arange(-60.0 * scale, 60.0 * scale + 1.0)
    heights = known.layer.log_prob(listed[:, None])
    for own in places.tolist():
        modes, best = known.mode(np.full(len(X), own), rows)[:, 0], known.log_max()[own]
        assert (modes == np.round(modes)).all()
        assert_allclose(known.layer.log_prob(modes[:, None])[own], best, rtol=1e-12)
        for mode, found, low, high in zip(modes, best, lower, upper):
            inside = ~((listed < low) | (listed > high))
            assert inside[listed == mode].all()
            # Of many integers, those beside the best real number
            assert_allclose(found, heights[own, inside].max(), rtol=1e-12 if scale == 1.0 else 1e-4)


@pytest.mark.parametrize("family", ["gaussian", "polynomial"])
def test_highest_densities_of_many_units_are_found_at_once(family, monkeypatch):
    """Evaluating all units at the point of each one would cost the square of their number."""
    locations = np.linspace(-2.0, 2.0, 30)
    if family == "gaussian":
        units = [Gaussian(0, m, 1.0 + abs(m)) for m in locations]
    else:
        units = [PiecewisePolynomial(0, [m - 1.0, m, m + 2.0], [0.3, 0.7]) for m in locations]
    X, bounds = [[NAN], [0.2], [NAN]], ([[NAN], [NAN], [-0.5]], [[NAN], [NAN], [1.5]])
    known, places = restricted(units, X, *bounds)
    rows = np.arange(len(X))
    modes = np.stack([known.mode(np.full(len(X), own), rows)[:, 0] for own in places])
    expected = [known.layer.log_prob(row[:, None])[own] for own, row in zip(places, modes)]
    evaluate, calls = known.layer.log_prob, []
    monkeypatch.setattr(known.layer, "log_prob", lambda X: calls.append(len(X)) or evaluate(X))
    assert_allclose(known.log_max()[places], expected, rtol=1e-12)
    assert sum(calls) <= len(X)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_points_with_a_mass_in_a_tail_are_modes_where_they_exceed_its_density(side):
    knots, masses, scales = [0.0, 1.0], [0.0, 0.49], [1.0, 2.0]
    if side < 0:
        knots, masses, scales = [-1.0, 0.0], masses[::-1], scales[::-1]
    unit = PiecewisePolynomial(0, knots, [0.5], [9.0 * side], [0.01], masses, scales)
    # The density falls below 0.01 at 1 + 2 log(24.5) = 7.4
    bounds = np.array([[5.0, 20.0], [7.0, 20.0], [7.8, 20.0], [8.5, 20.0]]) * side
    lower, upper = np.sort(bounds, axis=1).T[:, :, None]
    known, places = restricted([unit], np.full((4, 1), NAN), lower, upper)
    modes = known.mode(np.repeat(places, 4), np.arange(4))[:, 0]
    assert_allclose(modes, np.array([5.0, 7.0, 9.0, 9.0]) * side)
    heights = 0.245 * np.exp([-2.0, -3.0])
    assert_allclose(np.exp(known.log_max()[0]), [*heights, 0.01, 0.01])


def test_truncated_exponentials():
    lengths = np.array([1e-9, 1e-4, 5e-3, 0.00999, 0.01001, 0.3, 2.0, 30.0, 690.0, 800.0, np.inf])
    nodes, weights = leggauss(60)
    mean, variance = _truncated_exponential(lengths)
    for length, found in zip(lengths, zip(mean, variance)):
        x = min(length, 80.0) * (nodes + 1.0) / 2.0
        mass = weights * np.exp(-x)
        mass /= mass.sum()
        expected = mass @ x
        assert_allclose(found, [expected, mass @ (x - expected) ** 2], rtol=1e-10)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_modes_at_the_ends_of_intervals_are_these(side):
    """A density that rises to one side; only points with a mass, and edges of tails, are evaded."""
    unit = PiecewisePolynomial(0, [-1.0, 1.0], [0.0, 1.0][:: int(side)])
    bounds = np.array([[-0.2, 0.7], [0.3, 2.0], [-3.0, 1.0]]) * side
    lower, upper = np.sort(bounds, axis=1).T[:, :, None]
    known, places = restricted([unit], np.full((3, 1), NAN), lower, upper)
    modes = known.mode(np.repeat(places, 3), np.arange(3))[:, 0]
    assert (modes == np.array([0.7, 1.0, 1.0]) * side).all()


def test_observed_cells_are_points():
    units = polynomials()
    cells = np.array([[0.3, 0.4], [-0.2, 2.0], [1.0, NAN]])
    lower, upper = [[NAN, NAN], [-0.1, NAN], [0.5, 0.4]], [[NAN, NAN], [0.4, NAN], [2.0, 0.6]]
    known, places = restricted(units, cells, lower, upper)
    log_mass, (mean, variance) = known.log_mass(), known.moments()
    for unit, own in zip(units, places):
        column = cells[:, unit.variable]
        seen = np.flatnonzero(~np.isnan(column))
        expected = Reference(unit).density(column)
        if unit.variable == 0:
            expected[1] = 0.0  # outside its interval
        else:
            # A point with a mass counts by it, the interval by its probability
            expected[0] = unit.atom_masses[1] if len(unit.atoms) else 0.0
            expected[2] = Reference(unit).mass(0.4, 0.6)
        assert_allclose(np.exp(log_mass[own]), expected, rtol=1e-9)
        assert_allclose(np.exp(known.log_max()[own, seen]), expected[seen], rtol=1e-9)
        assert_allclose(mean[own, seen, 0], column[seen])
        assert not variance[own, seen].any()
        rows, repeated = np.arange(len(cells)), np.full(len(cells), own)
        for values in (known.mode(repeated, rows), known.draw(repeated, rows, Grid())):
            assert_allclose(values[seen, 0], column[seen], rtol=0)


NORMALS = [Gaussian(0, 0.3, 1.2), Gaussian(0, -4.0, 0.2), Gaussian(1, 2.0, 3.0)]
NORMAL_LOWER = [[NAN, 0.1], [-1.0, -9.0], [0.2, 30.0], [NAN, NAN]]
NORMAL_UPPER = [[0.5, 1.5], [3.1, -0.2], [NAN, NAN], [NAN, NAN]]


@pytest.mark.parametrize("place", range(3))
def test_normals(place):
    known, places = restricted(NORMALS, CELLS[:4], NORMAL_LOWER, NORMAL_UPPER)
    unit, own = NORMALS[place], places[place]
    (mean, variance), heights = known.moments(), known.log_max()[own]
    for row, bounds in enumerate(zip(np.array(NORMAL_LOWER), np.array(NORMAL_UPPER))):
        ends = np.array(ends_of(*(bound[unit.variable] for bound in bounds)))
        truncated = truncnorm(*(ends - unit.mean) / unit.std, unit.mean, unit.std)
        expected = truncated.stats()
        assert_allclose([mean[own, row, 0], variance[own, row, 0]], expected, rtol=1e-5)
        drawn = known.draw(np.full(500, own), np.full(500, row), Grid())[:, 0]
        assert_allclose(np.sort(truncated.cdf(drawn)), Grid().random(500), rtol=1e-5, atol=1e-9)
        mode = known.mode(np.array([own]), np.array([row]))[0, 0]
        assert mode == np.clip(unit.mean, *ends)
        height = -0.5 * ((mode - unit.mean) / unit.std) ** 2 - np.log(unit.std)
        assert_allclose(heights[row], height - 0.5 * np.log(2 * np.pi), rtol=1e-12)


def test_all_states_have_mass_one():
    """Sums of probabilities round to more than one."""
    rng = np.random.default_rng(0)
    units = [Categorical(0, p) for p in rng.dirichlet(np.ones(7), size=200)]
    free = np.full((1, 1), NAN)
    known, _ = restricted(units, free, free, free)
    assert (known.layer.masses.sum(axis=1) > 1.0).any()
    assert known.mass().max() == 1.0
    assert known.log_mass().max() == 0.0


def test_states():
    """Three units of a variable with four states, two of one with two; states may be left out."""
    rng = np.random.default_rng(0)
    units = [Categorical(0, rng.dirichlet(np.ones(4))) for _ in range(3)]
    units += [Categorical(1, rng.dirichlet(np.ones(2))) for _ in range(2)]
    X = np.array([[NAN, NAN], [NAN, 1.0], [2.0, NAN], [NAN, NAN], [3.0, 0.0]])
    allowed = {
        0: np.array([[1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]], bool),
        1: np.array([[1, 1], [1, 1], [0, 1], [1, 0], [1, 1]], bool),
    }
    free = np.full(X.shape, NAN)
    known, places = restricted(units, X, free, free, allowed)
    n = len(X)
    masses = np.zeros((len(units), n, 4))
    for unit, own in zip(units, places):
        for row in range(n):
            cell, states = X[row, unit.variable], np.arange(unit.n_states)
            seen = allowed[unit.variable][row] & (np.isnan(cell) | (states == cell))
            masses[own, row, : unit.n_states] = unit.probabilities * seen
    total = masses.sum(axis=2)
    assert (total[places[0]] == [total[places[0], 0], *total[places[0], 1:4], 0.0]).all()
    assert_allclose(known.mass(), total, rtol=1e-14)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert_allclose(known.log_mass(), np.log(total), rtol=1e-12, atol=1e-15)
        assert_allclose(known.log_max(), np.log(masses.max(axis=2)), rtol=1e-12)
        fractions = masses / total[:, :, None]
    possible = total > 0.0
    mean, variance = known.moments()
    codes = np.arange(4)
    expected = (fractions * codes).sum(axis=2)
    assert_allclose(mean[possible, 0], expected[possible], rtol=1e-12)
    spread = (fractions * (codes - expected[:, :, None]) ** 2).sum(axis=2)
    assert_allclose(variance[possible, 0], spread[possible], rtol=1e-12, atol=1e-15)
    features = [Feature(1), Feature(0, np.array([1.0, -2.0, 0.5, 3.0])), Feature(0), Feature(0)]
    tables = [(1, codes), (0, features[1].values), (0, codes), (0, codes)]
    for row in range(n):
        means, covariances = known.feature_moments(row, features)
        for unit, own in zip(units, places):
            if not possible[own, row]:
                continue
            values = np.array([table * (variable == unit.variable) for variable, table in tables])
            center = values @ fractions[own, row]
            centred = values - center[:, None]
            used = np.array([variable == unit.variable for variable, _ in tables])
            centred[~used] = 0.0
            assert_allclose(means[own], center, rtol=1e-12, atol=1e-15)
            expected = (centred * fractions[own, row]) @ centred.T
            assert_allclose(covariances[own], expected, rtol=1e-12, atol=1e-15)
        rows, m = np.full(1000, row), 1000
        for own in np.flatnonzero(possible[:, row]).tolist():
            drawn = known.draw(np.full(m, own), rows, Grid())[:, 0].astype(int)
            counts = np.bincount(drawn, minlength=4)
            assert np.abs(counts / m - fractions[own, row]).max() <= 1.5 / m
            assert known.mode(np.array([own]), rows[:1])[0, 0] == masses[own, row].argmax()
    flows = rng.random(total.shape)
    for found in known.state_flows(flows):
        own = places[[unit.variable == found.variable for unit in units]]
        expected = np.nan_to_num(fractions[own] * flows[own][:, :, None]).sum(axis=0).T
        assert_allclose(found.flows, expected[: len(found.flows)], rtol=1e-12, atol=1e-15)
        assert_allclose(found.rows, np.arange(n))
