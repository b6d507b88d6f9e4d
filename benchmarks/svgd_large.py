"""SVGD over very many coordinates: CPU time per iteration and peak memory.

``python -m benchmarks.svgd_large [--coordinates 1000000] [--particles 100] [--iterations 2]``: a
chain with precision 2 on and -0.9 beside the diagonal, in single precision. Prints setup, each
iteration and the measurement at the end, in seconds of process CPU time. ``--workers 2``: the
same on that number of workers of a local Dask cluster, in wall-clock seconds.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from contextlib import ExitStack

import joblib
import numpy as np

from skcircuits import GraphicalSVGDSampler
from skcircuits.parallel import dask_client


class Chain:
    """A Gaussian chain that computes in the precision of the particles."""

    def __init__(self, n_coordinates):
        nodes = np.arange(n_coordinates)
        pairs = np.stack([nodes - 1, nodes + 1], axis=1)
        self.neighbors = [pairs[0, 1:], *pairs[1:-1], pairs[-1, :1]]
        self._n_coordinates = n_coordinates

    def grad_log_prob(self, X):
        scores = X * X.dtype.type(-2.0)
        scores[:, 1:] += X.dtype.type(0.9) * X[:, :-1]
        scores[:, :-1] += X.dtype.type(0.9) * X[:, 1:]
        return scores

    def draw_start(self, n_particles, rng):
        return rng.standard_normal((n_particles, self._n_coordinates), dtype=np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coordinates", type=int, default=1_000_000)
    parser.add_argument("--particles", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--n-jobs", type=int, default=None)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with ExitStack() as stack:
        if options.workers:
            from dask.distributed import Client

            cluster = {"n_workers": options.workers, "dashboard_address": None}
            stack.enter_context(Client(threads_per_worker=1, **cluster))
            stack.enter_context(joblib.parallel_config("dask"))
        run(options)


def run(options):
    target = Chain(options.coordinates)
    clock = time.perf_counter if options.workers else time.process_time
    began = last = clock()

    class Timed(GraphicalSVGDSampler):
        """A thousand iterations, of which the first few are run."""

        def _run_once(self, problem, start, seed, units, metric):
            report("setup")
            steps = problem.steps(start, seed, self.n_jobs, metric, dask_client())
            for number, state in enumerate(steps):
                report("iteration" if number else "first, bandwidths")
                if number == options.iterations:
                    return state

    def report(what):
        nonlocal last
        now = clock()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{what:20s} {now - last:8.1f} s   peak {peak:.2f} GB", flush=True)
        last = now

    Timed(
        target=target,
        n_particles=options.particles,
        dtype="float32",
        n_jobs=options.n_jobs,
        random_state=0,
    ).fit()
    report("measurement")
    print(f"{'all':20s} {last - began:8.1f} s")


if __name__ == "__main__":
    main()
