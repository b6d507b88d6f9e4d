"""Regression on rows with missing values: expected predictions of any regressor."""

from typing import ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from skcircuits.estimators._base import fit_context
from skcircuits.estimators._expected_prediction import (
    EXPECTED_PREDICTION_CONSTRAINTS,
    ExpectedPredictionMixin,
)
from skcircuits.predictions._default_models import default_regressor

__all__ = ["ExpectedPredictionRegressor"]


class ExpectedPredictionRegressor(RegressorMixin, ExpectedPredictionMixin):
    """Expected predictions of any regressor on rows with missing values.

    For a row with missing values the prediction is E[f(x) | observed values] under a density
    of the rows, f being the fitted regressor; for a complete row it is f(x).

    Parameters
    ----------
    estimator : estimator, default=None
        The model whose predictions are expected. A clone is fitted; a
        `sklearn.frozen.FrozenEstimator` is used as it is, so that only the density is learned.
        None takes support vector regression of the standardised target on
        standardised and one-hot encoded columns.
    density : "auto", density estimator or Circuit, default="auto"
        Distribution of the rows. ``"auto"`` chooses one for the table, an estimator is cloned
        and fitted on X, a circuit is used as it is, one variable per column.
    method : {"auto", "exact", "draws"}, default="auto"
        ``"auto"`` computes expectations in closed form where model and density have one (see
        `method_`), enumerates the completions of rows that miss few categories, and draws
        elsewhere. ``"exact"`` refuses models without closed form, ``"draws"`` always draws.
    n_draws : int, default=2000
        Most draws per row.
    tol : float, default=0.03
        Standard error at which drawing stops, in standard deviations of the target.
    n_completions : int, default=5
        Number of completed copies of training rows with missing values, each for one clone of
        the estimator. Missing values are drawn given the observed ones of the row and its
        target. 0 hands the rows to the estimator as they are.
    add_indicator : bool, default=False
        Give the model one more column per column with missing values in fit: 1 where the
        value is missing. The density is learned over these columns, too. For tables whose
        missing values tell something.
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Categorical columns: strings, booleans, categories and enumerations of a dataframe
        or object array, or a mask, indices or names.
    handle_unknown : {"missing", "error"}, default="missing"
        Whether a category that fit has not seen counts as a missing value or is refused.
    n_jobs : int, default=None
        Number of parallel jobs for draws; results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the density and of the draws. Draws are keyed by the values of the row, so
        that predictions do not depend on other rows.
    verbose : int, default=0
        Verbosity of the density.

    Attributes
    ----------
    estimators_ : list of estimator
        The fitted models, one per completed copy of the training rows; their predictions are
        averaged.
    estimator_ : estimator
        The first of them, and the only one where the training rows were complete.
    density_ : density estimator or None
        The fitted density, None where a circuit was given.
    circuit_ : Circuit
        Its circuit, in original units and codes into ``categories_``.
    method_ : str
        How rows with missing values are predicted, and why not in closed form.
    categories_ : list of ndarray or None
        Categories per column in the order of their codes, None for numbers.
    is_categorical_ : ndarray of shape (n_features_in_,)
        Mask of the categorical columns.
    n_features_in_ : int
        Number of columns in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns in fit, where all are strings.

    See Also
    --------
    ExpectedPredictionClassifier : The same for classifiers.
    ExpectedPredictionSVR : Support vector regression that learns from the kernel mean
        embeddings of incomplete rows.
    CircuitImputer : Completes the missing values instead.

    Notes
    -----
    The expectation assumes that values are missing at random given the observed ones; it is as
    good as the density.

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

    _parameter_constraints: ClassVar[dict] = EXPECTED_PREDICTION_CONSTRAINTS
    _responses = ("predict",)

    @fit_context
    def fit(self, X, y=None, sample_weight=None, **fit_params):
        """Fit the regressor, and learn the density of the rows.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Training rows; values may be missing.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Target; may be None for a frozen estimator.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, for the regressor and the density.
        **fit_params : dict
            Passed to the `fit` of the regressor.

        Returns
        -------
        ExpectedPredictionRegressor
            The fitted model.
        """
        self._fit(X, y, sample_weight, fit_params)
        return self

    def predict(self, X, return_std=False):
        """Predict the expected target of each row.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.
        return_std : bool, default=False
            Also return the standard deviation of the prediction that the missing values
            cause, noise excluded.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            E[f(x) | observed values].
        std : ndarray of the same shape
            Standard deviation of f(x) given the observed values, 0 for complete rows; only
            with ``return_std=True``.

        Warns
        -----
        ConvergenceWarning
            If `n_draws` draws leave a standard error above `tol`.
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

    def _answer_scale(self, models, y):
        drawn = self.circuit_.sample(_SCALE_ROWS, random_state=0)
        drawn = self._rows(np.full_like(drawn, np.nan)).completed(drawn)
        answers = models[0].predict(self._schema.decode(drawn))
        self._target_is_vector = answers.ndim == 1
        spread = np.std(answers if y is None else np.asarray(y, dtype=np.float64), axis=0)
        return np.where(spread > 0, spread, 1.0)

    def _default_estimator(self, y):
        known = hasattr(self, "_schema")
        is_categorical = self._schema.is_categorical if known else np.zeros(0, dtype=bool)
        return default_regressor(is_categorical, several_targets=np.ndim(y) == 2)


# Draws that tell the scale of a frozen model's answers
_SCALE_ROWS = 512
