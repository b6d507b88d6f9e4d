"""Empirical discrepancies approach the exact ones at the rate N^-1/2.

MMD between two samples against MMD between their circuits, and the Stein discrepancy of a sample
against KDSD of its circuit, on deterministic tree circuits over binary variables. Prints, for
each N, the root mean squared error of the (unsquared) distance over repeated samples, and the
slope of a straight line through the logarithms: -1/2 is the rate of Li et al., "Tractable
Computation of Expected Kernels", UAI 2021. Results are kept in
``benchmarks/papers/convergence.jsonl`` and not computed again.

    python -m benchmarks.convergence [--picture doc/images/convergence.svg]
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
from _results import record

from skcircuits.circuits import Bernoulli, Circuit, Indicator, Product, Sum
from skcircuits.kernels import Hamming, mmd2
from skcircuits.stein import kdsd, stein_discrepancy

SIZES = (100, 200, 400, 800, 1600)
REPEATS = {"MMD": 100, "KDSD": 400}  # the latter vary more and take less time
N_VARIABLES = 6
KERNEL = Hamming(float(N_VARIABLES))


def tree(seed):
    """A chain over binary variables, deterministic and positive everywhere."""
    rng = np.random.default_rng(seed)
    last = rng.uniform(0.2, 0.8, size=2)
    nodes = [Bernoulli(N_VARIABLES - 1, p) for p in last]
    for variable in range(N_VARIABLES - 2, -1, -1):
        products = [Product([Indicator(variable, s, 2), node]) for s, node in enumerate(nodes)]
        nodes = [Sum(products, weights=[1 - p, p]) for p in rng.uniform(0.2, 0.8, size=2)]
    return Circuit(nodes[0])


def empirical_mmd(p, q, n_rows, seed):
    """Distance of two samples (V-statistic)."""
    X, Y = p.sample(n_rows, random_state=seed), q.sample(n_rows, random_state=seed + 10_000)
    value = KERNEL(X).mean() - 2.0 * KERNEL(X, Y).mean() + KERNEL(Y).mean()
    return np.sqrt(max(value, 0.0))


def empirical_stein(p, q, n_rows, seed):
    """Stein discrepancy of a sample of q (V-statistic)."""
    X = q.sample(n_rows, random_state=seed)
    return np.sqrt(stein_discrepancy(X, p, KERNEL, operator="difference"))


def study(exact, estimate, n_repeats):
    """The exact distance, errors of its estimates by sample size, and the slope of their logs."""
    p, q = tree(0), tree(1)
    value = exact(p, q)
    errors = [
        np.sqrt(np.mean([(estimate(p, q, n, s) - value) ** 2 for s in range(n_repeats)]))
        for n in SIZES
    ]
    slope = np.polyfit(np.log(SIZES), np.log(errors), 1)[0]
    return {"exact": float(value), "errors": [float(e) for e in errors], "slope": float(slope)}


STUDIES = {
    "MMD": (lambda p, q: np.sqrt(mmd2(p, q, KERNEL)), empirical_mmd),
    "KDSD": (lambda p, q: np.sqrt(kdsd(q, p, KERNEL)), empirical_stein),
}


def draw(found, picture):
    """Errors by sample size on logarithmic axes, beside the rate."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(5, 3.4), layout="constrained")
    sizes = np.array(SIZES)
    for name, study in found.items():
        errors = np.array(study["errors"]) / study["exact"]
        ax.plot(sizes, errors, "o-", label=f"{name}, slope {study['slope']:.2f}")
        ax.plot(sizes, errors[0] * (sizes / sizes[0]) ** -0.5, "k:", linewidth=1)
    ax.plot([], [], "k:", label="rate -1/2")
    ax.set(xscale="log", yscale="log", xlabel="sample size", ylabel="error / exact distance")
    ax.set_xticks(SIZES, map(str, SIZES), minor=False)
    ax.minorticks_off()
    ax.legend()
    figure.savefig(picture)


def main():
    """Print errors by sample size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", default=None)
    picture = parser.parse_args().picture
    print(f"{'':6s}{'exact':>9s}  " + "".join(f"N = {n:<6d}" for n in SIZES) + "slope")
    found = {}
    for name, (exact, estimate) in STUDIES.items():
        found[name] = record("convergence", name, partial(study, exact, estimate, REPEATS[name]))
        errors = "".join(f"{error:<10.4f}" for error in found[name]["errors"])
        print(
            f"{name:6s}{found[name]['exact']:9.4f}  {errors}{found[name]['slope']:5.2f}", flush=True
        )
    if picture:
        draw(found, picture)


if __name__ == "__main__":
    main()
