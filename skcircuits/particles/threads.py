"""Threads over chunks of kernels: the only parallelism inside one run.

An iteration takes a millisecond; a thread pool hands out work in some hundredths of
that, where processes would spend ten. Chunks depend on the shapes only, never on the
number of threads, so results are bitwise equal for every thread count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from skcircuits.parallel import single_threaded_blas

__all__ = ["ChunkRunner", "chunk_threads", "run_serially"]

Item = TypeVar("Item")
ChunkRunner = Callable[[Callable[[Item], None], Sequence[Item]], None]


def run_serially(function: Callable[[Item], None], chunks: Sequence[Item]) -> None:
    """Call a function on each chunk, one after the other.

    Parameters
    ----------
    function : callable
        Writes its result in place.
    chunks : sequence
        Arguments of the calls.
    """
    for chunk in chunks:
        function(chunk)


@contextmanager
def chunk_threads(n_threads: int) -> Iterator[ChunkRunner]:
    """Open a pool of threads that share out chunks.

    Inside, BLAS runs on one thread: many small products gain nothing from more, and
    the order of sums stays the same for every ``n_threads``.

    Parameters
    ----------
    n_threads : int
        Number of threads; 1 runs in the calling thread.

    Yields
    ------
    callable
        ``run(function, chunks)`` calls the function on every chunk.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.graphical import GaussianMRF
    >>> from skcircuits.particles import SVGDProblem, chunk_threads
    >>> target = GaussianMRF([[2.0, -1.0], [-1.0, 2.0]], [1.0, 0.0])
    >>> problem = SVGDProblem(target, 2, target.neighbors)
    >>> start = target.sample(10, random_state=0)
    >>> with chunk_threads(2) as run:
    ...     threaded = next(problem.steps(start, seed=0, run=run)).particles
    >>> bool((threaded == next(problem.steps(start, seed=0)).particles).all())
    True
    """
    with single_threaded_blas():
        if n_threads == 1:
            yield run_serially
            return
        with ThreadPoolExecutor(n_threads) as pool:

            def run(function: Callable[[Item], None], chunks: Sequence[Item]) -> None:
                """Share the chunks out and wait for all of them."""
                # One task per thread, not per chunk: handing out a task costs as much as
                # a small chunk. Interleaved, so that buckets of large kernels are shared.
                shares = [chunks[start::n_threads] for start in range(n_threads)]
                list(pool.map(lambda share: run_serially(function, share), shares))

            yield run
