"""
================================
Reweighting a short Markov chain
================================

A Markov chain was stopped much too early, so that its first states still depend on the start.
Running it again takes time or is impossible. If the target is known up to its normalising constant,
the available states can be weighted instead.

:class:`~skcircuits.BBISWeighter` finds the weights with the smallest Stein discrepancy from the
target. It does not need to know how the samples were generated.
"""

# %%
# A target and a short chain
# --------------------------
# A 5 x 5 Ising grid with random couplings. The chain starts with all spins down, is stopped after
# 150 sweeps, and all states are kept, including the burn-in.

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
# Exact marginals
# ---------------
# Variable elimination gives the exact marginals, because the induced width of the grid is small.

truth = np.array([p[1] for p in model.marginals()])
print(f"width {model.width()}, log partition function {model.log_partition():.4f}")

# %%
# Weights
# -------
# Weights are computed for the states themselves, and with half of the variables summed out exactly:
# a collapsed sample represents its sampled variables and the exact distribution of the others.

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
# Comparison of marginals
# -----------------------
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
# Weights of the states
# ---------------------
# Early states do not have small weights as such: the weight of a state depends on all the others.
# The effective sample size is the number of equally weighted samples of the same accuracy.

figure, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
ax.bar(np.arange(len(chain)), weighter.weights_ * len(chain), width=1.0)
ax.axhline(1.0, color="0.3", lw=0.8)
ax.set(
    xlabel="sweep",
    ylabel="weight relative to 1/n",
    title=f"effective sample size {weighter.effective_sample_size_:.0f} of {len(chain)}",
)
plt.show()
