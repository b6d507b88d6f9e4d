"""Probabilities of linear inequalities between continuous variables.

Joint Gaussian units see linear forms of their variables as Gaussians again. Elsewhere, with two
variables, one is integrated over numerically while the other lies in the interval that is left:
between the points where pieces of densities begin and end, or bounds meet, Gauss-Legendre rules
are exact for polynomials and converge fast for Gaussians.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.polynomial.legendre import leggauss

from skcircuits.circuits.engine._passes import feedforward
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.inputs._gaussian_boxes import log_box_probability
from skcircuits.circuits.inputs.gaussian import GaussianLayer
from skcircuits.circuits.inputs.multivariate_gaussian import MultivariateGaussianLayer
from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import PiecewisePolynomialLayer
from skcircuits.circuits.inputs.restriction import Evidence, RestrictedGaussians, restrict
from skcircuits.circuits.queries._restricted import RestrictedCircuit
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.protocols import FloatArray

__all__ = ["LinearBound", "log_linear_probability"]

MAX_DIRECTIONS = 3
# Nodes between neighbouring breakpoints: exact for densities of degree 6 twice integrated
N_NODES = 16
# Ends of panels, in standard deviations, of a Gaussian and in mean excesses of a tail
PANELS = np.arange(-9.0, 9.5, 0.75)
TAIL_PANELS = np.concatenate([np.arange(0.0, 6.0, 0.5), np.arange(6.0, 42.0, 2.0)])


class LinearBound(NamedTuple):
    """``lower <= sum of factor * variable <= upper``; `factors` maps variables to factors."""

    factors: dict[int, float]
    lower: float
    upper: float


def log_linear_probability(plan: Plan, known: Evidence, bounds: list[LinearBound]) -> float:
    """Log probability of one row of evidence together with linear inequalities."""
    bounds = [_without_observed(bound, known) for bound in bounds]
    variables = sorted(set().union(*(bound.factors for bound in bounds)))
    touched = [
        (units, layer) for units, layer in plan.inputs if np.isin(layer.scopes, variables).any()
    ]
    is_joint = all(
        isinstance(layer, MultivariateGaussianLayer) and np.isin(variables, layer.variables).all()
        for _, layer in touched
    )
    if is_joint and _n_directions(known, variables, bounds) is not None:
        return _joint_probability(plan, known, bounds)
    if len(variables) == 1:
        return _one_variable(plan, known, bounds)
    if len(variables) == 2:
        return _integrate(plan, known, variables, bounds)
    raise CircuitPropertyError(
        must(
            "linear comparisons",
            "be about two columns, or about columns of one joint Gaussian in at most "
            f"{MAX_DIRECTIONS} directions",
            "Pass method='estimate' for an average over draws.",
            n_columns=len(variables),
        )
    )


def _without_observed(bound: LinearBound, known: Evidence) -> LinearBound:
    """Put observed values into a bound."""
    cells = {v: float(known.X[0, v]) for v in bound.factors if not np.isnan(known.X[0, v])}
    shift = sum(bound.factors[v] * cell for v, cell in cells.items())
    factors = {v: factor for v, factor in bound.factors.items() if v not in cells}
    return LinearBound(factors, bound.lower - shift, bound.upper - shift)


def _directions(known: Evidence, columns: list[int], bounds: list[LinearBound]) -> FloatArray:
    """Rows (r, n_columns + 2) of factors of columns, lower and upper end: bounds and intervals."""
    rows = []
    for bound in bounds:
        rows.append([*(bound.factors.get(c, 0.0) for c in columns), bound.lower, bound.upper])
    for place, column in enumerate(columns):
        low, high = (float(end[0]) for end in known.bounds(column))
        if np.isfinite(low) or np.isfinite(high):
            rows.append([*(float(i == place) for i in range(len(columns))), low, high])
    return np.array(rows)


def _n_directions(known: Evidence, columns: list[int], bounds: list[LinearBound]) -> int | None:
    """Number of independent directions, None where they are too many or not independent."""
    rows = _directions(known, columns, bounds)[:, :-2]
    n = len(rows)
    return n if n <= MAX_DIRECTIONS and np.linalg.matrix_rank(rows) == n else None


def _joint_probability(plan: Plan, known: Evidence, bounds: list[LinearBound]) -> float:
    """Gaussians of linear forms, within the pass over the circuit."""
    values = np.empty((plan.n_units, 1))
    variables = set().union(*(bound.factors for bound in bounds))
    for units, layer in plan.inputs:
        if (
            not isinstance(layer, MultivariateGaussianLayer)
            or not np.isin(list(variables), layer.variables).all()
        ):
            values[units] = restrict(layer, known).log_mass()
            continue
        nothing = np.full(known.X.shape, np.nan)
        group = RestrictedGaussians(layer, Evidence(known.X, Box(nothing, nothing))).group_of(0)
        columns = [int(layer.variables[place]) for place in group.free]
        rows = _directions(known, columns, bounds)
        if len(rows) > MAX_DIRECTIONS:
            condition = f"bound at most {MAX_DIRECTIONS} directions of one joint Gaussian"
            way_out = "Pass method='estimate' for an average over draws."
            raise CircuitPropertyError(must("linear comparisons", condition, way_out, n=len(rows)))
        factors, lower, upper = rows[:, :-2], rows[None, :, -2], rows[None, :, -1]
        means = group.means[:, 0] @ factors.T
        covariances = factors @ group.covariances @ factors.T
        log_mass = log_box_probability(GaussianStack(means, covariances), lower, upper)
        values[units] = layer.log_prob(known.X) + log_mass
    return float(feedforward(plan, values)[plan.root, 0])


def _one_variable(plan: Plan, known: Evidence, bounds: list[LinearBound]) -> float:
    """Bounds on a single variable, after observed values were put in."""
    lower, upper = known.box.lower.copy(), known.box.upper.copy()
    for bound in bounds:
        ((variable, factor),) = bound.factors.items()
        ends = sorted((bound.lower / factor, bound.upper / factor))
        lower[0, variable] = np.fmax(lower[0, variable], ends[0])
        upper[0, variable] = np.fmin(upper[0, variable], ends[1])
    box = Box(lower, upper, known.box.closed, known.box.states)
    return float(RestrictedCircuit(plan, Evidence(known.X, box)).log_mass()[0])


def _integrate(
    plan: Plan, known: Evidence, variables: list[int], bounds: list[LinearBound]
) -> float:
    """Integrate over the first variable; the second lies in what the bounds leave."""
    outer, inner = variables
    rows = _directions(known, variables, bounds)
    nodes, weights = _nodes(plan, outer, inner, rows)
    lower, upper = np.full(len(nodes), -np.inf), np.full(len(nodes), np.inf)
    possible = np.ones(len(nodes), dtype=bool)
    for first, second, low, high in rows:
        if second == 0.0:
            possible &= (first * nodes >= low) & (first * nodes <= high)
            continue
        ends = np.sort([(low - first * nodes) / second, (high - first * nodes) / second], axis=0)
        lower, upper = np.maximum(lower, ends[0]), np.minimum(upper, ends[1])
    kept = np.flatnonzero(possible & (lower < upper) & (weights > 0.0))
    if len(kept) == 0:
        return -np.inf
    cells = np.repeat(known.X, len(kept), axis=0)
    cells[:, outer] = nodes[kept]
    low, high = (np.repeat(end, len(kept), axis=0) for end in (known.box.lower, known.box.upper))
    low[:, outer] = high[:, outer] = np.nan
    low[:, inner], high[:, inner] = lower[kept], upper[kept]
    low[np.isinf(low)] = high[np.isinf(high)] = np.nan
    states = {j: np.repeat(own, len(kept), axis=0) for j, own in known.box.states.items()}
    box = Box(low, high, known.box.closed, states)
    log_mass = RestrictedCircuit(plan, Evidence(cells, box)).log_mass() + np.log(weights[kept])
    return float(np.logaddexp.reduce(log_mass))


def _nodes(plan: Plan, outer: int, inner: int, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of the outer variable, points with a mass of their own at the end."""
    breaks, atoms = _breakpoints(plan, outer)
    inner_breaks, inner_atoms = _breakpoints(plan, inner)
    marks = np.concatenate([inner_breaks, inner_atoms])
    found = [breaks]
    for i, (first, second, low, high) in enumerate(rows):
        for end in (low, high):
            if not np.isfinite(end) or first == 0.0:
                continue
            # Where the bound passes a breakpoint of the other variable, or another bound
            found.append((end - second * marks) / first)
            for other in rows[:i]:
                across = first * other[1] - second * other[0]
                if across != 0.0:
                    ends = other[2:][np.isfinite(other[2:])]
                    found.append((end * other[1] - second * ends) / across)
    edges = np.unique(np.concatenate(found))
    edges = edges[(edges >= breaks.min()) & (edges <= breaks.max())]
    points, weights = leggauss(N_NODES)
    widths = np.diff(edges)
    nodes = (edges[:-1, None] + widths[:, None] * (points + 1.0) / 2.0).ravel()
    weights = (widths[:, None] * weights / 2.0).ravel()
    # Points with a mass are no nodes of the density
    nodes = np.where(np.isin(nodes, atoms), np.nextafter(nodes, np.inf), nodes)
    return np.append(nodes, atoms), np.append(weights, np.ones(len(atoms)))


def _breakpoints(plan: Plan, variable: int) -> tuple[FloatArray, FloatArray]:
    """Points between which densities of a variable are smooth, and those with a mass."""
    breaks, atoms = [], [np.empty(0)]
    for _, layer in plan.inputs:
        own = np.flatnonzero((layer.scopes == variable).any(axis=1))
        if len(own) == 0:
            continue
        if isinstance(layer, GaussianLayer):
            breaks.append((layer.means[own, None] + layer.stds[own, None] * PANELS).ravel())
        elif isinstance(layer, MultivariateGaussianLayer):
            place = int(np.flatnonzero(layer.variables == variable)[0])
            std = np.sqrt(layer.gaussians.covariances[:, place, place])
            breaks.append((layer.gaussians.means[:, place, None] + std[:, None] * PANELS).ravel())
        elif isinstance(layer, PiecewisePolynomialLayer):
            for unit in own.tolist():
                ends = layer.pieces.breakpoints[unit]
                breaks.append(ends)
                for tail, sign in ((layer.pieces.first[unit], -1), (layer.pieces.last[unit], 1)):
                    if layer.pieces.masses[tail] > 0.0:
                        edge = layer.pieces.starts[tail]
                        breaks.append(edge + sign * TAIL_PANELS / layer.pieces.rates[tail])
            atoms += [group.atoms for group in layer.groups if group.variable == variable]
        else:
            raise CircuitPropertyError(
                must(
                    "linear comparisons",
                    "be about continuous columns, or about integer ones alone",
                    "Pass method='estimate' for an average over draws.",
                    family=type(layer).__name__,
                )
            )
    return np.unique(np.concatenate(breaks)), np.unique(np.concatenate(atoms))
