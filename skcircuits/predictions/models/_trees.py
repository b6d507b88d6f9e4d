"""Expected predictions of sums of trees by the probabilities of leaves given the observed cells.

Rows descend all trees at once. At a split on an observed column a row goes one way; at a
split on a missing column it goes both ways, each component of the density with its own
probability of the split inside the node's box: the box of the column, or under joint Gaussians that
of all missing numbers on the path. Pairs of a row and a leaf then have the probability of the leaf.

Fitted ensembles are sums of trees, stored as arrays; every feature depends on a single column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtr
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

from skcircuits.circuits import Circuit
from skcircuits.circuits.inputs._gaussian_integrals import MAX_BOUNDED, log_standard_box
from skcircuits.numerics._patterns import distinct_patterns
from skcircuits.parallel import Parallel, delayed, memory_bound_chunks
from skcircuits.predictions._closed_forms import (
    ClosedForm,
    Expectation,
    IncompleteRows,
    NoClosedFormError,
    Problem,
    WeightedSum,
    dense,
    features_of,
    is_plainly_missing,
    last_step,
    steps_of,
    transformed,
)
from skcircuits.predictions._components import (
    AdditiveFunction,
    Components,
    ConditionedRows,
    GaussianComponents,
    probe,
)
from skcircuits.protocols import BoolArray, FloatArray, IntArray

SAME_CUT = 1e-9  # relative difference of a cut and an integer that are the same
UNKNOWN = 256  # in place of the code of a category, of which histogram boosting has fewer
MAX_ROWS = 256  # per task: their pairs stay in some tens of megabytes
MAX_BOXES = 2**14  # at once, times components: they stay in the cache
BOXES_PER_INTEGRAL = 16
# Boxes of three missing numbers, times components, that a row may need: each is an integral of
# boxes of two, and draws take less time than more of them
MAX_INTEGRALS = 512
LARGEST = 1.0 - 1e-15  # correlation of two numbers
MODELS = (
    AdaBoostClassifier,
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)


@dataclass(frozen=True, eq=False)
class Splits:
    """The splits of trees in terms of the encoded columns."""

    column: IntArray  # (n_nodes,), that an inner node splits, -1 at leaves
    lower: FloatArray  # (n_nodes,), of the column inside the node's box
    cut: FloatArray  # (n_nodes,), NaN for categories
    upper: FloatArray  # (n_nodes,)
    up_is_left: BoolArray  # (n_nodes,), for features that fall in the column
    used: BoolArray  # (s, n_columns), the sets of numerical columns that boxes of leaves bound
    n_leaves: IntArray  # (s,), with that set
    inside: dict[int, BoolArray]  # (n_nodes, n_states), in the node's box, by column
    chosen: dict[int, BoolArray]  # (n_nodes, n_states), that go left, by column

    @classmethod
    def of(cls, trees: Trees, features: AdditiveFunction, integral: IntArray) -> Splits:
        """Translate splits of features into those of columns, which are rounded if `integral`."""
        # Thresholds on features are thresholds on columns where features are monotone in one
        # column
        source = _sources(features)
        n_nodes = len(trees.left)
        is_inner = trees.left >= 0
        column = np.where(is_inner, source[trees.feature], -1)
        slope = features.slopes[np.maximum(column, 0), trees.feature]
        constant = features.constant[trees.feature]
        if (is_inner & np.isnan(trees.threshold) & (slope != 0)).any():
            raise NoClosedFormError("the trees read numbers of a column as categories")
        with np.errstate(divide="ignore", invalid="ignore"):
            cut = np.where(slope != 0, (trees.threshold - constant) / slope, np.nan)
        cut = np.where(np.isin(column, integral), _before_rounding(cut, slope < 0), cut)
        chosen = {}
        for j, table in features.tables.items():
            reached = table[:, trees.feature] + constant  # (n_states, n_nodes)
            goes_left = [trees.sends_left(np.arange(n_nodes), own) for own in reached]
            chosen[j] = np.stack(goes_left, axis=1) & (column == j)[:, None]
        inside = {j: np.ones(mask.shape, dtype=bool) for j, mask in chosen.items()}
        splits = cls(
            column,
            np.full(n_nodes, -np.inf),
            cut,
            np.full(n_nodes, np.inf),
            slope < 0,
            np.zeros((0, len(features.slopes)), dtype=bool),
            np.zeros(0, dtype=np.int64),
            inside,
            chosen,
        )
        used, leaves = distinct_patterns(splits._bound(trees))
        return replace(splits, used=used, n_leaves=np.bincount(leaves, minlength=len(used)))

    def _bound(self, trees: Trees) -> BoolArray:
        """Hand bounds down to the leaves; gives the numbers bounded there (n_leaves, n_columns)."""
        nodes, used = trees.roots, [self.used]
        n_columns = self.used.shape[1]
        lower = np.full((len(nodes), n_columns), -np.inf)
        upper = np.full((len(nodes), n_columns), np.inf)
        states = {
            j: np.ones((len(nodes), mask.shape[1]), dtype=bool) for j, mask in self.inside.items()
        }
        while len(nodes):
            inner = trees.left[nodes] >= 0
            used.append(np.isfinite(lower[~inner]) | np.isfinite(upper[~inner]))
            nodes, lower, upper = nodes[inner], lower[inner], upper[inner]
            states = {j: mask[inner] for j, mask in states.items()}
            at = np.arange(len(nodes)), self.column[nodes]
            # Bounds of the split's own column are all that its probability needs
            self.lower[nodes], self.upper[nodes] = lower[at], upper[at]
            for j, mask in states.items():
                self.inside[j][nodes] = mask
            # Of a split below the threshold the one child has the lower part
            below = np.where(self.up_is_left[nodes], trees.right[nodes], trees.left[nodes])
            above = np.where(self.up_is_left[nodes], trees.left[nodes], trees.right[nodes])
            is_number = ~np.isnan(self.cut[nodes])
            cut_upper, cut_lower = upper.copy(), lower.copy()
            cut_upper[at] = np.where(is_number, np.minimum(upper[at], self.cut[nodes]), upper[at])
            cut_lower[at] = np.where(is_number, np.maximum(lower[at], self.cut[nodes]), lower[at])
            goes_left = {j: mask & self._kept(j, nodes, True) for j, mask in states.items()}
            goes_right = {j: mask & self._kept(j, nodes, False) for j, mask in states.items()}
            nodes = np.concatenate([below, above])
            lower, upper = np.vstack([lower, cut_lower]), np.vstack([cut_upper, upper])
            states = {j: np.vstack([goes_left[j], goes_right[j]]) for j in states}
        return np.vstack(used)

    def _kept(self, column: int, nodes: IntArray, left: bool) -> BoolArray:
        """States of a column that a side of each node keeps: all where it splits another."""
        mask = self.chosen[column][nodes]
        return np.where((self.column[nodes] == column)[:, None], mask == left, True)


def _before_rounding(cut: FloatArray, keeps_upper: BoolArray) -> FloatArray:
    """Cuts of numbers that divide them as the given cuts divide the nearest integers."""
    nearest = np.rint(cut)
    # The integer at a cut belongs to the side that goes left; scaled columns hit it by rounding
    cut = np.where(
        np.abs(cut - nearest) <= SAME_CUT * np.maximum(np.abs(nearest), 1.0), nearest, cut
    )
    return np.asarray(np.where(keeps_upper, np.ceil(cut) - 0.5, np.floor(cut) + 0.5))


def _sources(features: AdditiveFunction) -> IntArray:
    """Give the column that each feature looks at; 0 for constant ones."""
    uses = [features.slopes != 0]
    for j, table in features.tables.items():
        used = np.zeros_like(uses[0])
        # A table that is the same for all states is a constant
        used[j] = np.ptp(table, axis=0) != 0
        uses.append(used)
    matters = np.any(uses, axis=0)
    if (matters.sum(axis=0) > 1).any():
        raise NoClosedFormError("features of the trees depend on several columns")
    return matters.argmax(axis=0)


class Pairs(NamedTuple):
    """Pairs of a row and a node that it may reach, with the row's box for joint Gaussians."""

    rows: IntArray  # (q,)
    nodes: IntArray  # (q,)
    mass: FloatArray  # (q, K), probability of the component and of reaching the node
    columns: IntArray  # (q, r), that the box bounds, -1 for none
    lower: FloatArray  # (q, r)
    upper: FloatArray  # (q, r)
    inside: FloatArray  # (q, K) or (q, 0), probability of the box given the component

    @classmethod
    def at(cls, nodes: IntArray, weights: FloatArray, n_bounded: int) -> Pairs:
        """Pair every row with every node, by the weights (n, K) of its components."""
        n_rows, n_pairs = len(weights), len(weights) * len(nodes)
        rows = np.repeat(np.arange(n_rows), len(nodes))
        shape = n_pairs, n_bounded
        return cls(
            rows,
            np.tile(nodes, n_rows),
            weights[rows],
            np.full(shape, -1),
            np.full(shape, -np.inf),
            np.full(shape, np.inf),
            np.ones((n_pairs, weights.shape[1] if n_bounded else 0)),
        )

    def take(self, chosen: Any) -> Pairs:
        """Keep some pairs, by a mask."""
        return Pairs._make(values[chosen] for values in self)

    @staticmethod
    def joined(parts: Sequence[Pairs]) -> Pairs:
        """Put pairs one after another."""
        return Pairs._make(map(np.concatenate, zip(*parts, strict=True)))


def _to_children(pairs: Pairs, trees: Trees, left: FloatArray) -> list[Pairs]:
    """Send pairs to both children, by the probabilities (q, K) of going left."""
    mass = left * pairs.mass
    # The complement, not a probability of its own: the masses of a row sum to one
    return [
        pairs._replace(nodes=trees.left[pairs.nodes], mass=mass),
        pairs._replace(nodes=trees.right[pairs.nodes], mass=pairs.mass - mass),
    ]


@dataclass(frozen=True, eq=False)
class TableBranches:
    """Branches that depend on the component alone: all input units have one column."""

    n_bounded: ClassVar[int] = 0  # columns that boxes of pairs bound, at most
    responsibilities: FloatArray
    table: FloatArray

    def split(self, pairs: Pairs, trees: Trees) -> list[Pairs]:
        """Send pairs at splits on missing columns to both children."""
        return _to_children(pairs, trees, self.table[pairs.nodes])


@dataclass(frozen=True, eq=False)
class GaussianBranches:
    """Branches of rows whose missing numbers are normal given the component."""

    n_bounded: ClassVar[int] = MAX_BOUNDED
    responsibilities: FloatArray
    numbers: MissingNumbers
    splits: Splits
    states: dict[int, FloatArray]  # probability of going left at categorical splits

    def split(self, pairs: Pairs, trees: Trees) -> list[Pairs]:
        """Send pairs at splits on missing columns to both children."""
        column, is_number = self.splits.column, ~np.isnan(self.splits.cut[pairs.nodes])
        parts = self._by_cuts(pairs.take(is_number), trees)
        for j, table in self.states.items():
            own = pairs.take(~is_number & (column[pairs.nodes] == j))
            # Categories are independent of the numbers within a component
            parts += _to_children(own, trees, table[own.nodes])
        return parts

    def _by_cuts(self, pairs: Pairs, trees: Trees) -> list[Pairs]:
        """Cut the boxes of pairs at splits on missing numbers."""
        nodes, splits = pairs.nodes, self.splits
        column, cut = splits.column[nodes], splits.cut[nodes]
        is_free_or_same = (pairs.columns < 0) | (pairs.columns == column[:, None])
        at = np.arange(len(nodes)), is_free_or_same.argmax(axis=1)
        columns, lower, upper = pairs.columns.copy(), pairs.lower.copy(), pairs.upper.copy()
        columns[at] = column
        lower[at], upper[at] = np.maximum(lower[at], cut), np.minimum(upper[at], cut)
        inside = self.numbers.box_probability(pairs.rows, columns, pairs.lower, upper)
        mass = pairs.mass * _ratio(inside, pairs.inside)
        left, right = trees.left[nodes], trees.right[nodes]
        below, above = np.where(splits.up_is_left[nodes], (right, left), (left, right))
        # The complement, not a probability of its own: the masses of a row sum to one
        return [
            Pairs(pairs.rows, below, mass, columns, pairs.lower, upper, inside),
            Pairs(
                pairs.rows,
                above,
                pairs.mass - mass,
                columns,
                lower,
                pairs.upper,
                np.maximum(pairs.inside - inside, 0.0),
            ),
        ]


@dataclass(frozen=True, eq=False)
class MissingNumbers:
    """Conditional means and covariances of missing numbers, by row and column."""

    means: FloatArray  # (K, n, p)
    place: IntArray  # (n_columns,), of each column among the p numbers
    rank: IntArray  # (n, p), of a number among those that the row misses
    size: IntArray  # (n,), how many numbers the row misses
    start: IntArray  # (n,), of the row's covariances (G, size, size) among the following
    covariances: FloatArray  # (s,)
    shape: IntArray  # (K,), distinct covariance of each component

    @classmethod
    def of(cls, conditioned: ConditionedRows, components: GaussianComponents) -> MissingNumbers:
        """Arrange the conditional distributions of rows."""
        _, n_rows, n_numbers = conditioned.means.shape
        place = np.zeros(int(components.columns.max(initial=-1)) + 1, dtype=np.intp)
        place[components.columns] = np.arange(n_numbers)
        rank = np.zeros((n_rows, n_numbers), dtype=np.intp)
        size, start = np.zeros((2, n_rows), dtype=np.intp)
        parts, n_before = [np.zeros(0)], 0
        for block in conditioned.blocks:
            rows, pattern = block.group.rows, block.group.pattern
            missing = block.group.missing[pattern]
            n_missing = missing.shape[1]
            rank[rows[:, None], missing] = np.arange(n_missing)
            size[rows] = n_missing
            covariances = block.distinct_covariances
            covariances = covariances.reshape(n_missing, n_missing, -1, block.group.n_patterns)
            start[rows] = n_before + pattern * covariances[..., 0].size
            parts.append(covariances.transpose(3, 2, 0, 1).ravel())
            n_before += covariances.size
        shape = components.stack.shape
        return cls(conditioned.means, place, rank, size, start, np.concatenate(parts), shape)

    def mean(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """Conditional means of columns (q,) that rows miss, shape (q, K)."""
        return self.means[:, rows, self.place[columns]].T

    def covariance(self, rows: IntArray, first: IntArray, second: IntArray) -> FloatArray:
        """Conditional covariances of pairs of columns (q,) that rows miss, shape (q, K)."""
        size = self.size[rows]
        first, second = (self.rank[rows, self.place[columns]] for columns in (first, second))
        within = self.start[rows] + first * size + second
        return self.covariances[within[:, None] + (size**2)[:, None] * self.shape]

    def box_probability(
        self, rows: IntArray, columns: IntArray, lower: FloatArray, upper: FloatArray
    ) -> FloatArray:
        """Probabilities (q, K) of boxes of missing numbers, to an absolute 1e-14."""
        result = np.empty((len(rows), len(self.means)))
        n_bounded = (columns >= 0).sum(axis=1)
        for size in np.unique(n_bounded).tolist():
            chosen = np.flatnonzero(n_bounded == size)
            n_cases = len(self.means) * (BOXES_PER_INTEGRAL if size == MAX_BOUNDED else 1)
            at_most = max(1, MAX_BOXES // n_cases)
            for chunk in memory_bound_chunks(len(chosen), 1, at_most=at_most):
                own = chosen[chunk]
                ends = np.stack([lower[own, :size], upper[own, :size]])
                result[own] = self._box_probability(rows[own], columns[own, :size], ends)
        return result

    def _box_probability(self, rows: IntArray, columns: IntArray, ends: FloatArray) -> FloatArray:
        """Probabilities of boxes with ends (2, q, r)."""
        size = columns.shape[1]
        means = np.stack([self.mean(rows, own) for own in columns.T])  # (r, q, K)
        covariances = np.stack(
            [[self.covariance(rows, one, other) for other in columns.T] for one in columns.T]
        )
        stds = np.sqrt(covariances[np.arange(size), np.arange(size)])
        low, high = (ends.transpose(0, 2, 1)[..., None] - means) / stds
        if size == 1:
            return np.asarray(ndtr(high[0]) - ndtr(low[0]))
        # Numbers that determine each other but for rounding have no more than this correlation
        correlations = np.clip(covariances / (stds[:, None] * stds), -LARGEST, LARGEST)
        correlations[np.arange(size), np.arange(size)] = 1.0
        logs = log_standard_box(
            low.reshape(size, -1),
            high.reshape(size, -1),
            correlations.reshape(size, size, -1),
            least_mass=0.0,
        )
        # A side of a box may have no width but for the rounding of its cuts
        is_empty = (high <= low).any(axis=0)
        return np.where(is_empty, 0.0, np.exp(logs).reshape(is_empty.shape))


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Fraction of a box; arbitrary for impossible boxes."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole > 0, np.clip(part / whole, 0.0, 1.0), 0.5)


@dataclass(frozen=True, eq=False)
class TreeForm:
    """Expectation of a sum of trees."""

    trees: Trees  # with the constant of the sum
    constant: FloatArray
    splits: Splits  # in terms of the columns
    problem: Problem  # the models, for the features of observed cells
    components: Components | GaussianComponents  # joint ones serve rows that miss one number
    tables: dict[int, FloatArray]  # of states per column, or at -1 P(left), (n_nodes, K)
    steps: ClosedForm | None = None  # closed form of the variance, if any
    rounds_integers: bool = True

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes; tasks of the means have few rows."""
        return 0 if self.steps is None else self.steps.bytes_per_row

    @property
    def name(self) -> str:
        """Description of the form, and of the rows that it covers."""
        exact = "probabilities of leaves"
        if isinstance(self.components, GaussianComponents):
            everything = np.ones((1, len(self.components.columns)), dtype=bool)
            if not self._is_exact(self.components, everything).all():
                return f"{exact} where these bound few missing numbers, draws elsewhere"
        return exact

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """All rows, or those of which leaves bound few missing numbers."""
        covered = is_plainly_missing(rows)
        if with_variance:
            steps = self.steps
            return covered & False if steps is None else steps.covers(rows, with_variance=True)
        if isinstance(self.components, GaussianComponents):
            missing = np.isnan(rows.cells[:, self.components.columns])
            own = np.flatnonzero(covered & (missing.sum(axis=1) >= MAX_BOUNDED))
            covered[own] = self._is_exact(self.components, missing[own])
        return covered

    def _is_exact(self, components: GaussianComponents, missing: BoolArray) -> BoolArray:
        """Tell which rows, by their missing numbers (n, p), have leaves that bound few of them."""
        used = self.splits.used[:, components.columns]
        most, n_integrals = np.zeros((2, len(missing)))
        for chunk in memory_bound_chunks(len(used), 8 * len(missing)):
            # Counts are exact in single precision
            common = missing.astype(np.float32) @ used[chunk].T.astype(np.float32)
            most = np.maximum(most, common.max(axis=1, initial=0.0))
            n_integrals += (common == MAX_BOUNDED) @ self.splits.n_leaves[chunk]
        few = n_integrals * len(components) <= MAX_INTEGRALS
        return np.asarray((most < MAX_BOUNDED) | ((most == MAX_BOUNDED) & few))

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        chunks = list(memory_bound_chunks(len(rows), 2**20, at_most=MAX_ROWS))
        parts = Parallel(n_jobs=self.problem.n_jobs, prefer="threads")(
            delayed(self._means)(rows.take(chunk)) for chunk in chunks
        )
        mean = Expectation.exact(np.concatenate(parts) + self.constant)
        if not with_variance or self.steps is None:
            return mean
        return replace(self.steps.expectation(rows, with_variance=True), mean=mean.mean)

    def _means(self, rows: IncompleteRows) -> FloatArray:
        missing = np.isnan(rows.cells)
        # Features are computed for completed rows; those of missing cells are never compared
        filled = np.where(missing, 0.0, rows.cells)
        location = self.problem.location
        for j in range(rows.cells.shape[1]):
            if j not in self.problem.circuit.cardinalities:
                filled[missing[:, j], j] = location[j]
        features = tree_features(self.problem.of_single_models()[0], filled)
        return _descend(self.trees, self.splits, features, missing, self._branches(rows))

    def _branches(self, rows: IncompleteRows) -> TableBranches | GaussianBranches:
        if isinstance(self.components, Components):
            weights = np.ascontiguousarray(self.components.responsibilities(rows.evidence).T)
            return TableBranches(weights, self.tables[-1])
        conditioned = self.components.conditioned(rows.evidence)
        weights = np.ascontiguousarray(conditioned.weights.T)
        numbers = MissingNumbers.of(conditioned, self.components)
        return GaussianBranches(weights, numbers, self.splits, self.tables)


def _descend(
    trees: Trees,
    splits: Splits,
    features: FloatArray,
    missing: BoolArray,
    branches: TableBranches | GaussianBranches,
) -> FloatArray:
    """Send rows down all trees at once; sum the leaves by their probabilities, (n, k)."""
    n_rows, n_outputs = len(features), trees.value.shape[1]
    pairs = Pairs.at(trees.roots, branches.responsibilities, branches.n_bounded)
    result = np.zeros((n_outputs, n_rows))
    while len(pairs.nodes):
        _follow_observed(trees, splits, features, missing, pairs)
        is_leaf = trees.left[pairs.nodes] < 0
        rows, nodes = pairs.rows[is_leaf], pairs.nodes[is_leaf]
        # Components are mixed at the leaves: until there each has its own probability
        leaf_mass = pairs.mass[is_leaf].sum(axis=1)
        for output, values in zip(result, trees.value.T):
            output += np.bincount(rows, leaf_mass * values[nodes], minlength=n_rows)
        pairs = Pairs.joined(branches.split(pairs.take(~is_leaf), trees))
        # Impossible branches are dropped
        possible = (pairs.mass > 0).any(axis=1)
        if not possible.all():
            pairs = pairs.take(possible)
    return result.T


def _follow_observed(
    trees: Trees, splits: Splits, features: FloatArray, missing: BoolArray, pairs: Pairs
) -> None:
    """Move pairs on to where their row is in a leaf or misses the column of the split."""
    active = np.arange(len(pairs.nodes))
    while True:
        nodes, rows = pairs.nodes[active], pairs.rows[active]
        goes_on = (trees.left[nodes] >= 0) & ~missing[rows, splits.column[nodes]]
        active, nodes, rows = active[goes_on], nodes[goes_on], rows[goes_on]
        if not len(active):
            return
        to_left = trees.goes_left(nodes, rows, features)
        pairs.nodes[active] = np.where(to_left, trees.left[nodes], trees.right[nodes])


def tree_features(single: Problem, X: FloatArray) -> FloatArray:
    """Give what the trees of a model compare, for encoded rows, shape (n, q)."""
    (whole,) = single.response.models
    n_steps, encoder = len(steps_of(whole)), _encoder_within(last_step(whole))
    if encoder is None:
        return features_of(single, X, n_steps)
    codes = dense(encoder.transform(transformed(single, X, n_steps)))
    return np.where(np.isnan(codes), UNKNOWN, codes)


def _encoder_within(model: Any) -> Any:
    """What histogram boosting puts before its trees if some columns hold categories."""
    return getattr(model, "_preprocessor", None)


def build_trees(model: Any, problem: Problem) -> ClosedForm:
    """Build the form of a sum of trees."""
    method = problem.response.method
    models = problem.response.models
    if len(models) > 1 and (steps_of(models[0]) or _encoder_within(models[0]) is not None):
        # Encoders of their own: their trees cannot be joined
        return WeightedSum.average(problem, lambda one: build_trees(one.response.models[0], one))
    parts = [trees_of(last_step(one), method) for one in models]
    trees = Trees.joined(parts, 1.0 / len(parts))
    first = problem.of_single_models()[0]
    features = probe(lambda X: tree_features(first, X), problem)
    splits = Splits.of(trees, features, problem.integral_columns)
    trials = problem.trial_rows()
    # The initial prediction of boosting is not a leaf: it must be the same for all rows
    rest = problem.response(trials) - trees(tree_features(first, trials))
    constant = rest.mean(axis=0)
    problem.check(
        rest + problem.response(trials) - constant, problem.response(trials), "a sum of trees"
    )
    try:
        factors = Components.of(problem.circuit)
        components = GaussianComponents.of(problem.circuit) if factors.is_joint() else factors
    except NoClosedFormError as reason:
        raise NoClosedFormError(f"probabilities of leaves have no closed form: {reason}") from None
    if isinstance(components, Components):
        tables = {-1: _left_table(components, splits)}
    else:
        tables = {j: _state_ratio(table.T, splits, j) for j, table in components.tables.items()}
    return TreeForm(trees, constant, splits, problem, components, tables)


def _left_table(components: Components, splits: Splits) -> FloatArray:
    """Probability of going left at every node, per component, shape (n_nodes, K)."""
    table = np.zeros((len(splits.column), len(components)))
    known: dict[tuple[int, int], FloatArray] = {}
    for k, factors in enumerate(components.circuits):
        for factor in factors:
            (j,) = factor.variables
            here = np.flatnonzero(splits.column == j)
            key = id(factor), j
            if key not in known:
                known[key] = _left_probability(factor, splits, here, j)
            table[here, k] = known[key]
    return table


def _left_probability(factor: Circuit, splits: Splits, nodes: IntArray, j: int) -> FloatArray:
    """Probability of going left at the nodes that split column j, under one unit."""
    n_states = factor.cardinalities.get(j)
    if n_states is not None:
        states = np.full((n_states, j + 1), np.nan)
        states[:, j] = np.arange(n_states)
        return _state_ratio(np.exp(factor.log_prob(states))[:, None], splits, j)[nodes, 0]
    own = np.full((2, len(nodes), j + 1), np.nan)
    own[0, :, j] = np.where(np.isinf(splits.lower[nodes]), np.nan, splits.lower[nodes])
    own[1, :, j] = splits.cut[nodes]
    below = np.exp(factor.log_prob_box(own[0], own[1]))
    own[1, :, j] = np.where(np.isinf(splits.upper[nodes]), np.nan, splits.upper[nodes])
    ratio = _ratio(below, np.exp(factor.log_prob_box(own[0], own[1])))
    return np.where(splits.up_is_left[nodes], 1.0 - ratio, ratio)


def _state_ratio(masses: FloatArray, splits: Splits, j: int) -> FloatArray:
    """Probability of going left under masses (n_states, K) of a column, (n_nodes, K)."""
    if j not in splits.chosen:
        return np.zeros((len(splits.column), masses.shape[1]))
    inside = splits.inside[j].astype(np.float64)
    return _ratio((inside * splits.chosen[j]) @ masses, inside @ masses)


@dataclass(frozen=True, eq=False)
class Trees:
    """A sum of trees, with the nodes of all trees in one list."""

    roots: IntArray  # (n_trees,), first node of each tree
    left: IntArray  # (n_nodes,), children, -1 at leaves
    right: IntArray  # (n_nodes,)
    feature: IntArray  # (n_nodes,), of the split of an inner node
    threshold: FloatArray  # (n_nodes,), features up to it go to the left; NaN for sets of codes
    value: FloatArray  # (n_nodes, k), what a leaf adds to the sum
    single_precision: bool  # features are rounded before they are compared
    left_codes: BoolArray | None = None  # (n_nodes, UNKNOWN + 1), of categories that go left

    @classmethod
    def joined(cls, parts: Sequence[Trees], factor: float = 1.0) -> Trees:
        """Join sums of trees, all leaves multiplied by a factor."""
        sizes = [len(part.left) for part in parts]
        shifts = np.cumsum([0, *sizes[:-1]])

        def children(name: str) -> IntArray:
            moved = [
                np.where(getattr(part, name) < 0, -1, getattr(part, name) + shift)
                for part, shift in zip(parts, shifts)
            ]
            return np.concatenate(moved)

        return cls(
            np.concatenate([part.roots + shift for part, shift in zip(parts, shifts)]),
            children("left"),
            children("right"),
            np.concatenate([part.feature for part in parts]),
            np.concatenate([part.threshold for part in parts]),
            np.concatenate([part.value for part in parts]) * factor,
            parts[0].single_precision,
            None
            if parts[0].left_codes is None
            else np.concatenate([part.left_codes for part in parts]),
        )

    def goes_left(self, nodes: IntArray, rows: IntArray, features: FloatArray) -> BoolArray:
        """Tell where rows of features go at inner nodes."""
        return self.sends_left(nodes, features[rows, self.feature[nodes]])

    def sends_left(self, nodes: IntArray, cells: FloatArray) -> BoolArray:
        """Tell which of the nodes send the value of their feature to the left, shapes (n,)."""
        if self.single_precision:
            # As scikit-learn compares them: a split may lie between a double and its single
            cells = cells.astype(np.float32)
        is_left = np.asarray(cells <= self.threshold[nodes])
        if self.left_codes is not None:
            is_set = np.isnan(self.threshold[nodes])
            codes = np.clip(np.rint(cells[is_set]), 0, UNKNOWN).astype(np.intp)
            is_left[is_set] = self.left_codes[nodes[is_set], codes]
        return is_left

    def __call__(self, features: FloatArray) -> FloatArray:
        """Sum of the leaves that rows of features reach, shape (n, k)."""
        n_rows = len(features)
        rows = np.repeat(np.arange(n_rows), len(self.roots))
        nodes = np.tile(self.roots, n_rows)
        active = np.flatnonzero(self.left[nodes] >= 0)
        while len(active):
            own = nodes[active]
            to_left = self.goes_left(own, rows[active], features)
            nodes[active] = np.where(to_left, self.left[own], self.right[own])
            active = active[self.left[nodes[active]] >= 0]
        return self.value[nodes].reshape(n_rows, len(self.roots), -1).sum(axis=1)


@singledispatch
def trees_of(model: Any, method: str) -> Trees:
    """Read the trees of a fitted model; their sum is its answer but for a constant."""
    raise NoClosedFormError(f"{type(model).__name__} is not a sum of trees")


def is_sum_of_trees(model: Any) -> bool:
    """Tell whether the trees of a fitted model can be read."""
    return trees_of.dispatch(type(model)) is not trees_of.dispatch(object)


@trees_of.register(DecisionTreeRegressor)
@trees_of.register(DecisionTreeClassifier)
def _of_tree(model: Any, method: str) -> Trees:
    tree = model.tree_
    # Classes of several targets are padded to one number
    n_classes = np.atleast_1d(getattr(model, "n_classes_", 1))
    parts = [
        tree.value[:, output, :n]
        for output, n in enumerate(np.broadcast_to(n_classes, tree.n_outputs))
    ]
    if method == "predict_proba":
        # Leaves hold counts or fractions, by the version of scikit-learn
        parts = [part / part.sum(axis=1, keepdims=True) for part in parts]
    return Trees(
        np.zeros(1, dtype=np.int64),
        tree.children_left.astype(np.int64),
        tree.children_right.astype(np.int64),
        np.maximum(tree.feature, 0).astype(np.int64),
        tree.threshold.astype(np.float64),
        np.hstack(parts).astype(np.float64),
        single_precision=True,
    )


@trees_of.register(RandomForestRegressor)
@trees_of.register(RandomForestClassifier)
@trees_of.register(ExtraTreesRegressor)
@trees_of.register(ExtraTreesClassifier)
def _of_forest(model: Any, method: str) -> Trees:
    parts = [trees_of(tree, method) for tree in model.estimators_]
    return Trees.joined(parts, 1.0 / len(parts))


@trees_of.register(BaggingRegressor)
@trees_of.register(BaggingClassifier)
def _of_bagging(model: Any, method: str) -> Trees:
    parts = []
    for tree, features in zip(model.estimators_, model.estimators_features_):
        own = trees_of(tree, method)
        # Trees of a bag number the features that they were given
        renamed = np.asarray(features, dtype=np.int64)[own.feature]
        parts.append(replace(own, feature=renamed))
    return Trees.joined(parts, 1.0 / len(parts))


@trees_of.register(GradientBoostingRegressor)
@trees_of.register(GradientBoostingClassifier)
def _of_boosting(model: Any, method: str) -> Trees:
    if method == "predict_proba":
        raise NoClosedFormError("the link function of boosted probabilities is not linear")
    parts = []
    for stage in model.estimators_:
        for output, tree in enumerate(stage):
            own = trees_of(tree, "predict")
            value = np.zeros((len(own.left), len(stage)))
            value[:, output] = model.learning_rate * own.value[:, 0]
            parts.append(replace(own, value=value))
    return Trees.joined(parts)


@trees_of.register
def _of_adaptive_boosting(model: AdaBoostClassifier, method: str) -> Trees:
    if method == "predict_proba":
        raise NoClosedFormError("boosted probabilities are a softmax of the decision function")
    n_classes, weights = model.n_classes_, model.estimator_weights_
    # Weighted votes of SAMME, which sum to zero over the classes
    votes = np.eye(n_classes) - (1.0 - np.eye(n_classes)) / (n_classes - 1)
    if n_classes == 2:
        votes = votes[:, [1]] - votes[:, [0]]
    parts = []
    for tree, weight in zip(model.estimators_, weights / weights.sum()):
        own = trees_of(tree, "predict_proba")
        parts.append(replace(own, value=weight * votes[own.value.argmax(axis=1)]))
    return Trees.joined(parts)


@trees_of.register(HistGradientBoostingRegressor)
@trees_of.register(HistGradientBoostingClassifier)
def _of_histogram_boosting(model: Any, method: str) -> Trees:
    if method == "predict_proba":
        raise NoClosedFormError("the link function of boosted probabilities is not linear")
    parts = []
    for stage in model._predictors:
        for output, predictor in enumerate(stage):
            nodes = predictor.nodes
            is_leaf = nodes["is_leaf"].astype(bool)
            value = np.zeros((len(nodes), len(stage)))
            value[:, output] = nodes["value"]
            left_codes = None if _encoder_within(model) is None else _left_codes(model, predictor)
            is_set = nodes["is_categorical"].astype(bool) & ~is_leaf
            parts.append(
                Trees(
                    np.zeros(1, dtype=np.int64),
                    np.where(is_leaf, -1, nodes["left"].astype(np.int64)),
                    np.where(is_leaf, -1, nodes["right"].astype(np.int64)),
                    np.where(is_leaf, 0, nodes["feature_idx"]).astype(np.int64),
                    np.where(is_set, np.nan, nodes["num_threshold"].astype(np.float64)),
                    value,
                    single_precision=False,
                    left_codes=left_codes,
                )
            )
    return Trees.joined(parts)


def _left_codes(model: Any, predictor: Any) -> BoolArray:
    """Codes of categories that each node of a tree sends to the left, (n_nodes, UNKNOWN + 1)."""
    nodes = predictor.nodes
    result = np.zeros((len(nodes), UNKNOWN + 1), dtype=bool)
    for i in np.flatnonzero(nodes["is_categorical"]):
        # What the bins do not have is read like a missing value
        result[i] = nodes["missing_go_to_left"][i]
        known = model._bin_mapper.bin_thresholds_[nodes["feature_idx"][i]].astype(np.intp)
        words = predictor.raw_left_cat_bitsets[nodes["bitset_idx"][i]]
        result[i, known] = (words[known // 32] >> (known % 32).astype(words.dtype)) & 1
    return result
