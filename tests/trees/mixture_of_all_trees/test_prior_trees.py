import numpy as np
from scipy.stats import chisquare

from skcircuits.trees.mixture_of_all_trees._model import sample_rows, sample_trees
from tests.trees.conftest import all_states


def test_rows_follow_the_model(two_components):
    rows = sample_rows(two_components, 20_000, np.random.default_rng(0))
    cardinalities = two_components.cardinalities
    expected = 20_000 * np.exp(two_components.log_prob(all_states(cardinalities)))
    number = np.ravel_multi_index(rows.T, tuple(cardinalities))
    observed = np.bincount(number, minlength=len(expected))
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


def test_components_and_trees(two_components):
    components, parents = sample_trees(two_components, 4000, np.random.default_rng(0))
    assert np.abs(np.bincount(components) / 4000 - [0.3, 0.7]).max() < 0.03
    assert ((parents >= 0).sum(axis=1) == 3).all()
    assert sample_trees(two_components, 0, np.random.default_rng(0))[1].shape == (0, 4)
