"""The fast evaluator: scaled linear values instead of logarithms.

A plan of a normalised circuit is compiled once more, into steps on linear numbers between
zero and one. Products are fused into the sums above them, sums that share their children
are one matrix product, and every group of units over a few discrete variables is one table
with an entry for every state of these variables, unknown included: one lookup replaces the
subtree. Steps are ordered depth first and reuse the rows of one buffer, which stays in cache.

Why the result can be trusted: all values are at most one, so whatever underflows anywhere
changes the value of the root by less than a denormal number per edge. A row whose root value
is well above that is exact; the other rows are evaluated again in log space. Continuous units
are divided by the largest unit of their scope, row by row, before they enter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skcircuits.circuits.engine._code_book import CodeBook
from skcircuits.circuits.engine._scaled_inputs import SMALLEST_ROOT
from skcircuits.circuits.engine._scaled_steps import Densities, Run, Step
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["ScaledPlan"]

# Values of a batch that stay in cache, and the rows that are worth a step of Python.
BATCH_VALUES = 2**17
ROWS_PER_STEP = 3


@dataclass(frozen=True)
class ScaledPlan:
    """A compiled sequence of steps on linear values.

    Parameters
    ----------
    codebook : CodeBook
        Numbers the entries of the tables.
    steps : sequence of Step
        In order of execution.
    n_rows_of_buffer : int
        Units held at once.
    outputs : ndarray of shape (n_outputs,)
        Where the outputs lie in the buffer at the end.
    """

    codebook: CodeBook
    steps: Sequence[Step]
    n_rows_of_buffer: int
    outputs: IntArray

    @property
    def batch_rows(self) -> int:
        """Rows per batch that keep the buffer in cache and still amortise Python."""
        return max(BATCH_VALUES // self.n_rows_of_buffer, ROWS_PER_STEP * len(self.steps))

    @property
    def bytes_per_row(self) -> int:
        """Memory one row of a table takes while it is evaluated."""
        densities = [step.layer for step in self.steps if isinstance(step, Densities)]
        n_cells = len(self.codebook.variables) + sum(layer.scopes.size for layer in densities)
        return 8 * (2 * self.n_rows_of_buffer + 4 * n_cells)

    def run(self, X: FloatArray) -> Run:
        """Carry out all steps.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Rows, NaN marginalised.

        Returns
        -------
        Run
            The buffer and the log scale of each row.
        """
        run = Run(X, self.codebook.codes(X), np.empty((self.n_rows_of_buffer, len(X))))
        for step in self.steps:
            step.run(run)
        return run

    def log_values(self, X: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Log of the only output.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Rows, NaN marginalised.

        Returns
        -------
        values : ndarray of shape (n,)
            Log values.
        exact : ndarray of bool of shape (n,)
            False where underflow cannot be excluded.
        """
        run = self.run(X)
        root = run.values[self.outputs[0]]
        exact = root >= SMALLEST_ROOT
        return np.log(np.where(exact, root, 1.0)) + run.log_scale, exact
