"""Regression on rows with missing values: expected predictions of any regressor."""

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from skcircuits.estimators._base import inherit_documentation
from skcircuits.estimators.prediction._expected_prediction import (
    ExpectedPredictionMixin,
    column_encoder,
)

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
        drawn = self.circuit_.sample(SCALE_ROWS, random_state=0)
        drawn = self._rows(np.full_like(drawn, np.nan)).completed(drawn)
        answers = models[0].predict(self._to_table(drawn))
        self._target_is_vector = answers.ndim == 1
        # Draws stop at an error relative to the spread of answers; a constant model needs none
        spread = np.std(answers if y is None else np.asarray(y, dtype=np.float64), axis=0)
        return np.where(spread > 0, spread, 1.0)

    def _default_estimator(self, y):
        """Make a support vector regression of the standardised target."""
        model = make_pipeline(column_encoder(self._known_columns), SVR(C=3.0, epsilon=0.05))
        if np.ndim(y) == 2:
            model = MultiOutputRegressor(model)
        return TransformedTargetRegressor(model, transformer=StandardScaler())
