"""Expected predictions of any classifier or regressor on rows with missing values."""

from copy import copy

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from skcircuits.estimators._base import (
    inherit_documentation,
    ovr_decision_function,
)
from skcircuits.estimators.prediction._expected_prediction import (
    ExpectedPredictionMixin,
    column_encoder,
)
from skcircuits.exceptions import invalid, must
from skcircuits.numerics._arrays import safe_log
from skcircuits.predictions._closed_forms import ask, classes_of, last_step
from skcircuits.tabular._columns import is_missing

MAX_LANDMARKS = 300  # of the default classifier
ANSWERS = ("predict_proba", "decision_function")
N_TRIALS = 100  # rows on which the kind of answers of the classifier is found
# Instead of a method that a classifier lacks
_WAYS_OUT = {
    "predict_proba": "Wrap it as CalibratedClassifierCV(estimator), or use predict.",
    "decision_function": "Use predict_proba or predict.",
}


def _decides_pairs(model, table, labels):
    """Tell whether labels are decided by the votes of a decision function of pairs of classes."""
    if hasattr(model, "predict_proba") or not hasattr(model, "decision_function"):
        return False
    decisions, classes = ask(model, "decision_function", table), classes_of(model)
    n_classes = len(classes)
    if n_classes < 3 or decisions.shape[1] != n_classes * (n_classes - 1) // 2:
        return False
    if n_classes > 3:
        return True
    # Three classes have three pairs: the model itself knows which of both its columns are
    ways = decisions, _votes_of_pairs(decisions, n_classes)
    largest, votes = (np.mean(classes[way.argmax(axis=1)] == labels) for way in ways)
    return votes > largest


def _check_columns(probabilities, classes, model):
    """Refuse probabilities that do not have a column for each class of each target."""
    several = isinstance(classes, list)
    shapes = [own.shape for own in (probabilities if several else [probabilities])]
    needed = [(len(own),) for own in (classes if several else [classes])]
    if [shape[1:] for shape in shapes] != needed:
        name = f"{type(model).__name__}.predict_proba"
        shape = shapes if several else shapes[0]
        raise invalid(name, "have a column for each class", classes=classes, shape=shape)


def _votes_of_pairs(decisions, n_classes):
    return ovr_decision_function(decisions < 0, -decisions, n_classes)


def _spread(answers):
    """Standard deviation of each column of answers, one where they are constant."""
    spread = np.std(answers, axis=0)
    return np.where(spread > 0, spread, 1.0)


def _model_has(method):
    """Tell whether the classifier has a method, for those that depend on it."""

    def check(self):
        fitted = getattr(self, "estimator_", None)
        model = self._chosen_estimator()
        try:
            getattr(model if fitted is None else fitted, method)
        except AttributeError as error:
            way_out = _WAYS_OUT[method]
            message = must("estimator", f"have {method}", way_out, estimator=model)
            raise AttributeError(message) from error
        return True

    return check


@inherit_documentation
class ExpectedPredictionClassifier(ClassifierMixin, ExpectedPredictionMixin):
    """Expected predictions of any classifier on rows with missing values.

    For a row with missing values, the probabilities of the classes are E[P(y | x) | observed
    values] under a density of the rows, where P(y | x) is the probability given by the fitted
    classifier. For a complete row they are P(y | x). If values are missing at random and the
    classifier is correct on complete rows, this is exactly P(y | observed values) by the tower
    property. Since few classifiers are correct on complete rows, the expected probabilities are by
    default stacked with those of models of incomplete rows. Their pool, a weighted mean of square
    roots [2]_, is less confident than its components and is sharpened by a power [3]_.

    Parameters
    ----------
    estimator : estimator, default=None
        The model whose expected predictions are computed. A clone of it is fitted. A
        `sklearn.frozen.FrozenEstimator` is used as it is, so that only the density is learned. None
        uses kernel logistic regression (`Nystroem`) on standardised and one-hot encoded columns.
    tol : float, default=0.03
        Standard error at which drawing stops: of probabilities, or in standard deviations of the
        decision function.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,) or list of such arrays
        The classes, or a list of the classes of each target if there are several.

    See Also
    --------
    ExpectedPredictionRegressor : The same for regressors.
    CircuitImputer : Completes the missing values instead.

    Notes
    -----
    The predicted class of a row with missing values is the one with the largest expected
    probability. For a classifier without `predict_proba`, it is the one with the largest expected
    decision function. For a classifier with neither, it is the class that the classifier predicts
    with the largest probability.

    `decision_function` and `value_of_measuring` are those of the expected prediction alone. With
    stacking, complete rows also get the probabilities of the classifier, so that predictions may
    change abruptly when the last missing cell of a row is observed.

    References
    ----------
    .. [1] Yao, Vehtari, Simpson and Gelman, "Using Stacking to Average Bayesian Predictive
       Distributions", Bayesian Analysis 13, 2018.
    .. [2] Garg, Jayram, Vaithyanathan and Zhu, "Generalized Opinion Pooling", AI & Math 2004.
    .. [3] Ranjan and Gneiting, "Combining Probability Forecasts", JRSS B 72, 2010.

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

    def predict(self, X):
        """Predict the class of each row.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            The class with the largest expected probability; for complete rows, the prediction of
            the classifier.
        """
        table, encoded = self._read_rows(X)
        model = last_step(self.estimator_)
        if isinstance(model, FixedThresholdClassifier | TunedThresholdClassifierCV):
            # The threshold decides about expected answers
            decider = copy(model)
            decider.estimator_ = self
            return decider.predict(X)
        complete = ~np.isnan(encoded).any(axis=1)
        # Complete rows have the model's own labels, which need not be an argmax
        if complete.all() and len(self.estimators_) == 1:
            return self._own_labels(table)
        method = self._responses[0]
        predicted = self._classes_of(self._respond_to(table, encoded, method).mean, method)
        if complete.any() and len(self.estimators_) == 1:
            predicted[complete] = self._own_labels(_safe_indexing(table, complete))
        return predicted

    def _own_labels(self, table):
        """Labels of the classifier; some libraries return a column for a single target."""
        labels = ask(self.estimator_, "predict", table)
        has_targets = self._is_multilabel or isinstance(self.classes_, list)
        return labels if has_targets else labels.reshape(-1)

    def _classes_of(self, answers, method):
        """Classes with the largest answers (n, k) to a method."""
        decides = method == "decision_function"
        if self._is_multilabel:
            chosen = (answers > (0.0 if decides else 0.5)).astype(int)
            if not isinstance(self.classes_, list):
                return chosen
            return np.stack([c[own] for c, own in zip(self.classes_, chosen.T)], axis=1)
        if isinstance(self.classes_, list):
            parts = np.split(answers, np.cumsum([len(c) for c in self.classes_])[:-1], axis=1)
            labels = [c[part.argmax(axis=1)] for c, part in zip(self.classes_, parts)]
            return np.stack(labels, axis=1)
        if decides and answers.shape[1] == 1:
            return self.classes_[(answers[:, 0] > 0).astype(int)]
        if decides and self._decides_pairs:
            answers = _votes_of_pairs(answers, len(self.classes_))
        return self.classes_[answers.argmax(axis=1)]

    @available_if(_model_has("predict_proba"))
    def predict_proba(self, X):
        """Predict the probability of each class.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or list of such arrays
            E[P(y | x) | observed values], stacked for incomplete rows if `stacking`. A list of such
            arrays if there are several targets.

        Warns
        -----
        ConvergenceWarning
            If the standard error is above `tol` after `n_draws` draws.
        """
        answers = self._respond(X, "predict_proba").mean
        if isinstance(self.classes_, list) and not self._is_multilabel:
            return np.split(answers, np.cumsum([len(c) for c in self.classes_])[:-1], axis=1)
        return answers

    @available_if(_model_has("predict_proba"))
    def predict_log_proba(self, X):
        """Compute the logarithms of the probabilities of `predict_proba`.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or list of such arrays
            Log probability of each class.
        """
        probabilities = self.predict_proba(X)
        if isinstance(probabilities, list):
            return [safe_log(own) for own in probabilities]
        return safe_log(probabilities)

    @available_if(_model_has("decision_function"))
    def decision_function(self, X):
        """Compute the expected decision function.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            E[f(x) | observed values], where f is the decision function of the classifier.

        Warns
        -----
        ConvergenceWarning
            If the standard error is above `tol` after `n_draws` draws.
        """
        answers = self._respond(X, "decision_function").mean
        return answers[:, 0] if answers.shape[1] == 1 else answers

    def score(self, X, y, sample_weight=None):
        """Compute the accuracy: the fraction of rows with correct classes of all targets.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            True classes.
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
        """Methods of the classifier, in order of preference."""
        methods = [m for m in ANSWERS if hasattr(self.estimator_, m)]
        return methods or ["votes"]

    def _check_targets(self, y, X):
        try:
            check_classification_targets(y)
        except (TypeError, ValueError) as error:
            labels = [] if y is None else np.ravel(np.asarray(y, dtype=object)).tolist()
            n_missing = sum(map(is_missing, labels))
            if n_missing:
                way_out = "Leave out the rows whose label is missing."
                condition = "have a label in every row"
                raise invalid("y", condition, way_out, n_missing=n_missing) from error
            types = sorted({type(label).__name__ for label in labels})
            if isinstance(error, ValueError) and len(types) <= 1:
                raise
            way_out = f"Convert its labels to one type ({error})."
            raise type(error)(
                must("y", "have classes of one type", way_out, types=types)
            ) from error
        y = self._check_target(y, X, multi_output=True, numeric=False)
        y = y.reshape(len(y), -1)
        # Codes, so that targets can be columns of the joint table
        columns = [np.unique(column, return_inverse=True)[1] for column in y.T]
        return np.stack(columns, axis=1).astype(np.float64), np.ones(len(columns), dtype=bool)

    def _answer_scales(self, models, y):
        drawn = self.circuit_.sample(N_TRIALS, random_state=0)
        rows = self._rows(np.full_like(drawn, np.nan)).completed(drawn)
        table, (model, *_) = self._to_table(rows), models
        labels = ask(model, "predict", table)
        method = next((m for m in ANSWERS if hasattr(model, m)), None)
        answers = ask(model, method, table) if method else labels
        self.classes_ = classes_of(model)
        # Labels that do not exclude each other have a column each in one array of answers
        has_targets = isinstance(answers if method else self.classes_, list)
        columns = () if has_targets else np.shape(answers)
        self._is_multilabel = np.ndim(labels) == 2 and columns == np.shape(labels)
        if method == "predict_proba" and not self._is_multilabel:
            _check_columns(answers, self.classes_, model)
        self._decides_pairs = np.ndim(labels) == 1 and _decides_pairs(model, table, labels)
        if not hasattr(model, "decision_function"):
            return {}
        return {"decision_function": _spread(ask(model, "decision_function", table))}

    def _default_estimator(self, y):
        """Make a kernel logistic regression on landmarks: its probabilities need no calibration."""
        n_rows = 1 if y is None else len(y)
        landmarks = Nystroem(n_components=min(MAX_LANDMARKS, n_rows), random_state=0)
        classifier = LogisticRegression(C=10.0, max_iter=1000)
        model = make_pipeline(column_encoder(self._known_columns), landmarks, classifier)
        # Whatever users ask of their own transformers: one-hot columns are sparse
        model.set_output(transform="default")
        return MultiOutputClassifier(model) if np.ndim(y) == 2 else model


SCALE_ROWS = 512  # draws that determine the scale of a frozen model's predictions


@inherit_documentation
class ExpectedPredictionRegressor(RegressorMixin, ExpectedPredictionMixin):
    """Expected predictions of any regressor on rows with missing values.

    For a row with missing values, the prediction is E[f(x) | observed values] under a density of
    the rows, where f is the fitted regressor. For a complete row it is f(x). If the regressor is
    correct on complete rows, this is E[y | observed values]. Since few regressors are correct,
    expectations are by default stacked with the predictions of models of incomplete rows.

    Parameters
    ----------
    estimator : estimator, default=None
        The model whose expected predictions are computed. A clone of it is fitted. A
        `sklearn.frozen.FrozenEstimator` is used as it is, so that only the density is learned. None
        uses support vector regression of the standardised target on standardised and one-hot
        encoded columns.
    tol : float, default=0.03
        Standard error at which drawing stops, in standard deviations of the target.

    See Also
    --------
    ExpectedPredictionClassifier : The same for classifiers.
    ExpectedPredictionSVR : Support vector regression that learns from the kernel mean embeddings
        of incomplete rows.
    CircuitImputer : Completes the missing values instead.

    Notes
    -----
    The expectation assumes that values are missing at random given the observed ones, and is only
    as accurate as the density.

    Standard deviations, `standard_error` and `value_of_measuring` are those of the expected
    prediction. With stacking, complete rows also get the prediction of the regressor, so that
    predictions may change abruptly when the last missing value of a row is observed.

    References
    ----------
    .. [1] Breiman, "Stacked Regressions", Machine Learning 24, 1996.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import RidgeCV
    >>> from skcircuits import ExpectedPredictionRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ExpectedPredictionRegressor(RidgeCV(), random_state=0).fit(X, y)
    >>> X[0, 2:5] = np.nan
    >>> mean, std = model.predict(X[:1], return_std=True)
    >>> mean.shape, bool(std[0] > 0)
    ((1,), True)
    """

    _responses = ("predict",)

    def predict(self, X, return_std=False):
        """Predict the expected target of each row.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.
        return_std : bool, default=False
            Whether to also return the standard deviation of the prediction that is due to the
            missing values. It does not include the noise of the target.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            E[f(x) | observed values], stacked for incomplete rows if `stacking`.
        std : ndarray of the same shape
            Standard deviation of f(x) given the observed values, 0 for complete rows. Returned only
            with ``return_std=True``.

        Warns
        -----
        ConvergenceWarning
            If the standard error of the mean, or of the standard deviation, is above `tol` after
            `n_draws` draws.
        UserWarning
            If the observed values of some rows have probability zero under the density.
        """
        moments = self._respond(X, "predict", with_variance=return_std)
        mean = self._in_shape_of_target(moments.mean)
        if not return_std:
            return mean
        return mean, self._in_shape_of_target(np.sqrt(moments.variance))

    def _in_shape_of_target(self, values):
        return values[:, 0] if self._target_is_vector else values

    def _check_targets(self, y, X):
        y = self._check_target(y, X, multi_output=True)
        y = y.reshape(len(y), -1)
        return y, np.zeros(y.shape[1], dtype=bool)

    def _answer_scales(self, models, y):
        drawn = self.circuit_.sample(SCALE_ROWS, random_state=0)
        drawn = self._rows(np.full_like(drawn, np.nan)).completed(drawn)
        answers = ask(models[0], "predict", self._to_table(drawn))
        self._target_is_vector = answers.ndim == 1
        # Draws stop at an error relative to the spread of answers; a constant model needs none
        return {"predict": _spread(answers if y is None else np.asarray(y, dtype=np.float64))}

    def _default_estimator(self, y):
        """Make a support vector regression of the standardised target."""
        model = make_pipeline(column_encoder(self._known_columns), SVR(C=3.0, epsilon=0.05))
        # Whatever users ask of their own transformers: one-hot columns are sparse
        model.set_output(transform="default")
        if np.ndim(y) == 2:
            model = MultiOutputRegressor(model)
        scaler = StandardScaler().set_output(transform="default")
        return TransformedTargetRegressor(model, transformer=scaler)
