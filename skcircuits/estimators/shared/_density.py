"""Base classes of densities: scoring, sampling, information criteria and probabilities.

Discrete densities are circuits over the states of columns; results are in original units.
"""

import dataclasses
from abc import ABCMeta, abstractmethod
from dataclasses import replace
from html import escape
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin, clone
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils.metaestimators import available_if

from skcircuits.circuits import Categorical, Circuit, Indicator, PiecewisePolynomial, Sum
from skcircuits.circuits.inputs.discrete import DiscreteUnit
from skcircuits.circuits.inputs.gaussian import MultivariateGaussianLayer
from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import (
    PiecewisePolynomialLayer,
    linked_histogram,
)
from skcircuits.circuits.inputs.restriction import restrict
from skcircuits.circuits.queries._boxes import Evidence, RestrictedCircuit, log_box_probability
from skcircuits.circuits.structure.units import rebuild
from skcircuits.estimators._base import (
    TableMixin,
    check_is_fitted,
    check_weights,
    fit_context,
    make_generator,
)
from skcircuits.estimators.shared._completion import (
    NewStates,
    completed_or_marginal,
    numbers_with_masses,
    with_new_integers,
)
from skcircuits.estimators.shared._fitting import TrainingRows, drive
from skcircuits.estimators.shared.queries._mixin import ConditionalDensity, QueriesMixin
from skcircuits.estimators.shared.queries._restricted_models import as_box, restricted_to_totals
from skcircuits.exceptions import CircuitPropertyError, invalid
from skcircuits.learning import expectation_maximization
from skcircuits.learning._columns import frequent_values
from skcircuits.numerics._arrays import float_array
from skcircuits.stein._targets import is_continuous, state_counts
from skcircuits.tabular import Discretizer
from skcircuits.tabular._schema import learn_groups
from skcircuits.trees._trees import StateLayout

# More columns and categories than these are counted, not listed.
MAX_COLUMNS, MAX_CATEGORIES = 30, 5
# Steps of expectation maximisation that make up for missing cells
MAX_REFINEMENTS = 50
REFINEMENT_TOL = 1e-4
# Rows that estimate the log likelihood, so that it takes little time compared with the fit
MAX_SCORED_ROWS = 1000
# Integers up to this are the states of a categorical unit themselves, even if most do not occur
_MAX_STATES = 1024


def fitted_html(density):
    """Describe the model in words, and by a table of its columns with their types."""
    columns = density._schema.columns
    rows = [f"<tr><td>{escape(c.text_name)}</td><td>{escape(_type(c))}</td></tr>" for c in columns]
    if len(rows) > MAX_COLUMNS:
        rows[MAX_COLUMNS:] = [f"<tr><td>...</td><td>{len(columns)} columns</td></tr>"]
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in _facts(density))
    return (
        f"<details open><summary>Fitted to {len(columns)} columns</summary><ul>{facts}</ul>"
        f"<table><thead><tr><th>column</th><th>type</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></details>"
    )


def _type(column):
    """Type of a column, in the words of the guide."""
    if column.has_dates:
        return "date"
    if column.categories is None:
        return "integer" if column.is_integral else "number"
    kind = "ordered category" if column.is_ordered else "category"
    shown = ", ".join(map(str, column.categories[:MAX_CATEGORIES].tolist()))
    more = "" if len(column.categories) <= MAX_CATEGORIES else ", ..."
    return f"{kind} of {len(column.categories)}: {shown}{more}"


def _facts(density):
    """Sizes of the model, and the log-likelihood that its fit reached."""
    circuit = getattr(density, "circuit_", None)
    if hasattr(density, "weights_"):
        yield _counted(len(density.weights_), "component")
    elif hasattr(density, "n_components") and circuit is not None:
        # A single component is not a sum
        root = circuit.root
        yield _counted(len(root.children) if isinstance(root, Sum) else 1, "component")
    if circuit is not None:
        yield f"{_counted(circuit.n_units, 'unit')}, {_counted(circuit.n_parameters, 'parameter')}"
    for name in ("lower_bound_", "log_likelihood_"):
        if hasattr(density, name):
            yield f"log-likelihood of the training rows: {getattr(density, name):.4g} nats per row"
    if len(getattr(density, "validation_scores_", ())):
        best = max(density.validation_scores_)
        yield f"log-likelihood of held-out rows: {best:.4g} nats per row"


def _counted(number, word):
    return f"{number} {word}" + "s" * (number != 1)


class _NoStatesError(CircuitPropertyError, AttributeError):
    """The error of an attribute that only densities of discrete columns have."""


class BaseDensity(
    QueriesMixin, CallbackSupportMixin, TableMixin, DensityMixin, BaseEstimator, metaclass=ABCMeta
):
    """Base class of densities on mixed tables with missing values.

    A subclass defines its parameters, ``_parameter_constraints`` and the following hooks, whose
    arguments are float arrays (numbers and codes of categories, NaN for missing cells):

    ``_fit_rows(rows, generator)``
        Learn from `TrainingRows`, which include validation rows if the density uses them.
    ``_log_density(X)``
        Log density of rows, shape (n,), with missing cells marginalised.
    ``_draw(n_samples, X, generator)``
        Draws of shape (n_samples, d) if X is None, otherwise completions of its rows, of shape
        (n_samples, n, d).
    ``_log_evidence(boxes, observed)``
        Log probability of each box together with the observed cells, shape (n_boxes,); see
        `skcircuits.tabular.Boxes`.
    ``_restricted(boxes, observed)``
        The model restricted to each box, a `RestrictedCircuit`.
    ``_n_parameters()``
        Number of free parameters.
    ``_target()``
        The fitted model over encoded rows for Stein methods, with ``log_prob_unnormalized`` and
        ``cardinalities``.

    Parameters
    ----------
    random_state : int, RandomState or None, default=None
        Source of randomness.
    verbose : int, default=0
        Print progress.
    """

    _is_draw = False
    _integers: ClassVar[dict] = {}  # by column whose integers are states, with those in between
    _counts_rows = False  # rows are held out, or learned in blocks: integer weights are rows, too
    # Where answers are averaged: least and largest means (K, d) by each, and weights (K, d)
    _mean_bounds = None
    _column_weights = None
    _forests = None  # that predict categories of rows completed by the densities
    _model = "circuit_"  # the attribute of the result; the others describe the table

    def __sklearn_is_fitted__(self):
        return hasattr(self, self._model)

    def _html_repr(self):
        """Show the parameters in notebooks and, once fitted, the columns and the model."""
        fitted = fitted_html(self) if self.__sklearn_is_fitted__() else ""
        return estimator_html_repr(self) + fitted

    @fit_context
    def fit(self, X, y=None, sample_weight=None):
        """Fit the density.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Training rows; cells may be missing.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. None gives equal weights. A row of weight two counts as that row
            twice if all weights are integers; rows of weight zero, or of less than 2e-16
            times the largest weight, are ignored, except that their categories are known.

        Returns
        -------
        object
            The fitted estimator.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` iterations do not suffice, or if Ctrl-C ends the fit, which then keeps the
            best parameters so far. A fit that consists of fits of other densities keeps nothing: it
            raises KeyboardInterrupt.
        UserWarning
            If most rows have a category of their own in some column.
        """
        return self._fit(X, sample_weight)

    @fit_context
    def _fit_encoded(self, X, schema, sample_weight=None, validation=None, groups=None):
        """Fit on rows that another estimator has read by its own schema."""
        # `groups`: states that rare categories share, {} if rows hold these states, learned by
        # default
        self.n_features_in_ = len(schema.columns)
        if all(isinstance(name, str) for name in schema.names):
            self.feature_names_in_ = np.array(schema.names, dtype=object)
        self._set_schema(schema)
        return self._learn_rows(X, sample_weight, validation, groups)

    def _fit(self, X, sample_weight, X_val=None):
        """Read the tables that users pass, then learn from their rows."""
        X = self._learn_table(X)
        validation = None if X_val is None else self._encode_table(X_val)
        return self._learn_rows(X, check_weights(sample_weight, X), validation)

    def _learn_rows(self, X, sample_weight, validation=None, groups=None):
        check_observed(X, sample_weight)
        generator = make_generator(getattr(self, "random_state", None))
        rows = self._training_rows(X, sample_weight)
        self._integers = {}
        self._prepare_rows(rows, groups)
        self._expect_new_states(rows)
        viewed = self._add_validation(self._view_rows(rows), validation, generator)
        self._fit_rows(viewed, generator)
        self._add_new_integers(rows)
        # Some densities learn only now which numbers are states
        self._expect_new_states(rows)
        return self

    def _training_rows(self, X, sample_weight):
        rows = TrainingRows.of(X, sample_weight)
        return rows.as_observations(~self._schema.is_categorical) if self._counts_rows else rows

    def _expect_new_states(self, rows):
        """Learn how probable new states are, from rows as they came: states may join some."""
        numbers = self._numbers_as_states(rows) | self._integers
        self._new_states = NewStates.learn(rows, self._schema.is_categorical, numbers)

    def _numbers_as_states(self, rows):
        """Numbers that are states, by numerical column that has no other numbers in the rows."""
        return {}

    def _add_new_integers(self, rows):
        """Give integers between those of the rows, which are states, a probability."""

    def _prepare_rows(self, rows, groups=None):
        """Learn how this density sees the cells of a table: rare categories as one state."""
        if groups is None:
            groups = learn_groups(rows.X, self._schema.cardinalities, rows.counts)
        self._category_groups = groups

    def _view_rows(self, rows):
        """Give rows as this density sees them."""
        return rows

    def _add_validation(self, rows, validation, generator):
        """Attach the validation rows that were given; densities may hold out some."""
        if validation is None:
            return rows
        return replace(rows, validation=self._view_rows(TrainingRows.of(validation, None)))

    def _known(self, X):
        """Encoded rows in which cells that this density does not know are missing."""
        return self._new_states.known(X)

    def _evidence(self, X):
        """Encoded rows, in which cells that are no evidence about others are missing."""
        return self._known(X)

    def _experts(self):
        """Circuits whose answers about missing cells are averaged, with their weights."""
        return [(1.0, self.circuit_)]

    def _clone_for_draw(self):
        """Clone a fitted density to learn one draw of its parameters, under random weights."""
        # Where a choice was made in fit, the clone keeps it; its prior weighs little
        cloned = clone(self)
        cloned._is_draw = True
        return cloned

    def score_samples(self, X):
        """Compute the log density of each row.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows. Missing cells are marginalised, so that a row without any observed cell has log
            density 0.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log density; ``-inf`` if the row is impossible.

        Notes
        -----
        With ``handle_unknown="missing"``, a category that did not occur in `fit` is ignored for the
        other cells of its row, but its own probability enters the score. It is the probability that
        the next row contains a new category of its column, (s + 1/2) / (n + 1), where s of the n
        observed cells were the only ones with their category (Good, 1953, "The Population
        Frequencies of Species and the Estimation of Population Parameters"). The probabilities of
        known categories are conditional on the category being known. The same holds for new
        numbers if all numbers of a column are states or point masses: this probability is divided
        among them, a third each between the least and the greatest known number and beyond either.
        Circuits hold the new integers between known ones as states, whose probabilities are part of
        the sum of one.
        """
        check_is_fitted(self)
        table = self._schema.read(self._check_table(X, reset=False))
        encoded = self._encode_checked(table)
        # Cells of new categories have no code
        has_gaps = np.isnan(encoded[:, self.is_categorical_]).any()
        unseen = self._schema.unseen_categories(table) if has_gaps else {}
        del table
        log_density = self._log_density(encoded)
        known = self._known(encoded)
        if known is not encoded:
            is_new = np.isnan(known) & ~np.isnan(encoded)
            log_density += self._new_states.log_prob(encoded, is_new)
        for column, (rows, _) in unseen.items():
            log_density[rows] += self._new_states.log_masses[column]
        return log_density

    def log_prob_unnormalized(self, X):
        """Compute the log density of each row, for Stein methods.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Encoded rows, with categories given by their codes in ``categories_``. A number that is
            not a state of its column has probability zero here, whereas `score_samples` gives it
            that of new states.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log density; ``-inf`` if the row is impossible.
        """
        check_is_fitted(self)
        return self._target().log_prob_unnormalized(float_array(X, "X"))

    @property
    def cardinalities(self):
        """Number of states of each column, shape (n_features,), for Stein methods.

        Stein methods change the states of a column within 0, 1, ..., k - 1.

        Raises
        ------
        CircuitPropertyError
            If a column has no such states. It is also an AttributeError, because a density of
            numerical columns does not have this attribute.
        """
        check_is_fitted(self)
        try:
            return state_counts(self._target(), self.n_features_in_)
        except CircuitPropertyError as error:
            raise _NoStatesError(str(error)) from error

    def bic(self, X):
        """Compute the Bayesian information criterion on given rows; lower is better.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        float
            ``-2 log-likelihood + n_parameters * log(n_samples)``.
        """
        log_density = self.score_samples(X)
        return float(-2 * log_density.sum() + self._n_parameters() * np.log(len(log_density)))

    def aic(self, X):
        """Compute the Akaike information criterion on given rows; lower is better.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        float
            ``-2 log-likelihood + 2 * n_parameters``.
        """
        return float(-2 * self.score_samples(X).sum() + 2 * self._n_parameters())

    @abstractmethod
    def _fit_rows(self, rows, generator):
        """Learn from training rows."""

    @abstractmethod
    def _log_density(self, X):
        """Log density of encoded rows, shape (n,)."""

    @abstractmethod
    def _draw(self, n_samples, X, generator):
        """Draw encoded rows, or complete those of X."""

    def _make_conditional(self, weighed, columns):
        return ConditionalDensity(self, weighed, columns)

    @abstractmethod
    def _n_parameters(self):
        """Count the free parameters."""

    @abstractmethod
    def _target(self):
        """Give the fitted model over encoded rows."""


class CircuitDensity(BaseDensity):
    """Base class of densities whose ``_fit_rows`` sets ``circuit_``.

    The circuit is over original units, with categories given by their codes in ``categories_[j]``.
    """

    _n_given = 0  # parameters of input units that were not learned
    _refinement_tol = REFINEMENT_TOL

    @available_if(lambda density: is_continuous(density.circuit_))
    def grad_log_prob(self, X):
        """Compute the gradient of the log density, for Stein methods of continuous targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of numbers; missing cells are marginalised.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Derivatives with respect to the observed cells, NaN for missing cells.

        Raises
        ------
        CircuitPropertyError
            If the density of a column is not a mixture of Gaussians.
        """
        return self.circuit_.grad_log_prob(X)

    def _refine(self, steps, X, context, in_original_units=lambda circuit: circuit):
        """Learn the parameters again where cells are missing: their flows are expectations."""
        # A structure learned from the observed cells alone takes it for chance which these are
        result = drive(
            self,
            steps,
            max_iter=MAX_REFINEMENTS,
            score=lambda step: step.log_density,
            tol=self._refinement_tol,
            # Expectation maximisation never decreases the likelihood: one small gain is the end
            n_iter_no_change=1,
            attributes=lambda step: {"circuit_": in_original_units(step.circuit)},
            X=X,
            context=context,
        )
        return result.state.circuit

    def _mean_log_likelihood(self, rows):
        """Mean log likelihood of training rows, of a thousand where there are more."""
        scored = rows.evenly_spaced(MAX_SCORED_ROWS)
        return float(np.average(self._log_density(scored.X), weights=scored.weight))

    def _numbers_as_states(self, rows):
        if not hasattr(self, "circuit_"):
            return super()._numbers_as_states(rows)
        return numbers_with_masses(self.circuit_, rows.X, self._schema.is_categorical)

    def _add_new_integers(self, rows):
        known = self._known_integers(rows)
        circuit, self._integers = with_new_integers(self.circuit_, rows, known)
        # Counting parameters would compile the circuit
        is_same = circuit is self.circuit_
        self._n_given = 0 if is_same else circuit.n_parameters - self.circuit_.n_parameters
        self.circuit_ = circuit

    def _known_integers(self, rows):
        """Integers that have probabilities, by column that has no other numbers."""
        return numbers_with_masses(self.circuit_, rows.X, ~self._schema.is_integral)

    def _log_density(self, X):
        return self.circuit_.log_prob(self._known(X))

    def _draw(self, n_samples, X, generator):
        if X is None:
            return self.circuit_.sample(n_samples, random_state=generator)

        def complete(rows):
            return self.circuit_.sample(n_samples, X=rows, random_state=generator)

        known = self._known(X)
        drawn = completed_or_marginal(complete, known, self.circuit_)
        return drawn if known is X else np.where(np.isnan(X), drawn, X)

    def _log_evidence(self, boxes, observed):
        if np.isnan(observed).all() and not boxes.totals:
            return log_box_probability(self.circuit_.plan, as_box(boxes))
        return self._restricted(boxes, observed).log_mass()

    def _restricted(self, boxes, observed):
        plan = self.circuit_.plan
        if boxes.totals:
            return restricted_to_totals(plan, boxes, observed, self._schema)
        return RestrictedCircuit(plan, Evidence(observed, as_box(boxes), integers=self._integral))

    @property
    def _integral(self):
        """Integer columns in which best rows are found among integers; none of joint units."""
        # Rows between the modes of several joint units are better
        plan = self.circuit_.plan
        joint = [
            layer.scopes.ravel()
            for _, layer in plan.inputs
            if layer.scopes.shape[1] > 1 and plan.layers
        ]
        others = np.concatenate([list(plan.cardinalities), *joint])
        return np.setdiff1d(np.flatnonzero(self._schema.is_integral), others)

    def _is_gaussian(self):
        layers = [layer for _, layer in self.circuit_.plan.inputs]
        return (
            len(layers) == 1
            and isinstance(layers[0], MultivariateGaussianLayer)
            and len(layers[0]) == 1
        )

    def _n_parameters(self):
        # Equal parts of a state are no parameters
        return (
            self.circuit_.n_parameters
            - self._n_given
            - sum(
                unit.n_free_parameters
                - self._category_groups[unit.variable].n_free_parameters(unit.possible_states())
                for unit in self.circuit_.plan.units
                if isinstance(unit, DiscreteUnit) and unit.variable in self._category_groups
            )
        )

    def _target(self):
        return self.circuit_

    def _with_categories(self, circuit):
        """Divide the states of grouped columns into their categories, in a circuit over states."""
        if not self._category_groups:
            return circuit
        return with_other_units(circuit, self._split_unit)

    def _split_unit(self, unit):
        groups = self._category_groups.get(unit.scope[0])
        if groups is None:
            return unit
        return discrete_unit(unit.variable, groups.spread(unit.probabilities))


def discrete_unit(column, masses):
    """Input unit of a column of codes with these masses."""
    if masses.max() == 1.0:
        return Indicator(column, int(masses.argmax()), len(masses))
    return Categorical(column, masses)


def unit_over_numbers(column, values, probabilities):
    """Input unit of a column whose only numbers, increasing, have these probabilities."""
    most = max(_MAX_STATES, len(values))
    is_code = (values == np.floor(values)) & (values >= 0) & (values < most)
    if not is_code.all():
        # Any other numbers are points with a mass of their own; no piece has any.
        ends = [values[0], values[0] + max(1.0, abs(values[0]))]
        return PiecewisePolynomial(column, ends, [0.0], values, probabilities)
    masses = np.zeros(int(values[-1]) + 1)
    masses[values.astype(np.int64)] = probabilities
    return discrete_unit(column, masses)


def with_other_units(circuit, convert):
    """Replace the discrete input units of a circuit by those that `convert` gives."""
    # Units of equal probabilities are shared, as they were before
    shared = _shared_inputs(lambda column, probabilities, leaf: convert(leaf))

    def converted(leaf):
        is_over_states = isinstance(leaf, DiscreteUnit)
        return shared(leaf.variable, leaf.probabilities, leaf) if is_over_states else leaf

    return Circuit(rebuild(circuit.root, converted))


def _shared_inputs(make_input):
    """Make one input unit for equal probabilities of a column by ``make_input(column, ...)``."""
    made = {}

    def shared(column, probabilities, *others):
        key = column, probabilities.tobytes()
        if key not in made:
            made[key] = make_input(column, probabilities, *others)
        return made[key]

    return shared


def check_observed(X, sample_weight=None):
    """Raise an error if no encoded row (n, d) of positive weight has an observed cell."""
    observed = ~np.isnan(X)
    if not (observed if sample_weight is None else observed[sample_weight > 0]).any():
        what = "X" if sample_weight is None else "rows of positive weight"
        raise invalid(what, "have an observed cell", "Check what counts as missing.", shape=X.shape)


class ColumnStates:
    """The states of columns, which `discretizer` cuts, and their conversion to original units."""

    def __init__(self, discretizer):
        self.discretizer = discretizer
        self.layout = StateLayout(discretizer.cardinalities)

    def numbers(self, is_categorical):
        """Numbers behind the states of numerical columns that are not cut, by column."""
        values = enumerate(self.discretizer.values)
        return {j: own for j, own in values if own is not None and not is_categorical[j]}

    def original_unit(self, column, probabilities):
        """Input unit of a column in original units, from the probabilities of its states."""
        bins, values = self.discretizer.bins[column], self.discretizer.values[column]
        groups = self.discretizer.groups[column]
        if groups is not None:
            return discrete_unit(column, groups.spread(probabilities))
        if bins is not None:
            is_bin, inside = np.isnan(bins.points), probabilities * bins.inside
            return linked_histogram(
                column,
                weights=np.where(is_bin, inside, 0.0),
                atom_masses=inside[~is_bin],
                knots=bins.edges,
                atoms=bins.points[~is_bin],
                tail_masses=probabilities[[0, -1]] * bins.tail_fractions,
                tail_scales=bins.tail_scales,
            )
        if self.discretizer.keeps_cells[column]:
            return discrete_unit(column, probabilities)
        return unit_over_numbers(column, values, probabilities)

    def input_maker(self):
        """``original_unit`` for one circuit, in which units of equal probabilities are shared."""
        return _shared_inputs(self.original_unit)

    def restricted_bins(self, evidence):
        """By column that is cut, the states as input units in original units, given evidence."""
        restricted = {}
        for column, bins in enumerate(self.discretizer.bins):
            if bins is not None:
                units = [self.original_unit(column, own) for own in np.eye(len(bins))]
                restricted[column] = restrict(PiecewisePolynomialLayer.stack(units), evidence)
        return restricted

    def in_original_units(self, circuit):
        """Replace units over states by units over the numbers behind them."""
        keeps_cells = self.discretizer.keeps_cells

        def original(unit):
            is_written_best = isinstance(unit, Indicator) or unit.probabilities.max() < 1.0
            if keeps_cells[unit.variable] and is_written_best:
                return unit
            return self.original_unit(unit.variable, unit.probabilities)

        return with_other_units(circuit, original)


class StatesMixin:
    """Learn a density over the states of columns.

    Attributes
    ----------
    bin_edges_ : tuple of ndarray or None
        Bin edges of numerical columns (the neighbouring floats around a point mass), None for
        columns whose values are the states.
    """

    _max_categories = 32  # most distinct integers that are states themselves

    def _prepare_rows(self, rows, groups=None):
        super()._prepare_rows(rows, groups)
        discretizer = Discretizer.fit(
            rows.X,
            self._schema.cardinalities,
            max_categories=self._max_categories,
            sample_weight=rows.weight,
            shared=frequent_values,
            groups=self._category_groups,
        )
        self._states, self.bin_edges_ = ColumnStates(discretizer), discretizer.bin_edges

    def _view_rows(self, rows):
        rows = rows.in_canonical_order()
        return dataclasses.replace(rows, states=self._states.discretizer.encode(rows.X))

    def _numbers_as_states(self, rows):
        return self._states.numbers(self._schema.is_categorical)

    def _known(self, X):
        # Integers that are no state count as missing, as unseen categories do
        known = self._states.discretizer.known(X)
        for j, numbers in self._integers.items():
            known[:, j] = np.where(np.isin(X[:, j], numbers), X[:, j], known[:, j])
        return known


class DiscreteDensity(StatesMixin, CircuitDensity):
    """Base class of densities that learn circuits over states."""

    def _known_integers(self, rows):
        # All states of columns that are not cut: the circuit need not be compiled for them
        return self._states.numbers(~self._schema.is_integral)

    def _refine_states(self, circuit, rows, context):
        """Learn the parameters over states again where cells are missing."""
        if not rows.has_missing:
            return circuit
        steps = expectation_maximization(
            circuit, rows.states, rows.weight, pseudo_count=self.pseudo_count
        )
        return self._refine(steps, rows.X, context, self._states.in_original_units)
