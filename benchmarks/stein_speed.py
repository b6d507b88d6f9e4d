"""Time Stein Gram matrices and weights on the 16-variable grid, then two workers against one.

    python -m benchmarks.stein_speed [--dask]

Prints wall-clock seconds of one process with one BLAS thread; then for 3000 samples of several
targets how many times as fast two workers are, in turn with one, beside what the machine allows:
twice the time of one matrix over the time of two that independent processes compute at once.
``--dask`` compares the entries with those of a local Dask cluster.
"""

import argparse
import multiprocessing
import time
from functools import partial

import numpy as np
from _data import data_path
from joblib import parallel_config

from skcircuits.graphical import FactorGraph, GaussianMRF, IsingModel
from skcircuits.kernels import Hamming
from skcircuits.stein import InverseMultiquadric, simplex_weights, stein_gram


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


def large_grams(rng, n=3000):
    """Gram matrices of states and of numbers, as functions of the number of workers."""
    for rows, columns in ((5, 6), (10, 10), (15, 20)):
        d = rows * columns
        model = IsingModel.grid(rows, columns, couplings=0.3)
        X = rng.integers(2, size=(n, d)).astype(float)
        yield f"{d} states", partial(stein_gram, X, model, Hamming(scale=16.0 * d))
    for d in (10, 30, 100):
        precision = 2.0 * np.eye(d) - 0.9 * np.eye(d, k=1) - 0.9 * np.eye(d, k=-1)
        model, kernel = GaussianMRF(precision, np.zeros(d)), InverseMultiquadric(scale=d**0.5)
        yield f"{d} numbers", partial(stein_gram, rng.normal(size=(n, d)), model, kernel)


def seconds(function, *arguments, **options):
    start = time.perf_counter()
    function(*arguments, **options)
    return time.perf_counter() - start


def seconds_at_once(function, repeat):
    """Median time of a call while another process makes the same calls."""
    context = multiprocessing.get_context("fork")
    both, found = context.Barrier(2), context.SimpleQueue()

    def work():
        function()
        for _ in range(repeat):
            both.wait()
            found.put(seconds(function))

    processes = [context.Process(target=work) for _ in range(2)]
    for process in processes:
        process.start()
    times = [found.get() for _ in range(2 * repeat)]
    for process in processes:
        process.join()
    return np.median(times)


def two_workers(label, gram, repeat=9):
    """Print how much two threads gain, and what two processes at once would."""
    K = gram()
    one, two = np.median([(seconds(gram), seconds(gram, n_jobs=2)) for _ in range(repeat)], axis=0)
    ceiling = 2.0 * one / seconds_at_once(gram, repeat)
    equal = np.array_equal(K, gram(n_jobs=2))
    print(
        f"3000 x {label:12s} one worker {one:.3f} s, two {two:.3f} s: {one / two:.2f} times as "
        f"fast (the machine allows {ceiling:.2f}), equal: {equal}",
        flush=True,
    )


def main():
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--dask", action="store_true")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    small_grid(rng)
    grams = dict(large_grams(rng))
    for label, gram in grams.items():
        two_workers(label, gram)
    gram = grams["100 states"]
    one, K = timed("Gram of 3000 samples, 100 states", gram)
    with parallel_config("loky"):
        two, again = timed("the same, two processes (loky)", partial(gram, n_jobs=2))
    print(f"    {one / two:.2f} times as fast, equal: {np.array_equal(K, again)}")
    if options.dask:
        from dask.distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster),
            parallel_config("dask"),
        ):
            _, again = timed(
                "the same on a Dask cluster of two workers", partial(gram, n_jobs=2), 1
            )
        print(f"    equal: {np.array_equal(K, again)}")


if __name__ == "__main__":
    main()
