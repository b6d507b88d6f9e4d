"""Full conditionals by lookup, and the Gibbs sampler on top of them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.graphical import FactorGraph, IsingModel
from skcircuits.graphical.inference import _gibbs as blankets
from skcircuits.graphical.inference._gibbs import full_conditionals, log_full_conditional


def star(n_leaves, seed=0):
    rng = np.random.default_rng(seed)
    factors = [((leaf, 0), rng.uniform(0.2, 2, (3, 2))) for leaf in range(1, n_leaves + 1)]
    return FactorGraph(factors, [2] + [3] * n_leaves)


@pytest.mark.parametrize("merged_cells", [1, 10, 10**6])
def test_merging_tables_changes_nothing(merged_cells, monkeypatch):
    graph = star(6)
    rows = np.random.default_rng(1).integers(graph.cardinalities, size=(40, 7))
    reference = [graph.log_full_conditionals(rows)[v] for v in range(7)]
    monkeypatch.setattr(blankets, "_MERGED_CELLS", merged_cells)
    conditionals = full_conditionals(graph.factors, graph.cardinalities)
    n_tables = len(conditionals[0].log_tables)
    assert n_tables == {1: 6, 10: 6, 10**6: 1}[merged_cells]
    for variable, conditional in enumerate(conditionals):
        assert_allclose(
            log_full_conditional(conditional, rows.T), reference[variable], rtol=1e-12, atol=1e-12
        )


def test_lookups_do_not_change_tables():
    graph = star(30)
    rows = np.zeros((5, 31))
    first = graph.log_full_conditionals(rows)[0]
    first[:] = 0.0
    assert np.abs(graph.log_full_conditionals(rows)[0]).min() > 0


def test_incomplete_rows_are_refused():
    with pytest.raises(ValueError, match="none that are asked for"):
        star(2).log_full_conditionals([[0, np.nan, 1]])


def test_deterministic_conditionals_are_followed():
    copy = FactorGraph([((0,), [0.3, 0.7]), ((0, 1), np.eye(2))], [2, 2])
    with pytest.warns(UserWarning, match="connect all possible states"):
        drawn = copy.gibbs_sample(200, burn_in=10, start=[[1, 1]], random_state=0)
    # Moves of one variable cannot leave a state of two equal variables.
    assert (drawn == 1).all()


def test_thinning_skips_sweeps():
    model = IsingModel.grid(3, 3, couplings=0.4)
    every = model.gibbs_sample(12, burn_in=0, thin=1, random_state=0)
    third = model.gibbs_sample(4, burn_in=0, thin=3, random_state=0)
    assert_array_equal(third, every[2::3])
    late = model.gibbs_sample(6, burn_in=6, thin=1, random_state=0)
    assert_array_equal(late, every[6:])


def test_chains_take_turns():
    model = IsingModel.grid(2, 2, couplings=0.1)
    start = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]])
    rows = model.gibbs_sample(7, burn_in=0, start=start, random_state=0)
    longer = model.gibbs_sample(9, burn_in=0, start=start, random_state=0)
    assert rows.shape == (7, 4)
    assert_array_equal(rows, longer[:7])


def test_random_states_of_every_kind():
    model = IsingModel.grid(2, 2)
    seeded = model.gibbs_sample(5, burn_in=2, random_state=np.random.RandomState(3))
    again = model.gibbs_sample(5, burn_in=2, random_state=np.random.RandomState(3))
    assert_array_equal(seeded, again)
    generator = np.random.default_rng(0)
    assert model.gibbs_sample(5, burn_in=2, random_state=generator).shape == (5, 4)


def test_strong_couplings_do_not_overflow():
    model = IsingModel.grid(3, 3, couplings=2000.0)
    drawn = model.gibbs_sample(10, burn_in=20, start=np.ones((1, 9)), random_state=0)
    assert (drawn == 1).all()


def test_chains_that_zeros_hold_back_are_told():
    # Equal pairs: no single move leads from (0, 0) to (1, 1).
    pair = FactorGraph([((0, 1), np.eye(2))], [2, 2])
    with pytest.warns(UserWarning, match=r"connect all possible states.*never_moved=\[0, 1\]"):
        pair.gibbs_sample(200, burn_in=10, random_state=0)
    # Every variable moves, but (0, 0), (0, 1), (1, 0) and (2, 2), (2, 3), (3, 2) stay apart.
    table = np.zeros((4, 4))
    table[:2, :2] = table[2:, 2:] = [[1.0, 1.0], [1.0, 0.0]]
    with pytest.warns(UserWarning, match=r"connect all possible states.*never_moved=\[\]"):
        FactorGraph([((0, 1), table)], [4, 4]).gibbs_sample(200, burn_in=10, random_state=0)


def test_zeros_that_moves_go_around_give_no_warning(recwarn):
    graph = FactorGraph([((0, 1), [[1.0, 1.0], [1.0, 0.0]])], [2, 2])
    graph.gibbs_sample(500, burn_in=10, random_state=0)
    # A state of probability one has nowhere to go.
    FactorGraph([((0,), [0.0, 1.0])], [2]).gibbs_sample(500, burn_in=10, random_state=0)
    assert not recwarn.list
