"""
====================================================
Dependences between columns by mixtures of all trees
====================================================

A Chow-Liu tree shows which columns of a table depend on each other, but it consists of a single
tree. :class:`~skcircuits.MoATDensity` is a mixture over all trees, in which every pair of columns
has a probability of being an edge. In this example, it is learned from the breast cancer data of
scikit-learn, with every measurement reduced to low, middle or high.
"""

# %%
# A table of categories
# ---------------------
# The worst values of ten measurements of a tumour, divided into thirds, and its diagnosis.

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
# Likelihood and gradient are exact. The pass with the best score on held-out rows is kept.

LossCurveDisplay.from_estimator(density)
plt.show()

# %%
# Edge probabilities
# ------------------
# The probability that two columns are connected in a tree from the mixture, as a heat map and as a
# graph in which the width of a line is the probability of the edge.

_, (left, right) = plt.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
EdgeMarginalsDisplay.from_estimator(density, ax=left)
EdgeMarginalsDisplay.from_estimator(density, kind="graph", ax=right)
plt.show()

# %%
# Trees that are drawn from the mixture differ, which shows the uncertainty about the structure.

names = list(table.columns)
for tree in density.sample_trees(3, random_state=0):
    print(", ".join(f"{names[u]}–{names[v]}" for u, v in tree[:5]), "...")

# %%
# Sampling and completion of rows
# -------------------------------
# Sampling draws a tree, and then a row from this tree.

print(density.sample(4, random_state=0).to_string())

# %%
# If few cells of a row are missing, the distribution of the diagnosis is computed exactly by
# enumeration. If many are missing, it is estimated from trees that are drawn given the observed
# cells, with standard errors. Both are compared for a row with three missing cells.

case = table.iloc[[0]].copy()
case[["diagnosis", "area", "texture"]] = None
exact = density.conditional_marginals(case, method="exact")[-1][0]
estimate, errors, _ = density.conditional_marginals(
    case, method="collapsed", random_state=0, return_errors=True
)
for label, p, q, error in zip(
    density.categories_[-1], exact, estimate[-1][0], errors[-1][0], strict=True
):
    print(f"{label:10s} exact {p:.3f}, 1000 trees {q:.3f} ± {error:.3f}")
completed = density.sample(5, random_state=0, X=case)
print("completed:", [dict(zip(names, row, strict=True))["area"] for row in completed[:, 0]])

# %%
# Queries about sets of categories have probabilities, too.

print(
    "P(malignant | large and not smooth) =",
    round(
        density.probability(
            {"diagnosis": "malignant"}, given={"area": "high", "smoothness": {"middle", "high"}}
        ),
        3,
    ),
)
