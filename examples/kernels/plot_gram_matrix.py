"""
A kernel method on incomplete rows
==================================

Every kernel method of scikit-learn accepts a precomputed Gram matrix. For rows with missing values,
:func:`~skcircuits.kernels.expected_kernel_matrix` computes exact inner products of the kernel mean
embeddings of rows under a learned density. In this example, kernel PCA maps the iris data, with a
third of all cells missing, to two dimensions.
"""

# %%
# Density and Gram matrix
# -----------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris
from sklearn.decomposition import KernelPCA
from sklearn.preprocessing import scale

from skcircuits import GaussianMixtureDensity
from skcircuits.kernels import RBF, expected_kernel_matrix

iris = load_iris()
X = scale(iris.data)
missing = np.random.default_rng(0).random(X.shape) < 1 / 3
incomplete = np.where(missing, np.nan, X)
density = GaussianMixtureDensity(n_components=3, random_state=0).fit(incomplete)
K = expected_kernel_matrix(incomplete, circuit=density.circuit_, kernel=RBF(gamma=0.3))

# %%
# The matrix and the map
# ----------------------
# Rows are ordered by species. On the map, larger points have more missing values; a row without any
# observed cell would be at the position of the average row.

order = np.argsort(iris.target, kind="stable")
points = KernelPCA(2, kernel="precomputed").fit_transform(K)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
image = left.imshow(K[np.ix_(order, order)], cmap="viridis")
left.set(title="Gram matrix", xlabel="row", ylabel="row")
figure.colorbar(image, ax=left, label="inner product of embeddings", shrink=0.8)
for species, name in enumerate(iris.target_names):
    rows = iris.target == species
    right.scatter(*points[rows].T, s=10 + 25 * missing[rows].sum(axis=1), alpha=0.6, label=name)
right.set(title="Kernel PCA", xlabel="first component", ylabel="second component")
right.legend()
plt.show()
