"""Displays of fitted models: structures, learning curves, and parts that samples misrepresent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.circuits import Circuit
from skcircuits.circuits._formats import COLORS, SMALL, Drawing, draw_regions, draw_units
from skcircuits.exceptions import invalid, must, require_choice
from skcircuits.inspection._display import Display, check_has, fit_labels, make_axes
from skcircuits.protocols import FloatArray
from skcircuits.stein import SteinDiagnosis, stein_diagnosis

# Regions up to this many are labelled with their variables.
FEW_REGIONS = 40
# Background of text that lies on lines.
WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}

# Adjusted p-values below this are marked.
LEVEL = 0.05
# Bars that fit under each other; those of least excess are left out.
MAX_PARTS = 40


@dataclass(eq=False, repr=False)
class CircuitDisplay(Display):
    """Drawing of a circuit: its units, or its regions if there are many units.

    A *region* is the set of all units with the same scope. It is drawn as a disk, whose area grows
    with the number of its units, above the regions of the factors of its products.

    Create one with :meth:`from_circuit` or, for a fitted density, :meth:`from_estimator`. If the
    axes are too small for all labels, the labels are shrunk, and labels that would not be readable
    are omitted. Keyword arguments of ``plot`` style the edges, as for matplotlib's ``plot``.

    Parameters
    ----------
    circuit : Circuit
        The circuit to draw.
    detail : {"auto", "units", "regions"}, default="auto"
        "auto" draws the units of circuits with up to 60 units and the regions of larger ones.
    feature_names : sequence of str, default=None
        Name of each variable; x0, x1, ... by default.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Axes with the drawing.
    figure_ : matplotlib.figure.Figure
        Figure that contains the axes.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.inspection import CircuitDisplay
    >>> circuit = Circuit(0.3 * Bernoulli(0, 0.1) + 0.7 * Bernoulli(0, 0.6))
    >>> CircuitDisplay.from_circuit(circuit).ax_.get_title()
    '1 variable, 3 units'
    """

    circuit: Circuit
    _: KW_ONLY
    detail: Literal["auto", "units", "regions"] = "auto"
    feature_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        require_choice("auto", "units", "regions", detail=self.detail)
        circuit, names = self.circuit, self.feature_names
        if not isinstance(circuit, Circuit):
            owner = "Pass its circuit_." if hasattr(circuit, "circuit_") else ""
            way_out = owner or "Circuit(unit) makes one of its root unit."
            raise TypeError(must("circuit", "be a Circuit", way_out, circuit=circuit))
        # Names stand at the indices of variables, of which a circuit may leave some out
        if names is not None and len(names) <= max(circuit.variables):
            condition = f"name all variables up to {max(circuit.variables)}"
            raise invalid("feature_names", condition, feature_names=names)

    @classmethod
    def from_circuit(
        cls,
        circuit: Circuit,
        *,
        detail: Literal["auto", "units", "regions"] = "auto",
        feature_names: Sequence[str] | None = None,
        ax: Any = None,
    ) -> CircuitDisplay:
        """Draw a circuit.

        Parameters
        ----------
        circuit : Circuit
            The circuit to draw.
        detail : {"auto", "units", "regions"}, default="auto"
            Whether the nodes of the drawing are units or regions.
        feature_names : sequence of str, default=None
            Name of each variable; x0, x1, ... by default.
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; a new figure by default.

        Returns
        -------
        CircuitDisplay
            The display, after plotting.
        """
        return cls(circuit, detail=detail, feature_names=feature_names).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, detail: Literal["auto", "units", "regions"] = "auto", ax: Any = None
    ) -> CircuitDisplay:
        """Draw the circuit of a fitted density, with the names of its columns.

        Parameters
        ----------
        estimator : fitted density or imputer
            A fitted estimator with ``circuit_``.
        detail : {"auto", "units", "regions"}, default="auto"
            Whether the nodes of the drawing are units or regions.
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; a new figure by default.

        Returns
        -------
        CircuitDisplay
            The display, after plotting.
        """
        check_has(estimator, "circuit_", "Use a density that learns a circuit.")
        names = getattr(estimator, "feature_names_in_", None)
        names = None if names is None else list(names)
        return cls.from_circuit(estimator.circuit_, detail=detail, feature_names=names, ax=ax)

    def _prepare(self) -> tuple[float, float]:
        # Boxes of hundreds of units could not be read: regions can
        small = self.circuit.n_units <= SMALL
        self._has_units = self.detail == "units" or (self.detail == "auto" and small)
        draw = draw_units if self._has_units else draw_regions
        self._drawing = draw(self.circuit.plan, self.feature_names)
        widest = max(Counter(node.y for node in self._drawing.nodes).values())
        letters = max(len(line) for node in self._drawing.nodes for line in node.label.split("\n"))
        depth = 1.0 - min(node.y for node in self._drawing.nodes)
        # Between the default of matplotlib and what a screen shows
        return min(max(6.4, widest * (0.3 + 0.08 * letters)), 24.0), min(
            max(3.0, 1.2 * depth), 20.0
        )

    def _draw(self, line_kw: dict[str, Any]) -> None:
        n_variables = len(self.circuit.variables)
        variables = f"{n_variables} variable" + "s" * (n_variables != 1)
        self.ax_.set_title(f"{variables}, {self.circuit.n_units} units")
        self.ax_.set_axis_off()
        self.ax_.margins(0.1)
        # Edges are drawn first: boxes and disks lie on their ends
        for i, j, _ in self._drawing.edges:
            upper, lower = self._drawing.nodes[i], self._drawing.nodes[j]
            style = {"color": "0.65", "linewidth": 1, "zorder": 1, **line_kw}
            self.ax_.plot([upper.x, lower.x], [upper.y, lower.y], **style)
        (_plot_units if self._has_units else _plot_regions)(self.ax_, self._drawing)


def _plot_units(ax: Any, drawing: Drawing) -> None:
    """Every unit as a box; weights where edges are further apart, near their lower ends."""
    boxes = []
    for node in drawing.nodes:
        style = {"boxstyle": "round", "facecolor": COLORS[node.kind], "edgecolor": "0.3"}
        centred = {"ha": "center", "va": "center", "zorder": 3}
        boxes.append(ax.text(node.x, node.y, node.label, fontsize=8, bbox=style, **centred))
    weights = []
    for i, j, weight in drawing.edges:
        if weight is not None:
            upper, lower = drawing.nodes[i], drawing.nodes[j]
            x, y = 0.4 * upper.x + 0.6 * lower.x, 0.4 * upper.y + 0.6 * lower.y
            centred = {"ha": "center", "va": "center", "zorder": 2}
            weights.append(ax.text(x, y, f"{weight:.2g}", fontsize=7, bbox=WHITE, **centred))
    # What stays where labels are left out
    x, y = zip(*((node.x, node.y) for node in drawing.nodes))
    ax.scatter(x, y, s=12, color="0.4", zorder=2)
    fit_labels(ax, boxes, weights)


def _plot_regions(ax: Any, drawing: Drawing) -> None:
    """Every scope as a disk, with its variables below unless there are many."""
    x, y = zip(*((node.x, node.y) for node in drawing.nodes))
    ax.scatter(x, y, s=[20 + 2 * node.size for node in drawing.nodes], color="#4878a8", zorder=2)
    if len(drawing.nodes) <= FEW_REGIONS:
        below = {"ha": "center", "va": "top", "fontsize": 7, "bbox": WHITE}
        # In points, so that labels keep their distance from disks at any scale of the axes
        shift = {"xytext": (0, -12), "textcoords": "offset points"}
        fit_labels(ax, [ax.annotate(n.label, (n.x, n.y), **shift, **below) for n in drawing.nodes])


@dataclass(eq=False, repr=False)
class EdgeMarginalsDisplay:
    """Probabilities that pairs of columns are edges, as a heat map or as a graph.

    Parameters
    ----------
    edge_marginals : ndarray of shape (n_columns, n_columns)
        Probability of every edge.
    feature_names : sequence of str
        Names of the columns.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the heat map or graph.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.inspection import EdgeMarginalsDisplay
    >>> edges = np.array([[0.0, 1.0, 0.3], [1.0, 0.0, 0.7], [0.3, 0.7, 0.0]])
    >>> display = EdgeMarginalsDisplay(edges, ["a", "b", "c"]).plot(kind="graph")
    >>> len(display.ax_.lines)
    3
    """

    edge_marginals: FloatArray
    feature_names: Sequence[str]

    def __post_init__(self) -> None:
        self.edge_marginals = np.asarray(self.edge_marginals, dtype=float)
        n_columns = len(self.feature_names)
        if self.edge_marginals.shape != (n_columns, n_columns):
            condition = f"be a probability for each pair of the {n_columns} columns"
            raise invalid("edge_marginals", condition, shape=self.edge_marginals.shape)

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, kind: str = "heatmap", ax: Any = None, **artist_kw: Any
    ) -> EdgeMarginalsDisplay:
        """Draw the edges of a fitted `MoATDensity`.

        Parameters
        ----------
        estimator : MoATDensity
            A fitted density. Several components are averaged by their weights.
        kind : {"heatmap", "graph"}, default="heatmap"
            Kind of picture.
        ax : matplotlib Axes, default=None
            Axes to draw on; None creates a new figure.
        **artist_kw : object
            Keyword arguments of the heat map, as for matplotlib's ``imshow``, or of the lines, as
            for ``plot``.

        Returns
        -------
        EdgeMarginalsDisplay
            The display, after plotting.
        """
        require_choice("heatmap", "graph", kind=kind)
        check_has(estimator, "edge_marginals_", "Use a MoATDensity, a mixture over all trees.")
        # Of a mixture of several components: the mean over these
        edges = np.tensordot(estimator.weights_, estimator.edge_marginals_, axes=1)
        default = [f"x{column}" for column in range(len(edges))]
        names = getattr(estimator, "feature_names_in_", default)
        return cls(edges, list(names)).plot(kind, ax, **artist_kw)

    def plot(self, kind: str = "heatmap", ax: Any = None, **artist_kw: Any) -> EdgeMarginalsDisplay:
        """Draw.

        Parameters
        ----------
        kind : {"heatmap", "graph"}, default="heatmap"
            A heat map, or the columns on a circle, connected by lines whose width is proportional
            to the probability of the edge.
        ax : matplotlib Axes, default=None
            Axes to draw on; None creates a new figure.
        **artist_kw : object
            Keyword arguments of the heat map, as for matplotlib's ``imshow``, or of the lines, as
            for ``plot``.

        Returns
        -------
        EdgeMarginalsDisplay
            The display.

        Raises
        ------
        ValueError
            If `kind` is not one of these.
        """
        require_choice("heatmap", "graph", kind=kind)
        self.ax_ = make_axes(ax)
        self.figure_ = self.ax_.figure
        (self._draw_graph if kind == "graph" else self._draw_heatmap)(artist_kw)
        return self

    def _draw_heatmap(self, image_kw: dict[str, Any]) -> None:
        # Probabilities have one scale, whatever the largest is: pictures can be compared
        style = {"cmap": "Blues", "vmin": 0, "vmax": 1, **image_kw}
        image = self.ax_.imshow(self.edge_marginals, **style)
        places = range(len(self.feature_names))
        self.ax_.set_xticks(places, self.feature_names, rotation=90)
        self.ax_.set_yticks(places, self.feature_names)
        self.figure_.colorbar(image, ax=self.ax_, label="probability of the edge", shrink=0.8)

    def _draw_graph(self, line_kw: dict[str, Any]) -> None:
        n_columns = len(self.feature_names)
        angles = 2 * np.pi * np.arange(n_columns) / n_columns
        points = np.column_stack([np.cos(angles), np.sin(angles)])
        for u, v in zip(*np.triu_indices(n_columns, 1), strict=True):
            # Half transparent: lines of a dense graph cross
            style = {"color": "C0", "alpha": 0.7, **line_kw}
            self.ax_.plot(*points[[u, v]].T, linewidth=8 * self.edge_marginals[u, v], **style)
        self.ax_.scatter(*points.T, s=200, color="white", edgecolor="black", zorder=2)
        for name, point in zip(self.feature_names, points, strict=True):
            side = "center" if abs(point[0]) < 0.1 else "left" if point[0] > 0 else "right"
            self.ax_.annotate(name, 1.15 * point, ha=side, va="center")
        self.ax_.set(xlim=(-1.8, 1.8), ylim=(-1.4, 1.4), aspect="equal")
        self.ax_.axis("off")


@dataclass(eq=False, repr=False)
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

    diagnosis: SteinDiagnosis

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
            raise invalid("estimator to inspect", condition, way_out, estimator=estimator)
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


@dataclass(eq=False, repr=False)
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

    loss_curve: Sequence[float]
    validation_scores: Sequence[float] = ()
    _: KW_ONLY
    step: str = "pass over the rows"

    def __post_init__(self) -> None:
        if not len(self.loss_curve) and not len(self.validation_scores):
            raise invalid("loss_curve", "hold a loss per pass", loss_curve=self.loss_curve)

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
