"""Factors: tables kept as logarithms, and their reduction by evidence."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.graphical.factors import Factor, as_factors, check_cardinalities, lookup

STATES = np.array([2, 3, 4])


@pytest.fixture
def factor():
    table = np.random.default_rng(0).uniform(0.1, 1, (4, 2, 3))
    return Factor.from_table((2, 0, 1), table)


def test_table_is_kept_as_logarithms():
    factor = Factor.from_table([1], [0.0, 1.0, np.e])
    assert_array_equal(factor.log_table, [-np.inf, 0.0, 1.0])
    assert factor.scope == (1,)
    with pytest.raises(ValueError, match="read-only"):
        factor.log_table[0] = 0.0


def test_input_stays_writeable():
    table = np.ones((2, 2))
    Factor.from_table((0, 1), table)
    table[0, 0] = 5.0


def test_a_factor_keeps_no_hold_of_the_array_it_is_given():
    table = np.zeros(2)
    factor = Factor((0,), table[:])
    table[0] = 5.0
    assert_array_equal(factor.log_table, [0.0, 0.0])
    Factor((0,), table)
    table[0] = 6.0  # still writeable


@pytest.mark.parametrize(
    "free", [set(), {0}, {1}, {2}, {0, 2}, {0, 1, 2}], ids=lambda free: str(sorted(free))
)
def test_lookup_is_indexing(factor, free):
    codes = np.random.default_rng(1).integers(STATES, size=(6, 3))
    table, variables = lookup(factor, codes, frozenset(free))
    assert variables == [v for v in factor.scope if v in free]
    assert len(table) == (1 if free == {0, 1, 2} else 6)
    for row, code in enumerate(codes):
        index = tuple(slice(None) if v in free else code[v] for v in factor.scope)
        assert_allclose(table[row if len(table) > 1 else 0], factor.log_table[index])


def test_soften_mixes_with_the_mean():
    soft = Factor.from_table((0,), [0.0, 4.0]).soften(0.1)
    assert_allclose(np.exp(soft.log_table), [0.2, 3.8])
    large = Factor((0,), np.array([5000.0, -5000.0])).soften(0.5)
    assert_allclose(large.log_table, 5000.0 + np.log([0.75, 0.25]))
    nothing = Factor.from_table((0,), [0.0, 0.0]).soften(0.1)
    assert_array_equal(nothing.log_table, [-np.inf, -np.inf])


def test_factors_are_checked_against_the_variables(factor):
    assert as_factors([factor, ((0,), [1.0, 1.0])], STATES)[0] is factor
    with pytest.raises(ValueError, match=r"have shape \(3,\)"):
        as_factors([((1,), [1.0, 1.0])], STATES)
    with pytest.raises(ValueError, match="between 0 and 2"):
        as_factors([((-1,), [1.0, 1.0])], STATES)


@pytest.mark.parametrize("bad", [[2, 0], [[2, 2]], [-1], [2.5], [], [np.nan]])
def test_bad_cardinalities(bad):
    with pytest.raises(ValueError, match="cardinalities must be one positive integer"):
        check_cardinalities(bad)
