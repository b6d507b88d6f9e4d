"""A circuit as a drawing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any, Literal

from skcircuits.circuits import Circuit, Product, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.exceptions import must
from skcircuits.inspection._axes import make_axes
from skcircuits.inspection._layered_graph import layered_positions

__all__ = ["CircuitDisplay"]

# Circuits up to this many units are drawn unit by unit.
SMALL = 60
# Regions up to this many are labelled with their variables.
FEW_REGIONS = 40
#: Background of text that lies on lines.
WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}


class CircuitDisplay:
    """Drawing of a circuit: its units, or its regions when there are many.

    A *region* is the set of all units with one scope. It is drawn as a disk whose area grows
    with the number of its units, above the regions its products are made of.

    Create one with :meth:`from_circuit`.

    Parameters
    ----------
    circuit : Circuit
        What to draw.
    detail : {"auto", "units", "regions"}, default="auto"
        "auto" draws the units of circuits with up to 60 units and the regions of larger ones.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Axes with the drawing.
    figure_ : matplotlib.figure.Figure
        Its figure.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.inspection import CircuitDisplay
    >>> circuit = Circuit(0.3 * Bernoulli(0, 0.1) + 0.7 * Bernoulli(0, 0.6))
    >>> CircuitDisplay.from_circuit(circuit).ax_.get_title()
    '1 variable, 3 units'
    """

    def __init__(
        self, circuit: Circuit, *, detail: Literal["auto", "units", "regions"] = "auto"
    ) -> None:
        if detail not in ("auto", "units", "regions"):
            raise ValueError(must("detail", "be 'auto', 'units' or 'regions'", detail=detail))
        if not isinstance(circuit, Circuit):
            owner = "Pass its circuit_." if hasattr(circuit, "circuit_") else ""
            way_out = owner or "Circuit(unit) makes one of its root unit."
            raise TypeError(must("circuit", "be a Circuit", way_out, circuit=circuit))
        self.circuit = circuit
        self.detail = detail

    @classmethod
    def from_circuit(
        cls,
        circuit: Circuit,
        *,
        detail: Literal["auto", "units", "regions"] = "auto",
        ax: Any = None,
    ) -> CircuitDisplay:
        """Draw a circuit.

        Parameters
        ----------
        circuit : Circuit
            What to draw.
        detail : {"auto", "units", "regions"}, default="auto"
            What the nodes of the drawing are.
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; a new figure by default.

        Returns
        -------
        CircuitDisplay
            The display, already plotted.
        """
        return cls(circuit, detail=detail).plot(ax=ax)

    def plot(self, ax: Any = None) -> CircuitDisplay:
        """Draw on axes.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; a new figure by default.

        Returns
        -------
        CircuitDisplay
            The display itself.
        """
        self.ax_ = ax = make_axes(ax)
        self.figure_ = ax.figure
        small = self.circuit.n_units <= SMALL
        if self.detail == "units" or (self.detail == "auto" and small):
            _draw_units(ax, self.circuit)
        else:
            _draw_regions(ax, self.circuit)
        n_variables = len(self.circuit.variables)
        variables = f"{n_variables} variable" + "s" * (n_variables != 1)
        ax.set_title(f"{variables}, {self.circuit.n_units} units")
        ax.set_axis_off()
        ax.margins(0.1)
        return self


def _draw_units(ax: Any, circuit: Circuit) -> None:
    """Every unit as a node, weights on the edges below sums."""
    units = list(reversed(circuit.plan.units))
    places = layered_positions({id(u): [id(child) for child in u.children] for u in units})
    for unit in units:
        x, y = places[id(unit)]
        weights = unit.weights if isinstance(unit, Sum) else [None] * len(unit.children)
        for child, weight in zip(unit.children, weights):
            below = places[id(child)]
            ax.plot([x, below[0]], [y, below[1]], color="0.6", linewidth=1, zorder=1)
            if weight is not None:
                middle = (0.5 * (x + below[0]), 0.5 * (y + below[1]))
                ax.annotate(
                    f"{weight:.2g}", middle, ha="center", va="center", fontsize=7, bbox=WHITE
                )
        round_box = {"boxstyle": "round", "facecolor": _color(unit), "edgecolor": "0.3"}
        ax.annotate(
            _label(unit), (x, y), ha="center", va="center", fontsize=8, bbox=round_box, zorder=2
        )
    _cover(ax, places.values())


def _label(unit: Unit) -> str:
    """+, ×, or the family and the variables."""
    if isinstance(unit, Sum):
        return "+"
    if isinstance(unit, Product):
        return "×"
    return f"{type(unit).__name__}\n{_variables(unit.scope)}"


def _color(unit: Unit) -> str:
    return "#fff3d6" if isinstance(unit, Sum) else "#dbe9f6" if unit.children else "#e6f2e1"


def _draw_regions(ax: Any, circuit: Circuit) -> None:
    """Every scope as a disk, joined to the scopes that products split it into."""
    sizes = Counter(unit.scope for unit in circuit.plan.units)
    below: dict[Hashable, dict[Hashable, None]] = {
        scope: {} for scope in sorted(sizes, key=len, reverse=True)
    }
    for unit in circuit.plan.units:
        for child in unit.children:
            if child.scope != unit.scope:
                below[unit.scope][child.scope] = None
    places = layered_positions({scope: list(parts) for scope, parts in below.items()})
    for scope, parts in below.items():
        for part in parts:
            x, y = zip(places[scope], places[part])
            ax.plot(x, y, color="0.7", linewidth=1, zorder=1)
    x, y = zip(*(places[scope] for scope in sizes))
    ax.scatter(x, y, s=[20 + 2 * size for size in sizes.values()], color="#4878a8", zorder=2)
    if len(sizes) <= FEW_REGIONS:
        for scope, size in sizes.items():
            text = f"{_variables(scope)}\n{size} unit" + "s" * (size != 1)
            ax.annotate(
                text,
                places[scope],
                xytext=(0, -12),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=7,
                bbox=WHITE,
            )
    _cover(ax, places.values())


def _cover(ax: Any, places: Any) -> None:
    """Let the axes cover all nodes: annotations alone do not."""
    x, y = zip(*places)
    ax.update_datalim(list(zip(x, y)))
    ax.autoscale_view()


def _variables(scope: tuple[int, ...]) -> str:
    """Variables of a scope; only the ends of a long one."""
    if len(scope) <= 4:
        return ", ".join(f"$x_{{{variable}}}$" for variable in scope)
    return f"$x_{{{scope[0]}}}$, ..., $x_{{{scope[-1]}}}$ ({len(scope)})"
