"""
Drawings of small and large circuits
====================================

A small circuit is drawn unit by unit: sums with their weights, products, and input units. In the
drawing of a large circuit, each disk represents a region, which consists of all units over the same
columns. Notebooks show these drawings automatically.
"""

# %%
# Small: a mixture of two components over three columns
# -----------------------------------------------------
import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_iris

from skcircuits import GaussianMixtureDensity, HiddenChowLiuDensity
from skcircuits.inspection import CircuitDisplay

iris = load_iris(as_frame=True)
flowers = iris.data.iloc[:, :2].set_axis(["length", "width"], axis=1)
flowers["species"] = pd.Categorical.from_codes(iris.target, iris.target_names)
mixture = GaussianMixtureDensity(n_components=2, covariance_type="diag", random_state=0).fit(
    flowers
)
CircuitDisplay.from_estimator(mixture)
plt.show()

# %%
# Large: a latent tree
# --------------------
# The circuit has hundreds of units; its regions show which columns the latent variables connect.
flowers = iris.data.set_axis(["sepal length", "sepal width", "petal length", "petal width"], axis=1)
flowers["species"] = pd.Categorical.from_codes(iris.target, iris.target_names)
tree = HiddenChowLiuDensity(n_latent_states=12, random_state=0).fit(flowers)
print(repr(tree.circuit_))
CircuitDisplay.from_estimator(tree)
plt.show()
