"""
Comparison of synthetic rows with real ones
===========================================

For many purposes, such as sharing, testing and balancing, draws from a good density can replace the
table. In this example, a density is learned from the wine data, and as many rows are drawn as there
are in the data. A classifier is then trained to distinguish drawn rows from real ones. The closer
its ROC AUC is to 0.5, the better is the density.
"""

# %%
# Learn and draw
# --------------

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from skcircuits import GaussianMixtureDensity

columns = ["alcohol", "flavanoids", "color_intensity", "proline", "hue"]
real = load_wine(as_frame=True).data[columns]
density = GaussianMixtureDensity(random_state=0).fit(real)
synthetic = density.sample(len(real), random_state=0)

# %%
# Side by side
# ------------

figure, axes = plt.subplots(1, 4, figsize=(12, 3.2), layout="constrained")
for ax, column in zip(axes, columns[1:]):
    for table, label, color in [(real, "real", "C0"), (synthetic, "drawn", "C1")]:
        ax.scatter(table["alcohol"], table[column], s=10, alpha=0.6, label=label, color=color)
    ax.set(xlabel="alcohol", ylabel=column)
axes[0].legend(markerscale=1.5)
plt.show()

# %%
# Can a classifier distinguish them?
# ----------------------------------

both = pd.concat([real, synthetic], ignore_index=True)
is_real = np.arange(len(both)) < len(real)
judge = HistGradientBoostingClassifier(random_state=0)
folds = StratifiedKFold(5, shuffle=True, random_state=0)
chance = cross_val_predict(judge, both, is_real, cv=folds, method="predict_proba")
print(f"area under the curve {roc_auc_score(is_real, chance[:, 1]):.2f}, 0.5 is indistinguishable")
