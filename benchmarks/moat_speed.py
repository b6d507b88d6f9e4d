"""Speed of the mixture of all trees, as multiples of n³ at the dgemm speed of the same run.

A gradient epoch is the log-likelihood and its gradient over all training rows, in batches of
1024, repetitions included, without the optimiser's step. The plain version beside it inverts
the same matrices by batched ``numpy.linalg.cholesky`` and ``numpy.linalg.inv``. What a second
thread gains is measured on one batch, in turns with one thread, beside the gain of plain matrix
products of half the size: that is what the machine allows. The largest table comes first, for
one learning step on some of its rows, because a process only ever reports its peak memory::

    OMP_NUM_THREADS=1 python -m benchmarks.moat_speed
"""

import resource
import time

import numpy as np
from _timing import fastest
from twenty import load

from skcircuits.parallel import row_slices, thread_map
from skcircuits.trees._chow_liu import complete_rows
from skcircuits.trees._trees import StateLayout
from skcircuits.trees.mixture_of_all_trees._learning import (
    Schedule,
    learn_all_trees,
    start_training,
)

_THREAD_ROUNDS = 25


def dgemm_speed(size=1000):
    """Floating point operations per second of one thread."""
    matrix = np.random.default_rng(0).random((size, size))
    return 2 * size**3 / fastest(lambda: matrix @ matrix)[0]


def gradient_epoch(training, codes, n_jobs):
    model = training.mixture.components[0]
    weight = np.ones(len(codes))
    for rows in row_slices(len(codes), 1024):
        training.parameterization.gradient(model, codes[rows], weight[rows], n_jobs=n_jobs)


def plain_epoch(laplacians, codes):
    """What the gradient costs at least with one LAPACK call after the other."""
    buffers = [np.empty((64, codes.shape[1] - 1, codes.shape[1] - 1)) for _ in range(2)]
    for rows in row_slices(len(codes), 64):
        minors = laplacians._minors(codes[rows], buffers)
        np.linalg.cholesky(minors)
        np.linalg.inv(minors)


def prepared(name):
    train, _, _ = load(name)
    codes = train.astype(np.int64)
    layout = StateLayout(np.full(codes.shape[1], 2))
    start = time.process_time()
    (rows,) = complete_rows([codes], layout)
    training = start_training(rows, layout, 1, np.random.default_rng(0))
    return training, codes, time.process_time() - start


def report_epochs(name, speed):
    training, codes, _ = prepared(name)
    n_rows, n_variables = codes.shape
    laplacians = training.mixture.components[0].laplacians()
    unit = n_rows * n_variables**3 / speed
    seconds = {
        "gradient": fastest(lambda: gradient_epoch(training, codes, 1))[0],
        "log-likelihood": fastest(lambda: laplacians.log_partitions(codes))[0],
        "cholesky+inv": fastest(lambda: plain_epoch(laplacians, codes))[0],
    }
    print(f"{name}: {n_rows} rows, {n_variables} variables, one thread")
    for what, value in seconds.items():
        print(f"    {what:15s} {value:6.3f} s = {value / unit:5.1f} x n3", flush=True)
    report_threads(training, codes[:1024])


def report_threads(training, codes):
    """Gain of a second thread by the clock: the best of many short rounds."""
    half = codes.shape[1] // 2
    blocks = np.random.default_rng(0).random((8, 64, half, half))
    items = [(block, block, np.empty_like(block)) for block in blocks]
    work = {
        "gradient": lambda n_jobs: gradient_epoch(training, codes, n_jobs),
        "products": lambda n_jobs: [thread_map(np.matmul, items, n_jobs) for _ in range(20)],
    }
    for what, function in work.items():
        times = [[elapsed(function, n) for n in (1, 2)] for _ in range(_THREAD_ROUNDS)]
        one, two = np.min(times, axis=0)
        print(f"    two threads, {what}: {one / two:.2f} x faster ({one:.3f} s, {two:.3f} s)")


def elapsed(function, n_jobs):
    start = time.perf_counter()
    function(n_jobs)
    return time.perf_counter() - start


def report_large(n_rows=128):
    training, codes, seconds = prepared("ad")
    start = time.perf_counter()
    schedule = Schedule(1, 0.05, 1024)
    (rows,) = complete_rows([codes[:n_rows]], training.parameterization.layout)
    for epoch in learn_all_trees(training, rows, np.random.default_rng(0), schedule, n_jobs=2):
        epoch.mixture.log_prob(codes[:n_rows], n_jobs=2)
    per_row = (time.perf_counter() - start) / n_rows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"ad (1556 variables): initialisation {seconds:.2f} s, step and score {per_row:.2f} s per "
        f"row on two threads, peak memory {peak:.0f} MB"
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
