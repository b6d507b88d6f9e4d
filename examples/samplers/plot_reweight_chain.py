"""
===================================
Can a poor Markov chain be rescued?
===================================

A Markov chain was stopped much too early: its first states still remember where it
started. Running it again costs time, or is not possible at all. If the target is known up
to its normaliser, the states that exist can be weighted instead.

:class:`~skcircuits.BBISWeighter` finds the weights whose Stein discrepancy to the target is
smallest. It never asks how the samples came about.
"""

# %%
# A target and a poor chain
# -------------------------
# A 5 x 5 Ising grid with random couplings. The chain starts with all spins down, is stopped
# after 150 sweeps and keeps everything, the way to the target included.

import matplotlib.pyplot as plt
import numpy as np

from skcircuits import BBISWeighter
from skcircuits.graphical import IsingModel

rng = np.random.default_rng(0)
model = IsingModel.grid(
    5, 5, couplings=rng.normal(0, 0.5, size=40), fields=rng.normal(0, 0.5, size=25)
)
chain = model.gibbs_sample(150, burn_in=0, start=np.zeros((1, 25)), random_state=0)

# %%
# The truth
# ---------
# Variable elimination gives the exact marginals: the induced width of the grid is small.

truth = np.array([p[1] for p in model.marginals()])
print(f"width {model.width()}, log partition function {model.log_partition():.4f}")

# %%
# Weights
# -------
# Once for the states as they are, once with half of the variables summed out exactly: a
# collapsed sample stands for its sampled variables and the exact distribution of the rest.

weighter = BBISWeighter(target=model).fit(chain)
collapsed = BBISWeighter(target=model, collapse=0.5, random_state=0).fit(chain)
uniform = np.full(len(chain), 1 / len(chain))

estimates = {
    "chain": weighter.marginals(uniform),
    "weighted chain": weighter.marginals(),
    "collapsed": collapsed.marginals(uniform),
    "weighted, collapsed": collapsed.marginals(),
}
estimates = {name: np.array([p[1] for p in table]) for name, table in estimates.items()}
for name, estimate in estimates.items():
    print(f"{name:20s} mean absolute error {np.abs(estimate - truth).mean():.4f}")

# %%
# Marginals against the truth
# ---------------------------
# Points on the diagonal are exact.

figure, axes = plt.subplots(1, 4, figsize=(13, 3.8), sharex=True, sharey=True, layout="constrained")
for ax, (name, estimate) in zip(axes, estimates.items()):
    ax.plot([0, 1], [0, 1], color="0.7", zorder=0)
    ax.scatter(truth, estimate, s=18)
    error = np.abs(estimate - truth).mean()
    ax.set(title=f"{name}\nmean error {error:.4f}", xlabel="exact P(x = 1)", aspect="equal")
axes[0].set_ylabel("estimated P(x = 1)")
plt.show()

# %%
# Which states count
# ------------------
# Weights are not small for early states as such: a state counts for what the others lack. The
# effective sample size says how many equally weighted samples would be as good.

figure, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
ax.bar(np.arange(len(chain)), weighter.weights_ * len(chain), width=1.0)
ax.axhline(1.0, color="0.3", lw=0.8)
ax.set(
    xlabel="sweep",
    ylabel="weight relative to 1/n",
    title=f"effective sample size {weighter.effective_sample_size_:.0f} of {len(chain)}",
)
plt.show()
