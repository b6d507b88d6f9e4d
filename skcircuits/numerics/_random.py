"""Random number streams, and draws from discrete distributions and polynomials.

Random numbers may be keyed per row, so that draws do not depend on the order, subset or chunks of
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from numbers import Integral
from typing import Any, Protocol, Self

import numpy as np
from numpy.polynomial.legendre import leggauss, legint, legval, legvander
from numpy.typing import NDArray
from scipy.special import ndtri

from skcircuits.exceptions import invalid
from skcircuits.protocols import FloatArray, IntArray


class RandomNumbers(Protocol):
    """Gives random numbers: a `numpy.random.Generator`, or draws keyed per row."""

    def random(self, size: int, /) -> FloatArray:
        """Draw uniform numbers in [0, 1)."""

    def standard_normal(self, size: int | tuple[int, int], /) -> FloatArray:
        """Draw standard normal numbers."""


def as_generator(random_state: Any) -> np.random.Generator:
    """Make a generator from a random state of scikit-learn; a RandomState is advanced."""
    # Other objects are refused: numpy would try to make seeds of them, for a matrix without end
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    sources = np.random.Generator | np.random.BitGenerator | np.random.SeedSequence
    is_seed = isinstance(random_state, Integral) and int(random_state) >= 0
    if not (random_state is None or is_seed or isinstance(random_state, sources)):
        condition = "be a non-negative integer, a Generator, a RandomState or None"
        raise invalid("random_state", condition, random_state=random_state)
    return np.random.default_rng(random_state)


def draw_states(weights: FloatArray, uniforms: FloatArray) -> IntArray:
    """Draw states (...) by weights (..., n_states), not all zero, and uniforms (...) in [0, 1)."""
    cumulative = np.cumsum(weights, axis=-1)
    # Scaling the uniform numbers saves normalising the weights; rounding may move them to the total
    # itself, where a last state of weight zero would be drawn
    total = cumulative[..., -1]
    thresholds = np.minimum(uniforms * total, np.nextafter(total, 0.0))
    return (cumulative[..., :-1] <= thresholds[..., None]).sum(axis=-1)


class InverseCdf:
    """Inverts distribution functions by the indexed search of Chen and Asau (1974): for each of k
    buckets of the unit interval a guide names the first outcome, less than two steps away on
    average.
    """

    def __init__(self, masses: FloatArray, starts: IntArray, lengths: IntArray) -> None:
        self._starts = starts
        self._lengths = lengths
        self._steps = _distribution_functions(masses, starts, lengths)
        distribution = np.repeat(np.arange(len(starts)), lengths)
        buckets = (np.arange(len(masses)) - starts[distribution]) / lengths[distribution]
        # A guide may point too low, never too high: rounding is taken off.
        lowest = np.searchsorted(
            self._steps + distribution, buckets + distribution - 1e-9, side="right"
        )
        self._guide = np.clip(lowest, starts[distribution], (starts + lengths - 1)[distribution])

    def draw(self, distributions: IntArray, uniform: FloatArray) -> IntArray:
        """Draw one outcome per entry."""
        bucket = (uniform * self._lengths[distributions]).astype(np.intp)
        outcomes = self._guide[self._starts[distributions] + bucket]
        # All draws take their steps together; those that have arrived drop out.
        behind = np.flatnonzero(self._steps[outcomes] <= uniform)
        while len(behind):
            outcomes[behind] += 1
            behind = behind[self._steps[outcomes[behind]] <= uniform[behind]]
        return outcomes


def _distribution_functions(masses: FloatArray, starts: IntArray, lengths: IntArray) -> FloatArray:
    """Cumulative masses of each distribution, ending in exactly one."""
    totals = np.add.reduceat(masses, starts)
    totals[totals == 0.0] = 1.0
    # Normalised before they are added up, so that large distributions do not drown small ones.
    steps = np.cumsum(masses / np.repeat(totals, lengths))
    last = starts + lengths - 1
    before = np.where(starts > 0, steps[starts - 1], 0.0)
    steps -= np.repeat(before, lengths)
    ends = np.where(steps[last] > 0, steps[last], 1.0)
    steps /= np.repeat(ends, lengths)
    # Distributions of mass zero are never drawn from; their search must end.
    steps[last] = 1.0
    return steps


UInt64Array = NDArray[np.uint64]
# For pairs of a draw and a row, with the place of each: the source of random numbers.
DrawSource = Callable[[IntArray, IntArray], RandomNumbers]

# Constants of SplitMix64 (Steele, Lea and Flood, 2014): the golden ratio and a mixer that
# turns consecutive numbers into independent-looking ones.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)


class RowStreams:
    """A stream of random numbers per row of X (n, d), keyed by its cells and a seed; rows that
    equal earlier ones (NaN equals NaN) have others.
    """

    def __init__(self, X: FloatArray, seed: int) -> None:
        # Adding 0.0 makes -0.0 and 0.0 one number, and NaN has one pattern of bits
        cells = np.where(np.isnan(X), np.nan, X + 0.0).view(np.uint64)
        self.keys = np.full(len(X), _mix(np.array([seed], dtype=np.uint64)))
        for column in cells.T:
            self.keys = _mix(self.keys ^ column)
        self.keys = _mix(self.keys + GOLDEN * _occurrence(self.keys))

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: slice) -> Self:
        part = copy(self)
        part.keys = self.keys[rows]
        return part

    def at(self, rows: IntArray, draw: IntArray | int, place: IntArray | int) -> KeyedDraws:
        """Open streams of rows (m,) at a number of draw (m,) and a place (m,), such as a unit."""
        keys = _mix(self.keys[rows] + GOLDEN * np.asarray(draw).astype(np.uint64))
        return KeyedDraws(_mix(keys + GOLDEN * np.asarray(place).astype(np.uint64)))


class LatticeStreams(RowStreams):
    """Row streams of quasi-random draws: runs of `size` (a power of two) draws are independent,
    randomly shifted rank-1 lattices, each of whose numbers is stratified.
    """

    def __init__(self, X: FloatArray, seed: int, size: int) -> None:
        super().__init__(X, seed)
        self.size = size

    def at(self, rows: IntArray, draw: IntArray | int, place: IntArray | int) -> KeyedDraws:
        """Open streams at a place, as `RowStreams.at` does."""
        run, point = np.divmod(np.asarray(draw).astype(np.uint64), np.uint64(self.size))
        return _LatticeDraws(super().at(rows, run.astype(np.int64), place).keys, point, self.size)


class KeyedDraws:
    """Random numbers for rows with keys (m,), equal for equal keys; a ``RandomNumbers``."""

    def __init__(self, keys: UInt64Array) -> None:
        self.keys = keys

    def random(self, size: int) -> FloatArray:
        """Draw uniform numbers in [0, 1), one per row, (m,)."""
        return self._uniform(1)[:size, 0]

    def standard_normal(self, size: int | tuple[int, int]) -> FloatArray:
        """Draw standard normal numbers, one or several per row, (m,) or (m, k), by inversion."""
        n_columns = 1 if isinstance(size, int) else size[1]
        # Half a step away from 0, where the inverse is infinite
        normal: FloatArray = ndtri(self._uniform(n_columns) + 2.0**-54)
        return normal.reshape(size)

    def _uniform(self, n_columns: int) -> FloatArray:
        """Uniform numbers of shape (m, n_columns): the 53 leading bits of hashed keys."""
        steps = GOLDEN * np.arange(1, n_columns + 1, dtype=np.uint64)
        bits = _mix(self.keys[:, None] + steps) >> np.uint64(11)
        return bits.astype(np.float64) * 2.0**-53


class _LatticeDraws(KeyedDraws):
    """Points of shifted lattices of n points: shift + multiplier * point / n, modulo one."""

    def __init__(self, keys: UInt64Array, point: UInt64Array, n_points: int) -> None:
        super().__init__(keys)
        self._point = np.broadcast_to(point, keys.shape)
        self._n_points = n_points

    def _uniform(self, n_columns: int) -> FloatArray:
        steps = GOLDEN * np.arange(1, n_columns + 1, dtype=np.uint64)
        shift = _mix(self.keys[:, None] + steps)
        # Odd multipliers permute the points of a lattice whose number is a power of two
        multiplier = _mix(shift) | np.uint64(1)
        at = (multiplier * self._point[:, None]) & np.uint64(self._n_points - 1)
        uniform = (shift >> np.uint64(11)).astype(np.float64) * 2.0**-53
        uniform += at.astype(np.float64) / self._n_points
        return uniform - np.floor(uniform)


def draw_source(rng: np.random.Generator | RowStreams, rows: slice, draws: slice) -> DrawSource:
    """``source(pairs, places)`` of random numbers; pair i is draw i // n_rows of row i % n_rows."""
    if isinstance(rng, np.random.Generator):
        return lambda pairs, places: rng

    def draw_keyed(pairs: IntArray, places: IntArray) -> RandomNumbers:
        draw, row = np.divmod(pairs, rows.stop - rows.start)
        return rng.at(rows.start + row, draws.start + draw, places)

    return draw_keyed


def _occurrence(keys: UInt64Array) -> UInt64Array:
    """Count for each key how many equal ones come before it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_first = np.r_[True, ordered[1:] != ordered[:-1]][: len(keys)]
    position = np.arange(len(keys))
    start = np.maximum.accumulate(np.where(is_first, position, 0))
    occurrence = np.empty(len(keys), dtype=np.uint64)
    occurrence[order] = position - start
    return occurrence


def _mix(keys: UInt64Array) -> UInt64Array:
    """Scatter keys over all 64 bits (the finaliser of SplitMix64); products wrap around."""
    keys = (keys ^ (keys >> np.uint64(30))) * MIX_1
    keys = (keys ^ (keys >> np.uint64(27))) * MIX_2
    return keys ^ (keys >> np.uint64(31))


def draw_from_nodes(masses: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw from densities on [0, 1] with masses (n, k) of Gauss-Legendre nodes, by bisection."""
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
