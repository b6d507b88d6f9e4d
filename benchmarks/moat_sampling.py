"""Samplers of conditional marginals against enumeration on nltcs.

Reproduces Figures 4 and 5 of Selvam, Zhang and Van den Broeck, "Mixtures of All Trees" (2023):
the Kullback-Leibler divergence of the estimated single-variable marginals, summed over the
missing variables, against the number of samples, for evidence of several sizes, averaged over
evidence and seeds; and a histogram of the importance weights for four observed cells. Blocked
Gibbs is not in the paper. The marginals of the model itself come from enumeration::

    python -m benchmarks.moat_sampling --evidence 1 2 4 6 8 10 12

A sample is a tree (collapsed), a tree and a row (importance), or a sweep over all missing
cells of one chain (Gibbs samplers, which start at the marginals of the columns and discard
nothing).
"""

import argparse
from itertools import islice

import numpy as np
from twenty import load

from skcircuits import MoATDensity
from skcircuits.trees import (
    blocked_gibbs,
    conditional_marginals,
    enumerate_evidence,
    estimate_evidence,
    estimate_marginals,
    single_site_gibbs,
)

METHODS = ("gibbs", "blocked_gibbs", "importance", "collapsed")
GIBBS = {"gibbs": single_site_gibbs, "blocked_gibbs": blocked_gibbs}
_SMALLEST_ESTIMATE = 1e-6
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def estimates(method, mixture, codes, rng):
    """Running estimates (n_counts, n_rows, n_states) after each number of samples."""
    layout = mixture.layout
    if method in GIBBS:
        nodes = mixture.components[0].nodes[layout.offsets + 1]
        start = np.where(codes < 0, rng.random(codes.shape) < nodes, codes)
        sweeps = GIBBS[method](mixture, start.astype(np.int64), codes < 0, rng)
        indicators = np.stack([layout.one_hot(rows) for rows in islice(sweeps, SAMPLES[-1])])
        running = np.cumsum(indicators, axis=0)
        return np.stack([running[count - 1] / count for count in SAMPLES])
    answers = []
    for count in SAMPLES:
        marginals = estimate_marginals(
            mixture, layout.evidence(codes), count, rng, collapsed=method == "collapsed"
        )
        answers.append(marginals.probabilities)
    return np.stack(answers)


def divergence(exact, estimate, missing):
    """Sum over missing variables of KL(exact || estimate)."""
    # A state that was never drawn would make it infinite.
    bounded = np.maximum(estimate, _SMALLEST_ESTIMATE)
    log_ratio = np.log(exact / bounded, out=np.zeros_like(exact), where=exact > 0)
    return ((exact * log_ratio).reshape(*missing.shape, -1).sum(axis=2) * missing).sum(axis=1)


def figure_4(mixture, test, sizes, n_rows, n_seeds):
    print("Mean divergence (nats) by number of samples")
    print("evidence method        " + "".join(f"{count:9d}" for count in SAMPLES))
    for size in sizes:
        totals = {method: np.zeros(len(SAMPLES)) for method in METHODS}
        for seed in range(n_seeds):
            rng = np.random.default_rng(seed)
            codes = test[rng.choice(len(test), n_rows, replace=False)].copy()
            order = np.argsort(rng.random(codes.shape), axis=1)
            np.put_along_axis(codes, order[:, size:], -1, axis=1)
            exact = conditional_marginals(mixture, codes, "exact", 1, rng).probabilities
            for method in METHODS:
                answers = estimates(method, mixture, codes, rng)
                totals[method] += [divergence(exact, a, codes < 0).mean() for a in answers]
        for method in METHODS:
            values = "".join(f"{value:9.5f}" for value in totals[method] / n_seeds)
            print(f"{size:8d} {method:13s} {values}", flush=True)


def figure_5(mixture, test, n_rows):
    """Histogram of the weights of single trees, divided by their mean P(evidence)."""
    rng = np.random.default_rng(0)
    layout = mixture.layout
    codes = test[rng.choice(len(test), n_rows, replace=False)].copy()
    np.put_along_axis(codes, np.argsort(rng.random(codes.shape), axis=1)[:, 4:], -1, axis=1)
    evidence = layout.evidence(codes)
    exact = enumerate_evidence(mixture, evidence)
    weights = [np.exp(estimate_evidence(mixture, evidence, 1, seed) - exact) for seed in range(500)]
    edges = [0, 0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2, 4, np.inf]
    shares = np.histogram(np.ravel(weights), edges)[0] / np.size(weights)
    print("Importance weights for 4 observed cells: share of the draws per interval")
    for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True):
        print(f"    {low:4.2f} to {high:4.2f}: {share:6.3f} " + "#" * round(60 * share))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evidence", nargs="+", type=int, default=[1, 2, 4, 6, 8, 10, 12])
    parser.add_argument("--rows", type=int, default=40, help="rows of evidence per seed")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    train, valid, test = load("nltcs")
    mixture = MoATDensity(random_state=0).fit(train, X_val=valid).mixture_
    test = test.astype(np.int64)
    figure_4(mixture, test, arguments.evidence, arguments.rows, arguments.seeds)
    figure_5(mixture, test, arguments.rows)


if __name__ == "__main__":
    main()
