"""Brute force: circuits evaluated unit by unit and summed over every completion of a row.

Nothing here uses the package's plans or passes. Discrete variables are enumerated,
continuous ones integrated by the trapezoidal rule, which converges faster than any power of
the step for products of Gaussians.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import product

import numpy as np
from scipy.interpolate import BSpline
from scipy.stats import poisson

from skcircuits.circuits import (
    Circuit,
    Gaussian,
    JohnsonGaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Poisson,
    Product,
    Sum,
)
from skcircuits.circuits.structure.units import topological_order

# The trapezoidal rule errs by exp(-2 (π NODES_PER_STD)²), the ends by exp(-REACH² / 2).
NODES_PER_STD = 2.0
REACH = 8.0

# Rows and columns of one circuit are enumerated one after the other
_order = lru_cache(maxsize=8)(topological_order)


def unit_values(circuit: Circuit, X: np.ndarray) -> np.ndarray:
    """Value of the root at complete rows, by the definition of each unit, shape (n,)."""
    values: dict[int, np.ndarray] = {}
    points = _point_masses(circuit)
    for unit in _order(circuit.root):
        below = [values[id(child)] for child in unit.children]
        if isinstance(unit, Sum):
            values[id(unit)] = sum(w * value for w, value in zip(unit.weights, below))
        elif isinstance(unit, Product):
            values[id(unit)] = np.prod(below, axis=0)
        else:
            values[id(unit)] = leaf_values(unit, X)
        if isinstance(unit, PiecewisePolynomial):
            # Beside the mass of another unit, a density is nothing
            x = X[:, unit.variable]
            is_massive = np.isin(x, points[unit.variable]) & ~np.isin(x, unit.atoms)
            values[id(unit)] = np.where(is_massive, 0.0, values[id(unit)])
    return values[id(circuit.root)]


def _point_masses(circuit: Circuit) -> dict[int, np.ndarray]:
    """Points of each variable that have a mass under any unit."""
    points: dict[int, list[np.ndarray]] = {}
    for unit in _order(circuit.root):
        if isinstance(unit, PiecewisePolynomial):
            points.setdefault(unit.variable, []).append(unit.atoms)
    return {variable: np.concatenate(own) for variable, own in points.items()}


def leaf_values(unit, X: np.ndarray) -> np.ndarray:
    """Density or mass of an input unit at complete rows."""
    if isinstance(unit, Gaussian):
        deviations = (X[:, unit.variable] - unit.mean) / unit.std
        return np.exp(-0.5 * deviations**2) / (np.sqrt(2 * np.pi) * unit.std)
    if isinstance(unit, MultivariateGaussian):
        return _normal_densities(X[:, list(unit.variables)], unit.mean, unit.covariance)
    if isinstance(unit, JohnsonGaussian):
        # x = center + sinh(c z) / c, where z is normal; x = center + z without curvature
        offsets = X[:, list(unit.variables)] - unit.map.centers
        bent = unit.map.curvatures * offsets
        divisors = np.where(unit.map.curvatures > 0, unit.map.curvatures, 1.0)
        normal = np.where(unit.map.curvatures > 0, np.arcsinh(bent) / divisors, offsets)
        slopes = np.prod(np.sqrt(1.0 + bent**2), axis=1)
        return _normal_densities(normal, unit.normal.mean, unit.normal.covariance) / slopes
    if isinstance(unit, PiecewisePolynomial):
        return _piecewise_values(unit, X[:, unit.variable])
    if isinstance(unit, Poisson):
        return poisson.pmf(X[:, unit.variable], unit.rate)
    states = X[:, unit.variable].astype(int)
    masses = np.append(unit.probabilities, 0.0)
    return masses[np.minimum(states, unit.n_states)]


def _normal_densities(rows: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    deviations = rows - mean
    solved = np.linalg.solve(covariance, deviations.T).T
    _, log_determinant = np.linalg.slogdet(2 * np.pi * covariance)
    return np.exp(-0.5 * (deviations * solved).sum(axis=1) - 0.5 * log_determinant)


def _piecewise_values(unit: PiecewisePolynomial, x: np.ndarray) -> np.ndarray:
    """Masses at atoms, elsewhere densities of splines (scipy's) and exponential tails."""
    degree, (first, last) = unit.degree, unit.knots[[0, -1]]
    knots = np.concatenate([[first] * degree, unit.knots, [last] * degree])
    widths = knots[degree + 1 :] - knots[: -degree - 1]
    spline = BSpline(knots, unit.weights * (degree + 1) / widths, degree, extrapolate=False)
    values = np.nan_to_num(spline(x))
    for side, beyond in enumerate([first - x, x - last]):
        scale = unit.tail_scales[side]
        tail = unit.tail_masses[side] / scale * np.exp(-np.maximum(beyond, 0.0) / scale)
        values = np.where(beyond > 0, tail, values)
    for atom, mass in zip(unit.atoms, unit.atom_masses):
        values = np.where(x == atom, mass, values)
    return values


def unit_gradients(circuit: Circuit, X: np.ndarray) -> np.ndarray:
    """Gradient of the root at complete rows by the product rule, unit by unit, shape (n, d)."""
    values: dict[int, np.ndarray] = {}
    gradients: dict[int, np.ndarray] = {}
    for unit in _order(circuit.root):
        below = [values[id(child)] for child in unit.children]
        slopes = [gradients[id(child)] for child in unit.children]
        if isinstance(unit, Sum):
            values[id(unit)] = sum(w * value for w, value in zip(unit.weights, below))
            gradients[id(unit)] = sum(w * slope for w, slope in zip(unit.weights, slopes))
        elif isinstance(unit, Product):
            values[id(unit)] = np.prod(below, axis=0)
            gradients[id(unit)] = sum(
                slope * np.prod(below[:i] + below[i + 1 :], axis=0)[:, None]
                for i, slope in enumerate(slopes)
            )
        else:
            values[id(unit)] = leaf_values(unit, X)
            gradients[id(unit)] = values[id(unit)][:, None] * leaf_scores(unit, X)
    return gradients[id(circuit.root)]


def leaf_scores(unit, X: np.ndarray) -> np.ndarray:
    """Gradient of the log density of a Gaussian unit at complete rows, shape (n, d)."""
    joint = isinstance(unit, MultivariateGaussian)
    covariance = unit.covariance if joint else np.array([[unit.std**2]])
    own = list(unit.scope)
    scores = np.zeros(X.shape)
    scores[:, own] = -np.linalg.solve(covariance, (X[:, own] - unit.mean).T).T
    return scores


class Completions:
    """All completions of a row: nodes, quadrature weights and densities.

    Attributes
    ----------
    nodes : (n_nodes, n_columns), complete rows
    mass : (n_nodes,), quadrature weight times value of the circuit
    """

    def __init__(self, circuit: Circuit, x: np.ndarray) -> None:
        self.circuit = circuit
        self.row = x
        self.missing = [v for v in circuit.variables if np.isnan(x[v])]
        self._axes = [axis(circuit, v) for v in self.missing]

    @cached_property
    def nodes(self) -> np.ndarray:
        rows = np.tile(self.row, (int(np.prod([len(a) for a, _ in self._axes])), 1))
        if self.missing:
            rows[:, self.missing] = list(product(*(nodes for nodes, _ in self._axes)))
        return rows

    @cached_property
    def step(self) -> float:
        """Volume that belongs to a node."""
        return float(np.prod([step for _, step in self._axes]))

    @cached_property
    def mass(self) -> np.ndarray:
        return unit_values(self.circuit, self.nodes) * self.step

    @property
    def total(self) -> float:
        """Probability (density) of the observed cells."""
        return float(self.mass.sum())

    def expectation(self, function) -> np.ndarray:
        """E[function(row) | observed cells] for a function of rows (n, d) -> (n, ...)."""
        return np.tensordot(self.mass / self.total, function(self.nodes), axes=1)

    def best(self) -> float:
        """Largest density of a completion (discrete circuits)."""
        return float(self.mass.max())


def axis(circuit: Circuit, variable: int) -> tuple[np.ndarray, float]:
    """Nodes of one variable and their spacing (1 for states)."""
    if variable in circuit.cardinalities:
        return np.arange(circuit.cardinalities[variable], dtype=float), 1.0
    means, stds = [], []
    for unit in _order(circuit.root):
        if isinstance(unit, Gaussian) and unit.variable == variable:
            means.append(unit.mean)
            stds.append(unit.std)
        elif isinstance(unit, MultivariateGaussian) and variable in unit.variables:
            place = unit.variables.index(variable)
            means.append(unit.mean[place])
            # The narrowest conditional sets the step, the marginal the reach.
            stds.append(np.sqrt(unit.covariance[place, place]))
            stds.append(np.linalg.inv(unit.covariance)[place, place] ** -0.5)
    step = min(stds) / NODES_PER_STD
    reach = REACH * max(stds)
    nodes = np.arange(min(means) - reach, max(means) + reach, step)
    return nodes, step
