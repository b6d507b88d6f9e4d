"""Categories that are decided by thresholds of a number: their search, and circuits with them.

Such a category has one frequent value in each band of the number between two thresholds, and within
a band depends on nothing else. Learners need not learn it: a table without it says the same. In a
circuit over the other columns, an input unit over the number is divided into its parts between
thresholds, each with the categories of its band. Thus the category follows the number exactly,
whatever else the circuit models. Columns of few numbers, such as 0 and 1, are categories here, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import chdtrc

from skcircuits.circuits import Categorical, Circuit, Product, Sum
from skcircuits.circuits.inputs import InputUnit
from skcircuits.circuits.inputs.restriction._evidence import LEAST_MASS, within
from skcircuits.circuits.structure.units import Unit, rebuild, topological_order
from skcircuits.learning._columns import (
    frequencies,
    log_likelihood,
    rank_fractions,
    smoothed_masses,
)
from skcircuits.learning._sum_product import (
    g_test,
    rank_correlation_test,
    rank_levels,
)
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Rows of the first look at all pairs of columns, and how often neighbours in the order of a number
# may differ in a category that it decides, relative to rows in any order
_SCREENED_ROWS = 2000
_MAX_CHANGES = 0.6
_MAX_BANDS = 32
_MIN_ROWS = 8  # between thresholds: fewer rows may be alike by chance
# Rows of other categories than that of their band: fraction of all, of any band, and of those
# without the number
_MAX_WRONG, _MAX_WRONG_IN_BAND, _MAX_WRONG_RATIO = 0.08, 0.2, 0.6
_MIN_WIDTH = 1e-3  # of a band of one number, relative to the way to its neighbours
_SMOOTHING = 0.25  # most rows in common, times four, that are added to each band
_LEVEL = 0.05  # probability of finding that other columns matter where none does


@dataclass(frozen=True)
class Thresholds:
    """A number, its thresholds, and the categories that they decide."""

    variable: int  # column of the number
    cuts: FloatArray  # (B - 1,), increasing, each of which belongs to the band above it
    fractions: FloatArray | None  # (B,), of the rows; None if cells of the number are missing
    tables: dict[int, FloatArray]  # probabilities (B, k) of states by decided column


@dataclass(frozen=True)
class _Decision:
    """A category that the thresholds of a number decide."""

    number: int
    category: int
    cuts: FloatArray
    counts: FloatArray  # (B, k), of the categories in each band
    gain: float  # of the penalised log likelihood


def find_thresholds(
    X: FloatArray,
    weights: FloatArray,
    cardinalities: IntArray,
    is_integral: BoolArray,
    max_numbers: int,
    few: Mapping[int, FloatArray] | None = None,
) -> list[Thresholds]:
    """Find up to `max_numbers` numbers that decide categories, those that tell most first."""
    # `cardinalities` (d,) is 0 for numbers; thresholds of `is_integral` (d,) columns lie between
    # two integers; the increasing numbers of columns that have `few` are categories to all others
    few = few or {}
    states, sizes = X, cardinalities
    if few:
        states, sizes = X.copy(), cardinalities.copy()
    for j, values in few.items():
        states[:, j] = np.where(np.isnan(X[:, j]), np.nan, np.searchsorted(values, X[:, j]))
        sizes[j] = len(values)
    best: dict[int, _Decision] = {}
    numbers = np.flatnonzero(cardinalities == 0)
    for is_few in (True, False):
        decided = list(few) if is_few else np.flatnonzero(cardinalities).tolist()
        deciding = np.setdiff1d(numbers, list(few) if is_few else list(best))
        for number, category in _candidates(X, states, sizes, deciding.tolist(), decided):
            labels = states[:, category][:, None] == np.arange(sizes[category])
            found = _decide(X, labels, weights, cardinalities, number, category, is_integral)
            if found and found.gain > getattr(best.get(category), "gain", 0.0):
                best[category] = found
    groups: dict[int, list[_Decision]] = {}
    for own in best.values():
        groups.setdefault(own.number, []).append(own)
    ranked = sorted(groups.values(), key=lambda group: -sum(own.gain for own in group))
    return [_joined(group, X[:, group[0].number], weights) for group in ranked[:max_numbers]]


def _candidates(
    X: FloatArray, states: FloatArray, sizes: IntArray, deciding: list[int], decided: list[int]
) -> Iterator[tuple[int, int]]:
    """Pairs of a number and a category whose changes are rare in the order of the number."""
    some = slice(None, None, max(1, len(X) // _SCREENED_ROWS))
    codes = states[some][:, decided]
    # two rows in any order differ with probability 1 - Σ p²
    expected = np.array(
        [1.0 - np.square(frequencies(c, k)).sum() for c, k in zip(codes.T, sizes[decided])]
    )
    for number in deciding:
        cells = X[some, number]
        seen = np.flatnonzero(~np.isnan(cells))
        ordered = codes[seen[np.argsort(cells[seen], kind="stable")]]
        both = ~np.isnan(ordered[1:]) & ~np.isnan(ordered[:-1])
        changes = ((ordered[1:] != ordered[:-1]) & both).sum(axis=0)
        is_rare = changes < _MAX_CHANGES * expected * both.sum(axis=0)
        yield from ((number, decided[k]) for k in np.flatnonzero(is_rare).tolist())


def _decide(
    X: FloatArray,
    labels: BoolArray,
    weights: FloatArray,
    cardinalities: IntArray,
    number: int,
    category: int,
    is_integral: BoolArray,
) -> _Decision | None:
    """The thresholds of a number that decide a category, of `labels` (n, k), if any do."""
    seen = np.flatnonzero(~np.isnan(X[:, [number, category]]).any(axis=1))
    order = seen[np.argsort(X[seen, number], kind="stable")]
    values, own, labels = X[order, number], weights[order], labels[order]
    ends = np.zeros((len(values) + 1, labels.shape[1]))
    np.cumsum(own[:, None] * labels, axis=0, out=ends[1:])
    places, gain = _step_places(values, ends)
    counts = np.diff(ends[np.concatenate([[0], places, [len(values)]])], axis=0)
    if not 2 <= len(counts) <= _MAX_BANDS or not _is_decided(counts):
        return None
    bands = np.repeat(np.arange(len(counts)), np.diff(np.concatenate([[0], places, [len(values)]])))
    is_wrong = ~labels[np.arange(len(bands)), counts.argmax(axis=1)[bands]]
    others = np.delete(np.arange(X.shape[1]), category)
    if is_wrong.any() and not _is_pure_noise(
        X[np.ix_(order, others)], own, cardinalities[others], bands, is_wrong
    ):
        return None
    integral = bool(is_integral[number])
    cuts = [_threshold(values[i - 1], values[i], integral) for i in places.tolist()]
    return _Decision(number, category, np.array(cuts), counts, gain)


def _step_places(values: FloatArray, ends: FloatArray) -> tuple[IntArray, float]:
    """Places of the steps of a category's frequencies along increasing values, and the gain."""
    # A band is divided where the likelihood gains most, if the information criterion does: the
    # place counts as a parameter; `ends` (n + 1, k) counts the categories up to each row
    between = np.flatnonzero(np.diff(values) > 0) + 1
    n_free = np.count_nonzero(ends[-1]) - 1
    places: list[int] = []
    total = 0.0
    open_bands = [(0, len(values))]
    while open_bands and len(places) < _MAX_BANDS:
        start, stop = open_bands.pop()
        inside = between[(between > start) & (between < stop)]
        if len(inside) == 0:
            continue
        left, right = ends[inside] - ends[start], ends[stop] - ends[inside]
        whole = ends[[stop]] - ends[[start]]
        gains = log_likelihood(left) + log_likelihood(right) - log_likelihood(whole)
        best = int(gains.argmax())
        gain = gains[best] - np.log(len(inside)) - 0.5 * n_free * np.log(max(whole.sum(), 1.0))
        if gain > 0:
            place, total = int(inside[best]), total + float(gain)
            places.append(place)
            open_bands += [(start, place), (place, stop)]
    return np.sort(np.array(places, dtype=np.intp)), total


def _is_decided(counts: FloatArray) -> bool:
    """Whether each band has nearly one category only, another one than the band next to it."""
    most, totals = counts.max(axis=1), counts.sum(axis=1)
    wrong, without = totals.sum() - most.sum(), totals.sum() - counts.sum(axis=0).max()
    return bool(
        (totals[1:-1] >= _MIN_ROWS).all()
        and (np.diff(counts.argmax(axis=1)) != 0).all()
        and (most >= (1.0 - _MAX_WRONG_IN_BAND) * totals).all()
        and wrong <= min(_MAX_WRONG * totals.sum(), _MAX_WRONG_RATIO * without)
    )


def _is_pure_noise(
    X: FloatArray,
    weights: FloatArray,
    cardinalities: IntArray,
    bands: IntArray,
    is_wrong: BoolArray,
) -> bool:
    """Whether rows with another category than that of their band differ in no other column.

    The number itself is among the columns (n, d): wrong rows near a threshold show that the
    category only becomes more probable there.
    """
    p_values: list[FloatArray] = []
    is_number = cardinalities == 0
    for band in np.unique(bands[is_wrong]).tolist():
        inside = bands == band
        wrong, own = is_wrong[inside].astype(float), weights[inside]
        ranks = np.column_stack(
            [rank_fractions(c, own) for c in (wrong, *X[inside][:, is_number].T)]
        )
        levels = np.column_stack(
            [wrong, *(rank_levels(c) for c in ranks.T[1:]), *X[inside][:, ~is_number].T]
        )
        # Ranks show trends that levels hide where few rows are wrong
        p_values += [g_test(levels, own)[0, 1:], rank_correlation_test(ranks, own)[0, 1:]]
    others = np.concatenate(p_values)
    # Bonferroni
    return min(_nearness(weights, bands, is_wrong), others.min() * len(others)) >= _LEVEL / 2


def _nearness(weights: FloatArray, bands: IntArray, is_wrong: BoolArray) -> float:
    """Chance (Fisher's method) that wrong rows, by number, lie as near to the thresholds."""
    # Distances in ranks, relative to the band, are uniform if any row may be wrong: the sum of
    # their logarithms is chi-squared. It is small for few rows already if the category only becomes
    # more probable at the threshold.
    totals = np.bincount(bands, weights)
    starts = np.cumsum(totals) - totals
    position = (np.cumsum(weights) - weights / 2 - starts[bands]) / totals[bands]
    distance = np.minimum(2 * position, 2 * (1 - position))
    # the outermost bands end at one threshold
    distance = np.where(bands == 0, 1 - position, distance)
    distance = np.where(bands == len(totals) - 1, position, distance)
    log_sum = float(weights[is_wrong] @ np.log(distance[is_wrong]))
    return float(chdtrc(2 * weights[is_wrong].sum(), -2 * log_sum))


def _threshold(low: float, high: float, is_integral: bool) -> float:
    """The roundest threshold between two neighbouring numbers, of which `high` lies beyond it."""
    steps = np.multiply.outer(10.0 ** np.arange(300, -301, -1), [1.0, 0.5]).ravel()
    width = high - low
    for step in steps[np.searchsorted(-steps, -4.0 * max(abs(low), abs(high), width)) :]:
        # the one nearest to the middle, if there are several
        point = float(f"{np.round((low + high) / 2 / step) * step:.15g}")
        if low <= point <= high:
            break
        if step < 1e-3 * width:
            point = (low + high) / 2
            break
    if is_integral:
        return point + 0.5 if point == low else point - 0.5
    # "at most low" and "less than high" are thresholds of data alike
    return float(np.nextafter(low, high)) if point == low else point


def _joined(group: list[_Decision], cells: FloatArray, weights: FloatArray) -> Thresholds:
    """All thresholds of one number."""
    values = np.unique(cells[~np.isnan(cells)])
    cuts, places = _separate(np.concatenate([own.cuts for own in group]), values)
    tables = {}
    for own in group:
        prior = own.counts.sum(axis=0) + 1.0 / own.counts.shape[1]
        priors = np.tile(prior / prior.sum(), (len(own.counts), 1))
        masses = smoothed_masses(own.counts, priors, _SMOOTHING)
        firsts = np.searchsorted(values, own.cuts)
        tables[own.category] = masses[np.searchsorted(firsts, np.append(0, places), side="right")]
    fractions = None
    if not np.isnan(cells).any():
        band = np.searchsorted(cuts, cells, side="right")
        counts = np.bincount(band, weights, minlength=len(cuts) + 1)
        fractions = counts / counts.sum()
    return Thresholds(group[0].number, cuts, fractions, tables)


def _separate(cuts: FloatArray, values: FloatArray) -> tuple[FloatArray, IntArray]:
    """Increasing cuts between which densities have mass, and places of their bands in `values`."""
    # Cuts between the same two of the increasing `values` (n,) are the same one: no row lies
    # between them. A band of one value ("at least 18", "more than 18") reaches halfway to its
    # neighbours.
    cuts = np.unique(cuts)
    places, kept = np.unique(np.searchsorted(values, cuts), return_index=True)
    cuts = cuts[kept]
    middles = values[:-1] / 2 + values[1:] / 2
    below, above = middles[places - 1][:-1], middles[places - 1][1:]
    is_narrow = (np.diff(places) == 1) & (np.diff(cuts) < _MIN_WIDTH * (above - below))
    own = np.flatnonzero(is_narrow)
    cuts[own], cuts[own + 1] = below[own], above[own]
    return cuts, places


def with_decided(circuit: Circuit, columns: IntArray, found: Sequence[Thresholds]) -> Circuit:
    """Add decided categories to a circuit over the other columns, whose numbers are `columns`."""
    # Bands of numbers get the probabilities that they have in the table: the distribution given the
    # band remains (Jeffrey's rule)
    root = rebuild(circuit.root, lambda unit: _renumbered(unit, columns))
    for own in found:
        root = _with_bands(root, own)
    return Circuit(root)


def _renumbered(unit: InputUnit, columns: IntArray) -> InputUnit:
    """The same unit over other columns."""
    if (columns[list(unit.scope)] == unit.scope).all():
        return unit
    parameters = unit.parameters()
    name = "variable" if "variable" in parameters else "variables"
    parameters[name] = columns[parameters[name]].tolist()
    return type(unit)(**parameters)


def _with_bands(root: Unit, found: Thresholds) -> Unit:
    """Divide the units over a number at its thresholds."""
    ends = np.concatenate([[-np.inf], found.cuts, [np.inf]])
    factors = np.ones(len(found.cuts) + 1)
    if found.fractions is not None:
        nothing = np.full((len(factors), max(root.scope) + 1), np.nan)
        lower, upper = nothing.copy(), nothing.copy()
        lower[1:, found.variable] = upper[:-1, found.variable] = found.cuts
        masses = np.exp(Circuit(root).log_prob_box(lower, upper, closed="left"))
        factors = np.where(masses > LEAST_MASS, found.fractions / masses, 1.0)
    order = topological_order(root)
    inputs = [u for u in order if isinstance(u, InputUnit) and found.variable in u.scope]
    divided = dict(zip(map(id, inputs), _divided(inputs, found, ends, factors), strict=True))
    built: dict[int, Unit] = {}
    totals: dict[int, float] = {}
    for unit in order:
        if isinstance(unit, Sum):
            weights = unit.weights * [totals[id(child)] for child in unit.children]
            totals[id(unit)] = float(weights.sum())
            built[id(unit)] = Sum(
                [built[id(child)] for child in unit.children], weights=weights / weights.sum()
            )
        elif isinstance(unit, Product):
            totals[id(unit)] = float(np.prod([totals[id(child)] for child in unit.children]))
            built[id(unit)] = Product([built[id(child)] for child in unit.children])
        else:
            built[id(unit)], totals[id(unit)] = divided.get(id(unit), (unit, 1.0))
    return built[id(root)]


def _divided(
    units: list[InputUnit], found: Thresholds, ends: FloatArray, factors: FloatArray
) -> Iterator[tuple[Unit, float]]:
    """Units in parts between `ends`, whose masses are multiplied by `factors`, and their masses."""
    layers: dict[Hashable, list[int]] = {}
    for i, unit in enumerate(units):
        layers.setdefault(unit.layer_key, []).append(i)
    terms: list[list[Unit]] = [[] for _ in units]
    masses: list[list[float]] = [[] for _ in units]
    bands = [
        [Categorical(v, table[band]) for v, table in found.tables.items()]
        for band in range(len(factors))
    ]
    for members in layers.values():
        own = [units[i] for i in members]
        layer = own[0].layer_type.stack(own)
        for categories, factor, (low, high) in zip(bands, factors, pairwise(ends), strict=True):
            # A threshold belongs to the band above it
            last = high if np.isinf(high) else float(np.nextafter(high, -np.inf))
            every = within(layer, own, found.variable, low, last)
            for i, parts in zip(members, every, strict=True):
                for mass, part in parts:
                    if mass > LEAST_MASS:
                        terms[i].append(Product([part, *categories]))
                        masses[i].append(mass * factor)
    for children, weights in zip(terms, map(np.array, masses), strict=True):
        total = float(weights.sum())
        yield Sum(children, weights=weights / total), total
