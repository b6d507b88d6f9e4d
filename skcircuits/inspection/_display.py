"""Common parts of displays: the base class, axes, labels that fit, and checks of estimators."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skcircuits.exceptions import invalid, must, needs_extra

# Points; smaller letters are not read.
MIN_FONT_SIZE = 4.5
# Layouts settle within a few.
MAX_ROUNDS = 5


class Display:
    """Base class of displays: a subclass prepares its drawing and draws it on ``ax_``."""

    def plot(self, ax: Any = None, **artist_kw: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None creates a new figure.
        **artist_kw : object
            Keyword arguments of the matplotlib artists that the documentation of the class names.

        Returns
        -------
        Display
            The display itself.
        """
        self.ax_ = make_axes(ax, self._prepare())
        self.figure_ = self.ax_.figure
        self._draw(artist_kw)
        return self

    def _prepare(self) -> tuple[float, float] | None:
        """Compute what is drawn; the size of a new figure in inches, None for the usual one.

        Errors come from here, so that none leaves an empty figure behind.
        """
        return None

    def _draw(self, artist_kw: dict[str, Any]) -> None:
        """Draw on the axes."""
        raise NotImplementedError


def make_axes(ax: Any = None, size: tuple[float, float] | None = None) -> Any:
    """Axes of the user, or of a new figure of so many inches; matplotlib is imported here."""
    if ax is not None:
        if not hasattr(ax, "plot"):
            way_out = "Of the axes that plt.subplots() gives, pass a single one."
            raise TypeError(must("ax", "be matplotlib Axes", way_out, ax=ax))
        return ax
    with needs_extra("matplotlib", "plot"):
        import matplotlib.pyplot as plt
    # Constrained layout leaves room for legends and colour bars as they come
    return plt.subplots(figsize=size, layout="constrained")[1]


def check_has(estimator: Any, attribute: str, way_out: str) -> None:
    """Refuse an estimator that is not fitted, or that lacks an attribute after fit."""
    check_is_fitted(estimator)
    if not hasattr(estimator, attribute):
        # A fitted search is the usual mistake
        if hasattr(estimator, "best_estimator_"):
            way_out = "Pass the best_estimator_ of the search."
        condition = f"have {attribute} after fit"
        raise invalid("estimator to inspect", condition, way_out, estimator=estimator)


def fit_labels(ax: Any, labels: list[Any], extras: list[Any] = ()) -> None:
    """Shrink the texts of a finished drawing until none covers another.

    Those that could not be read then are left out, the extras first.
    """
    # All texts first, then the labels alone, then none
    for shown in ([*labels, *extras], labels):
        if _shrink(ax.figure, shown):
            return
        for text in shown:
            text.set_visible(text in labels and shown is not labels)


def _shrink(figure: Any, texts: list[Any]) -> bool:
    """Shrink texts until they are free, and tell whether they can still be read.

    A layout that makes room for labels moves when they shrink, so that once may not be enough.
    """
    for _ in range(MAX_ROUNDS):
        figure.draw_without_rendering()
        factor = _free_scale(texts, figure.canvas.get_renderer())
        if factor == 1.0:
            return True
        sizes = [factor * text.get_fontsize() for text in texts]
        if min(sizes) < MIN_FONT_SIZE:
            return False
        for text, size in zip(texts, sizes):
            text.set_fontsize(size)
    return True


def _free_scale(texts: list[Any], renderer: Any) -> float:
    """Largest factor up to 1 at which boxes around fixed centres do not overlap."""
    boxes = [(text.get_bbox_patch() or text).get_window_extent(renderer) for text in texts]
    centres = np.array([[(b.x0 + b.x1) / 2, (b.y0 + b.y1) / 2] for b in boxes]).reshape(-1, 2)
    halves = np.array([[b.width / 2, b.height / 2] for b in boxes]).reshape(-1, 2)
    i, j = np.triu_indices(len(boxes), 1)
    gaps = np.abs(centres[i] - centres[j]) / (halves[i] + halves[j])
    closest = gaps.max(axis=1).min(initial=np.inf)
    # A little air between neighbours, once they have to move
    return 1.0 if closest >= 1.0 else 0.95 * float(closest)
