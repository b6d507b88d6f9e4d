"""The errors skcircuits raises, and their common sentence pattern."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "CircuitFileError",
    "CircuitPropertyError",
    "IncompatibleCircuitsError",
    "ZeroProbabilityError",
    "must",
    "require",
]


class CircuitPropertyError(ValueError):
    """A query needs a structural property that the circuit does not have.

    Raised for example by an exact most probable explanation of a circuit that is
    not deterministic. The message names the property and the way out.
    """


class IncompatibleCircuitsError(CircuitPropertyError):
    """Two circuits (or a circuit and a kernel) decompose their variables differently."""


class CircuitFileError(ValueError):
    """A file does not hold a circuit this version can read."""


class ZeroProbabilityError(ValueError):
    """The evidence of some rows has probability zero.

    Parameters
    ----------
    message : str
        What was asked and what to do instead.
    rows : sequence of int
        Positions of the rows whose evidence is impossible.

    Attributes
    ----------
    rows : list of int
        Positions of the rows whose evidence is impossible.
    """

    def __init__(self, message: str, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.rows = [int(row) for row in rows]

    def __reduce__(self) -> tuple[type, tuple[str, list[int]]]:
        """Keep the rows when the error crosses a process boundary."""
        return type(self), (str(self), self.rows)


def must(thing: str, condition: str, way_out: str = "", **got: object) -> str:
    """Word an error message: what must hold, what came instead, how to get out.

    Parameters
    ----------
    thing : str
        The subject, for example ``"weights of a sum unit"``.
    condition : str
        What must hold, without the word *must*: ``"be non-negative"``.
    way_out : str, default=""
        One sentence that tells the user what to do.
    **got : object
        The offending value under its parameter name.

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
    values = ", ".join(f"{name}={value!r}" for name, value in got.items())
    received = f"; got {values}" if values else ""
    return f"{thing} must {condition}{received}. {way_out}".rstrip()


def require(attribute: str, kind: str, **values: object) -> None:
    """Refuse arguments that are of another kind, which the attribute tells, by a TypeError."""
    for name, value in values.items():
        if not hasattr(value, attribute) or isinstance(value, type):
            raise TypeError(must(name, f"be {kind}", type=type(value).__name__))
