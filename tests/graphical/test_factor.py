"""Factors: tables kept as logarithms."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.graphical import Factor, FactorGraph

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


def test_soften_mixes_with_the_mean():
    soft = Factor.from_table((0,), [0.0, 4.0]).soften(0.1)
    assert_allclose(np.exp(soft.log_table), [0.2, 3.8])
    large = Factor((0,), np.array([5000.0, -5000.0])).soften(0.5)
    assert_allclose(large.log_table, 5000.0 + np.log([0.75, 0.25]))
    nothing = Factor.from_table((0,), [0.0, 0.0]).soften(0.1)
    assert_array_equal(nothing.log_table, [-np.inf, -np.inf])


def test_factors_are_checked_against_the_variables(factor):
    assert FactorGraph([factor, ((0,), [1.0, 1.0])], STATES).factors[0] is factor
    with pytest.raises(ValueError, match=r"have shape \(3,\)"):
        FactorGraph([((1,), [1.0, 1.0])], STATES)
    with pytest.raises(ValueError, match="between 0 and 2"):
        FactorGraph([((-1,), [1.0, 1.0])], STATES)


@pytest.mark.parametrize("bad", [[2, 0], [[2, 2]], [-1], [2.5], [], [np.nan]])
def test_bad_cardinalities(bad):
    with pytest.raises(ValueError, match="cardinalities must be one positive integer"):
        FactorGraph([], bad)
