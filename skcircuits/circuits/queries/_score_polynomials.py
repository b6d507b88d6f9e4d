"""Distribution of a sum of integer scores of single variables, by a pass with polynomial values.

The value of an input unit is the polynomial whose coefficient of z^s is the probability that its
variable is where the score is s; products multiply polynomials, sums add them. The root's
coefficients are the probabilities of all totals at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skcircuits.circuits.engine._layers import ProductLayer, SumLayer
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.inputs.restriction import Evidence, restrict
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["MAX_DEGREE", "Scores", "log_score_distribution"]

# Coefficients of a polynomial before a query is refused
MAX_DEGREE = 4096


@dataclass(frozen=True)
class Scores:
    """Scores of one variable: disjoint parts of its values, with an integer from 0 on each.

    Parts are closed intervals, `lower` and `upper` of shape (n_parts,), NaN where unbounded, or
    sets of states, `states` of shape (n_parts, n_states).
    """

    points: IntArray
    lower: FloatArray
    upper: FloatArray
    states: np.ndarray | None = None


def log_score_distribution(plan: Plan, known: Evidence, scores: dict[int, Scores]) -> FloatArray:
    """Log probability of one row of evidence together with each total, shape (degree + 1,)."""
    degree = sum(int(own.points.max(initial=0)) for own in scores.values())
    if degree > MAX_DEGREE:
        way_out = "Ask about fewer columns, or count which of them exceed a bound."
        condition = f"have at most {MAX_DEGREE} different values"
        raise CircuitPropertyError(must("a sum of columns", condition, way_out, n=degree))
    polynomials = _Polynomials(plan.n_units, degree)
    parts = _parts(known, scores)
    for units, layer in plan.inputs:
        log_masses = restrict(layer, parts).log_mass()
        if layer.scopes.shape[1] > 1 and np.isin(layer.scopes, list(scores)).any():
            condition = "have input units of single variables for counts and sums"
            way_out = "Fit covariance_type='diag', or ask for an estimate."
            raise CircuitPropertyError(must("a circuit", condition, way_out))
        variables = layer.scopes[:, 0]
        for variable in np.unique(variables).tolist():
            own = np.flatnonzero(variables == variable)
            polynomials.place(units.start + own, log_masses[own], scores.get(variable))
    for step in plan.layers:
        if isinstance(step, ProductLayer):
            polynomials.multiply(step)
        else:
            polynomials.add(step, plan.weights.linear[step.edges])
    with np.errstate(divide="ignore"):
        values: FloatArray = np.log(polynomials.values[plan.root]) + polynomials.scales[plan.root]
    return values


def _parts(known: Evidence, scores: dict[int, Scores]) -> Evidence:
    """Rows of evidence: row i holds part i of every variable at once."""
    n_rows = max((len(own.points) for own in scores.values()), default=1)
    X = np.repeat(known.X, n_rows, axis=0)
    lower, upper = (
        np.repeat(bound, n_rows, axis=0) for bound in (known.box.lower, known.box.upper)
    )
    states = {j: np.repeat(allowed, n_rows, axis=0) for j, allowed in known.box.states.items()}
    for variable, own in scores.items():
        n = len(own.points)
        # Where one interval ends another may begin: the larger lower bound counts
        lower[:n, variable] = np.fmax(lower[:n, variable], own.lower)
        upper[:n, variable] = np.fmin(upper[:n, variable], own.upper)
        if own.states is not None:
            every = np.ones((n_rows, own.states.shape[1]), dtype=bool)
            allowed = states.setdefault(variable, every)
            allowed[:n] &= own.states
    return Evidence(X, Box(lower, upper, known.box.closed, states))


class _Polynomials:
    """Coefficients (n_units, degree + 1) of all units, at most about one, times exp(scale)."""

    def __init__(self, n_units: int, degree: int) -> None:
        self.values = np.zeros((n_units, degree + 1))
        self.scales = np.zeros(n_units)
        self.degrees = np.zeros(n_units, dtype=np.intp)

    def place(self, units: IntArray, log_masses: FloatArray, scores: Scores | None) -> None:
        """Write the polynomials of the input units of one variable."""
        points = np.zeros(1, dtype=np.intp) if scores is None else scores.points
        used = log_masses[:, : len(points)]
        peaks = used.max(axis=1)
        peaks[np.isneginf(peaks)] = 0.0
        at_degree = np.zeros((len(points), self.values.shape[1]))
        at_degree[np.arange(len(points)), points] = 1.0
        self.values[units] = np.exp(used - peaks[:, None]) @ at_degree
        self.scales[units] = peaks
        self.degrees[units] = points.max(initial=0)

    def multiply(self, step: ProductLayer) -> None:
        """Multiply the polynomials of the factors of products."""
        first, *others = step.children.T
        product, scale, degree = self.values[first], self.scales[first], self.degrees[first]
        for factor in others:
            right, added = self.values[factor], self.degrees[factor]
            # The shorter side is walked through
            if added.max() > degree.max():
                product, right = right, product
            short, long = sorted((int(added.max()), int(degree.max())))
            result = np.zeros_like(product)
            for power in range(short + 1):
                stop = min(power + long + 1, result.shape[1])
                result[:, power:stop] += right[:, power, None] * product[:, : stop - power]
            product, scale, degree = result, scale + self.scales[factor], degree + added
        self._write(step.units, product, scale, degree)

    def add(self, step: SumLayer, weights: FloatArray) -> None:
        """Add the weighted polynomials of the children of sums."""
        scales = self.scales[step.children]
        has_mass = self.values[step.children].any(axis=1) & (weights > 0.0)
        peaks = np.maximum.reduceat(np.where(has_mass, scales, -np.inf), step.starts)
        peaks[np.isneginf(peaks)] = 0.0
        relative = np.where(has_mass, scales - np.repeat(peaks, step.lengths), -np.inf)
        terms = self.values[step.children] * (weights * np.exp(relative))[:, None]
        degree = np.maximum.reduceat(self.degrees[step.children], step.starts)
        self._write(step.units, np.add.reduceat(terms, step.starts, axis=0), peaks, degree)

    def _write(
        self, units: slice, values: FloatArray, scales: FloatArray, degrees: IntArray
    ) -> None:
        peaks = values.max(axis=1)
        safe = np.where(peaks > 0.0, peaks, 1.0)
        self.values[units] = values / safe[:, None]
        self.scales[units] = scales + np.log(safe)
        self.degrees[units] = degrees
