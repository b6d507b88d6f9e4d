"""Properties of targets that Stein methods use: type, states and full conditionals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import integers, log_probs_at
from skcircuits.protocols import DiscreteTarget, FloatArray, IntArray


def is_continuous(target: Any) -> bool:
    """Tell whether a target is given by its score function."""
    if isinstance(target, Circuit):
        if target.plan.count_variables:
            what = "variables of a target of Stein methods"
            condition = "be continuous or have finitely many states"
            way_out = "Remove the others by condition() or marginalize()."
            raise CircuitPropertyError(
                must(what, condition, way_out, counts=target.plan.count_variables)
            )
        return not target.cardinalities
    # Another target that has both is continuous: states have no gradient.
    if hasattr(target, "grad_log_prob"):
        return True
    if hasattr(target, "log_prob_unnormalized") and hasattr(target, "cardinalities"):
        return False
    condition = "have log_prob_unnormalized(X) and cardinalities, or grad_log_prob(X)"
    way_out = "Graphical models, circuits and fitted densities do."
    raise TypeError(must("target", condition, way_out, target=type(target).__name__))


def own_columns(target: Any, n_columns: int) -> IntArray:
    """Give the columns of the rows that the target is about."""
    if isinstance(target, Circuit):
        return np.array(target.variables, dtype=np.int64)
    return np.arange(n_columns)


def without_other_columns(target: Any, X: FloatArray) -> FloatArray:
    """Set the cells to 0 in columns that a target is not about: all rows are alike there."""
    columns = own_columns(target, X.shape[1])
    if len(columns) >= X.shape[1]:
        return X
    rows = np.zeros_like(X)
    rows[:, columns] = X[:, columns]
    return rows


def state_counts(target: DiscreteTarget, n_columns: int) -> IntArray:
    """Give the number of states of every column; 1 where the target has no variable."""
    cardinalities = target.cardinalities
    # Circuits name their discrete variables; they may leave columns out.
    if isinstance(cardinalities, Mapping):
        _check_all_categorical(target)
        counts = np.ones(n_columns, dtype=np.int64)
        counts[list(cardinalities)] = list(cardinalities.values())
        return counts
    counts = np.array(integers(cardinalities, "cardinalities of the target"), dtype=np.int64)
    if (counts < 1).any():
        condition = "be positive numbers of states"
        raise ValueError(must("cardinalities of the target", condition, given=counts.tolist()))
    if counts.shape != (n_columns,):
        raise ValueError(
            must("X", f"have the {len(counts)} columns of the target", n_columns=n_columns)
        )
    return counts


def _check_all_categorical(target: DiscreteTarget) -> None:
    """Refuse circuits with continuous variables: these have no states."""
    continuous = sorted(set(getattr(target, "variables", ())) - set(target.cardinalities))
    if continuous:
        raise CircuitPropertyError(
            must(
                "circuit as target",
                "be over categorical variables to have states",
                "Stein methods take circuits of one kind of variables: remove the others by "
                "condition() or marginalize().",
                continuous_variables=continuous,
            )
        )


def log_probabilities(target: DiscreteTarget, X: FloatArray) -> FloatArray:
    """Evaluate a categorical target and check the result."""
    values = log_probs_at(target.log_prob_unnormalized, X)
    # NaN and inf would pass for rates of 0 or 1/2, and weights would look right.
    wrong = np.isnan(values) | np.isposinf(values)
    if wrong.any():
        row = int(wrong.argmax())
        what = "log_prob_unnormalized(X)"
        condition = "be numbers, -inf where impossible"
        way_out = "The target cannot be evaluated at this row."
        raise ValueError(
            must(what, condition, way_out, row=X[row].tolist(), value=float(values[row]))
        )
    return values


def full_conditionals(target: DiscreteTarget, X: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """Evaluate a categorical target at every state of each variable, all else fixed."""
    counts = state_counts(target, X.shape[1])
    # A variable with one state cannot move, one collapsed everywhere need not.
    movable = (counts > 1) & ~np.isnan(X).all(axis=0)
    variables = movable.nonzero()[0].tolist()
    if hasattr(target, "log_full_conditionals") and not np.isnan(X).any():
        # Where the graph is known only the factors of each variable are looked at.
        tables = target.log_full_conditionals(X)
        yield from ((variable, tables[variable]) for variable in variables)
        return
    for variable in variables:
        observed = X[~np.isnan(X[:, variable])]
        yield variable, log_probabilities_along(target, observed, variable, int(counts[variable]))


def meets_zeros(target: DiscreteTarget, X: FloatArray) -> bool:
    """Tell whether moves of one variable lead from possible rows to impossible ones."""
    return any(bool(np.isneginf(table).any()) for _, table in full_conditionals(target, X))


def log_probabilities_along(
    target: DiscreteTarget, X: FloatArray, variable: int, n_states: int
) -> FloatArray:
    """Evaluate a categorical target at every state of a variable, all else fixed, (n, n_states)."""
    # Every row in every state, which also serves collapsed rows.
    moved = np.repeat(X, n_states, axis=0)
    moved[:, variable] = np.tile(np.arange(n_states), len(X))
    return log_probabilities(target, moved).reshape(len(X), n_states)
