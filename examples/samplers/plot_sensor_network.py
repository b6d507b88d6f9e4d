"""
====================================
Where are the sensors, and how sure?
====================================

Seventy sensors lie somewhere in a square. They measure noisy distances to whoever is close,
and four anchors in the corners know where they are. What do the measurements say about
the position of each sensor?

:class:`~skcircuits.graphical.SensorNetwork` is the posterior of all positions, a graphical
model whose nodes are pairs of coordinates.
:class:`~skcircuits.GraphicalSVGDSampler` moves particles to it: whole layouts of the
network, whose kernels compare each sensor together with its neighbours only.
"""

# %%
# A network
# ---------
# Pairs closer than half a unit measure their distance, with a standard deviation of 0.05. We
# know that everything lies in the square; without this prior, a sensor that hears
# of nobody would have no posterior, and the network would refuse to be built.

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
# Distances along the graph give a first guess, and particles scattered around it a start.
# Steps should be short against the posterior, which is a few hundredths wide here.

guess = network.estimate_positions()
start = guess + 0.1 * rng.normal(size=(100, guess.size))
sampler = GraphicalSVGDSampler(target=network, step_size=0.02, random_state=0).fit(start)
layouts = sampler.particles_.reshape(-1, n_sensors, 2)


def localisation_error(estimate):
    return np.sqrt(np.mean((estimate - positions) ** 2))


print(f"first guess: {localisation_error(guess.reshape(-1, 2)):.3f}")
print(f"mean of the particles: {localisation_error(layouts.mean(axis=0)):.3f}")

# %%
# Posterior clouds
# ----------------
# Each cloud is the posterior of one sensor. Where the cloud is long or split, the
# measurements allow more than one answer: a mean would hide it.

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
# How much does the data say about each sensor?
# ----------------------------------------------
# The spread of a cloud tells which sensors are well determined: those with many
# neighbours. The Stein discrepancy of a node is measured in units of its score, so it is
# largest where the posterior is tightest; it falls towards zero with more particles.

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
