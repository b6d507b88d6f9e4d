"""Axes to draw on, with matplotlib imported late."""

from __future__ import annotations

from typing import Any

__all__ = ["make_axes"]


def make_axes(ax: Any = None) -> Any:
    """Give the axes to draw on.

    Parameters
    ----------
    ax : matplotlib Axes, default=None
        Axes of the user; None makes a new figure.

    Returns
    -------
    matplotlib Axes
        Axes.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Displays need matplotlib. Install it with `pip install skcircuits[plot]`."
        ) from error
    return plt.subplots(layout="constrained")[1]
