"""Weights of a mixture of densities that are fixed."""

import numpy as np

_GAP = 1e-8  # from the largest mean log likelihood, in nats
_MAX_STEPS = 10_000


def likeliest_weights(
    log_prob: np.ndarray, sample_weight: np.ndarray, prior: float = 0.0
) -> np.ndarray:
    """Weights (K,) of the mixture of K densities under which some rows are likeliest.

    Expectation maximisation of a concave function. At any weights, the logarithm of the largest
    mean ratio of a density to the mixture bounds what is left to gain (Cover, 1984, "An Algorithm
    for Maximizing Expected Log Investment Return"). Rows that are impossible under all densities
    do not depend on the weights, and are left out.

    `log_prob` (n, K): log densities of the rows; `sample_weight` (n,): weights of the rows;
    `prior`: rows of a Dirichlet prior, each of which comes from all densities equally.
    """
    weights = np.full(log_prob.shape[1], 1.0 / log_prob.shape[1])
    largest = log_prob.max(axis=1)
    possible = np.isfinite(largest)
    if not possible.any():
        return weights
    relative = np.exp(log_prob[possible] - largest[possible, None])
    total = sample_weight[possible].sum() + prior
    fractions, pseudo = sample_weight[possible] / total, prior / total / len(weights)
    for _ in range(_MAX_STEPS):
        ratios = (fractions / (relative @ weights)) @ relative
        if pseudo:
            ratios += pseudo / weights
        if np.log(ratios.max()) <= _GAP:
            break
        weights = weights * ratios
    return weights / weights.sum()
