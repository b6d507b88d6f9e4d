"""How long an iteration takes: against blackjax, in the dimension, with threads.

An iteration is everything a fit does per step: gradient, kernels, linear term,
bandwidths, optimiser and the fit loop. One thread is timed by processor time, two by
wall-clock time, which needs two idle cores. Run it with
``OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false``.

    python benchmarks/svgd_speed.py [--largest 100000] [--picture svgd_speed.png]
"""

import argparse
import os
import time
import warnings

import numpy as np
from _svgd_peers import blackjax_svgd, have_blackjax, score_of_field
from _svgd_targets import gaussian_field, grid_edges

from skcircuits import GraphicalSVGDSampler


def seconds_per_iteration(
    field, n_particles, n_iter, repeats=3, clock=time.process_time, **options
):
    """Give the best of a few fits, set-up taken out by the difference of two lengths."""
    # Preconditioned runs stop by themselves: kernels over the blankets take all iterations
    options = {"kernel": "graphical", **options}
    sampler = GraphicalSVGDSampler(
        target=field, n_particles=n_particles, tol=0.0, random_state=0, **options
    )

    def seconds(max_iter):
        began = clock()
        sampler.set_params(max_iter=max_iter).fit()
        passed = clock() - began
        if sampler.n_iter_ < max_iter:
            raise RuntimeError(f"The run ended after {sampler.n_iter_} of {max_iter} iterations.")
        return passed

    seconds(2)
    long, short = n_iter + 10, 10
    return min((seconds(long) - seconds(short)) / n_iter for _ in range(repeats))


def against_blackjax(rng):
    field = gaussian_field(grid_edges(10), 100, rng)
    print("d = 100 grid, n = 100, one thread, ms per iteration")
    ours = {}
    for dtype in ("float64", "float32"):
        for weight in (0.0, 0.1):
            ours[dtype, weight] = 1e3 * seconds_per_iteration(
                field, 100, 500, dtype=dtype, linear_weight=weight
            )
            print(f"  graphical, {dtype}, linear_weight={weight}: {ours[dtype, weight]:.2f}")
    vanilla = 1e3 * seconds_per_iteration(
        field,
        100,
        500,
        dtype="float32",
        kernel="global",
        preconditioner=None,
        linear_weight=0.0,
    )
    print(f"  global, float32, linear_weight=0: {vanilla:.2f}")
    if have_blackjax():
        start = rng.normal(size=(100, 100)).astype(np.float32)
        _, seconds = blackjax_svgd(score_of_field(field), start, 200)
        ratio = 1e3 * seconds / ours["float32", 0.1]
        print(f"  blackjax.svgd (global kernel, float32): {1e3 * seconds:.2f}, {ratio:.1f} x ours")


def in_the_dimension(rng, largest, picture):
    sides = [side for side in (10, 32, 100, 316) if side * side <= 1.01 * largest]
    dimensions, times = [], []
    print("grids, n = 50, float32, one thread")
    for side in sides:
        field = gaussian_field(grid_edges(side), side * side, rng)
        n_iter = max(10, 20_000 // side**2)
        found = seconds_per_iteration(field, 50, n_iter, repeats=2, dtype="float32")
        dimensions.append(side * side)
        times.append(1e3 * found)
        print(
            f"  d = {side * side:6d}: {1e3 * found:9.2f} ms, {1e6 * found / side**2:.2f} µs / node"
        )
    if picture:
        draw(dimensions, times, picture)


def draw(dimensions, times, picture):
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(4.5, 3.5), layout="constrained")
    ax.loglog(dimensions, times, "o-", label="graphical SVGD")
    ax.loglog(dimensions, np.divide(dimensions, dimensions[-1]) * times[-1], ":", label="linear")
    ax.set(xlabel="dimension of the grid", ylabel="ms per iteration", title="n = 50, one thread")
    ax.legend()
    plt.savefig(picture, dpi=120)


def with_threads(rng):
    side = 32
    field = gaussian_field(grid_edges(side), side * side, rng)
    for n_particles in (100, 500):
        one, two = (
            seconds_per_iteration(
                field,
                n_particles,
                4000 // n_particles + 4,
                clock=time.perf_counter,
                dtype="float32",
                n_jobs=n_jobs,
            )
            for n_jobs in (1, 2)
        )
        print(
            f"d = {side * side} grid, n = {n_particles}, float32: {1e3 * one:.1f} ms per "
            f"iteration, two threads {1e3 * two:.1f} ms, {one / two:.2f} x"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=100_000)
    parser.add_argument("--picture", default=None)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("load", os.getloadavg())
    rng = np.random.default_rng(0)
    against_blackjax(rng)
    with_threads(rng)
    in_the_dimension(rng, arguments.largest, arguments.picture)
    print("load", os.getloadavg())


if __name__ == "__main__":
    main()
