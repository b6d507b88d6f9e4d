"""Candidate densities: their predictions of held-out cells, and the weights of their average."""

import copy
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning

from skcircuits.circuits import Circuit
from skcircuits.circuits.inputs.johnson import SinhMap
from skcircuits.estimators.automatic._comparison import (
    N_DRAWS,
    PRIOR_CELLS,
    PairTables,
    answers_about_column,
    are_misfit,
    beside_forests,
    prior_of_column,
    stacking_weights,
)
from skcircuits.estimators.chow_liu import HiddenChowLiuDensity
from skcircuits.estimators.gaussian_mixture import GaussianMixtureDensity
from skcircuits.estimators.shared._completion import (
    FOREST_ROWS,
    Forests,
    numbers_with_masses,
    with_new_integers,
)
from skcircuits.estimators.shared._density import MAX_REFINEMENTS, REFINEMENT_TOL
from skcircuits.estimators.shared._fitting import TrainingRows
from skcircuits.estimators.wmispn import WMISPNDensity
from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.learning import fit_parameters
from skcircuits.learning._sum_product import (
    LeafSettings,
    MixedTable,
    Region,
    SplitSettings,
    learn_circuit,
)
from skcircuits.learning.gaussian_mixture._candidates import (
    KERNELS,
    MAX_DENSE_COLUMNS,
    MAX_LOCATION_ROWS,
    TRIAL_TOL,
    Candidate,
    TransformedMixture,
    grouped_columns,
    is_wide,
    try_candidate,
)
from skcircuits.learning.gaussian_mixture._categories import (
    KERNEL_STEPS,
    MAX_KERNEL_CELLS,
    MAX_KERNEL_ROWS,
)
from skcircuits.learning.gaussian_mixture._held_out import (
    Predictions,
    mean_bounds,
    split_table,
)
from skcircuits.learning.gaussian_mixture._learner import EMSettings, MixtureState, go_on
from skcircuits.parallel import Parallel, delayed

_MANY_ROWS = 2000  # from here on more components and states are tried
_LEAST_DEVIATION = 1e-3  # of the number in place of an ordered category
_LEAST_WEIGHT = 0.05  # experts with a smaller weight are dropped
_MOST_ROWS = 10_000  # for the weights of chosen experts
_N_TURNS = 3  # in which all cells of held-out rows are hidden
# Predictions of cells hardly change after so many iterations from a fit to some of the rows, for
# each time that all rows are more, and at least
_MORE, _LEAST_MORE = 2.0, 3
# Of a mixture of many components with separate covariances: rows for each, and how many at least
# and at most
_ROWS_PER_COMPONENT, _MANY_COMPONENTS = 60, (20, 48)
_MAX_KERNEL_PAIRS = 1_200_000  # pairs of rows times categories, where there are no numbers
_N_PASSES = 30  # of latent trees that are chosen: more hardly gain
# Prior mean of the weights of densities and of a forest, trees of all forests, of a trial and to
# keep, and most states times rows
_FOREST_CENTRE, _N_TREES, _MAX_FOREST_CELLS = np.array([0.8, 0.2]), (160, 240), 2_000_000
_FIXED = {
    "gaussian_mixture": {"tol": TRIAL_TOL},
    "latent_tree": {"validation_fraction": None},
    "wmispn": {},
}
_TRIAL = {
    "gaussian_mixture": {"max_iter": 20},
    "latent_tree": {"max_iter": 12},
    "wmispn": {"is_draft": False},
}
# A few iterations, and a structure with the plainest leaves, show which experts get a whole trial:
# at most so many, from such a weight on. Where cells are predicted, these are those that could be
# chosen (71 tables: numbers .998 +- .001, categories 1.000 +- .006 times the error of five from .02
# on).
_SHORT_TRIAL = {**_TRIAL, "gaussian_mixture": {"max_iter": 5}, "wmispn": {"is_draft": True}}
_MOST_TRIALS = {"log_likelihood": (5, 0.02), "cells": (4, _LEAST_WEIGHT)}
_DRAFT_ROWS = 700  # that suffice for a first structure


@dataclass(frozen=True)
class Expert:
    """A density with fixed settings: its family, and parameters that differ from the defaults.

    Gaussian mixtures that were chosen already have their `candidates`; `fits` of these to some of
    the rows, `n_rows` of them, are where fits to all start. `trial`: another density, or a mixture
    over transformed columns, as it was fitted to some of the rows. `columns`: those that have
    histograms; `ordinal`: ordered categories whose codes are numbers to it.
    """

    family: str
    parameters: tuple[tuple[str, object], ...] = ()
    candidates: tuple[tuple[object, int], ...] = ()
    fits: dict = field(default_factory=dict, repr=False, compare=False)
    trial: object = field(default=None, repr=False, compare=False)
    n_rows: int = field(default=0, repr=False, compare=False)
    columns: tuple[int, ...] | None = field(default=None, repr=False, compare=False)
    ordinal: tuple[int, ...] = ()

    @classmethod
    def mixture(cls, covariance_type, n_components, location_model=False, **more):
        """A Gaussian mixture."""
        own = {
            "covariance_type": covariance_type,
            "n_components": n_components,
            "location_model": location_model,
            **more,
        }
        return cls("gaussian_mixture", tuple(own.items()))

    @classmethod
    def tree(cls, n_latent_states, **more):
        """A latent tree."""
        own = {"n_latent_states": n_latent_states, "max_iter": _N_PASSES, **more}
        return cls("latent_tree", tuple(own.items()))

    @classmethod
    def pool(cls, pool, comparison):
        """Gaussian mixtures that were chosen already."""
        own = tuple(pool.items())
        return cls("gaussian_mixture", (), own, comparison.starts, None, comparison.n_rows)

    @classmethod
    def of_candidate(cls, candidate):
        """A Gaussian mixture from the library of the mixture learner."""
        shape = candidate.covariance_type
        factors = {"n_factors": candidate.n_factors} if shape == "factor" else {}
        return cls.mixture(shape, candidate.n_components, candidate.by_cells, **factors)

    @property
    def candidate(self):
        """The candidate of the mixture learner; None if columns are transformed or grouped."""
        return None if self.is_transformed or self.is_grouped else self.shape

    @property
    def shape(self):
        """The candidate over columns as they are, transformed or grouped; None if not fixed."""
        # Tables whose codes are numbers to it are no tables of other candidates: None as well
        own = dict(self.parameters)
        shape, n_components = own.get("covariance_type"), own.get("n_components")
        if shape is None or self.ordinal:
            return None
        if n_components == "rows":
            return KERNELS
        return Candidate(shape, own.get("n_factors", 0), n_components, own["location_model"])

    @property
    def is_transformed(self):
        """Whether columns are transformed."""
        return "transformation" in dict(self.parameters)

    @property
    def is_grouped(self):
        """Whether columns may be grouped."""
        return bool({"point_masses", "histograms"} & dict(self.parameters).keys())

    @property
    def groups_key(self):
        """What the groups of numbers depend on, the same for experts that have them in common."""
        return dict(self.parameters).get("point_masses", False), self.columns

    def groups_of(self, X, weights, cardinalities):
        """Groups of the numbers of rows (n, d) of a Gaussian mixture, by column that has some."""
        if not self.is_grouped:
            return {}
        point_masses = dict(self.parameters).get("point_masses", False)
        return grouped_columns(X, weights, cardinalities, point_masses, self.columns or ())

    @property
    def fit(self):
        """The fit to some of the rows."""
        return self.fits.get(self.candidate, self.trial)

    @property
    def start(self):
        """The fit to some of the rows as a start on others, None without one."""
        if isinstance(self.fit, TransformedMixture):
            # Groups are those of the rows
            return None if self.fit.grouped else self.fit.on_other_rows()
        return go_on(self.fit) if isinstance(self.fit, MixtureState) else None

    def going_on_from(self, fit, n_rows):
        """The same, to start from a fit to some of the rows, `n_rows` of them."""
        if isinstance(fit, MixtureState):
            return replace(self, fits={self.candidate: fit}, n_rows=n_rows)
        return replace(self, trial=fit, n_rows=n_rows)

    def limited(self, limits):
        """Limits of a trial, of those by family: at most the iterations of the density itself."""
        own = limits[self.family]
        most = dict(self.parameters).get("max_iter", np.inf)
        return {**own, "max_iter": min(own["max_iter"], most)} if "max_iter" in own else own

    def going_on(self, n_rows):
        """Limit of the iterations of a fit to all `n_rows` that continues a fit to some of them."""
        is_new = not self.n_rows or bool(self.ordinal) or "max_iter" in dict(self.parameters)
        if is_new or any(times > 1 for _, times in self.candidates):
            return {}
        return {"max_iter": max(_LEAST_MORE, round(_MORE * n_rows / self.n_rows))}

    def make(self, seed, limits=None, n_restarts=1, grouped=None, **more):
        """The density, unfitted, with `more` parameters of mixtures; for a trial, its limits."""
        parameters = {**dict(self.parameters), "random_state": seed}
        if limits:
            parameters |= limits
        elif parameters.get("n_components", 1) not in (1, "rows"):
            parameters["pool"] = n_restarts
        if self.family == "gaussian_mixture":
            density = GaussianMixtureDensity(**{**_FIXED[self.family], **parameters, **more})
            density._given_pool, density._given_fits = dict(self.candidates), self.fits
            density._given_grouped = grouped
            # The weight was learned for the fit from this start; another start may end elsewhere.
            # Point masses are those of all rows in every family, not those of the trial's.
            is_start = isinstance(self.trial, TransformedMixture)
            is_start = is_start and not (self.trial.grouped or grouped)
            density._given_start = self.trial if is_start else None
            return density
        if self.family == "wmispn":
            return WMISPNDensity(**parameters)
        return HiddenChowLiuDensity(**{**_FIXED[self.family], **parameters})

    def described(self):
        """Description for users: parameters with which the density can be fitted alone."""
        described = {"family": self.family, **_FIXED[self.family], **dict(self.parameters)}
        return {**described, "ordered_as_numbers": True} if self.ordinal else described

    def view(self, schema):
        """The schema that the density gets: codes of ordinal columns are numbers."""
        columns = list(schema.columns)
        for j in self.ordinal:
            columns[j] = replace(columns[j], categories=None, is_integral=True, is_ordered=False)
        return replace(schema, columns=tuple(columns))

    def answers_about(self, circuit, schema):
        """What answers about the rows of a schema, by the circuit of the density."""
        if not self.ordinal:
            return circuit
        return OrdinalAnswers(circuit, {j: schema.columns[j].cardinality for j in self.ordinal})


@dataclass(frozen=True, eq=False)
class OrdinalAnswers:
    """Answers of a circuit over the codes of ordered categories as numbers, about the categories.

    A category has the probability of the numbers that round to its code, under a normal
    distribution with the conditional mean and variance: exact for a single Gaussian. Densities of
    codes cannot be mixed with probabilities of categories.

    `cardinalities`: number of categories by column.
    """

    circuit: Circuit
    cardinalities: dict[int, int]

    def _mean_and_marginals(self, X):
        """Conditional means (n, d), and probabilities of categories by column."""
        means, tables = self.circuit._mean_and_marginals(X)
        columns = list(self.cardinalities)
        spreads = np.sqrt(self.circuit.variance(X)[:, columns])
        for j, spread in zip(columns, spreads.T, strict=True):
            inner = np.arange(self.cardinalities[j] - 1) + 0.5
            steps = (inner - means[:, [j]]) / np.maximum(spread, _LEAST_DEVIATION)[:, None]
            tables[j] = np.diff(ndtr(steps), axis=1, prepend=0.0, append=1.0)
        return means, tables

    def log_prob(self, X):
        """Log density of rows, minus infinity where impossible."""
        return self.circuit.log_prob(X)

    def sample(self, n_samples, X, random_state):
        """Completions (n_samples, n, d), in which numbers in place of codes are rounded."""
        drawn = self.circuit.sample(n_samples, X=X, random_state=random_state)
        for j, size in self.cardinalities.items():
            drawn[..., j] = np.clip(np.round(drawn[..., j]), 0, size - 1)
        return drawn


def experts_for(table, families, criterion, n_massive=0, may_transform=True, ordinal=()):
    """Diverse candidate densities that suit the table.

    `n_massive`: number of numerical columns with point masses, which are no densities for any
    family then: the two cannot be compared. `may_transform`: whether columns may be transformed
    even if log densities are compared; units over them have no kernels. On many rows, as many
    components without transformation are tried then, whose queries take no longer. `ordinal`:
    columns of ordered categories.

    Location models and latent trees learn most from few rows. Mixtures of many components with one
    covariance, or of few with separate covariances, and sum-product networks can represent other
    dependences. Transformed columns represent skewed columns and curved relations, with many
    components also how both depend on categories. Mixtures of still more components and a component
    per row are candidates only if cells are predicted, because other queries take long.
    """
    n_states = 16 if len(table.numbers) >= _MANY_ROWS else 8
    has_numbers = table.numbers.shape[1] > n_massive
    point_masses = "frequent" if n_massive else False
    # Trees over bins take longest, and averages of predictions gain nothing from them beside
    # mixtures (83 generated tables: numbers 1.0004, categories .999 times the error without them)
    has_trees = criterion != "cells" or not has_numbers or "gaussian_mixture" not in families
    sizes = [n_states] * has_trees
    if criterion == "cells" and not has_numbers:
        # Categories alone may have many classes, which few states cannot tell apart
        sizes.append(4 * n_states)
    experts = {
        "gaussian_mixture": _mixtures_for(table, criterion, n_massive, may_transform),
        "latent_tree": [Expert.tree(n, point_masses=point_masses) for n in sizes],
        "wmispn": [Expert("wmispn", (("point_masses", point_masses),))],
    }
    if ordinal and criterion == "cells":
        experts["gaussian_mixture"].append(_over_ordinal(table, ordinal))
    return [expert for family in families for expert in experts[family]]


def _over_ordinal(table, ordinal):
    """A single Gaussian for each combination of the other categories, over codes as numbers."""
    # A correlation of two ordinal columns is one number, where a table of categories has many.
    # Several components hardly gain (8 tables of questionnaires: 1.001 times the error).
    n_numbers = table.numbers.shape[1] + len(ordinal)
    if n_numbers > MAX_DENSE_COLUMNS:
        found = Expert.mixture("factor", 1, n_factors=_few_factors(n_numbers))
    else:
        has_others = n_numbers < len(table.cardinalities)
        found = Expert.mixture("tied", 1, has_others and len(table.numbers) <= MAX_LOCATION_ROWS)
    return replace(found, ordinal=tuple(ordinal))


def _few_factors(n_numbers):
    return max(1, min(8, n_numbers // 4))


def _mixtures_for(table, criterion, n_massive, may_transform):
    """Gaussian mixtures with fixed settings, as in `experts_for`."""
    n_rows, n_numbers = table.numbers.shape
    n_numbers -= n_massive
    has_categories = len(table.category_counts) + n_massive > 0
    # More rows can tell more components apart
    factor = 2 if n_rows >= _MANY_ROWS else 1
    masses = {"point_masses": "frequent"} if n_massive else {}
    mixture = partial(Expert.mixture, **masses)
    if not n_numbers:
        found = [mixture("diag", 8 * factor)]
        # Rows themselves know interactions of several columns, and more classes than have rows
        if criterion == "cells" and n_rows * table.codes.size <= _MAX_KERNEL_PAIRS:
            found.append(mixture("tied", "rows", max_iter=KERNEL_STEPS))
        return found
    if n_numbers > MAX_DENSE_COLUMNS and is_wide(table):
        few = _few_factors(n_numbers)
        return [mixture("factor", k, n_factors=few) for k in (1, 8)] + [mixture("diag", 8)]
    found = [mixture("tied", 16 * factor), mixture("shrunk", 8), mixture("full", 2 * factor)]
    if has_categories and n_rows <= MAX_LOCATION_ROWS:
        found += _location_models(mixture, criterion)
    else:
        found.append(mixture("tied", 1))
    if criterion == "cells":
        found.append(mixture("shrunk", 8, transformation="johnson"))
        # Curved relations, and groups with dependences of their own, need one everywhere
        least, most = _MANY_COMPONENTS
        if n_rows >= least * _ROWS_PER_COMPONENT:
            found.append(mixture("shrunk", min(most, n_rows // _ROWS_PER_COMPONENT)))
        if n_rows <= MAX_KERNEL_ROWS and n_rows * n_numbers <= MAX_KERNEL_CELLS:
            found.append(mixture("tied", "rows", max_iter=KERNEL_STEPS))
    elif may_transform:
        found.append(mixture("shrunk", 16 * factor, transformation="johnson"))
        # Transformed columns lose linear relations with little noise, in which many rows show the
        # shapes of skewed columns
        if n_rows >= _MANY_ROWS:
            found.append(mixture("shrunk", 16 * factor))
    return found


def _location_models(mixture, criterion):
    """General location models, of `mixture` with further parameters."""
    own = partial(mixture, "tied", location_model=True)
    if criterion != "cells":
        return [own(k) for k in (1, 4, 8)]
    # Skewed numbers tell categories apart once they are nearly normal
    return [own(1), own(4, transformation="johnson")]


def with_histograms(experts, columns):
    """Those over transformed columns, with histograms of `columns` whose shape is worth it."""
    # They represent uniform columns and those with several peaks, for which Gaussians would need
    # many components more
    return [
        replace(own, parameters=(*own.parameters, ("histograms", True)), columns=columns)
        for own in experts
        if own.is_transformed
    ]


class Trials:
    """Experts fitted to a part of the rows and evaluated on the others.

    `X`: the rows from which `table` was prepared, encoded by `schema`. If log densities are the
    criterion, joint frequencies of categories and numbers are compared, too. `comparison`: a
    comparison of mixtures on the same splits, whose fits are reused.
    """

    def __init__(self, table, X, schema, criterion, seed, n_jobs=None, comparison=None):
        rng = np.random.default_rng(seed)
        # training rows of experts, and held-out rows with the cells that are hidden in each turn
        self.splits = [
            (part, held_out.in_turns(_N_TURNS, rng) if criterion == "cells" else [held_out])
            for part, held_out in split_table(table, rng)
        ]
        if comparison:  # these rows, with what was found out about them
            both = zip(comparison.splits, self.splits, strict=True)
            self.splits = [(part, turns) for (part, _), (_, turns) in both]
        self.X, self.schema, self._table = X, schema, table
        # Prior cells are cells of rows of mean weight
        self._unit = table.weights.sum() / np.count_nonzero(~np.isnan(X).all(axis=1))
        self.criterion, self.seed, self.n_jobs = criterion, seed, n_jobs
        pairs = PairTables(X, schema.cardinalities)
        self._pairs = pairs if pairs.n_pairs and criterion == "log_likelihood" else None
        self._known = comparison.fits if comparison else {}
        # Trials of each expert on the splits so far, and the experts that had the whole trial
        self._trials, self._tried = {}, []
        self._groups = {}  # groups of the numbers of the rows of a split, as experts have them

    def on_more_rows(self):
        """The same held-out rows, for experts fitted to as many others as there is time for."""
        more = copy.copy(self)
        more.splits, more._known, more._trials, more._tried, more._groups = [], {}, {}, [], {}
        for _, turns in self.splits:
            others = np.flatnonzero(~np.isin(self._table.source, turns[0].table.source))
            more.splits.append((self._table.take(others[:: 1 + len(others) // _MOST_ROWS]), turns))
        return more

    @property
    def n_rows(self):
        """Number of rows to which experts are fitted."""
        return len(self.splits[-1][0].weights)

    def promising(self, experts):
        """The experts that a few iterations on the rows of the first split show to be worth more.

        Weights of their average also tell which complement one another.
        """
        most, least = _MOST_TRIALS[self.criterion]
        if len(experts) <= most:
            return experts
        self._run_within(_SHORT_TRIAL, experts, self.splits[:1])
        weights = self.weights(experts)
        kept = _largest(experts, weights, most, least)
        return [experts[i] for i in sorted(kept)]

    def run(self, experts):
        """Try some experts on all splits."""
        limits = _TRIAL
        if self.criterion == "cells" and self.n_rows <= _DRAFT_ROWS:
            # Predictions of cells hardly depend on the shapes of leaves
            limits = {**limits, "wmispn": _SHORT_TRIAL["wmispn"]}
        self._run_within(limits, experts, self.splits)
        self._tried += experts

    def _run_within(self, limits, experts, splits):
        """Try some experts within limits; a trial within closer ones goes on."""
        tasks = [
            (expert, *split, known, own, self._groups_of(expert, i))
            for expert in experts
            for own in [expert.limited(limits)]
            for i, (split, known) in enumerate(zip(splits, self._begun(expert, own), strict=False))
        ]
        # One call for all experts and splits: workers stay busy until the last trial
        trials = iter(
            Parallel(n_jobs=self.n_jobs)(
                delayed(_try)(*task, self.X, self.schema, self.criterion, self.seed, self._pairs)
                for task in tasks
            )
        )
        for expert in experts:
            self._trials[expert] = [next(trials) for _ in splits]

    def _groups_of(self, expert, i):
        """Groups of the numbers of the rows of a split, which several experts have in common."""
        if expert.shape is None:
            return {}
        key = i, expert.groups_key
        if key not in self._groups:
            part = self.splits[i][0]
            rows = self.X[part.source], part.weights, part.cardinalities
            self._groups[key] = expert.groups_of(*rows)
        return self._groups[key]

    def _begun(self, expert, limits):
        """What is known of the trial of an expert on each split: a trial, a fit or None."""
        begun = list(self._known.get(expert.candidate, [expert.start] * len(self.splits)))
        for i, trial in enumerate(self._trials.get(expert, [])):
            begun[i] = trial if trial.limits == limits else trial.fit
        return begun

    def weights(self, experts):
        """Weights (K,) of some experts that minimise the loss of their average."""
        # The prior is reduced in proportion to the experts that are left out
        parts = [answers for _, answers in self._answers(experts)]
        if self._pairs:
            for i, (_, turns) in enumerate(self._splits_of(experts)):
                tables = [self._trials[expert][i].pairs for expert in experts]
                parts.append(self._pairs.answers(self._rows(turns), tables))
        return stacking_weights(parts, PRIOR_CELLS * len(experts) / len(self._trials))

    def column_weights(self, weights):
        """Weights (K, d) of some experts for each column, with the common weights as prior mean."""
        # The best expert for one column is rarely the best for all columns
        centre = np.array(list(weights.values()))
        found = np.repeat(centre[:, None], self.X.shape[1], axis=1)
        # A single expert has nothing to weigh
        if len(centre) == 1:
            return found
        asked = list(self._answers(list(weights)))
        maps = self._sinh_maps()
        for j in range(self.X.shape[1]):
            own = answers_about_column(asked, j, centre, maps)
            found[:, j] = stacking_weights([own], prior_of_column(j, maps), centre)
        return found

    def forests(self, chosen, column_weights, columns):
        """Forests of columns whose answers they improve, with their weights; None without any.

        `chosen`: experts beside them, with `column_weights` (K, d).
        """
        sizes = {j: self.schema.columns[j].cardinality for j in columns}
        n_answers = sum(max(1, size) for size in sizes.values())
        if not columns or n_answers * len(self._table.weights) > _MAX_FOREST_CELLS:
            return None
        experts, asked, grown = list(chosen), [], set()
        answered, (n_trees, n_kept) = self._answers(experts), _N_TREES
        for i, (part, turns) in enumerate(self._splits_of(experts)):
            complete = partial(self._completed, experts, i, column_weights)
            rows, completed = self._rows_of_forests(part, turns, complete)
            forests = Forests.grow(completed, rows, sizes, n_trees, self.seed)
            grown |= forests.trees.keys()
            for turn, answers in islice(answered, len(turns)):
                beside = beside_forests(turn, answers, column_weights, forests, complete(turn))
                asked.append((turn, beside))
        maps, weights = self._sinh_maps(), {}
        for kind in filter(None, (grown - maps.keys(), grown & maps.keys())):
            parts = {j: answers_about_column(asked, j, _FOREST_CENTRE, maps) for j in sorted(kind)}
            # What all categories, or all numbers, show of forests is the prior mean of each
            centre = stacking_weights(parts.values(), centre=_FOREST_CENTRE)
            for j, own in parts.items():
                found = stacking_weights([own], prior_of_column(j, maps), centre)
                weights[j] = 0.0 if j in maps and own.blurs(found) else float(found[1])
        weights = {j: weight for j, weight in weights.items() if weight >= _LEAST_WEIGHT}
        if not weights:
            return None
        try:
            # Experts of the last split complete all rows: those of all rows are not fitted yet
            rows, completed = self._rows_of_forests(self._table, turns, complete)
        except ZeroProbabilityError:  # without an answer, rows cannot be completed
            return None
        sizes = {j: sizes[j] for j in weights}
        return replace(Forests.grow(completed, rows, sizes, n_kept, self.seed), weights=weights)

    def _rows_of_forests(self, table, turns, complete):
        """Some rows of a table, and the same completed by experts of a split."""
        some = table.take(np.arange(0, len(table.weights), -(-len(table.weights) // FOREST_ROWS)))
        return TrainingRows(self.X[some.source], some.weights), complete(turns[0].of(some))

    def _completed(self, experts, i, column_weights, held_out):
        """Rows (n, d), completed without hidden cells by experts of a split."""
        table, bounds = held_out.table, mean_bounds(self.splits[i][0].numbers)
        answers = []
        for expert in experts:
            fit = self._trials[expert][i].fit
            if expert.shape:
                answers.append(held_out.answer_cells(*_state_on(fit, table, self.X), bounds))
            else:
                circuit = expert.answers_about(fit.circuit_, self.schema)
                answers.append(held_out.answer_cells_by(circuit, self.X, bounds))
        means, tables = zip(*answers, strict=True)
        is_number = table.cardinalities == 0
        average = np.einsum("kc,knc->nc", column_weights[:, is_number], means)
        completed = np.empty((len(table.weights), len(is_number)))
        completed[:, is_number] = table.location + table.scale * average
        columns = zip(np.flatnonzero(~is_number).tolist(), zip(*tables, strict=True), strict=True)
        for j, each in columns:
            completed[:, j] = np.tensordot(column_weights[:, j], each, 1).argmax(axis=1)
        return np.where(held_out.is_missing, completed, self.X[table.source])

    def _sinh_maps(self):
        """Maps that make numbers nearly normal, by column."""
        whole = self._table.rough_map
        numerical = np.flatnonzero(self._table.cardinalities == 0).tolist()
        return {
            j: SinhMap(whole.centers[[i]], whole.curvatures[[i]]) for i, j in enumerate(numerical)
        }

    def _answers(self, experts):
        """Each turn of held-out rows, with the answers of some experts to its hidden cells."""
        for i, (_, turns) in enumerate(self._splits_of(experts)):
            for k, turn in enumerate(turns):
                predictions = [self._trials[expert][i].predictions[k] for expert in experts]
                answers = turn.answers(predictions, self.criterion)
                numbers, logs = (
                    own / self._unit for own in (answers.number_weights, answers.log_weights)
                )
                yield turn, answers._replace(number_weights=numbers, log_weights=logs)

    def _splits_of(self, experts):
        """The splits on which all of some experts were tried."""
        return self.splits[: min(len(self._trials[expert]) for expert in experts)]

    def choose(self, most):
        """The experts of largest weight, at most `most`, with their weights."""
        experts = self._tried
        weights = self.weights(experts)
        kept = [experts[i] for i in _largest(experts, weights, most, _LEAST_WEIGHT)]
        tried = [e.going_on_from(self._trials[e][-1].fit, self.n_rows) for e in kept]
        return dict(zip(tried, self.weights(kept).tolist(), strict=True))

    def are_misfit(self, chosen):
        """Whether a column is distributed in another way under the mixture of chosen experts."""
        fits = [(expert.fit, weight) for expert, weight in chosen.items()]
        return are_misfit(fits, self._table, self.X, self.n_rows)

    def report(self, chosen):
        """One row per expert, the chosen ones first, then by loss."""
        rows = [
            {**expert.described(), "weight": chosen.get(expert, 0.0), **self._scores(trials)}
            for expert, trials in self._trials.items()
        ]
        return sorted(rows, key=lambda row: (-row["weight"], row["loss"]))

    def _scores(self, trials):
        """Loss, and the largest misfit of pairs, of one expert."""
        # Short trials are of the first split only
        pairs = list(zip(trials, [turns for _, turns in self.splits], strict=False))
        losses = np.concatenate([self._losses(own, turns) for own, turns in pairs])
        scores = {
            "loss": float(losses.mean()),
            "standard_error": float(losses.std() / np.sqrt(len(losses))),
        }
        if self._pairs:
            scores["misfit"] = max(
                self._pairs.largest_misfit(self._rows(turns), own.pairs) for own, turns in pairs
            )
        return scores

    def _losses(self, trial, turns):
        """Mean loss of each row over the turns."""
        asked = zip(turns, trial.predictions, strict=True)
        return np.mean([turn.losses([own], self.criterion) for turn, own in asked], axis=0)

    def _rows(self, turns):
        return self.X[turns[0].table.source]


def _largest(experts, weights, most, least):
    """Indices of up to `most` experts of weights (K,) from `least`; one knows the categories."""
    # Its circuit answers queries
    order = np.argsort(-weights, kind="stable").tolist()
    kept = [i for i in order[:most] if weights[i] >= min(least, weights.max())]
    if all(experts[i].ordinal for i in kept):
        kept.append(next(i for i in order if not experts[i].ordinal))
    return kept


class _Trial(NamedTuple):
    """Predictions of held-out rows in each turn by an expert, and what else is known of it."""

    predictions: list[Predictions]
    pairs: list[np.ndarray] | None  # probabilities of the cells of pairs
    fit: object
    limits: dict


def _try(expert, part, turns, known, limits, grouped, X, schema, criterion, seed, pairs):
    """Fit an expert to some rows within limits, and predict others.

    `known`: the trial, or a fit of a mixture after some of the iterations; or None. `grouped`:
    columns of the rows that are grouped in a mixture. `pairs`: tables of pairs whose probabilities
    are compared, None if there are none.
    """
    if isinstance(known, _Trial):
        return known
    if expert.shape:
        return _try_mixture(expert, part, turns, known, limits, grouped, X, criterion, seed, pairs)
    if expert.family == "wmispn":
        fit = _try_sum_product(expert, part, known, limits["is_draft"], X, schema, criterion, seed)
    else:
        fit = expert.make(seed, limits)
        with warnings.catch_warnings():
            # a few iterations suffice to compare experts
            warnings.simplefilter("ignore", ConvergenceWarning)
            # States are those of all rows
            fit._fit_encoded(X[part.source], expert.view(schema), part.weights, groups={})
    circuit, bounds = expert.answers_about(fit.circuit_, schema), mean_bounds(part.numbers)
    tables = None
    if pairs:
        tables = pairs.probabilities(circuit.sample(N_DRAWS, random_state=seed))
    predictions = [turn.predict_by(circuit, X, criterion, bounds) for turn in turns]
    return _Trial(predictions, tables, fit, limits)


class _SumProductFit(NamedTuple):
    """A sum-product network, and its structure if that is one of all rows of the trial."""

    circuit_: Circuit
    structure: Region | None


def refinement_tol(criterion):
    """Gain of a refinement of a sum-product network, in nats per row, below which it ends."""
    return TRIAL_TOL if criterion == "cells" else REFINEMENT_TOL


def _try_sum_product(expert, part, known, is_draft, X, schema, criterion, seed):
    """Learn a structure, unless `known` from a draft, then its leaves, the plainest in a draft."""
    every = -(-len(part.weights) // _DRAFT_ROWS) if is_draft else 1
    some = slice(None, None, every)
    rows = TrainingRows.of(X[part.source[some]], part.weights[some])
    masses = dict(expert.parameters)["point_masses"]
    table = MixedTable.describe(rows.X, rows.weight, schema.cardinalities, masses)
    leaves = LeafSettings()
    structure, circuit = learn_circuit(
        table,
        SplitSettings.for_table(table),
        leaves.without_degrees() if is_draft else leaves,
        np.random.default_rng(seed),
        known.structure if isinstance(known, _SumProductFit) else None,
    )
    if rows.has_missing and not is_draft:
        limits = {"max_iter": MAX_REFINEMENTS, "tol": refinement_tol(criterion)}
        circuit = fit_parameters(circuit, rows.X, rows.weight, **limits)
    integers = numbers_with_masses(circuit, rows.X, ~schema.is_integral)
    circuit, _ = with_new_integers(circuit, rows, integers)
    return _SumProductFit(circuit, structure if every == 1 else None)


def _try_mixture(expert, part, turns, known, limits, grouped, X, criterion, seed, pairs):
    """Try a mixture without the circuit that it would be, which takes longer than iterations."""
    settings, limits_and_start = (expert.shape, EMSettings(), seed), {**limits, "begun": known}
    if expert.is_transformed or expert.is_grouped:
        columns = expert.is_transformed, grouped
        fit = TransformedMixture.learn(part, X, *settings, *columns, **limits_and_start)
    else:
        fit = try_candidate(part, *settings, **limits_and_start)
    # All turns are of the same rows
    state, mapped = _state_on(fit, turns[0].table, X)
    if criterion == "cells":
        bounds = mean_bounds(part.numbers)
        predictions = [turn.predict_cells(state, bounds, mapped) for turn in turns]
    else:
        predictions = [turn.predict(state, criterion, mapped) for turn in turns]
    tables = pairs.probabilities_by(fit, part) if pairs else None
    return _Trial(predictions, tables, fit, limits)


def _state_on(fit, table, X):
    """The mixture of a trial, and the rows of a table in its columns if these are its own."""
    if isinstance(fit, TransformedMixture):
        return fit.state_over_cells, fit.mapped(table, X)
    return fit, None
