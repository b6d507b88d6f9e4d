"""
Do drawn rows look like the real ones?
======================================

A density that is good enough can replace the table for many purposes: sharing, testing, balancing.
We learn one of the wine data, draw as many rows as there are, and look at both side by side. A
classifier that tries to tell them apart gives a number: 0.5 is the best a density can do.
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
# Can they be told apart?
# -----------------------

both = pd.concat([real, synthetic], ignore_index=True)
is_real = np.arange(len(both)) < len(real)
judge = HistGradientBoostingClassifier(random_state=0)
folds = StratifiedKFold(5, shuffle=True, random_state=0)
chance = cross_val_predict(judge, both, is_real, cv=folds, method="predict_proba")
print(f"area under the curve {roc_auc_score(is_real, chance[:, 1]):.2f}, 0.5 is indistinguishable")
