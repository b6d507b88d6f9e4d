"""Displays of fits: learning curves, and the parts of a model that samples represent poorly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.inspection._display import Display, check_has
from skcircuits.stein import SteinDiagnosis, stein_diagnosis

# Adjusted p-values below this are marked.
LEVEL = 0.05
# Bars that fit under each other; those of least excess are left out.
MAX_PARTS = 40


class SteinDiagnosisDisplay(Display):
    """Excess of the Stein discrepancy of samples for each part, with small p-values highlighted.

    The bars are in standard deviations of a wild bootstrap under the hypothesis that the samples
    come from the target. Parts with an adjusted p-value below 0.05 are highlighted. Parts that
    cannot change in any sample are marked by a question mark, because the test is not informative
    about them. Keyword arguments of ``plot`` style the bars, as for matplotlib's ``barh``.

    Parameters
    ----------
    diagnosis : SteinDiagnosis
        The result of :func:`~skcircuits.stein.stein_diagnosis`.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the bars.
    figure_ : matplotlib Figure
        Figure that contains the axes.
    bars_ : matplotlib BarContainer
        The bars, beginning with the part of largest excess.

    Examples
    --------
    >>> from skcircuits.graphical import IsingModel
    >>> from skcircuits.inspection import SteinDiagnosisDisplay
    >>> model = IsingModel.grid(1, 3, couplings=0.4)
    >>> X = model.sample(100, random_state=0)
    >>> display = SteinDiagnosisDisplay.from_samples(X, model, random_state=0)
    >>> len(display.bars_)
    3
    """

    def __init__(self, diagnosis: SteinDiagnosis) -> None:
        self.diagnosis = diagnosis

    @classmethod
    def from_samples(
        cls,
        X: ArrayLike,
        target: Any,
        *,
        parts: Mapping[str, ArrayLike] | None = None,
        ax: Any = None,
        **options: Any,
    ) -> SteinDiagnosisDisplay:
        """Diagnose samples and draw the result.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Samples.
        target : object
            The distribution that they should represent.
        parts : dict, default=None
            Names of parts and the variables of each part; by default, each variable is a part.
        ax : matplotlib Axes, default=None
            Axes to draw on; None creates a new figure.
        **options : object
            Further arguments of :func:`~skcircuits.stein.stein_diagnosis`.

        Returns
        -------
        SteinDiagnosisDisplay
            The display, after plotting.
        """
        return cls(stein_diagnosis(X, target, parts=parts, **options)).plot(ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        parts: Mapping[str, ArrayLike] | None = None,
        ax: Any = None,
        **options: Any,
    ) -> SteinDiagnosisDisplay:
        """Diagnose the unweighted samples of a fitted `BBISWeighter`, or particles.

        Parameters
        ----------
        estimator : fitted estimator
            An estimator with ``target_``, and ``samples_`` or ``particles_``.
        X : array-like of shape (n, d), default=None
            Other encoded samples.
        y : Ignored
            Not used, present for API consistency by convention.
        parts : dict, default=None
            Names of parts and the variables of each part; by default, each variable is a part.
        ax : matplotlib Axes, default=None
            Axes to draw on; None creates a new figure.
        **options : object
            Further arguments of :func:`~skcircuits.stein.stein_diagnosis`.

        Returns
        -------
        SteinDiagnosisDisplay
            The display, after plotting.
        """
        # Rows given here come before those that the estimator was fitted to
        samples = X
        for name in ("samples_", "particles_"):
            samples = getattr(estimator, name, None) if samples is None else samples
        if samples is None or not hasattr(estimator, "target_"):
            condition = "have target_ and samples_ or particles_ after fit"
            way_out = "Use from_samples(X, target) for other samples."
            raise ValueError(must("estimator to inspect", condition, way_out, estimator=estimator))
        return cls.from_samples(samples, estimator.target_, parts=parts, ax=ax, **options)

    def _prepare(self) -> tuple[float, float]:
        return 5.0, 1.2 + 0.22 * min(len(self.diagnosis.names), MAX_PARTS)

    def _draw(self, bar_kw: dict[str, Any]) -> None:
        found = self.diagnosis
        # What is represented worst stands on top
        order = np.argsort(-found.excess, kind="stable")[:MAX_PARTS]
        # A part that never moved passes every test: the mark tells that this means nothing
        names = [found.names[i] + (" ?" if found.names[i] in found.unmoved else "") for i in order]
        colors = ["C3" if found.pvalues[i] < LEVEL else "C0" for i in order]
        self.bars_ = self.ax_.barh(
            range(len(order)), found.excess[order], **{"color": colors, **bar_kw}
        )
        self.ax_.set_yticks(range(len(order)), names)
        self.ax_.invert_yaxis()
        self.ax_.set_xlabel("squared Stein discrepancy, bootstrap standard deviations")
        n_left_out = len(found.names) - len(order)
        more = f", {n_left_out} parts of less excess left out" if n_left_out else ""
        self.ax_.set_title(f"whole model: p = {found.pvalue:.2g}{more}")


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
