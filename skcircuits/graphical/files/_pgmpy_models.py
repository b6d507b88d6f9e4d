"""Factors of pgmpy models, read through their public attributes; pgmpy is not imported."""

from __future__ import annotations

from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray

# Variable names, state names per variable, and (scope, table) of every factor.
NamedTables = tuple[list[Any], list[list[str]], list[tuple[list[int], FloatArray]]]


def read_pgmpy_network(model: Any) -> NamedTables:
    """Read a discrete Bayesian network."""
    if not hasattr(model, "get_cpds"):
        raise TypeError(
            must(
                "model",
                "be a discrete Bayesian network of pgmpy",
                "FactorGraph.from_pgmpy takes Markov networks and factor graphs.",
                model=type(model).__name__,
            )
        )
    network = _named_tables(model.get_cpds())
    children = {scope[0] for scope, _ in network[2]}
    # Variables nobody depends on appear in the graph of the model only.
    orphans = [name for index, name in enumerate(network[0]) if index not in children]
    orphans += [name for name in getattr(model, "nodes", ()) if name not in network[0]]
    if orphans or not network[0]:
        raise ValueError(
            must(
                "model",
                "have a table for every variable",
                "model.check_model() says what is missing.",
                variables=orphans,
            )
        )
    return network


def read_pgmpy_factors(model: Any) -> NamedTables:
    """Read a discrete Markov network or a factor graph."""
    if not hasattr(model, "get_factors"):
        raise TypeError(
            must(
                "model",
                "be a discrete Markov network or factor graph of pgmpy",
                "BayesianNetwork.from_pgmpy takes Bayesian networks.",
                model=type(model).__name__,
            )
        )
    return _named_tables(model.get_factors())


def _named_tables(factors: list[Any]) -> NamedTables:
    if not all(hasattr(factor, "state_names") for factor in factors):
        raise TypeError(must("factors of the model", "be tables over discrete variables"))
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
