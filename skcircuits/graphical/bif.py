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
    # Comments of either style may stand anywhere; some writers quote every name.
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", Path(path).read_text(), flags=re.DOTALL)
    text = text.replace('"', "")
    declared = _VARIABLE.findall(text)
    if not declared:
        raise ValueError(must("BIF file", "declare variables", path=str(path)))
    states = {name: _state_names(name, body) for name, body in declared}
    # Blocks may come in any order; variables keep that of their declarations.
    given = [
        (child.strip(), _words(parents), body)
        for child, parents, body in _PROBABILITY.findall(text)
    ]
    children = [child for child, _, _ in given]
    _check_once([name for name, _ in declared], "declare every variable once")
    _check_once(children, "give every variable one probability")
    odd = sorted(set(children) ^ set(states))
    if odd:
        raise ValueError(must("BIF file", "give every variable a probability", variables=odd))
    blocks = {child: (parents, body) for child, parents, body in given}
    unknown = sorted({parent for _, parents, _ in given for parent in parents} - set(states))
    if unknown:
        raise ValueError(must("parents", "be declared as variables", parents=unknown))
    names = list(states)
    return NetworkDescription(
        variable_names=names,
        state_names=[states[name] for name in names],
        parents=[[names.index(parent) for parent in blocks[name][0]] for name in names],
        tables=[_table(name, *blocks[name], states) for name in names],
    )


def _state_names(variable: str, body: str) -> list[str]:
    declared = _STATES.search(body)
    if declared is None:
        raise ValueError(must(f"variable {variable}", "be discrete"))
    names = _words(declared.group(2))
    if len(set(names)) != int(declared.group(1)) or len(names) != len(set(names)):
        raise ValueError(
            must(f"variable {variable}", f"name {declared.group(1)} states", states=names)
        )
    return names


def _check_once(names: list[str], condition: str) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(must("BIF file", condition, variables=repeated))


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[\s,]+", text) if word]


def _table(name: str, given: list[str], body: str, states: dict[str, list[str]]) -> FloatArray:
    """Fill a conditional table from its entries; ``default`` rows come first."""
    shape = [len(states[parent]) for parent in (*given, name)]
    table = np.full(shape, np.nan)
    # Cells that stay NaN were never given.
    entries = sorted(_ENTRY.findall(body), key=lambda entry: entry[1] != "default")
    for context, keyword, text in entries:
        values = _numbers(name, text, table.size if keyword == "table" else shape[-1])
        if keyword == "table":
            # The child runs slowest, its last parent fastest.
            table[...] = np.moveaxis(values.reshape(shape[-1], *shape[:-1]), 0, -1)
        elif keyword == "default":
            table[...] = values
        else:
            table[_row(name, given, _words(context), states)] = values
    if np.isnan(table).any():
        raise ValueError(must(f"table of {name}", "have a row for every state of its parents"))
    return table


def _numbers(name: str, text: str, count: int) -> FloatArray:
    try:
        values = np.array([float(word) for word in _words(text)])
    except ValueError as error:
        raise ValueError(must(f"table of {name}", "hold numbers", str(error))) from None
    if len(values) != count:
        raise ValueError(
            must(f"entries of the table of {name}", f"be {count} numbers", entry=text.strip())
        )
    return values


def _row(
    name: str, given: list[str], context: list[str], states: dict[str, list[str]]
) -> tuple[int, ...]:
    """Find the row of a table that belongs to some states of the parents."""
    fits = len(context) == len(given)
    if not fits or any(s not in states[parent] for parent, s in zip(given, context)):
        raise ValueError(
            must(
                f"rows of the table of {name}",
                f"give a state of each of its parents {given}",
                row=context,
            )
        )
    return tuple(states[parent].index(s) for parent, s in zip(given, context))
