"""Numbers for the joint states of some discrete variables, unknown counted as a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from scipy import sparse

from skcircuits.circuits.structure.units import Scope
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["CodeBook", "code_strides"]

# Larger than every code, whatever is added to it.
NO_STATE = 1e9


def code_strides(n_states: Sequence[int]) -> list[int]:
    """What one state more of each variable adds to the code."""
    return [prod(n + 1 for n in n_states[i + 1 :]) for i in range(len(n_states))]


@dataclass(frozen=True)
class CodeBook:
    """Numbers the joint states of the variables of each table."""

    variables: IntArray
    n_states: FloatArray
    strides: sparse.csr_matrix
    n_codes: FloatArray

    @classmethod
    def of(cls, scopes: Sequence[Scope], cardinalities: Mapping[int, int]) -> CodeBook:
        """Number the joint states of some scopes."""
        variables = sorted({variable for scope in scopes for variable in scope})
        column = {variable: i for i, variable in enumerate(variables)}
        counts = [[cardinalities[variable] for variable in scope] for scope in scopes]
        entries = [
            (table, column[variable], stride)
            for table, scope in enumerate(scopes)
            for variable, stride in zip(scope, code_strides(counts[table]))
        ]
        tables, columns, strides = np.array(entries, dtype=np.float64).reshape(-1, 3).T
        shape = (len(scopes), len(variables))
        return cls(
            np.array(variables, dtype=np.intp),
            np.array([cardinalities[v] for v in variables], dtype=np.float64),
            sparse.csr_matrix((strides, (tables.astype(int), columns.astype(int))), shape),
            np.array([prod(n + 1 for n in count) for count in counts], dtype=np.float64),
        )

    def codes(self, X: FloatArray) -> IntArray:
        """Code of each row in each table."""
        cells = X.T[self.variables]
        n_states = self.n_states[:, None]
        states = np.fmin(cells, n_states)  # NaN becomes the state after the last
        no_state = cells >= n_states
        no_state |= cells < 0
        no_state |= states != np.floor(states)
        if no_state.any():
            states[no_state] = NO_STATE
        codes = np.minimum(self.strides @ states, self.n_codes[:, None])
        return codes.astype(np.intp)
