"""Units of one variable restricted to sets of states and to intervals, and parts within them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.interpolate import BSpline
from scipy.special import exprel

from skcircuits.circuits._policy import MAX_INTEGERS
from skcircuits.circuits.inputs.base import NumericalLayer, StateFlows
from skcircuits.circuits.inputs.discrete import DiscreteLayer
from skcircuits.circuits.inputs.gaussian import GaussianLayer
from skcircuits.circuits.inputs.poisson import PoissonLayer, log_mass_of_counts
from skcircuits.circuits.inputs.polynomial._pieces import PolynomialGroup
from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import (
    PiecewisePolynomial,
    PiecewisePolynomialLayer,
)
from skcircuits.circuits.inputs.restriction._evidence import (
    LEAST_MASS,
    NO_COLUMNS,
    REACH,
    Evidence,
    Feature,
    Parts,
    RestrictedLayer,
    restrict,
    within,
)
from skcircuits.circuits.inputs.restriction._normal import draw_truncated, truncated_moments
from skcircuits.numerics._arrays import divisors, safe_log
from skcircuits.numerics._patterns import unique_rows
from skcircuits.numerics._random import RandomNumbers, draw_states
from skcircuits.parallel import row_slices
from skcircuits.protocols import MAX_SCALES, BoolArray, FloatArray, IntArray

#: Mass, mean and variance of parts, arrays of one shape.
_Moments = tuple[FloatArray, FloatArray, FloatArray]
# Counts further from the most probable one, in standard deviations and beyond, have no mass that
# sums would show; numbers per table; a rate in the place of zero, whose logarithm is a float.
_COUNT_STDS, _COUNTS_BESIDE, _MAX_COUNTS, _LEAST_RATE = 10.0, 40.0, 2**20, 1e-300
_TAIL_CELLS = 8  # of equal mass, of the part of an exponential tail that is bounded


class RestrictedDiscrete(RestrictedLayer):
    """Masses of the states that are allowed in each row."""

    def __init__(self, layer: DiscreteLayer, evidence: Evidence) -> None:
        super().__init__(layer, evidence)
        self._n = len(evidence)
        self._units = {variable: units for variable, units, _ in layer.units_by_column}
        n_states = layer.masses.shape[1]
        #: Per variable, 1 where a state is allowed, shape (n, n_states).
        self._allowed = {}
        for variable, _, own in layer.units_by_column:
            allowed = np.zeros((self._n, n_states))
            allowed[:, :own] = evidence.box.state_mask(variable, own)
            cells = evidence.X[:, variable]
            seen = np.flatnonzero(~np.isnan(cells))
            # An observed state outside the set leaves nothing.
            allowed[seen] *= np.arange(n_states) == cells[seen, None]
            self._allowed[variable] = allowed

    def mass(self) -> FloatArray:
        """Mass of the allowed states, shape (n_units, n)."""
        values = np.empty((len(self.layer), self._n))
        for variable, units in self._units.items():
            # A row that allows every state must give exactly one
            values[units] = np.minimum(self.layer.masses[units] @ self._allowed[variable].T, 1.0)
        return values

    def log_mass(self) -> FloatArray:
        """Log mass of the allowed states, shape (n_units, n)."""
        return safe_log(self.mass())

    def state_flows(self, flows: FloatArray) -> Iterator[StateFlows]:
        """Divide flows (n_units, n) among the allowed states of each variable."""
        mass = self.mass()
        # Impossible units have no flow to divide.
        ratios = np.divide(flows, mass, out=np.zeros_like(flows), where=mass > 0.0)
        return self.divided(ratios, np.arange(self._n))

    def divided(self, weights: FloatArray, rows: IntArray) -> Iterator[StateFlows]:
        """Sums of weights (n_units, m) times the masses of each allowed state, in m rows."""
        for variable, units, own in self.layer.units_by_column:
            divided = self.layer.masses[units, :own].T @ weights[units]
            divided *= self._allowed[variable][rows, :own].T
            yield StateFlows(variable, np.arange(len(rows)), divided)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        mean, square = np.zeros((2, len(self.layer), self._n))
        codes = np.arange(self.layer.masses.shape[1])
        mass = self.mass()
        for variable, units in self._units.items():
            weights = self.layer.masses[units]
            mean[units] = (weights * codes) @ self._allowed[variable].T
            square[units] = (weights * codes**2) @ self._allowed[variable].T
        mean, square = mean / divisors(mass), square / divisors(mass)
        return mean[..., None], np.maximum(square - mean**2, 0.0)[..., None]

    def feature_moments(self, row: int, features: list[Feature]) -> tuple[FloatArray, FloatArray]:
        n_states, n_units = self.layer.masses.shape[1], len(self.layer)
        means = np.zeros((n_units, len(features)))
        covariances = np.zeros((n_units, len(features), len(features)))
        for variable, units in self._units.items():
            asked = [f for f, feature in enumerate(features) if feature.variable == variable]
            if not asked:
                continue
            own = np.array(asked)
            table = np.zeros((n_states, len(own)))
            for place, f in enumerate(asked):
                values = features[f].values
                known = np.arange(float(n_states)) if values is None else values
                table[: len(known), place] = known[:n_states]
            masses = self.layer.masses[units] * self._allowed[variable][row]
            total = masses.sum(axis=1, keepdims=True)
            masses /= divisors(total)
            mean = masses @ table
            means[np.ix_(units, own)] = mean
            centred = table - mean[:, None]
            products = np.einsum("us,usf,usg->ufg", masses, centred, centred)
            covariances[np.ix_(units, own, own)] = products
        return means, covariances

    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        """Draw allowed states, shape (m, 1)."""
        weights = self._weights(units, rows)
        return draw_states(weights, rng.random(len(units)))[:, None].astype(float)

    def log_max(self) -> FloatArray:
        """Log mass of the most probable allowed state, shape (n_units, n)."""
        values = np.empty((len(self.layer), self._n))
        for variable, units in self._units.items():
            allowed = self._allowed[variable]
            for unit in units.tolist():
                values[unit] = (self.layer.masses[unit] * allowed).max(axis=1)
        return safe_log(values)

    def mode(self, units: IntArray, rows: IntArray, left_out: IntArray = NO_COLUMNS) -> FloatArray:
        """The most probable allowed state, shape (m, 1)."""
        return self._weights(units, rows).argmax(axis=1)[:, None].astype(float)

    def _weights(self, units: IntArray, rows: IntArray) -> FloatArray:
        """Masses of the allowed states of pairs, shape (m, n_states)."""
        weights = self.layer.masses[units]
        variables = self.layer.scopes[units, 0]
        for variable in np.unique(variables).tolist():
            own = np.flatnonzero(variables == variable)
            # Variables have sets of their own: pairs are masked one variable at a time
            weights[own] *= self._allowed[variable][rows[own]]
        return weights


restrict.register(DiscreteLayer, RestrictedDiscrete)


class _Pairs(NamedTuple):
    """Pairs (m,) of a unit of one variable and an interval."""

    variable: int
    units: IntArray
    low: FloatArray
    high: FloatArray

    def take(self, chosen: BoolArray | IntArray) -> _Pairs:
        return _Pairs(self.variable, self.units[chosen], self.low[chosen], self.high[chosen])

    @classmethod
    def all(cls, variable: int, units: IntArray, low: FloatArray, high: FloatArray) -> _Pairs:
        """Every unit with every interval, units slowest."""
        ends = np.tile(low, len(units)), np.tile(high, len(units))
        return cls(variable, np.repeat(units, len(low)), *ends)


class RestrictedIntervals(RestrictedLayer):
    """Units of which each variable is observed, or lies in an interval."""

    def __init__(self, layer: NumericalLayer, evidence: Evidence) -> None:
        super().__init__(layer, evidence)
        self._variables = layer.scopes[:, 0]
        self._cells = evidence.X.T[self._variables]
        bounds = {v: evidence.bounds(v) for v in np.unique(self._variables).tolist()}
        self._bounds = bounds
        self._integers = set(evidence.integers.tolist())

    def log_mass(self) -> FloatArray:
        evidence = self.evidence
        values = self.layer.log_prob(evidence.X)
        free = np.isnan(self._cells)
        if any(np.isfinite(bound).any() for pair in self._bounds.values() for bound in pair):
            values = np.where(free, self.layer.log_box(evidence.box), values)
        values[evidence.outside(self._variables)] = -np.inf
        return values

    def moments(self) -> tuple[FloatArray, FloatArray]:
        known_mean, known_variance = self.layer.conditional_moments(self.evidence.X)
        mean, variance = known_mean[..., 0], known_variance[..., 0]
        for variable, (lower, upper) in self._bounds.items():
            is_bounded = np.isfinite(lower) | np.isfinite(upper)
            if not is_bounded.any():
                continue
            units, rows, low, high, inverse = self._distinct(variable, is_bounded)
            own = np.ix_(units, rows)
            found = self._interval_moments(units, low, high)
            mean[own] = np.clip(found[0][:, inverse], low[inverse], high[inverse])
            variance[own] = found[1][:, inverse]
        return mean[..., None], variance[..., None]

    def _distinct(self, variable: int, is_chosen: BoolArray) -> Any:
        """Units of a variable, chosen rows, ends of distinct intervals, and each row's."""
        lower, upper = self._bounds[variable]
        units, rows = np.flatnonzero(self._variables == variable), np.flatnonzero(is_chosen)
        first, inverse = unique_rows(np.stack([lower[rows], upper[rows]], axis=1))
        return units, rows, lower[rows[first]], upper[rows[first]], inverse

    @cached_property
    def _all_moments(self) -> tuple[FloatArray, FloatArray]:
        """Means and variances in all rows at once, (n_units, n) each."""
        mean, variance = self.moments()
        return mean[..., 0], variance[..., 0]

    def feature_moments(self, row: int, features: list[Feature]) -> tuple[FloatArray, FloatArray]:
        mean, variance = (values[:, row] for values in self._all_moments)
        means = np.zeros((len(self.layer), len(features)))
        covariances = np.zeros((len(self.layer), len(features), len(features)))
        for f, feature in enumerate(features):
            units = np.flatnonzero(self._variables == feature.variable)
            means[units, f] = mean[units]
            covariances[units, f, f] = variance[units]
        return means, covariances

    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        uniform = rng.random(len(units))
        drawn = self._cells[units, rows]
        for own, pairs in self._free_pairs(units, rows):
            drawn[own] = np.clip(self._draws(pairs, uniform[own]), pairs.low, pairs.high)
        return drawn[:, None]

    def log_max(self) -> FloatArray:
        values = self.layer.log_max(self.evidence.X)
        for variable, (lower, upper) in self._bounds.items():
            is_searched = self._is_searched(variable, lower, upper)
            is_searched &= np.isnan(self.evidence.X[:, variable])
            if not is_searched.any():
                continue
            units, rows, low, high, inverse = self._distinct(variable, is_searched)
            pairs = _Pairs.all(variable, units, low, high)
            heights = self._best_within(pairs)[1].reshape(len(units), len(low))
            values[np.ix_(units, rows)] = heights[:, inverse]
        values[self.evidence.outside(self._variables)] = -np.inf
        return values

    def mode(self, units: IntArray, rows: IntArray, left_out: IntArray = NO_COLUMNS) -> FloatArray:
        points: FloatArray = self.layer.mode(units, self._cells[units, rows][:, None])[:, 0]
        for own, pairs in self._free_pairs(units, rows):
            is_searched = self._is_searched(pairs.variable, pairs.low, pairs.high)
            if is_searched.any():
                points[own[is_searched]] = self._best_within(pairs.take(is_searched))[0]
        return points[:, None]

    def _is_searched(self, variable: int, low: FloatArray, high: FloatArray) -> BoolArray:
        """Where the best point in an interval need not be the mode of the unit."""
        return np.isfinite(low) | np.isfinite(high) | (variable in self._integers)

    def _best_within(self, pairs: _Pairs) -> tuple[FloatArray, FloatArray]:
        """Highest points or integers of units in intervals, and their log densities, (m,) each."""
        if pairs.variable not in self._integers:
            return self._interval_modes(pairs)
        low, high = np.ceil(pairs.low), np.floor(pairs.high)
        return self._integer_modes(pairs._replace(low=low, high=high))

    def _free_pairs(self, units: IntArray, rows: IntArray) -> Iterator[tuple[IntArray, _Pairs]]:
        """Pairs by variable, those that are free, with the bounds of their intervals."""
        variables = self._variables[units]
        for variable in np.unique(variables).tolist():
            own = np.flatnonzero((variables == variable) & np.isnan(self._cells[units, rows]))
            lower, upper = self._bounds[variable]
            if len(own):
                yield own, _Pairs(variable, units[own], lower[rows[own]], upper[rows[own]])

    @abstractmethod
    def _interval_moments(
        self, units: IntArray, low: FloatArray, high: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Means and variances (k, n) of some units in each of n intervals."""

    @abstractmethod
    def _draws(self, pairs: _Pairs, uniform: FloatArray) -> FloatArray:
        """Turn uniform numbers (m,) into draws of units in intervals."""

    @abstractmethod
    def _interval_modes(self, pairs: _Pairs) -> tuple[FloatArray, FloatArray]:
        """Highest points of units in intervals, and their log densities, (m,) each."""

    @abstractmethod
    def _integer_modes(self, pairs: _Pairs) -> tuple[FloatArray, FloatArray]:
        """Best integers of units between integers, and their log densities, (m,) each."""

    @abstractmethod
    def _integer_heights(self, variable: int) -> tuple[FloatArray, FloatArray] | None:
        """Probable integers (s,) of units and log densities (k, s); None if many."""

    def integer_flows(
        self, variable: int, weights: FloatArray, peaks: FloatArray, rows: IntArray
    ) -> tuple[FloatArray, FloatArray] | None:
        known = self._integer_heights(variable)
        if known is None:
            return None
        integers, heights = known
        low, high = (ends[rows] for ends in self._bounds[variable])
        cells = self.evidence.X[rows, variable]
        is_in = (integers[:, None] >= low) & (integers[:, None] <= high)
        is_in &= np.isnan(cells) | (integers[:, None] == cells)
        # Bounds far from a unit make its peaks so low that only ratios are in the range of floats
        is_used = weights > 0.0
        tops = np.where(is_used, peaks, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
        tops[np.isneginf(tops)] = 0.0
        weights = np.where(is_used, weights * np.exp(tops - peaks), 0.0)
        # Higher densities are at integers that all rows exclude
        ratios = np.exp(np.minimum(heights - tops, 0.0))
        return integers, (ratios.T @ weights) * is_in


class _GaussianIntervals(RestrictedIntervals):
    layer: GaussianLayer

    def _interval_moments(
        self, units: IntArray, low: FloatArray, high: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        means, stds = self.layer.means[units, None], self.layer.stds[units, None]
        with np.errstate(over="ignore"):
            mean, variance = truncated_moments((low - means) / stds, (high - means) / stds)
        return means + stds * mean, stds**2 * variance

    def _draws(self, pairs: _Pairs, uniform: FloatArray) -> FloatArray:
        means, stds = self.layer.means[pairs.units], self.layer.stds[pairs.units]
        with np.errstate(over="ignore"):
            low, high = (pairs.low - means) / stds, (pairs.high - means) / stds
            return means + stds * draw_truncated(low, high, uniform)

    def _interval_modes(self, pairs: _Pairs) -> tuple[FloatArray, FloatArray]:
        points = np.clip(self.layer.means[pairs.units], pairs.low, pairs.high)
        return points, self.layer.log_densities(pairs.units, points)

    def _integer_modes(self, pairs: _Pairs) -> tuple[FloatArray, FloatArray]:
        points = np.clip(np.round(self.layer.means[pairs.units]), pairs.low, pairs.high)
        return points, self.layer.log_densities(pairs.units, points)

    def _integer_heights(self, variable: int) -> tuple[FloatArray, FloatArray] | None:
        units = np.flatnonzero(self._variables == variable)
        reach = REACH * self.layer.stds[units]
        first = np.floor((self.layer.means[units] - reach).min())
        last = np.ceil((self.layer.means[units] + reach).max())
        if last - first >= MAX_INTEGERS:
            return None
        integers = np.arange(first, last + 1.0)
        shape = len(units), len(integers)
        pairs = np.broadcast_to(units[:, None], shape), np.broadcast_to(integers, shape)
        return integers, self.layer.log_densities(*pairs)


class _PolynomialIntervals(RestrictedIntervals):
    layer: PiecewisePolynomialLayer

    def _group(self, variable: int) -> PolynomialGroup:
        return next(group for group in self.layer.groups if group.variable == variable)

    def _parts(self, pairs: _Pairs) -> tuple[IntArray, FloatArray, FloatArray]:
        """Pieces (m, P) of pairs of unit and interval, and their parts inside as [u0, u1]."""
        places, is_own = self.layer.pieces.places(pairs.units)
        start, stop = self._inside(places, pairs.low[:, None], pairs.high[:, None])
        return places, start, np.where(is_own, stop, start)

    def _inside(
        self, places: IntArray, low: FloatArray, high: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Parts [u0, u1] of pieces inside intervals; empty ones have equal ends."""
        pieces = self.layer.pieces
        starts, widths = pieces.starts[places], pieces.widths[places]
        is_left, is_tail = pieces.is_left[places], pieces.is_tail[places]
        # A left tail runs away from its edge: its ends change places
        start = np.where(is_left, starts - high, (low - starts) / widths)
        stop = np.where(is_left, starts - low, (high - starts) / widths)
        ends = np.where(is_tail, np.inf, 1.0)
        start = np.clip(start, 0.0, ends)
        return start, np.clip(stop, start, ends)

    @cached_property
    def _runs(self) -> list[_Moments]:
        """Moments of runs of 1, 2, 4, ... pieces from each piece on, (n_pieces,) each: any run is a
        few of them, without the lost digits of differences.
        """
        pieces = self.layer.pieces
        # In tails u is the distance from the edge
        ends = np.where(pieces.is_tail, np.inf, 1.0)
        runs = [self._part_moments(np.arange(len(ends)), np.zeros(len(ends)), ends)]
        n_pieces = int((pieces.last - pieces.first).max()) + 1
        for step in 2 ** np.arange(max(0, n_pieces - 1).bit_length()):
            # Runs that reach beyond a unit are never looked up
            mass, mean, variance = (np.roll(own, -step) for own in runs[-1])
            runs.append(_merge(runs[-1], (mass, mean, variance)))
        return runs

    def _part_moments(
        self, places: IntArray, start: FloatArray, stop: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mass, mean and variance of parts of pieces, each of the shape of `places`."""
        pieces = self.layer.pieces
        starts, widths = pieces.starts[places], pieces.widths[places]
        is_tail, is_left = pieces.is_tail[places], pieces.is_left[places]
        # Tails have closed forms below: their nodes collapse to a point, so that nothing is
        # infinite.
        half, middle = np.where(is_tail, 0.0, stop - start) / 2, (start + stop) / 2
        middle = np.where(is_tail, 0.0, middle)
        total, first, second = np.zeros((3, *places.shape))
        # Exact for the density times squares
        for node, weight in zip(*leggauss(len(pieces.coefficients) // 2 + 2)):
            value = pieces._horner(pieces.coefficients, places, middle + half * node)
            value = np.maximum(value, 0.0) * weight * half
            total, first = total + value, first + value * node
            second = second + value * node**2
        total_mass = divisors(total)
        centre = first / total_mass
        spread = second / total_mass - centre**2
        mean = starts + widths * (middle + half * centre)
        variance = (widths * half) ** 2 * np.maximum(spread, 0.0)
        # From here on the tails: exponential, also within an interval
        rates = np.where(is_tail, pieces.rates[places], 1.0)
        length = np.where(is_tail, stop - start, 0.0) * rates
        tail = pieces.masses[places] * np.exp(-rates * np.where(is_tail, start, 0.0))
        excess, square = _truncated_exponential(length)
        distance = np.where(is_tail, start, 0.0) + excess / rates
        tail_mean = starts + np.where(is_left, -distance, distance)
        return (
            np.where(is_tail, tail * -np.expm1(-length), total),
            np.where(is_tail, tail_mean, mean),
            np.where(is_tail, square / rates**2, variance),
        )

    def _interval_moments(
        self, units: IntArray, low: FloatArray, high: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        group = self._group(int(self._variables[units[0]]))
        own = np.searchsorted(group.units, units)
        first, last = group.locate(low)[own], group.locate(high)[own]
        total = self._part_moments(first, *self._inside(first, low, high))
        mass, mean, variance = self._part_moments(last, *self._inside(last, low, high))
        # Within one piece the first part is all there is
        total = _merge(total, (np.where(last > first, mass, 0.0), mean, variance))
        n_between = np.maximum(last - first - 1, 0)
        for digit, run in enumerate(self._runs):
            # The binary digits of the number of pieces between the first and the last
            is_used = (n_between >> digit) & 1
            mass, mean, variance = (moments[first + is_used] for moments in run)
            total = _merge(total, (mass * is_used, mean, variance))
            first = first + (is_used << digit)
        if len(group.atoms):
            inside = (group.atoms >= low[:, None]) & (group.atoms <= high[:, None])
            masses = group.atom_masses[own, None] * inside  # (k, n, a)
            mass = masses.sum(axis=2)
            weights = masses / divisors(mass)[..., None]
            mean = weights @ group.atoms
            variance = (weights * (group.atoms - mean[..., None]) ** 2).sum(axis=2)
            total = _merge(total, (mass, mean, variance))
        return total[1:]

    def _atom_masses(self, group: PolynomialGroup, pairs: _Pairs) -> FloatArray:
        """Masses of the atoms inside intervals, (m, a)."""
        inside = (group.atoms >= pairs.low[:, None]) & (group.atoms <= pairs.high[:, None])
        return group.atom_masses[np.searchsorted(group.units, pairs.units)] * inside

    def _draws(self, pairs: _Pairs, uniform: FloatArray) -> FloatArray:
        # Pairs of equal unit and interval have one table
        first, inverse = unique_rows(np.stack(pairs[1:], axis=1))
        own, group = pairs.take(first), self._group(pairs.variable)
        places, start, stop = self._parts(own)
        masses = self._part_moments(places, start, stop)[0]
        masses = np.hstack([masses, self._atom_masses(group, own)])
        return group.draw_parts(places, start, stop, masses, inverse, uniform)

    def _interval_modes(self, pairs: _Pairs) -> tuple[FloatArray, FloatArray]:
        variable, units, low, high = pairs
        pieces, group = self.layer.pieces, self._group(variable)
        places, start, stop = self._parts(pairs)
        is_tail = pieces.is_tail[places]
        u, height = pieces.highest_points(
            places, np.where(is_tail, 0.0, start), np.where(is_tail, 0.0, stop)
        )
        # A tail is highest where it is nearest to its edge
        distance = np.where(is_tail, start, 0.0)
        rates = pieces.rates[places]
        # Far out, only its logarithm is in the range of floats
        with np.errstate(over="ignore"):
            tail = safe_log(pieces.masses[places] * rates) - rates * distance
        inner = safe_log(np.maximum(height, 0.0) / pieces.widths[places])
        height = np.where(is_tail, tail, inner)
        # Empty parts are no place for a mode, but for intervals that are a point
        height[(stop <= start) & (low < high)[:, None]] = -np.inf
        is_left = pieces.is_left[places]
        step = np.where(is_left, -distance, distance) + pieces.widths[places] * u
        points = np.clip(pieces.starts[places] + step, low[:, None], high[:, None])
        # Beside a point where any unit has a mass, or the edge that a tail begins beyond
        is_taken = np.isin(points, group.atoms) | (is_tail & (distance == 0.0))
        is_end = is_left | (~is_tail & (u > (start + stop) / 2.0))
        beside = np.nextafter(points, np.where(is_end, -np.inf, np.inf))
        points = np.clip(np.where(is_taken, beside, points), low[:, None], high[:, None])
        if len(group.atoms):
            # Nothing lies beside a mass in an interval that is this point
            height[np.isin(points, group.atoms)] = -np.inf
            atoms = np.broadcast_to(group.atoms, (len(units), len(group.atoms)))
            on_atoms = safe_log(self._atom_masses(group, pairs))
            height = np.hstack([height, on_atoms])
            points = np.hstack([points, atoms])
        chosen = np.arange(len(units)), height.argmax(axis=1)
        return np.clip(points[chosen], low, high), height[chosen]

    def _integer_modes(self, pairs: _Pairs) -> tuple[FloatArray, FloatArray]:
        variable, units, low, high = pairs
        group = self._group(variable)
        own = np.searchsorted(group.units, units)
        known = self._integer_heights(variable)
        if known is None:
            # Densities over so many integers hardly change from one to the next
            real = self._interval_modes(pairs)[0]
            points = np.clip([np.floor(real), np.ceil(real)], low, high)
            listed, place = np.unique(points, return_inverse=True)
            heights = group.log_density(listed)[own, place.reshape(points.shape)]
            highest = heights.argmax(axis=0), np.arange(len(units))
            return points[highest], heights[highest]
        points, best = np.empty((2, len(units)))
        distinct, number_of = unique_rows(np.stack([low, high], axis=1))
        for number, (first, last) in enumerate(zip(low[distinct], high[distinct])):
            chosen = np.flatnonzero(number_of == number)
            listed, heights = known
            within = slice(*np.searchsorted(listed, [first, last + 1.0]))
            if within.start >= within.stop:
                # In a tail, the integer that is nearest to the others is the best
                listed = np.array([first if first > listed[-1] else last])
                heights, within = group.log_density(listed), slice(None)
            # Many pairs may be of one unit
            rows, unit_of = np.unique(own[chosen], return_inverse=True)
            heights = heights[rows, within]
            points[chosen] = listed[within][heights.argmax(axis=1)][unit_of]
            best[chosen] = heights.max(axis=1)[unit_of]
        best[low > high] = -np.inf
        return points, best

    def _integer_heights(self, variable: int) -> tuple[FloatArray, FloatArray] | None:
        return self._group(variable).integers


class _PoissonIntervals(RestrictedIntervals):
    """Counts between two counts, by ratios to the mass of the most probable one, which have all
    digits also where masses are no floats.
    """

    layer: PoissonLayer

    def __init__(self, layer: PoissonLayer, evidence: Evidence) -> None:
        super().__init__(layer, evidence)
        closed = evidence.box.closed
        for variable, (low, high) in self._bounds.items():
            first = np.ceil(low) if closed in ("both", "left") else np.floor(low) + 1.0
            last = np.floor(high) if closed in ("both", "right") else np.ceil(high) - 1.0
            # Where all counts are allowed, they stay without bounds
            self._bounds[variable] = np.where(first > 0.0, first, -np.inf), last

    def _peaks(self, pairs: _Pairs) -> FloatArray:
        """The most probable counts, (m,)."""
        counts = np.clip(np.floor(self.layer.rates[pairs.units]), pairs.low, pairs.high)
        return np.maximum(counts, 0.0)

    def _tables(self, pairs: _Pairs) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
        """Counts around the most probable ones, (m, w), and their masses, which sum to one."""
        _, units, low, high = pairs
        rates, peaks = np.maximum(self.layer.rates[units], _LEAST_RATE), self._peaks(pairs)
        spread = _COUNT_STDS * np.sqrt(rates) + _COUNTS_BESIDE
        n_beside = np.clip(high - np.maximum(low, 0.0), 0.0, spread).astype(np.int64)
        for part in _parts_of_similar_width(n_beside):
            steps = np.arange(1.0, n_beside[part].max() + 1.0)
            peak, rate = peaks[part, None], rates[part, None]
            above = np.cumsum(np.log(rate / (peak + steps)), axis=1)
            below = np.cumsum(np.log(np.maximum(peak + 1.0 - steps, 0.5) / rate), axis=1)
            counts = peak + np.concatenate([-steps[::-1], [0.0], steps])
            logs = np.concatenate([below[:, ::-1], np.zeros_like(peak), above], axis=1)
            is_in = (counts >= np.maximum(low[part], 0.0)[:, None]) & (counts <= high[part, None])
            masses = np.exp(np.where(is_in, logs, -np.inf))
            # Intervals without a count have no distribution
            yield part, counts, masses / divisors(masses.sum(axis=1, keepdims=True))

    def _interval_moments(
        self, units: IntArray, low: FloatArray, high: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        shape = len(units), len(low)
        mean, variance = np.empty((2, len(units) * len(low)))
        pairs = _Pairs.all(int(self._variables[units[0]]), units, low, high)
        for part, counts, masses in self._tables(pairs):
            peak = counts[:, :1]
            centre = (masses * (counts - peak)).sum(axis=1, keepdims=True)
            mean[part] = (peak + centre)[:, 0]
            variance[part] = (masses * (counts - peak - centre) ** 2).sum(axis=1)
        return mean.reshape(shape), variance.reshape(shape)

    def _draws(self, pairs: _Pairs, uniform: FloatArray) -> FloatArray:
        drawn = np.empty(len(uniform))
        for part, counts, masses in self._tables(pairs):
            chosen = draw_states(masses, uniform[part])
            drawn[part] = counts[np.arange(len(counts)), chosen]
        return drawn

    def _is_searched(self, variable: int, low: FloatArray, high: FloatArray) -> BoolArray:
        return np.isfinite(low) | np.isfinite(high)  # modes are integers

    def _interval_modes(self, pairs: _Pairs) -> tuple[FloatArray, FloatArray]:
        return self._integer_modes(pairs)

    def _integer_modes(self, pairs: _Pairs) -> tuple[FloatArray, FloatArray]:
        points = self._peaks(pairs)
        heights = log_mass_of_counts(points, self.layer.rates[pairs.units])
        return points, np.where(pairs.low > pairs.high, -np.inf, heights)

    def _integer_heights(self, variable: int) -> tuple[FloatArray, FloatArray] | None:
        rates = self.layer.rates[self._variables == variable]
        spread = _COUNT_STDS * np.sqrt(rates) + _COUNTS_BESIDE
        first, last = np.maximum(np.floor(rates - spread), 0.0).min(), np.ceil(rates + spread).max()
        if last - first >= MAX_INTEGERS:
            return None
        counts = np.arange(first, last + 1.0)
        return counts, log_mass_of_counts(counts, rates[:, None])


def _parts_of_similar_width(widths: IntArray) -> Iterator[IntArray]:
    """Indices of rows whose tables differ by less than a factor of two and fit into memory."""
    octaves = np.frexp(widths)[1]
    for octave in np.unique(octaves):
        members = np.flatnonzero(octaves == octave)
        for part in row_slices(len(members), max(1, _MAX_COUNTS // max(1, 1 << octave))):
            yield members[part]


def _merge(left: _Moments, right: _Moments) -> _Moments:
    """Moments of the union of disjoint parts; parts without mass are ignored."""
    mass = left[0] + right[0]
    weight = right[0] / divisors(mass)
    step = right[1] - left[1]
    mean = left[1] + weight * step
    # Only differences of means: no cancellation, and parts without mass do not overflow
    spread = (weight * step) * ((1.0 - weight) * step)
    return mass, mean, (1.0 - weight) * left[2] + weight * right[2] + spread


def _truncated_exponential(length: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of unit exponential numbers below a length, which may be infinite."""
    finite = np.minimum(length, MAX_SCALES)
    is_short = finite < 1e-2  # where differences would cancel, the first terms of the series do
    safe = np.where(is_short, 1.0, finite)
    series = finite / 2 - finite**2 / 12 + finite**4 / 720
    mean = np.where(is_short, series, 1.0 - 1.0 / exprel(safe))
    variance = 1.0 - (safe / (2.0 * np.sinh(safe / 2.0))) ** 2
    return mean, np.where(is_short, finite**2 / 12 - finite**4 / 240, variance)


restrict.register(GaussianLayer, _GaussianIntervals)
restrict.register(PoissonLayer, _PoissonIntervals)
restrict.register(PiecewisePolynomialLayer, _PolynomialIntervals)


@within.register
def _polynomials_within(
    layer: PiecewisePolynomialLayer,
    units: Sequence[PiecewisePolynomial],
    variable: int,
    low: float,
    high: float,
) -> list[Parts]:
    return [_polynomial_within(unit, variable, low, high) for unit in units]


def _polynomial_within(unit: PiecewisePolynomial, variable: int, low: float, high: float) -> Parts:
    first, last = float(unit.knots[0]), float(unit.knots[-1])
    inside = (unit.atoms >= low) & (unit.atoms <= high)
    atoms, masses = unit.atoms[inside], unit.atom_masses[inside]
    start, stop = max(low, first), min(high, last)
    if start < stop:
        knots, weights = _spline_within(unit.knots, unit.weights, start, stop)
        tails = unit.tail_masses * np.isinf([low, high])
    else:
        knots, tails = _rest_of_tail(unit, int(low >= last), low, high)
        weights = np.zeros(1)
    parts: Parts = []
    total = float(weights.sum() + masses.sum() + tails.sum())
    if total > LEAST_MASS:
        fractions = [own / total for own in (weights, masses, tails)]
        own = PiecewisePolynomial(
            variable, knots, fractions[0], atoms, fractions[1], fractions[2], unit.tail_scales
        )
        parts.append((total, own))
    # Tails begin beyond the knots
    before, after = float(np.nextafter(first, -np.inf)), float(np.nextafter(last, np.inf))
    for side, start, stop in ((0, low, min(high, before)), (1, max(low, after), high)):
        if -np.inf < start < stop < np.inf:
            parts += _tail_within(unit, side, start, stop)
    return parts


def _rest_of_tail(
    unit: PiecewisePolynomial, side: int, low: float, high: float
) -> tuple[FloatArray, FloatArray]:
    """Knots without weight and masses of both (exponential) tails, of a band beyond the knots."""
    edge, end = (low, high) if side else (high, low)
    scale = unit.tail_scales[side]
    tails = np.zeros(2)
    if np.isinf(end):
        gap = abs(edge - unit.knots[-side])
        tails[side] = unit.tail_masses[side] * np.exp(-gap / scale)
    # The edge belongs to the tail, which begins beyond the knots
    inner = np.nextafter(edge, -np.inf if side else np.inf)
    width = scale + abs(edge)
    return inner + np.array([-width, 0.0] if side else [0.0, width]), tails


def _spline_within(
    knots: FloatArray, weights: FloatArray, start: float, stop: float
) -> tuple[FloatArray, FloatArray]:
    """Knots and weights of a density of B-splines on a part of its range."""
    degree = len(weights) - len(knots) + 1
    clamped = np.concatenate([[knots[0]] * degree, knots, [knots[-1]] * degree])
    # B-splines with integral one are (p + 1) / (t_{k+p+1} - t_k) times those that add up to one
    spline = BSpline(clamped, weights / _integrals(clamped, degree), degree)
    for point in (start, stop):
        missing = degree + 1 - int(np.count_nonzero(spline.t == point))
        if missing > 0:
            spline = spline.insert_knot(point, missing)
    first, last = np.searchsorted(spline.t, [start, stop])
    own = spline.t[first : last + degree + 1]
    # Knots are inserted by convex combinations: what is negative is rounding
    return np.unique(own), np.maximum(spline.c[first:last], 0.0) * _integrals(own, degree)


def _integrals(clamped: FloatArray, degree: int) -> FloatArray:
    """Integrals of the B-splines that add up to one."""
    return (clamped[degree + 1 :] - clamped[: -degree - 1]) / (degree + 1)


def _tail_within(unit: PiecewisePolynomial, side: int, start: float, stop: float) -> Parts:
    """The part of an exponential tail between two points, as a histogram."""
    edge, scale = unit.knots[-side], unit.tail_scales[side]
    beyond = np.exp(-np.abs(np.array([start, stop]) - edge) / scale)
    levels = np.linspace(beyond[0], beyond[1], _TAIL_CELLS + 1)
    mass = float(unit.tail_masses[side] * abs(levels[0] - levels[-1]))
    inner = edge + (1 - 2 * side) * scale * np.log(levels[1:-1])
    knots = np.concatenate([[start], inner, [stop]])
    if mass <= LEAST_MASS or (np.diff(knots) <= 0).any():
        return []
    return [
        (mass, PiecewisePolynomial(unit.variable, knots, np.full(_TAIL_CELLS, 1 / _TAIL_CELLS)))
    ]
