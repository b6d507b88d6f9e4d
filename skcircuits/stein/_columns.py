"""Columns of a Stein Gram matrix, made when they are asked for: where n x n does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.numerics._patterns import unique_rows
from skcircuits.parallel import Parallel, delayed, row_slices, single_threaded_blas
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.stein._targets import without_other_columns
from skcircuits.stein.gram import Block, finite_kernel, prepare

# Rows of a task: large enough to be worth sending to a worker; of a tile: with a hundred columns
# it stays in the cache; of a square whose diagonal is wanted.
_TASK_ROWS, _TILE_ROWS, _SQUARE_ROWS = 16384, 512, 16


@dataclass(frozen=True)
class SteinColumns:
    """The Stein kernel of distinct rows, part by part."""

    X: FloatArray  # (n, d), distinct
    which: IntArray  # (n_samples,), the distinct row of each sample
    block: Block
    rows: Any
    n_jobs: int | None = None

    @classmethod
    def of(
        cls,
        X: FloatArray,
        target: Any,
        kernel: Any,
        *,
        operator: str | None = None,
        n_jobs: int | None = None,
    ) -> SteinColumns:
        """Evaluate the target, once, at the distinct rows."""
        X = without_other_columns(target, X)
        first, which = unique_rows(X)
        block, rows = prepare(X[first], target, kernel, operator)
        return cls(X[first], which, block, rows, n_jobs)

    def __len__(self) -> int:
        return len(self.X)

    def columns(self, chosen: ArrayLike, among: IntArray | slice = slice(None)) -> FloatArray:
        """Kernel of some rows, all by default, with chosen ones: (n, n_chosen)."""
        left, right = self.rows[among], self.rows[np.asarray(chosen)]
        parts = row_slices(len(self.X[among]), _TASK_ROWS)
        tasks = (delayed(_tiles)(self.block, left[part], right, part) for part in parts)
        with single_threaded_blas():
            values = Parallel(n_jobs=self.n_jobs, prefer="threads")(tasks)
        return finite_kernel(np.concatenate(values), self.X[among])

    def diagonal(self) -> FloatArray:
        """Kernel of every row with itself, (n,)."""
        squares = (self.rows[part] for part in row_slices(len(self), _SQUARE_ROWS))
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.concatenate([self.block(rows, rows).diagonal() for rows in squares])
        return finite_kernel(values[:, None], self.X)[:, 0]


def _tiles(block: Block, left: Any, right: Any, part: slice) -> FloatArray:
    """Kernel of left rows, ``part.stop - part.start`` of them, with all right ones."""
    with np.errstate(over="ignore", invalid="ignore"):
        tiles = row_slices(part.stop - part.start, _TILE_ROWS)
        return np.concatenate([block(left[tile], right) for tile in tiles])
