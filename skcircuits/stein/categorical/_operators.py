"""Stein operators of categorical targets: one signed measure per row and variable.

An operator T with ``E_p[T f] = 0`` for every f turns a row x and a variable i into a
signed measure on the states of variable i (all else stays as in x),

    (T_i f)(x) = sum_t c_t f(x with state s_t).

The Stein kernel is the kernel between these measures, summed over the variables: it is
symmetric and positive semi-definite by construction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from skcircuits.exceptions import must
from skcircuits.protocols import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Atoms:
    """Signed measures on the states of one variable, one per row."""

    coefficients: FloatArray  # (n, m)
    locations: IntArray  # (n, m)
    evidence: IntArray  # (n, m)
    meets_zeros: BoolArray  # (n,)

    def __getitem__(self, rows: slice | IntArray) -> Atoms:
        """Give the measures of some rows."""
        return Atoms(*(array[rows] for array in self._arrays()))

    def spread(self, chosen: BoolArray) -> Atoms:
        """Place the measures at some rows of a longer table; zero measures elsewhere."""
        spread = []
        for array in self._arrays():
            longer = np.zeros((len(chosen), *array.shape[1:]), dtype=array.dtype)
            longer[chosen] = array
            spread.append(longer)
        return Atoms(*spread)

    def _arrays(self) -> tuple[Any, ...]:
        return self.coefficients, self.locations, self.evidence, self.meets_zeros

    def by_state(self, n_states: int) -> FloatArray:
        """Add the atoms up per location."""
        # Two atoms of a row may meet in one state, so rows of a fancy index must not repeat.
        vectors = np.zeros((len(self.coefficients), n_states))
        rows = np.arange(len(vectors))
        for atom in range(self.coefficients.shape[1]):
            vectors[rows, self.locations[:, atom]] += self.coefficients[:, atom]
        return vectors


def barker_atoms(log_conditional: FloatArray, states: IntArray) -> Atoms:
    """Build the measures of the locally balanced (Barker) operator.

    ``(T_i f)(x) = sum_{d != 0} g_d(x) (f(x +_i d) - f(x))`` with
    ``g_d(x) = p(x +_i d) / (p(x) + p(x +_i d))``. The rates are bounded and p(x) g_d(x) is
    symmetric in the two states, so targets with zeros are allowed.
    """
    n_rows, n_states = log_conditional.shape
    rows = np.arange(n_rows)
    # g = σ(log p(moved) - log p(here)): never overflows, however rugged the target.
    own = log_conditional[rows, states][:, None]
    with np.errstate(invalid="ignore"):
        rates = expit(log_conditional - own)
    # Two impossible states: the exchange is symmetric, and nothing depends on its rate.
    rates[np.isnan(rates)] = 0.5
    # What arrives elsewhere leaves here: each measure has total mass zero.
    rates[rows, states] = 0.0
    rates[rows, states] = -rates.sum(axis=1)
    # Atoms are the states themselves, in order, for every row.
    everywhere = np.broadcast_to(np.arange(n_states), rates.shape)
    zeros = np.asarray(np.isneginf(log_conditional).any(axis=1))
    return Atoms(rates, everywhere, everywhere, zeros)


def difference_atoms(log_conditional: FloatArray, states: IntArray) -> Atoms:
    """Build the measures of the published difference operator (Yang et al. 2018).

    ``(T_i f)(x) = r_i(x) f(x) - f(x -_i 1)`` with ``r_i(x) = p(x +_i 1) / p(x)``, moves
    cyclic: the ratio moves forward, the argument of f by the inverse. For collapsed rows
    the first atom carries the conditional distribution given ``x +_i 1``.
    """
    n_states = log_conditional.shape[1]
    zeros = np.asarray(np.isneginf(log_conditional).any(axis=1))
    if zeros.any():
        raise ValueError(
            must(
                "target of the difference operator",
                "be positive everywhere",
                "Use operator='barker', or make the target positive with its soften() method.",
                n_rows_next_to_zeros=int(zeros.sum()),
            )
        )
    # Both moves are cyclic: ¬ and its inverse.
    forward, backward = (states + 1) % n_states, (states - 1) % n_states
    rows = np.arange(len(states))
    ratio = np.exp(log_conditional[rows, forward] - log_conditional[rows, states])
    return Atoms(
        np.stack([ratio, np.full_like(ratio, -1.0)], axis=1),
        locations=np.stack([states, backward], axis=1),
        evidence=np.stack([forward, states], axis=1),
        meets_zeros=zeros,
    )


OPERATORS: dict[str, Callable[[FloatArray, IntArray], Atoms]] = {
    "barker": barker_atoms,
    "difference": difference_atoms,
}
