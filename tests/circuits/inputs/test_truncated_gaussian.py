"""Truncated Gaussians against boxes of Gaussians without truncation, and quadrature."""

import itertools

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy.optimize import minimize
from scipy.stats import truncnorm

from skcircuits.circuits import Circuit, JohnsonGaussian, MultivariateGaussian, TruncatedGaussian
from skcircuits.circuits.inputs.base import Box
from skcircuits.circuits.inputs.restriction import Evidence
from skcircuits.circuits.inputs.restriction._evidence import Feature
from skcircuits.circuits.inputs.restriction._evidence import within as parts_of
from skcircuits.circuits.queries._boxes import RestrictedCircuit

NAN, INF = np.nan, np.inf
MEAN, COVARIANCE = [0.3, -0.2, 0.5], [[1.0, 0.5, 0.2], [0.5, 0.8, -0.3], [0.2, -0.3, 0.6]]
LOWER, UPPER = np.array([-INF, 0.1, -0.4]), np.array([INF, INF, 0.9])
MAPS = {"centers": [0.1, -0.2, 0.3], "curvatures": [0.8, 0.0, 0.5]}
PLAIN = Circuit(MultivariateGaussian([0, 1, 2], MEAN, COVARIANCE))
TRUNCATED = Circuit(TruncatedGaussian([0, 1, 2], MEAN, COVARIANCE, LOWER, UPPER))
BENT = Circuit(JohnsonGaussian([0, 1, 2], MEAN, COVARIANCE, **MAPS))
TRUNCATED_BENT = Circuit(TruncatedGaussian([0, 1, 2], MEAN, COVARIANCE, LOWER, UPPER, **MAPS))
BOTH = pytest.mark.parametrize("truncated", [TRUNCATED, TRUNCATED_BENT], ids=["normal", "bent"])
CASES = [[NAN, NAN, NAN], [0.5, NAN, NAN], [NAN, 0.4, NAN], [0.5, NAN, 0.2], [0.5, 0.3, 0.2]]


def parts_within(unit, variable, low, high):
    (parts,) = parts_of(unit.layer_type.stack([unit]), [unit], variable, low, high)
    return parts


def within(truncated, cells, lower=LOWER, upper=UPPER):
    """The units without truncation, given that their free variables lie in the box."""
    box = Box(np.array([lower], float), np.array([upper], float))
    plan = (PLAIN if truncated is TRUNCATED else BENT).plan
    return RestrictedCircuit(plan, Evidence(np.array([cells]), box))


@BOTH
@pytest.mark.parametrize("cells", CASES, ids=str)
def test_queries_are_those_within_the_box(truncated, cells):
    total = within(truncated, [NAN] * 3).log_mass()[0]
    row = np.array([cells])
    assert truncated.log_prob(row)[0] == pytest.approx(
        within(truncated, cells).log_mass()[0] - total
    )
    mean, variance = within(truncated, cells).moments()
    np.testing.assert_allclose(truncated.expectation(row), mean, rtol=1e-9)
    np.testing.assert_allclose(truncated.variance(row), variance, rtol=1e-9, atol=1e-12)
    lower, upper = np.array([-0.5, 0.3, NAN]), np.array([0.7, NAN, 0.5])
    both = np.fmax(lower, LOWER), np.fmin(upper, UPPER)
    known = RestrictedCircuit(truncated.plan, Evidence(row, Box(lower[None], upper[None])))
    expected = within(truncated, cells, *both)
    assert known.log_mass()[0] == pytest.approx(expected.log_mass()[0] - total)
    features = [Feature(2), Feature(0)]
    for found, right in (
        *zip(known.moments(), expected.moments(), strict=True),
        (known.covariance(features), expected.covariance(features)),
    ):
        np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-12)


@BOTH
def test_densities_integrate_to_one(truncated):
    nodes, weights = leggauss(80)
    # Of a normal variable, from which the first column is made if it is bent
    first, slopes = 10.0 * nodes, np.ones(80)
    if truncated is TRUNCATED_BENT:
        first, slopes = 0.1 + np.sinh(0.8 * first) / 0.8, np.cosh(0.8 * first)
    second, third = 3.0 + 2.9 * nodes, 0.25 + 0.65 * nodes
    points = np.stack(np.meshgrid(first, second, third, indexing="ij"), axis=-1).reshape(-1, 3)
    masses = np.exp(truncated.log_prob(points))
    factors = 10.0 * slopes * weights, 2.9 * weights, 0.65 * weights
    masses *= np.einsum("i,j,k->ijk", *factors).ravel()
    assert masses.sum() == pytest.approx(1.0, abs=1e-9)
    mean = masses @ points
    np.testing.assert_allclose(truncated.expectation(np.full((1, 3), NAN))[0], mean, rtol=1e-8)


@pytest.mark.parametrize("variable", [0, 1, 2])
@pytest.mark.parametrize("circuit", [PLAIN, BENT, TRUNCATED, TRUNCATED_BENT])
def test_parts_of_a_unit_are_the_whole(circuit, variable):
    ends = [-INF, 0.2, 0.5, INF]
    rows = np.array([[0.1, 0.3, 0.4], [0.5, 0.9, -0.1], [0.3, NAN, NAN], [NAN, 0.7, 0.6]])
    total, mass = np.zeros(len(rows)), 0.0
    for low, high in itertools.pairwise(ends):
        for own, part in parts_within(circuit.root, variable, low, np.nextafter(high, -INF)):
            mass += own
            total += own * np.exp(Circuit(part).log_prob(rows))
    assert mass == pytest.approx(1.0)
    np.testing.assert_allclose(np.log(total), circuit.log_prob(rows), atol=1e-9)


def test_one_column_is_scipys():
    x = np.linspace(-1.0, 4.0, 23)
    peer = truncnorm((0.5 - 1.2) / 0.7, (3.0 - 1.2) / 0.7, loc=1.2, scale=0.7)
    circuit = Circuit(TruncatedGaussian([0], [1.2], [[0.49]], [0.5], [3.0]))
    np.testing.assert_allclose(circuit.log_prob(x[:, None]), peer.logpdf(x), rtol=1e-12)
    assert circuit.expectation([[NAN]])[0, 0] == pytest.approx(peer.mean())
    assert circuit.variance([[NAN]])[0, 0] == pytest.approx(peer.var())


@BOTH
def test_draws_stay_in_the_box_and_have_its_moments(truncated):
    drawn = truncated.sample(40_000, random_state=0)
    assert ((drawn >= LOWER) & (drawn <= UPPER)).all()
    nothing = np.full((1, 3), NAN)
    errors = 5.0 * np.sqrt(truncated.variance(nothing)[0] / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - truncated.expectation(nothing)[0]) < errors).all()
    given = truncated.sample(20_000, [[0.5, NAN, 0.2]], random_state=0)[:, 0]
    mean = truncated.expectation([[0.5, NAN, 0.2]])[0]
    np.testing.assert_allclose(given.mean(axis=0), mean, atol=0.02)


def test_draws_of_one_row_restrict_the_units_to_one_row():
    layer = TRUNCATED.plan.inputs[0][1]
    cells = np.repeat([[NAN, NAN, 0.2], [NAN, NAN, NAN]], 20, axis=0)
    restricted, row = layer._of_cells(cells)
    assert len(restricted.evidence) == 2
    np.testing.assert_array_equal(row, np.repeat([0, 1], 20))


@BOTH
@pytest.mark.parametrize("cells", CASES[:-1], ids=str)
def test_completions_are_the_most_probable(truncated, cells):
    row = np.array(cells)
    best = truncated.mpe(row[None], method="max_product")[0]
    missing = np.isnan(row)
    np.testing.assert_array_equal(best[~missing], row[~missing])

    def loss(free):
        filled = row.copy()
        filled[missing] = free
        return -truncated.log_prob(filled[None])[0]

    bounds = list(zip(LOWER[missing], UPPER[missing], strict=True))
    found = minimize(loss, best[missing], method="Nelder-Mead", bounds=bounds)
    assert loss(best[missing]) <= found.fun + 1e-9


@BOTH
def test_conditionals_are_truncated_where_they_must_be(truncated, tmp_path):
    given = truncated.condition([NAN, 0.4, NAN])
    assert isinstance(given.root, TruncatedGaussian)
    point = [[0.2, 0.4, 0.1]]
    expected = truncated.log_prob(point) - truncated.log_prob([[NAN, 0.4, NAN]])
    np.testing.assert_allclose(given.log_prob(point), expected)
    assert isinstance(
        truncated.condition([NAN, 0.4, 0.1]).root, MultivariateGaussian | JohnsonGaussian
    )
    np.testing.assert_allclose(
        truncated.marginalize([0]).log_prob(point), truncated.log_prob([[NAN, 0.4, 0.1]])
    )
    truncated.save(tmp_path / "truncated.npz")
    again = Circuit.load(tmp_path / "truncated.npz")
    np.testing.assert_array_equal(again.log_prob(point), truncated.log_prob(point))


@BOTH
@pytest.mark.parametrize("removed", [[1], [2], [1, 2], [0, 1]], ids=str)
@pytest.mark.parametrize("cells", CASES, ids=str)
def test_truncated_variables_can_be_integrated_out(truncated, cells, removed, tmp_path):
    rest = truncated.marginalize(removed)
    kept = list(rest.variables)
    assert sorted(removed + kept) == [0, 1, 2]
    row = np.array([cells])  # cells of columns that are not there are ignored
    own = row.copy()
    own[0, removed] = NAN
    np.testing.assert_allclose(rest.log_prob(row), truncated.log_prob(own), atol=1e-12)
    for query in ("expectation", "variance"):
        found, expected = (
            getattr(c, query)(r)[:, kept] for c, r in ((rest, row), (truncated, own))
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    lower, upper = np.full((1, 3), NAN), np.array([[0.4, 0.7, 0.5]])
    only = np.full((1, 3), NAN)
    only[:, kept] = upper[:, kept]
    np.testing.assert_allclose(rest.log_prob_box(lower, upper), truncated.log_prob_box(lower, only))
    best = rest.mpe(row, method="max_product")[0]
    missing = np.flatnonzero(np.isnan(own[0]) & np.isin(np.arange(3), kept))
    np.testing.assert_array_equal(
        best[np.setdiff1d(kept, missing)], own[0, np.setdiff1d(kept, missing)]
    )

    def loss(free):
        filled = best.copy()
        filled[missing] = free
        return -rest.log_prob(filled[None])[0]

    if len(missing):
        bounds = list(zip(LOWER[missing], UPPER[missing], strict=True))
        found = minimize(loss, best[missing], method="Nelder-Mead", bounds=bounds)
        assert loss(best[missing]) <= found.fun + 1e-8
    rest.save(tmp_path / "rest.npz")
    np.testing.assert_array_equal(
        Circuit.load(tmp_path / "rest.npz").log_prob(row), rest.log_prob(row)
    )
    given = rest.condition(own[0]) if missing.size else rest
    np.testing.assert_allclose(
        given.log_prob(best[None]) + (rest.log_prob(own) if missing.size else 0.0),
        rest.log_prob(best[None]),
        atol=1e-10,
    )


@BOTH
def test_draws_of_integrated_units_have_their_moments(truncated):
    rest = truncated.marginalize([1])
    drawn = rest.sample(20_000, random_state=0)[:, [0, 2]]
    nothing = np.full((1, 3), NAN)
    errors = 5.0 * np.sqrt(rest.variance(nothing)[0, [0, 2]] / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - rest.expectation(nothing)[0, [0, 2]]) < errors).all()


def test_boxes_must_be_boxes():
    with pytest.raises(ValueError, match="be less than upper"):
        TruncatedGaussian([0], [0.0], [[1.0]], [1.0], [1.0])
    with pytest.raises(ValueError, match="shape"):
        TruncatedGaussian([0, 1], [0.0, 0.0], np.eye(2), [1.0], [2.0])
    with pytest.raises(ValueError, match="be truncated variables"):
        TruncatedGaussian([0, 1], [0, 0], np.eye(2), [1, -INF], [2, INF], hidden=[1])
