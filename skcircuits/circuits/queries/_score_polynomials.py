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
from skcircuits.circuits.inputs.restriction import Evidence, RestrictedLayer, restrict
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import divisors, finite_peaks
from skcircuits.protocols import BoolArray, FloatArray, IntArray

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


def fill_polynomials(
    plan: Plan, known: Evidence, scores: dict[int, Scores], *, is_max: bool = False
) -> tuple[list[tuple[slice, RestrictedLayer]], Polynomials]:
    """Polynomials of all units, and the input layers restricted to the parts of variables.

    Row i of the restricted layers holds part i of every variable at once. Coefficients are
    probabilities, or where ``is_max`` the values of the best rows with each score.
    """
    degree = sum(int(own.points.max(initial=0)) for own in scores.values())
    if degree > MAX_DEGREE:
        way_out = "Ask about fewer columns, or count which of them exceed a bound."
        condition = f"have at most {MAX_DEGREE} different values"
        raise CircuitPropertyError(must("a sum of columns", condition, way_out, n=degree))
    n_parts = max((len(own.points) for own in scores.values()), default=1)
    polynomials = Polynomials(plan.n_units, degree, n_parts, is_max=is_max)
    parts = _parts(known, scores)
    layers = []
    for units, layer in plan.inputs:
        restricted = restrict(layer, parts)
        layers.append((units, restricted))
        log_masses = restricted.log_max() if is_max else restricted.log_mass()
        if layer.scopes.shape[1] > 1 and np.isin(layer.scopes, list(scores)).any():
            condition = "have input units of single variables for counts and sums"
            way_out = "Fit covariance_type='diag', or ask for an estimate."
            raise CircuitPropertyError(must("a circuit", condition, way_out))
        variables = layer.scopes[:, 0]
        for variable in np.unique(variables).tolist():
            own = np.flatnonzero(variables == variable)
            points = points_of(scores.get(variable))
            polynomials.place(units.start + own, log_masses[own, : len(points)], points)
    polynomials.pass_up(plan)
    return layers, polynomials


def points_of(scores: Scores | None) -> IntArray:
    """Scores of the parts of a variable; one that is not scored has one part of score zero."""
    return np.zeros(1, dtype=np.intp) if scores is None else scores.points


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


class Polynomials:
    """Coefficients (n_units, degree + 1) of all units, at most about one, times exp(scale).

    `masses` (n_units, n_parts) are those of the parts of the variables of input units, on the
    same scale. Sums are maxima where ``is_max``.
    """

    def __init__(self, n_units: int, degree: int, n_parts: int, *, is_max: bool = False) -> None:
        self._add = np.maximum if is_max else np.add
        self._is_possible: BoolArray | None = None
        self.values = np.zeros((n_units, degree + 1))
        self.scales = np.zeros(n_units)
        self.degrees = np.zeros(n_units, dtype=np.intp)
        self.masses = np.zeros((n_units, n_parts))

    def place(self, units: IntArray, log_masses: FloatArray, points: IntArray) -> None:
        """Write the polynomials of the input units of one variable from masses of its parts."""
        peaks = finite_peaks(log_masses.max(axis=1))
        self._place(units, np.exp(log_masses - peaks[:, None]), peaks, points)

    def _place(
        self, units: IntArray, masses: FloatArray, scales: FloatArray, points: IntArray
    ) -> None:
        self.masses[units, : len(points)] = masses
        values = np.zeros((self.values.shape[1], len(units)))
        self._add.at(values, points, masses.T)
        self.values[units] = values.T
        self.scales[units] = scales
        self.degrees[units] = points.max(initial=0)

    def tilted(
        self, plan: Plan, units: IntArray, factors: FloatArray, points: IntArray
    ) -> Polynomials:
        """Polynomials with the masses of some input units times (perhaps negative) factors."""
        tilted = Polynomials(len(self.values), self.values.shape[1] - 1, self.masses.shape[1])
        n_inputs = plan.inputs[-1][0].stop
        for name in ("values", "scales", "degrees", "masses"):
            getattr(tilted, name)[:n_inputs] = getattr(self, name)[:n_inputs]
        # What cancels to zero still has derivatives: possible is what was possible before
        tilted._is_possible = np.asarray(self.values.any(axis=1))
        masses = self.masses[units, : len(points)] * factors
        tilted._place(units, masses, self.scales[units], points)
        tilted.pass_up(plan)
        return tilted

    def pass_up(self, plan: Plan) -> None:
        """Fill in the polynomials of all inner units, children before parents."""
        for step in plan.layers:
            if isinstance(step, ProductLayer):
                self.multiply(step)
            else:
                self.add(step, plan.weights.linear[step.edges])

    def multiply(self, step: ProductLayer) -> None:
        """Multiply the polynomials of the factors of products."""
        product = self.partial_products(step, with_last=True)[-1]
        scale = self.scales[step.children].sum(axis=1)
        degree = self.degrees[step.children].sum(axis=1)
        self._write(step.units, product, scale, degree)

    def partial_products(self, step: ProductLayer, *, with_last: bool = False) -> list[FloatArray]:
        """Products of the first factor, the first two, ..., of all but the last unless asked."""
        first, *others = step.children.T
        found, degree = [self.values[first]], self.degrees[first]
        for factor in others if with_last else others[:-1]:
            right, added = self.values[factor], self.degrees[factor]
            # The shorter side is walked through
            if added.max() > degree.max():
                found.append(self._convolve(right, found[-1], int(degree.max()), int(added.max())))
            else:
                found.append(self._convolve(found[-1], right, int(added.max()), int(degree.max())))
            degree = degree + added
        return found

    def _convolve(self, left: FloatArray, right: FloatArray, short: int, long: int) -> FloatArray:
        """Products of polynomials (n, width), the right ones of degree `short`, row by row."""
        width = left.shape[1]
        result = np.zeros_like(left)
        for power in range(short + 1):
            stop = min(power + long + 1, width)
            out = result[:, power:stop]
            self._add(out, right[:, power, None] * left[:, : stop - power], out=out)
        return result

    def relative_weights(self, step: SumLayer, weights: FloatArray) -> FloatArray:
        """Weights of edges on the scales of the sums that they belong to."""
        scales = self.scales[step.units][step.sum_of_edge - step.units.start]
        usable = self._has_mass(step, weights)
        exponents = np.where(usable, self.scales[step.children] - scales, -np.inf)
        relative: FloatArray = weights * np.exp(exponents)
        return relative

    def add(self, step: SumLayer, weights: FloatArray) -> None:
        """Add the weighted polynomials of the children of sums."""
        scales = self.scales[step.children]
        has_mass = self._has_mass(step, weights)
        peaks = finite_peaks(np.maximum.reduceat(np.where(has_mass, scales, -np.inf), step.starts))
        relative = np.where(has_mass, scales - np.repeat(peaks, step.lengths), -np.inf)
        degree = np.maximum.reduceat(self.degrees[step.children], step.starts)
        width = int(degree.max()) + 1
        terms = self.values[step.children, :width] * (weights * np.exp(relative))[:, None]
        self._write(step.units, self._add.reduceat(terms, step.starts, axis=0), peaks, degree)

    def _has_mass(self, step: SumLayer, weights: FloatArray) -> BoolArray:
        possible = self._is_possible
        if possible is None:
            possible = np.asarray(self.values.any(axis=1))
        found: BoolArray = possible[step.children] & (weights > 0.0)
        return found

    def _write(
        self, units: slice, values: FloatArray, scales: FloatArray, degrees: IntArray
    ) -> None:
        peaks = divisors(np.abs(values).max(axis=1))  # tilted polynomials have signs
        self.values[units, : values.shape[1]] = values / peaks[:, None]
        self.scales[units] = scales + np.log(peaks)
        self.degrees[units] = degrees


def correlate(above: FloatArray, other: FloatArray) -> FloatArray:
    """What a factor has to give: derivatives (n, width) of a product, with the other factor."""
    result = np.zeros_like(above)
    used = np.flatnonzero(other.any(axis=0)).tolist()
    for power in used:
        result[:, : above.shape[1] - power] += other[:, power, None] * above[:, power:]
    return result
