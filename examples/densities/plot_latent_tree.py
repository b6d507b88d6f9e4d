"""
A latent tree, drawn
====================

A latent tree puts a hidden variable above every column and joins them by a tree. Which columns are
neighbours, and how much does one tell about another? The tree is drawn with lines as wide as the
mutual information of the columns they join, and the density answers for all other pairs.
"""

# %%
# Measurements of tumours, as low, middle and high
# ------------------------------------------------
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
# The tree, and what it implies for all pairs
# -------------------------------------------
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
# How it was learned
# ------------------
# Passes over the rows go on until held-out rows gain no more.
LossCurveDisplay.from_estimator(density)
plt.show()
