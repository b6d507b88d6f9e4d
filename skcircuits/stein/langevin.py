"""Stein kernels of continuous targets: the Langevin operator with radial kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from skcircuits.exceptions import invalid, must
from skcircuits.kernels import RBF
from skcircuits.numerics._arrays import float_array, scores_at
from skcircuits.protocols import DifferentiableTarget, FloatArray, ImmutableMixin, IntArray
from skcircuits.stein._targets import own_columns

# Squared distances r to φ(r), φ'(r) and r φ''(r); the last stays finite at any scale.
Profile = Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray]]


@dataclass(frozen=True)
class InverseMultiquadric(ImmutableMixin):
    """The inverse multiquadric kernel ``(1 + |x - y|² / scale²)^exponent``.

    Because of its heavy tails, its Langevin Stein discrepancy controls convergence (Gorham and
    Mackey 2017).

    Parameters
    ----------
    scale : float, default=1.0
        Length scale.
    exponent : float, default=-0.5
        Exponent in (-1, 0).

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.stein import InverseMultiquadric
    >>> InverseMultiquadric()(np.zeros((1, 1)), np.array([[0.0], [1.0]])).round(3)
    array([[1.   , 0.707]])
    """

    scale: float = 1.0
    exponent: float = -0.5

    def __post_init__(self) -> None:
        if not (isinstance(self.scale, Real) and self.scale > 0):
            raise invalid("scale", "be positive", scale=self.scale)
        if not (isinstance(self.exponent, Real) and -1 < self.exponent < 0):
            raise invalid("exponent", "be between -1 and 0", exponent=self.exponent)

    def __call__(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """Kernel values (n, m) of rows X (n, d) and Y (m, d)."""
        X, Y = float_array(X, "X"), float_array(Y, "Y")
        center = Y.mean(axis=0) if len(Y) else 0.0
        return self.profile(_squared_distances(X - center, Y - center))[0]

    def profile(self, squared: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Compute the kernel and its derivatives with respect to the squared distance.

        Parameters
        ----------
        squared : ndarray
            Squared distances r.

        Returns
        -------
        tuple of ndarray
            φ(r), φ'(r) and r φ''(r).
        """
        ratio = squared / self.scale**2
        value = (1.0 + ratio) ** self.exponent
        first = self.exponent / self.scale**2 * value / (1.0 + ratio)
        return value, first, (self.exponent - 1.0) * first * ratio / (1.0 + ratio)


def radial_profile(kernel: Any) -> Profile:
    """Find how a kernel depends on the squared distance."""
    # The hook for kernels of users: how they depend on the squared distance.
    if hasattr(kernel, "profile"):
        return kernel.profile
    if isinstance(kernel, RBF) and kernel.variables is None:
        return partial(_rbf_profile, gamma=float(kernel.gamma))
    condition = "be RBF over all variables or InverseMultiquadric"
    way_out = "Others need a method profile(squared_distances)."
    raise TypeError(must("kernel of the Langevin operator", condition, way_out, kernel=kernel))


def _rbf_profile(squared: FloatArray, gamma: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    value = np.exp(-gamma * squared)
    return value, -gamma * value, gamma * value * (gamma * squared)


@dataclass(frozen=True)
class ScoredPoints:
    """Points and the score function of a target there."""

    X: FloatArray  # (n, d)
    scores: FloatArray  # (n, d)

    def __getitem__(self, rows: slice) -> ScoredPoints:
        return ScoredPoints(self.X[rows], self.scores[rows])


def score_points(target: DifferentiableTarget, X: FloatArray) -> ScoredPoints:
    """Evaluate the score function of a target."""
    scores = scores_at(target.grad_log_prob, X)
    columns = own_columns(target, X.shape[1])
    X, scores = X[:, columns], scores[:, columns]
    return ScoredPoints(X - X.mean(axis=0), scores)


def langevin_block(
    left: ScoredPoints, right: ScoredPoints, *, profile: Profile, columns: IntArray | None = None
) -> FloatArray:
    """Langevin Stein kernel of two sets of points (Liu, Lee and Jordan 2016), summed over
    ``columns``: ``φ s(x)·s(y) + 2 φ' (s(y) - s(x))·δ - 2 d φ' - 4 r φ''``, δ = x - y, r = δ·δ, k =
    φ(r).
    """
    x, y, score_x, score_y = left.X, right.X, left.scores, right.scores
    squared = _squared_distances(x, y)
    value, first, curvature = profile(squared)
    if columns is not None:
        x, y, score_x, score_y = (a[:, columns] for a in (x, y, score_x, score_y))
        # r φ'' is at hand; the columns have their part of r.
        own = _squared_distances(x, y)
        curvature *= np.divide(own, squared, out=np.zeros_like(own), where=squared > 0)
    # (s(y) - s(x))·(x - y) without an array of shape (n, m, d).
    along = np.hstack([x, score_x]) @ np.hstack([score_y, y]).T
    along -= (y * score_y).sum(axis=1) + x.shape[1]
    along -= (x * score_x).sum(axis=1)[:, None]
    along *= first
    along -= 2.0 * curvature
    along *= 2.0
    scores = score_x @ score_y.T
    scores *= value
    scores += along
    return scores


def _squared_distances(x: FloatArray, y: FloatArray) -> FloatArray:
    squared = x @ y.T
    squared *= -2.0
    squared += (x**2).sum(axis=1)[:, None]
    squared += (y**2).sum(axis=1)
    # Rounding may leave small negatives where points coincide.
    return np.maximum(squared, 0.0, out=squared)
