"""Queries given that a sum of integer scores of single variables takes accepted values.

Values are polynomials. In the polynomial of an input unit, the coefficient of z^s is the
probability that the score of its variable is s; products multiply polynomials, sums add them, and
the coefficients of the root are the probabilities of all totals. A backward pass gives the
posterior probability of every input unit with each score of its variable. Rows are drawn by a trace
with a remaining score: sums choose a child that can attain it, and products divide it among their
factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.circuits._policy import MAX_SCORED_VALUES
from skcircuits.circuits.engine._layers import ProductLayer, SumLayer
from skcircuits.circuits.engine._passes import (
    PendingPairs,
    draw_in_runs,
    largest_in_runs,
    log_values,
)
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.inputs.restriction import (
    Evidence,
    RestrictedDiscrete,
    RestrictedLayer,
    restrict,
)
from skcircuits.circuits.inputs.restriction._evidence import Feature
from skcircuits.circuits.queries._boxes import mixed_moments
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import divisors, finite_peaks, safe_log
from skcircuits.numerics._random import draw_states
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Largest degree of the polynomials
MAX_DEGREE = 4096


class ScoredCircuit:
    """A circuit given one row of evidence, and the totals that `accepted` (degree + 1,) marks."""

    def __init__(
        self, plan: Plan, known: Evidence, scores: dict[int, Scores], accepted: BoolArray
    ) -> None:
        self._plan, self._known, self._scores = plan, known, scores
        self._layers, self._polynomials = fill_polynomials(plan, known, scores)
        self._n_parts = self._polynomials.masses.shape[1]
        self._is_accepted = accepted
        self._reached = np.where(accepted, self._polynomials.values[plan.root], 0.0)

    @property
    def cardinalities(self) -> dict[int, int]:
        """Number of states of each discrete variable."""
        return self._plan.cardinalities

    def log_mass(self) -> FloatArray:
        """Log probability of the evidence with an accepted total, shape (1,)."""
        mass = safe_log(self._reached.sum())
        return np.atleast_1d(mass + self._polynomials.scales[self._plan.root])

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Means and variances of all columns, both (1, n_columns); of codes where discrete."""
        parts = []
        for restricted, flows in self._flows:
            # A unit in each part of its variables counts as a unit of its own
            scopes = np.repeat(restricted.layer.scopes, self._n_parts, axis=0)
            mean, variance = restricted.moments()
            for own, numbers in self._numbers_of(restricted):
                mean[own, : len(numbers), 0] = numbers
                variance[own, : len(numbers), 0] = 0.0
            mean, variance = (v.reshape(len(scopes), 1, -1) for v in (mean, variance))
            parts.append((scopes, flows.reshape(-1, 1), mean, variance))
        return mixed_moments(self._plan, parts, self._known.X.shape[1])

    def state_probabilities(self) -> dict[int, FloatArray]:
        """Distribution of every discrete variable, (1, n_states) each."""
        result = {v: np.zeros((1, n)) for v, n in self._plan.cardinalities.items()}
        for layer, flows in self._flows:
            if isinstance(layer, RestrictedDiscrete):
                for variable, _, own in layer.state_flows(flows):
                    result[variable][0, : len(own)] += own.sum(axis=1)
        return result

    def covariance(self, features: list[Feature]) -> FloatArray:
        """Covariances (1, F, F) of functions of single variables: those of two are expectations of
        one under masses tilted by the other's centred values, without cancellation.
        """
        given = [
            [self._feature_moments(layer, part, features) for part in range(self._n_parts)]
            for layer, _ in self._flows
        ]
        means = [np.stack([mean for mean, _ in parts], axis=1) for parts in given]  # (n, parts, F)
        flows = [own for _, own in self._flows]
        # Parts that no unit reaches may have no moments
        means = [np.where((own > 0.0)[..., None], m, 0.0) for own, m in zip(flows, means)]
        mean = sum(np.tensordot(own, m, axes=2) for own, m in zip(flows, means))
        sees = [self._seen(layer, features) for layer, _ in self._flows]
        centred = [np.where(seen[:, None], m - mean, 0.0) for seen, m in zip(sees, means)]
        result = np.zeros((len(features), len(features)))
        for own, offset, parts in zip(flows, centred, given):
            inner = np.stack([covariance for _, covariance in parts], axis=1)
            inner = np.where((own > 0.0)[..., None, None], inner, 0.0)
            both = inner + offset[..., None] * offset[..., None, :]
            result += np.einsum("up,upfg->fg", own, both)
        for f, feature in enumerate(features):
            adjoints = self._adjoints(self._tilted(feature.variable, centred, f))
            for (units, layer), seen, offset in zip(self._layers, sees, centred):
                # Units over both variables are contained in the first term
                tilted = self._flows_of(units, layer, adjoints) * ~seen[:, f, None]
                result[f] += np.tensordot(tilted, offset, axes=2)
        return ((result + result.T) / 2.0)[None]

    def _numbers_of(self, layer: RestrictedLayer) -> Iterator[tuple[IntArray, FloatArray]]:
        """Units of variables that stand for integers, and the integer of each part."""
        for variable, scores in self._scores.items():
            own = np.flatnonzero(layer.layer.scopes[:, 0] == variable)
            if scores.numbers is not None and len(own):
                first, last = scores.numbers
                if (first == last).all():
                    yield own, first

    def _feature_moments(
        self, layer: RestrictedLayer, part: int, features: list[Feature]
    ) -> tuple[FloatArray, FloatArray]:
        """Means (n_units, F) and covariances of features in one part; integers do not vary."""
        mean, covariance = layer.feature_moments(part, features)
        for own, numbers in self._numbers_of(layer):
            at = np.ix_(own, np.flatnonzero(self._seen(layer, features)[own[0]]))
            if part < len(numbers):
                mean[at], covariance[at] = numbers[part], 0.0
        return mean, covariance

    def _seen(self, layer: RestrictedLayer, features: list[Feature]) -> BoolArray:
        """Which units contain the variables of which features, (n_units, F)."""
        seen = [(layer.layer.scopes == feature.variable).any(axis=1) for feature in features]
        return np.stack(seen, axis=1)

    def _tilted(self, variable: int, centred: list[FloatArray], f: int) -> Polynomials:
        """Polynomials where the masses of a variable's parts are tilted by a feature."""
        points = points_of(self._scores.get(variable))
        found = [
            (units.start + own, offset[own, : len(points), f])
            for (units, layer), offset in zip(self._layers, centred)
            if len(own := np.flatnonzero((layer.layer.scopes == variable).any(axis=1)))
        ]
        units, factors = (np.concatenate(parts) for parts in zip(*found))
        return self._polynomials.tilted(self._plan, units, factors, points)

    def mpe(self) -> tuple[FloatArray, FloatArray]:
        """Best row (1, n_columns) by max-product, and its log density."""
        root = self._plan.root
        layers, best = fill_polynomials(self._plan, self._known, self._scores, is_max=True)
        heights = np.where(self._is_accepted, best.values[root], 0.0)
        row = np.full((1, self._known.X.shape[1]), np.nan)
        _Trace(self._plan, best, layers, self._scores, _Largest()).fill(row, heights)
        term = safe_log(heights.max(keepdims=True)) + best.scales[root]
        # At an end of a piece the density may be that of the other side
        return row, np.maximum(term, log_values(self._plan, row)[root])

    def sample(self, counts: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw counts (1,) rows."""
        n_draws = int(counts.sum())
        drawn = np.full((n_draws, self._known.X.shape[1]), np.nan)
        choice = _Random(rng)
        trace = _Trace(self._plan, self._polynomials, self._layers, self._scores, choice)
        for rows in row_slices(n_draws, max(1, MAX_SCORED_VALUES // len(self._reached))):
            own = drawn[rows]
            reached = np.repeat(self._reached[None], len(own), axis=0)
            trace.fill(own, reached)
        return drawn

    @cached_property
    def _flows(self) -> list[tuple[RestrictedLayer, FloatArray]]:
        """Probabilities that input units take part, by part of their variables, (n_units, n)."""
        adjoints = self._adjoints(self._polynomials)
        return [(layer, self._flows_of(units, layer, adjoints)) for units, layer in self._layers]

    def _adjoints(self, polynomials: Polynomials) -> FloatArray:
        """Derivatives of the accepted mass by all coefficients, relative to its plain value."""
        plan = self._plan
        adjoints = np.zeros_like(polynomials.values)
        shift = polynomials.scales[plan.root] - self._polynomials.scales[plan.root]
        # Tilted polynomials may have another scale than the plain ones
        adjoints[plan.root] = self._is_accepted * np.exp(shift) / self._reached.sum()
        for step in reversed(plan.layers):
            above = adjoints[step.units]
            if isinstance(step, ProductLayer):
                factors = step.children.T
                partial = polynomials.partial_products(step)
                rescaled = polynomials.scales[step.children].sum(axis=1)
                above = above * np.exp(rescaled - polynomials.scales[step.units])[:, None]
                for factor, before in zip(factors[:0:-1], partial[::-1]):
                    np.add.at(adjoints, factor, correlate(above, before))
                    above = correlate(above, polynomials.values[factor])
                np.add.at(adjoints, factors[0], above)
            else:
                weights = polynomials.relative_weights(step, plan.weights.linear[step.edges])
                terms = weights[:, None] * above[step.sum_of_edge - step.units.start]
                np.add.at(adjoints, step.children, terms)
        return adjoints

    def _flows_of(self, units: slice, layer: RestrictedLayer, adjoints: FloatArray) -> FloatArray:
        """Masses of the parts of input units times their derivatives, (n_units, n_parts)."""
        variables = layer.layer.scopes[:, 0]
        flows = np.zeros((units.stop - units.start, self._n_parts))
        for variable in np.unique(variables).tolist():
            own = np.flatnonzero(variables == variable)
            points = points_of(self._scores.get(variable))
            masses = self._polynomials.masses[units.start + own, : len(points)]
            flows[own, : len(points)] = masses * adjoints[units.start + own][:, points]
        return flows


class _Random:
    """Chooses in proportion to weights."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def columns(self, weights: FloatArray) -> IntArray:
        """A column of each row of weights (n, k)."""
        return draw_states(weights, self.rng.random(len(weights)))

    def of_runs(self, weights: FloatArray, first: IntArray, lengths: IntArray) -> IntArray:
        """An index in each run of weights."""
        return draw_in_runs(weights, first, lengths, self.rng.random(len(first)))

    def cells(self, layer: RestrictedLayer, units: IntArray, parts: IntArray) -> FloatArray:
        """Cells of units in parts of their variables."""
        return layer.draw(units, parts, self.rng)


class _Largest:
    """Chooses the largest, the first of ties."""

    def columns(self, weights: FloatArray) -> IntArray:
        """A column of each row of weights (n, k)."""
        return weights.argmax(axis=1)

    def of_runs(self, weights: FloatArray, first: IntArray, lengths: IntArray) -> IntArray:
        """An index in each run of weights."""
        return largest_in_runs(weights, first, lengths)

    def cells(self, layer: RestrictedLayer, units: IntArray, parts: IntArray) -> FloatArray:
        """Cells of units in parts of their variables."""
        return layer.mode(units, parts)


@dataclass(frozen=True)
class _Trace:
    """Follows induced trees from the root down and distributes the remaining score."""

    plan: Plan
    polynomials: Polynomials
    layers: list[tuple[slice, RestrictedLayer]]
    scores: dict[int, Scores]
    choice: _Random | _Largest

    def fill(self, out: FloatArray, reached: FloatArray) -> None:
        """Fill `out`, (n, n_columns), given weights (n, degree + 1) of the totals."""
        plan, n_rows = self.plan, len(out)
        pending = PendingPairs(plan)
        collected = np.zeros((plan.n_units, n_rows), dtype=np.int64)
        collected[plan.root] = self.choice.columns(np.atleast_2d(reached))
        pending.add(np.full(n_rows, plan.root), np.arange(n_rows))
        for step in reversed(plan.layers):
            units, rows = pending.take(step.units)
            if len(units) == 0:
                continue
            if isinstance(step, ProductLayer):
                children = self._split(step, units, rows, collected)
                pending.add(children.ravel(), np.tile(rows, len(children)))
            else:
                pending.add(self._descend(step, units, rows, collected), rows)
        for span, layer in self.layers:
            units, rows = pending.take(span)
            for chosen, at, parts in self._parts(span, layer, units, rows, collected):
                scopes = layer.layer.scopes[chosen]
                cells = self.choice.cells(layer, chosen, parts)
                scores = self.scores.get(int(scopes[0, 0]))
                if scores is not None and scores.numbers is not None:
                    # The best cell of a part may be a tie with the next one
                    first, last = scores.numbers[:, parts, None]
                    cells = np.fmin(np.fmax(cells, first), last)
                out[at[:, None], scopes] = cells

    def _split(
        self, step: ProductLayer, units: IntArray, rows: IntArray, collected: IntArray
    ) -> IntArray:
        """Divide the score of products among their factors, the last factor first."""
        values = self.polynomials.values
        own = units - step.units.start
        factors = step.children.T
        left = collected[units, rows]
        powers = np.arange(values.shape[1])
        # The weights of the scores of the last factor follow from those of the other factors
        for factor, before in zip(factors[:0:-1], self.polynomials.partial_products(step)[::-1]):
            rest = left[:, None] - powers
            other = np.take_along_axis(before[own], np.maximum(rest, 0), axis=1)
            taken = self.choice.columns(np.where(rest >= 0, values[factor[own]] * other, 0.0))
            collected[factor[own], rows] = taken
            left = left - taken
        collected[factors[0][own], rows] = left
        return factors[:, own]

    def _descend(
        self, step: SumLayer, units: IntArray, rows: IntArray, collected: IntArray
    ) -> IntArray:
        """Choose children of sums by their contribution to the score."""
        weights = self.polynomials.relative_weights(step, self.plan.weights.linear[step.edges])
        edges, first = step.edges_of(units - step.units.start)
        lengths = step.lengths[units - step.units.start]
        # The chosen child has the score of the sum
        score = np.repeat(collected[units, rows], lengths)
        terms = self.polynomials.values[step.children[edges], score] * weights[edges]
        children = step.children[edges[self.choice.of_runs(terms, first, lengths)]]
        collected[children, rows] = collected[units, rows]
        return children

    def _parts(
        self,
        span: slice,
        layer: RestrictedLayer,
        units: IntArray,
        rows: IntArray,
        collected: IntArray,
    ) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        """Units, rows and the parts in which their variables lie, variable by variable."""
        variables = layer.layer.scopes[units - span.start, 0]
        for variable in np.unique(variables).tolist():
            own = np.flatnonzero(variables == variable)
            points = points_of(self.scores.get(variable))
            fits = points == collected[units[own], rows[own], None]
            masses = self.polynomials.masses[units[own], : len(points)]
            yield units[own] - span.start, rows[own], self.choice.columns(masses * fits)


@dataclass(frozen=True)
class Scores:
    """Scores of one variable: disjoint parts of its values, with an integer from 0 on each."""

    points: IntArray  # (n_parts,)
    lower: FloatArray  # (n_parts,), ends of closed intervals, NaN where unbounded
    upper: FloatArray  # (n_parts,)
    states: np.ndarray | None = None  # (n_parts, n_states), instead of intervals
    stop: FloatArray | None = None  # (n_parts,), where densities end; by default at `upper`
    # (2, n_parts), the first and the last of the numbers that values of a part stand for, if any
    numbers: FloatArray | None = None


def fill_polynomials(
    plan: Plan, known: Evidence, scores: dict[int, Scores], *, is_max: bool = False
) -> tuple[list[tuple[slice, RestrictedLayer]], Polynomials]:
    """Polynomials of all units, and input layers restricted to parts, i of every variable in row i;
    coefficients are probabilities, or where ``is_max`` values of the best rows.
    """
    degree = sum(int(own.points.max(initial=0)) for own in scores.values())
    if degree > MAX_DEGREE:
        way_out = "Use fewer columns, or count those that exceed a bound."
        condition = f"have at most {MAX_DEGREE} different values"
        raise CircuitPropertyError(must("a sum of columns", condition, way_out, n=degree))
    n_parts = max((len(own.points) for own in scores.values()), default=1)
    polynomials = Polynomials(plan.n_units, degree, n_parts, is_max=is_max)
    parts = _parts(known, scores)
    layers = []
    for units, layer in plan.inputs:
        if layer.scopes.shape[1] > 1 and np.isin(layer.scopes, list(scores)).any():
            condition = "have input units of single variables for counts and sums"
            way_out = "Fit covariance_type='diag', or pass method='estimate' to probability."
            raise CircuitPropertyError(must("a circuit", condition, way_out))
        restricted = restrict(layer, parts)
        layers.append((units, restricted))
        log_masses = restricted.log_mass()
        if is_max:
            # A part that a bound leaves without mass has no best point
            log_masses = np.where(np.isneginf(log_masses), -np.inf, restricted.log_max())
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
    lower, upper, stop = (
        np.repeat(bound, n_rows, axis=0)
        for bound in (known.box.lower, known.box.upper, known.box.ends)
    )
    states = {j: np.repeat(allowed, n_rows, axis=0) for j, allowed in known.box.states.items()}
    for variable, own in scores.items():
        n = len(own.points)
        # Intersection of both intervals
        lower[:n, variable] = np.fmax(lower[:n, variable], own.lower)
        upper[:n, variable] = np.fmin(upper[:n, variable], own.upper)
        end = own.upper if own.stop is None else own.stop
        stop[:n, variable] = np.fmin(stop[:n, variable], end)
        if own.states is not None:
            every = np.ones((n_rows, own.states.shape[1]), dtype=bool)
            allowed = states.setdefault(variable, every)
            allowed[:n] &= own.states
    return Evidence(X, Box(lower, upper, known.box.closed, states, stop))


class Polynomials:
    """Coefficients (n_units, degree + 1) of all units times exp(scale), and on that scale the
    `masses` (n_units, n_parts) of parts of input variables; sums are maxima where ``is_max``.
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
        # Values that cancel to zero still have derivatives: possible totals remain the same
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
            # Loop over the coefficients of the shorter polynomial
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
        return weights * np.exp(exponents)

    def add(self, step: SumLayer, weights: FloatArray) -> None:
        """Add the weighted polynomials of the children of sums."""
        scales = self.scales[step.children]
        has_mass = self._has_mass(step, weights)
        peaks = finite_peaks(np.maximum.reduceat(np.where(has_mass, scales, -np.inf), step.starts))
        # The scale of a child without mass is meaningless and is excluded from the peak
        relative = np.where(has_mass, scales - np.repeat(peaks, step.lengths), -np.inf)
        degree = np.maximum.reduceat(self.degrees[step.children], step.starts)
        width = int(degree.max()) + 1
        terms = self.values[step.children, :width] * (weights * np.exp(relative))[:, None]
        self._write(step.units, self._add.reduceat(terms, step.starts, axis=0), peaks, degree)

    def _has_mass(self, step: SumLayer, weights: FloatArray) -> BoolArray:
        possible = self._is_possible
        if possible is None:
            possible = np.asarray(self.values.any(axis=1))
        return possible[step.children] & (weights > 0.0)

    def _write(
        self, units: slice, values: FloatArray, scales: FloatArray, degrees: IntArray
    ) -> None:
        peaks = divisors(np.abs(values).max(axis=1))  # tilted polynomials have signs
        self.values[units, : values.shape[1]] = values / peaks[:, None]
        self.scales[units] = scales + np.log(peaks)
        self.degrees[units] = degrees


def correlate(above: FloatArray, other: FloatArray) -> FloatArray:
    """Derivatives (n, width) with respect to one factor of a product, given the other factor."""
    result = np.zeros_like(above)
    # Most polynomials are sparse, because a variable has few different scores
    used = np.flatnonzero(other.any(axis=0)).tolist()
    for power in used:
        result[:, : above.shape[1] - power] += other[:, power, None] * above[:, power:]
    return result
