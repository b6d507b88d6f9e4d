"""Reader and writer of the UAI format for graphical models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from os import PathLike
from pathlib import Path

import numpy as np

from skcircuits.exceptions import must
from skcircuits.graphical.factor import Factor, check_table_size
from skcircuits.protocols import FloatArray, IntArray


def read_uai(path: str | PathLike[str]) -> tuple[list[Factor], list[int]]:
    """Read the factors of a model in the UAI format.

    Both kinds, MARKOV and BAYES, list tables whose last variable runs fastest.
    """
    # Line breaks mean nothing in this format: read it as a stream of words.
    try:
        # Some editors begin a file with a byte order mark.
        tokens = iter(Path(path).read_text(encoding="utf-8-sig").split())
        factors, cardinalities = _parse(tokens)
    except StopIteration:
        raise ValueError(
            must("UAI file", "be complete", "It ends early.", path=str(path))
        ) from None
    except ValueError as error:
        raise ValueError(
            must("UAI file", "follow the format", str(error), path=str(path))
        ) from error
    return factors, cardinalities


def write_uai(
    path: str | PathLike[str], factors: Sequence[Factor], cardinalities: IntArray, kind: str
) -> None:
    """Write factors as a file of a kind, MARKOV or BAYES; every digit is kept."""
    lines = [kind, str(len(cardinalities)), " ".join(map(str, cardinalities.tolist()))]
    lines.append(str(len(factors)))
    lines += [" ".join(map(str, (len(factor.scope), *factor.scope))) for factor in factors]
    for factor in factors:
        values = plain_values(factor).ravel().tolist()
        lines += ["", str(len(values)), " ".join(map(repr, values))]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def plain_values(factor: Factor) -> FloatArray:
    """Give the values of a factor, if floats can hold them."""
    with np.errstate(over="ignore", under="ignore"):
        values = np.exp(factor.log_table)
    if np.isposinf(values).any() or np.any((values == 0) & ~np.isneginf(factor.log_table)):
        raise ValueError(
            must(
                f"table of the factor over {factor.scope}",
                "have values that a file of plain numbers can hold",
                "Energies beyond 700 need pickle or joblib.",
                max=float(factor.log_table.max()),
                min=float(factor.log_table.min()),
            )
        )
    return np.asarray(values)


def _parse(tokens: Iterator[str]) -> tuple[list[Factor], list[int]]:
    kind = next(tokens)
    if kind not in ("MARKOV", "BAYES"):
        raise ValueError(must("first word", "be MARKOV or BAYES", word=kind))
    cardinalities = _integers(tokens, int(next(tokens)))
    if min(cardinalities, default=1) < 1:
        raise ValueError(must("variables", "have a state each", cardinalities=cardinalities))
    # All scopes come first, then all tables in the same order.
    scopes = [_integers(tokens, int(next(tokens))) for _ in range(int(next(tokens)))]
    beyond = {v for scope in scopes for v in scope if not 0 <= v < len(cardinalities)}
    if beyond:
        raise ValueError(
            must("scopes", f"name variables below {len(cardinalities)}", variables=sorted(beyond))
        )
    factors = []
    for scope in scopes:
        shape = [cardinalities[v] for v in scope]
        n_values = int(next(tokens))
        if n_values != prod(shape):
            raise ValueError(must(f"table over {scope}", f"have {prod(shape)} values", n=n_values))
        values = np.array([float(next(tokens)) for _ in range(n_values)])
        check_table_size(f"table over {scope}", shape)
        factors.append(Factor.from_table(scope, values.reshape(shape)))
    extra = next(tokens, None)
    if extra is not None:
        raise ValueError(must("last table", "end the file", "Are all tables counted?", word=extra))
    return factors, cardinalities


def _integers(tokens: Iterator[str], count: int) -> list[int]:
    return [int(next(tokens)) for _ in range(count)]
