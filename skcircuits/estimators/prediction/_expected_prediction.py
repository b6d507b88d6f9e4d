"""Common base of expected predictions of regressors and classifiers: fit and moments.

Expected predictions may be stacked with those of joint densities of rows and target, and of trees.
"""

import warnings
from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import _check_method_params

from skcircuits.circuits import Circuit
from skcircuits.circuits._policy import TERMS_PER_DRAW
from skcircuits.estimators._base import (
    TABLE_CONSTRAINTS,
    HasMethods,
    Interval,
    StrOptions,
    check_is_fitted,
    check_weights,
    fit_context,
    route_fit_parameters,
)
from skcircuits.estimators.automatic._inner_density import (
    DENSITY_CONSTRAINTS,
    IndicatorMixin,
    InnerDensityMixin,
    MeasuringMixin,
)
from skcircuits.estimators.imputer import CircuitImputer
from skcircuits.estimators.prediction._requirements import (
    check_kind,
    check_reads_columns,
    fails_outside,
    fit_model,
    predicts_median,
    predicts_quantile,
    refuses_negative_values,
    tags_of,
    unread_categories,
    with_typical_values,
)
from skcircuits.estimators.prediction._target_stack import TrainingTargets, learn_stack
from skcircuits.estimators.shared._completion import with_possible_evidence
from skcircuits.estimators.shared._fitting import weights_in_rows
from skcircuits.exceptions import CircuitPropertyError, invalid, must, warn
from skcircuits.parallel import row_slices
from skcircuits.predictions import ExpectedResponse, find_closed_form
from skcircuits.predictions._closed_forms import (
    Expectation,
    IncompleteRows,
    Problem,
    Response,
    explain,
)
from skcircuits.predictions._expected_response import (
    ENTROPY,
    MIN_DRAWS,
    VARIANCE,
    DrawBudget,
    noting_draws,
    value_of_measuring,
)
from skcircuits.tabular._columns import to_days
from skcircuits.tabular._frames import read_columns

RANGE_ROWS = 200  # on which a model is tried that may not answer beyond their range
BLOCK_ROWS = 2**15  # incomplete rows per block
STACKING_DRAWS = 128  # per held-out row; their error is small beside the noise of held-out targets
STACKED = ("predict_proba", "predict")  # methods that predict the target
INCOMPLETE = "With n_completions=0 the estimator reads missing values. Other numbers complete them."


class TrainingTable(NamedTuple):
    """The training data of a fit: `encoded` as read, `tables` as completed for the models."""

    # No tables for a frozen model, or if they are not kept

    model: BaseEstimator
    tables: list
    encoded: np.ndarray
    y: object
    targets: tuple | None
    sample_weight: np.ndarray | None
    fit_params: dict


class StackedAnswersMixin:
    """Learn the weights of the stack from held-out rows, and apply them to expected predictions."""

    def _learn_stack(self, training):
        """Learn the stack of expectations and other models, or return None and the reason."""
        reason = self._reason_against_stacking(training)
        if reason:
            return None, reason
        targets, is_code = training.targets
        targets, weights = targets[:, 0], training.sample_weight
        weights = np.ones(len(targets)) if weights is None else weights
        joint = TrainingTargets(
            training.encoded,
            targets,
            weights_in_rows(weights),
            self._schema,
            int(targets.max()) + 1 if is_code[0] else 0,
            not is_code[0] and predicts_median(training.model),
        )

        def fit_models(rows):
            own = _check_method_params(training.encoded, training.fit_params, indices=rows)
            tables = [_safe_indexing(table, rows) for table in training.tables]
            part = _safe_indexing(training.y, rows)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the fit to all rows gave them
                return [
                    fit_model(training.model, table, part, self._schema, own) for table in tables
                ]

        try:
            # With indicators, missingness is informative, so that no further cells may be hidden
            may_hide = not self.add_indicator
            stack = learn_stack(joint, fit_models, self._expect_roughly, self._seed, may_hide)
        except ValueError as error:
            reason = f"the model cannot be fitted to a subset of the rows: {error}"
            warn(
                f"{type(self).__name__} uses the expectation alone, because {reason}. Pass "
                "stacking=False to avoid learning weights.",
            )
            return None, reason
        return stack, "" if stack else "too few rows can be held out, or too few of some class"

    def _reason_against_stacking(self, training):
        """Reason why the expectation is not stacked, "" if it can be."""
        if not self.stacking:
            return "as asked"
        if not training.tables:
            return "a frozen model cannot be fitted to a subset of the rows"
        if not isinstance(self.density, str):
            return "the density is given"
        if self._responses[0] not in STACKED or training.targets[0].shape[1] > 1:
            return "only probabilities or numerical predictions of a single target are stacked"
        if predicts_quantile(training.model):
            return "the model predicts a quantile, the other members of a stack a mean"
        return ""

    def _expect_roughly(self, models, cells):
        """Estimate the expected predictions of some models from few draws."""
        response = Response(models, self._responses[0], self._to_table)
        budget = self._draw_budget(self._responses[0], STACKING_DRAWS, self.tol)
        expected = ExpectedResponse(response, self.circuit_, budget)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # predict warns of impossible rows
            found = self._or_without_evidence(expected, self._rows(cells)).mean
        return _within_bounds(found, self._responses[0])

    def _expectation_weight(self, method):
        """Weight of the expectation in the stacked prediction."""
        is_stacked = method in STACKED and getattr(self, "_stack", None) is not None
        return float(self._stack.weights[0]) if is_stacked else 1.0

    def _expectation_slope(self, method):
        """Largest derivative of the stacked prediction by the expectation (at even odds)."""
        weight = self._expectation_weight(method)
        return weight if weight == 1.0 else weight * max(1.0, self._stack.power)

    def _stacked(self, moments, method, cells):
        """Moments of predictions, with means stacked with the other models of the target."""
        mean = _within_bounds(moments.mean, method)
        if self._stack is None or method not in STACKED:
            return replace(moments, mean=mean)
        error = self._expectation_slope(method) * moments.error
        return replace(moments, mean=self._stack(mean, cells), error=error)


class ExpectedPredictionMixin(
    StackedAnswersMixin,
    MeasuringMixin,
    IndicatorMixin,
    MetaEstimatorMixin,
    InnerDensityMixin,
    BaseEstimator,
):
    """Fit clones of a model and a density of the rows; compute expectations of the predictions.

    A subclass defines ``_default_estimator(y)``, ``_check_targets(y, X)`` (the target as columns
    (n, k) of numbers or codes, and a mask of the columns of codes), ``_answer_scales(models, y)``
    (by method, the unit of errors for each output), and ``_responses`` (the methods of the model
    that can be used, in order of preference).

    Parameters
    ----------
    density : "auto", name of a density, density estimator or Circuit, default="auto"
        Distribution of the rows. ``"auto"`` is a `HiddenChowLiuDensity` if all columns hold
        categories or few (at most ten) frequent integers. For any other table it is a
        `GaussianMixtureDensity` that is chosen by the errors on hidden cells. It learns from at
        most 200,000 rows; see ``density_``. Names are ``"gaussian_mixture"``, ``"latent_tree"``,
        ``"wmispn"``, ``"chow_liu"`` and ``"strudel"``. An estimator is cloned and fitted to X. A
        circuit with one variable per column is used as it is.
    stacking : bool, default=True
        Whether the predictions for rows with missing values are weighted means (for classifiers, of
        square roots of probabilities) of the expected predictions and those of models that predict
        the target from incomplete rows: two Gaussian mixtures and a kernel density of rows and
        targets, and boosted trees. The weights are learned from held-out training rows [1]_, by
        absolute errors for models that minimise these. This requires up to two further fits of the
        model, to subsets of at most 3000 rows. Stacking is used only if ``density`` is ``"auto"``
        or a name, the model is not frozen and predicts no quantile, there is a single target, and a
        classifier has `predict_proba`; see `explain_method`. ``False`` uses the expectation alone.
    method : {"auto", "exact", "draws"}, default="auto"
        ``"auto"`` computes expectations in closed form if there is one for the model and the
        density (see `method_`), enumerates the completions of rows with few missing categories, and
        estimates the expectation from draws otherwise, and where closed forms are sums that would
        take much longer. With ``"exact"``, models without a closed form raise an error, and such
        sums are taken. ``"draws"`` always uses draws.
    n_draws : int, default=2000
        Maximum number of draws per row.
    n_completions : int, default=5
        Number of completed copies of the training rows if these have missing values. One clone of
        the estimator is fitted to each copy. Missing values are drawn given the observed values of
        the row and its target. With 0, the estimator is fitted to the incomplete rows.
    add_indicator : bool, default=False
        Whether to add an indicator column to the rows of the model for each column with missing
        values in `fit`, which is 1 if the value is missing. The density is learned over these
        columns, too. Use it for tables in which missingness is informative.
    n_jobs : int, default=None
        Number of parallel jobs for draws; results do not depend on it.
    random_state : int, RandomState or None, default=None
        Controls the randomness of the density and of the draws. The draws of a row depend only on
        this seed and on the values of the row, so that predictions do not depend on other rows.
    verbose : int, default=0
        Verbosity of the density.

    Attributes
    ----------
    estimators_ : list of estimator
        The fitted models, one per completed copy of the training rows; their predictions are
        averaged.
    estimator_ : estimator
        The first of them, which is the only one if the training rows were complete.
    stacking_weights_ : ndarray of shape (1,) or (n_members,)
        Weights in the stacked mean: of the expected predictions, of each mixture, of the trees and,
        unless its weight would be below 0.05, of the kernel density. ``[1.0]`` without stacking.
    method_ : str
        How rows with missing values are predicted, with the reason if there is no closed form.
    """

    _parameter_constraints: ClassVar[dict] = {
        **DENSITY_CONSTRAINTS,
        **TABLE_CONSTRAINTS,
        # Some have the methods that answer only once they are fitted
        "estimator": [HasMethods(["fit"]), None],
        "stacking": ["boolean"],
        "method": [StrOptions({"auto", "exact", "draws"})],
        "n_draws": [Interval(Integral, MIN_DRAWS, None, closed="left")],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "n_completions": [Interval(Integral, 0, None, closed="left")],
        "add_indicator": ["boolean"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        estimator=None,
        *,
        density="auto",
        stacking=True,
        method="auto",
        n_draws=2000,
        tol=0.03,
        n_completions=5,
        add_indicator=False,
        categorical_features="from_dtype",
        handle_unknown="missing",
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.density = density
        self.stacking = stacking
        self.method = method
        self.n_draws = n_draws
        self.tol = tol
        self.n_completions = n_completions
        self.add_indicator = add_indicator
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def standard_error(self, X):
        """Standard error of each prediction that is an average over draws.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; cells may be missing.

        Returns
        -------
        ndarray of shape (n_samples,)
            Standard errors in units of `tol`, the largest over all outputs; 0 for exact
            predictions.
        """
        return self._respond(X, self._responses[0]).error

    def explain_method(self):
        """Explain how the expectation of each output of the model is computed, and why.

        Returns
        -------
        dict of str to str
            For the name of each method of the model, ``"exact: <closed form>"``, or ``"draws:
            <reason>"`` with the reason why there is no closed form, followed by the weight of the
            expectation in the stack, or the reason why it is not stacked. It is said if standard
            deviations are estimated from draws where expectations are exact. Rows in which only
            categories are missing, with few completions, are exact in any case, by summation over
            all completions. Closed forms of smooth functions do not round missing integers.
        """
        check_is_fitted(self)
        ways = {method: self._way_of(method) for method in self._responses}
        if "predict" in ways:
            ways["predict"] += self._way_of_deviations()
        if self._unstacked:
            for method in ways.keys() & STACKED:
                ways[method] += f"; not stacked: {self._unstacked}"
        return ways

    def _values_of_cells(self, encoded):
        """Give the values of the missing cells of incomplete rows, in units of the target."""
        method = self._responses[0]
        uncertainty = ENTROPY if method in ("predict_proba", "votes") else VARIANCE
        limit = {"max_terms": np.inf} if self.method == "exact" else {}
        values = self._or_without_evidence(
            lambda rows: value_of_measuring(
                self._expected_response(method), rows, uncertainty, self._seed, **limit
            ),
            self._rows(encoded),
        )
        if uncertainty is ENTROPY:
            return values
        # In units of the target's variance, so that the costs of columns have one scale
        return values / np.mean(np.square(self._scale_of(method)))

    # ------------------------------------------------------------------ fit

    @fit_context
    def fit(self, X, y=None, sample_weight=None, **fit_params):
        """Fit the estimator, and learn the density of the rows.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Training rows; values may be missing.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Target. May be None for a frozen estimator.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, for the estimator and the density, to which weights that are not
            all integers count relative to their mean. In a `Pipeline`, the last step gets them.
        **fit_params : dict
            Passed to the `fit` of the estimator.

        Returns
        -------
        self
            The fitted model.

        Raises
        ------
        CircuitPropertyError
            If ``method="exact"`` and the model has no closed form under the density.

        Warns
        -----
        UserWarning
            If columns have no observed value, on which predictions do not depend; if most rows have
            a category of their own in some column; or if the model cannot be fitted to a subset of
            the rows, so that expectations are not stacked.
        """
        training = self._fit_models(X, y, sample_weight, fit_params)
        self._stack, self._unstacked = self._learn_stack(training)
        self.stacking_weights_ = np.ones(1) if self._stack is None else self._stack.weights
        self.method_ = self._way_of(self._responses[0])
        return self

    @property
    def _fills_empty_columns(self):
        # A frozen model had values to learn from, and a circuit knows the distribution of all
        return not isinstance(self.estimator, FrozenEstimator) and not isinstance(
            self.density, Circuit
        )

    def _learn_table(self, X, missing_value=np.nan, sample_weight=None):
        # Rows of weight zero are gone, or those of a model that takes no weights
        return super()._learn_table(X, missing_value)

    def _chosen_estimator(self, y=None):
        return self._default_estimator(y) if self.estimator is None else self.estimator

    def _fit_models(self, X, y, sample_weight, fit_params):
        """Learn the models and the density of the rows."""
        self._unread = {}  # known once the models are fitted
        model, X, encoded, y, *others = self._read_training(X, y, sample_weight, fit_params)
        targets, sample_weight, fit_params = others
        self._seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        frozen = isinstance(model, FrozenEstimator)
        is_incomplete = not frozen and bool(np.isnan(encoded).any())
        must_complete = is_incomplete and self.n_completions > 0
        del encoded  # the density reads the table itself: two copies of a long one are one too many
        tables, models = [], [model] * (not must_complete)
        if not frozen and not must_complete:
            # Before the density: a model that refuses the table does so at once
            tables = [self._check_table(X, reset=False)]
            try:
                models = [fit_model(model, tables[0], y, self._schema, fit_params)]
            except ValueError as error:
                if is_incomplete:
                    error.add_note(INCOMPLETE)
                raise
        encoded = self._learn_density(X, sample_weight=sample_weight)
        is_bounded = refuses_negative_values(model) or self._fails_outside(
            model, models, encoded, y, fit_params
        )
        self._bounds = _range_of(encoded) if is_bounded else None
        if must_complete:
            for table in self._completed_tables(encoded, targets, sample_weight):
                models.append(fit_model(model, table, y, self._schema, fit_params))
                # Completed tables are as large as X each
                tables += [table] if self.stacking else []
        decode = self._schema.decode
        self._unread = unread_categories(
            lambda cells: [model.predict(decode(cells)) for model in models], encoded, self._schema
        )
        with noting_draws():
            self._scales = self._answer_scales(models, y)
        self.estimator_ = models[0]
        self.estimators_ = models
        self._find_closed_forms()
        return TrainingTable(model, tables, encoded, y, targets, sample_weight, fit_params)

    def _read_training(self, X, y, sample_weight, fit_params):
        """Check the training data without rows of weight zero: as they are, encoded, targets."""
        model = self._chosen_estimator(y)
        check_kind(model, get_tags(self).estimator_type)
        frozen = isinstance(model, FrozenEstimator)
        targets = None if y is None and frozen else self._check_targets(y, X)
        encoded = self._learn_table(X)
        model = self._chosen_estimator(y)  # the default is made for these columns
        check_reads_columns(model, self._schema)
        self._check_covers_columns()
        sample_weight = check_weights(sample_weight, encoded)
        fit_params = route_fit_parameters(self, model, sample_weight, fit_params)
        reaches_model = any(own is sample_weight for own in fit_params.values())
        if sample_weight is not None and reaches_model and not sample_weight.all():
            # Folds and the forms of models have no weights: such rows must not be there at all
            kept = np.flatnonzero(sample_weight)
            fit_params = _check_method_params(encoded, fit_params, indices=kept)
            X, sample_weight = _safe_indexing(X, kept), sample_weight[kept]
            if targets is not None:
                y = _safe_indexing(y, kept)
                targets = self._check_targets(y, X)
            encoded = self._learn_table(X)
            model = self._chosen_estimator(y)  # columns may be constants now
        if not isinstance(self.density, Circuit):
            nothing = "predictions do not depend on them"
            self._warn_of_empty_columns("their density is a guess" if frozen else nothing)
        return model, X, encoded, y, targets, sample_weight, fit_params

    def _fails_outside(self, model, models, encoded, y, fit_params):
        """Tell whether the model answers for observed values only, not beyond their range."""
        some = np.arange(min(len(encoded), RANGE_ROWS))
        rows = with_typical_values(encoded[some])
        decode = self._schema.decode
        if not models:  # completions wait for the range: some rows tell as much
            own = _check_method_params(encoded, fit_params, indices=some)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    some_y = _safe_indexing(y, some)
                    models = [fit_model(model, decode(rows), some_y, self._schema, own)]
            except Exception:  # too few rows for it; the fit to all rows tells what is wrong
                return False
        is_number = ~self._schema.is_categorical
        return fails_outside(lambda cells: models[0].predict(decode(cells)), rows, is_number)

    def _find_closed_forms(self):
        """Look for a closed form for each method of the model, and record the reasons if none."""
        self._closed_forms, reasons = {}, {}
        self._reasons = reasons
        for method in self._responses if self.method != "draws" else ():
            response = Response(self.estimators_, method, self._to_table)
            n_columns = len(self._schema.columns)
            problem = Problem(
                response,
                self.circuit_,
                n_columns,
                self.n_jobs,
                self._bounds,
                self._schema.is_integral,
            )
            self._closed_forms[method], reasons[method] = find_closed_form(problem)
        first = self._responses[0]
        form = self._closed_forms.get(first)
        if form is None and self.method == "exact":
            condition = f"have a closed form for method='exact', but {reasons[first]}"
            way_out = "Use method='auto'."
            raise CircuitPropertyError(
                must("estimator and density", condition, way_out, estimator=self.estimator)
            )

    @property
    def _known_columns(self):
        """The columns of the schema, once a table has been read."""
        return self._schema.columns if hasattr(self, "_schema") else ()

    def _way_of(self, method):
        form = self._closed_forms.get(method)
        reason = self._reasons.get(method, "as asked")
        way = explain(form, reason, self.circuit_, self._schema.is_integral)
        weight = self._expectation_weight(method)
        return way if weight == 1.0 else f"{way}; stacked, with a weight of {weight:.2f}"

    def _way_of_deviations(self):
        """Say whether standard deviations need draws where the expectation has a closed form."""
        form, n_columns = self._closed_forms.get("predict"), len(self._schema.columns)
        numbers = np.setdiff1d(np.arange(n_columns), list(self.circuit_.cardinalities))
        if form is None or not len(numbers):
            return ""
        cells = self.circuit_.sample(len(numbers) + 1, random_state=0)[:, :n_columns]
        cells[np.arange(len(numbers)), numbers] = np.nan  # one number each, and all numbers
        cells[-1, numbers] = np.nan
        *of_one, of_all = form.covers(self._rows(cells), with_variance=True)
        if not all(of_one):
            return "; standard deviations by draws"
        return "" if of_all else "; standard deviations by draws where several numbers are missing"

    def __sklearn_is_fitted__(self):
        return hasattr(self, "stacking_weights_")

    def _check_covers_columns(self):
        """Refuse circuits that do not contain all columns, before anything is learned."""
        known = self.density.variables if isinstance(self.density, Circuit) else ()
        unknown = set(range(len(self._schema.columns))) - set(known)
        # A density that is fitted here learns all columns; a ready circuit may lack some
        if known and unknown:
            condition = f"have a variable for each column, but {sorted(unknown)} have none"
            way_out = "Add them to the circuit, or leave these columns out of the table."
            raise invalid("density", condition, way_out, density=self.density)

    def _completed_tables(self, encoded, targets, sample_weight):
        """Yield completed training rows, drawn given their observed cells and their targets."""
        joint, is_categorical = encoded, self._schema.is_categorical
        if targets is not None and not isinstance(self.density, Circuit):
            codes, is_code = targets
            # Completions that ignore the target would weaken its dependence on the columns (Moons
            # et al. 2006)
            joint = np.hstack([encoded, codes])
            is_categorical = np.append(is_categorical, is_code)
        imputer = CircuitImputer(
            density=self.density,
            strategy="sample",
            categorical_features=is_categorical,
            keep_empty_features=True,
            self_masking=False,
            random_state=self._seed,
            n_jobs=self.n_jobs,
        )
        imputer.set_output(transform="default").fit(joint, sample_weight=sample_weight)
        drawn = imputer.sample_imputations(joint, self.n_completions, proper=False)
        rows = self._rows(encoded)
        for copy in drawn[:, :, : encoded.shape[1]]:
            yield self._schema.decode(rows.completed(copy.astype(np.float64)))

    def get_metadata_routing(self):
        """Get the metadata routing of this estimator.

        Returns
        -------
        MetadataRouter
            The weights and parameters of `fit` that the inner estimator requests.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        inner = self._chosen_estimator()
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=inner, method_mapping=mapping)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = self._chosen_estimator()
        own = tags_of(inner)
        tags.target_tags = own.target_tags
        tags.classifier_tags = own.classifier_tags or tags.classifier_tags
        tags.regressor_tags = own.regressor_tags or tags.regressor_tags
        return tags

    # ------------------------------------------------------------------ answers

    def _read_rows(self, X):
        """Check a table, and encode it."""
        check_is_fitted(self)
        table = self._check_table(X, reset=False)
        # Of tables with very many rows nothing as large is made
        return table, self._as_read(self._schema.encode(table, self.handle_unknown, copy=False))

    def _respond(self, X, method, **options):
        return self._respond_to(*self._read_rows(X), method, **options)

    def _respond_to(self, table, encoded, method, *, with_variance=False):
        """Predict rows: complete ones with the models, the others by expectations."""
        response = Response(self.estimators_, method, self._to_table)
        missing = np.isnan(encoded.min(axis=1))
        incomplete, complete = np.flatnonzero(missing), np.flatnonzero(~missing)
        parts = []
        if len(complete):
            own = _safe_indexing(table, complete) if len(incomplete) else table
            answer = response.of_table(own)
            variance = np.zeros_like(answer) if with_variance else None
            parts.append((complete, Expectation.exact(answer, variance)))
        expected = self._expected_response(method)
        # Answers need several copies of their rows: blocks bound the memory
        for block in row_slices(len(incomplete), BLOCK_ROWS):
            moments = self._or_without_evidence(
                lambda rows: expected(rows, with_variance=with_variance),
                self._rows(encoded[incomplete[block]]),
            )
            parts.append(
                (incomplete[block], self._stacked(moments, method, encoded[incomplete[block]]))
            )
        if len(incomplete):
            self._warn_of_errors(np.concatenate([part.error for _, part in parts]))
        return Expectation.put_together(len(encoded), parts)

    def _encode_table(self, X):
        return self._as_read(super()._encode_table(X))

    def _as_read(self, encoded):
        """Treat declared categories that the models cannot read like unknown ones, as missing."""
        for j, read in self._unread.items():
            column, codes = self._schema.columns[j], encoded[:, j]
            is_unread = ~np.isnan(codes) & (_read_codes(codes, read) != codes)
            if is_unread.any():
                if self.handle_unknown == "error":
                    condition = "occur in the rows of fit, since the estimator fails for others"
                    way_out = "Leave the cell empty, or pass handle_unknown='missing'."
                    value = column.decode(codes[is_unread][:1])[0]
                    what = f"Categories of column {column.name!r}"
                    raise invalid(what, condition, way_out, value=value)
                encoded = encoded.copy()
                encoded[is_unread, j] = np.nan
        return encoded

    def _to_table(self, encoded):
        """Decode rows for the models; what these cannot read is the most frequent category."""
        if self._unread:
            encoded = encoded.copy()
        for j, read in self._unread.items():
            encoded[:, j] = _read_codes(encoded[:, j], read)
        return self._schema.decode(encoded)

    def _rows(self, cells):
        """Give incomplete rows with the evidence that the density can use."""
        integral = self._schema.is_integral
        return IncompleteRows(cells, self._as_known(cells), integral, self._bounds)

    def _expected_response(self, method):
        """The expected response of a method of the models."""
        # An error of the expectation enters the stack with this factor
        tol = self.tol / self._expectation_slope(method)
        budget = self._draw_budget(method, self.n_draws, tol)
        return ExpectedResponse(
            Response(self.estimators_, method, self._to_table),
            self.circuit_,
            budget,
            self._closed_forms.get(method),
            draws_only=self.method == "draws",
            max_terms=np.inf if self.method == "exact" else TERMS_PER_DRAW * budget.n_needed,
        )

    def _draw_budget(self, method, n_draws, tol):
        return DrawBudget(n_draws, tol, self._scale_of(method), self._seed, self.n_jobs)

    def _scale_of(self, method):
        """Unit of the errors of a method of the models; probabilities have one of their own."""
        return self._scales.get(method, 1.0)

    def _or_without_evidence(self, answer, rows):
        """Answer for rows; those with impossible evidence under the marginal distribution."""

        # Their observed cells still reach the model; only the density ignores them
        def given(evidence):
            return answer(replace(rows, evidence=evidence))

        consequence = "their missing values are drawn from the marginal distribution"
        return with_possible_evidence(given, rows.evidence, self._is_impossible, consequence)[0]

    def _is_impossible(self, encoded):
        return np.isneginf(self.circuit_.log_prob(encoded))

    def _warn_of_errors(self, error):
        late = error > self.tol
        if late.any():
            warn(
                f"{type(self).__name__} has reached n_draws={self.n_draws} with a standard error "
                f"above tol={self.tol} in {late.sum()} rows; the largest is {error.max():.3g}. "
                "Increase n_draws or tol.",
                ConvergenceWarning,
            )


def _within_bounds(mean, method):
    """Expected responses, probabilities without what rounding adds below zero or above one."""
    return np.clip(mean, 0.0, 1.0) if method == "predict_proba" else mean


def _read_codes(codes, read):
    """Codes (n,) in whose place others are read, as `unread_categories` gives them."""
    is_missing = np.isnan(codes)
    return np.where(is_missing, np.nan, read[np.where(is_missing, 0, codes).astype(int)])


def _range_of(encoded):
    """Give the least and the largest observed value of each column."""
    seen = ~np.isnan(encoded)
    least = np.min(encoded, axis=0, where=seen, initial=np.inf)
    largest = np.max(encoded, axis=0, where=seen, initial=-np.inf)
    empty = ~seen.any(axis=0)
    return np.where(empty, 0.0, least), np.where(empty, 0.0, largest)


def column_encoder(columns):
    """Make the first step of a default model: standardised numbers and dates, one-hot columns."""
    dates = [j for j, column in enumerate(columns) if column.has_dates]
    categorical = [j for j, column in enumerate(columns) if column.categories is not None]
    numeric = [j for j in range(len(columns)) if j not in {*dates, *categorical}]
    one_hot = OneHotEncoder(handle_unknown="ignore")
    steps = [("numeric", StandardScaler(), numeric), ("categorical", one_hot, categorical)]
    if dates:  # a function has no closed form: only where it is needed
        days = make_pipeline(FunctionTransformer(_days), StandardScaler())
        steps.append(("dates", days, dates))
    return ColumnTransformer(steps)


def _days(dates):
    """Convert the dates of a frame to days, since arrays of dates and numbers are not numeric."""
    return np.stack([to_days(raw.values) for raw in read_columns(dates)], axis=1)
