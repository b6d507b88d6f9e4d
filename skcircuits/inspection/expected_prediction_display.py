"""Displays of predictions as values go missing: scores of a table, and a single row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from skcircuits.estimators.shared.queries._model_under_conditions import column_indices
from skcircuits.exceptions import must
from skcircuits.inspection._display import Display
from skcircuits.protocols import FloatArray
from skcircuits.tabular import TableSchema

_SCORE_NAMES = {r2_score: "R²", accuracy_score: "accuracy"}
RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class ExpectedPredictionDisplay(Display):
    """Curves of predictions or scores against the amount of missing values, with bands.

    Keyword arguments of ``plot`` style the curves, as for matplotlib's ``plot``.

    Parameters
    ----------
    x : sequence of float or str
        Fractions of missing values, or the columns that have been hidden so far.
    curves : mapping of str to ndarray of shape (n,)
        Height of each curve.
    spreads : mapping of str to ndarray of shape (n,), default=None
        Half widths of the bands, for curves with a band.
    xlabel, ylabel : str
        Labels of the axes.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the curves.
    figure_ : matplotlib Figure
        Figure that contains the axes.
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
        for name, heights in {**curves, **(spreads or {})}.items():
            if len(heights) != len(x):
                condition = f"have one height for each of the {len(x)} places of x"
                raise ValueError(must(f"curve {name!r}", condition, n_heights=len(heights)))
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
        **line_kw: Any,
    ) -> ExpectedPredictionDisplay:
        """Draw the score against the fraction of values that are hidden at random.

        Parameters
        ----------
        estimator : fitted estimator
            An estimator with `score` that predicts from rows with missing values.
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows, of which further values are hidden.
        y : array-like of shape (n_samples,)
            Targets of the rows.
        rates : sequence of float, default=(0.0, 0.1, ..., 0.9)
            Fractions to hide.
        n_repeats : int, default=3
            Number of masks per fraction. The band is one standard deviation of their scores.
        random_state : int, RandomState or None, default=None
            Controls the randomness of the masks.
        ax : matplotlib Axes, default=None
            Axes to draw on; None creates a new figure.
        **line_kw : object
            Keyword arguments of the curves, as for matplotlib's ``plot``.

        Returns
        -------
        ExpectedPredictionDisplay
            The display, after plotting.
        """
        check_is_fitted(estimator)
        _check_rates(rates)
        check_consistent_length(X, y)
        generator = check_random_state(random_state)
        # The schema of these rows, not of the model: cells go back to it as they came
        schema, encoded = TableSchema.learn_and_encode(X)

        def predict_masked(rate: float) -> Any:
            hidden = generator.random_sample(encoded.shape) < rate
            return estimator.predict(schema.decode(np.where(hidden, np.nan, encoded)))

        predictions = [[predict_masked(rate) for _ in range(n_repeats)] for rate in rates]
        score = accuracy_score if is_classifier(estimator) else r2_score
        return cls._of_scores(y, {"score": predictions}, rates, score).plot(ax, **line_kw)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        *,
        rates: Sequence[float] = RATES,
        score: Callable[..., float] | None = None,
        ax: Any = None,
        **line_kw: Any,
    ) -> ExpectedPredictionDisplay:
        """Draw scores of existing predictions of one or several models.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Targets.
        y_pred : array-like of shape (n_rates, n_samples) or (n_rates, n_repeats, n_samples), \
                or dict of str to such arrays
            Predictions at each fraction of missing values. A dict draws one curve per model.
        rates : sequence of float, default=(0.0, 0.1, ..., 0.9)
            The fractions.
        score : callable, default=None
            Function ``score(y_true, y_pred)``. None uses R² if targets or predictions are not all
            integers, and the accuracy otherwise.
        ax : matplotlib Axes, default=None
            Axes to draw on; None creates a new figure.
        **line_kw : object
            Keyword arguments of the curves, as for matplotlib's ``plot``.

        Returns
        -------
        ExpectedPredictionDisplay
            The display, after plotting.

        Raises
        ------
        ValueError
            If there is not one row of predictions per fraction.
        """
        _check_rates(rates)
        by_model = y_pred if isinstance(y_pred, Mapping) else {"score": y_pred}
        if score is None:
            answers = [y_true, *(np.ravel(predictions) for predictions in by_model.values())]
            # Targets such as counts are integers, predictions of them hardly
            numbers = any(type_of_target(values) == "continuous" for values in answers)
            score = r2_score if numbers else accuracy_score
        return cls._of_scores(y_true, by_model, rates, score).plot(ax, **line_kw)

    @classmethod
    def _of_scores(
        cls, y_true: Any, by_model: Mapping[str, Any], rates: Sequence[float], score: Any
    ) -> ExpectedPredictionDisplay:
        """Means and standard deviations of scores over the repeats, a curve for each model."""
        scores = {}
        for name, predictions in by_model.items():
            predictions = np.asarray(predictions)
            # Without repeats one prediction per rate is enough
            if predictions.ndim == 2:
                predictions = predictions[:, None]
            if predictions.shape[::2] != (len(rates), len(y_true)):
                condition = f"have shape (n_rates, n_samples) = {(len(rates), len(y_true))}"
                raise ValueError(must("y_pred", condition, shape=np.shape(by_model[name])))
            scores[name] = np.array([[score(y_true, p) for p in row] for row in predictions])
        return cls(
            rates,
            {name: values.mean(axis=1) for name, values in scores.items()},
            {name: values.std(axis=1) for name, values in scores.items() if values.shape[1] > 1},
            xlabel="fraction of missing values",
            ylabel=_SCORE_NAMES.get(score, getattr(score, "__name__", "score").replace("_", " ")),
        )

    @classmethod
    def from_row(
        cls,
        estimator: Any,
        X: Any,
        *,
        order: Sequence[str | int] | None = None,
        ax: Any = None,
        **line_kw: Any,
    ) -> ExpectedPredictionDisplay:
        """Draw the prediction of a row while its values are hidden one after another.

        Parameters
        ----------
        estimator : ExpectedPredictionRegressor or ExpectedPredictionClassifier
            A fitted estimator.
        X : dataframe or array-like of shape (1, n_features)
            The row.
        order : sequence of str or int, default=None
            Columns, by name or index, in the order in which they are hidden; from left to right by
            default.
        ax : matplotlib Axes, default=None
            Axes to draw on; None creates a new figure.
        **line_kw : object
            Keyword arguments of the curves, as for matplotlib's ``plot``.

        Returns
        -------
        ExpectedPredictionDisplay
            The display, after plotting: the expected prediction (of each target) with a band of one
            standard deviation due to the missing values, or the probability of each class.
        """
        check_is_fitted(estimator)
        schema, row = TableSchema.learn_and_encode(X)
        if len(row) != 1:
            raise ValueError(must("X", "be a single row", "Pass X[:1].", n_rows=len(row)))
        order = range(row.shape[1]) if order is None else column_indices(order, schema)
        hidden = np.repeat(row, len(order) + 1, axis=0)
        for step, column in enumerate(order, start=1):
            # Row i hides the first i columns: one table for all answers
            hidden[step:, column] = np.nan
        table = schema.decode(hidden)
        x = ["nothing", *(str(schema.names[j]) for j in order)]
        spreads = {}
        if is_classifier(estimator):
            answers = estimator.predict_proba(table)
            curves = {str(c): answers[:, i] for i, c in enumerate(estimator.classes_)}
        else:
            # The band shows what the hidden cells contribute, not the noise of the target
            answers = [part.T for part in estimator.predict(table, return_std=True)]
            names = ["prediction"]
            if answers[0].ndim == 2:
                names = [f"target {output}" for output in range(len(answers[0]))]
            curves, spreads = (dict(zip(names, np.atleast_2d(part))) for part in answers)
        ylabel = "probability" if is_classifier(estimator) else "prediction"
        xlabel = "hidden, from left to right"
        return cls(x, curves, spreads, xlabel=xlabel, ylabel=ylabel).plot(ax, **line_kw)

    def _draw(self, line_kw: dict[str, Any]) -> None:
        self.lines_, self.bands_ = [], []
        # Names of columns stand side by side, rates at their numbers
        places = np.arange(len(self.x)) if isinstance(self.x[0], str) else np.asarray(self.x)
        for label, heights in self.curves.items():
            self.lines_ += self.ax_.plot(
                places, heights, **{"marker": "o", "label": label, **line_kw}
            )
            if label in self.spreads:
                spread = self.spreads[label]
                band = self.ax_.fill_between(places, heights - spread, heights + spread, alpha=0.2)
                band.set_color(self.lines_[-1].get_color())
                self.bands_.append(band)
        if isinstance(self.x[0], str):
            self.ax_.set_xticks(places, self.x, rotation=45, ha="right")
        self.ax_.set(xlabel=self.xlabel, ylabel=self.ylabel)
        if len(self.curves) > 1:
            self.ax_.legend()


def _check_rates(rates: Sequence[float]) -> None:
    if not len(rates) or not all(0.0 <= rate <= 1.0 for rate in rates):
        raise ValueError(must("rates", "be fractions between 0 and 1", rates=rates))
