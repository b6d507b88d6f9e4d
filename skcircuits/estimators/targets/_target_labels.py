"""Labels of samples in the order in which a target knows its states."""

import dataclasses
from collections.abc import Mapping
from numbers import Real

import numpy as np

from skcircuits.exceptions import must
from skcircuits.stein._targets import is_continuous, state_counts


def align_labels(schema, target, state_names=None):
    """Give the categorical columns the states of the target as categories.

    Labels seen in a table say neither how many states there are nor in which order the
    target counts them: a column of "yes" alone would become state 0 of ("no", "yes").
    """
    _check_column_order(schema.names, getattr(target, "variable_names", None))
    if not schema.is_categorical.any():
        return schema
    if is_continuous(target):
        names = [column.name for column in schema.columns if column.categories is not None]
        raise ValueError(
            must("columns of a continuous target", "be numeric", "Drop the labels.", labels=names)
        )
    counts = state_counts(target, len(schema.columns))
    columns = list(schema.columns)
    for j, column in enumerate(schema.columns):
        # Circuits may leave columns out; nothing is asked about those.
        known = not isinstance(target.cardinalities, Mapping) or j in target.cardinalities
        if column.categories is not None and known:
            states = _as_states(column, int(counts[j]), state_names[j] if state_names else None)
            columns[j] = dataclasses.replace(column, categories=states)
    return dataclasses.replace(schema, columns=tuple(columns))


def _check_column_order(columns, variables):
    if variables is None or list(columns) == list(variables):
        return
    if sorted(map(str, columns)) == sorted(variables):
        raise ValueError(
            must(
                "columns",
                "stand in the order of the target's variables",
                "Pass X[list(target.variable_names)].",
                columns=list(columns),
            )
        )


def _as_states(column, n_states, names):
    """List the label of every state: by name, by number, or in the order of a full set."""
    labels = column.categories.tolist()
    if names is not None and {str(label) for label in labels} <= {str(name) for name in names}:
        spelled = {str(label): label for label in labels}
        return _as_array([spelled.get(str(name), name) for name in names])
    if all(isinstance(label, Real) and label in range(n_states) for label in labels):
        numbered = {int(label): label for label in labels}
        return _as_array([numbered.get(state, state) for state in range(n_states)])
    if names is None and len(labels) == n_states and isinstance(labels[0], str):
        return column.categories
    expected = f"be its states {list(names)}" if names is not None else f"be {n_states} names"
    raise ValueError(
        must(
            f"labels of column {column.name!r}",
            f"{expected}, or numbers of states below {n_states}",
            "A pandas Categorical tells labels that no sample has.",
            labels=labels,
        )
    )


def _as_array(labels):
    array = np.array(labels)
    return array if array.dtype.kind in "iufb" else np.array(labels, dtype=object)
