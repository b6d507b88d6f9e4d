"""Probabilities of linear inequalities between continuous variables.

Linear forms of the variables of a joint Gaussian unit are Gaussian. For other units with two or
three variables, all but one are integrated numerically while the last lies in the remaining
interval, by Gauss-Legendre rules over intervals and conical product rules over the triangles of the
cells into which lines cut the plane (A. H. Stroud, "Approximate Calculation of Multiple Integrals",
1971, section 2.4). Between the breakpoints of piecewise densities and the points and lines where
bounds meet, the rules are exact for polynomials and converge fast for Gaussians. Point masses are
added exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.polynomial.legendre import leggauss, legvander
from scipy.special import softmax

from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.inputs._gaussian_integrals import MIN_MASS
from skcircuits.circuits.inputs.base import InputLayer
from skcircuits.circuits.inputs.restriction import Evidence, RestrictedLayer, restrict
from skcircuits.circuits.inputs.restriction._evidence import (
    LEAST_MASS,
    Breakpoints,
    Feature,
)
from skcircuits.circuits.inputs.restriction._gaussians import can_bound_forms, restrict_forms
from skcircuits.circuits.queries._boxes import (
    RestrictedCircuit,
    Restriction,
    around_integers,
    breakpoints_of,
    feature_means,
    integer_range,
    integer_ranges,
)
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._random import draw_from_nodes
from skcircuits.protocols import BoolArray, FloatArray, IntArray

MAX_DIRECTIONS = 3
# Largest number of integers of a column that are enumerated
MAX_INTEGERS = 2**17
# Columns with bounds, where moments of integers are theirs (normals of three take too long), and
# integers, or pairs of them, that are looked at for these
MAX_ROUNDED, MAX_PAIRS = 2, 2**12
# Largest number of triangles; each has 144 nodes, and each node is a row of evidence
MAX_TRIANGLES = 2**14
# Panels of densities without kinks, in the lengths that resolve each unit alone: they are halved
# until the last coefficients are below a fraction of the whole integral
LENGTH, MAX_HALVINGS = 2.0, 50

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


class LinearBound(NamedTuple):
    """``lower <= sum of factor * variable <= upper``; `factors` maps variables to factors."""

    factors: dict[int, float]
    lower: float
    upper: float


class LinearCircuit:
    """A circuit given one row of evidence and linear inequalities: `alternatives` that exclude each
    other, weighted mixtures of rows of evidence, which `RestrictedCircuit` answers. Moments of a
    column of integers in them are those of the integers, unless three columns have bounds.
    """

    def __init__(
        self,
        plan: Plan,
        alternatives: list[tuple[Evidence, list[LinearBound]]],
        integers: frozenset[int] = frozenset(),
    ) -> None:
        """The variables that represent the integers they round to."""
        self._plan, self._alternatives, self._integers = plan, alternatives, integers
        self.rows = self._enumerated()

    def _enumerated(self, outer: int | None = None) -> _Mixture:
        """Rows of evidence, perhaps one or more for each integer of one variable."""
        given = self._plan, self._integers, outer
        every = [_alternative(*given, *own) for own in self._alternatives]
        return _Mixture([part for part in every if part is not None])

    @cached_property
    def _rounded(self) -> list[int]:
        """Variables of which moments are those of integers."""
        known = self._alternatives[0][0]
        summed = {v for _, bounds in self._alternatives for own in bounds for v in own.factors}
        is_bounded = ~np.isnan(known.box.lower[0]) | ~np.isnan(known.box.upper[0])
        is_bounded[list(summed)] = True
        if (is_bounded & np.isnan(known.X[0])).sum() > MAX_ROUNDED:
            return []
        ranges = {v: integer_range(self._plan, known, v) for v in summed & self._integers}
        few = [v for v, (first, last) in ranges.items() if last - first < MAX_PAIRS]
        return [v for v in sorted(few) if np.isnan(known.X[0, v])]

    @property
    def cardinalities(self) -> dict[int, int]:
        """Number of states of each discrete variable."""
        return self._plan.cardinalities

    def log_mass(self) -> FloatArray:
        """Log probability of the evidence with the inequalities, shape (1,)."""
        return np.array([np.logaddexp.reduce([-np.inf, *self.rows.log_mass])])

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Means and variances of all columns, both (1, n_columns); of codes where discrete."""
        means, variances = map(np.concatenate, zip(*(c.moments() for c in self.rows.circuits)))
        # Law of total variance over the rows of evidence, around the known mean
        mean = self.rows.average(means)
        with np.errstate(over="ignore"):  # a variance beyond floats is infinite
            variance = self.rows.average(variances + (means - mean) ** 2)
        for variable in self._rounded:
            rows = self.rows if self.rows.has_numbers(variable) else self._enumerated(variable)
            numbers = rows.numbers(variable)
            mean[variable] = rows.average(numbers)
            variance[variable] = rows.average((numbers - mean[variable]) ** 2)
        return mean[None], variance[None]

    def state_probabilities(self) -> dict[int, FloatArray]:
        """Distribution of every discrete variable, (1, n_states) each."""
        found = [circuit.state_probabilities() for circuit in self.rows.circuits]
        return {v: self.rows.average(np.concatenate([f[v] for f in found]))[None] for v in found[0]}

    def covariance(self, features: list[Feature]) -> FloatArray:
        """Covariances (1, F, F) of functions of single variables."""
        means = np.concatenate([feature_means(c, features) for c in self.rows.circuits])
        inner = np.concatenate([c.covariance(features) for c in self.rows.circuits])
        with np.errstate(over="ignore"):
            result = self.rows.covariance(means, inner)
        rounded = [f for f, own in enumerate(features) if own.variable in self._rounded]
        rows = self.rows
        for f in rounded:
            rows = rows.at_integers(features[f].variable)
        if rounded and all(rows.has_numbers(features[f].variable) for f in rounded):
            means = np.concatenate([feature_means(c, features) for c in rows.circuits])
            for f in rounded:
                means[:, f] = rows.numbers(features[f].variable)
            # What has one number in each row of evidence does not vary within rows
            between = rows.covariance(means)
            result[rounded], result[:, rounded] = between[rounded], between[:, rounded]
        return result[None]

    def mpe(self) -> tuple[FloatArray, FloatArray]:
        """Best row (1, n_columns) that is found, and its log density."""
        if not all(isinstance(part, _Exact) for part in self.rows.parts):
            way_out = "Take the draw with the highest score_samples: sample(n, given=...)."
            condition = "involve only columns of one joint Gaussian for a most probable row"
            raise CircuitPropertyError(must("linear comparisons", condition, way_out))
        rows, heights = map(np.concatenate, zip(*(c.mpe() for c in self.rows.circuits)))
        best = int(heights.argmax())
        return rows[best, None], heights[best, None]

    def sample(self, counts: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw counts (1,) rows."""
        drawn = self.rows.sample(int(counts[0]), rng)
        return np.concatenate([np.empty((0, self._plan.n_columns)), *drawn])


class _Mixture:
    """Weighted rows of evidence, of alternatives that exclude each other."""

    def __init__(self, parts: list[_Exact | _Slices]) -> None:
        self.parts = parts

    @property
    def circuits(self) -> list[RestrictedCircuit]:
        """The circuit given the rows of each alternative that has some."""
        return [part.circuit for part in self.parts if len(part.log_mass)]

    @cached_property
    def log_mass(self) -> FloatArray:
        """Log probability of each row."""
        return np.concatenate([np.empty(0), *(part.log_mass for part in self.parts)])

    @cached_property
    def _weights(self) -> FloatArray:
        # Masses below exp(-1e16) have logarithms that lose those of their sum
        return softmax(self.log_mass)

    def average(self, values: FloatArray) -> FloatArray:
        """Average over the rows; those without weight may be infinite."""
        counted = self._weights > 0.0
        return np.tensordot(self._weights[counted], values[counted], axes=1)

    def covariance(self, means: FloatArray, inner: FloatArray | float = 0.0) -> FloatArray:
        """Covariances (F, F) from means (n, F) and covariances in the rows."""
        centred = means - self.average(means)
        return self.average(inner + centred[:, :, None] * centred[:, None])

    def numbers(self, variable: int) -> FloatArray:
        """The only integer that a variable may round to in each row, NaN where there are more."""
        ends = [circuit.evidence.bounds(variable) for circuit in self.circuits]
        low, high = np.concatenate(ends, axis=1)
        return np.where(high - low <= 1.0, np.rint(low + 0.5), np.nan)

    def has_numbers(self, variable: int) -> bool:
        """Whether each row holds one integer."""
        return not np.isnan(self.numbers(variable)).any()

    def at_integers(self, variable: int) -> _Mixture:
        """Rows that are divided at the integers of a variable, unless these are many."""
        return _Mixture([p.at_integers(variable) for p in self.parts if isinstance(p, _Exact)])

    def sample(self, n: int, rng: np.random.Generator) -> list[FloatArray]:
        """Draw n rows, part by part."""
        log_masses = [np.logaddexp.reduce(part.log_mass) for part in self.parts]
        numbers = rng.multinomial(n, softmax(log_masses))
        return [part.sample(int(n), rng) for part, n in zip(self.parts, numbers) if n]


class _Exact:
    """Mutually exclusive rows of evidence that are jointly equivalent to the inequalities."""

    def __init__(
        self, plan: Plan, evidence: Evidence, restrict_layer: Restriction = restrict
    ) -> None:
        self._plan, self._evidence, self._restrict = plan, evidence, restrict_layer

    @cached_property
    def _possible(self) -> tuple[FloatArray, RestrictedCircuit]:
        """Log probabilities of the rows that have some, and the circuit given these."""
        whole = _log_density_of_observed(self._plan, self._evidence)
        log_least = np.log(MIN_MASS * len(self._evidence)) + whole
        # Absolute errors of boxes do not count unless the sum of all is small
        for least_mass, least in ((0.0, log_least), (MIN_MASS, -np.inf)):
            evidence = replace(self._evidence, least_mass=least_mass)
            given = RestrictedCircuit(self._plan, evidence, self._restrict)
            log_mass = given.log_mass()
            if np.logaddexp.reduce(log_mass, initial=-np.inf) >= least:
                break
        if least_mass == 0.0:  # what is below is error
            log_mass[log_mass < np.log(LEAST_MASS) + whole] = -np.inf
        kept = np.flatnonzero(log_mass > -np.inf)
        return log_mass[kept], given if len(kept) == len(log_mass) else given.rows(kept)

    @property
    def circuit(self) -> RestrictedCircuit:
        """The circuit given the rows, without those that are impossible: they have no moments."""
        return self._possible[1]

    @property
    def log_mass(self) -> FloatArray:
        """Log probability of each possible row."""
        return self._possible[0]

    def at_integers(self, variable: int) -> _Exact:
        """Rows that are divided at the integers of a variable, unless these are many."""
        evidence = self.circuit.evidence
        first, last = integer_ranges(self._plan, evidence, variable)
        counts = np.maximum(last - first + 1.0, 0.0)
        if counts.sum() > MAX_PAIRS:
            return self
        source = np.repeat(np.arange(len(evidence)), counts.astype(np.intp))
        starts = np.cumsum(counts) - counts
        values = first[source] + np.arange(len(source)) - starts[source]
        divided = evidence.rows(source)
        divided.box.lower[:, variable], divided.box.upper[:, variable] = around_integers(values)
        return _Exact(self._plan, divided, self._restrict)

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n rows."""
        return self.circuit.sample(rng.multinomial(n, softmax(self.log_mass)), rng)


def _log_density_of_observed(plan: Plan, known: Evidence) -> float:
    """Log density of the observed cells of the first row, whatever its box."""
    X = known.X[:1]
    nothing = np.full_like(X, np.nan)
    return float(RestrictedCircuit(plan, Evidence(X, Box(nothing, nothing))).log_mass()[0])


def _alternative(
    plan: Plan,
    integers: frozenset[int],
    outer: int | None,
    known: Evidence,
    bounds: list[LinearBound],
) -> _Exact | _Slices | None:
    """The evidence of one list of bounds, None if it is impossible; for each integer of `outer`."""
    bounds = [_without_observed(bound, known) for bound in bounds]
    if any(not bound.factors and not bound.lower <= 0.0 <= bound.upper for bound in bounds):
        return None
    variables = sorted(set().union(*(bound.factors for bound in bounds)))
    touched = [layer for _, layer in plan.inputs if np.isin(layer.scopes, variables).any()]
    is_joint = all(can_bound_forms(layer, variables) for layer in touched)
    if integers.intersection(variables) and len(variables) <= 2:
        return _integer_rows(plan, known, variables, bounds, integers, outer)
    if len(variables) <= 1:
        return _one_variable(plan, known, bounds)
    if (
        is_joint
        and not integers.intersection(variables)
        and _n_directions(known, variables, bounds) is not None
    ):
        return _joint(plan, known, bounds)
    if len(variables) in (2, 3) and not integers.intersection(variables):
        slices = _Slices(plan, known, variables, bounds)
        return slices if slices.is_possible else None
    raise CircuitPropertyError(
        must(
            "linear comparisons",
            "involve up to three continuous columns, integers with separate probabilities in "
            f"the model, or columns of one joint Gaussian in at most {MAX_DIRECTIONS} directions",
            "Pass method='bounds' for certified bounds, or method='estimate' for an average over "
            "draws.",
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


def _joint(plan: Plan, known: Evidence, bounds: list[LinearBound]) -> _Exact:
    """Gaussians of linear forms, within the passes over the circuit."""
    variables = list(set().union(*(bound.factors for bound in bounds)))
    is_free = np.isnan(known.X[0])

    def restrict_layer(layer: InputLayer, evidence: Evidence) -> RestrictedLayer:
        if not can_bound_forms(layer, variables):
            return restrict(layer, evidence)
        columns = [int(v) for v in np.unique(layer.scopes) if is_free[v]]
        rows = _directions(known, columns, bounds)
        if len(rows) > MAX_DIRECTIONS:
            condition = f"bound at most {MAX_DIRECTIONS} directions of one joint Gaussian"
            way_out = "Pass method='estimate' for an average over draws."
            raise CircuitPropertyError(must("linear comparisons", condition, way_out, n=len(rows)))
        forms = np.zeros((len(rows), known.X.shape[1] + 2))
        forms[:, [*columns, -2, -1]] = rows
        return restrict_forms(layer, evidence, forms)

    return _Exact(plan, known, restrict_layer)


def _integer_rows(
    plan: Plan,
    known: Evidence,
    variables: list[int],
    bounds: list[LinearBound],
    integers: frozenset[int],
    outer: int | None,
) -> _Exact | None:
    """Boxes around each integer of one variable, with the remaining interval of the other."""
    ranges = {v: integer_range(plan, known, v) for v in variables if v in integers}
    if outer is None:  # the variable with fewer integers is enumerated
        outer = min(ranges, key=lambda v: ranges[v][1] - ranges[v][0])
    first, last = ranges[outer]
    if last - first >= MAX_INTEGERS:
        condition = f"involve a column with at most {MAX_INTEGERS} integers"
        way_out = "Pass method='estimate' for an average over draws."
        raise CircuitPropertyError(must("linear comparisons", condition, way_out, n=last - first))
    values = np.arange(first, last + 1.0)
    inner = next((v for v in variables if v != outer), -1)  # -1 where there is no other
    lower, upper = np.full(len(values), -np.inf), np.full(len(values), np.inf)
    possible = np.ones(len(values), dtype=bool)
    for bound in bounds:
        shift, factor = bound.factors.get(outer, 0.0) * values, bound.factors.get(inner, 0.0)
        if factor == 0.0:
            possible &= (shift >= bound.lower) & (shift <= bound.upper)
            continue
        ends = _between(shift, factor, bound, is_integer=inner in integers)
        lower, upper = np.maximum(lower, ends[0]), np.minimum(upper, ends[1])
    kept = np.flatnonzero(possible & (lower <= upper))
    evidence = known.rows(np.zeros(len(kept), dtype=np.intp))
    low, high = evidence.box.lower, evidence.box.upper
    ends = around_integers(values[kept])
    low[:, outer] = np.fmax(low[:, outer], ends[0])
    high[:, outer] = np.fmin(high[:, outer], ends[1])
    if inner >= 0:
        low[:, inner] = np.fmax(low[:, inner], np.where(np.isinf(lower), np.nan, lower)[kept])
        high[:, inner] = np.fmin(high[:, inner], np.where(np.isinf(upper), np.nan, upper)[kept])
    # Comparisons with NaN are false, so that boxes with open sides are kept
    filled = np.flatnonzero(~(low > high).any(axis=1))
    return _Exact(plan, evidence.rows(filled)) if len(filled) else None


def _between(
    shift: FloatArray, factor: float, bound: LinearBound, *, is_integer: bool
) -> tuple[FloatArray, FloatArray]:
    """Interval of x with ``bound.lower <= shift + factor * x <= bound.upper``."""
    low, high = np.sort([(bound.lower - shift) / factor, (bound.upper - shift) / factor], axis=0)
    if not is_integer:
        return low, high
    # Division rounds: the sums themselves decide which integers are inside
    first, last = np.ceil(low) + 3.0, np.floor(high) - 3.0
    for step in (2.0, 1.0, 0.0, -1.0, -2.0):
        for ends, x in ((first, np.ceil(low) + step), (last, np.floor(high) - step)):
            total = shift + factor * x
            with np.errstate(invalid="ignore"):
                inside = (total >= bound.lower) & (total <= bound.upper)
            ends[inside] = x[inside]
    # If there is no integer in between, the first is larger than the last
    return around_integers(first)[0], around_integers(last)[1]


def _one_variable(plan: Plan, known: Evidence, bounds: list[LinearBound]) -> _Exact:
    """Bounds on a single variable, after observed values were put in."""
    lower, upper = known.box.lower.copy(), known.box.upper.copy()
    for bound in bounds:
        for variable, factor in bound.factors.items():
            ends = sorted((bound.lower / factor, bound.upper / factor))
            lower[0, variable] = np.fmax(lower[0, variable], ends[0])
            upper[0, variable] = np.fmin(upper[0, variable], ends[1])
    box = Box(lower, upper, known.box.closed, known.box.states)
    return _Exact(plan, Evidence(known.X, box))


class _Slices:
    """Rows of evidence at nodes of one or two variables, with an interval of the last variable."""

    def __init__(
        self, plan: Plan, known: Evidence, variables: list[int], bounds: list[LinearBound]
    ) -> None:
        self._plan, self._known = plan, known
        marks = {v: breakpoints_of(plan, v) for v in variables}
        # The ends of its interval have kinks at its breakpoints, so the last one has fewest of them
        *self._outer, self._inner = sorted(variables, key=lambda v: -len(marks[v].edges()))
        columns = [*self._outer, self._inner]
        self.rows = _directions(known, columns, bounds)
        make_rule = self._panels if len(self._outer) == 1 else self._triangles
        whole = _log_density_of_observed(plan, known)
        # Absolute errors of rectangles do not count unless all of their sum is small
        for self._least_mass, self._log_least in (
            (0.0, float(np.log(MIN_MASS) + whole)),
            (MIN_MASS, -np.inf),
        ):
            self._rule, log_density = make_rule(*(marks[v] for v in columns))
            log_mass = log_density + safe_log(self._rule.weights)
            if self._is_enough(log_mass):
                break
        # Nodes of density zero cannot be conditioned on
        self._kept = np.flatnonzero(log_mass > -np.inf)
        self.log_mass = log_mass[self._kept]  # log weight of each node
        self.is_possible = len(self._kept) > 0
        self.circuit = RestrictedCircuit(plan, self._at(self._rule.nodes[self._kept])[1])

    def _is_enough(self, log_mass: FloatArray) -> bool:
        """Whether a sum is so large that absolute errors of its parts do not count."""
        return bool(np.logaddexp.reduce(log_mass, axis=None, initial=-np.inf) >= self._log_least)

    def _log_density(self, nodes: FloatArray) -> FloatArray:
        """Log density of the outer variables at nodes, with the last in its interval."""
        result = np.full(len(nodes), -np.inf)
        possible, evidence = self._at(nodes)
        evidence = replace(evidence, least_mass=self._least_mass)
        result[possible] = RestrictedCircuit(self._plan, evidence).log_mass()
        return result

    def _panels(self, outer: Breakpoints, inner: Breakpoints) -> tuple[Rule, FloatArray]:
        """Nodes of the outer variable and log densities there, in panels that are halved until
        polynomials through their nodes follow the density.
        """
        ends = _neighbours(_seen_from_outer(self.rows, outer, inner).edges(LENGTH))
        values = self._panel_values(ends, outer.atoms)
        for _ in range(MAX_HALVINGS):
            rough = is_rough(ends, values, self._rounding(outer, inner))
            # Halves would only follow the rounding errors of what is too small
            if not rough.any() or not self._is_enough(
                values + np.log(np.diff(ends) * _WEIGHTS / 2.0)
            ):
                break
            low, high = ends[rough].T
            middles = (low + high) / 2.0
            halves = np.concatenate([np.stack([low, middles], 1), np.stack([middles, high], 1)])
            ends = np.concatenate([ends[~rough], halves])
            values = np.concatenate([values[~rough], self._panel_values(halves, outer.atoms)])
        rule = Rules([Panels(ends, outer.atoms, [np.nan]), Atoms(outer.atoms[:, None])])
        return rule, np.append(values, self._log_density(outer.atoms[:, None]))

    def _rounding(self, outer: Breakpoints, inner: Breakpoints) -> float:
        """Relative error of masses of intervals whose ends move with the outer variable."""
        rows = self.rows[self.rows[:, :2].all(axis=1)]
        sizes = [np.abs([*own.points, *own.atoms]).max(initial=1e-290) for own in (outer, inner)]
        errors = np.finfo(float).eps * (np.abs(rows[:, :2]) @ sizes)
        return float((errors / np.maximum(rows[:, 3] - rows[:, 2], errors)).max(initial=0.0))

    def _panel_values(self, ends: FloatArray, atoms: FloatArray) -> FloatArray:
        """Log densities at the nodes of panels, (p, N_NODES)."""
        return self._log_density(Panels(ends, atoms, [np.nan]).nodes).reshape(-1, N_NODES)

    def _triangles(
        self, x: Breakpoints, y: Breakpoints, inner: Breakpoints
    ) -> tuple[Rule, FloatArray]:
        """Nodes of two outer variables between their breakpoints and lines, and log densities."""
        x_breaks, y_breaks = x.edges(), y.edges()
        lines = _bends(self.rows, np.concatenate([inner.edges(), inner.atoms]))
        # Every line crosses each row and column of the grid at most once
        n_grid = len(x_breaks) * len(y_breaks) + len(lines) * (len(x_breaks) + len(y_breaks))
        if n_grid > 4 * MAX_TRIANGLES:
            raise _too_many_triangles()
        corners = cut_plane(x_breaks, y_breaks, lines)
        # Bounds do not change sign within a triangle, which is tested at its centre
        lower, upper, possible = self._ends(corners.mean(axis=1))
        corners = corners[possible & (lower < upper)]
        if len(corners) > MAX_TRIANGLES:
            raise _too_many_triangles()
        parts: list[Rule] = [Triangles(corners, (x.atoms, y.atoms))]
        for atom in x.atoms.tolist():
            ends = _divided(lines[:, 2] - lines[:, 0] * atom, lines[:, 1])
            parts.append(Panels(_within(y_breaks, ends), y.atoms, [atom, np.nan]))
        for atom in y.atoms.tolist():
            ends = _divided(lines[:, 2] - lines[:, 1] * atom, lines[:, 0])
            parts.append(Panels(_within(x_breaks, ends), x.atoms, [np.nan, atom]))
        both = np.array(np.meshgrid(x.atoms, y.atoms)).reshape(2, -1).T
        rule = Rules([*parts, Atoms(both)])
        return rule, self._log_density(rule.nodes)

    def _ends(self, values: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """The interval of the last variable at values (n, n_outer), and where it is not empty."""
        lower, upper = np.full(len(values), -np.inf), np.full(len(values), np.inf)
        possible = np.ones(len(values), dtype=bool)
        for *factors, last, low, high in self.rows:
            total = values @ np.array(factors)
            if last == 0.0:
                possible &= (total >= low) & (total <= high)
                continue
            ends = np.sort([(low - total) / last, (high - total) / last], axis=0)
            lower, upper = np.maximum(lower, ends[0]), np.minimum(upper, ends[1])
        return lower, upper, possible

    def _at(self, values: FloatArray) -> tuple[IntArray, Evidence]:
        """Which values (n, n_outer) are possible, and the evidence there."""
        lower, upper, possible = self._ends(values)
        kept = np.flatnonzero(possible & (lower < upper))
        known = self._known.rows(np.zeros(len(kept), dtype=np.intp))
        cells, low, high = known.X, known.box.lower, known.box.upper
        cells[:, self._outer] = values[kept]
        low[:, self._outer] = high[:, self._outer] = np.nan
        low[:, self._inner], high[:, self._inner] = lower[kept], upper[kept]
        low[np.isinf(low)] = high[np.isinf(high)] = np.nan
        return kept, Evidence(cells, Box(low, high, known.box.closed, known.box.states))

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw the outer variables, then all others given them, n rows."""
        masses = np.zeros(len(self._rule.weights))
        masses[self._kept] = np.exp(self.log_mass - self.log_mass.max())
        values = self._rule.draw(masses, n, rng)
        possible, evidence = self._at(values)
        # Rounding at the end of a panel may give an empty interval: the best node replaces it
        lost = np.setdiff1d(np.arange(n), possible)
        if len(lost):
            values[lost] = self.circuit.evidence.X[int(self.log_mass.argmax()), self._outer]
            possible, evidence = self._at(values)
        return RestrictedCircuit(self._plan, evidence).sample(np.ones(n, dtype=int), rng)


def _too_many_triangles() -> CircuitPropertyError:
    return CircuitPropertyError(
        must(
            "linear comparisons of three columns",
            f"divide the densities into at most {MAX_TRIANGLES} triangles",
            "Pass method='bounds' for certified bounds, or method='estimate' for an average over "
            "draws.",
        )
    )


def _bends(rows: FloatArray, marks: FloatArray) -> FloatArray:
    """Lines (k, n_outer + 1) of the outer variables on which ends of the last one, after it in
    `_directions`, pass a breakpoint or another end.
    """
    found, planes = [], _planes(rows)
    for i, plane in enumerate(planes):
        lines = np.repeat(np.delete(plane, -2)[None], len(marks), axis=0)
        lines[:, -1] -= plane[-2] * marks
        found.append(lines if plane[-2] != 0.0 else lines[:1])
        across = [plane * other[-2] - other * plane[-2] for other in planes[:i]]
        found.extend(np.delete(line, -2)[None] for line in across)
    lines = np.concatenate(found)
    lines = lines[(lines[:, :-1] != 0.0).any(axis=1)]
    # Equal lines are recognised only on a common scale
    return np.unique(lines / np.abs(lines[:, :-1]).max(axis=1, keepdims=True), axis=0)


def _planes(rows: FloatArray) -> list[FloatArray]:
    """Factors of the variables and the end, for each finite end."""
    return [np.append(row[:-2], end) for row in rows for end in row[-2:] if np.isfinite(end)]


def _seen_from_outer(rows: FloatArray, outer: Breakpoints, inner: Breakpoints) -> Breakpoints:
    """How to integrate over the only outer variable, the other in its interval."""
    slopes, ends = _bends(rows, np.concatenate([inner.knots, inner.atoms])).T
    regions = [outer.regions]
    for slope, factor, end in _planes(rows):
        if slope != 0.0 and factor != 0.0:
            # An end passes the regions of the last variable at another speed
            sides = np.sort((end - factor * inner.regions[:2]) / slope, axis=0)
            regions.append(np.vstack([sides, abs(factor / slope) * inner.regions[2]]))
    points, own = outer.points, np.concatenate(regions, axis=1)
    seen = Breakpoints(np.union1d(outer.knots, ends / slopes), outer.atoms, own)
    return seen.within(points.min(), points.max())


def _neighbours(edges: FloatArray) -> FloatArray:
    """Pairs (p, 2) of neighbouring edges."""
    return np.stack([edges[:-1], edges[1:]], axis=1)


def _within(breaks: FloatArray, ends: FloatArray) -> FloatArray:
    """Panels (p, 2) of breakpoints with further ends between the first and the last."""
    edges = np.unique(np.concatenate([breaks, ends]))
    return _neighbours(edges[(edges >= breaks.min()) & (edges <= breaks.max())])


def _divided(ends: FloatArray, slopes: FloatArray) -> FloatArray:
    """Intersections with lines of non-zero slope."""
    used = slopes != 0.0
    return ends[used] / slopes[used]


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
    """Intervals (p, 2) of the variable that is NaN in `fixed` (k,); nodes avoid point masses."""

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
    """Triangles (n, 3, 2): of corners a, b, c, points a + u (b - a + v (c - b))."""

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


def is_rough(ends: FloatArray, values: FloatArray, error: float) -> BoolArray:
    """In which panels (p, 2) values (p, N_NODES) with an error are no polynomial of the nodes."""
    density = np.exp(values - values.max(initial=-1e300))
    widths = np.diff(ends)[:, 0]
    last = np.abs(density @ _LAST_COEFFICIENTS).max(axis=1) * widths
    total = (density @ _WEIGHTS) @ widths / 2.0
    return (last > max(TOLERANCE, error) * total) & (widths > 1e-12 * np.abs(ends).max(axis=1))
