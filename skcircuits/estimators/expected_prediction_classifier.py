"""Classification of rows with missing values: expected predictions of any classifier."""

import warnings
from dataclasses import replace
from typing import ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_method_params

from skcircuits.estimators._base import fit_context, inherit_documentation
from skcircuits.estimators._expected_prediction import (
    EXPECTED_PREDICTION_CONSTRAINTS,
    ExpectedPredictionMixin,
    column_encoder,
)
from skcircuits.estimators.automatic._class_stack import TrainingClasses, learn_stack
from skcircuits.predictions import ExpectedResponse
from skcircuits.predictions._any_model import DrawBudget
from skcircuits.predictions._rows import Response

MAX_LANDMARKS = 300  # of the default classifier
STACKING_DRAWS = 128  # per held-out row, whose error is small beside that of what is held out


def _model_has(method):
    """Tell whether the classifier has a method, for those that depend on it."""

    def check(self):
        fitted = getattr(self, "estimator_", None)
        model = self._default_estimator(None) if self.estimator is None else self.estimator
        getattr(model if fitted is None else fitted, method)
        return True

    return check


@inherit_documentation
class ExpectedPredictionClassifier(ClassifierMixin, ExpectedPredictionMixin):
    """Expected predictions of any classifier on rows with missing values.

    For a row with missing values the probabilities of the classes are E[P(y | x) | observed
    values] under a density of the rows, P(y | x) being those of the fitted classifier; for a
    complete row they are P(y | x). Where values are missing at random that is exactly
    P(y | observed values), by the tower property, for a classifier that is right about complete
    rows. As few are, expected probabilities are stacked by default with those that densities of
    rows and classes give.

    Parameters
    ----------
    estimator : estimator, default=None
        The model whose predictions are expected. A clone is fitted; a
        `sklearn.frozen.FrozenEstimator` is used as it is, so that only the density is learned.
        None takes kernel logistic regression (`Nystroem`) on standardised and one-hot encoded
        columns.
    stacking : bool, default=True
        Whether the probabilities of rows with missing values are a weighted mean of the expected
        ones and of those that three Gaussian mixtures, learned from rows and classes, give the
        classes themselves. The weights are learned from training rows held out of the
        classifier [1]_, which is therefore fitted up to three times more, to parts of at most
        3000 rows. Only where ``density`` is ``"auto"`` or a name, and the classifier is not
        frozen, has `predict_proba` and one target; `explain_method` tells. ``False``:
        E[P(y | x) | observed values] alone.
    tol : float, default=0.03
        Standard error at which drawing stops, in units of the answer.

    Attributes
    ----------
    stacking_weights_ : ndarray of shape (1,) or (n_densities + 1,)
        Weight of the expected probabilities, and those of the densities of rows and classes: one
        Gaussian per class, and mixtures over all classes; ``[1.0]`` without stacking.
    classes_ : ndarray of shape (n_classes,) or list of such arrays
        The classes, per target where there are several.

    See Also
    --------
    ExpectedPredictionRegressor : The same for regressors.
    CircuitImputer : Completes the missing values instead.

    Notes
    -----
    Rows with missing values are given the class of the largest expected probability; without
    `predict_proba`, that of the largest expected decision function, and without either the
    class that the classifier predicts with the largest probability.

    `decision_function` and `value_of_measuring` are those of the expected prediction alone.
    Complete rows get the classifier's own probabilities with stacking, too, so that what one
    more cell tells is not continuous.

    References
    ----------
    .. [1] Yao, Vehtari, Simpson and Gelman, "Using Stacking to Average Bayesian Predictive
       Distributions", Bayesian Analysis 13, 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skcircuits import ExpectedPredictionClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ExpectedPredictionClassifier(LogisticRegression(max_iter=500), random_state=0)
    >>> X[0, 2:] = np.nan
    >>> model.fit(X, y).predict_proba(X[:1]).shape
    (1, 3)
    """

    _parameter_constraints: ClassVar[dict] = {
        **EXPECTED_PREDICTION_CONSTRAINTS,
        "stacking": ["boolean"],
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
        super().__init__(
            estimator,
            density=density,
            method=method,
            n_draws=n_draws,
            tol=tol,
            n_completions=n_completions,
            add_indicator=add_indicator,
            categorical_features=categorical_features,
            handle_unknown=handle_unknown,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.stacking = stacking

    @fit_context
    def fit(self, X, y=None, sample_weight=None, **fit_params):
        """Fit the classifier, and learn the density of the rows.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Training rows; values may be missing.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Classes; may be None for a frozen estimator.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, for the classifier and the density.
        **fit_params : dict
            Passed to the `fit` of the classifier.

        Returns
        -------
        ExpectedPredictionClassifier
            The fitted model.
        """
        self._stack = None
        training = self._fit(X, y, sample_weight, fit_params, keep_tables=self.stacking)
        self.classes_ = self.estimator_.classes_
        self._stack, self._unstacked = self._learn_stack(training)
        self.stacking_weights_ = np.ones(1) if self._stack is None else self._stack.weights
        self.method_ = self._way_of(self._responses[0])
        return self

    def predict(self, X):
        """Predict the class of each row.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            The class of the largest expected answer; for complete rows what the classifier
            itself predicts.
        """
        encoded = self._read_table(X)
        complete = ~np.isnan(encoded).any(axis=1)
        if complete.all() and len(self.estimators_) == 1:
            return self.estimator_.predict(self._check_table(X, reset=False))
        method = self._responses[0]
        answers = self._respond(X, method).mean
        if isinstance(self.classes_, list):
            parts = np.split(answers, np.cumsum([len(c) for c in self.classes_])[:-1], axis=1)
            labels = [c[part.argmax(axis=1)] for c, part in zip(self.classes_, parts)]
            predicted = np.stack(labels, axis=1)
        elif method == "decision_function" and answers.shape[1] == 1:
            predicted = self.classes_[(answers[:, 0] > 0).astype(int)]
        else:
            predicted = self.classes_[answers.argmax(axis=1)]
        if complete.any() and len(self.estimators_) == 1:
            table = self._check_table(X, reset=False)
            predicted[complete] = self.estimator_.predict(_safe_indexing(table, complete))
        return predicted

    @available_if(_model_has("predict_proba"))
    def predict_proba(self, X):
        """Give the probability of each class.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or list of such arrays
            E[P(y | x) | observed values], stacked where rows miss values if `stacking`; a list
            where there are several targets.

        Warns
        -----
        ConvergenceWarning
            If `n_draws` draws leave a standard error above `tol`.
        """
        answers = self._respond(X, "predict_proba").mean
        if isinstance(self.classes_, list):
            return np.split(answers, np.cumsum([len(c) for c in self.classes_])[:-1], axis=1)
        return answers

    @available_if(_model_has("decision_function"))
    def decision_function(self, X):
        """Give the expected decision function.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            E[f(x) | observed values], f being the decision function of the classifier.

        Warns
        -----
        ConvergenceWarning
            If `n_draws` draws leave a standard error above `tol`.
        """
        answers = self._respond(X, "decision_function").mean
        return answers[:, 0] if answers.shape[1] == 1 else answers

    def explain_method(self):
        """Tell for each answer of the model which way leads to its expectation, and why.

        Returns
        -------
        dict of str to str
            By the name of a method: ``"exact: <closed form>"``, or ``"draws: <reason>"``
            with the reason why there is no closed form; of probabilities also with which weight
            the expectation is stacked, or why it is not. Rows that miss categories only, with
            few ways to complete them, are exact in any case: all completions are weighed.
        """
        ways = super().explain_method()
        if self._unstacked and "predict_proba" in ways:
            ways["predict_proba"] += f"; not stacked: {self._unstacked}"
        return ways

    def score(self, X, y, sample_weight=None):
        """Give the accuracy: the fraction of rows whose classes are predicted, all of them.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            Between 0 and 1.
        """
        predicted = self.predict(X)
        if predicted.ndim == 1:
            return float(accuracy_score(y, predicted, sample_weight=sample_weight))
        return float(np.average((predicted == np.asarray(y)).all(axis=1), weights=sample_weight))

    @property
    def _responses(self):
        """What the classifier can be asked, the best first."""
        methods = [m for m in ("predict_proba", "decision_function") if hasattr(self.estimator_, m)]
        return methods or ["votes"]

    def _check_targets(self, y, X):
        check_classification_targets(y)
        y = self._check_target(y, X, multi_output=True, numeric=False)
        y = y.reshape(len(y), -1)
        columns = [np.unique(column, return_inverse=True)[1] for column in y.T]
        return np.stack(columns, axis=1).astype(np.float64), np.ones(len(columns), dtype=bool)

    def _learn_stack(self, training):
        """Stack expected probabilities with those of densities; give None and why not else."""
        reason = self._reason_against_stacking(training)
        if reason:
            return None, reason
        y, fit_params = training.y, training.fit_params
        weights = training.sample_weight
        classes = TrainingClasses(
            training.encoded,
            training.targets[0][:, 0].astype(np.intp),
            np.ones(len(training.encoded)) if weights is None else weights,
            self._schema,
            len(self.classes_),
        )

        def fit_models(rows):
            own = _check_method_params(training.encoded, fit_params, indices=rows)
            tables = [_safe_indexing(table, rows) for table in training.tables]
            part = _safe_indexing(y, rows)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the fit to all rows has told
                return [clone(training.model).fit(table, part, **own) for table in tables]

        try:
            # Cells of tables with indicators are missing for a reason: none is hidden beside
            stack = learn_stack(
                classes, fit_models, self._expect_roughly, self._seed, not self.add_indicator
            )
        except ValueError as error:
            return None, f"a part of the rows cannot be learned from alone: {error}"
        if not stack.circuits:
            return None, "too few rows of some class can be held out"
        return stack, ""

    def _reason_against_stacking(self, training):
        """Say why expected probabilities stay alone, "" where they need not."""
        if not self.stacking:
            return "as asked"
        if not training.tables:
            return "a frozen classifier cannot be fitted to a part of the rows"
        if not isinstance(self.density, str):
            return "the density is given"
        if self._responses[0] != "predict_proba" or isinstance(self.classes_, list):
            return "only probabilities of one target are stacked"
        return ""

    def _expect_roughly(self, models, cells):
        """Expected probabilities of rows for some models, by few draws."""
        response = Response(models, "predict_proba", self._schema.decode)
        budget = DrawBudget(STACKING_DRAWS, self.tol, 1.0, self._seed, self.n_jobs)
        expected = ExpectedResponse(response, self.circuit_, budget)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what is impossible, predict tells
            return self._or_without_evidence(expected, self._rows(cells)).mean

    def _as_probabilities(self, moments, cells):
        # Rounding may leave a sum of probabilities above one
        mean = np.clip(moments.mean, 0.0, 1.0)
        if self._stack is None:
            return replace(moments, mean=mean)
        weight = self._expectation_weight("predict_proba")
        return replace(moments, mean=self._stack(mean, cells), error=weight * moments.error)

    def _expectation_weight(self, method):
        is_stacked = method == "predict_proba" and self._stack is not None
        return float(self._stack.weights[0]) if is_stacked else 1.0

    def _way_of(self, method):
        way = super()._way_of(method)
        weight = self._expectation_weight(method)
        return way if weight == 1.0 else f"{way}; stacked, with a weight of {weight:.2f}"

    def _answer_scale(self, models, y):
        return 1.0

    def _default_estimator(self, y):
        """Make a kernel logistic regression on landmarks: its probabilities need no calibration."""
        n_rows = 1 if y is None else len(y)
        landmarks = Nystroem(n_components=min(MAX_LANDMARKS, n_rows), random_state=0)
        classifier = LogisticRegression(C=10.0, max_iter=1000)
        model = make_pipeline(column_encoder(self._known_categorical), landmarks, classifier)
        return MultiOutputClassifier(model) if np.ndim(y) == 2 else model
