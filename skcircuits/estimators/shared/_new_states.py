"""Probability of categories and numbers that no training row has, where columns have states.

A category that is new has the probability that any new one occurs: nothing is known of how many
there are. Numbers are ordered, so that this probability is divided among them: a third each lies
between the least and the greatest known number and, falling exponentially, beyond either. Integers
have the probability of a unit, other numbers that of the interval in which they were recorded.
"""

from dataclasses import dataclass

import numpy as np

from skcircuits.circuits import Circuit, PiecewisePolynomial
from skcircuits.circuits.inputs.discrete import DiscreteUnit


@dataclass(frozen=True)
class NewStates:
    """Probabilities of new states by column.

    `log_masses`: log probability that a cell has a new state, by column that has states;
    `numbers`: increasing numbers that are the states, by numerical column among them.
    """

    log_masses: dict[int, float]
    numbers: dict[int, np.ndarray]

    @classmethod
    def learn(cls, rows, is_categorical, numbers):
        """Learn from training rows as they came: their states may have been joined since."""
        log_masses = {
            j: _log_new_mass(rows.X[:, j], rows.weight)
            for j in [*np.flatnonzero(is_categorical).tolist(), *numbers]
        }
        return cls(log_masses, numbers)

    def known(self, X):
        """Encoded rows (n, d) in which new numbers are missing."""
        is_new = np.zeros(X.shape, dtype=bool)
        for j, numbers in self.numbers.items():
            is_new[:, j] = ~np.isnan(X[:, j]) & ~np.isin(X[:, j], numbers)
        return np.where(is_new, np.nan, X) if is_new.any() else X

    def log_prob(self, X, is_new):
        """Log probabilities of the new numbers of rows (n, d), shape (n,)."""
        total = np.zeros(len(X))
        for j in np.flatnonzero(is_new.any(axis=0)).tolist():
            new = is_new[:, j]
            total[new] += self.log_masses[j] + _log_fraction(X[new, j], self.numbers[j])
        return total


def numbers_with_masses(circuit: Circuit, X: np.ndarray, is_categorical: np.ndarray):
    """Numbers of which a circuit has probabilities, by numerical column.

    Columns of which some rows of `X` (n, d) have other numbers have a density there.
    """
    found = {}
    for unit in circuit.plan.units:
        if isinstance(unit, DiscreteUnit):
            values = np.flatnonzero(unit.possible_states()).astype(np.float64)
        elif isinstance(unit, PiecewisePolynomial):
            values = unit.atoms
        else:
            continue
        if len(values) and not is_categorical[unit.variable]:
            # Many units have equal values
            found.setdefault(unit.variable, {})[values.tobytes()] = values
    numbers = {j: np.unique(np.concatenate(list(own.values()))) for j, own in found.items()}
    return without_others(numbers, X)


def without_others(numbers, X):
    """Those columns of which no row of `X` (n, d) has other numbers than these."""
    return {j: own for j, own in numbers.items() if np.isin(X[~np.isnan(X[:, j]), j], own).all()}


def _log_new_mass(cells, weight):
    """Log probability that the next cell has a state that none of these (n,) has."""
    seen = ~np.isnan(cells)
    _, states = np.unique(cells[seen], return_inverse=True)
    counts = np.bincount(states, weight[seen])
    n_single = np.count_nonzero((counts > 0) & (counts <= 1))
    # Good-Turing: as probable as the states that occurred once
    return float(np.log((n_single + 0.5) / (counts.sum() + 1.0)))


def _log_fraction(x, numbers):
    """Log probabilities of new numbers (n,) given that a number is new; `numbers` are known."""
    if (numbers == np.floor(numbers)).all():
        width = 1.0
    else:
        width = np.diff(numbers).min() if len(numbers) > 1 else 1e-3 * max(1.0, abs(numbers[0]))
    # Floats far from zero are more than a unit apart
    width = max(width, float(np.spacing(np.abs(numbers).max())))
    low, high = numbers[0] - width / 2, numbers[-1] + width / 2
    scale = max(float(numbers.std()), width)
    beyond = np.maximum(low - x, x - high)
    inside = np.log(width / (high - low))
    return np.where(beyond < 0, inside, np.log(width / scale) - beyond / scale) - np.log(3.0)
