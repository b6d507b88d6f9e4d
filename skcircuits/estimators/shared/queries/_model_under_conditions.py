"""The model of a density under conditions, which all queries use: conditions read and weighed.

Conditions are disjoint boxes. A numerical column is one feature, a categorical column one indicator
per category. Mutual information is a sum over states, a closed form for Gaussians, or an average
over draws.
"""

from abc import abstractmethod
from collections.abc import Collection, Hashable
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from scipy.special import rel_entr

from skcircuits.circuits import PiecewisePolynomial
from skcircuits.circuits.queries._boxes import Feature, feature_means
from skcircuits.estimators._base import check_is_fitted
from skcircuits.estimators.shared.queries._quantiles import ColumnUnderConditions
from skcircuits.estimators.shared.queries._restricted_models import MAX_INTEGERS, columns_of
from skcircuits.exceptions import CircuitPropertyError, ZeroProbabilityError, must
from skcircuits.tabular import Boxes, compile_queries
from skcircuits.tabular._columns import in_local_time, unknown_column
from skcircuits.tabular._frames import build_frame, with_index_of
from skcircuits.tabular.queries._conditions import Conditions, read_conditions

# Joint states that are summed over
MAX_STATES = 2**20
_REACH = 15.0  # standard deviations within which open intervals are divided
_MAX_STEPS = 64  # of most probable rows from integer to integer
_LEAST_GAIN = 1e-9  # of such a step, in nats: less is rounding
_MAX_BOUNDED = 2  # columns of a divided box: joint normals of three take a tenth of a second each


@dataclass(frozen=True)
class Weighed:
    """Boxes of conditions that are possible under a density, with integers widened to intervals."""

    conditions: Conditions
    log_mass: np.ndarray  # (n_boxes,), log probabilities; log densities of observed cells
    log_total: np.ndarray  # (n_conditions,), of the conditions

    def __len__(self):
        return len(self.conditions)

    @property
    def condition_of(self):
        """Which condition each box belongs to, (n_boxes,)."""
        return self.conditions.boxes.query

    @property
    def weights(self):
        """Probability of each box given its condition, (n_boxes,)."""
        weights = np.exp(self.log_mass - self.log_total[self.condition_of])
        # Masses below exp(-1e16) have logarithms that lose those of their sum
        totals = np.bincount(self.condition_of, weights, minlength=len(self))
        return weights / totals[self.condition_of]

    def average(self, values):
        """Average values (n_boxes, ...) over the boxes of each condition."""
        weights = self.weights.reshape(-1, *[1] * (values.ndim - 1))
        totals = np.zeros((len(self), *values.shape[1:]))
        np.add.at(totals, self.condition_of, weights * values)
        return totals


def weigh(conditions, log_evidence, schema, may_be_exact=None):
    """Weigh conditions by log probabilities of their possible boxes, ``log_evidence(...)``."""
    # `may_be_exact` (d,): columns where a single number, of probability zero, counts by its density
    # Numbers of boxes, not of conditions, so that those left empty can be told
    numbered = replace(conditions.boxes, query=np.arange(len(conditions.boxes)))
    rounded = numbered.around_numbers(schema.grids, schema.constants, conditions.observed)
    boxes = replace(rounded, query=conditions.boxes.query[rounded.query])
    observed = conditions.observed[rounded.query]
    log_mass = log_evidence(boxes, observed) if len(boxes) else np.empty(0)
    if may_be_exact is not None:
        found = _at_points(boxes, observed, log_mass, log_evidence, may_be_exact)
        boxes, observed, log_mass = found
    kept = np.flatnonzero(~np.isneginf(log_mass))
    result = replace(conditions, boxes=boxes.take(kept), observed=observed[kept])
    return Weighed(result, log_mass[kept], log_totals(boxes, log_mass))


def _at_points(boxes, observed, log_mass, log_evidence, may_be_exact):
    """Observe single numbers in conditions that have no probability otherwise."""
    totals = log_totals(boxes, log_mass)
    is_point = may_be_exact & (boxes.lower == boxes.upper)
    doubtful = np.isneginf(totals)[boxes.query] & is_point.any(axis=1)
    chosen = np.flatnonzero(doubtful)
    if len(chosen) == 0:
        return boxes, observed, log_mass
    points = is_point[chosen]
    observed, log_mass = observed.copy(), log_mass.copy()
    lower, upper = boxes.lower.copy(), boxes.upper.copy()
    observed[chosen] = np.where(points, boxes.lower[chosen], observed[chosen])
    lower[chosen] = np.where(points, np.nan, lower[chosen])
    upper[chosen] = np.where(points, np.nan, upper[chosen])
    boxes = replace(boxes, lower=lower, upper=upper)
    log_mass[chosen] = log_evidence(boxes.take(chosen), observed[chosen])
    # Beside a line a point has no mass: of one condition, only boxes with fewest points count
    n_points = np.full(len(boxes), len(may_be_exact) + 1)
    n_points[chosen] = np.where(np.isneginf(log_mass[chosen]), n_points[chosen], points.sum(axis=1))
    fewest = np.full(boxes.n_queries, len(may_be_exact) + 1)
    np.minimum.at(fewest, boxes.query, n_points)
    log_mass[doubtful & (n_points > fewest[boxes.query])] = -np.inf
    return boxes, observed, log_mass


def at_integers(weighed, columns, model, log_evidence):
    """Divide boxes at bounded integers of some columns, so that each part has one of them."""
    # Draws are rounded, and so are moments: they are those of the integers, and not of a continuous
    # variable between the bounds. Columns of many integers are not divided, nor are boxes of three
    # bounded columns. Sums of columns divide their own.
    boxes, observed = weighed.conditions.boxes, weighed.conditions.observed
    columns = np.setdiff1d(columns, list(model.cardinalities))
    low, high = boxes.lower[:, columns], boxes.upper[:, columns]
    is_summed = np.zeros(observed.shape, dtype=bool)
    for box, totals in boxes.totals.items():
        is_summed[box, [j for total, _ in totals for j in columns_of(total)]] = True
    is_bounded = is_summed | ~(np.isnan(boxes.lower) & np.isnan(boxes.upper))
    is_bounded &= np.isnan(observed)
    is_bounded[:, list(model.cardinalities)] = False
    # Comparisons with NaN are false: an open side is wide
    is_wide = (is_bounded & ~is_summed)[:, columns] & ~(high - low <= 1.0)
    is_wide &= (is_bounded.sum(axis=1) <= _MAX_BOUNDED)[:, None]
    if not is_wide.any():
        return weighed
    means, variances = (moments[:, columns] for moments in model.moments())
    reach = _REACH * np.sqrt(variances)
    first = np.fmax(np.rint(means - reach), low + 0.5)
    last = np.fmin(np.rint(means + reach), high - 0.5)
    counts = _few_parts(np.where(is_wide, last - first + 1.0, 1.0))
    n_parts = counts.prod(axis=1)
    source = np.repeat(np.arange(len(boxes)), n_parts)
    number = np.arange(len(source)) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
    parts, observed = boxes.take(source), observed[source]
    for place, j in enumerate(columns.tolist()):
        number, step = np.divmod(number, counts[source, place])
        integer = first[source, place] + step
        # The first and the last part keep the bounds of the box, which may be open
        is_last = step == counts[source, place] - 1
        parts.lower[:, j] = np.where(step > 0, integer - 0.5, parts.lower[:, j])
        parts.upper[:, j] = np.where(is_last, parts.upper[:, j], integer + 0.5)
    log_mass = log_evidence(parts, observed)
    kept = np.flatnonzero(~np.isneginf(log_mass))
    conditions = replace(weighed.conditions, boxes=parts.take(kept), observed=observed[kept])
    return replace(weighed, conditions=conditions, log_mass=log_mass[kept])


def _few_parts(counts):
    """Numbers of parts by box and column; one of the widest columns, so that there are few."""
    order = np.argsort(counts, axis=1)
    ranked = np.take_along_axis(counts, order, axis=1)
    few = np.where(np.cumprod(ranked, axis=1) <= MAX_INTEGERS, np.maximum(ranked, 1.0), 1.0)
    result = np.ones(counts.shape, dtype=np.int64)
    np.put_along_axis(result, order, few.astype(np.int64), axis=1)
    return result


def only_numbers(weighed, features, schema):
    """The only number that a feature can have in a box, (n_boxes, F), NaN where it varies."""
    # Integers do not vary between the points half-way to their neighbours, nor do constant columns.
    # What is observed is left to the model.
    boxes, columns = weighed.conditions.boxes, [feature.variable for feature in features]
    low, high, observed = (
        values[:, columns] for values in (boxes.lower, boxes.upper, weighed.conditions.observed)
    )
    is_single = schema.is_integral[columns] & (high - low <= 1.0)
    only = np.where(is_single, np.rint((low + high) / 2.0), np.nan)
    constants = schema.constants[columns]
    is_outside = (high < constants) | (low > constants)
    only = np.where(np.isnan(constants) | is_outside, only, constants)
    return np.where(np.isnan(observed), only, np.nan)


def log_totals(boxes, log_mass):
    """Log probability of each union of boxes, shape (n_queries,)."""
    totals = np.full(boxes.n_queries, -np.inf)
    np.logaddexp.at(totals, boxes.query, log_mass)
    return totals


def require_possible(weighed, given):
    """Refuse conditions of probability zero."""
    impossible = np.flatnonzero(np.isneginf(weighed.log_total)).tolist()
    if impossible:
        # A table of conditions may be long: its first impossible rows say enough
        which = {} if weighed.conditions.is_single else {"rows": impossible[:10]}
        shown = {"given": given} if weighed.conditions.is_single else {}
        way_out = "Widen its intervals or sets."
        raise ZeroProbabilityError(
            must("A condition", "have positive probability", way_out, **shown, **which), impossible
        )


@dataclass(frozen=True)
class Features:
    """Functions of single columns, with their names."""

    names: list
    features: list

    @classmethod
    def of_columns(cls, columns, schema):
        """Features of named columns, by default of all numerical ones; one per category."""
        if columns is None:
            numerical = [c.categories is None or c.has_numbers for c in schema.columns]
            chosen = np.flatnonzero(numerical).tolist()
            if not chosen:
                chosen = list(range(len(schema.columns)))
        else:
            chosen = column_indices(columns, schema)
        names, features = [], []
        for j in chosen:
            column = schema.columns[j]
            # The mean of a column of codes means nothing unless categories are numbers
            if column.categories is None or column.has_numbers:
                values = None if column.categories is None else column.categories.astype(float)
                names.append(column.name)
                features.append(Feature(j, values))
                continue
            for code, category in enumerate(column.categories.tolist()):
                names.append(f"{column.text_name}_{category}")
                features.append(Feature(j, (np.arange(column.cardinality) == code).astype(float)))
        return cls(names, features)

    def on(self, columns):
        """The same features, where columns are some of a wider table."""
        moved = [one._replace(variable=int(columns[one.variable])) for one in self.features]
        return Features(self.names, moved)


def column_indices(columns, schema):
    """Indices of columns given by name or index, one or several."""
    # NumPy's numbers and texts have an empty shape, too
    if not isinstance(columns, np.generic) and len(getattr(columns, "shape", (0,))) != 1:
        raise ValueError(must("columns", "be a name, an index or a list of them", columns=columns))
    # A tuple may be one name: columns of two levels have tuples for names
    several = isinstance(columns, Collection) and not isinstance(columns, str | bytes | tuple)
    if isinstance(columns, tuple) and columns not in schema.names:
        several = True
    chosen = [column_index(name, schema) for name in (columns if several else [columns])]
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(must("columns", "be distinct, at least one", columns=columns))
    return chosen


def column_index(name, schema):
    """Index of a column given by name (arrays: x0, ...), or index where names are no integers."""
    names = schema.names
    if schema.prototype is None and isinstance(name, str):
        names = [column.text_name for column in schema.columns]
    if not isinstance(name, Hashable):  # arrays among them, which compare to arrays
        raise unknown_column(name, names)
    if name in names:
        return names.index(name)
    if (
        isinstance(name, int | np.integer)
        and not isinstance(name, bool)
        and not any(isinstance(own, int) for own in names)
    ):
        if not -len(names) <= name < len(names):
            raise unknown_column(name, names)
        # Negative indices count from the end, as everywhere in Python
        return int(name) % len(names)
    raise unknown_column(name, names)


def in_frame(columns, schema, like=None, index=None):
    """Answers (n,) by column as a dataframe of the library that the density was fitted with."""
    prototype = schema.prototype if like is None else like
    frame = build_frame(columns, None, _library(prototype))
    if like is not None:
        return with_index_of(frame, like)
    if index is not None and hasattr(frame, "set_axis"):
        return frame.set_axis(index, axis=0)
    return frame


def _library(frame):
    return type(frame).__module__.split(".")[0]


def mutual_information(weighed, groups, cardinalities, log_evidence):
    """Mutual information in nats of two groups of discrete columns under one weighed condition."""
    columns = list(chain(*groups))
    continuous = [column for column in columns if column not in cardinalities]
    if continuous:
        condition = "be categorical, or integers with few values"
        way_out = "Pass method='estimate' for an average over draws."
        raise CircuitPropertyError(
            must("columns of a mutual information", condition, way_out, columns=continuous)
        )
    n_states = n_joint_states(columns, cardinalities)
    if n_states * len(weighed.log_mass) > MAX_STATES:
        condition = f"have at most {MAX_STATES} joint states"
        way_out = "Ask for fewer columns, or pass method='estimate'."
        raise CircuitPropertyError(
            must("columns of a mutual information", condition, way_out, n_states=int(n_states))
        )
    _, joint = joint_states(weighed, columns, cardinalities, log_evidence)
    table = joint.reshape(int(n_joint_states(groups[0], cardinalities)), -1)
    # Estimated probabilities need not add up to one: the logarithm of their sum is no information
    table = table / table.sum()
    independent = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
    return max(0.0, float(rel_entr(table, independent).sum()))


def n_joint_states(columns, cardinalities):
    """Number of joint states of some columns, infinite where one is continuous."""
    return np.prod([cardinalities.get(int(column), np.inf) for column in columns], dtype=float)


def joint_states(weighed, columns, cardinalities, log_evidence):
    """All joint states (n_states, n_columns), and their probabilities (n_conditions, n_states)."""
    shape = [cardinalities[int(column)] for column in columns]
    states = np.stack(np.unravel_index(np.arange(int(np.prod(shape))), shape), axis=1)
    boxes, observed = weighed.conditions.boxes, weighed.conditions.observed
    n_boxes, n_states = len(boxes), len(states)
    cells = np.repeat(observed, n_states, axis=0)
    wanted = np.tile(states, (n_boxes, 1)).astype(float)
    known = cells[:, columns]
    # A state that differs from an observed cell has probability zero
    agree = (np.isnan(known) | (known == wanted)).all(axis=1)
    cells[:, columns] = wanted
    log_mass = log_evidence(boxes.take(np.repeat(np.arange(n_boxes), n_states)), cells)
    log_mass = np.where(agree, log_mass, -np.inf).reshape(n_boxes, n_states)
    masses = np.zeros((len(weighed), n_states))
    log_total = weighed.log_total[weighed.condition_of]
    np.add.at(masses, weighed.condition_of, np.exp(log_mass - log_total[:, None]))
    return states, masses


def gaussian_information(covariance, n_first):
    """Mutual information of the first variables of a Gaussian and the others."""
    parts = covariance, covariance[:n_first, :n_first], covariance[n_first:, n_first:]
    # I = ½ log(|Σ_1| |Σ_2| / |Σ|)
    joint, first, second = (np.linalg.slogdet(part)[1] for part in parts)
    return max(0.0, float(first + second - joint) / 2.0)


def estimate_information(joint, first, second, n_samples, random_state):
    """Average of the log ratio of densities over draws, and its standard error."""
    drawn = joint.sample(n_samples, random_state)
    ratios, start = joint.score_samples(drawn), 0
    for density in (first, second):
        stop = start + density.n_features_in_
        names = list(density.feature_names_in_)
        # I = E[log p(x, y) - log p(x) - log p(y)]
        own = drawn[names] if hasattr(drawn, "columns") else drawn[:, start:stop]
        ratios, start = ratios - density.score_samples(own), stop
    return float(ratios.mean()), float(ratios.std(ddof=1) / np.sqrt(n_samples))


class ModelUnderConditions:
    """Conditions with their probabilities, and the queries of a model under them."""

    # Hooks of a density: `_log_evidence(boxes, observed)`, (n_boxes,), and `_restricted(boxes,
    # observed)`, a `RestrictedCircuit`; `_schema` describes its columns

    _column_type = ColumnUnderConditions

    def _draw_given(self, weighed, n_samples, generator):
        """Draws (n_samples, n_conditions, d) of encoded rows."""
        weights, counts = weighed.weights, np.zeros(len(weighed.log_mass), dtype=np.int64)
        boxes = np.argsort(weighed.condition_of, kind="stable")
        ends = np.cumsum(np.bincount(weighed.condition_of, minlength=len(weighed)))
        for own in np.split(boxes, ends)[:-1]:
            # Boxes of a condition are disjoint: a draw lies in each by its probability
            counts[own] = generator.multinomial(n_samples, weights[own] / weights[own].sum())
        drawn = self._model_of(weighed).sample(counts, generator)
        known, box_of = weighed.conditions.boxes, np.repeat(np.arange(len(counts)), counts)
        drawn = self._model_schema.in_narrow_floats(drawn, known.lower, known.upper, box_of)
        of_condition = np.argsort(np.repeat(weighed.condition_of, counts), kind="stable")
        result = np.empty((n_samples, len(weighed), drawn.shape[1]))
        for condition, own in enumerate(of_condition.reshape(len(weighed), n_samples)):
            # Boxes one after the other: shuffled, draws are independent
            result[:, condition] = drawn[own[generator.permutation(n_samples)]]
        return self._own_columns(result)

    def _require_fitted(self):
        # check_is_fitted looks up the tags of an estimator first, at a tenth of a question's time
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)

    def _compile(self, queries):
        return compile_queries(queries, self._schema)

    def _conditions(self, given):
        return read_conditions(given, self._schema)

    def _ask(self, given):
        """Read and weigh conditions; impossible ones raise."""
        self._require_fitted()
        weighed = self._weigh(self._conditions(given))
        require_possible(weighed, given)
        return weighed

    def _weigh(self, conditions, is_given=True):
        schema = self._model_schema
        is_exact = ~schema.is_categorical & ~schema.is_integral if is_given else None
        try:
            return weigh(conditions, self._log_evidence, schema, is_exact)
        except CircuitPropertyError as error:
            if is_given:  # only probabilities of queries have other methods
                way_out = "Under a condition, keep the rows of sample(n) that satisfy it instead."
                raise CircuitPropertyError(f"{error} {way_out}") from error
            raise

    @property
    def _model_schema(self):
        """Schema of the columns of the model."""
        return self._schema

    def _is_certain(self, conditions):
        return bool(
            len(conditions.boxes) == 1
            and conditions.is_single
            and np.isnan(conditions.observed).all()
            and not has_bounds(conditions.boxes)
        )

    def _is_gaussian(self):
        """Whether the model is a single Gaussian."""
        return False

    def _model_of(self, weighed):
        boxes = weighed.conditions.boxes
        return self._restricted(boxes, weighed.conditions.observed)

    def _at_integers(self, weighed, features):
        """Weighed boxes in which features that are bounded integers have one number each."""
        columns = np.unique([feature.variable for feature in features])
        columns = columns[self._model_schema.is_integral[columns]]
        if not len(columns):
            return weighed
        return at_integers(weighed, columns, self._model_of(weighed), self._log_evidence)

    def _means(self, weighed, features):
        """Means of features in each box, (n_boxes, F)."""
        only = only_numbers(weighed, features, self._model_schema)
        means = feature_means(self._model_of(weighed), features)
        return np.where(np.isnan(only), means, only)

    def _features(self, columns):
        return Features.of_columns(columns, self._schema)

    def _to_model(self, features):
        """Features of own columns as those of the columns of the model."""
        return features

    def _own_columns(self, rows):
        """Own columns of rows of the model."""
        return rows

    def _ordered_column(self, column):
        j = column_index(column, self._schema)
        known = self._schema.columns[j]
        if known.categories is not None and not (known.has_numbers or known.is_ordered):
            condition = "be numerical or have ordered categories"
            way_out = "The expectation of a categorical column gives its probabilities."
            raise ValueError(must("The column of a quantile", condition, way_out, column=column))
        return j

    def _column_under(self, weighed, column):
        """A named column under conditions, whose values must have an order."""
        j = self._ordered_column(column)
        at = int(self._own_columns(np.arange(self._width))[j])
        known, model = self._schema.columns[j], self._model_of(weighed)
        evidence, points = self._log_evidence, self._point_masses
        return self._column_type(known, at, weighed, model, evidence, points)

    def _most_probable(self, weighed):
        """Most probable row under each condition, in the form for users."""
        return self._best_rows(weighed)

    def _best_rows(self, weighed, **search):
        """Best row of each condition, of those of its boxes; `search`: parameters of `mpe`."""
        known = self._model_of(weighed).mpe(**search)
        rows, heights = self._at_best_integers(weighed, *known, **search)
        best = np.lexsort((-heights, weighed.condition_of))
        _, first = np.unique(weighed.condition_of[best], return_index=True)
        rounded = self._rounded(rows, weighed)[best[first]]
        return self._decode_rows(rounded, weighed.conditions)

    def _at_best_integers(self, weighed, rows, heights, **search):
        """Move integer cells to integers, and those of other columns to the best then."""
        # Between two integers the density may be highest near the one where it is lower, as where a
        # piece of a polynomial ends; and where columns depend on each other, integers next to the
        # best point may be far less probable than some further away.
        schema, conditions = self._model_schema, weighed.conditions
        left_out = list(search.get("left_out", ()))
        moved = schema.is_integral.copy()
        moved[[*self._model_of(weighed).cardinalities, *left_out]] = False
        is_moved = moved & np.isnan(conditions.observed) & np.isfinite(rows)
        if conditions.boxes.totals or not (is_moved & (rows != np.round(rows))).any():
            return rows, heights
        low, high = np.ceil(conditions.boxes.lower), np.floor(conditions.boxes.upper)
        is_known = np.isfinite(rows)
        is_known[:, left_out] = False
        rows = np.where(is_moved, np.fmin(np.fmax(np.round(rows), low), high), rows)

        def log_density(at, trials):
            return self._log_evidence(*_with_cells(conditions, at, trials, is_known[at]))

        rows, heights = _stepped(log_density, rows, is_moved, low, high)
        # The best numbers in other columns depend on the integers
        at = np.flatnonzero(np.isfinite(heights))
        if len(at) and (np.isnan(conditions.observed) & is_known & ~is_moved).any():
            known = _with_cells(conditions, at, rows[at], is_moved[at])
            found = self._restricted(*known).mpe(**search)[0]
            found_heights = log_density(at, found)
            better = found_heights > heights[at]
            rows[at[better]], heights[at[better]] = found[better], found_heights[better]
        return rows, heights

    def _rounded(self, rows, weighed):
        """Round integer columns of own rows, within the boxes they were found in."""
        boxes, schema = weighed.conditions.boxes, self._model_schema
        # Boxes reach half a unit around their integers
        low, high = np.ceil(boxes.lower), np.floor(boxes.upper)
        inside = np.fmin(np.fmax(np.round(rows), low), high)
        is_free = np.isnan(weighed.conditions.observed)
        rounded = schema.rounded(np.where(schema.is_integral, inside, rows))
        rounded = self._own_columns(np.where(is_free, rounded, rows))
        low, high = self._own_columns(boxes.lower), self._own_columns(boxes.upper)
        return self._schema.in_narrow_floats(rounded, low, high)

    def _decode_rows(self, rows, conditions):
        if self._schema.prototype is None:
            rows = self._schema.decode_array(rows)
            return rows[0] if conditions.is_single else rows
        return with_index_of(self._schema.decode(rows), conditions.like)

    def _labelled(self, values, wanted, conditions):
        """Values (n_conditions, F) of features, with names if the density has names."""
        if self._schema.prototype is None and conditions.like is None:
            return values[0] if conditions.is_single else values
        columns = {}
        for name, feature, own in zip(wanted.names, wanted.features, values.T):
            column = self._schema.columns[feature.variable]
            columns[name] = in_local_time(column, column.decode(own)) if column.has_dates else own
        return in_frame(columns, self._schema, conditions.like)

    @property
    def _width(self):
        """Number of columns of the model."""
        return len(self._model_schema.columns)

    @abstractmethod
    def _log_evidence(self, boxes: Boxes, observed):
        """Log probability of each box and of the cells observed with it, (n_boxes,)."""

    @abstractmethod
    def _restricted(self, boxes: Boxes, observed):
        """The model restricted to each box, a `RestrictedCircuit`."""

    def _point_masses(self, column):
        """Points, increasing, where units of a column of the model hold mass."""
        units = (u for u in self.circuit_.plan.units if isinstance(u, PiecewisePolynomial))
        points = [unit.atoms for unit in units if unit.variable == column]
        return np.unique(np.concatenate(points)) if points else np.empty(0)

    @abstractmethod
    def _make_conditional(self, weighed, columns):
        """Density of some columns under one weighed condition."""


def has_bounds(boxes):
    """Whether boxes contain more information than the observed cells."""
    is_open = np.isnan(boxes.lower).all() and np.isnan(boxes.upper).all()
    return not is_open or bool(boxes.states) or bool(boxes.totals)


def _with_cells(conditions, at, rows, is_known):
    """Boxes and observed cells of some boxes, in which known cells of rows are observed, too."""
    boxes = conditions.boxes.take(at)
    is_known = is_known & np.isnan(conditions.observed[at])
    lower, upper = (np.where(is_known, np.nan, ends) for ends in (boxes.lower, boxes.upper))
    observed = np.where(is_known, rows, conditions.observed[at])
    return replace(boxes, lower=lower, upper=upper), observed


def _stepped(log_density, rows, is_moved, low, high):
    """Rows of integers after steps within bounds in single columns, and their log densities."""
    rows, heights = rows.copy(), log_density(np.arange(len(rows)), rows)
    columns = np.flatnonzero(is_moved.any(axis=0)).repeat(2)
    steps = np.tile([-1.0, 1.0], len(columns) // 2)
    active = np.flatnonzero(is_moved.any(axis=1))
    # All steps at once, of which each row takes the best
    for _ in range(_MAX_STEPS):
        at, j = active.repeat(len(columns)), np.tile(columns, len(active))
        trials, cell = rows[at], (np.arange(len(at)), j)
        stepped = trials[cell] + np.tile(steps, len(active))
        trials[cell] = np.fmin(np.fmax(stepped, low[at, j]), high[at, j])
        own = is_moved[at, j]
        found = np.full(len(at), -np.inf)
        found[own] = log_density(at[own], trials[own])
        best = found.reshape(len(active), -1).argmax(axis=1)
        best += len(columns) * np.arange(len(active))
        best = best[found[best] > heights[active] + _LEAST_GAIN]
        active = at[best]
        if not len(active):
            break
        rows[active], heights[active] = trials[best], found[best]
    return rows, heights
