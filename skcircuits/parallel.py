"""Parallel execution by scikit-learn's Parallel, with a bound on memory.

Everything that runs in parallel uses ``Parallel`` and ``delayed`` of this module, so that
``joblib.parallel_config("dask" | "ray" | "loky")`` scales it out and the scikit-learn configuration
reaches the workers.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

import numpy as np
from joblib import cpu_count, effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn import config_context, get_config
from sklearn.utils.parallel import Parallel as _Parallel
from sklearn.utils.parallel import delayed
from threadpoolctl import ThreadpoolController

from skcircuits.exceptions import require_count

__all__ = [
    "Parallel",
    "dask_client",
    "delayed",
    "memory_bound_chunks",
    "row_slices",
    "shares_memory",
    "single_threaded_blas",
    "thread_map",
    "working_memory_bytes",
]

Result = TypeVar("Result")


# Lets the C library keep the memory of freed arrays for the next ones: glibc returns arrays above
# a threshold to the system, and each page of a new one costs a fault. The threshold rises to the
# size of the largest array freed so far, up to 32 MiB (mallopt(3)): without this, first calls take
# up to half as long again. The pages themselves are never touched.
np.empty(2**25 - 2**16, dtype=np.uint8)


class Parallel(_Parallel):
    """Parallel of scikit-learn, with an error that names an invalid ``n_jobs``."""

    def __init__(self, n_jobs: int | None = None, **options: Any) -> None:
        if n_jobs is not None:
            require_count(None, n_jobs=n_jobs)
        super().__init__(n_jobs=n_jobs, **options)


def dask_client() -> Any:
    """Give the client of ``joblib.parallel_config("dask")``, where that is in force, else None."""
    backend, _ = get_active_backend()
    client = getattr(backend, "client", None)
    # Tasks on the workers may not wait for others: all workers may be busy with such tasks. And
    # actors talk to the default client, whichever placed them.
    if client is None or backend.nesting_level or type(client).current() is not client:
        return None
    return client


def shares_memory() -> bool:
    """Tell whether workers that prefer to be threads see the arrays of this process.

    They do unless ``joblib.parallel_config`` asks for processes or a cluster.
    """
    backend, _ = get_active_backend(prefer="threads")
    return getattr(backend, "supports_sharedmem", False)


def working_memory_bytes() -> int:
    """Bytes that temporary arrays may take: scikit-learn's ``working_memory`` setting."""
    return int(get_config()["working_memory"] * 2**20)


def single_threaded_blas() -> AbstractContextManager[object]:
    """Keep BLAS to one thread, while several Python threads call it.

    Threads of BLAS inside threads of ours only get into each other's way. Contexts of several
    threads may overlap: the last one to leave gives BLAS its threads back.
    """
    return _blas()


def thread_map(
    function: Callable[..., Result], items: Sequence[tuple[Any, ...]], n_jobs: int | None = None
) -> list[Result]:
    """Call a function on each item in threads of this process, BLAS single-threaded.

    For work of milliseconds, where even the threads of joblib would cost as much as the
    work: a call of ``Parallel`` takes ten milliseconds, this takes some tenths of one. The threads
    have the configuration of scikit-learn and the error state of NumPy that the caller has.

    ``function``: releases the GIL most of the time; ``items``: arguments of each call; ``n_jobs``:
    number of threads as in joblib; None means one. Returns results in the order of the items.
    """
    if n_jobs is not None:
        require_count(None, n_jobs=n_jobs)
    # joblib takes as long to answer as a small item.
    is_alone = n_jobs == 1 or (n_jobs is None and len(items) == 1)
    n_threads = 1 if is_alone else max(1, min(effective_n_jobs(n_jobs), len(items)))
    if n_threads == 1:
        with single_threaded_blas():
            return [function(*item) for item in items]
    results: dict[int, Result] = {}
    pending = deque(enumerate(items))

    def work() -> None:
        try:
            for number, item in _taken(pending):
                results[number] = function(*item)
        except BaseException:
            pending.clear()
            raise

    configuration = get_config()

    def help_out() -> None:
        with config_context(**configuration):
            work()

    with single_threaded_blas():
        helpers = [_helpers().submit(copy_context().run, help_out) for _ in range(n_threads - 1)]
        try:
            work()
        finally:
            # A helper that never started is not waited for: a call may come from a helper.
            started = [helper for helper in helpers if not helper.cancel()]
            wait(started)
    for helper in started:
        helper.result()
    return [results[number] for number in range(len(items))]


def _taken(pending: deque[tuple[int, tuple[Any, ...]]]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Take what is left, one by one; other threads take too."""
    while True:
        try:
            yield pending.popleft()
        except IndexError:
            return


@cache
def _helpers() -> ThreadPoolExecutor:
    """Threads that wait for work: starting one takes longer than some of the work."""
    return ThreadPoolExecutor(cpu_count(), thread_name_prefix="skcircuits")


class _SingleThreadedBlas(AbstractContextManager[None]):
    """The number of BLAS threads belongs to the process, so all threads share one limit."""

    def __init__(self) -> None:
        self._controller = ThreadpoolController()
        # a thread that was interrupted while it held the lock must not wait for itself
        self._lock = threading.RLock()
        self._n_inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._n_inside:
                self._limiter = self._controller.limit(limits=1, user_api="blas")
            self._n_inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if not self._n_inside:
                self._limiter.restore_original_limits()


@cache
def _blas() -> _SingleThreadedBlas:
    return _SingleThreadedBlas()


if hasattr(os, "register_at_fork"):
    # A forked process has the pool but not its threads, and the lock as some thread left it.
    os.register_at_fork(after_in_child=_helpers.cache_clear)
    os.register_at_fork(after_in_child=_blas.cache_clear)


def row_slices(n_rows: int, chunk_size: int) -> list[slice]:
    """Cut ``range(n_rows)`` into slices of equal size (the last may be shorter).

    No rows give no slice.
    """
    starts = range(0, n_rows, chunk_size)
    return [slice(start, min(start + chunk_size, n_rows)) for start in starts]


def memory_bound_chunks(
    n_rows: int, bytes_per_row: int, *, at_most: int | None = None
) -> Iterator[slice]:
    """Cut rows into chunks whose temporary arrays fit into the working memory.

    Chunks depend on the data and the configuration only, never on the number of
    workers, so that results are bitwise equal for every ``n_jobs``.

    ``n_rows``: number of rows to cut; ``bytes_per_row``: bytes of temporary arrays one row needs;
    ``at_most``: upper bound on the rows of a chunk, whatever the memory allows. Yields the next
    rows; at least one row each.
    """
    size = max(1, working_memory_bytes() // max(1, bytes_per_row))
    if at_most is not None:
        size = min(size, at_most)
    yield from row_slices(n_rows, size)
