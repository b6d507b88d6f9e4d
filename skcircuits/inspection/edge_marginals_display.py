"""Edges of a mixture over all trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from skcircuits.exceptions import must, require_choice
from skcircuits.inspection._display import check_has, make_axes
from skcircuits.protocols import FloatArray


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

    def __init__(self, edge_marginals: FloatArray, feature_names: Sequence[str]) -> None:
        edge_marginals = np.asarray(edge_marginals, dtype=float)
        n_columns = len(feature_names)
        if edge_marginals.shape != (n_columns, n_columns):
            condition = f"be a probability for each pair of the {n_columns} columns"
            raise ValueError(must("edge_marginals", condition, shape=edge_marginals.shape))
        self.edge_marginals = edge_marginals
        self.feature_names = feature_names

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
