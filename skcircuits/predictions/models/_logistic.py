"""Logistic links of additive scores: one-dimensional integrals over Gaussian components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr

from skcircuits.predictions._closed_forms import is_plainly_missing
from skcircuits.predictions._components import GaussianComponents
from skcircuits.predictions._rows import Expectation, IncompleteRows
from skcircuits.predictions.models._additive import (
    MAX_COMBINATIONS,
    AdditiveFunction,
    few_combinations,
    score_parts,
)
from skcircuits.protocols import BoolArray, FloatArray

# Narrow Gaussians: Gauss-Hermite nodes. Wide ones: what the link differs from a step by is
# integrated over the score, where the Gaussian is smooth.
NARROW = 1.2
N_HERMITE = 48
HERMITE_NODES, HERMITE_WEIGHTS = np.polynomial.hermite_e.hermegauss(N_HERMITE)
HERMITE_WEIGHTS = HERMITE_WEIGHTS / np.sqrt(2.0 * np.pi)
PANELS = (0.0, 2.0, 5.0, 10.0, 20.0, 40.0)
N_LEGENDRE = 14


@dataclass(frozen=True, eq=False)
class LogisticForm:
    """Probabilities of two classes whose log odds are an additive function."""

    additive: AdditiveFunction
    components: GaussianComponents
    name: str = "logistic link of a linear model"

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes."""
        return MAX_COMBINATIONS * len(self.components) * 8 * 4 * len(_score_nodes()[0])

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows that miss few categories."""
        return is_plainly_missing(rows) & few_combinations(self.additive, rows.evidence)

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Compute the moments of both probabilities."""
        mean, square = np.zeros(len(rows)), np.zeros(len(rows))
        for part in score_parts(self.additive, self.components, rows.evidence):
            means = part.means[..., 0]
            stds = np.broadcast_to(np.sqrt(part.variances[..., 0]), means.shape)
            first, second = logistic_normal_moments(means, stds)
            mean[part.rows] = (part.weights * first).sum(axis=(0, 1))
            square[part.rows] = (part.weights * second).sum(axis=(0, 1))
        both = np.column_stack([1.0 - mean, mean])
        return Expectation.exact(both, np.repeat((square - mean**2)[:, None], 2, axis=1))


def logistic_normal_moments(means: FloatArray, stds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """E[σ(s)] and E[σ(s)²] for normal scores s, to 1e-10; σ is the logistic function."""
    first, second = np.empty(means.shape), np.empty(means.shape)
    narrow = stds < NARROW
    nodes = expit(means[narrow][..., None] + stds[narrow][..., None] * HERMITE_NODES)
    first[narrow], second[narrow] = nodes @ HERMITE_WEIGHTS, nodes**2 @ HERMITE_WEIGHTS
    m, s = means[~narrow], stds[~narrow]
    scores, weights = _score_nodes()
    density = np.exp(-0.5 * ((scores - m[..., None]) / s[..., None]) ** 2)
    density *= weights / (np.sqrt(2.0 * np.pi) * s[..., None])
    step = (scores > 0).astype(np.float64)
    above = ndtr(m / s)
    first[~narrow] = above + density @ (expit(scores) - step)
    second[~narrow] = above + density @ (expit(scores) ** 2 - step)
    return first, second


def _score_nodes() -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on panels around zero."""
    nodes, weights = np.polynomial.legendre.leggauss(N_LEGENDRE)
    lower, upper = np.array(PANELS[:-1])[:, None], np.array(PANELS[1:])[:, None]
    half = (upper - lower) / 2.0
    positive = ((lower + upper) / 2.0 + half * nodes).ravel()
    scaled = (half * weights).ravel()
    return np.concatenate([-positive, positive]), np.concatenate([scaled, scaled])
