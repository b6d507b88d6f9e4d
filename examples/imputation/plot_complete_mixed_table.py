"""
Single and multiple imputation of a mixed table
===============================================

In a table of people, a third of the wages and trades is missing. Which cells are missing depends on
age, so that complete rows are not a representative sample. :class:`~skcircuits.CircuitImputer`
learns a joint density of numbers and categories from the incomplete table, and imputes missing
values in three ways. Which of them is appropriate depends on the purpose of the completed table.
"""

# %%
# The table
# ---------
# Wages increase with age, faster for smiths than for cooks. Older people are less likely to
# report theirs.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skcircuits import CircuitImputer

rng = np.random.default_rng(0)
n = 1000
trade = rng.choice(["cook", "smith"], size=n)
age = rng.uniform(20, 65, size=n)
rise = np.where(trade == "smith", 0.5, 0.1)
wage = 15 + rise * (age - 20) + rng.normal(0.0, 1.5, size=n)
whole = pd.DataFrame({"trade": trade, "age": age, "wage": wage})
secret = rng.random((n, 2)) < 0.6 * (age[:, None] - 20) / 45
table = whole.copy()
table[["trade", "wage"]] = whole[["trade", "wage"]].mask(secret)
table.head()

# %%
# Three completions
# -----------------
# If the trade is unknown, the mean lies between the trades, and the most probable value follows one
# of them. Draws have the same distribution as the table. All three use the same density; mixtures
# of Gaussians fit wages that increase with age at a rate that depends on the trade.
imputer = CircuitImputer(density="gaussian_mixture", random_state=0)
imputer.set_output(transform="pandas").fit(table)
completed = {
    strategy: imputer.set_params(strategy=strategy).transform(table)
    for strategy in ("mean", "mpe", "sample")
}

unknown = table["wage"].isna()
figure, axes = plt.subplots(1, 4, figsize=(13, 3.5), sharex=True, sharey=True, layout="constrained")
for axis, (title, rows) in zip(axes, {"truth": whole, **completed}.items()):
    axis.scatter(rows["age"][~unknown], rows["wage"][~unknown], s=4, color="lightgray")
    for trade, colour in {"cook": "C0", "smith": "C1"}.items():
        shown = unknown & (rows["trade"] == trade)
        axis.scatter(rows["age"][shown], rows["wage"][shown], s=6, color=colour, label=trade)
    axis.set(title=title, xlabel="age (years)")
axes[0].set_ylabel("wage per hour")
axes[0].legend(title="hidden wage of a", markerscale=2, loc="upper left")
plt.show()

# %%
# Purposes of the completed table
# -------------------------------
# For single cells, the mean has the least squared error. For descriptions of the table, only draws
# preserve the spread of the wages.
for strategy, rows in completed.items():
    error = np.sqrt(np.mean((rows["wage"] - whole["wage"])[unknown] ** 2))
    right = (rows["trade"] == whole["trade"])[table["trade"].isna()].mean()
    spread = rows["wage"].std() / whole["wage"].std()
    print(
        f"{strategy:6s} error of a wage {error:.2f}, trades right {right:.0%}, spread {spread:.2f}"
    )

# %%
# An analysis with its uncertainty
# --------------------------------
# How much more does a smith of fifty or above earn? The analysis of a single completed table treats
# imputed cells as known. Twenty drawn tables differ in the missing values, and Rubin's rules add
# the variance between the tables to the variance within a table.


def difference(rows):
    """Mean wage of old smiths minus that of old cooks, and its squared standard error."""
    groups = rows[rows["age"] >= 50].groupby("trade")["wage"]
    means, errors = groups.mean(), groups.var() / groups.size()
    return means["smith"] - means["cook"], errors.sum()


answers, variances = np.transpose(
    [
        difference(pd.DataFrame(rows, columns=table.columns).infer_objects())
        for rows in imputer.sample_imputations(table, 20)
    ]
)
variance = variances.mean() + (1 + 1 / len(answers)) * answers.var(ddof=1)
for label, value, error in [
    ("nothing hidden", difference(whole)[0], difference(whole)[1] ** 0.5),
    ("whole rows only", difference(table.dropna())[0], difference(table.dropna())[1] ** 0.5),
    ("one mean table", difference(completed["mean"])[0], difference(completed["mean"])[1] ** 0.5),
    ("twenty draws", answers.mean(), variance**0.5),
]:
    print(f"{label:16s} {value:5.2f} ± {error:.2f}")
