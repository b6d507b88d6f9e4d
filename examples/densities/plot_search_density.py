"""
Choosing a density by cross-validation
======================================

How many components should a Gaussian mixture have, and which type of covariances? The ``score`` of
densities is the mean log density of rows, so that
:class:`~sklearn.model_selection.GridSearchCV` can compare parameters on held-out rows.
"""

# %%
# The search
# ----------
# The rows are incomplete: a fifth of the cells is missing. Scores are marginal log densities.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import scale

from skcircuits import GaussianMixtureDensity

X = scale(load_wine().data)
X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
grid = {"n_components": [1, 2, 3, 4, 6], "covariance_type": ["full", "tied", "diag"]}
search = GridSearchCV(GaussianMixtureDensity(random_state=0), grid, cv=4).fit(X)

# %%
# Results
# -------

results = pd.DataFrame(search.cv_results_)
figure, ax = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
for shift, (kind, rows) in enumerate(results.groupby("param_covariance_type")):
    ax.errorbar(
        rows["param_n_components"].astype(int) + 0.08 * (shift - 1),
        rows["mean_test_score"],
        yerr=rows["std_test_score"] / 2,
        marker="o",
        capsize=3,
        label=kind,
    )
ax.set(xlabel="components", ylabel="mean held-out log density (nats per row)")
ax.legend(title="covariance_type", loc="center left", bbox_to_anchor=(1.0, 0.5))
plt.show()
print(search.best_params_)
