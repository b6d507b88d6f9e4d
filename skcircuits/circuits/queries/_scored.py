"""Queries given that a sum of integer scores of single variables takes accepted values.

The forward pass fills polynomials (`_score_polynomials`); a backward pass tells for every input
unit how likely it takes part with each part of its variable, and a trace that carries the score
still to be collected draws rows: sums choose a child that can reach it,
products divide it among their factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from skcircuits.circuits._policy import MAX_SCORED_VALUES
from skcircuits.circuits.engine._layers import ProductLayer, SumLayer
from skcircuits.circuits.engine._passes import PendingPairs
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs.base import per_column
from skcircuits.circuits.inputs.restriction import Evidence, RestrictedDiscrete, RestrictedLayer
from skcircuits.circuits.inputs.restriction._evidence import Feature
from skcircuits.circuits.queries._score_polynomials import (
    Polynomials,
    Scores,
    correlate,
    fill_polynomials,
    points_of,
)
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray


class ScoredCircuit:
    """A smooth and decomposable circuit given one row of evidence and accepted totals.

    `accepted` (degree + 1,) marks the totals; answers have one row.
    """

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
        with np.errstate(divide="ignore"):
            mass: FloatArray = (
                np.log(self._reached.sum()) + self._polynomials.scales[self._plan.root]
            )
        return np.atleast_1d(mass)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Means and variances of all columns, both (1, n_columns); of codes where discrete."""
        n_columns = self._known.X.shape[1]
        mean, total = np.zeros((2, n_columns, 1))
        parts = []
        for restricted, flows in self._flows:
            own_mean, own_variance = restricted.moments()
            # Parts that no unit reaches may have no moments
            own_mean = np.where(flows[..., None] > 0.0, own_mean, 0.0)
            parts.append((restricted.layer, flows[..., None], own_mean, own_variance))
        for layer, flows, own_mean, _ in parts:
            terms = (flows * own_mean).sum(axis=1, keepdims=True)
            mean += per_column(layer, terms, n_columns)
        for layer, flows, own_mean, own_variance in parts:
            distance = own_mean - mean[layer.scopes].transpose(0, 2, 1)
            is_used = (flows > 0.0) & np.isfinite(distance)
            spread = np.where(is_used, own_variance + distance**2, 0.0)
            terms = (flows * spread).sum(axis=1, keepdims=True)
            total += per_column(layer, terms, n_columns)
        outside = np.setdiff1d(np.arange(n_columns), self._plan.units[-1].scope)
        mean[outside] = total[outside] = np.nan
        return mean.T, total.T

    def state_probabilities(self) -> dict[int, FloatArray]:
        """Distribution of every discrete variable, (1, n_states) each."""
        result = {v: np.zeros((1, n)) for v, n in self._plan.cardinalities.items()}
        for layer, flows in self._flows:
            if isinstance(layer, RestrictedDiscrete):
                for variable, _, own in layer.state_flows(flows):
                    result[variable][0, : len(own)] += own.sum(axis=1)
        return result

    def covariance(self, features: list[Feature]) -> FloatArray:
        """Covariances (1, F, F) of functions of single variables.

        Those of two variables are expectations of one feature under masses that are tilted by the
        other's deviation from its mean: one pass up and down per feature. Deviations average to
        zero, so that nothing cancels.
        """
        given = [
            [layer.feature_moments(part, features) for part in range(self._n_parts)]
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
                # Units that see both are done
                tilted = self._flows_of(units, layer, adjoints) * ~seen[:, f, None]
                result[f] += np.tensordot(tilted, offset, axes=2)
        return ((result + result.T) / 2.0)[None]

    def _seen(self, layer: RestrictedLayer, features: list[Feature]) -> BoolArray:
        """Which units see the variables of which features, (n_units, F)."""
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
        """Best row (1, n_columns) by max-product, and the log of its term."""
        root = self._plan.root
        layers, best = fill_polynomials(self._plan, self._known, self._scores, is_max=True)
        heights = np.where(self._is_accepted, best.values[root], 0.0)
        row = np.full((1, self._known.X.shape[1]), np.nan)
        _Trace(self._plan, best, layers, self._scores, _Largest()).fill(row, heights)
        with np.errstate(divide="ignore"):
            return row, np.log(heights.max(keepdims=True)) + best.scales[root]

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
        steps = np.cumsum(weights, axis=1)
        drawn = self.rng.random(len(weights)) * steps[:, -1]
        drawn = np.minimum(drawn, np.nextafter(steps[:, -1], 0.0))
        chosen: IntArray = (steps <= drawn[:, None]).sum(axis=1)
        return chosen

    def of_runs(self, weights: FloatArray, first: IntArray, lengths: IntArray) -> IntArray:
        """An index in each run of weights."""
        # Sums with the rarest scores have terms as small as their probability
        weights = weights / np.repeat(np.add.reduceat(weights, first), lengths)
        steps = np.cumsum(weights)
        total = steps[first + lengths - 1]
        before = np.append(0.0, total[:-1])
        drawn = before + self.rng.random(len(first)) * (total - before)
        return np.searchsorted(steps, np.minimum(drawn, np.nextafter(total, 0.0)), side="right")

    def cells(self, layer: RestrictedLayer, units: IntArray, parts: IntArray) -> FloatArray:
        """Cells of units in parts of their variables."""
        return layer.draw(units, parts, self.rng)


class _Largest:
    """Chooses what is largest, the first of those that tie."""

    def columns(self, weights: FloatArray) -> IntArray:
        """A column of each row of weights (n, k)."""
        return weights.argmax(axis=1)

    def of_runs(self, weights: FloatArray, first: IntArray, lengths: IntArray) -> IntArray:
        """An index in each run of weights."""
        hits = np.flatnonzero(weights == np.repeat(np.maximum.reduceat(weights, first), lengths))
        return hits[np.searchsorted(hits, first)]

    def cells(self, layer: RestrictedLayer, units: IntArray, parts: IntArray) -> FloatArray:
        """Cells of units in parts of their variables."""
        return layer.mode(units, parts)


class _Trace:
    """Follows explanations from the root down, with the scores that are still to be collected."""

    def __init__(
        self,
        plan: Plan,
        polynomials: Polynomials,
        layers: list[tuple[slice, RestrictedLayer]],
        scores: dict[int, Scores],
        choice: _Random | _Largest,
    ) -> None:
        self._plan, self._polynomials, self._layers = plan, polynomials, layers
        self._scores, self._choice = scores, choice

    def fill(self, out: FloatArray, reached: FloatArray) -> None:
        """Fill `out`, (n, n_columns), given weights (n, degree + 1) of the totals."""
        plan, n_rows = self._plan, len(out)
        pending = PendingPairs(plan)
        collected = np.zeros((plan.n_units, n_rows), dtype=np.int64)
        collected[plan.root] = self._choice.columns(np.atleast_2d(reached))
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
        for span, layer in self._layers:
            units, rows = pending.take(span)
            for chosen, at, parts in self._parts(span, layer, units, rows, collected):
                scopes = layer.layer.scopes[chosen]
                out[at[:, None], scopes] = self._choice.cells(layer, chosen, parts)

    def _split(
        self, step: ProductLayer, units: IntArray, rows: IntArray, collected: IntArray
    ) -> IntArray:
        """Divide the score of products among their factors, the last factor first."""
        values = self._polynomials.values
        own = units - step.units.start
        factors = step.children.T
        left = collected[units, rows]
        powers = np.arange(values.shape[1])
        for factor, before in zip(factors[:0:-1], self._polynomials.partial_products(step)[::-1]):
            rest = left[:, None] - powers
            other = np.take_along_axis(before[own], np.maximum(rest, 0), axis=1)
            taken = self._choice.columns(np.where(rest >= 0, values[factor[own]] * other, 0.0))
            collected[factor[own], rows] = taken
            left = left - taken
        collected[factors[0][own], rows] = left
        return factors[:, own]

    def _descend(
        self, step: SumLayer, units: IntArray, rows: IntArray, collected: IntArray
    ) -> IntArray:
        """Choose children of sums by what they give to the score."""
        weights = self._polynomials.relative_weights(step, self._plan.weights.linear[step.edges])
        edges, first = step.edges_of(units - step.units.start)
        lengths = step.lengths[units - step.units.start]
        score = np.repeat(collected[units, rows], lengths)
        terms = self._polynomials.values[step.children[edges], score] * weights[edges]
        children = step.children[edges[self._choice.of_runs(terms, first, lengths)]]
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
            points = points_of(self._scores.get(variable))
            fits = points == collected[units[own], rows[own], None]
            masses = self._polynomials.masses[units[own], : len(points)]
            yield units[own] - span.start, rows[own], self._choice.columns(masses * fits)
