"""
Plot of a latent tree
=====================

A latent tree has a latent variable for every column, and these variables are connected by a tree.
Which columns are neighbours, and how much information do they contain about each other? The width
of the lines is the mutual information of the columns that they connect; the density also gives the
mutual information of all other pairs.
"""

# %%
# Measurements of tumours: low, middle and high
# ---------------------------------------------
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

from skcircuits import HiddenChowLiuDensity
from skcircuits.inspection import EdgeMarginalsDisplay, LossCurveDisplay

tumours = load_breast_cancer(as_frame=True)
means = tumours.data[[name for name in tumours.data if name.startswith("mean")]]
table = means.apply(lambda column: pd.qcut(column, 3, labels=["low", "middle", "high"]))
table.columns = [name.removeprefix("mean ") for name in table]
table["diagnosis"] = pd.Categorical(np.where(tumours.target, "benign", "malignant"))
density = HiddenChowLiuDensity(n_latent_states=8, random_state=0).fit(table)

# %%
# The tree, and the mutual information of all pairs
# -------------------------------------------------
names = list(table)
information = np.zeros((len(names), len(names)))
for i, j in zip(*np.triu_indices(len(names), 1)):
    information[i, j] = information[j, i] = density.mutual_information(names[i], names[j])
tree = np.zeros_like(information)
for child, parent in enumerate(density.parents_):
    if parent >= 0:
        tree[child, parent] = tree[parent, child] = information[child, parent]
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
EdgeMarginalsDisplay(tree / tree.max(), names).plot(kind="graph", ax=left)
left.set_title("The learned tree")
image = right.imshow(information, cmap="Blues", vmin=0)
right.set_xticks(range(len(names)), names, rotation=90)
right.set_yticks(range(len(names)), names)
right.set_title("Pairs of columns under the density")
figure.colorbar(image, ax=right, label="mutual information (nats)")
plt.show()

# %%
# Learning curve
# --------------
# Passes over the rows continue until the likelihood of held-out rows no longer increases.
LossCurveDisplay.from_estimator(density)
plt.show()
