"""
Distances between learned densities
===================================

Empirical distances between samples are noisy if the samples are small. The distance between two
circuits is exact: :func:`~skcircuits.kernels.mmd2` is the squared maximum mean discrepancy of their
distributions. In this example, a density is learned for each of two random halves of each iris
species, and all pairs are compared.
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
# The halves of a species are close to each other, and setosa is far from the others.

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
