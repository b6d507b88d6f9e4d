"""
Queries of a table
==================

A table of people contains categories, integers, a column that is mostly zero, and missing values. A
density that is learned from it answers queries that are written as text, also under conditions.
All probabilities are exact: they are sums of closed-form integrals, not estimates from draws.
"""

# %%
# The table
# ---------
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skcircuits import WMISPNDensity
from skcircuits.inspection import DensityDisplay, describe_density

rng = np.random.default_rng(0)
n = 1500
job = rng.choice(["cook", "nurse", "smith"], size=n, p=[0.4, 0.35, 0.25])
age = rng.integers(20, 66, size=n)
level = pd.Series(job).map({"cook": 18.0, "nurse": 24.0, "smith": 27.0}).to_numpy()
wage = (level + 0.25 * (age - 20) + rng.normal(0.0, 2.0, size=n)).round(2)
shares = np.where(rng.random(n) < 0.75, 0.0, rng.gamma(2.0, 40.0 * wage))
people = pd.DataFrame({"job": job, "age": age, "wage": wage, "shares": shares})
people = people.mask(rng.random(people.shape) < 0.05)
people.head()

# %%
# The density is learned from the incomplete table. Integers remain integers, and the zeros of
# ``shares`` become a point mass in addition to a density.
density = WMISPNDensity().fit(people)
print(describe_density(density))
print("point masses of shares:", density.point_masses_[3])

# %%
# Queries
# -------
# Queries consist of (chained) comparisons, ``in``, ``and``, ``or`` and ``not``; conditions are
# passed as ``given``.
questions = [
    ("30 <= age < 40", None),
    ("wage > 30", None),
    ("wage > 30", "job == 'nurse'"),
    ("wage > 30", "job == 'nurse' and age < 35"),
    ("job in ('nurse', 'smith')", "wage > 30 or shares > 2000"),
    ("not (shares == 0 or job == 'cook')", "40 <= age <= 50"),
]
for query, given in questions:
    answer = density.probability(query, given=given)
    print(f"P({query} | {given or 'everyone'}) = {answer:.3f}")

# %%
# The frequencies in a large sample of the density agree up to the sampling error.
draws = density.sample(20_000, random_state=0)
for query, _ in questions[:2]:
    print(f"{query}: {draws.eval(query).mean():.3f} of the draws")

# %%
# Plots of conditional densities
# ------------------------------
figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
DensityDisplay.from_estimator(density, people, columns=["wage"], ax=axes[0, 0])
DensityDisplay.from_estimator(density, people, columns=["shares"], ax=axes[0, 1])
for job in ("cook", "nurse", "smith"):
    display = DensityDisplay.from_estimator(
        density, people, columns=["wage"], given={"job": job}, ax=axes[1, 0]
    )
    display.ax_.lines[-1].set_label(job)
axes[1, 0].legend(title="job")
DensityDisplay.from_estimator(density, people, columns=["age", "wage"], ax=axes[1, 1])
plt.show()
