"""
===============================================
Correction of a short and biased Langevin chain
===============================================

Unadjusted Langevin steps are cheap but biased: with long steps the chain converges to the wrong
distribution, and a short chain depends on its start. The gradients of the log posterior are
computed anyway, and :class:`~skcircuits.BBISWeighter` needs nothing else to correct the estimates.
"""

# %%
# A logistic regression and a chain
# ---------------------------------
# Breast cancer data with six standardised columns, and a standard normal prior. For a model in JAX,
# PyTorch, numpyro, PyMC or Stan, :mod:`skcircuits.targets` provides such a gradient.

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from skcircuits import BBISWeighter

table, y = load_breast_cancer(return_X_y=True)
A = StandardScaler().fit_transform(table[:150, :6])
y = y[:150]


def gradient(beta):
    return (y - expit(beta @ A.T)) @ A - beta


def langevin(n_steps, step, start, rng, n_chains=4):
    beta = np.tile(start, (n_chains, 1))
    states = np.empty((n_steps, n_chains, len(start)))
    for i in range(n_steps):
        noise = rng.standard_normal(beta.shape)
        beta = beta + 0.5 * step**2 * gradient(beta) + step * noise
        states[i] = beta
    return states.reshape(-1, len(start))


short = langevin(250, 0.4, np.zeros(6), np.random.default_rng(0))

# %%
# Weights from gradients alone
# ----------------------------
# :meth:`~skcircuits.BBISWeighter.summary` shows weighted and unweighted estimates. The true values
# are estimated by a chain with short steps that is a thousand times as long.

weighter = BBISWeighter().fit(short, gradients=gradient(short))
summary = weighter.summary()
truth = langevin(60_000, 0.05, np.zeros(6), np.random.default_rng(1))[20_000:]
print(summary[["raw_mean", "mean", "raw_sd", "sd"]].round(3))

# %%
# Comparison of means and standard deviations with the true ones
# --------------------------------------------------------------

names = load_breast_cancer().feature_names[:6]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, what, exact in [
    (axes[0], "mean", truth.mean(axis=0)),
    (axes[1], "sd", truth.std(axis=0)),
]:
    ax.axvline(0.0, color="0.7", lw=1)
    ax.plot(summary[f"raw_{what}"] - exact, names, "o", label="unweighted chain")
    ax.plot(summary[what] - exact, names, "s", label="weighted")
    ax.set_xlabel(f"error of the {'mean' if what == 'mean' else 'standard deviation'}")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
plt.show()

# %%
# Rows instead of weights
# -----------------------
# Code that does not support weights can use rows that are drawn according to their weights, or
# selected by thinning. Estimators of scikit-learn accept ``sample_weight=weighter.weights_``.

rows = BBISWeighter(random_state=0).fit_resample(
    short, method="thinning", n_samples=50, gradients=gradient(short)
)
error = np.abs(rows.mean(axis=0) - truth.mean(axis=0)).mean()
print(f"50 of {len(short)} states: mean error {error:.3f}")
