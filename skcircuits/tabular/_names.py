"""Errors about names that a table does not know; they name the nearest ones it does."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from skcircuits.exceptions import must

__all__ = ["nearest", "unknown_column"]

MAX_SHOWN = 20


def unknown_column(name: object, known: Sequence[object]) -> ValueError:
    """Word the error about a column that is none of the table."""
    shown = f"They are {_shown(known)}."
    way_out = f"{nearest(name, known)}{shown}"
    return ValueError(must("Columns of a query", "be columns of the table", way_out, column=name))


def nearest(name: object, known: Sequence[object]) -> str:
    """Sentence that asks for the nearest known name, empty where none is near."""
    by_text = {str(other): other for other in known}
    close = get_close_matches(str(name), list(by_text), n=1)
    return f"Did you mean {by_text[close[0]]!r}? " if close else ""


def _shown(known: Sequence[object]) -> str:
    shown = list(known)[:MAX_SHOWN]
    return repr(shown) if len(known) <= MAX_SHOWN else f"{repr(shown)[:-1]}, ...]"
