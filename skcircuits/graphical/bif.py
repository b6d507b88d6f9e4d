"""Reader of the Bayesian network interchange format (BIF)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray

__all__ = ["NetworkDescription", "read_bif"]

# One level of braces inside a block is all the format has.
_VARIABLE = re.compile(r"variable\s+(\S+)\s*\{([^{}]*(?:\{[^{}]*\})?[^{}]*)\}")
_STATES = re.compile(r"type\s+discrete\s*\[\s*(\d+)\s*\]\s*\{([^{}]*)\}")
_PROBABILITY = re.compile(r"probability\s*\(([^|)]*)(?:\|([^)]*))?\)\s*\{(.*?)\}", re.DOTALL)
_ENTRY = re.compile(r"(?:\(([^)]*)\)|(table|default))([^;]*);")


@dataclass(frozen=True)
class NetworkDescription:
    """A Bayesian network as a file tells it.

    Parameters
    ----------
    variable_names : list of str
        In the order of the file.
    state_names : list of list of str
        States of each variable.
    parents : list of list of int
        Parents of each variable.
    tables : list of ndarray
        ``p(variable | parents)``, shape (*parent states, states).
    """

    variable_names: list[str]
    state_names: list[list[str]]
    parents: list[list[int]]
    tables: list[FloatArray]


def read_bif(path: str | PathLike[str]) -> NetworkDescription:
    """Read a Bayesian network in BIF.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    NetworkDescription
        Variables, states, parents and conditional tables.
    """
    # Comments of either style may stand anywhere.
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", Path(path).read_text(), flags=re.DOTALL)
    states: dict[str, list[str]] = {}
    for name, body in _VARIABLE.findall(text):
        declared = _STATES.search(body)
        if declared is None:
            raise ValueError(must(f"variable {name}", "be discrete", path=str(path)))
        states[name] = _words(declared.group(2))
        if len(states[name]) != int(declared.group(1)):
            raise ValueError(must(f"variable {name}", f"name {declared.group(1)} states"))
    # Blocks may come in any order; variables keep that of their declarations.
    blocks = {}
    for child, given, body in _PROBABILITY.findall(text):
        blocks[child.strip()] = (_words(given), body)
    if set(blocks) != set(states):
        odd = sorted(set(blocks) ^ set(states))
        raise ValueError(must("BIF file", "give every variable a probability", variables=odd))
    names = list(states)
    return NetworkDescription(
        variable_names=names,
        state_names=[states[name] for name in names],
        parents=[[names.index(parent) for parent in blocks[name][0]] for name in names],
        tables=[_table(name, *blocks[name], states) for name in names],
    )


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[\s,]+", text) if word]


def _table(name: str, given: list[str], body: str, states: dict[str, list[str]]) -> FloatArray:
    """Fill a conditional table from its entries; ``default`` rows come first."""
    shape = [len(states[parent]) for parent in (*given, name)]
    table = np.full(shape, np.nan)
    # Cells that stay NaN were never given.
    entries = sorted(_ENTRY.findall(body), key=lambda entry: entry[1] != "default")
    for context, keyword, text in entries:
        values = np.array([float(word) for word in _words(text)])
        if keyword == "table":
            # The child runs slowest, its last parent fastest.
            table[...] = np.moveaxis(values.reshape(shape[-1], *shape[:-1]), 0, -1)
        elif keyword == "default":
            table[...] = values
        else:
            row = [states[parent].index(s) for parent, s in zip(given, _words(context))]
            table[tuple(row)] = values
    if np.isnan(table).any():
        raise ValueError(must(f"table of {name}", "have a row for every state of its parents"))
    return table
