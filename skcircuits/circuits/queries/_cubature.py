"""Rules of integration over points, intervals and triangles, and draws from densities at nodes.

Gauss-Legendre rules over intervals, and conical product rules over the triangles of the cells into
which lines cut the plane (A. H. Stroud, "Approximate Calculation of Multiple Integrals", 1971,
section 2.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.polynomial.legendre import leggauss, legint, legval, legvander

from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Nodes between neighbouring edges: exact for densities of degree 6 twice integrated, and to
# all digits for the exponentials and Gaussians between the edges that families give.
N_NODES = 16
# Last coefficients of polynomials through nodes that are rounding, relative to the integral
TOLERANCE = 1e-10
# Nodes of each coordinate of a triangle: exact for three densities of degree 7
N_TRIANGLE_NODES = 12
_POINTS, _WEIGHTS = leggauss(N_NODES)
# From values at the nodes to the coefficients of the last two Legendre polynomials
_LAST_COEFFICIENTS = (
    (_WEIGHTS[:, None] * legvander(_POINTS, N_NODES - 1)) * (np.arange(N_NODES) + 0.5)
)[:, -2:]


class Rule(Protocol):
    """Nodes (n, k) in k variables and weights (n,)."""

    nodes: FloatArray
    weights: FloatArray

    def draw(self, masses: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n points (n, k) of a function with masses at the nodes, values times weights."""


class Atoms:
    """Single points (n, k)."""

    def __init__(self, points: FloatArray) -> None:
        self.nodes, self.weights = points, np.ones(len(points))

    def draw(self, masses: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw points in proportion to their masses."""
        return self.nodes[_choose(masses, n, rng)]


class Panels:
    """Intervals between ends (p, 2), of one variable; others may have fixed values.

    `fixed` (k,) holds these, NaN for the variable. Nodes avoid points with a mass.
    """

    def __init__(self, ends: FloatArray, atoms: FloatArray, fixed: Sequence[float]) -> None:
        self._starts, self._widths = ends[:, 0], np.diff(ends)[:, 0]
        nodes = (self._starts[:, None] + self._widths[:, None] * (_POINTS + 1.0) / 2.0).ravel()
        self._fixed = np.array(fixed)
        self.nodes = self._placed(_beside(nodes, atoms))
        self.weights = (self._widths[:, None] * _WEIGHTS / 2.0).ravel()

    def _placed(self, values: FloatArray) -> FloatArray:
        points = np.repeat(self._fixed[None], len(values), axis=0)
        points[:, np.isnan(self._fixed)] = values[:, None]
        return points

    def draw(self, masses: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw a panel, then a point in it."""
        panels = masses.reshape(-1, N_NODES)
        own = _choose(panels.sum(axis=1), n, rng)
        return self._placed(
            self._starts[own] + self._widths[own] * draw_from_nodes(panels[own], rng)
        )


class Triangles:
    """Triangles (n, 3, 2) in the plane.

    With corners a, b, c, points are a + u (b - a + v (c - b)), whose Jacobian is u times twice the
    area: another power of u.
    """

    def __init__(self, corners: FloatArray, atoms: tuple[FloatArray, FloatArray]) -> None:
        self._corners = corners
        points, weights = leggauss(N_TRIANGLE_NODES)
        u, weights = (points + 1.0) / 2.0, weights / 2.0
        sides = corners[:, 1:] - corners[:, :1]
        # Twice the area: the Jacobian for u = 1
        area = np.abs(sides[:, 0, 0] * sides[:, 1, 1] - sides[:, 0, 1] * sides[:, 1, 0])
        grid = np.stack(np.meshgrid(u, u, indexing="ij"), axis=-1).reshape(-1, 2)
        owners = np.repeat(np.arange(len(corners)), len(grid))
        self.nodes = self._points(owners, np.tile(grid, (len(corners), 1)))
        for column, own in enumerate(atoms):
            self.nodes[:, column] = _beside(self.nodes[:, column], own)
        self.weights = (area[:, None] * np.outer(weights * u, weights).ravel()).ravel()

    def _points(self, owners: IntArray, coordinates: FloatArray) -> FloatArray:
        a, b, c = np.moveaxis(self._corners[owners], 1, 0)
        u, v = coordinates.T[..., None]
        return a + u * (b - a + v * (c - b))

    def draw(self, masses: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw a triangle, then its coordinate u, then v given u."""
        tables = masses.reshape(-1, N_TRIANGLE_NODES, N_TRIANGLE_NODES)
        own = _choose(tables.sum(axis=(1, 2)), n, rng)
        u = draw_from_nodes(tables[own].sum(axis=2), rng)
        # The polynomials through the nodes of u, one for each node of v, at the drawn u
        points, _ = leggauss(N_TRIANGLE_NODES)
        degrees = np.arange(N_TRIANGLE_NODES)
        basis = legvander(points, N_TRIANGLE_NODES - 1) * (2 * degrees + 1)
        # Masses hold the weights of the nodes: Legendre coefficients are sums of them
        at_drawn = legvander(2.0 * u - 1.0, N_TRIANGLE_NODES - 1) @ basis.T  # (n, nodes of u)
        given = np.einsum("nu,nuv->nv", at_drawn, tables[own])
        v = draw_from_nodes(np.maximum(given, 0.0), rng)
        return self._points(own, np.stack([u, v], axis=1))


class Rules:
    """Several rules over disjoint parts."""

    def __init__(self, parts: Sequence[Rule]) -> None:
        self._parts = parts
        self.nodes = np.concatenate([part.nodes for part in parts])
        self.weights = np.concatenate([part.weights for part in parts])

    def draw(self, masses: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw from the parts in proportion to their masses, one part after the other."""
        ends = np.cumsum([len(part.weights) for part in self._parts])
        own = np.split(masses, ends[:-1])
        totals = np.array([mass.sum() for mass in own])
        counts = rng.multinomial(n, totals / totals.sum())
        drawn = [p.draw(m, int(k), rng) for p, m, k in zip(self._parts, own, counts) if k]
        return np.concatenate(drawn)


def draw_from_nodes(masses: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw from densities on [0, 1], given as masses (n, k) of Gauss-Legendre nodes.

    The distribution function is that of the polynomial through the nodes, inverted by bisection.
    """
    n_nodes = masses.shape[1]
    points, _ = leggauss(n_nodes)
    # Coefficients of Legendre polynomials, all twice as large
    coefficients = (masses @ legvander(points, n_nodes - 1)) * (2 * np.arange(n_nodes) + 1)
    integrals = legint(coefficients.T, lbnd=-1.0)
    targets = rng.random(len(masses)) * legval(np.ones(1), integrals)[:, 0]
    low, high = np.full(len(masses), -1.0), np.ones(len(masses))
    for _ in range(52):
        middle = (low + high) / 2.0
        below = legval(middle, integrals, tensor=False) < targets
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high + 2.0) / 4.0


def cut_plane(x_edges: FloatArray, y_edges: FloatArray, lines: FloatArray) -> FloatArray:
    """Triangles (n, 3, 2) of the cells of a grid that lines (k, 3), a x + b y = c, cut."""
    low, high = (
        np.array(np.meshgrid(x, y)).reshape(2, -1).T
        for x, y in ((x_edges[:-1], y_edges[:-1]), (x_edges[1:], y_edges[1:]))
    )
    cells = np.stack(
        [low, np.stack([high[:, 0], low[:, 1]], 1), high, np.stack([low[:, 0], high[:, 1]], 1)], 1
    )
    counts = np.full(len(cells), 4)
    for line in lines:
        # A line divides each convex cell into at most two convex ones
        cells, counts = _cut_cells(cells, counts, line)
    corners = np.arange(1, cells.shape[1] - 1)
    fans = np.stack(
        [np.repeat(cells[:, :1], len(corners), axis=1), cells[:, corners], cells[:, corners + 1]], 2
    )
    return fans[corners + 1 < counts[:, None]]


def _cut_cells(
    cells: FloatArray, counts: IntArray, line: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Cut convex cells (n, corners, 2), of which the first `counts` corners are meant, in two."""
    side = cells @ line[:2] - line[2]
    # Corners that earlier cuts put on the line lie on it only up to rounding
    size = np.abs(cells) @ np.abs(line[:2]) + abs(line[2])
    side[np.abs(side) <= 1e-13 * size] = 0.0
    is_corner = np.arange(cells.shape[1]) < counts[:, None]
    crossed = ((side > 0.0) & is_corner).any(axis=1) & ((side < 0.0) & is_corner).any(axis=1)
    if not crossed.any():
        return cells, counts
    halves = [_half(cells[crossed], counts[crossed], sign * side[crossed]) for sign in (1.0, -1.0)]
    width = max(cells.shape[1], *(half.shape[1] for half, _ in halves))
    parts = [(cells[~crossed], counts[~crossed]), *halves]
    padded = [np.pad(own, ((0, 0), (0, width - own.shape[1]), (0, 0))) for own, _ in parts]
    return np.concatenate(padded), np.concatenate([own for _, own in parts])


def _half(cells: FloatArray, counts: IntArray, side: FloatArray) -> tuple[FloatArray, IntArray]:
    """The part of each cell where `side`, given at its corners, is not negative."""
    corner = np.arange(cells.shape[1])
    is_corner = corner < counts[:, None]
    after = np.where(corner + 1 < counts[:, None], corner + 1, 0)
    next_side = np.take_along_axis(side, after, axis=1)
    next_corner = np.take_along_axis(cells, after[..., None], axis=1)
    is_cut = is_corner & (side * next_side < 0.0)
    step = np.where(is_cut, side / np.where(is_cut, side - next_side, 1.0), 0.0)
    crossing = cells + step[..., None] * (next_corner - cells)
    # Around the cell: each corner, then where the edge after it is cut
    around = np.stack([cells, crossing], axis=2).reshape(len(cells), -1, 2)
    kept = np.stack([is_corner & (side >= 0.0), is_cut], axis=2).reshape(len(cells), -1)
    n_kept = kept.sum(axis=1)
    order = np.argsort(~kept, axis=1, kind="stable")[:, : n_kept.max()]
    return np.take_along_axis(around, order[..., None], axis=1), n_kept


def _choose(masses: FloatArray, n: int, rng: np.random.Generator) -> IntArray:
    return rng.choice(len(masses), size=n, p=masses / masses.sum())


def _beside(nodes: FloatArray, atoms: FloatArray) -> FloatArray:
    """Nodes, moved away from points with a mass, where the density is ignored."""
    return np.where(np.isin(nodes, atoms), np.nextafter(nodes, np.inf), nodes)


def is_rough(ends: FloatArray, values: FloatArray) -> BoolArray:
    """In which panels (p, 2) the density of values (p, N_NODES) is no polynomial of its nodes."""
    density = np.exp(values - values.max(initial=-1e300))
    widths = np.diff(ends)[:, 0]
    last = np.abs(density @ _LAST_COEFFICIENTS).max(axis=1) * widths
    total = (density @ _WEIGHTS) @ widths / 2.0
    return (last > TOLERANCE * total) & (widths > 1e-12 * np.abs(ends).max(axis=1))


def log_weights(ends: FloatArray) -> FloatArray:
    """Logs of the weights of the nodes of panels (p, 2), (p, N_NODES)."""
    return np.log(np.diff(ends) * _WEIGHTS / 2.0)
