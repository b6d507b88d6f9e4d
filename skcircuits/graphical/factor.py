"""Factors: non-negative tables over a few categorical variables, stored as logarithms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import invalid
from skcircuits.numerics._arrays import float_array, integers, safe_log
from skcircuits.parallel import working_memory_bytes
from skcircuits.protocols import FloatArray

# Arrays have no more axes, of which batches need some.
_MAX_AXES = 60


@dataclass(frozen=True, eq=False)
class Factor:
    """A non-negative function of a few categorical variables.

    Parameters
    ----------
    scope : tuple of int
        The variables of the factor, one per axis of the table; empty for a constant.
    log_table : ndarray
        Logarithms of its values, ``-inf`` for zeros.

    Examples
    --------
    >>> from skcircuits.graphical import Factor
    >>> agree = Factor.from_table((0, 1), [[2.0, 1.0], [1.0, 2.0]])
    >>> agree.scope
    (0, 1)
    """

    scope: tuple[int, ...]
    log_table: FloatArray

    def __post_init__(self) -> None:
        # Shared by models made from one another, so nobody may write into it: a copy, which
        # also is an array where numpy gave a scalar for the table of an empty scope.
        log_table = float_array(self.log_table, "log_table").copy()
        log_table.flags.writeable = False
        object.__setattr__(self, "log_table", log_table)
        object.__setattr__(self, "scope", integers(self.scope, "scope of a factor"))
        if len(set(self.scope)) != len(self.scope):
            raise invalid("scope of a factor", "name each variable once", scope=self.scope)
        if self.log_table.ndim != len(self.scope):
            condition = "have one axis per variable of its scope"
            raise invalid(
                "table of a factor", condition, scope=self.scope, shape=self.log_table.shape
            )
        if np.any(np.isnan(self.log_table)) or np.any(np.isposinf(self.log_table)):
            raise invalid("table of a factor", "be finite", "Remove NaN and inf.", scope=self.scope)

    @classmethod
    def from_table(cls, scope: Iterable[int], table: ArrayLike) -> Factor:
        """Build a factor from its values.

        Parameters
        ----------
        scope : iterable of int
            The variables, one per axis of ``table``.
        table : array-like
            Non-negative values.

        Returns
        -------
        Factor
            The factor, which holds their logarithms.
        """
        scope, values = integers(scope, "scope"), float_array(table, "table")
        if np.any(values < 0):
            what = "table of a factor"
            condition = "be non-negative"
            way_out = "Pass exp(...) of energies, or Factor(scope, log_table)."
            raise invalid(what, condition, way_out, scope=scope, smallest=float(values.min()))
        # A zero is a legitimate factor value: its logarithm is -inf without a warning.
        return cls(scope, safe_log(values))

    def soften(self, amount: float) -> Factor:
        """Mix the table with its mean, so that it is positive everywhere.

        Parameters
        ----------
        amount : float
            Fraction of the mean, in (0, 1].

        Returns
        -------
        Factor
            ``(1 - amount) * table + amount * mean(table)``.
        """
        # Relative to the peak: tables of large energies would overflow.
        peak = self.log_table.max(initial=-np.inf)
        if np.isneginf(peak):
            return self  # zero everywhere, and so is its mean
        table = np.exp(self.log_table - peak)
        return Factor(self.scope, peak + np.log((1 - amount) * table + amount * table.mean()))


def check_table_size(thing: str, shape: Sequence[int]) -> None:
    """Refuse a table by the shape that is declared for it, before memory is asked for it."""
    # Python's integers: the product of a hostile shape would wrap around in NumPy's
    n_bytes = 8 * prod(shape)
    if n_bytes > working_memory_bytes() or len(shape) > _MAX_AXES:
        raise invalid(
            thing,
            f"have at most {_MAX_AXES} variables and fit into the working memory",
            "Raise sklearn.set_config(working_memory=...), or declare fewer parents or states.",
            n_variables=len(shape),
            mebibytes=f"{n_bytes / 2**20:.3g}",
        )
