"""How predictions change as values go missing: scores of a table, and a single row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skcircuits.inspection._axes import make_axes
from skcircuits.protocols import FloatArray
from skcircuits.tabular import TableSchema

__all__ = ["ExpectedPredictionDisplay"]

RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class ExpectedPredictionDisplay:
    """Curves of answers against how much is missing, with bands around them.

    Parameters
    ----------
    x : sequence of float or str
        Fractions of missing values, or what has been hidden so far.
    curves : mapping of str to ndarray of shape (n,)
        Height of each curve.
    spreads : mapping of str to ndarray of shape (n,), default=None
        Half width of the bands, of the curves that have one.
    xlabel, ylabel : str
        Labels of the axes.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where the curves are.
    figure_ : matplotlib Figure
        Its figure.
    lines_ : list of matplotlib Line2D
        The curves.
    bands_ : list of matplotlib collections
        The bands.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import RidgeCV
    >>> from skcircuits import ExpectedPredictionRegressor
    >>> from skcircuits.inspection import ExpectedPredictionDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ExpectedPredictionRegressor(RidgeCV(), random_state=0).fit(X, y)
    >>> display = ExpectedPredictionDisplay.from_row(model, X[:1])
    >>> len(display.x)
    11
    """

    def __init__(
        self,
        x: Sequence[float] | Sequence[str],
        curves: Mapping[str, FloatArray],
        spreads: Mapping[str, FloatArray] | None = None,
        *,
        xlabel: str = "",
        ylabel: str = "",
    ) -> None:
        self.x = x
        self.curves = curves
        self.spreads = {} if spreads is None else spreads
        self.xlabel = xlabel
        self.ylabel = ylabel

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        rates: Sequence[float] = RATES,
        n_repeats: int = 3,
        random_state: Any = None,
        ax: Any = None,
    ) -> ExpectedPredictionDisplay:
        """Draw the score against the fraction of values that are missing at random.

        Parameters
        ----------
        estimator : fitted estimator
            One that predicts from rows with missing values, with `score`.
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows, from which more values are hidden.
        y : array-like of shape (n_samples,)
            Their targets.
        rates : sequence of float, default=(0.0, 0.1, ..., 0.9)
            Fractions to hide.
        n_repeats : int, default=3
            Masks per fraction; the band is one standard deviation of their scores.
        random_state : int, RandomState or None, default=None
            Source of the masks.
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        ExpectedPredictionDisplay
            The display, drawn.
        """
        check_is_fitted(estimator)
        generator = check_random_state(random_state)
        schema = TableSchema.learn(X)
        encoded = schema.encode(X)
        scores = np.empty((len(rates), n_repeats))
        for row, rate in zip(scores, rates):
            for repeat in range(n_repeats):
                hidden = generator.random_sample(encoded.shape) < rate
                table = schema.decode(np.where(hidden, np.nan, encoded))
                row[repeat] = estimator.score(table, y)
        display = cls(
            rates,
            {"score": scores.mean(axis=1)},
            {"score": scores.std(axis=1)},
            xlabel="fraction of missing values",
            ylabel="accuracy" if is_classifier(estimator) else "R²",
        )
        return display.plot(ax)

    @classmethod
    def from_row(
        cls, estimator: Any, X: Any, *, order: Sequence[int] | None = None, ax: Any = None
    ) -> ExpectedPredictionDisplay:
        """Draw the prediction of a row while its values are hidden one after another.

        Parameters
        ----------
        estimator : ExpectedPredictionRegressor or ExpectedPredictionClassifier
            A fitted one.
        X : dataframe or array-like of shape (1, n_features)
            The row.
        order : sequence of int, default=None
            Columns in the order in which they are hidden; None takes them from left to right.
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        ExpectedPredictionDisplay
            The display, drawn: the expected prediction with a band of one standard deviation
            that the missing values cause, or the probability of each class.
        """
        check_is_fitted(estimator)
        schema = TableSchema.learn(X)
        row = schema.encode(X)
        order = range(row.shape[1]) if order is None else order
        hidden = np.repeat(row, len(order) + 1, axis=0)
        for step, column in enumerate(order, start=1):
            hidden[step:, column] = np.nan
        table = schema.decode(hidden)
        x = ["nothing", *(str(schema.names[j]) for j in order)]
        spreads = {}
        if is_classifier(estimator):
            answers = estimator.predict_proba(table)
            curves = {str(c): answers[:, i] for i, c in enumerate(estimator.classes_)}
        else:
            mean, std = estimator.predict(table, return_std=True)
            curves, spreads = {"prediction": mean}, {"prediction": std}
        ylabel = "probability" if is_classifier(estimator) else "prediction"
        return cls(x, curves, spreads, xlabel="hidden, from left to right", ylabel=ylabel).plot(ax)

    def plot(self, ax: Any = None) -> ExpectedPredictionDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        ExpectedPredictionDisplay
            The display.
        """
        self.ax_ = make_axes(ax)
        self.figure_ = self.ax_.figure
        self.lines_, self.bands_ = [], []
        places = np.arange(len(self.x)) if isinstance(self.x[0], str) else np.asarray(self.x)
        for label, heights in self.curves.items():
            self.lines_ += self.ax_.plot(places, heights, marker="o", label=label)
            if label in self.spreads:
                spread = self.spreads[label]
                band = self.ax_.fill_between(places, heights - spread, heights + spread, alpha=0.2)
                self.bands_.append(band)
        if isinstance(self.x[0], str):
            self.ax_.set_xticks(places, self.x, rotation=45, ha="right")
        self.ax_.set(xlabel=self.xlabel, ylabel=self.ylabel)
        if len(self.curves) > 1:
            self.ax_.legend()
        return self
