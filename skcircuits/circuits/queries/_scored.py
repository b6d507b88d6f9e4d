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

from skcircuits.circuits.engine._layers import ProductLayer, SumLayer
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.engine._tracing import PendingPairs
from skcircuits.circuits.inputs.restriction import Evidence, RestrictedDiscrete, RestrictedLayer
from skcircuits.circuits.inputs.restriction._evidence import Feature
from skcircuits.circuits.queries._moments import _per_column
from skcircuits.circuits.queries._score_polynomials import (
    Scores,
    correlate,
    fill_polynomials,
    points_of,
)
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["ScoredCircuit"]

# Numbers in the tables of a batch of draws
MAX_VALUES = 2**21


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
            mean += _per_column(layer, terms, n_columns)
        for layer, flows, own_mean, own_variance in parts:
            distance = own_mean - mean[layer.scopes].transpose(0, 2, 1)
            is_used = (flows > 0.0) & np.isfinite(distance)
            spread = np.where(is_used, own_variance + distance**2, 0.0)
            terms = (flows * spread).sum(axis=1, keepdims=True)
            total += _per_column(layer, terms, n_columns)
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
        """Refuse: covariances need two passes for every feature."""
        way_out = "Take numpy.cov of draws under the condition: sample(n, given=...)."
        condition = "be asked for expectations, quantiles, probabilities and draws"
        raise CircuitPropertyError(must("conditions on sums and counts", condition, way_out))

    def mpe(self) -> tuple[FloatArray, FloatArray]:
        """Refuse: the best row with a total is another pass than max-product."""
        way_out = "Take the draw with the highest score_samples: sample(n, given=...)."
        condition = "be asked for expectations, quantiles, probabilities and draws"
        raise CircuitPropertyError(must("conditions on sums and counts", condition, way_out))

    def sample(self, counts: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw counts (1,) rows."""
        n_draws = int(counts.sum())
        drawn = np.full((n_draws, self._known.X.shape[1]), np.nan)
        for rows in row_slices(n_draws, max(1, MAX_VALUES // len(self._reached))):
            self._draw(drawn[rows], rng)
        return drawn

    @cached_property
    def _flows(self) -> list[tuple[RestrictedLayer, FloatArray]]:
        """Probabilities that input units take part, by part of their variables, (n_units, n)."""
        plan, polynomials = self._plan, self._polynomials
        adjoints = np.zeros_like(polynomials.values)
        adjoints[plan.root] = (self._reached > 0.0) / self._reached.sum()
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
        found = []
        for units, layer in self._layers:
            variables = layer.layer.scopes[:, 0]
            flows = np.zeros((units.stop - units.start, self._n_parts))
            for variable in np.unique(variables).tolist():
                own = np.flatnonzero(variables == variable)
                points = points_of(self._scores.get(variable))
                masses = polynomials.masses[units.start + own, : len(points)]
                flows[own, : len(points)] = masses * adjoints[units.start + own][:, points]
            found.append((layer, flows))
        return found

    def _draw(self, out: FloatArray, rng: np.random.Generator) -> None:
        """Fill `out`, shape (n, n_columns), by a trace of pairs with the score they collect."""
        plan, n_draws = self._plan, len(out)
        pending = PendingPairs(plan)
        collected = np.zeros((plan.n_units, n_draws), dtype=np.int64)
        collected[plan.root] = _choose(np.repeat(self._reached[None], n_draws, axis=0), rng)
        pending.add(np.full(n_draws, plan.root), np.arange(n_draws))
        for step in reversed(plan.layers):
            units, rows = pending.take(step.units)
            if len(units) == 0:
                continue
            if isinstance(step, ProductLayer):
                children = self._split(step, units, rows, collected, rng)
                pending.add(children.ravel(), np.tile(rows, len(children)))
            else:
                children = self._descend(step, units, rows, collected, rng)
                pending.add(children, rows)
        for span, layer in self._layers:
            units, rows = pending.take(span)
            for chosen, at, parts in self._parts(span, layer, units, rows, collected, rng):
                scopes = layer.layer.scopes[chosen]
                out[at[:, None], scopes] = layer.draw(chosen, parts, rng)

    def _split(
        self,
        step: ProductLayer,
        units: IntArray,
        rows: IntArray,
        collected: IntArray,
        rng: np.random.Generator,
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
            taken = _choose(np.where(rest >= 0, values[factor[own]] * other, 0.0), rng)
            collected[factor[own], rows] = taken
            left = left - taken
        collected[factors[0][own], rows] = left
        return factors[:, own]

    def _descend(
        self,
        step: SumLayer,
        units: IntArray,
        rows: IntArray,
        collected: IntArray,
        rng: np.random.Generator,
    ) -> IntArray:
        """Choose children of sums by what they give to the score."""
        weights = self._polynomials.relative_weights(step, self._plan.weights.linear[step.edges])
        edges, first = step.edges_of(units - step.units.start)
        lengths = step.lengths[units - step.units.start]
        score = np.repeat(collected[units, rows], lengths)
        terms = self._polynomials.values[step.children[edges], score] * weights[edges]
        # Sums with the rarest scores have terms as small as their probability
        terms /= np.repeat(np.add.reduceat(terms, first), lengths)
        steps = np.cumsum(terms)
        total = steps[first + lengths - 1]
        before = np.append(0.0, total[:-1])
        drawn = before + rng.random(len(units)) * (total - before)
        drawn = np.minimum(drawn, np.nextafter(total, 0.0))
        children = step.children[edges[np.searchsorted(steps, drawn, side="right")]]
        collected[children, rows] = collected[units, rows]
        return children

    def _parts(
        self,
        span: slice,
        layer: RestrictedLayer,
        units: IntArray,
        rows: IntArray,
        collected: IntArray,
        rng: np.random.Generator,
    ) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        """Units, draws and the parts in which their variables lie, variable by variable."""
        variables = layer.layer.scopes[units - span.start, 0]
        for variable in np.unique(variables).tolist():
            own = np.flatnonzero(variables == variable)
            points = points_of(self._scores.get(variable))
            fits = points == collected[units[own], rows[own], None]
            masses = self._polynomials.masses[units[own], : len(points)]
            parts = _choose(masses * fits, rng)
            yield units[own] - span.start, rows[own], parts


def _choose(weights: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a column of each row of weights (n, k), in proportion to them."""
    steps = np.cumsum(weights, axis=1)
    drawn = rng.random(len(weights)) * steps[:, -1]
    drawn = np.minimum(drawn, np.nextafter(steps[:, -1], 0.0))
    chosen: IntArray = (steps <= drawn[:, None]).sum(axis=1)
    return chosen
