"""
Standard errors of a regression after imputation
================================================

A regression coefficient is to be estimated from a table with missing values. If missing values are
imputed once and the result is treated as data, the standard error is too small. Several proper
imputations that are pooled by Rubin's rules account for the missing values.
"""

# %%
# A table with 35 % missing values
# --------------------------------
# Blood pressure depends on age and exercise, which are correlated, with coefficients 1 and -1/2;
# all columns are in standard deviations.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

from skcircuits import CircuitImputer, GaussianMixtureDensity, pool_models

rng = np.random.default_rng(3)
X = rng.normal(size=(400, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
table = np.column_stack([X, X @ [1.0, -0.5] + rng.normal(size=400)])
incomplete = np.where(rng.random(table.shape) < 0.35, np.nan, table)

# %%
# Single and multiple imputation
# ------------------------------
# The same Gaussian density is used to impute means once, and to draw twenty tables.

density = GaussianMixtureDensity(n_components=1)
imputer = CircuitImputer(density=density, random_state=0).fit(incomplete)


def pooled(tables):
    models = [LinearRegression().fit(t[:, :2], t[:, 2]) for t in tables]
    return pool_models(models, [t[:, :2] for t in tables], [t[:, 2] for t in tables])


once = imputer.transform(incomplete)
results = {
    "complete table": pooled([table, table]),
    "complete rows only": pooled([incomplete[~np.isnan(incomplete).any(axis=1)]] * 2),
    "conditional means": pooled([once, once]),
    "20 draws, one density": pooled(imputer.sample_imputations(incomplete, 20, proper=False)),
    "20 proper draws": pooled(imputer.sample_imputations(incomplete, 20)),
}

# %%
# Intervals
# ---------
# Bars are 95 % confidence intervals, and dotted lines show the true coefficients.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
coefficients = {"age": 1.0, "exercise": -0.5}
for j, (ax, (name, truth)) in enumerate(zip(axes, coefficients.items()), start=1):
    for height, result in enumerate(results.values()):
        low, high = result.interval()[j]
        ax.plot([low, high], [height, height], color="C0", lw=3, solid_capstyle="butt")
        ax.plot(result.estimate[j], height, "o", color="C0")
    ax.axvline(truth, color="0.3", ls=":")
    ax.set(xlabel=f"coefficient of {name}")
axes[0].set_yticks(range(len(results)), list(results))
axes[0].invert_yaxis()
plt.show()
