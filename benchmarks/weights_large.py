"""Weights of very many draws: CPU time and peak memory.

``python -m benchmarks.weights_large [--draws 100000] [--columns 20]``: draws from a normal
distribution that is off centre and too wide, against a standard normal target.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from skcircuits import BBISWeighter


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=20)
    options = parser.parse_args()
    X = np.random.default_rng(0).normal(0.2, 1.2, size=(options.draws, options.columns))
    began = time.process_time()
    weighter = BBISWeighter().fit(X, gradients=-X)
    fitted = time.process_time()
    chosen = weighter.thin(100)
    thinned = time.process_time()
    batched = weighter.thin(100, batch_size=1000)
    ended = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"fit {fitted - began:.1f} s, thin {thinned - fitted:.1f} s, in batches "
        f"{ended - thinned:.1f} s, peak {peak:.2f} GB"
    )
    for name, rows, weights in (
        ("raw", X, np.full(len(X), 1.0 / len(X))),
        ("weighted", X, weighter.weights_),
        ("thinned to 100", X[chosen], np.full(100, 0.01)),
        ("in batches", X[batched], np.full(100, 0.01)),
    ):
        first, second = np.abs(weights @ rows), np.abs(weights @ rows**2 - 1.0)
        print(f"{name:16s} error of means {first.mean():.4f}, of squares {second.mean():.4f}")


if __name__ == "__main__":
    main()
