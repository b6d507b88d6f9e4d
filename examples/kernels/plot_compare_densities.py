"""
How far apart are two learned densities?
========================================

Samples are compared by empirical distances that are noisy when samples are few. Two circuits are
compared exactly: :func:`~skcircuits.kernels.mmd2` is the squared maximum mean discrepancy of the
distributions themselves. We learn one density per species of iris, and one per random half of a
species, and compare all pairs.
"""

# %%
# Six densities
# -------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris
from sklearn.preprocessing import scale

from skcircuits import GaussianMixtureDensity
from skcircuits.kernels import RBF, mmd2

iris = load_iris()
X = scale(iris.data)
rng = np.random.default_rng(0)
circuits = {}
for species, name in enumerate(iris.target_names):
    rows = rng.permutation(np.flatnonzero(iris.target == species))
    for half, part in enumerate(np.split(rows, 2), start=1):
        density = GaussianMixtureDensity(n_components=1).fit(X[part])
        circuits[f"{name} {half}"] = density.circuit_

# %%
# All pairs
# ---------
# Halves of one species are close, setosa is far from the others.

kernel = RBF(gamma=0.25)
distance = np.array([[mmd2(p, q, kernel) for q in circuits.values()] for p in circuits.values()])
figure, ax = plt.subplots(figsize=(6, 5), layout="constrained")
image = ax.imshow(distance, cmap="viridis")
for (i, j), value in np.ndenumerate(distance):
    ax.text(j, i, f"{value:.2f}", ha="center", va="center", color="w" if value < 0.5 else "k")
ax.set_xticks(range(6), list(circuits), rotation=45, ha="right")
ax.set_yticks(range(6), list(circuits))
ax.set_title("squared MMD")
figure.colorbar(image, ax=ax)
plt.show()
