"""
Conditional densities side by side
==================================

A density of a mixed table can be conditioned on anything. How do the wages of nurses and smiths
differ, among the young and among union members? Each curve is an exact marginal density of the
model given a condition, and each bar is an exact conditional probability.
"""

# %%
# The table
# ---------
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skcircuits import WMISPNDensity

rng = np.random.default_rng(0)
n = 3000
job = rng.choice(["cook", "nurse", "smith"], n, p=[0.4, 0.35, 0.25])
age = rng.integers(20, 66, n)
level = pd.Series(job).map({"cook": 18.0, "nurse": 22.0, "smith": 27.0}).to_numpy()
wage = level + 0.25 * (age - 20) + rng.normal(0, 2.5, n)
member = rng.random(n) < np.where(job == "smith", 0.7, 0.3)
people = pd.DataFrame({"job": job, "age": age, "wage": wage.round(2), "member": member})
density = WMISPNDensity().fit(people)

# %%
# Curves
# ------
# ``marginal`` returns the density of some columns given a condition, with all methods of densities.
conditions = {
    "everyone": None,
    "nurses": "job == 'nurse'",
    "smiths under 30": "job == 'smith' and age < 30",
    "members or over 55": "member or age > 55",
}
grid = pd.DataFrame({"wage": np.linspace(10, 50, 400)})
figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
for name, given in conditions.items():
    wages = density.marginal("wage", given=given)
    (line,) = ax.plot(grid["wage"], np.exp(wages.score_samples(grid)), label=name)
    lower, upper = wages.interval(0.8, "wage", kind="highest_density")
    height = -0.004 * len(ax.lines)
    ax.plot([lower, upper], [height, height], color=line.get_color())
# Intervals are drawn below the axis of the densities
ax.set(xlabel="wage per hour", ylabel="density per unit of wage", yticks=[0.0, 0.05, 0.1, 0.15])
ax.set_title("Wages, with the shortest 80 % intervals")
ax.legend()
plt.show()

# %%
# Bars
# ----
# Several conditions are evaluated in one call, which returns a row for each.
groups = ["wage > 34", "member", "age < 30 and wage < 22", "not member and age > 50"]
jobs = density.expectation(groups, columns="job")
jobs.index = groups
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
jobs.plot.barh(stacked=True, ax=ax)
ax.set(xlabel="probability of the job")
ax.legend(loc="upper center", bbox_to_anchor=(0.4, 1.2), ncols=3)
plt.show()

# %%
# Rare rows
# ---------
# Draws given a condition are exact, and cost as much as other draws however rare the condition is.
rare = "job == 'cook' and wage > 30 and age < 40"
print(f"P({rare}) = {density.probability(rare):.1e}")
density.sample(5, given=rare, random_state=0)
