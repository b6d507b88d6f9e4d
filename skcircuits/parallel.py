"""The one door to parallel work: scikit-learn's Parallel and its memory bound.

Everything that runs in parallel goes through ``Parallel`` and ``delayed`` below, so
``joblib.parallel_config("dask" | "ray" | "loky")`` scales it out and the scikit-learn
configuration reaches the workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache

from sklearn import get_config
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController

__all__ = [
    "Parallel",
    "delayed",
    "memory_bound_chunks",
    "row_slices",
    "single_threaded_blas",
    "working_memory_bytes",
]


def working_memory_bytes() -> int:
    """Give scikit-learn's ``working_memory`` setting in bytes.

    Returns
    -------
    int
        Bytes that temporary arrays may take.
    """
    return int(get_config()["working_memory"] * 2**20)


def single_threaded_blas() -> AbstractContextManager[object]:
    """Keep BLAS to one thread, while several Python threads call it.

    Returns
    -------
    context manager
        Threads of BLAS inside threads of ours only get into each other's way.
    """
    return _controller().limit(limits=1, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def row_slices(n_rows: int, chunk_size: int) -> list[slice]:
    """Cut ``range(n_rows)`` into slices of equal size (the last may be shorter).

    Parameters
    ----------
    n_rows : int
        Number of rows to cut; 0 gives no slice.
    chunk_size : int
        Rows per slice.

    Returns
    -------
    list of slice
        Slices that cover the rows in order.
    """
    starts = range(0, n_rows, chunk_size)
    return [slice(start, min(start + chunk_size, n_rows)) for start in starts]


def memory_bound_chunks(
    n_rows: int, bytes_per_row: int, *, at_most: int | None = None
) -> Iterator[slice]:
    """Cut rows into chunks whose temporary arrays fit into the working memory.

    Chunks depend on the data and the configuration only, never on the number of
    workers, so that results are bitwise equal for every ``n_jobs``.

    Parameters
    ----------
    n_rows : int
        Number of rows to cut.
    bytes_per_row : int
        Bytes of temporary arrays one row needs.
    at_most : int, default=None
        Upper bound on the rows of a chunk, whatever the memory allows.

    Yields
    ------
    slice
        The next rows; at least one row each.
    """
    size = max(1, working_memory_bytes() // max(1, bytes_per_row))
    if at_most is not None:
        size = min(size, at_most)
    yield from row_slices(n_rows, size)
