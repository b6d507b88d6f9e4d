"""
Queries as regions
==================

A query in text form describes a region in the space of the columns, and its probability is the
integral of the density over this region. Intervals, linear comparisons and combinations with
``or`` are integrated exactly.
"""

# %%
# A density of iris flowers
# -------------------------
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_iris

from skcircuits import GaussianMixtureDensity
from skcircuits.inspection import DensityDisplay

flowers = load_iris(as_frame=True).data.iloc[:, 2:]
flowers.columns = ["length", "width"]
density = GaussianMixtureDensity(n_components=3, covariance_type="full", random_state=0).fit(
    flowers
)

# %%
# Three queries
# -------------
# The query is true in the bright region. Titles show the exact probability and the fraction of the
# 150 flowers.
questions = {
    "4 <= length <= 5.5 and width < 1.6": lambda t: t.length.between(4, 5.5) & (t.width < 1.6),
    "length > 2 * width + 1.5": lambda t: t.length > 2 * t.width + 1.5,
    "width > 2 or length < 1.5": lambda t: (t.width > 2) | (t.length < 1.5),
}
x, y = np.meshgrid(np.linspace(0.5, 7.5, 400), np.linspace(-0.2, 2.9, 400))
grid = pd.DataFrame({"length": x.ravel(), "width": y.ravel()})
figure, axes = plt.subplots(1, 3, figsize=(12.5, 4), sharey=True, layout="constrained")
for ax, (question, holds) in zip(axes, questions.items()):
    DensityDisplay.from_estimator(density, flowers, columns=["length", "width"], ax=ax)
    inside = holds(grid).to_numpy().reshape(x.shape)
    ax.contourf(x, y, ~inside, levels=[0.5, 1.5], colors=["white"], alpha=0.75)
    ax.scatter(flowers.length, flowers.width, s=6, color="white", edgecolor="black", linewidth=0.4)
    probability, fraction = density.probability(question), holds(flowers).mean()
    ax.set_title(f"P({question}) = {probability:.3f}\n{fraction:.3f} of the flowers", fontsize=9)
    ax.set(xlabel="petal length (cm)", ylabel="petal width (cm)")
plt.show()

# %%
# Queries as conditions
# ---------------------
# Every query can also be used as a condition.
print(density.expectation(given="length > 2 * width + 1.5"))
