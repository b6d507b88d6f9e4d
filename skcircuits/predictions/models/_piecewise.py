"""Sums of functions of single columns, each integrated by quadrature over its column.

Linear models after splines, bins, logarithms or power transformations are of this kind. A function
of one number is approximated by a Chebyshev polynomial on each of some panels, which are halved
until the polynomial agrees with the function (Pachón, Platte and Trefethen, 2010, "Piecewise-smooth
chebfuns"). A Gaussian is then integrated over the panels that it meets by Gauss-Legendre rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import ndtr

from skcircuits.parallel import memory_bound_chunks
from skcircuits.predictions._closed_forms import (
    BLOCK_BYTES,
    TINY,
    Expectation,
    IncompleteRows,
    NoClosedFormError,
    Problem,
    Response,
    is_plainly_missing,
)
from skcircuits.predictions._components import NEGLIGIBLE, ConditionedRows, GaussianComponents
from skcircuits.protocols import BoolArray, FloatArray, IntArray

N_COEFFICIENTS = 16
POINTS = chebyshev.chebpts1(N_COEFFICIENTS)
TO_COEFFICIENTS = np.linalg.inv(chebyshev.chebvander(POINTS, N_COEFFICIENTS - 1))
TESTS = np.linspace(-0.97, 0.95, 7)
N_PANELS = 8  # at first, of the domain; and between quantiles of the column, as what is narrow
N_QUANTILES = 24  # beside the domain must not be overlooked
N_DRAWS = 1000  # at which approximations must agree with the function
MAX_INTEGERS = 2**15  # of the domain of a column
MAX_STEPS = 128  # of a function of integers: more take longer than a smooth approximation
MAX_PANELS = 1000  # of a column; kinks at all quantiles of a table need more
TOL = 1e-12
LEAST_WIDTH = 1e-14  # of a panel, relative to the values of the column: a jump is in it
WIDTH = 15.0  # of the domain, in standard deviations of the column on either side of its mean
# A Gaussian ends where its tail is negligible; it is smooth over segments of this length
CUTS = np.linspace(-8.0, 8.0, 9)
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(12)
# Values of a column are tried in whole rows: the cost grows with the square of the columns
MAX_COLUMNS = 64
BYTES_PER_CELL = 8 * 8  # of a row and what transformers make of it


@dataclass(frozen=True, eq=False)
class PiecewiseFunction:
    """A function of one number with k outputs, constant beyond its domain where it is bounded."""

    edges: FloatArray  # (p + 1,), ends of the panels
    coefficients: FloatArray  # (m, p, k), of the first m Chebyshev polynomials on them

    def __call__(self, panels: IntArray, values: FloatArray) -> FloatArray:
        """Evaluate at values (s, g) within panels (s,), shape (s, g, k)."""
        lower, upper = self.edges[panels][:, None], self.edges[panels + 1][:, None]
        # A column without variation has a panel without width
        places = (2.0 * values - lower - upper) / np.maximum(upper - lower, TINY)
        places = places[..., None]
        # Clenshaw's recurrence, from the last coefficient to the first
        sums = before = np.zeros((1, 1, 1))
        for own in self.coefficients[:0:-1]:
            sums, before = own[panels][:, None] + 2.0 * places * sums - before, sums
        return np.asarray(self.coefficients[0][panels][:, None] + places * sums - before)

    def at(self, values: FloatArray) -> FloatArray:
        """Evaluate at values (...) within the domain, shape (..., k)."""
        panels = np.searchsorted(self.edges, values.ravel(), side="right") - 1
        found = self(np.clip(panels, 0, len(self.edges) - 2), values.reshape(-1, 1))
        return found.reshape(*values.shape, found.shape[-1])

    def ends(self) -> FloatArray:
        """Values at both ends of the domain, shape (2, k)."""
        return self.at(self.edges[[0, -1]])

    def normal_means(self, means: FloatArray, stds: FloatArray) -> FloatArray:
        """Expectations under normal distributions, shape (q, k)."""
        stds = np.maximum(stds, max(1e-9 * (self.edges[-1] - self.edges[0]), TINY))
        # Beyond the domain the function is constant
        low = ndtr((self.edges[0] - means) / stds)[:, None]
        high = ndtr((means - self.edges[-1]) / stds)[:, None]
        first, last = self.ends()
        result = low * first + high * last
        query, lower, upper = self._segments(means, stds)
        n_bytes = 8 * len(NODES) * (4 + 3 * len(first))
        for chunk in memory_bound_chunks(len(query), n_bytes, at_most=BLOCK_BYTES // n_bytes):
            own, centre = query[chunk], (lower[chunk] + upper[chunk])[:, None] / 2.0
            half = (upper[chunk] - lower[chunk])[:, None] / 2.0
            distances = centre + half * NODES
            masses = np.exp(-0.5 * distances**2) * half * NODE_WEIGHTS / np.sqrt(2.0 * np.pi)
            mean, std = means[own, None], stds[own, None]
            panels = np.searchsorted(self.edges, (mean + std * centre)[:, 0], side="right") - 1
            panels = np.clip(panels, 0, len(self.edges) - 2)
            values = mean + std * distances
            found = np.einsum("sg,sgk->sk", masses, self(panels, values))
            # The segments of a query follow one another
            starts = np.flatnonzero(np.diff(own, prepend=-1))
            result[own[starts]] += np.add.reduceat(found, starts)
        return result

    def _segments(
        self, means: FloatArray, stds: FloatArray
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Segments that edges and the scale of each Gaussian cut out: query, lower, upper."""
        # In standard deviations from the mean: differences of values would lose the digits of
        # narrow Gaussians
        ends = (self.edges[[0, -1]] - means[:, None]) / stds[:, None]
        cuts = np.clip(CUTS, ends[:, :1], ends[:, 1:])
        first, last = np.searchsorted(self.edges, means + stds * cuts[:, [0, -1]].T)
        counts = last - first
        starts = np.repeat(first - np.cumsum(counts) + counts, counts)
        inner = np.repeat(np.arange(len(means)), counts)
        edges = (self.edges[starts + np.arange(counts.sum())] - means[inner]) / stds[inner]
        query = np.concatenate([np.repeat(np.arange(len(means)), len(CUTS)), inner])
        points = np.concatenate([cuts.ravel(), edges])
        order = np.lexsort((points, query))
        query, points = query[order], points[order]
        inside = (query[1:] == query[:-1]) & (points[1:] > points[:-1])
        return query[:-1][inside], points[:-1][inside], points[1:][inside]


@dataclass(frozen=True, eq=False)
class PiecewiseForm:
    """Mean of f(x) = f(reference) + Σ_j g_j(x_j), where all g_j vanish at the reference."""

    response: Response
    reference: FloatArray  # (d,)
    functions: dict[int, PiecewiseFunction]  # g_j of numeric columns
    tables: dict[int, FloatArray]  # g_j of states of categorical columns
    components: GaussianComponents
    is_bounded: bool
    rounds_integers: bool
    name: str = "functions of single columns"

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes."""
        return self.components.bytes_per_row

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows whose missing cells lie within the panels, unless the draws are bounded."""
        if with_variance:
            return np.zeros(len(rows), dtype=bool)
        covered = is_plainly_missing(rows)
        if self.is_bounded:
            return covered
        for j, _, means, stds, _, own in self._missing(rows, self._conditioned(rows)):
            edges = self.functions[j].edges
            reach = CUTS[-1] * stds
            inside = (means - reach >= edges[0]) & (means + reach <= edges[-1])
            np.logical_and.at(covered, own, inside)
        return covered

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        conditioned = self._conditioned(rows)
        missing = np.isnan(rows.cells)
        mean = self.response(np.where(missing, self.reference, rows.cells))
        for _, function, means, stds, weights, own in self._missing(rows, conditioned):
            np.add.at(mean, own, weights[:, None] * function.normal_means(means, stds))
        for j, table in self.tables.items():
            posterior = conditioned.weights.T @ self.components.tables[j]
            mean[missing[:, j]] += posterior[missing[:, j]] @ table
        return Expectation.exact(mean)

    def _conditioned(self, rows: IncompleteRows) -> ConditionedRows:
        return self.components.conditioned(rows.evidence)

    def _missing(
        self, rows: IncompleteRows, conditioned: ConditionedRows
    ) -> Iterator[tuple[int, PiecewiseFunction, FloatArray, FloatArray, FloatArray, IntArray]]:
        """Yield column, function, and of each row and component: mean, std, weight and row."""
        identity = np.eye(len(self.components.columns))
        means, variances = conditioned.means, conditioned.projected_variances(identity)
        for place, j in enumerate(self.components.columns.tolist()):
            absent = np.isnan(rows.cells[:, j]) & (conditioned.weights > NEGLIGIBLE)
            component, own = np.nonzero(absent)
            stds = np.sqrt(np.maximum(variances[component, own, place], 0.0))
            weights = conditioned.weights[component, own]
            yield j, self.functions[j], means[component, own, place], stds, weights, own


def piecewise_form(problem: Problem) -> PiecewiseForm:
    """Build the form of models that are sums of piecewise smooth functions of single columns."""
    components = GaussianComponents.of(problem.circuit)
    if len(components.columns) > MAX_COLUMNS:
        raise NoClosedFormError(f"functions of more than {MAX_COLUMNS} columns are not integrated")
    reference = problem.location
    reference[list(problem.circuit.cardinalities)] = 0.0
    trials = problem.trial_rows()
    if problem.bounds is not None:
        reference, trials = (np.clip(cells, *problem.bounds) for cells in (reference, trials))
    _check_additive(problem, trials)
    base = problem.ask(problem.response, reference[None])[0]

    def changes(columns: IntArray, values: FloatArray) -> FloatArray:
        """g_j of values of columns, shape (n, k)."""
        parts = []
        for chunk in memory_bound_chunks(len(values), BYTES_PER_CELL * len(reference)):
            rows = np.repeat(reference[None], len(values[chunk]), axis=0)
            rows[np.arange(len(rows)), columns[chunk]] = values[chunk]
            parts.append(problem.ask(problem.response, rows) - base)
        return np.concatenate(parts)

    tables = {
        j: changes(np.full(n, j), np.arange(float(n)))
        for j, n in problem.circuit.cardinalities.items()
    }
    drawn = problem.circuit.sample(N_DRAWS, random_state=1)[:, : problem.n_columns]
    drawn[:, problem.integral_columns] = np.rint(drawn[:, problem.integral_columns])
    drawn = np.clip(drawn, *_domains(problem))
    functions = _functions(problem, changes, components.columns, drawn)
    for j, function in functions.items():
        values = drawn[:, j]
        found, expected = function.at(values), changes(np.full(N_DRAWS, j), values)
        problem.check(base + found, base + expected, "smooth between few values of a column")
    bounded = problem.bounds is not None
    integral = np.intersect1d(components.columns, problem.integral_columns).tolist()
    rounds = all(len(functions[j].coefficients) == 1 for j in integral)
    return PiecewiseForm(
        problem.response, reference, functions, tables, components, bounded, rounds
    )


def _check_additive(problem: Problem, rows: FloatArray) -> None:
    """Refuse models for which the sum of two answers changes if two rows exchange some cells."""
    rng = np.random.default_rng(0)
    others = rng.permutation(rows)
    exchanged = rng.random(rows.shape) < 0.5
    mixed = np.where(exchanged, others, rows), np.where(exchanged, rows, others)
    answers = problem.ask(problem.response, np.vstack([rows, others, *mixed]))
    first, second, third, fourth = np.split(answers, 4)
    problem.check(first + second, third + fourth, "a sum of functions of single columns")


def _domains(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Least and largest value of each column for which its function is approximated."""
    if problem.bounds is not None:
        return problem.bounds
    reach = WIDTH * np.where(problem.scale > 0, problem.scale, 1.0)
    return problem.location - reach, problem.location + reach


def _functions(
    problem: Problem,
    changes: Callable[[IntArray, FloatArray], FloatArray],
    columns: IntArray,
    drawn: FloatArray,
) -> dict[int, PiecewiseFunction]:
    """Write the functions of columns as steps between integers, or approximate them."""
    lower, upper = _domains(problem)
    steps = {}
    for j in np.intersect1d(columns, problem.integral_columns).tolist():
        if upper[j] - lower[j] < MAX_INTEGERS:
            integers = np.arange(np.rint(lower[j]), np.rint(upper[j]) + 1.0)
            function = _between_integers(integers, changes(np.full(len(integers), j), integers))
            # Where many integers have values of their own, rounding them hardly matters
            if len(function.edges) <= MAX_STEPS:
                steps[j] = function
    rest = np.setdiff1d(columns, list(steps))
    smooth = approximate(changes, rest, _first_edges(problem, drawn)) if len(rest) else {}
    return {j: steps[j] if j in steps else smooth[j] for j in columns.tolist()}


def _between_integers(integers: FloatArray, values: FloatArray) -> PiecewiseFunction:
    """The function of a number before it is rounded, given its values (s, k) at integers."""
    starts = np.flatnonzero(np.append(True, (np.diff(values, axis=0) != 0).any(axis=1)))
    edges = np.append(integers[starts] - 0.5, integers[-1] + 0.5)
    return PiecewiseFunction(edges, values[None, starts])


def _first_edges(problem: Problem, drawn: FloatArray) -> FloatArray:
    """Edges of the first panels of each column, shape (p + 1, d), some of which may be equal."""
    levels = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
    even = np.linspace(*_domains(problem), N_PANELS + 1)
    return np.sort(np.vstack([even, np.quantile(drawn, levels, axis=0)]), axis=0)


def approximate(
    function: Callable[[IntArray, FloatArray], FloatArray],
    columns: IntArray,
    edges: FloatArray,
    size: FloatArray | None = None,
) -> dict[int, PiecewiseFunction]:
    """Approximate a function of columns, k outputs of typical `size` (k,), by halving panels."""
    least = LEAST_WIDTH * np.maximum(edges[-1] - edges[0], np.abs(edges).max(axis=0))
    column = np.repeat(columns, len(edges) - 1)
    low, high = edges[:-1, columns].T.ravel(), edges[1:, columns].T.ravel()
    is_constant = np.repeat((edges[0] == edges[-1])[columns], len(edges) - 1)
    column, low, high = (a[(high > low) | is_constant] for a in (column, low, high))
    done: list[tuple[IntArray, FloatArray, FloatArray, FloatArray]] = []
    while len(column):
        coefficients, values, error = _fit_panels(function, column, low, high)
        # Errors are relative to the values nearby, or to typical ones
        highest = np.abs(values).max(axis=1)
        if size is None:
            size = np.median(highest, axis=0)
        fits = (error <= TOL * np.maximum(highest, size)).all(axis=1)
        # The function jumps in a panel without width, which goes to the one on its left
        jumps = ~fits & (high - low <= least[column])
        coefficients[jumps], coefficients[jumps, 0] = 0.0, values[jumps, 0]
        fits |= jumps
        done.append((column[fits], low[fits], high[fits], coefficients[fits]))
        column, low, high = (a[~fits] for a in (column, low, high))
        middle = (low + high) / 2.0
        column = np.tile(column, 2)
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        if sum(len(part[0]) for part in done) + len(column) > MAX_PANELS * len(columns):
            raise NoClosedFormError("the functions of single columns have too many kinks")
    assert size is not None
    every, low, high, coefficients = (np.concatenate(parts) for parts in zip(*done, strict=True))
    result = {}
    for j in columns.tolist():
        own = np.flatnonzero(every == j)
        own = own[np.argsort(low[own])]
        edges = np.append(low[own], high[own[-1]])
        function = PiecewiseFunction(edges, coefficients[own].transpose(1, 0, 2))
        result[j] = _shortened(_merged(function, size), size)
    return result


def _fit_panels(
    function: Callable[[IntArray, FloatArray], FloatArray],
    column: IntArray,
    low: FloatArray,
    high: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Coefficients (n, N_COEFFICIENTS, k) on n panels, values there, and largest errors (n, k)."""
    places = np.concatenate([POINTS, TESTS])
    centre, half = (low + high)[:, None] / 2.0, (high - low)[:, None] / 2.0
    values = function(np.repeat(column, len(places)), (centre + half * places).ravel())
    values = values.reshape(len(column), len(places), -1)
    coefficients = TO_COEFFICIENTS @ values[:, :N_COEFFICIENTS]
    basis = chebyshev.chebvander(TESTS, N_COEFFICIENTS - 1)
    error = np.abs(basis @ coefficients - values[:, N_COEFFICIENTS:]).max(axis=1)
    return coefficients, values, error


def _merged(function: PiecewiseFunction, size: FloatArray) -> PiecewiseFunction:
    """Join neighbouring panels that one polynomial fits: kinks and jumps leave many behind."""
    first = n_failures = 0
    while n_failures < 2:  # of both ways to pair panels
        edges = function.edges
        left = np.arange(first, len(edges) - 2, 2)
        lower, upper = edges[left], edges[left + 2]
        joined = TO_COEFFICIENTS @ function.at(_points(lower, upper))
        # Within both panels, of which one may be much narrower than the other
        inner = np.hstack([_points(edges[left + i], edges[left + i + 1]) for i in (0, 1)])
        expected = function.at(inner)
        width = np.maximum(upper - lower, TINY)[:, None]
        places = (2.0 * inner - (lower + upper)[:, None]) / width
        error = np.abs(chebyshev.chebvander(places, N_COEFFICIENTS - 1) @ joined - expected)
        fits = (error <= TOL * np.maximum(np.abs(expected), size)).all(axis=(1, 2))
        coefficients = function.coefficients.copy()
        coefficients[:, left[fits]] = joined[fits].transpose(1, 0, 2)
        gone = left[fits] + 1
        function = PiecewiseFunction(np.delete(edges, gone), np.delete(coefficients, gone, axis=1))
        first, n_failures = 1 - first, 0 if fits.any() else n_failures + 1
    return function


def _points(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Chebyshev points of panels, shape (p, N_COEFFICIENTS)."""
    return np.asarray((lower + upper)[:, None] / 2.0 + (upper - lower)[:, None] / 2.0 * POINTS)


def _shortened(function: PiecewiseFunction, size: FloatArray) -> PiecewiseFunction:
    """Leave out the last coefficients if they are negligible on all panels."""
    sizes = np.abs(function.coefficients)
    matters = sizes > TOL * np.maximum(sizes[0], size)
    last = int(np.flatnonzero(matters.any(axis=(1, 2))).max(initial=0))
    return PiecewiseFunction(function.edges, function.coefficients[: last + 1])
