"""Factors of pgmpy models, read through their public attributes; pgmpy is not imported."""

from __future__ import annotations

from typing import Any

import numpy as np

from skcircuits.protocols import FloatArray

__all__ = ["NamedTables", "read_pgmpy_factors"]

# Variable names, state names per variable, and (scope, table) of every factor.
NamedTables = tuple[list[Any], list[list[str]], list[tuple[list[int], FloatArray]]]


def read_pgmpy_factors(factors: list[Any]) -> NamedTables:
    """Number the variables of pgmpy factors and collect their tables.

    Parameters
    ----------
    factors : list of pgmpy.factors.discrete.DiscreteFactor
        Anything with ``variables``, ``values`` and ``state_names``; conditional tables
        have their child first.

    Returns
    -------
    variable_names : list
        Variables in the order they first appear as first variable, then others.
    state_names : list of list of str
        States of each variable.
    tables : list of (scope, table)
        One per factor, axes as in the factor.
    """
    # First variables first: in a Bayesian network table i then belongs to variable i.
    first = [factor.variables[0] for factor in factors]
    others = [name for factor in factors for name in factor.variables]
    names = list(dict.fromkeys([*first, *others]))
    states = {}
    tables = []
    for factor in factors:
        scope = [names.index(name) for name in factor.variables]
        tables.append((scope, np.asarray(factor.values, dtype=np.float64)))
        # State names may be numbers or booleans there.
        for name in factor.variables:
            states[name] = [str(state) for state in factor.state_names[name]]
    return names, [states[name] for name in names], tables
