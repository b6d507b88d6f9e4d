from itertools import islice

import numpy as np
import pytest
from scipy.stats import chisquare

from skcircuits.trees import blocked_gibbs, single_site_gibbs
from tests.trees.conftest import all_states


def _chains(mixture, sampler, row, n_chains, n_sweeps):
    missing = np.tile(row < 0, (n_chains, 1))
    start = np.tile(np.maximum(row, 0), (n_chains, 1))
    sweeps = sampler(mixture, start, missing, np.random.default_rng(0))
    return list(islice(sweeps, n_sweeps))


@pytest.mark.parametrize("sampler", [blocked_gibbs, single_site_gibbs])
def test_agrees_with_enumeration(two_components, sampler):
    row = np.array([-1, 1, -1, -1])
    codes = _chains(two_components, sampler, row, n_chains=20_000, n_sweeps=8)[-1]
    layout = two_components.components[0].layout
    states = all_states(layout.cardinalities)
    weights = np.exp(two_components.log_prob(states)) * (states[:, 1] == 1)
    number = np.ravel_multi_index(codes.T, tuple(layout.cardinalities))
    observed = np.bincount(number, minlength=len(states))
    possible = weights > 0
    assert observed[~possible].sum() == 0
    expected = 20_000 * weights[possible] / weights.sum()
    assert chisquare(observed[possible], expected).pvalue > 1e-3


@pytest.mark.parametrize("sampler", [blocked_gibbs, single_site_gibbs])
def test_observed_cells_stay(two_components, sampler):
    row = np.array([1, -1, 0, -1])
    for codes in _chains(two_components, sampler, row, n_chains=10, n_sweeps=3):
        assert (codes[:, [0, 2]] == [1, 0]).all()


def test_yielded_rows_are_not_overwritten(two_components):
    sweeps = _chains(two_components, blocked_gibbs, np.full(4, -1), n_chains=30, n_sweeps=2)
    assert sweeps[0] is not sweeps[1]
    assert (sweeps[0] != sweeps[1]).any()
