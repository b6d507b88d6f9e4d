"""Discrepancies of weighted samples under one kernel, collapsed samples as mixtures."""

import numpy as np

from skcircuits.estimators.targets._weighted_samples import complete_rows, count_completions
from skcircuits.stein import stein_discrepancy
from skcircuits.stein.gram import distinct_gram

__all__ = ["collapsed_discrepancy"]

# Completions of all samples that are listed or drawn, and fewest draws of one sample.
MAX_ROWS, MIN_DRAWS = 4000, 2


def collapsed_discrepancy(target, kernel, samples, weights, n_jobs=None):
    """Squared Stein discrepancy of a mixture of exact conditional distributions.

    Where there are too many completions it is estimated, without bias, from draws of them.
    """
    used = weights != 0
    samples, weights = samples[used], weights[used]
    if count_completions(target, samples) <= MAX_ROWS:
        rows, probabilities = complete_rows(target, samples, weights)
        return stein_discrepancy(rows, target, kernel, probabilities, n_jobs=n_jobs)
    n_draws = max(MIN_DRAWS, MAX_ROWS // len(samples))
    # The same draws for equal arguments, so that settings are compared on equal terms.
    drawn = target.sample(n_draws, X=samples, random_state=0).transpose(1, 0, 2)
    K, which = distinct_gram(drawn.reshape(-1, samples.shape[1]), target, kernel, n_jobs=n_jobs)
    totals = np.bincount(which, np.repeat(weights / n_draws, n_draws), minlength=len(K))
    # A draw paired with itself says nothing of two draws from the same sample: leave it out.
    own = which.reshape(len(samples), n_draws)
    blocks = K[own[:, :, None], own[:, None, :]]
    within = blocks.sum(axis=(1, 2)) / n_draws**2
    pairs = blocks.sum(axis=(1, 2)) - np.trace(blocks, axis1=1, axis2=2)
    without = pairs / (n_draws * (n_draws - 1))
    return float(totals @ K @ totals + weights**2 @ (without - within))
