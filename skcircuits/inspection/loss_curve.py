"""How a fit proceeded: training and validation log-likelihood of each pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from skcircuits.inspection._axes import make_axes
from skcircuits.inspection._fitted import check_has

__all__ = ["LossCurveDisplay"]


class LossCurveDisplay:
    """Training and validation log-likelihood against the passes of a fit.

    Parameters
    ----------
    loss_curve : sequence of float
        Mean negative log-likelihood of the training rows in each pass.
    validation_scores : sequence of float, default=()
        Mean log-likelihood of the validation rows after each pass; may be empty.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where the curves are.
    figure_ : matplotlib Figure
        Its figure.
    lines_ : list of matplotlib Line2D
        The curves.

    Examples
    --------
    >>> from skcircuits.inspection import LossCurveDisplay
    >>> display = LossCurveDisplay([3.0, 2.5, 2.4], [-2.9, -2.7, -2.7]).plot()
    >>> len(display.lines_)
    2
    """

    def __init__(
        self, loss_curve: Sequence[float], validation_scores: Sequence[float] = ()
    ) -> None:
        self.loss_curve = loss_curve
        self.validation_scores = validation_scores

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> LossCurveDisplay:
        """Draw the curves of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            One with ``loss_curve_`` and ``validation_scores_``, such as `MoATDensity`.
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        LossCurveDisplay
            The display, drawn.
        """
        alone = hasattr(estimator, "validation_scores_")
        check_has(
            estimator,
            "loss_curve_",
            "Draw LossCurveDisplay([], estimator.validation_scores_).plot()."
            if alone
            else "Use an estimator that passes over its rows, such as MoATDensity.",
        )
        return cls(estimator.loss_curve_, estimator.validation_scores_).plot(ax)

    def plot(self, ax: Any = None) -> LossCurveDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        LossCurveDisplay
            The display.
        """
        self.ax_ = make_axes(ax)
        self.figure_ = self.ax_.figure
        curves = {"training": -np.asarray(self.loss_curve), "validation": self.validation_scores}
        self.lines_ = [
            self.ax_.plot(np.arange(1, len(curve) + 1), curve, label=label)[0]
            for label, curve in curves.items()
            if len(curve)
        ]
        self.ax_.set(xlabel="pass over the rows", ylabel="mean log-likelihood")
        self.ax_.legend()
        return self
