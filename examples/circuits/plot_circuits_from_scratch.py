"""
===============================================
Queries of a distribution that is built by hand
===============================================

A circuit is a graph of input units, products and sums. The circuit of this example describes the
weather: the kind of day, its temperature, and whether it rains. All results are exact.
"""

# %%
# Build
# -----
# Column 0 is the kind of day (calm, windy, stormy), column 1 the temperature in °C, column 2 rain.

import matplotlib.pyplot as plt
import numpy as np

from skcircuits.circuits import (
    Bernoulli,
    Circuit,
    Gaussian,
    Indicator,
    entropy,
    kl_divergence,
    multiply,
)
from skcircuits.inspection import CircuitDisplay
from skcircuits.kernels import RBF, Delta, mmd2


def season(mean, masses):
    """A deterministic circuit: each kind of day has its own temperature and rain."""
    days = [(mean, 3.0, 0.1), (mean - 2.0, 4.0, 0.4), (mean - 5.0, 5.0, 0.9)]
    terms = [
        mass * Indicator(0, kind, 3) * Gaussian(1, centre, std) * Bernoulli(2, rain)
        for kind, (mass, (centre, std, rain)) in enumerate(zip(masses, days))
    ]
    return Circuit(sum(terms[1:], start=terms[0]))


summer, winter = season(24.0, [0.6, 0.3, 0.1]), season(4.0, [0.3, 0.4, 0.3])
print(summer)

# %%
# Draw
# ----

CircuitDisplay.from_circuit(summer)

# %%
# Query
# -----
# NaN means unknown. If all that is known is that it rains, what kind of day is it, and how warm?

rain = np.array([[np.nan, np.nan, 1.0]])
print("P(rain) =", np.exp(summer.log_prob(rain)))
print("kind of day given rain:", summer.marginals(rain)[0].round(3))
print("expected temperature:", summer.expectation(rain)[0, 1].round(2))
print("most probable day:", summer.mpe(rain)[0])

lower, upper = np.full((2, 1, 3), np.nan)
lower[0, 1], upper[0, 1] = 20.0, 25.0
print("P(20 <= temperature <= 25) =", np.exp(summer.log_prob_box(lower, upper)))

# %%
# The exact conditional probability of rain as a function of the temperature.

temperatures = np.linspace(5, 35, 200)
rows = np.column_stack([np.full(200, np.nan), temperatures, np.full(200, np.nan)])
figure, ax = plt.subplots(layout="constrained")
ax.plot(temperatures, summer.marginals(rows)[2][:, 1])
ax.set(xlabel="temperature (°C)", ylabel="probability of rain", title="summer")

# %%
# Combine and compare
# -------------------
# Both circuits decompose the columns in the same way, so that their product is again a circuit.
# Distances between them are computed without samples, too.

both = multiply(summer, winter)
print("inner product of the densities:", np.exp(both.log_partition))
print("a day that could be either:", both.normalize().expectation([[np.nan] * 3])[0, 1].round(2))
print("entropy of summer:", round(entropy(summer), 3))
print("KL(summer || winter):", round(kl_divergence(summer, winter), 3))

kernel = Delta(variables=[0, 2]) * RBF(gamma=0.01, variables=[1])
means = np.linspace(4, 24, 21)
distances = [mmd2(summer, season(mean, [0.6, 0.3, 0.1]), kernel) for mean in means]
figure, ax = plt.subplots(layout="constrained")
ax.plot(means, distances)
ax.set(xlabel="mean temperature of the other season (°C)", ylabel="squared MMD to summer")
plt.show()
