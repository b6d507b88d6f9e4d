"""Weights of densities that answer together, learned from held-out cells."""

import numpy as np
from scipy.optimize import minimize

# Held-out cells that the prior of densities weighs: few cells cannot tell them apart, and equal
# weights are hard to beat by chance
_PRIOR_CELLS = 10.0


def stacking_weights(parts, prior=_PRIOR_CELLS):
    """Weights (K,) whose average answers best, on the simplex.

    Squared errors of the average mean plus log losses of the average likelihood are convex in the
    weights, and so is a Dirichlet prior around equal ones: no start matters (Breiman, 1996,
    "Stacked Regressions"; Yao et al., 2018, "Using Stacking to Average Bayesian Predictive
    Distributions").

    `parts`: answers to the cells of each split, `Answers` of the same K densities; `prior`: cells
    that the prior weighs.
    """
    means, truth, number_weights, likelihoods, log_weights = (
        np.concatenate(arrays) for arrays in zip(*parts, strict=True)
    )
    weighted = means * number_weights[:, None]
    quadratic, linear = weighted.T @ means, weighted.T @ truth
    n_members = means.shape[1]
    scale = 1.0 / (len(truth) + len(log_weights) + prior)

    def objective(logits):
        weights = np.exp(logits - logits.max())
        weights = np.maximum(weights / weights.sum(), 1e-300)
        average = likelihoods @ weights
        own_prior = prior / n_members
        loss = weights @ quadratic @ weights - 2.0 * linear @ weights
        loss -= log_weights @ np.log(average) + own_prior * np.log(weights).sum()
        gradient = 2.0 * (quadratic @ weights - linear)
        gradient -= (log_weights / average) @ likelihoods
        # by the logits; the prior's part is written out, where a weight may vanish
        slopes = weights * (gradient - weights @ gradient) - own_prior + prior * weights
        return scale * loss, scale * slopes

    found = minimize(objective, np.zeros(n_members), jac=True, method="L-BFGS-B")
    weights = np.exp(found.x - found.x.max())
    return weights / weights.sum()
