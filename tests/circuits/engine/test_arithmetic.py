"""Segmented sums in log space."""

import numpy as np
import pytest
from scipy.special import logsumexp

from skcircuits.circuits.engine._layers import dense_log_sum, segment_log_sum


def test_segments_agree_with_logsumexp():
    rng = np.random.default_rng(0)
    lengths = np.array([1, 4, 2, 7])
    starts = np.cumsum(lengths) - lengths
    terms = rng.normal(scale=300.0, size=(lengths.sum(), 5))
    expected = [logsumexp(terms[s : s + n], axis=0) for s, n in zip(starts, lengths)]
    np.testing.assert_allclose(segment_log_sum(terms.copy(), starts, lengths), expected, rtol=1e-13)


def test_impossible_terms():
    terms = np.array([[-np.inf, 0.0], [-np.inf, -np.inf], [3.0, -np.inf]])
    found = segment_log_sum(terms, np.array([0, 2]), np.array([2, 1]))
    np.testing.assert_array_equal(found, [[-np.inf, 0.0], [3.0, -np.inf]])


@pytest.mark.parametrize("spread", [1.0, 100.0, 5000.0])
def test_dense_sums_agree_with_logsumexp(spread):
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(6), size=(3, 4))
    weights[rng.random(weights.shape) < 0.3] = 0.0
    values = rng.normal(scale=spread, size=(3, 6, 8))
    values[rng.random(values.shape) < 0.2] = -np.inf
    with np.errstate(divide="ignore"):
        terms = np.log(weights)[..., None] + values[:, None]
    found = dense_log_sum(values.copy(), weights)
    np.testing.assert_allclose(found, logsumexp(terms, axis=2), rtol=1e-12)
