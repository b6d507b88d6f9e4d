"""
================================================
Which attributes go together, by all trees
================================================

A Chow-Liu tree tells which columns of a table depend on each other, but it has to commit to
one tree. :class:`~skcircuits.MoATDensity` weighs all trees at once: every pair of columns
gets a probability to be an edge. Here it reads a table about breast tumours that scikit-learn
brings along, with every measurement reduced to low, middle or high.
"""

# %%
# A table of labels
# -----------------
# The worst values of ten measurements of a tumour, cut into thirds, and its diagnosis.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

from skcircuits import MoATDensity
from skcircuits.inspection import EdgeMarginalsDisplay, LossCurveDisplay

tumours = load_breast_cancer(as_frame=True)
worst = tumours.data[[name for name in tumours.data if name.startswith("worst")]]
levels = pd.CategoricalDtype(["low", "middle", "high"], ordered=True)
table = worst.apply(lambda column: pd.qcut(column, 3, labels=levels.categories).astype(levels))
table.columns = [name.removeprefix("worst ") for name in table]
table["diagnosis"] = np.where(tumours.target == 1, "benign", "malignant")
density = MoATDensity(random_state=0).fit(table)
print(f"{density.n_iter_} passes, {density.score(table):.2f} nats per row")

# %%
# Learning
# --------
# The likelihood is exact, so its gradient is too. The pass with the best held-out rows is kept.

LossCurveDisplay.from_estimator(density)
plt.show()

# %%
# Which pairs are edges
# ---------------------
# The probability that two columns are joined in a tree drawn from the mixture, as a heat map
# and as a graph whose lines are as wide as the edge is probable.

_, (left, right) = plt.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
EdgeMarginalsDisplay.from_estimator(density, ax=left)
EdgeMarginalsDisplay.from_estimator(density, kind="graph", ax=right)
plt.show()

# %%
# Trees drawn from the mixture differ; each is one opinion about the structure.

names = list(table.columns)
for tree in density.sample_trees(3, random_state=0):
    print(", ".join(f"{names[u]}–{names[v]}" for u, v in tree[:5]), "...")

# %%
# New rows, completed rows
# ------------------------
# Sampling draws a tree, then a row from it.

print(density.sample(4, random_state=0).to_string())

# %%
# A row with holes is completed by trees drawn to suit its observed cells, and the diagnosis
# gets a distribution. With few holes the distribution is exact, by enumeration.

case = table.iloc[[0]].copy()
case[["diagnosis", "area", "texture"]] = None
exact = density.conditional_marginals(case, method="exact")[-1][0]
estimate, errors, sizes = density.conditional_marginals(case, random_state=0, return_errors=True)
for label, p, q, error in zip(
    density.categories_[-1], exact, estimate[-1][0], errors[-1][0], strict=True
):
    print(f"{label:10s} exact {p:.3f}, 1000 trees {q:.3f} ± {error:.3f}")
completed = density.sample(5, random_state=0, X=case)
print("completed:", [dict(zip(names, row, strict=True))["area"] for row in completed[:, 0]])

# %%
# Questions about sets of labels have probabilities as well.

print(
    "P(malignant | large and not smooth) =",
    round(
        density.probability(
            {"diagnosis": "malignant"}, given={"area": "high", "smoothness": {"middle", "high"}}
        ),
        3,
    ),
)
