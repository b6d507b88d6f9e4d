"""Stein thinning: selection of the few samples that represent a target best."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must, require_count
from skcircuits.numerics._arrays import float_array
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.stein._forms import DenseForm, SteinColumns
from skcircuits.stein.simplex import square_matrix

# Central differences of scores: the cube root of the rounding error, in units of each coordinate.
_STEP = 1e-5


def stein_thinning(
    K: ArrayLike,
    n_samples: int,
    *,
    log_prob: ArrayLike | None = None,
    curvature: ArrayLike | None = None,
) -> IntArray:
    """Select samples greedily such that their Stein discrepancy is small.

    Each step adds the sample that minimises the discrepancy of the equally weighted selected
    samples. A sample may be selected more than once (Riabiz et al. 2022). With `log_prob`, the
    selection is regularised (Bénard, Staber and Da Veiga 2023), because the discrepancy alone may
    prefer saddle points and other points of low probability where scores vanish, and does not
    determine the relative probability of distant modes.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Stein Gram matrix.
    n_samples : int
        Number of samples to select.
    log_prob : array-like of shape (n,), default=None
        Log density of the samples up to a constant. Its mean over the selected samples is rewarded,
        with one over `n_samples` as weight.
    curvature : array-like of shape (n,), default=None
        With `log_prob`, the sum of the positive second derivatives of the log density, which
        penalises its valleys; zero by default.

    Returns
    -------
    ndarray of int of shape (n_samples,)
        Indices of the samples, in the order of their selection.

    Examples
    --------
    >>> from skcircuits.stein import stein_thinning
    >>> stein_thinning([[1.0, 0.9, -0.9], [0.9, 2.0, 0.0], [-0.9, 0.0, 2.0]], 2)
    array([0, 2])
    """
    gram = DenseForm(square_matrix(K))
    return thin_columns(gram, n_samples, log_prob=log_prob, curvature=curvature)


def thin_columns(
    gram: SteinColumns | DenseForm,
    n_samples: int,
    *,
    log_prob: ArrayLike | None = None,
    curvature: ArrayLike | None = None,
    batch_size: int | None = None,
    rng: np.random.Generator | None = None,
) -> IntArray:
    """Choose as `stein_thinning` does, without the whole matrix.

    With a `batch_size` each step looks at that many samples drawn without replacement (Teymur,
    Gorham, Riabiz and Oates 2021): the cost no longer grows with the number of samples.
    """
    require_count(1, n_samples=n_samples)
    if batch_size is not None:
        require_count(1, batch_size=batch_size)
    n = len(gram)
    reward = _vector(log_prob, n, "log_prob") / n_samples
    # Adding i changes the sum over pairs by K_ii + 2 sum_j K_ij over the chosen j.
    alone = gram.diagonal() + _vector(curvature, n, "curvature")
    chosen = np.empty(n_samples, dtype=np.int64)
    is_batched = batch_size is not None and batch_size < n
    rng = np.random.default_rng(0) if rng is None else rng
    for step in range(n_samples):
        if is_batched:
            batch = rng.choice(n, batch_size, replace=False)
            increase = alone[batch]
            if step:
                increase += 2.0 * gram.columns(chosen[:step], batch).sum(axis=1)
            chosen[step] = batch[np.argmin(increase - (step + 1) * reward[batch])]
        else:
            # The sum over pairs grows with the square of their number, the reward with the number.
            chosen[step] = np.argmin(alone - (step + 1) * reward)
            alone += 2.0 * gram.columns(chosen[step : step + 1])[:, 0]
    return chosen


def positive_curvatures(target: Any, X: FloatArray, axes: FloatArray) -> FloatArray:
    """Sum the positive second derivatives of a log density at rows along axes, (d, d) in columns.

    They are differences of scores, which all targets have.
    """
    total = np.zeros(len(X))
    for axis in axes.T:
        # In units of the samples: steps are as fine for all coordinates.
        length = float((X @ axis).std()) / float(axis @ axis)
        step = _STEP * (length if length > 0 else 1.0)
        ahead, behind = X + step * axis, X - step * axis
        change = target.grad_log_prob(ahead) - target.grad_log_prob(behind)
        total += np.maximum(change @ axis / (2.0 * step), 0.0)
    return total


def _vector(values: ArrayLike | None, n: int, name: str) -> FloatArray:
    """Read one finite number per sample; zeros for None."""
    if values is None:
        return np.zeros(n)
    vector = float_array(values, name)
    if vector.shape != (n,) or not np.isfinite(vector).all():
        raise ValueError(must(name, f"be {n} finite numbers", shape=vector.shape))
    return vector
