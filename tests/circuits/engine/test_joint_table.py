"""Joint tables: every query against sums and maxima over the joint states."""

import numpy as np
import pytest

from skcircuits.circuits.engine._transformations import (
    CodeBook,
    JointTable,
    JointTableLayer,
    joint_states,
)
from skcircuits.circuits.inputs import Box

SHAPE = (2, 3, 2)
SCOPES = [(0, 2, 3), (0, 2, 3), (4, 5, 7)]


@pytest.fixture
def units():
    rng = np.random.default_rng(0)
    masses = rng.random((3, *SHAPE))
    masses[rng.random(masses.shape) < 0.2] = 0.0
    with np.errstate(divide="ignore"):
        return [JointTable(scope, log) for scope, log in zip(SCOPES, np.log(masses))]


@pytest.fixture
def rows():
    """All joint states, unknown ones included, in both scopes."""
    digits = joint_states([n + 1 for n in SHAPE]).astype(float)
    digits[digits == SHAPE] = np.nan
    X = np.full((len(digits), 8), np.nan)
    X[:, SCOPES[0]], X[:, SCOPES[2]] = digits, digits
    return X


def completions(unit, x):
    """Joint states that fit a row, and their masses."""
    states = joint_states(SHAPE)
    cells = x[list(unit.scope)]
    fits = (np.isnan(cells) | (states == cells)).all(axis=1)
    return states[fits], np.exp(unit.log_masses).ravel()[fits]


def test_masses_and_best_masses(units, rows):
    layer = JointTableLayer.stack(units)
    found, best = np.exp(layer.log_prob(rows)), np.exp(layer.log_max(rows))
    scaled, log_scale = layer.scaled_prob(rows)
    for number, unit in enumerate(units):
        masses = [completions(unit, x)[1] for x in rows]
        np.testing.assert_allclose(found[number], [m.sum() for m in masses], rtol=1e-13)
        np.testing.assert_allclose(best[number], [m.max() for m in masses], rtol=1e-13)
        completed = layer.mode(np.full(len(rows), number), rows[:, list(unit.scope)])
        expected = [s[m.argmax()] for s, m in (completions(unit, x) for x in rows)]
        np.testing.assert_array_equal(completed, expected)
    np.testing.assert_allclose(scaled, found, rtol=1e-15)
    np.testing.assert_array_equal(log_scale, 0.0)


def test_given_modes_are_used(units):
    n_codes = np.prod([n + 1 for n in SHAPE])
    modes = np.full(n_codes, 7)
    layer = JointTableLayer.stack([JointTable(u.scope, u.log_masses, modes) for u in units])
    np.testing.assert_array_equal(layer.mode(np.array([1]), np.full((1, 3), np.nan)), [[1, 0, 1]])


def test_what_is_no_state_has_mass_zero(units):
    layer = JointTableLayer.stack(units)
    X = np.zeros((5, 8))
    X[0, 2], X[1, 0], X[2, 3], X[3, 2] = 3.0, -1.0, 0.5, 1e300
    impossible = np.isneginf(layer.log_prob(X)[0])
    np.testing.assert_array_equal(impossible[:4], True)
    np.testing.assert_array_equal(layer.scaled_prob(X)[0][0] == 0.0, impossible)


def test_draws_follow_the_masses(units, rows):
    layer = JointTableLayer.stack(units)
    rng = np.random.default_rng(0)
    for number, unit in enumerate(units):
        for x in rows[::5]:
            states, masses = completions(unit, x)
            if masses.sum() == 0.0:
                continue
            cells = np.tile(x[list(unit.scope)], (4000, 1))
            drawn = layer.draw(np.full(4000, number), cells, rng)
            fractions = (drawn[:, None] == states).all(axis=2).mean(axis=0)
            expected = masses / masses.sum()
            assert (fractions[expected == 0.0] == 0.0).all()
            assert (np.abs(fractions - expected) <= 5 * np.sqrt(expected / 4000)).all()


def test_flows_divide_among_the_states(units, rows):
    layer = JointTableLayer.stack(units)
    flows = np.random.default_rng(1).random((3, len(rows)))
    expected = {}
    for unit, flow in zip(units, flows):
        for row, x in enumerate(rows):
            states, masses = completions(unit, x)
            total = masses.sum() or 1.0
            for place, variable in enumerate(unit.scope):
                fraction = np.bincount(states[:, place], masses, SHAPE[place]) / total
                table = expected.setdefault(variable, np.zeros((SHAPE[place], len(rows))))
                table[:, row] += flow[row] * fraction
    parts = list(layer.state_flows(flows, rows))
    assert sorted(part.variable for part in parts) == [0, 2, 3, 4, 5, 7]
    for part in parts:
        np.testing.assert_array_equal(part.rows, np.flatnonzero(np.isnan(rows[:, part.variable])))
        np.testing.assert_allclose(part.flows, expected[part.variable][:, part.rows], atol=1e-15)


def test_boxes(units):
    layer = JointTableLayer.stack(units)
    lower, upper = np.full((2, 2, 8), np.nan)
    lower[0, 2], upper[0, 5] = 1.0, 0.0
    mask = np.array([[True, True], [False, True]])
    found = np.exp(layer.log_box(Box(lower, upper, "both", {3: mask})))
    masses = np.exp([unit.log_masses for unit in units])
    np.testing.assert_allclose(found[:2, 0], masses[:2, :, 1:].sum(axis=(1, 2, 3)))
    np.testing.assert_allclose(found[:2, 1], masses[:2, :, :, 1].sum(axis=(1, 2)))
    np.testing.assert_allclose(found[2], [masses[2, :, 0].sum(), masses[2].sum()])


def test_units(units):
    unit = units[2]
    twin = JointTable(**unit.parameters())
    assert twin.scope == unit.scope and twin.log_masses is unit.log_masses
    assert unit.marginalize(frozenset(unit.scope)) is None
    smaller = unit.marginalize(frozenset({5}))
    assert smaller.scope == (4, 7)
    np.testing.assert_allclose(np.exp(smaller.log_masses), np.exp(unit.log_masses).sum(axis=1))
    layer = JointTableLayer.stack(units)
    assert layer.n_parameters == 3 * 11 and len(layer) == 3 and layer.is_discrete


def test_code_books_of_overlapping_scopes():
    book = CodeBook.of([(0, 2), (2,)], {0: 2, 2: 3})
    X = np.array([[1.0, 9.0, 2.0], [np.nan, 9.0, 0.0], [0.0, 9.0, np.nan], [0.0, 9.0, 3.0]])
    np.testing.assert_array_equal(book.codes(X), [[6, 8, 3, 12], [2, 0, 3, 4]])
