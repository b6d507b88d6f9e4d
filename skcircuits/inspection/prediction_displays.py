"""Displays of densities, and of predictions as values go missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from skcircuits.circuits import Circuit, PiecewisePolynomial, Product, Sum
from skcircuits.estimators.shared.queries._model_under_conditions import column_indices
from skcircuits.exceptions import invalid
from skcircuits.inspection._display import Display, check_has
from skcircuits.protocols import FloatArray
from skcircuits.tabular import TableSchema

N_GRID = 200
N_LEVELS = 8

_SCORE_NAMES = {r2_score: "R²", accuracy_score: "accuracy"}
RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(eq=False, repr=False)
class DensityDisplay(Display):
    """Marginal or conditional density of one or two columns of a table.

    The density of a numerical column is drawn as a curve, with stems for point masses and with a
    histogram of the rows if these are given. A categorical column is a bar chart. Two numerical
    columns are drawn by contours, a categorical and a numerical column by one curve per category,
    and two categorical columns by a heat map. Keyword arguments of ``plot`` style these artists, as
    for matplotlib's ``plot``, ``bar``, ``contourf`` or ``imshow``.

    Parameters
    ----------
    density : fitted density
        A density of this package with ``circuit_``.
    columns : str, int or list
        One or two columns.
    rows : dataframe or ndarray of shape (n, d), default=None
        Rows that determine the range, and the histogram behind a single curve.
    given : str, dict, Query or row, default=None
        Condition on any columns, as in ``probability`` of the density.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the drawing.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import WMISPNDensity
    >>> from skcircuits.inspection import DensityDisplay
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> display = DensityDisplay.from_estimator(WMISPNDensity().fit(X), X, columns=[1])
    >>> display.ax_.get_xlabel()
    'x1'
    """

    density: Any
    columns: str | int | Sequence[str | int]
    _: KW_ONLY
    rows: Any = None
    given: Any = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        columns: str | int | Sequence[str | int],
        given: Any = None,
        ax: Any = None,
        **artist_kw: Any,
    ) -> DensityDisplay:
        """Draw a fitted density.

        Parameters
        ----------
        estimator : fitted density
            A density of this package with ``circuit_``.
        X : dataframe or ndarray of shape (n, d), default=None
            Rows that determine the range, and the histogram behind a single curve. By default, the
            range is determined by draws from the density.
        y : Ignored
            Not used, present for API consistency by convention.
        columns : str, int or list
            One or two columns.
        given : str, dict, Query or row, default=None
            Condition on any columns, as in ``probability`` of the density.
        ax : matplotlib Axes, default=None
            Axes to draw on; None creates a new figure.
        **artist_kw : object
            Keyword arguments of the matplotlib artists, as for ``plot``, ``bar``, ``contourf`` or
            ``imshow``.

        Returns
        -------
        DensityDisplay
            The display, after plotting.
        """
        return cls(estimator, columns, rows=X, given=given).plot(ax, **artist_kw)

    def _draw(self, artist_kw: dict[str, Any]) -> None:
        kinds = [column.categories is not None for column in self._schema.columns]
        drawings = {
            (True,): self._draw_bars,
            (False,): self._draw_curve,
            (True, True): self._draw_heat_map,
            (False, False): self._draw_contours,
        }
        # One categorical and one numerical column, in any order, are the remaining case
        drawings.get(tuple(kinds), self._draw_curves)(artist_kw)

    def _prepare(self) -> None:
        """Condition the density, and find the ranges of what is drawn."""
        self._circuit = _circuit_of(self.density)
        self._conditional = self.density.marginal(self.columns, given=self.given)
        self._positions = self._conditional._columns
        if len(self._positions) > 2:
            raise invalid("columns", "be one or two", columns=self.columns)
        self._schema = self._conditional._schema
        if self.rows is None:
            # Without rows the range of a column is that of draws
            drawn = self._conditional.sample(1000, random_state=0)
            self._X = self._schema.encode(drawn)
        else:
            self._X = self.density._read_table(self.rows)[:, self._positions]

    def _density(self, *cells: Any) -> Any:
        """Conditional density at values of the columns, of the broadcast shape."""
        cells = np.broadcast_arrays(*cells)
        rows = self._schema.decode(np.column_stack([values.ravel() for values in cells]))
        return np.exp(self._conditional.score_samples(rows)).reshape(cells[0].shape)

    def _grid(self, which: int, n: int = N_GRID) -> Any:
        """Points over a column's range, off its point masses."""
        low, high = np.nanmin(self._X[:, which]), np.nanmax(self._X[:, which])
        padding = 0.05 * (high - low) or 1.0
        grid = np.linspace(low - padding, high + padding, n)
        # A grid point on a point mass would show a probability as a density
        return np.where(np.isin(grid, self._atoms(which)), np.nextafter(grid, np.inf), grid)

    def _atoms(self, which: int) -> Any:
        return self.density._point_masses(self._positions[which])

    def _name(self, which: int) -> str:
        return self._schema.columns[which].text_name

    def _labels(self, which: int) -> list[str]:
        return [str(label) for label in self._schema.categories[which]]

    def _draw_curve(self, line_kw: dict[str, Any]) -> None:
        grid, atoms = self._grid(0), self._atoms(0)
        seen = self._X[~np.isnan(self._X[:, 0]), 0]
        # Rows show the marginal distribution, which no condition has
        if self.rows is not None and self.given is None:
            counts, edges = np.histogram(seen[~np.isin(seen, atoms)], bins=40)
            heights = counts / max(1, len(seen)) / np.diff(edges)
            self.ax_.stairs(heights, edges, fill=True, alpha=0.3, label="rows")
        self.ax_.plot(grid, self._density(grid), **{"label": "density", **line_kw})
        if len(atoms):
            # Probabilities have an axis of their own: beside densities they mean nothing
            stems = self.ax_.twinx()
            stems.stem(atoms, self._density(atoms), linefmt="C1-", markerfmt="C1o", basefmt=" ")
            stems.set(ylabel="point mass", ylim=(0, 1))
        self.ax_.set(xlabel=self._name(0), ylabel="density")
        self.ax_.legend()

    def _draw_bars(self, bar_kw: dict[str, Any]) -> None:
        labels = self._labels(0)
        self.ax_.bar(labels, self._density(np.arange(float(len(labels)))), **bar_kw)
        self.ax_.set(xlabel=self._name(0), ylabel="probability")

    def _draw_curves(self, line_kw: dict[str, Any]) -> None:
        """Curves of the one numerical column, for each category of the other."""
        label_at = int(self._schema.columns[1].categories is not None)
        grid = self._grid(1 - label_at)
        for code, label in enumerate(self._labels(label_at)):
            cells = [grid, np.full(len(grid), float(code))]
            heights = self._density(*(cells[::-1] if label_at == 0 else cells))
            self.ax_.plot(grid, heights, **{"label": label, **line_kw})
        self.ax_.set(xlabel=self._name(1 - label_at), ylabel="joint density")
        self.ax_.legend(title=self._name(label_at))

    def _draw_contours(self, contour_kw: dict[str, Any]) -> None:
        # Coarser than curves: the density is asked at all pairs
        x, y = self._grid(0, N_GRID // 2), self._grid(1, N_GRID // 2)
        heights = self._density(x, y[:, None])
        # Levels that hold equal fractions of the drawn mass
        ordered = np.sort(heights.ravel())[::-1]
        mass = np.cumsum(ordered) / ordered.sum()
        fractions = np.linspace(0.95, 0.05, N_LEVELS)
        # Equal heights have one level; a flat density has none to draw
        levels = np.unique(ordered[np.searchsorted(mass, fractions).clip(max=len(mass) - 1)])
        self.ax_.set(xlabel=self._name(0), ylabel=self._name(1))
        if len(levels) > 1:
            style = {"levels": levels, "extend": "max", **contour_kw}
            shades = self.ax_.contourf(x, y, heights, **style)
            unit = f"density per unit of {self._name(0)} and of {self._name(1)}"
            self.figure_.colorbar(shades, ax=self.ax_, label=unit, format="%.2g")

    def _draw_heat_map(self, image_kw: dict[str, Any]) -> None:
        rows, columns = self._labels(1), self._labels(0)
        codes = np.arange(float(len(columns))), np.arange(float(len(rows)))[:, None]
        style = {"origin": "lower", "aspect": "auto", "vmin": 0, **image_kw}
        image = self.ax_.imshow(self._density(*codes), **style)
        self.figure_.colorbar(image, ax=self.ax_, label="probability")
        self.ax_.set_xticks(range(len(columns)), columns)
        self.ax_.set_yticks(range(len(rows)), rows)
        self.ax_.set(xlabel=self._name(0), ylabel=self._name(1))


def describe_density(density: Any) -> str:
    """Describe the structure of a density in words.

    Parameters
    ----------
    density : fitted density
        A density of this package with ``circuit_``.

    Returns
    -------
    str
        Description of the groups of independent columns, with the numbers of their parts, and of
        the families of input units.

    Raises
    ------
    ValueError
        If the density has no circuit.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import WMISPNDensity
    >>> from skcircuits.inspection import describe_density
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> print(describe_density(WMISPNDensity(n_bins=1, max_degree=2).fit(X)))
    2 independent groups of columns
      x0: 1 leaf
      x1: 1 leaf
    input units: 2 PiecewisePolynomial (degree 2: 2)
    """
    circuit = _circuit_of(density)
    names = [column.text_name for column in density._schema.columns]
    root = circuit.root
    # A product at the root is independence of its factors; all other structure is within groups
    groups = root.children if isinstance(root, Product) else (root,)
    lines = [f"{len(groups)} independent groups of columns"] if len(groups) > 1 else []
    for group in groups:
        parts = f"mixture of {len(group.children)}" if isinstance(group, Sum) else "1 leaf"
        lines.append(f"  {', '.join(names[j] for j in group.scope)}: {parts}")
    leaves = [unit for unit in circuit.plan.units if not unit.children]
    families = Counter(type(unit).__name__ for unit in leaves)
    degrees = Counter(u.degree for u in leaves if isinstance(u, PiecewisePolynomial))
    shown = [f"{count} {name}" for name, count in sorted(families.items())]
    if degrees:
        orders = ", ".join(f"degree {degree}: {n}" for degree, n in sorted(degrees.items()))
        shown[-1] += f" ({orders})"
    return "\n".join([*lines, f"input units: {', '.join(shown)}"])


def _circuit_of(density: Any) -> Circuit:
    """Give the circuit of a fitted density, or say where else to look."""
    way_out = "Use a density that learns a circuit, such as HiddenChowLiuDensity."
    if hasattr(density, "to_circuit"):
        way_out = "Its to_circuit() gives a circuit; draw that with CircuitDisplay."
    check_has(density, "circuit_", way_out)
    if not hasattr(density, "_schema"):
        condition = "be one of this package, which know their columns"
        way_out = "Draw the circuit_ of another one with CircuitDisplay."
        raise invalid("A density to inspect", condition, way_out, density=density)
    return density.circuit_


@dataclass(eq=False, repr=False)
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
    >>> model = ExpectedPredictionRegressor(RidgeCV(), random_state=0).fit(X[:100], y[:100])
    >>> display = ExpectedPredictionDisplay.from_row(model, X[:1])
    >>> len(display.x)
    11
    """

    x: Sequence[float] | Sequence[str]
    curves: Mapping[str, FloatArray]
    spreads: Mapping[str, FloatArray] | None = None
    _: KW_ONLY
    xlabel: str = ""
    ylabel: str = ""

    def __post_init__(self) -> None:
        self.spreads = self.spreads or {}
        for name, heights in {**self.curves, **self.spreads}.items():
            if len(heights) != len(self.x):
                condition = f"have one height for each of the {len(self.x)} places of x"
                raise invalid(f"curve {name!r}", condition, n_heights=len(heights))

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
                raise invalid("y_pred", condition, shape=np.shape(by_model[name]))
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
            raise invalid("X", "be a single row", "Pass X[:1].", n_rows=len(row))
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
        raise invalid("rates", "be fractions between 0 and 1", rates=rates)
