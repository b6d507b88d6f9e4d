"""
Circuits, drawn small and large
===============================

A small circuit is drawn unit by unit: sums with their weights, products, input units. A large one
is drawn by its regions: each disk stands for all units over the same columns. Notebooks show
circuits as such drawings by themselves.
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
# Hundreds of units; the regions show which columns the latent variables bring together.
flowers = iris.data.set_axis(["sepal length", "sepal width", "petal length", "petal width"], axis=1)
flowers["species"] = pd.Categorical.from_codes(iris.target, iris.target_names)
tree = HiddenChowLiuDensity(n_latent_states=12, random_state=0).fit(flowers)
print(repr(tree.circuit_))
CircuitDisplay.from_estimator(tree)
plt.show()
