"""Exceptions and warnings of skcircuits, and the common pattern of their messages."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

# Arrays of as many elements are beyond any memory
MAX_COUNT = 2**31 - 1
MAX_SHOWN = 80  # characters of a model in a message
# Packages that may stand between a line of the user and a warning
_BETWEEN = {"skcircuits", "sklearn", "joblib"}


class CircuitPropertyError(ValueError):
    """A query requires a structural property that the circuit does not have.

    It is raised, for example, by an exact most probable explanation of a circuit that is not
    deterministic. The message names the property and suggests an alternative.
    """


class IncompatibleCircuitsError(CircuitPropertyError):
    """Two circuits (or a circuit and a kernel) decompose their variables differently."""


class CircuitFileError(ValueError):
    """A file does not contain a circuit that this version can read."""


class ZeroProbabilityError(ValueError):
    """The evidence of some rows has probability zero.

    Parameters
    ----------
    message : str
        The error message, with a suggested alternative.
    rows : sequence of int
        Indices of the rows whose evidence has probability zero.

    Attributes
    ----------
    rows : list of int
        Indices of the rows whose evidence has probability zero.
    """

    def __init__(self, message: str, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.rows = [int(row) for row in rows]

    def __reduce__(self) -> tuple[type, tuple[str, list[int]]]:
        """Keep the rows when the error crosses a process boundary."""
        return type(self), (str(self), self.rows)


def must(thing: str, condition: str, way_out: str = "", **got: object) -> str:
    """Compose an error message: the requirement, the offending value, and a suggestion.

    Parameters
    ----------
    thing : str
        The subject, for example ``"weights of a sum unit"``.
    condition : str
        What must hold, without the word *must*: ``"be non-negative"``.
    way_out : str, default=""
        One sentence with a suggestion for the user.
    **got : object
        The offending value under the name of its parameter.

    Returns
    -------
    str
        ``"<thing> must <condition>; got <name>=<value!r>. <way out>"``.

    Examples
    --------
    >>> from skcircuits.exceptions import must
    >>> must("gamma", "be positive", "Pass gamma='scale'.", gamma=-1.0)
    "gamma must be positive; got gamma=-1.0. Pass gamma='scale'."
    """
    values = ", ".join(f"{name}={_shown(value)}" for name, value in got.items())
    received = f"; got {values}" if values else ""
    return f"{thing} must {condition}{received}. {way_out}".rstrip()


def invalid(thing: str, condition: str, way_out: str = "", **got: object) -> ValueError:
    """Compose the error of an invalid argument, with the message of `must`."""
    return ValueError(must(thing, condition, way_out, **got))


def _shown(value: object) -> str:
    """Write a value; models in many lines, such as pipelines, by their type."""
    shown = repr(value)
    if hasattr(value, "get_params") and ("\n" in shown or len(shown) > MAX_SHOWN):
        return f"{type(value).__name__}(...)"
    return shown


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def needs_extra(module: str, extra: str) -> Iterator[None]:
    """Import a library within, or say how to install it."""
    try:
        yield
    except ImportError as error:
        way_out = f"pip install 'skcircuits[{extra}]'"
        raise ImportError(must(module, "be installed", way_out, installed=False)) from error


def require(attribute: str, kind: str, **values: object) -> None:
    """Refuse arguments that are of another kind, which the attribute tells, by a TypeError."""
    for name, value in values.items():
        if not hasattr(value, attribute) or isinstance(value, type):
            way_out = f"Pass {name}.circuit_." if hasattr(value, "circuit_") else ""
            raise TypeError(must(name, f"be {kind}", way_out, type=type(value).__name__))


def require_choice(*choices: str, **values: Any) -> None:
    """Refuse what is none of some names, by name."""
    for name, value in values.items():
        if not isinstance(value, str) or value not in choices:
            listed = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
            raise invalid(name, f"be {listed}", **{name: value})


def require_non_negative(**values: Any) -> None:
    """Refuse what is no finite number of zero or more, by name."""
    for name, value in values.items():
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not (is_number and 0 <= value <= sys.float_info.max):
            shown = value if not isinstance(value, int) else "another integer"
            raise invalid(name, "be a finite non-negative number", **{name: shown})


def require_count(at_least: int | None, **values: Any) -> None:
    """Refuse what is no integer of that size or more, which arrays can count, by name."""
    kind = {None: "an", 0: "a non-negative", 1: "a positive"}.get(
        at_least, f"{at_least} or a larger"
    )
    for name, value in values.items():
        is_integer = isinstance(value, Integral) and not isinstance(value, bool)
        if not is_integer or abs(value) > MAX_COUNT or (at_least is not None and value < at_least):
            # The digits of larger integers are of no use, and may be too many to print
            shown = value if not is_integer or abs(value) < 10**12 else "a larger integer"
            raise invalid(name, f"be {kind} integer below 2**31", **{name: shown})
