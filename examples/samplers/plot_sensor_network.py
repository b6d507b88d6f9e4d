"""
===================================
Posterior positions of many sensors
===================================

Seventy sensors are placed in a square. They measure noisy distances to all sensors nearby, and the
positions of four anchors in the corners are known. What is the posterior distribution of the
position of each sensor?

:class:`~skcircuits.graphical.SensorNetwork` is the posterior of all positions, a graphical model
whose nodes are pairs of coordinates. :class:`~skcircuits.GraphicalSVGDSampler` moves particles
towards it. Each particle is a layout of the whole network, and kernels compare each sensor together
with its neighbours only.
"""

# %%
# A network
# ---------
# Pairs closer than half a unit measure their distance, with a standard deviation of 0.05. All
# sensors are known to lie in the square. Without this prior, a sensor without measurements would
# have no posterior, and the network would raise an error.

import matplotlib.pyplot as plt
import numpy as np

from skcircuits import GraphicalSVGDSampler
from skcircuits.graphical import SensorNetwork

n_sensors = 70
rng = np.random.default_rng(1)
positions = rng.uniform(-1, 1, (n_sensors, 2))
anchors = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])
network = SensorNetwork.simulate(
    positions, anchors, radius=0.5, noise=0.05, random_state=rng, box=(-1.0, 1.0)
)

# %%
# Localise it
# -----------
# Distances along the graph give an initial estimate, and fifty particles start around it. Steps
# should be short compared with the width of the posterior, which is a few hundredths here.

guess = network.estimate_positions()
start = guess + 0.1 * rng.normal(size=(50, guess.size))
sampler = GraphicalSVGDSampler(target=network, step_size=0.02, random_state=0).fit(start)
layouts = sampler.particles_.reshape(-1, n_sensors, 2)


def localisation_error(estimate):
    return np.sqrt(np.mean((estimate - positions) ** 2))


print(f"first guess: {localisation_error(guess.reshape(-1, 2)):.3f}")
print(f"mean of the particles: {localisation_error(layouts.mean(axis=0)):.3f}")

# %%
# Posterior clouds
# ----------------
# Each cloud is the posterior of one sensor. If the cloud is long or divided, the measurements are
# compatible with different positions, which a mean would hide.

figure, ax = plt.subplots(figsize=(6, 6), layout="constrained")
for i, j in network.pairs[np.all(network.pairs < n_sensors, axis=1)]:
    ax.plot(*positions[[i, j]].T, color="0.85", linewidth=0.7, zorder=0)
for sensor in range(n_sensors):
    (cloud,) = ax.plot(*layouts[:, sensor].T, ".", markersize=2.5, alpha=0.5)
    ends = np.stack([positions[sensor], layouts[:, sensor].mean(axis=0)])
    ax.plot(*ends.T, color=cloud.get_color(), linewidth=1)
ax.plot(*positions.T, "k+", markersize=7, label="true position")
ax.plot(*anchors.T, "rs", markersize=8, label="anchor")
ax.set(title="Posterior of seventy sensor positions", aspect="equal")
ax.set(xlabel="west to east (units of the map)", ylabel="south to north (units of the map)")
ax.legend(loc="upper center", ncols=2)

# %%
# Uncertainty of each sensor
# --------------------------
# The spread of a cloud shows which sensors are well determined: those with many neighbours. The
# Stein discrepancy of a node is in units of its score, so that it is largest where the posterior is
# narrowest; it decreases towards zero with more particles.

spread = layouts.std(axis=0).mean(axis=1)
n_measured = np.bincount(network.pairs.ravel(), minlength=n_sensors + 4)[:n_sensors]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
left.plot(n_measured, spread, "o")
left.set(xlabel="measured distances", ylabel="posterior standard deviation", yscale="log")
right.plot(spread, sampler.stein_discrepancy_per_node_, "o")
right.set(
    xlabel="posterior standard deviation", ylabel="Stein discrepancy of the node", xscale="log"
)
plt.show()
