"""Targets from Stan models compiled by BridgeStan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray
from skcircuits.targets._target import SiteTarget

__all__ = ["from_bridgestan"]


def from_bridgestan(model: Any) -> SiteTarget:
    """Make a target of a compiled Stan model, in unconstrained coordinates.

    Parameters
    ----------
    model : bridgestan.StanModel
        The model with its data.

    Returns
    -------
    target : object
        With ``grad_log_prob(X)``, ``log_prob_unnormalized(X)``, ``draw_start(n, rng)``,
        ``to_sites(X)``, which gives rows as a dict of constrained values by parameter name, and
        ``from_sites(values)``, the way back.

    Raises
    ------
    TypeError
        If the model is not one of BridgeStan.

    Examples
    --------
    >>> import bridgestan  # doctest: +SKIP
    >>> model = bridgestan.StanModel("model.stan", data="data.json")  # doctest: +SKIP
    >>> target = from_bridgestan(model)  # doctest: +SKIP
    """
    wanted = ("log_density_gradient", "param_constrain", "param_unconstrain", "param_unc_num")
    if not all(hasattr(model, name) for name in wanted):
        raise TypeError(must("model", "be a bridgestan.StanModel", kind=type(model).__name__))
    layout = _Layout(model.param_names())

    def log_prob(X: FloatArray) -> FloatArray:
        # Stan knows one point at a time.
        return np.array([model.log_density(np.ascontiguousarray(x)) for x in X])

    def grad_log_prob(X: FloatArray) -> FloatArray:
        return np.array([model.log_density_gradient(np.ascontiguousarray(x))[1] for x in X])

    def constrain(X: FloatArray) -> dict[str, FloatArray]:
        return layout.split(np.array([model.param_constrain(row.copy()) for row in X]))

    def unconstrain(values: Mapping[str, FloatArray]) -> FloatArray:
        return np.array([model.param_unconstrain(row) for row in layout.join(values)])

    return SiteTarget(log_prob, grad_log_prob, int(model.param_unc_num()), constrain, unconstrain)


class _Layout:
    """Where the numbers of Stan's flat vectors belong, read off names as ``theta.1.2``.

    Stan counts from one and stores the first index fastest.
    """

    def __init__(self, names: list[str]) -> None:
        self._places: dict[str, list[int]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for place, full in enumerate(names):
            words = full.split(".")
            name = ".".join(word for word in words if not word.isdigit())
            self._places.setdefault(name, []).append(place)
            # The last one named has the largest indices.
            self._shapes[name] = tuple(int(word) for word in words if word.isdigit())
        self._size = len(names)

    def split(self, rows: FloatArray) -> dict[str, FloatArray]:
        """Give flat rows as arrays by name."""
        return {
            name: _reversed_axes(rows[:, places].reshape(len(rows), *self._shapes[name][::-1]))
            for name, places in self._places.items()
        }

    def join(self, values: Mapping[str, FloatArray]) -> FloatArray:
        """Give arrays by name as flat rows."""
        arrays = {name: np.asarray(values[name], dtype=np.float64) for name in self._places}
        n_rows = len(next(iter(arrays.values())))
        rows = np.empty((n_rows, self._size))
        for name, places in self._places.items():
            rows[:, places] = _reversed_axes(arrays[name]).reshape(n_rows, -1)
        return rows


def _reversed_axes(values: FloatArray) -> FloatArray:
    """Reverse all axes but the first."""
    return values.transpose(0, *range(values.ndim - 1, 0, -1))
