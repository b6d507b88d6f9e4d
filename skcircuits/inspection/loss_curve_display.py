"""Learning curves of a fitted density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.inspection._display import Display, check_has


class LossCurveDisplay(Display):
    """Training and validation log-likelihood against the iterations of a fit.

    Keyword arguments of ``plot`` style the curves, as for matplotlib's ``plot``.

    Parameters
    ----------
    loss_curve : sequence of float
        Mean negative log-likelihood of the training rows in each iteration.
    validation_scores : sequence of float, default=()
        Mean log-likelihood of the validation rows after each iteration; may be empty.
    step : str, default="pass over the rows"
        Name of the step between two points of a curve.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the curves.
    figure_ : matplotlib Figure
        Figure that contains the axes.
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
        self,
        loss_curve: Sequence[float],
        validation_scores: Sequence[float] = (),
        *,
        step: str = "pass over the rows",
    ) -> None:
        if not len(loss_curve) and not len(validation_scores):
            raise ValueError(must("loss_curve", "hold a loss per pass", loss_curve=loss_curve))
        self.loss_curve = loss_curve
        self.validation_scores = validation_scores
        self.step = step

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **line_kw: Any) -> LossCurveDisplay:
        """Draw the curves of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            An estimator with ``loss_curve_`` or ``validation_scores_``: `MoATDensity`,
            `HiddenChowLiuDensity`, `StrudelDensity`, `ContinuousMixtureDensity`.
        ax : matplotlib Axes, default=None
            Axes to draw on; None creates a new figure.
        **line_kw : object
            Keyword arguments of the curves, as for matplotlib's ``plot``.

        Returns
        -------
        LossCurveDisplay
            The display, after plotting.
        """
        curves = ("loss_curve_", "validation_scores_")
        # Some fits keep no training loss, others hold no rows out
        known = next((name for name in curves if len(getattr(estimator, name, ()))), curves[0])
        way_out = "Latent trees, Strudel, continuous mixtures and mixtures of all trees have one."
        check_has(estimator, known, way_out)
        step = "split" if hasattr(estimator, "n_splits_") else "pass over the rows"
        loss, scores = (getattr(estimator, name, ()) for name in curves)
        return cls(loss, scores, step=step).plot(ax, **line_kw)

    def _draw(self, line_kw: dict[str, Any]) -> None:
        # A loss is minus a mean log-likelihood: both curves rise
        curves = {"training": -np.asarray(self.loss_curve), "validation": self.validation_scores}
        self.lines_ = [
            self.ax_.plot(np.arange(1, len(curve) + 1), curve, **{"label": label, **line_kw})[0]
            for label, curve in curves.items()
            if len(curve)
        ]
        self.ax_.set(xlabel=self.step, ylabel="mean log-likelihood (nats per row)")
        self.ax_.legend()
