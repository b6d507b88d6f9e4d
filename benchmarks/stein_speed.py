"""Time Stein Gram matrices and weights on the 16-variable grid.

    python benchmarks/stein_speed.py [--dask]

Prints wall-clock seconds of one process with one BLAS thread, then 3000 samples with one
and two workers; ``--dask`` compares the entries with those of a local Dask cluster.
"""

import argparse
import time

import numpy as np
from _data import data_path
from joblib import parallel_config

from skcircuits.graphical import FactorGraph, IsingModel
from skcircuits.kernels import Hamming
from skcircuits.stein import simplex_weights, stein_gram


def timed(label, function, repeat=3):
    """Print the best time of a few calls, give it and the result."""
    best = np.inf
    for _ in range(repeat):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    print(f"{label:55s} {best:7.3f} s", flush=True)
    return best, result


def small_grid(rng):
    """Gram matrices, collapsed ones, weights on the recorded 4 x 4 grid."""
    model = FactorGraph.from_uai(data_path("bbis", "ising_4x4_rand_id0.uai"))
    rows = rng.integers(2, size=(1000, 16)).astype(float)
    kernel = Hamming(scale=256.0)
    _, K = timed("Gram of 1000 full samples", lambda: stein_gram(rows, model, kernel))
    shared = rng.permutation(16)[:8]
    each = rng.random((200, 16)).argsort(axis=1) < 8
    for label, collapse, repeat in (("one subset", shared, 3), ("a subset per sample", each, 1)):
        timed(
            f"collapsed Gram (50 %) of 200 samples, {label}",
            lambda collapse=collapse: stein_gram(rows[:200], model, kernel, collapse=collapse),
            repeat,
        )
    timed("weights of 1000 samples", lambda: simplex_weights(K, regularization=0.1))
    timed("weights of 1000 samples, no ridge", lambda: simplex_weights(K))


def large_gram(rng):
    """A Gram matrix that is worth two workers: a 10 x 10 grid."""
    model = IsingModel.grid(10, 10, couplings=0.3)
    rows = rng.integers(2, size=(3000, 100)).astype(float)
    return lambda n_jobs: stein_gram(rows, model, Hamming(scale=1600.0), n_jobs=n_jobs)


def main():
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dask", action="store_true")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    small_grid(rng)
    gram = large_gram(rng)
    one, K = timed("Gram of 3000 samples, 100 variables", lambda: gram(1))
    for backend in ("loky", "threading"):
        with parallel_config(backend):
            two, again = timed(f"the same, two workers ({backend})", lambda: gram(2))
        print(f"    {one / two:.2f} times as fast, equal: {np.array_equal(K, again)}")
    if options.dask:
        from dask.distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster),
            parallel_config("dask"),
        ):
            _, again = timed("the same on a Dask cluster of two workers", lambda: gram(2), 1)
        print(f"    equal: {np.array_equal(K, again)}")


if __name__ == "__main__":
    main()
