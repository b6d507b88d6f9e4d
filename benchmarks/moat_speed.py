"""Speed of the mixture of all trees, as multiples of n³ at the dgemm speed of the same run.

A gradient epoch is the log-likelihood and its gradient over all training rows, in batches of
1024, repetitions included, without the optimiser's step. The plain version beside it inverts
the same matrices by batched ``numpy.linalg.cholesky`` and ``numpy.linalg.inv``::

    OMP_NUM_THREADS=1 python -m benchmarks.moat_speed
"""

import resource
import time

import numpy as np
from twenty import load

from skcircuits.parallel import row_slices
from skcircuits.trees import StateLayout, start_training

_ROUNDS = 3


def fastest(function, clock=time.process_time):
    """Least time of a few rounds: processor time, so that other processes disturb little."""
    times = []
    for _ in range(_ROUNDS):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def dgemm_speed(size=1000):
    """Floating point operations per second of one thread."""
    matrix = np.random.default_rng(0).random((size, size))
    return 2 * size**3 / fastest(lambda: matrix @ matrix)


def gradient_epoch(training, codes, n_jobs):
    model = training.mixture.components[0]
    weight = np.ones(len(codes))
    for rows in row_slices(len(codes), 1024):
        training.parameterization.gradient(model, codes[rows], weight[rows], n_jobs=n_jobs)


def plain_epoch(laplacians, codes):
    """What the gradient costs at least with one LAPACK call after the other."""
    for rows in row_slices(len(codes), 64):
        minors = laplacians._minors(codes[rows])
        np.linalg.cholesky(minors)
        np.linalg.inv(minors)


def prepared(name):
    train, _, _ = load(name)
    codes = train.astype(np.int64)
    layout = StateLayout(np.full(codes.shape[1], 2))
    start = time.process_time()
    training = start_training(codes, layout, 1, np.random.default_rng(0))
    return training, codes, time.process_time() - start


def report_epochs(name, speed):
    training, codes, _ = prepared(name)
    n_rows, n_variables = codes.shape
    laplacians = training.mixture.components[0].laplacians()
    unit = n_rows * n_variables**3 / speed
    seconds = {
        "gradient": fastest(lambda: gradient_epoch(training, codes, 1)),
        "log-likelihood": fastest(lambda: laplacians.log_tree_sums(codes)),
        "cholesky+inv": fastest(lambda: plain_epoch(laplacians, codes)),
    }
    print(f"{name}: {n_rows} rows, {n_variables} variables, one thread")
    for what, value in seconds.items():
        print(f"    {what:15s} {value:6.3f} s = {value / unit:5.1f} x n3", flush=True)
    one, two = (
        fastest(lambda n=n_jobs: gradient_epoch(training, codes, n), time.perf_counter)
        for n_jobs in (1, 2)
    )
    print(f"    two threads: {one / two:.2f} x faster by the clock ({one:.2f} s, {two:.2f} s)")


def report_large():
    """Memory comes first: the process only ever reports its peak."""
    training, codes, seconds = prepared("ad")
    start = time.perf_counter()
    model = training.mixture.components[0]
    training.parameterization.gradient(model, codes[:128], np.ones(128), n_jobs=2)
    per_row = (time.perf_counter() - start) / 128
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"ad (1556 variables): initialisation {seconds:.2f} s, gradient {per_row:.2f} s per row "
        f"on two threads, peak memory {peak:.0f} MB"
    )
    print(f"bbc (1058 variables): initialisation {prepared('bbc')[2]:.2f} s", flush=True)


def main():
    report_large()
    speed = dgemm_speed()
    print(f"dgemm: {speed / 1e9:.1f} GFLOP/s on one thread")
    for name in ("plants", "dna"):
        report_epochs(name, speed)


if __name__ == "__main__":
    main()
