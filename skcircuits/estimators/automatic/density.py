"""Automatic choice of a family of densities, or of a mixture of several."""

from dataclasses import replace
from numbers import Integral
from typing import ClassVar

import numpy as np

from skcircuits.circuits import Circuit, Sum
from skcircuits.estimators._base import TABLE_CONSTRAINTS, StrOptions, inherit_documentation
from skcircuits.estimators.automatic._experts import (
    Expert,
    Trials,
    experts_for,
    refinement_tol,
    with_histograms,
)
from skcircuits.estimators.shared._completion import MAX_FOREST_STATES
from skcircuits.estimators.shared._density import (
    CircuitDensity,
    unit_over_numbers,
    with_other_units,
)
from skcircuits.estimators.shared._fitting import inner_fit, weights_in_rows, whole_fit
from skcircuits.exceptions import invalid
from skcircuits.learning._columns import FEW_VALUES, ROWS_PER_VALUE, few_numbers
from skcircuits.learning._thresholds import find_thresholds, with_decided
from skcircuits.learning.gaussian_mixture._candidates import (
    MAX_DENSE_COLUMNS,
    MAX_LOCATION_ROWS,
    CandidateSpace,
    Comparison,
    choose_pool,
    choose_single,
    grouped_columns,
    pool_size,
)
from skcircuits.learning.gaussian_mixture._categories import max_cells
from skcircuits.learning.gaussian_mixture._held_out import mean_bounds
from skcircuits.learning.gaussian_mixture._learner import EMSettings
from skcircuits.learning.gaussian_mixture._table import (
    MixtureTable,
    mapped_near_range,
    near_range,
    without_far,
)
from skcircuits.tabular._schema import grouped_rows, learn_groups

_FAMILIES = ("gaussian_mixture", "latent_tree", "wmispn")
# Tables of more cells are left to Gaussian mixtures: predictions of cells take more candidates
_MAX_CELLS = {"log_likelihood": 4_000_000, "cells": 400_000}
_MAX_SPLIT_COLUMNS = 60  # sum-product networks and thresholds compare all pairs of columns
_MAX_THRESHOLD_NUMBERS = 2  # Gaussians bound at most three columns, of which queries need one
_ENOUGH_ROWS = 10_000  # to detect whether many have the same number
_LEAST_MEMBERS = 2  # of a mixture: on many rows, each family represents what others miss
_MOST_EXPERTS = 4  # whose predictions of cells are averaged: more of them hardly gain
_LEAST_LEVELS = 3  # categories: the order of two tells nothing
_SKEWED = 0.1  # nats per cell of a column that a transformation gains: lognormal, sigma .4
_LEAST_POOL = 3  # tables so large that fewer densities are affordable get Gaussian mixtures


@inherit_documentation
class AutomaticDensity(CircuitDensity):
    """Automatic choice and mixture of Gaussian mixtures, latent trees and sum-product networks.

    Candidates of three families are fitted to a subset of the rows and evaluated on the others:
    Gaussian mixtures of several types and sizes (`GaussianMixtureDensity`), latent Chow-Liu trees
    (`HiddenChowLiuDensity`) and sum-product networks (`WMISPNDensity`). After a few iterations, at
    most five candidates go on (four if cells are predicted), those with the largest weights in a
    mixture of all. The weights that are best for these together are learned by stacking [1]_ and
    shrunk towards equal weights. The candidates with relevant weights are fitted to all rows and
    combined into one mixture, whose queries are exact. Tables of more than 4 million cells (400,000
    or 60 columns if cells are predicted), and numerical tables that are described by a single
    Gaussian, get Gaussian mixtures only, and sum-product networks are no candidates for more than
    60 columns. Of other numerical tables, latent trees and sum-product networks are candidates if
    log densities are compared and the distribution of a column under the Gaussian mixtures differs
    from that of the rows.

    If log densities are compared, a value that many rows have, such as zero in a column of debts
    or a level of a scale, has a positive probability in all families
    (``point_masses="frequent"``).

    If log densities are compared, a category that is determined by thresholds of a number
    (``adult`` by ``age >= 18``), also with noise that depends on nothing else, is left out of the
    table. It is added to the result afterwards: the number is divided at the thresholds, and each
    of its parts has the frequencies of the rows there. At most two numbers are divided in this way.
    Numerical columns of few numbers (0 and 1) can be determined like categories.

    Weights of rows that are not all integers count relative to their mean.

    Parameters
    ----------
    families : "all" or list of {"gaussian_mixture", "latent_tree", "wmispn"}, default="all"
        The families to choose from.
    selection : {"log_likelihood", "cells"}, default="log_likelihood"
        Criterion that compares candidates on held-out rows: the log density together with the joint
        frequencies of categories and quarters of the numerical columns, or the errors of predicted
        hidden cells (squared errors and log losses, relative to those of the mean and the
        frequencies of the column). With ``"cells"``, an imputer averages the predictions of the
        densities with weights of each column that are the same for all rows, because the density
        that explains the observed cells of a row best is not necessarily the one that predicts the
        hidden cells best. Means are restricted to the observed range of a column, extended by one
        standard deviation. On tables of at most 10,000 rows, all densities represent a numerical
        column of two values by the probabilities of these values, and its predicted mean follows
        from them, unless combinations of such columns and of the categories are too many for
        location models. The candidates include, on tables of at most 5,000 rows and 40,000 numbers,
        mixtures with one component per row, and from 1,200 rows on mixtures of up to 48 components
        with separate covariances; latent trees, of few and of many states, are candidates only on
        tables without numbers. Means (in tables of at most 40 columns) and probabilities of
        categories are averaged with those of random trees over the other columns, which know
        interactions of several columns, and thresholds. On tables with ordered categories, the
        candidates include a single Gaussian to which the codes of these are numbers; a category
        then has the probability of the numbers that round to its code. One of two location models
        is fitted to transformed columns. Tables of numbers with a skewed column get transformed
        candidates even if a single Gaussian suffices. In each column, squared errors count relative
        to their variance, which grows with the number in skewed columns.
    random_state : int, RandomState or None, default=None
        Controls the randomness of the initialisations and of the held-out rows.
    n_jobs : int, default=None
        Number of parallel jobs over candidates; the result does not depend on it.

    Attributes
    ----------
    circuit_ : Circuit
        The mixture, over the original units and the codes of ``categories_``. It leaves out a
        density to which these codes are numbers.
    densities_ : list of density
        The densities that were fitted to all rows. They do not include columns in
        ``thresholds_``; numerical columns of two values may be categorical in them.
    thresholds_ : dict
        Columns of categories or of few numbers that a numerical column determines, apart from
        noise, by thresholds: for the index of each, the index of the numerical column and the
        increasing thresholds. Empty if ``selection="cells"``.
    weights_ : ndarray of shape (len(densities_),)
        Weights of the densities in the mixture.
    forest_weights_ : dict
        For each index of a column that an imputer also predicts by random trees, their weight
        beside the densities (which is smaller where they split on missing cells).
        Draws, most probable completions and ``circuit_`` do not depend on them. Empty if
        ``selection="log_likelihood"``.
    log_likelihood_ : float
        Mean log likelihood of the training rows (of 1000 of them, if there are more). Only with
        ``selection="log_likelihood"``.
    selection_ : list of dict
        One entry for each candidate, with the chosen ones first: its ``family`` and the parameters
        that differ from the defaults of its density, its mean held-out ``loss`` with
        ``standard_error``, and its ``weight`` in the mixture (0 if it was not chosen). A density
        with the parameters of a chosen one, among them its ``random_state``, is the same, apart
        from Gaussian mixtures that go on from a fit to some of the rows. The loss of a candidate
        that dropped out early is that of its few iterations. Where ``ordered_as_numbers`` is True,
        the codes of ordered categories are numbers to the density. With
        ``selection="log_likelihood"`` also ``misfit``: the largest difference in held-out rows
        between the joint frequency of a category and a quarter of a numerical column and its
        probability.

    See Also
    --------
    GaussianMixtureDensity : Gaussian mixtures alone.
    CircuitImputer : Imputes missing cells by such a density.

    References
    ----------
    .. [1] Smyth and Wolpert, "Linearly Combining Density Estimators via Stacking", Machine
       Learning 36, 1999; Yao, Vehtari, Simpson and Gelman, "Using Stacking to Average Bayesian
       Predictive Distributions", Bayesian Analysis 13, 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skcircuits import AutomaticDensity
    >>> rng = np.random.default_rng(0)
    >>> job = rng.choice(["cook", "nurse"], size=200)
    >>> wage = rng.normal(np.where(job == "nurse", 30.0, 20.0), 2.0)
    >>> table = pd.DataFrame({"job": job, "wage": wage})
    >>> density = AutomaticDensity(random_state=0).fit(table)
    >>> bool(density.probability("wage > 25", given={"job": "nurse"}) > 0.95)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "families": [StrOptions({"all"}), list, tuple],
        "selection": [StrOptions({"log_likelihood", "cells"})],
        **TABLE_CONSTRAINTS,
        "n_jobs": [Integral, None],
    }

    _counts_rows = True
    _given_weights = _given_states = None  # choices of an earlier fit, in clones that keep them
    _near = None  # bounds of numbers that are not far off, if cells are predicted
    _may_transform = True  # kernels have no expectations over transformed columns

    def __init__(
        self,
        *,
        families="all",
        selection="log_likelihood",
        categorical_features="from_dtype",
        handle_unknown="missing",
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.families = families
        self.selection = selection
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _fit_rows(self, rows, generator):
        seed = int(generator.integers(np.iinfo(np.int32).max))
        self._column_weights = self._mean_bounds = self._near = self._forests = None
        self.forest_weights_ = {}
        whole = rows
        if self.selection == "cells":
            self._near = self._near_ranges(rows, near_range)
            rows = replace(rows, X=without_far(rows.X, self._near))
        found = self._thresholds(rows)
        self.thresholds_ = {
            column: (own.variable, own.cuts) for own in found for column in own.tables
        }
        # What a number decides need not be learned: the other columns are a smaller table
        columns = np.setdiff1d(np.arange(rows.X.shape[1]), list(self.thresholds_))
        part, schema = rows, self._schema
        if found:
            part, schema = replace(rows, X=rows.X[:, columns]), schema.select(columns)
        self._states = self._numbers_as_categories(part, schema)
        part, schema = _as_codes(part, self._states), _as_categorical(schema, self._states)
        self._fit_mixture(part, schema, seed, generator)
        circuits = [_in_numbers(density.circuit_, self._states) for density in self.densities_]
        if found:
            circuits = [
                _in_numbers(with_decided(circuit, columns, found), self._decided_numbers)
                for circuit in circuits
            ]
        pairs = list(zip(self._weights, circuits, strict=True))
        self._answerers = [expert.answers_about(circuit, schema) for expert, circuit in pairs]
        over_states = [k for k, (expert, _) in enumerate(pairs) if not expert.ordinal]
        own = self.weights_[over_states]
        self.circuit_ = mixed([circuits[k] for k in over_states], own / own.sum())
        if self.selection == "cells" and len(self.densities_) > 1:
            self._mean_bounds = self._bounds_of_means(rows, whole)
        if self.selection == "log_likelihood":  # imputers never evaluate the whole mixture
            self.log_likelihood_ = self._mean_log_likelihood(rows)

    def _training_rows(self, X, sample_weight):
        rows = super()._training_rows(X, sample_weight)
        return replace(rows, weight=weights_in_rows(rows.weight))

    def _add_new_integers(self, rows):
        # The densities have them already, and the columns of theirs that are codes have none
        super()._add_new_integers(rows)
        self._n_given += sum(density._n_given for density in self.densities_)

    def _known_integers(self, rows):
        is_integral = self._schema.is_integral
        return {j: own for j, own in self._decided_numbers.items() if is_integral[j]}

    def _near_ranges(self, rows, measure):
        """Bounds (2, d) of numbers that are not far off by a measure, and so may predict cells."""
        near = np.array([measure(column, rows.weight) for column in rows.X.T]).T
        near[:, self._schema.is_categorical] = [[-np.inf], [np.inf]]
        return near

    def _bounds_of_means(self, rows, whole):
        """Least and largest means (K, d) by each density, from rows with and without far cells."""

        # Densities over transformed columns may say means as large as numbers that are far off only
        # in the units of the column
        def bounds(X):
            return mean_bounds(np.where(self._schema.is_categorical, np.nan, X))

        own = transformed = bounds(rows.X)
        if rows.X is not whole.X:
            near = self._near_ranges(whole, mapped_near_range)
            transformed = bounds(without_far(whole.X, near))
        each = [transformed if expert.is_transformed else own for expert in self._weights]
        return tuple(np.stack(ends) for ends in zip(*each, strict=True))

    def _evidence(self, X):
        known = super()._evidence(X)
        return known if self._near is None else without_far(known, self._near)

    def _thresholds(self, rows):
        """Numbers that decide categories; none if cells are predicted."""
        # Then weights of each column find the densities that know
        self._decided_numbers = {}
        if self.selection == "cells" or len(self._schema.columns) > _MAX_SPLIT_COLUMNS:
            return []
        rows, schema, groups = _grouped(rows, self._schema)
        few = {
            j: numbers
            for j in np.flatnonzero(~schema.is_categorical).tolist()
            if len(numbers := few_numbers(rows.X[:, j], rows.weight))
        }
        sizes, is_integral = schema.cardinalities, schema.is_integral
        found = find_thresholds(
            rows.X, rows.weight, sizes, is_integral, _MAX_THRESHOLD_NUMBERS, few
        )
        self._decided_numbers = {j: few[j] for own in found for j in own.tables if j in few}
        # States of rare categories are as probable in a band as these together
        return [
            replace(
                own,
                tables={
                    j: groups[j].spread(table) if j in groups else table
                    for j, table in own.tables.items()
                },
            )
            for own in found
        ]

    def _numbers_as_categories(self, rows, schema):
        """The two numbers of columns that are categories to all densities, by column."""
        # Decided before candidates are compared, so that all of them have probabilities of these
        # numbers, and none a density. If log densities are compared, point masses do the same.
        if self.selection == "log_likelihood":
            return {}
        if self._given_states is not None:
            return self._given_states
        numerical = np.flatnonzero(~schema.is_categorical).tolist()
        found = {
            j: values
            for j in numerical
            # Cells of densities alone are read by their schema, which has dates as numbers
            if not schema.columns[j].has_dates
            and len(values := _two_numbers(rows.X[:, j], rows.counts))
        }
        n_rows, n_others = len(rows.X), len(numerical) - len(found)
        if not found or not 0 < n_others <= MAX_DENSE_COLUMNS or n_rows > MAX_LOCATION_ROWS:
            return {}
        # A location model that crosses all of them with all categories loses nothing that a
        # covariance knows; where it cannot, Gaussians know more than components do
        sizes = schema.cardinalities[schema.is_categorical].astype(np.float64)
        is_crossed = sizes.prod() * 2.0 ** len(found) <= max_cells(n_rows, n_others)
        return found if is_crossed else {}

    def _fit_mixture(self, rows, schema, seed, generator):
        """Choose densities and fit them to all rows."""
        by_cells = self.selection == "cells"
        if self._given_weights is None:
            self._weights, self.selection_ = self._choose(rows, schema, seed)
        else:
            self._weights = self._given_weights
            self.selection_ = [{**e.described(), "weight": w} for e, w in self._weights.items()]
        seeds = generator.integers(np.iinfo(np.int32).max, size=len(self._weights)).tolist()
        cardinalities, groups = schema.cardinalities, {}
        self.densities_ = []
        for (expert, weight), own in zip(self._weights.items(), seeds, strict=True):
            if expert.shape and expert.groups_key not in groups:
                # Several members have the same
                groups[expert.groups_key] = expert.groups_of(rows.X, rows.weight, cardinalities)
            # More restarts are pooled with more weight, and with fewer rows; predictions of cells
            # are averaged over densities anyway
            n_restarts = 1 if by_cells else max(1, round(weight * pool_size(rows.X.size)))
            density = expert.make(
                own,
                n_restarts=n_restarts,
                grouped=groups.get(expert.groups_key),
                **(expert.going_on(len(rows.X)) if by_cells else {}),
            )
            self.densities_.append(density)
        self._report_parameters()
        self._fit_members(self.densities_, rows, schema)
        # Fits to some of the rows have done their part: clones for draws start afresh
        self._weights = {
            replace(e, fits={}, trial=None, n_rows=0): weight for e, weight in self._weights.items()
        }
        self.weights_ = np.array(list(self._weights.values()))

    def _report_parameters(self):
        """Add the parameters of the chosen densities to their rows of the report."""
        scores = {"loss", "standard_error", "weight", "misfit"}
        for expert, density in zip(self._weights, self.densities_, strict=True):
            if expert.candidates:  # several mixtures in one density, each with its own
                continue
            described = expert.described()
            own = next(
                row
                for row in self.selection_
                if row.keys() - scores == described.keys() and described.items() <= row.items()
            )
            defaults = type(density)().get_params(deep=False)
            # The few iterations from a fit to some of the rows are too few from another start
            hidden = {"verbose", "max_iter"} - dict(expert.parameters).keys()
            for name, value in density.get_params(deep=False).items():
                if name not in hidden and value != defaults[name]:
                    own[name] = value

    def _fit_members(self, densities, rows, schema):
        """Fit the chosen densities to all rows, each as a separate task for callbacks."""
        with whole_fit(self, len(densities)) as fit:
            for expert, density in zip(self._weights, densities, strict=True):
                task = fit.subcontext(task_name=type(density).__name__)
                density._is_draw = self._is_draw
                density._convergence_way_out = None  # the weight was learned on held-out rows
                density._refinement_tol = refinement_tol(self.selection)
                with inner_fit(self, density, task):
                    density.set_params(verbose=self.verbose)
                    density._fit_encoded(rows.X, expert.view(schema), rows.weight)

    def _clone_for_draw(self):
        cloned = super()._clone_for_draw()
        cloned._given_weights = getattr(self, "_weights", None)
        cloned._given_states = getattr(self, "_states", None)
        return cloned

    def _experts(self):
        """The densities with fixed weights, with which their predictions are averaged."""
        # Weights that depend on the row would not help: the density that explains the observed
        # cells of a row best need not predict the other cells best
        if self.selection == "log_likelihood":
            return super()._experts()
        return list(zip(self.weights_, self._answerers, strict=True))

    def _choose(self, rows, schema, seed):
        """Experts to fit to all rows with their weights, and the report."""
        rows, schema, groups = _grouped(rows, schema)
        table = MixtureTable.prepare(rows.X, schema.cardinalities, rows.weight)
        is_affordable = is_small(len(table.weights), len(table.cardinalities), self.selection)
        families, comparison, pool = self._checked_families(), None, None
        if len(table.cardinalities) > _MAX_SPLIT_COLUMNS and len(families) > 1:
            families = tuple(family for family in families if family != "wmispn")
        has_thresholds = len(schema.columns) < self.n_features_in_
        by_cells = self.selection == "cells"
        transforms = self._may_transform and not by_cells
        massive = [] if by_cells else _grouped_columns(rows, schema)
        if massive and "gaussian_mixture" in families and not is_affordable:
            expert = Expert("gaussian_mixture", (("point_masses", "frequent"),))
            return {expert: 1.0}, [{**expert.described(), "weight": 1.0}]
        later = ()  # families that are only worth their time where Gaussian mixtures do not suit
        if (
            not massive
            and "gaussian_mixture" in families
            and not _suits_trees(table, is_affordable, has_thresholds)
        ):
            if transforms and is_affordable:
                later = [family for family in families if family != "gaussian_mixture"]
            families = ("gaussian_mixture",)
            comparison = Comparison(table, self.selection, EMSettings(), seed)
            pool = _own_pool(table, comparison)
        # Of few levels, or of groups, the order tells little
        levels = [c.cardinality if c.is_ordered else 0 for c in schema.columns]
        ordinal = [j for j, n in enumerate(levels) if n >= _LEAST_LEVELS and j not in groups]
        settings = self.selection, len(massive), self._may_transform, ordinal
        experts = experts_for(table, families, *settings)
        if pool is not None:
            transformed = [own for own in experts if own.is_transformed and transforms]
            if not transformed or sum(c.n_components for c in pool) == 1 or not comparison.splits:
                return _weighed_pool(pool, comparison)
            experts = [*map(Expert.of_candidate, pool), *transformed]
        trials = Trials(table, rows.X, schema, self.selection, seed, self.n_jobs, comparison)
        if not trials.splits:
            return {experts[0]: 1.0}, [{**experts[0].described(), "weight": 1.0}]
        most = _MOST_EXPERTS if by_cells else max(_LEAST_MEMBERS, pool_size(table.n_cells))
        experts = trials.promising(experts)
        if comparison is None and transforms:
            experts = experts + _with_histograms(experts, rows, schema, len(massive))
        trials.run(experts)
        if comparison and transforms and trials.are_misfit(trials.choose(most)):
            more = experts_for(table, later, self.selection) if later else []
            trials.run(more + _with_histograms(experts, rows, schema, 0))
        weighed, chosen = _weighed_by_many_rows(trials, most)
        if by_cells:
            self._column_weights = weighed.column_weights(chosen)
            sizes = self._schema.cardinalities
            # Numbers that are categories to the densities are neither to trees
            is_same = (sizes > 0) == (schema.cardinalities > 0)
            # Trees of many numbers take as long as all else
            is_grown = is_same & ((sizes > 1) | (len(sizes) <= MAX_DENSE_COLUMNS) & (sizes == 0))
            is_grown &= sizes <= MAX_FOREST_STATES
            columns = np.flatnonzero(is_grown).tolist()
            forests = weighed.forests(chosen, self._column_weights, columns)
            if forests is not None:
                self._forests = forests.of_numbers_and_categories(self._states, groups)
                self.forest_weights_ = forests.weights
        return chosen, trials.report(chosen)

    def _checked_families(self):
        if isinstance(self.families, str):
            return _FAMILIES
        unknown = sorted(set(self.families) - set(_FAMILIES), key=str)
        if unknown or not self.families:
            condition = f"be some of {', '.join(map(repr, _FAMILIES))}"
            raise invalid("families", condition, 'Or pass "all".', families=self.families)
        return tuple(self.families)


def _two_numbers(cells, counts):
    """The two numbers of cells (n,) that have no others and several of each; else none."""
    seen = ~np.isnan(cells)
    values, place = np.unique(cells[seen], return_inverse=True)
    n_rows = np.bincount(place, counts[seen], minlength=2)
    is_repeated = n_rows.min() >= 2 and n_rows.sum() >= 2 * ROWS_PER_VALUE
    return values if len(values) == 2 and is_repeated else np.empty(0)


def _as_codes(rows, states):
    """Rows in which the numbers of some columns are codes, by the numbers of each column."""
    if not states:
        return rows
    X = rows.X.copy()
    for j, numbers in states.items():
        X[:, j] = np.where(np.isnan(X[:, j]), np.nan, np.searchsorted(numbers, X[:, j]))
    return replace(rows, X=X)


def _as_categorical(schema, states):
    """Schema in which some numerical columns have their numbers as categories."""
    columns = list(schema.columns)
    for j, numbers in states.items():
        columns[j] = replace(columns[j], categories=numbers, is_integral=False)
    return replace(schema, columns=tuple(columns))


def _in_numbers(circuit, states):
    """Circuit in which codes of some columns are the numbers that they stand for again."""

    def converted(unit):
        if unit.variable not in states:
            return unit
        return unit_over_numbers(unit.variable, states[unit.variable], unit.probabilities)

    return with_other_units(circuit, converted) if states else circuit


def _grouped(rows, schema):
    """Rows and schema of the states that densities give to rare categories, and these states."""
    groups = learn_groups(rows.X, schema.cardinalities, rows.counts)
    return replace(rows, X=grouped_rows(rows.X, groups)), schema.grouped(groups), groups


def _weighed_pool(pool, comparison):
    """Gaussian mixtures that were chosen already as one expert, and the report."""
    total = sum(pool.values())
    report = [
        {**Expert("gaussian_mixture").described(), **row, "weight": row["pool"] / total}
        for row in comparison.report(pool)
    ]
    for row in report:
        if not row["weight"]:
            del row["pool"]  # no number of restarts
    return {Expert.pool(pool, comparison): 1.0}, report


def _weighed_by_many_rows(trials, most):
    """Trials of experts on many rows, and the chosen ones with the weights that these show."""
    # Some gain more than others from more rows
    chosen = trials.choose(most)
    more = trials.on_more_rows()
    if len(chosen) == 1 or more.n_rows <= 2 * trials.n_rows:
        return trials, chosen
    more.run(list(chosen))
    return more, more.choose(most)


def _grouped_columns(rows, schema, histograms=False):
    """Indices of the numerical columns with point masses, and of those with histograms."""
    some = rows.take(np.arange(0, len(rows.X), 1 + len(rows.X) // _ENOUGH_ROWS))
    found = grouped_columns(some.X, some.weight, schema.cardinalities, "frequent", histograms)
    return list(found)


def _with_histograms(experts, rows, schema, n_massive):
    """Those of some experts with histograms, if a column without point masses is worth one."""
    if not any(expert.is_transformed for expert in experts):
        return []
    columns = _grouped_columns(rows, schema, histograms=True)
    return with_histograms(experts, tuple(columns)) if len(columns) > n_massive else []


def is_small(n_rows, n_columns, selection):
    """Whether there is time for other families than Gaussian mixtures."""
    is_narrow = selection == "log_likelihood" or n_columns <= _MAX_SPLIT_COLUMNS
    return is_narrow and n_rows * n_columns <= _MAX_CELLS[selection]


def _suits_trees(table, is_affordable, has_thresholds):
    """Whether other families than Gaussian mixtures are worth their time, as on mixed tables."""
    if not is_affordable or len(table.cardinalities) == 1:
        return False
    if has_thresholds:
        return True
    n_values = [len(np.unique(column[~np.isnan(column)])) for column in table.numbers.T]
    # Columns of one value tell nothing of the others
    return bool((table.category_counts > 1).any()) or any(1 < n <= FEW_VALUES for n in n_values)


def _own_pool(table, comparison):
    """Gaussian mixtures that need no other densities; None if others may help."""
    if not comparison.splits or pool_size(table.n_cells) < _LEAST_POOL:
        return choose_pool(table, CandidateSpace(), comparison)
    if comparison.criterion == "cells" and _is_skewed(table):
        return None  # neither one nor a few Gaussians show what transformed columns gain
    single, is_enough = choose_single(table, CandidateSpace(), comparison)
    return {single: 1} if is_enough else None


def _is_skewed(table):
    """Whether a column is much closer to a normal distribution if it is transformed."""
    sinh_map = table.rough_map
    normal = sinh_map.normal(table.numbers)
    # nats per cell, up to the normalisation by slopes: the gain of a likelihood
    slopes = np.log(np.hypot(1.0, sinh_map.curvatures * (table.numbers - sinh_map.centers)))
    # Columns without any cell are not bent
    bent = sinh_map.curvatures > 0.0
    spreads = [np.nanstd(cells[:, bent], axis=0) for cells in (table.numbers, normal)]
    gains = np.log(spreads[0] / spreads[1]) - np.nanmean(slopes[:, bent], axis=0)
    return bool((gains > _SKEWED).any())


def mixed(circuits, weights):
    """One circuit that mixes some."""
    if len(circuits) == 1:
        return circuits[0]
    return Circuit(Sum([circuit.root for circuit in circuits], weights=weights))
