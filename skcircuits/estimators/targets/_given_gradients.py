"""A target of which only the gradients at the samples are known."""

import numpy as np

from skcircuits.exceptions import must
from skcircuits.numerics._arrays import float_array
from skcircuits.numerics._patterns import unique_rows

__all__ = ["GivenGradients"]


class GivenGradients:
    """The score function as a table: rows that it does not list are refused."""

    def __init__(self, samples, gradients):
        gradients = float_array(gradients, "gradients")
        if gradients.shape != samples.shape:
            raise ValueError(must("gradients", "have the shape of X", shape=gradients.shape))
        if not np.isfinite(gradients).all():
            row = int(np.isfinite(gradients).all(axis=1).argmin())
            raise ValueError(must("gradients", "be finite", row=row))
        first, which = unique_rows(samples)
        if not np.array_equal(gradients[first][which], gradients):
            row = int((gradients[first][which] != gradients).any(axis=1).argmax())
            raise ValueError(must("gradients", "be equal where rows of X are", row=row))
        self._samples, self._gradients = samples[first], gradients[first]

    def grad_log_prob(self, X):
        """Look rows up, (n, d)."""
        n_known = len(self._samples)
        first, which = unique_rows(np.concatenate([self._samples, X]))
        # Known rows come first, so they stand for those that are equal.
        position = first[which[n_known:]]
        if (position >= n_known).any():
            raise ValueError(
                must(
                    "a target",
                    "be given to evaluate rows that fit has not seen",
                    "The gradients given to fit are all that is known.",
                    target=None,
                )
            )
        return self._gradients[position]
