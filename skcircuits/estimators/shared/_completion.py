"""Answers about incomplete rows: of new or impossible cells, and averages of several densities.

Where columns have states, a category that no training row has is assigned the probability that any
new one occurs: nothing is known of how many there are. Numbers are ordered, so that this
probability is divided among them: a third each lies between the least and the greatest known number
and, falling exponentially, beyond either. Integers have the probability of a unit, other numbers
that of the interval in which they were recorded.

Circuits give new integers between known ones the same probability, so that all queries agree: a
known integer shares its state with the new ones that are nearest to it. Integers with even spaces,
such as the years 1950, 1960 and 1970, leave none between them.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from sklearn.tree import ExtraTreeRegressor

from skcircuits.circuits import Categorical, Circuit, PiecewisePolynomial
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.inputs.discrete import DiscreteUnit
from skcircuits.circuits.inputs.restriction import Evidence
from skcircuits.circuits.inputs.restriction._evidence import NO_COLUMNS
from skcircuits.circuits.queries._boxes import RestrictedCircuit
from skcircuits.circuits.structure.units import rebuild
from skcircuits.exceptions import CircuitPropertyError, ZeroProbabilityError, warn
from skcircuits.learning._columns import MAX_GRID
from skcircuits.numerics._random import draw_states
from skcircuits.protocols import MAX_INTEGER
from skcircuits.tabular._schema import CategoryGroups, grouped_rows

_WHICH_EXPERT = -1  # place of a draw in the stream of a row that no unit of a circuit has
_MOST_NEW = 0.5  # rows of a new integer: fewer than of one that occurred once
# Least and most trees of each forest, and least rows of a leaf, and as much weight
_TREES_OF_EACH, _LEAF_ROWS = (4, 12), 3
# Where ranks change between two numbers: completed cells, which rounding moves, may be one of these
# or their mean in balanced columns, but no such fraction
_BETWEEN = 0.382
FOREST_ROWS, MAX_FOREST_STATES = 2000, 100  # from which trees are learned, and of a column
_N_TURNS = 6  # in which the cells of rows are hidden: few of them at once


def with_possible_evidence(answer, X, is_impossible, consequence):
    """Evaluate a query for encoded rows (n, d), impossible ones as if nothing was observed.

    ``answer(X)`` raises ZeroProbabilityError if it cannot answer for the rows that
    ``is_impossible(X)``, of shape (n,), marks; the warning about them names the `consequence`.
    Returns the result and the indices of these rows.
    """
    try:
        return answer(X), np.empty(0, dtype=np.int64)
    except ZeroProbabilityError:
        impossible = np.flatnonzero(is_impossible(X))
    relaxed = X.copy()
    relaxed[impossible] = np.nan
    found = answer(relaxed)
    if len(impossible):
        warn(
            # The cells and not the position: rows come in chunks
            f"The observed cells of {len(impossible)} rows have probability zero under the "
            f"density (for example {X[impossible[0]]}); {consequence}.",
        )
    return found, impossible


def completed_or_marginal(complete, X, circuit):
    """Complete encoded rows (..., n, d), impossible ones from the marginals, with a warning."""

    def is_impossible(rows):
        return np.isneginf(circuit.log_prob(rows))

    consequence = "their missing cells are completed from the marginal distribution"
    completed, rows = with_possible_evidence(complete, X, is_impossible, consequence)
    if len(rows):
        observed = ~np.isnan(X[rows])
        completed[..., rows, :] = np.where(observed, X[rows], completed[..., rows, :])
    return completed


def complete_rows(
    experts,
    circuit,
    X,
    strategy,
    streams,
    n_draws,
    is_categorical,
    bounds=None,
    column_weights=None,
    self_masking=None,
    integers=NO_COLUMNS,
    forests=None,
):
    """Complete incomplete rows, shape (n_draws, n, d) or (n, d) for a single answer.

    `experts`: pairs of a weight and a circuit; `circuit`: their mixture; `is_categorical`: mask of
    the columns whose cells are codes (integers may be states of a circuit, yet numbers); `bounds`:
    the least and the largest means by each expert, (K, d) each, or None; `column_weights` (K, d):
    of the experts' answers to each column, None for the same in all; `self_masking`: how missing
    cells differ from what the others tell, or None; `integers`: columns whose most probable cells
    are integers, also where the circuit has densities; `forests`: what else answers, or None.
    """
    if strategy == "mpe":

        def answer(rows):
            return _most_probable(circuit, rows, integers)

    elif strategy == "sample":

        def answer(rows):
            return _drawn(experts, rows, streams, n_draws)

    else:

        def answer(rows):
            means, tables = averages(experts, rows, is_categorical, bounds, column_weights)
            if forests is not None:
                completed = _with_modes(means.copy(), tables, rows)
                means, tables = forests.averaged(means, tables, completed, np.isnan(rows))
            if self_masking is not None:
                means = np.where(np.isnan(rows), self_masking.shifted(means), means)
                tables = self_masking.tilted(tables)
            return _with_modes(means, tables, rows)

    return completed_or_marginal(answer, X, circuit)


def _most_probable(circuit, X, integers):
    """Complete rows by the best integers in some columns, if any are possible there."""
    # Numbers that are states are integers anyway
    numerical = np.setdiff1d(circuit.variables, [*circuit.cardinalities])
    integers = np.intersect1d(integers, numerical)
    # No completion is less probable than the best one that is found without integers, rounded
    best = circuit.mpe(X, method="search")
    is_free = np.isnan(X[:, integers])
    best[:, integers] = np.where(is_free, np.round(best[:, integers]), X[:, integers])
    rows = np.flatnonzero(is_free.any(axis=1))
    while len(rows):
        is_open = np.full((len(rows), X.shape[1]), np.nan)
        evidence = Evidence(X[rows], Box(is_open, is_open), integers=integers)
        try:
            found, heights = RestrictedCircuit(circuit.plan, evidence).mpe()
        except ZeroProbabilityError as error:
            rows = np.delete(rows, error.rows)  # densities may be positive between integers alone
            continue
        except CircuitPropertyError:  # not all families can be restricted to integers
            break
        is_better = heights >= circuit.log_prob(best[rows])
        best[rows[is_better]] = found[is_better]
        break
    return best


def _drawn(experts, X, streams, n_draws):
    """Draw which expert completes each row, and its completion."""
    if len(experts) == 1:
        return experts[0][1].sample(n_draws, X=X, random_state=streams)
    draws, weights = _answers(
        experts, X, lambda circuit, rows: circuit.sample(n_draws, X=rows, random_state=streams)
    )
    rows = np.arange(len(X))
    completed = np.empty_like(draws[0])
    for draw in range(n_draws):
        uniforms = streams.at(rows, draw, _WHICH_EXPERT).random(len(X))
        # Experts are drawn by their posterior given the observed cells
        chosen = draw_states(weights.T, uniforms)
        completed[draw] = np.stack([own[draw] for own in draws])[chosen, rows]
    return completed


def predict_in_turns(experts, X, is_categorical, bounds, column_weights, rng):
    """Means (n, d) and tables {column: (n, k)} of all cells, each given those of other turns."""
    turns = rng.integers(_N_TURNS, size=X.shape)
    means, tables = np.empty(X.shape), {}
    for turn in range(_N_TURNS):
        asked = turns == turn
        rows = np.where(asked, np.nan, X)
        found, found_tables = averages(experts, rows, is_categorical, bounds, column_weights)
        means[asked] = found[asked]
        for j, table in found_tables.items():
            tables.setdefault(j, np.zeros((len(X), table.shape[1])))
            tables[j][asked[:, j]] = table[asked[np.isnan(rows[:, j]), j]]
    return means, tables


def averages(experts, X, is_categorical, bounds, column_weights):
    """Averages of conditional means (n, d), and of probabilities of categories {column: (m, k)}."""
    # The latter for the m rows in which the column is missing: there may be many categories
    answers, weights = _answers(experts, X, lambda circuit, rows: circuit._mean_and_marginals(rows))
    if bounds is not None:
        answers = [
            (np.clip(means, *own), tables)
            for (means, tables), *own in zip(answers, *bounds, strict=True)
        ]
    weights = np.repeat(weights[:, :, None], X.shape[1], axis=2)
    if column_weights is not None:
        own = (weights > 0.0) * column_weights[:, None]
        total = own.sum(axis=0)
        # Experts that do not count in a column still answer where all others are silent
        weights = np.where(total > 0.0, own / np.where(total > 0.0, total, 1.0), weights)
    means = sum(own * found for own, (found, _) in zip(weights, answers, strict=True))
    if bounds is not None:
        # Weights have sum one up to rounding
        means = np.clip(means, bounds[0].min(axis=0), bounds[1].max(axis=0))
    tables = {}
    for j in np.flatnonzero(is_categorical).tolist():
        missing = np.flatnonzero(np.isnan(X[:, j]))
        parts = zip(weights[:, missing, j, None], answers, strict=True)
        tables[j] = sum(own * found[j][missing] for own, (_, found) in parts)
    return means, tables


@dataclass(frozen=True, eq=False)
class Forests:
    """Random trees that predict cells from the other cells of a row, completed.

    Trees know interactions and thresholds, since they split rows by what several columns together
    tell, where densities learn how pairs depend, or have few classes (Geurts, Ernst and Wehenkel,
    2006, "Extremely Randomized Trees"). With a density p of the other cells, a forest P of
    categories is the density p P of a row, which predicts the expectation of P under p. Here that
    is P at the means and modes of p, as are the means that forests predict of numbers.

    `trees`: by column; `importances` (d,): how far splits on each column reduce impurity, by column
    that is predicted; `units`: least number and range of each, which are 0 and 1 to trees, whose
    errors neither vanish nor overflow then; `limits`: increasing numbers of each column, among
    which cells have ranks; `weights`: of forests in the average with densities, by column;
    `groups`: states of many categories, by column.
    """

    trees: dict[int, list[ExtraTreeRegressor]]
    importances: dict[int, np.ndarray]
    units: dict[int, tuple[float, float]]
    limits: list[np.ndarray]
    weights: dict[int, float] = field(default_factory=dict)
    groups: dict[int, CategoryGroups] = field(default_factory=dict)

    @classmethod
    def grow(cls, completed, rows, sizes, n_trees, seed):
        """Learn columns of training rows from these rows (n, d), completed.

        `sizes`: numbers of categories of these columns, 0 for numbers; `n_trees`: of all forests
        together.
        """
        forests = cls({}, {}, {}, [_limits(own) for own in rows.X.T])
        # A generator of its own takes a fifth of the time of each tree
        random_state = np.random.RandomState(seed)
        ranks = forests.ranks(completed)
        each = int(np.clip(n_trees // max(1, len(sizes)), *_TREES_OF_EACH))
        for j, size in sizes.items():
            known = np.flatnonzero(~np.isnan(rows.X[:, j]))
            if len(known):
                cells = rows.X[known, j, None]
                low, width = (0.0, 1.0) if size else (cells.min(), np.ptp(cells) or 1.0)
                forests.units[j] = low, width
                # Squared errors of indicators are the Gini impurity
                cells = (cells == np.arange(size)) if size else (cells - low) / width
                sample_weight = rows.weight[known]
                # Equal weights change no tree, but take time
                is_equal = sample_weight.min() == sample_weight.max()
                sample_weight = None if is_equal else sample_weight / sample_weight.mean()
                sample = _without(ranks[known], j), cells.astype(np.float64), sample_weight
                # Sums of weights are rounded
                least = min(0.5, (1.0 - 1e-9) * _LEAF_ROWS / len(known))
                leaves = {"min_samples_leaf": _LEAF_ROWS, "min_weight_fraction_leaf": least}
                forests.trees[j] = [
                    ExtraTreeRegressor(**leaves, random_state=random_state).fit(
                        *sample, check_input=False
                    )
                    for _ in range(each)
                ]
                importances = [tree.feature_importances_ for tree in forests.trees[j]]
                forests.importances[j] = np.mean(importances, axis=0)
        return forests

    def of_numbers_and_categories(self, states, groups):
        """The same about rows in which codes are the numbers of `states` again, by column.

        `groups`: the states that the trees know of columns with many categories.
        """
        limits = [_limits(states[j]) if j in states else own for j, own in enumerate(self.limits)]
        return replace(self, limits=limits, groups=groups)

    def averaged(self, means, tables, completed, is_missing):
        """Means (n, d) and tables {column: (m, k)} of missing cells, averaged with the forests'."""
        means, tables, ranks = means.copy(), dict(tables), self.ranks(completed)
        for j, weight in self.weights.items():
            rows = np.flatnonzero(is_missing[:, j])
            if j not in self.trees or not len(rows):
                continue
            own, known = self.answers(j, ranks[rows], is_missing[rows])
            if j in self.groups:
                own = self.groups[j].spread(own)
            if j in tables:
                tables[j] = tables[j] + weight * known[:, None] * (own - tables[j])
            else:
                means[rows, j] += weight * known * (own[:, 0] - means[rows, j])
        return means, tables

    def answers(self, column, ranks, is_missing):
        """Probabilities (n, k) or means (n, 1) of a column, and how far they count (n,).

        `ranks` (n, d): those of completed rows.
        Trees count as much as the columns that are known, by the impurity that splits reduce: the
        mean of a missing number may be far from all its probable values.
        """
        cells = _without(ranks, column)
        # The checks of estimators take longer than answers about few rows
        own = np.mean([tree.tree_.predict(cells) for tree in self.trees[column]], axis=0)
        low, width = self.units[column]
        return low + width * own.reshape(len(cells), -1), ~is_missing @ self.importances[column]

    def ranks(self, completed):
        """Ranks (n, d) of the cells of completed rows, which trees split."""
        # Floats of trees have 24 bits, and random thresholds are uniform
        columns = zip(self.limits, grouped_rows(completed, self.groups).T, strict=True)
        return np.column_stack([np.searchsorted(*own) for own in columns]).astype(np.float32)


def _limits(cells):
    """Numbers between the observed ones of a column (n,)."""
    values = np.unique(cells[~np.isnan(cells)])
    return values[:-1] + _BETWEEN * np.diff(values)


def _without(cells, column):
    """Cells in which one column tells nothing."""
    cells = cells.copy()
    cells[:, column] = 0.0
    return cells


def _with_modes(means, tables, X):
    """Means, with the most probable category where one is missing in X."""
    for j, table in tables.items():
        # The mean of codes means nothing
        means[np.isnan(X[:, j]), j] = table.argmax(axis=1)
    return means


def _answers(experts, X, ask):
    """Result of each expert, and its weights (K, n), zero if the row is impossible under it."""
    answers, weights = [], []
    for weight, circuit in experts:
        possible = np.ones(len(X), dtype=bool)
        try:
            answers.append(ask(circuit, X))
        except ZeroProbabilityError:
            if len(experts) == 1:
                raise
            possible = ~np.isneginf(circuit.log_prob(X))
            # The answer for a row that is impossible to an expert has weight zero: any row will do
            answers.append(ask(circuit, np.where(possible[:, None], X, np.nan)))
        weights.append(weight * possible)
    total = np.sum(weights, axis=0)
    if not total.all():
        raise ZeroProbabilityError("the observed cells of a row are impossible to all experts")
    return answers, np.stack(weights) / total


@dataclass(frozen=True)
class NewStates:
    """Probabilities of new states by column.

    `log_masses`: log probability that a cell has a new state, by column that has states;
    `numbers`: increasing numbers that are the states, by numerical column among them.
    """

    log_masses: dict[int, float]
    numbers: dict[int, np.ndarray]

    @classmethod
    def learn(cls, rows, is_categorical, numbers):
        """Learn from training rows as they came: their states may have been joined since."""
        log_masses = {
            j: rows.log_new_mass(j) for j in [*np.flatnonzero(is_categorical).tolist(), *numbers]
        }
        return cls(log_masses, numbers)

    def known(self, X):
        """Encoded rows (n, d) in which new numbers are missing."""
        is_new = np.zeros(X.shape, dtype=bool)
        for j, numbers in self.numbers.items():
            is_new[:, j] = ~np.isnan(X[:, j]) & ~np.isin(X[:, j], numbers)
        return np.where(is_new, np.nan, X) if is_new.any() else X

    def log_prob(self, X, is_new):
        """Log probabilities of the new numbers of rows (n, d), shape (n,)."""
        total = np.zeros(len(X))
        for j in np.flatnonzero(is_new.any(axis=0)).tolist():
            new = is_new[:, j]
            total[new] += self.log_masses[j] + _log_fraction(X[new, j], self.numbers[j])
        return total


@dataclass(frozen=True)
class SharedStates:
    """The known integers of a column, each with the new ones that are nearest to it.

    `numbers`: all multiples of their step from the least to the greatest known one; `owners`: the
    known integer whose state each has; `inside`: its probability within the state.
    """

    numbers: np.ndarray
    owners: np.ndarray
    inside: np.ndarray

    @classmethod
    def learn(cls, known, rows, column):
        """Share the states of some increasing integers; None if no others are between them."""
        steps = np.diff(known)
        if (steps == steps[:1]).all():
            return None
        if not (known == np.floor(known)).all() or not 1.0 <= steps.max(initial=0.0) < MAX_GRID:
            return None
        step = np.gcd.reduce(steps.astype(np.int64))
        numbers = np.arange(known[0], known[-1] + step, step)
        # From 2^53 on floats skip integers: there, numbers of a grid are rounded to each other
        is_exact = np.abs(known[[0, -1]]).max() < MAX_INTEGER
        if not is_exact or not len(known) < len(numbers) <= MAX_GRID:
            return None
        owners = known[np.abs(numbers[:, None] - known).argmin(axis=1)]
        is_new = ~np.isin(numbers, known)
        cells, weight = rows.X[:, column], rows.weight
        n_rows = weight[~np.isnan(cells)].sum()
        # The third of new numbers that lies between the known ones
        n_new = np.exp(rows.log_new_mass(column)) * (n_rows + 1.0) / (3.0 * is_new.sum())
        # Missing cells are sorted behind all numbers
        place = np.minimum(np.searchsorted(numbers, cells), len(numbers) - 1)
        counts = np.bincount(place, weight * (numbers[place] == cells), minlength=len(numbers))
        counts[is_new] = min(_MOST_NEW, n_new)
        # A point of a grid need not have any row
        counts[~is_new] = np.maximum(counts[~is_new], 1.0)
        totals = np.bincount(np.searchsorted(known, owners), counts)
        return cls(numbers, owners, counts / totals[np.searchsorted(known, owners)])

    def shared(self, unit):
        """Input unit over all numbers, from one over the known ones."""
        if isinstance(unit, PiecewisePolynomial):
            masses = dict(zip(unit.atoms.tolist(), unit.atom_masses.tolist(), strict=True))
            own = [masses.get(owner, 0.0) for owner in self.owners.tolist()]
            more = {"atoms": self.numbers, "atom_masses": own * self.inside}
            return type(unit)(**{**unit.parameters(), **more})
        states = self.owners.astype(np.intp)
        # Units may list fewer states than others
        probabilities = np.zeros(max(unit.n_states, states[-1] + 1))
        probabilities[: unit.n_states] = unit.probabilities
        probabilities[self.numbers.astype(np.intp)] = probabilities[states] * self.inside
        return Categorical(unit.variable, probabilities)


def with_new_integers(circuit, rows, integers):
    """Circuit in which no integer between known ones is impossible, and these by column."""
    found = {
        j: own
        for j, known in integers.items()
        if (own := SharedStates.learn(known, rows, j)) is not None
    }
    if not found:
        return circuit, {}

    def converted(unit):
        is_over_states = isinstance(unit, (DiscreteUnit, PiecewisePolynomial))
        if not is_over_states or unit.variable not in found:
            return unit
        return found[unit.variable].shared(unit)

    numbers = {j: own.numbers for j, own in found.items()}
    return Circuit(rebuild(circuit.root, converted)), numbers


def numbers_with_masses(circuit: Circuit, X: np.ndarray, is_categorical: np.ndarray):
    """Numbers of which a circuit has probabilities, by numerical column."""
    # Columns of which some rows of X (n, d) have other numbers have a density there
    found = {}
    for unit in () if is_categorical.all() else circuit._inputs:
        is_over_states = isinstance(unit, DiscreteUnit)
        if not (is_over_states or isinstance(unit, PiecewisePolynomial)):
            continue
        if is_categorical[unit.variable]:  # of most units over states
            continue
        if is_over_states:
            values = np.flatnonzero(unit.possible_states()).astype(np.float64)
        else:
            values = unit.atoms
        if len(values):
            # Many units have equal values
            found.setdefault(unit.variable, {})[values.tobytes()] = values
    numbers = {j: np.unique(np.concatenate(list(own.values()))) for j, own in found.items()}
    return without_others(numbers, X)


def without_others(numbers, X):
    """Those columns of which no row of `X` (n, d) has other numbers than these."""
    return {j: own for j, own in numbers.items() if np.isin(X[~np.isnan(X[:, j]), j], own).all()}


def _log_fraction(x, numbers):
    """Log probabilities of new numbers (n,) given that a number is new; `numbers` are known."""
    if (numbers == np.floor(numbers)).all():
        width = 1.0
    else:
        width = np.diff(numbers).min() if len(numbers) > 1 else 1e-3 * max(1.0, abs(numbers[0]))
    # Floats far from zero are more than a unit apart
    width = max(width, float(np.spacing(np.abs(numbers).max())))
    low, high = numbers[0] - width / 2, numbers[-1] + width / 2
    scale = max(float(numbers.std()), width)
    beyond = np.maximum(low - x, x - high)
    inside = np.log(width / (high - low))
    return np.where(beyond < 0, inside, np.log(width / scale) - beyond / scale) - np.log(3.0)
