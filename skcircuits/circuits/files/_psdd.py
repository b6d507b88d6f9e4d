"""Reader for probabilistic sentential decision diagrams and their vtrees.

Lines of a PSDD, children before parents, the root last (ids from 0, variables from 1)::

    L id vtree literal
    T id vtree variable log-probability
    D id vtree count {prime sub log-weight}*count

Comment lines start with ``c``; the counts in the ``psdd`` header are not relied upon, since
writers disagree about them.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import numpy as np

from skcircuits.circuits.inputs import Bernoulli, Indicator
from skcircuits.circuits.structure.units import (
    MAX_LOG_WEIGHT,
    Product,
    Scope,
    Unit,
    log_weighted_sum,
)
from skcircuits.exceptions import CircuitFileError


def read_psdd(
    psdd_path: str | PathLike[str], vtree_path: str | PathLike[str] | None = None
) -> Unit:
    """Read a PSDD as a circuit over binary variables.

    ``psdd_path``: the diagram, plain text or compressed with gzip; ``vtree_path``: its vtree; when
    given, every node's scope must be that of a vtree node. (The numbers of vtree nodes are not
    compared, as writers count them differently). Returns the root; variable i of the file is column
    i - 1.

    Raises ``CircuitFileError`` if a file is not in the format or does not match its vtree.
    """
    scopes = None if vtree_path is None else set(_vtree_scopes(vtree_path).values())
    nodes: dict[int, Unit] = {}
    last = None
    for number, words in _records(psdd_path, "psdd"):
        try:
            last = _node(words, nodes)
            if scopes is not None and last.scope not in scopes:
                raise ValueError("its scope is not the scope of any vtree node")
            nodes[int(words[1])] = last
        except (ValueError, IndexError, KeyError, OverflowError) as error:
            raise CircuitFileError(
                f"Line {number} of {psdd_path!s} must be a PSDD node (L, T or D with known "
                f"children); got line={' '.join(words[:8])!r} ({error})."
            ) from error
    if last is None:
        raise CircuitFileError(f"{psdd_path!s} must hold at least one node; it holds none.")
    return last


def _node(words: list[str], nodes: dict[int, Unit]) -> Unit:
    """Make the unit of one line."""
    kind = words[0]
    if kind == "L":
        literal = int(words[3])
        return Indicator(abs(literal) - 1, int(literal > 0), 2)
    if kind == "T":
        literal, probability = int(words[3]), math.exp(float(words[4]))
        # Writers round: a log probability may lie a little above zero.
        probability = 1.0 if 1.0 < probability < 1.0 + 1e-6 else probability
        return Bernoulli(abs(literal) - 1, probability if literal > 0 else 1.0 - probability)
    if kind == "D":
        count = int(words[3])
        if len(words) != 4 + 3 * count:
            raise ValueError(f"{count} elements were announced")
        primes, subs, log_weights = words[4::3], words[5::3], words[6::3]
        elements = [Product([nodes[int(p)], nodes[int(s)]]) for p, s in zip(primes, subs)]
        weights = np.array([float(weight) for weight in log_weights])
        if not (weights <= MAX_LOG_WEIGHT).all():
            raise ValueError("its log weights must be numbers that a float can hold")
        return log_weighted_sum(elements, weights)
    raise ValueError(f"unknown kind of node {kind!r}")


def _vtree_scopes(path: str | PathLike[str]) -> dict[int, Scope]:
    """Sorted variables below each node of a vtree."""
    scopes: dict[int, Scope] = {}
    for number, words in _records(path, "vtree"):
        try:
            if words[0] == "L":
                scopes[int(words[1])] = (int(words[2]) - 1,)
            elif words[0] == "I":
                left, right = scopes[int(words[2])], scopes[int(words[3])]
                if not set(left).isdisjoint(right):
                    raise ValueError("its children share a variable")
                scopes[int(words[1])] = tuple(sorted(left + right))
            else:
                raise ValueError(f"unknown kind of node {words[0]!r}")
        except (ValueError, IndexError, KeyError) as error:
            raise CircuitFileError(
                f"Line {number} of {path!s} must be a vtree node (L or I); got "
                f"line={' '.join(words[:8])!r} ({error})."
            ) from error
    return scopes


def _records(path: str | PathLike[str], header: str) -> Iterator[tuple[int, list[str]]]:
    """Numbered lines split into words, without comments and the header."""
    raw = Path(path).read_bytes()
    try:
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise CircuitFileError(f"{path!s} must be a text file ({error}).") from error
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if words and words[0] not in ("c", header):
            yield number, words
