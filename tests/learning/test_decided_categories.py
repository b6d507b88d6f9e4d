"""Circuits with categories that thresholds decide, against the products that define them."""

import numpy as np
import pytest

from skcircuits.circuits import (
    Categorical,
    Circuit,
    FactorGaussian,
    Gaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Sum,
)
from skcircuits.circuits.inputs.restriction._evidence import within
from skcircuits.learning._thresholds import Thresholds, with_decided

TABLE = np.array([[0.9, 0.1], [0.02, 0.98], [0.6, 0.4]])
JOINT = [[1.0, 0.5], [0.5, 0.8]]
NUMBERS = {
    "histogram": PiecewisePolynomial(0, [-2.0, 0.0, 0.5, 2.0], [0.2, 0.5, 0.3]),
    "polynomial": PiecewisePolynomial(
        0, [-2, 0, 0.5, 2], [0.1, 0.2, 0.05, 0.1, 0.15], [-1.0, 0.3], [0.1, 0.1], [0.1, 0.1], [1, 2]
    ),
    "gaussian": Gaussian(0, 0.2, 1.3),
    "joint": MultivariateGaussian([0, 1], [0.1, -0.3], JOINT),
    "factors": FactorGaussian([0, 1], [0.1, -0.3], [[1.0], [0.4]], [0.3, 0.9]),
}


def thresholds(fractions=None, cuts=(-0.4, 0.7)):
    return Thresholds(0, np.array(cuts), fractions, {2: TABLE})


def circuits():
    for name, unit in NUMBERS.items():
        rest = [] if len(unit.scope) == 2 else [Gaussian(1, 0.5, 1.0)]
        other = Gaussian(0, 1.0, 0.5) * Gaussian(1, -0.5, 1.0)
        if len(unit.scope) == 2:
            other = MultivariateGaussian([0, 1], [1.0, -0.5], [[0.3, -0.1], [-0.1, 1.0]])
        first = unit if not rest else unit * rest[0]
        yield name, Circuit(first) if name == "polynomial" else Circuit(0.6 * first + 0.4 * other)


CIRCUITS = dict(circuits())


@pytest.mark.parametrize("fractions", [None, [0.2, 0.5, 0.3]], ids=["as learned", "of the table"])
@pytest.mark.parametrize("name", CIRCUITS)
def test_the_density_is_times_the_probability_of_the_category(name, fractions):
    plain = CIRCUITS[name]
    own = thresholds(None if fractions is None else np.array(fractions))
    circuit = with_decided(plain, np.array([0, 1]), [own])
    X = np.pad(plain.sample(300, random_state=0), [(0, 0), (0, 1)])
    X[:2, 0] = own.cuts
    X[:, 2] = np.random.default_rng(0).integers(2, size=300)
    bands = np.searchsorted(own.cuts, X[:, 0], side="right")
    expected = plain.log_prob(X[:, :2]) + np.log(TABLE[bands, X[:, 2].astype(int)])
    edges = np.array([-np.inf, *own.cuts, np.inf])
    nothing = np.full((3, 2), np.nan)
    lower, upper = nothing.copy(), nothing.copy()
    lower[1:, 0] = upper[:-1, 0] = edges[1:-1]
    masses = np.exp(plain.log_prob_box(lower, upper))
    if fractions is not None:
        expected += np.log(np.array(fractions) / masses)[bands]
        masses = np.array(fractions)
    np.testing.assert_allclose(circuit.log_prob(X), expected, rtol=1e-9, atol=1e-9)
    assert circuit.log_partition == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(circuit.marginals(np.full((1, 3), np.nan))[2][0], masses @ TABLE)


def parts_within(unit, low, high):
    (parts,) = within(unit.layer_type.stack([unit]), [unit], 0, low, high)
    return parts


def test_categories_follow_numbers_in_draws_and_conditionals():
    exact = np.eye(2)[[0, 1, 0]]
    own = Thresholds(0, np.array([-0.4, 0.7]), None, {2: exact})
    circuit = with_decided(CIRCUITS["joint"], np.array([0, 1]), [own])
    drawn = circuit.sample(2000, random_state=0)
    np.testing.assert_array_equal(drawn[:, 2] == 1, (drawn[:, 0] >= -0.4) & (drawn[:, 0] < 0.7))
    given = np.array([[np.nan, 0.4, 1.0]])
    assert -0.4 < circuit.expectation(given)[0, 0] < 0.7
    given = np.array([[0.7, np.nan, np.nan]])
    np.testing.assert_allclose(circuit.marginals(given)[2], [[1.0, 0.0]], atol=1e-12)


@pytest.mark.parametrize("degree", range(5))
@pytest.mark.parametrize(
    ("low", "high"),
    [(-9.0, -4.0), (-9.0, 0.1), (-0.5, 0.5), (0.5, 1.7), (0.2, 9.0), (3.0, 9.0), (0.1, 0.3)],
)
def test_parts_of_polynomials_are_their_densities(degree, low, high):
    rng = np.random.default_rng(degree)
    unit = PiecewisePolynomial(
        0, [-1.5, -0.5, 0.5, 2.0], 0.7 * rng.dirichlet(np.ones(3 + degree)), [0.2, 0.4],
        [0.05, 0.05], [0.1, 0.1], [2.0, 1.0],
    )  # fmt: skip
    masses, units = zip(*parts_within(unit, low, high), strict=True)
    part, whole = Circuit(Sum(units, weights=masses)), Circuit(unit)
    total = np.exp(whole.log_prob_box([[low]], [[high]]))[0]
    assert sum(masses) == pytest.approx(total, rel=1e-9)
    x = np.append(np.linspace(max(low, -1.49), min(high, 1.99), 50), [0.2, 0.4])[:, None]
    inside = ((x > low) & (x < high))[:, 0]
    np.testing.assert_allclose(part.log_prob(x[inside]), whole.log_prob(x[inside]), rtol=1e-9)
    np.testing.assert_array_equal(part.log_prob([[low - 0.01], [high + 0.01]]), -np.inf)


def test_open_parts_keep_their_tails():
    unit = PiecewisePolynomial(0, [0.0, 1.0], [0.8], (), (), [0.1, 0.1], [1.0, 2.0])
    for cut in (-1.0, 0.5, 3.0):
        x = np.array([[-2.0], [-0.99 if cut < 0 else 0.3], [0.9], [5.0]])
        parts = [*parts_within(unit, -np.inf, cut), *parts_within(unit, cut, np.inf)]
        again = Circuit(Sum([own for _, own in parts], weights=[mass for mass, _ in parts]))
        assert again.log_partition == pytest.approx(0.0, abs=1e-12)
        far, at = Circuit(unit).log_prob(x[[0, 2, 3]]), again.log_prob(x[[0, 2, 3]])
        np.testing.assert_allclose(at, far, atol=1e-9)


def test_two_numbers_are_divided_one_after_the_other():
    first = Thresholds(0, np.array([0.2]), np.array([0.4, 0.6]), {2: np.eye(2)})
    second = Thresholds(3, np.array([-0.5]), np.array([0.3, 0.7]), {1: np.eye(2)})
    joint = MultivariateGaussian([0, 1], [0.1, -0.3], JOINT)
    circuit = with_decided(
        Circuit(0.5 * joint * Categorical(2, [0.1, 0.9])
                + 0.5 * joint * Categorical(2, [0.7, 0.3])), np.array([0, 3, 4]), [first, second]
    )  # fmt: skip
    assert circuit.variables == (0, 1, 2, 3, 4)
    drawn = circuit.sample(500, random_state=0)
    np.testing.assert_array_equal(drawn[:, 2] == 1, drawn[:, 0] >= 0.2)
    np.testing.assert_array_equal(drawn[:, 1] == 1, drawn[:, 3] >= -0.5)
    nothing = np.full((1, 5), np.nan)
    np.testing.assert_allclose(circuit.marginals(nothing)[1], [[0.3, 0.7]])


def random_number(rng):
    """A polynomial with atoms at and beside its knots, and with exponential tails."""
    knots = np.sort(rng.normal(size=4))
    weights, atoms = rng.dirichlet(np.ones(3 + rng.integers(3))), np.sort(rng.normal(size=2))
    atoms = np.sort(np.append(atoms, knots[1]))
    masses, tails = rng.uniform(0.05, 0.3, size=3), rng.uniform(0.05, 0.3, size=2)
    total = 1.0 + masses.sum() + tails.sum()
    return PiecewisePolynomial(
        0, knots, weights / total, atoms, masses / total, tails / total, rng.uniform(0.1, 1, size=2)
    )


@pytest.mark.parametrize("seed", range(6))
def test_rows_at_knots_atoms_and_thresholds_anywhere(seed):
    rng = np.random.default_rng(seed)
    units = [random_number(rng) for _ in range(2)]
    plain = Circuit(Sum(units, weights=[0.3, 0.7]))
    special = np.concatenate([[*unit.knots[:-1], *unit.atoms] for unit in units])
    cuts = np.unique([*rng.choice(special, 2), *rng.choice(plain.sample(50)[:, 0], 2), -3.0, 3.0])
    fractions, table = rng.dirichlet(np.ones(len(cuts) + 1)), rng.random((len(cuts) + 1, 2))
    table /= table.sum(axis=1, keepdims=True)
    circuit = with_decided(plain, np.array([0]), [Thresholds(0, cuts, fractions, {1: table})])
    lower, upper = np.full((2, len(cuts) + 1, 2), np.nan)
    lower[1:, 0] = upper[:-1, 0] = cuts
    masses = np.exp(circuit.log_prob_box(lower, upper, closed="left"))
    np.testing.assert_allclose(masses, fractions, rtol=1e-9)
    # Tails between two thresholds are histograms: there rows are possible, elsewhere exact
    x = np.concatenate([special, cuts, np.nextafter(cuts, -9.0), plain.sample(100)[:, 0]])
    band = np.searchsorted(cuts, x, side="right")
    own = np.exp(plain.log_prob_box(lower[:, :1], upper[:, :1], closed="left"))
    expected = plain.log_prob(x[:, None]) + np.log(table[:, 1] * fractions / own)[band]
    found = circuit.log_prob(np.column_stack([x, np.ones_like(x)]))
    assert np.isfinite(found).all()
    is_exact = np.all([(x >= unit.knots[0]) & (x <= unit.knots[-1]) for unit in units], axis=0)
    np.testing.assert_allclose(found[is_exact], expected[is_exact], rtol=1e-9)
    completed = circuit.mpe(np.array([[np.nan, 0.0], [np.nan, 1.0]]), method="max_product")
    assert np.isfinite(circuit.log_prob(completed)).all()
