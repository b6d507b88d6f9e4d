"""
==========================
Regularised Stein thinning
==========================

Stein thinning keeps the few states of a chain that represent its target best. Plain thinning
depends on scores only: it prefers places of low probability where the score vanishes, and hardly
depends on the weights of two distant modes. The regularised criterion (Bénard, Staber and Da Veiga
2023) also uses the density: it avoids the saddle and comes closer to the right proportion of the
modes.
"""

# %%
# Two modes, and a chain with a wrong proportion of them
# ------------------------------------------------------

import matplotlib.pyplot as plt
import numpy as np

from skcircuits import BBISWeighter
from skcircuits.targets import from_function

CENTRES = np.array([[-3.0, 0.0], [3.0, 0.0]])
LOG_WEIGHTS = np.log([0.2, 0.8])


def log_terms(X):
    return LOG_WEIGHTS - 0.5 * ((X[:, None] - CENTRES) ** 2).sum(axis=2)


def log_density(X):
    return np.logaddexp.reduce(log_terms(X), axis=1)


def score(X):
    parts = np.exp(log_terms(X) - log_density(X)[:, None])
    return parts @ CENTRES - X


rng = np.random.default_rng(0)
chain = CENTRES[rng.integers(2, size=2000)] + rng.normal(size=(2000, 2))
chain = np.concatenate([chain, rng.uniform(-1, 1, size=(100, 2))])  # on the way between them

# %%
# Sixty states with either criterion
# ----------------------------------
# The left mode has a fifth of the mass of the target, but half of the states of the chain. Weights
# keep such fractions, and `fit` warns that they are wrong.

weighter = BBISWeighter(target=from_function(log_density, score)).fit(chain)
choices = {
    "plain": weighter.thin(60),
    "regularised": weighter.thin(60, regularized=True),
    "regularised, from batches": weighter.thin(60, regularized=True, batch_size=200),
}

x = np.linspace(-6, 6, 200)
grid = np.stack(np.meshgrid(x, np.linspace(-3.5, 3.5, 120)), axis=-1)
density = np.exp(log_density(grid.reshape(-1, 2))).reshape(grid.shape[:2])
figure, axes = plt.subplots(1, 3, figsize=(12, 3.2), sharey=True, layout="constrained")
for ax, (name, rows) in zip(axes, choices.items()):
    left = (chain[rows, 0] < 0).mean()
    ax.contour(grid[..., 0], grid[..., 1], density, levels=6, colors="0.75", linewidths=0.8)
    ax.plot(*chain[rows].T, "o", ms=4, alpha=0.7)
    ax.set(title=f"{name}: {left:.0%} on the left", xlabel="first coordinate")
axes[0].set_ylabel("second coordinate")
plt.show()
