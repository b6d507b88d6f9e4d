"""Rubin's rules, which pool the analyses of several imputed tables."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.special import expit

from skcircuits.exceptions import invalid, must, needs_extra
from skcircuits.numerics._arrays import float_array, listed

# Newton's step, in standard errors, from coefficients that count as a maximum of the likelihood
MAX_STEP = 0.5


@dataclass(frozen=True)
class PooledEstimate:
    """An estimate that is pooled over imputed tables, as returned by `pool` and `pool_models`.

    Attributes
    ----------
    estimate : ndarray of shape (k,)
        Mean of the estimates.
    variance : ndarray of shape (k,)
        Total variance: within plus between imputations.
    within, between : ndarray of shape (k,)
        Mean of the variances, and variance of the estimates.
    degrees_of_freedom : ndarray of shape (k,)
        Degrees of freedom of the t distribution of the estimate; infinite if the imputations agree.
    fraction_missing_information : ndarray of shape (k,)
        Fraction of the information about each estimate that is missing because of the missing
        values.
    names : tuple of str
        Names of the estimates; empty if none are known.

    Examples
    --------
    >>> from skcircuits import pool
    >>> pool([1.0, 1.2, 0.9], [0.04, 0.05, 0.04]).interval(0.95).round(2)
    array([[0.44, 1.63]])
    """

    estimate: np.ndarray
    variance: np.ndarray
    within: np.ndarray
    between: np.ndarray
    degrees_of_freedom: np.ndarray
    fraction_missing_information: np.ndarray
    names: tuple = ()

    @property
    def standard_error(self):
        """Square root of the total variance, shape (k,)."""
        return np.sqrt(self.variance)

    def interval(self, level=0.95):
        """Compute confidence intervals.

        Parameters
        ----------
        level : float, default=0.95
            Confidence level, between 0 and 1.

        Returns
        -------
        ndarray of shape (k, 2)
            Lower and upper ends.
        """
        if not 0 < level < 1:
            raise invalid("level", "lie between 0 and 1", level=level)
        half = stats.t.ppf((1 + level) / 2, self.degrees_of_freedom) * self.standard_error
        return np.stack([self.estimate - half, self.estimate + half], axis=1)

    def p_value(self, null=0.0):
        """Compute two-sided p-values of a null hypothesis.

        Parameters
        ----------
        null : float or array-like of shape (k,), default=0.0
            Value of the estimate under the null hypothesis.

        Returns
        -------
        ndarray of shape (k,)
            Probabilities of an estimate that is at least as far from this value.
        """
        distance = np.abs(self.estimate - null) / self.standard_error
        return 2 * stats.t.sf(distance, self.degrees_of_freedom)

    def summary(self, level=0.95):
        """Summarise the estimates in a table.

        Parameters
        ----------
        level : float, default=0.95
            Confidence level of the intervals.

        Returns
        -------
        DataFrame
            A row for each estimate with its value, its standard error, the ends of its confidence
            interval, the p-value of the null hypothesis that it is zero, and the fraction of
            missing information.
        """
        with needs_extra("pandas", "examples"):
            import pandas as pd

        lower, upper = self.interval(level).T
        columns = {
            "estimate": self.estimate,
            "standard_error": self.standard_error,
            "lower": lower,
            "upper": upper,
            "p_value": self.p_value(),
            "missing_information": self.fraction_missing_information,
        }
        return pd.DataFrame(columns, index=list(self.names) or None)


def pool(estimates, variances, *, complete_degrees_of_freedom=None, names=()):
    """Pool estimates from several imputed tables by Rubin's rules.

    Parameters
    ----------
    estimates : array-like of shape (m,) or (m, k)
        Estimates from each of m >= 2 imputed tables.
    variances : array-like of the same shape
        Their squared standard errors.
    complete_degrees_of_freedom : float, default=None
        Degrees of freedom of the analysis of a complete table, such as n - k for a linear
        regression. The t intervals are then those of Barnard and Rubin [2]_. None assumes large
        samples.
    names : sequence of str, default=()
        Names of the k estimates.

    Returns
    -------
    PooledEstimate
        Pooled estimates with their variances, intervals and p-values.

    Raises
    ------
    ValueError
        If there are fewer than two tables, shapes differ, or a variance or the degrees of freedom
        are not positive.
    TypeError
        If the names are not a sequence.

    References
    ----------
    .. [1] Rubin, "Multiple Imputation for Nonresponse in Surveys", Wiley, 1987.
    .. [2] Barnard and Rubin, "Small-Sample Degrees of Freedom with Multiple Imputation",
       Biometrika 86, 1999.

    Examples
    --------
    >>> from skcircuits import pool
    >>> pooled = pool([[1.0, 5.0], [1.2, 5.4], [0.9, 5.1]], [[0.04, 0.1]] * 3)
    >>> pooled.estimate.round(3), pooled.standard_error.round(3)
    (array([1.033, 5.167]), array([0.267, 0.397]))
    """
    estimates, variances = _checked(estimates, variances)
    if not isinstance(names, Iterable):
        raise TypeError(must("names", "be a sequence of strings", names=names))
    names = (names,) if isinstance(names, str) else tuple(names)
    if names and len(names) != estimates.shape[1]:
        raise invalid("names", f"be one for each of {estimates.shape[1]}", names=names)
    m = len(estimates)
    within, between = variances.mean(axis=0), estimates.var(axis=0, ddof=1)
    # Rubin (1987): m tables estimate the variance between tables with an error of its own
    from_missing = (1 + 1 / m) * between
    total = within + from_missing
    fraction = from_missing / total
    with np.errstate(divide="ignore"):
        # If the tables agree, no information is missing: a normal distribution
        freedom = (m - 1) / fraction**2
    nu = np.inf if complete_degrees_of_freedom is None else float(complete_degrees_of_freedom)
    if not nu > 0:
        raise invalid("complete_degrees_of_freedom", "be positive", complete_degrees_of_freedom=nu)
    if np.isfinite(nu):
        # Barnard and Rubin (1999): small tables have few degrees of freedom even without missing
        # values
        observed = (nu + 1) / (nu + 3) * nu * (1 - fraction)
        freedom = 1 / (1 / freedom + 1 / observed)
    ratio = from_missing / within
    missing_information = (ratio + 2 / (freedom + 3)) / (ratio + 1)
    return PooledEstimate(
        estimates.mean(axis=0),
        total,
        within,
        between,
        freedom,
        missing_information,
        names,
    )


def pool_models(models, X, y):
    """Pool the coefficients of linear models fitted to several imputed tables.

    Parameters
    ----------
    models : sequence of LinearRegression or binary LogisticRegression
        One fitted model without penalty for each imputed table.
    X : sequence of array-like of shape (n, d)
        The imputed tables to which the models were fitted.
    y : array-like of shape (n,), or sequence of such
        The target, which is common to all tables, or one target for each table.

    Returns
    -------
    PooledEstimate
        Intercept (if fitted) and coefficients, with their names.

    Raises
    ------
    ValueError
        If a model has another type or is penalised, if the numbers of models and tables differ, if
        columns are linearly dependent, or if a model does not maximise the likelihood of its table,
        for instance since it was fitted with weights or has not converged.

    Notes
    -----
    Variances are those of ordinary least squares for linear regression and of maximum likelihood
    (the inverse Fisher information) for logistic regression, with the degrees of freedom of Barnard
    and Rubin.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from skcircuits import CircuitImputer, GaussianMixtureDensity, pool_models
    >>> rng = np.random.default_rng(0)
    >>> table = rng.normal(size=(200, 3)) @ [[1.0, 0.5, 1.5], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    >>> table[:, :2][rng.random((200, 2)) < 0.2] = np.nan
    >>> density = GaussianMixtureDensity(n_components=1)
    >>> imputer = CircuitImputer(density=density, random_state=0).fit(table)
    >>> tables = imputer.sample_imputations(table, 10)
    >>> models = [LinearRegression().fit(t[:, :2], t[:, 2]) for t in tables]
    >>> pooled = pool_models(models, tables[..., :2], tables[..., 2])
    >>> bool((pooled.interval(0.99)[1:] @ [1, -1] < 0).all())
    True
    """
    models, tables, outcomes = (
        list(listed(values, name)) for name, values in (("models", models), ("X", X), ("y", y))
    )
    if not models:
        raise invalid("models", "hold one fitted model per imputed table", models=models)
    # One target for all tables, or one for each
    targets = [y] * len(models) if np.ndim(outcomes[:1]) <= 1 else outcomes
    if not len(models) == len(tables) == len(targets):
        raise invalid(
            "models",
            "be as many as the tables and targets",
            n_models=len(models),
            n_tables=len(tables),
            n_targets=len(targets),
        )
    results = [_coefficients(*fit) for fit in zip(models, tables, targets, strict=True)]
    estimates, variances = (np.stack(part) for part in zip(*results, strict=True))
    names = _names(models[0], estimates.shape[1])
    freedom = np.shape(tables[0])[0] - estimates.shape[1]
    return pool(estimates, variances, complete_degrees_of_freedom=freedom, names=names)


def _checked(estimates, variances):
    """Check estimates and variances, each as an array of shape (m, k)."""
    estimates = float_array(estimates, "estimates")
    variances = float_array(variances, "variances")
    # Between-imputation variance needs two tables
    is_table = estimates.shape == variances.shape and estimates.ndim in (1, 2)
    if not is_table or len(estimates) < 2 or not estimates.size:
        what = "estimates and variances"
        condition = "have one shape (m,) or (m, k), m >= 2 imputed tables and k >= 1 estimates"
        way_out = "Draw more imputations."
        raise invalid(what, condition, way_out, shapes=(estimates.shape, variances.shape))
    if not (np.isfinite(estimates).all() and np.isfinite(variances).all() and variances.min() > 0):
        condition = "be finite, variances positive"
        raise invalid(
            "estimates and variances", condition, smallest_variance=float(variances.min())
        )
    return estimates.reshape(len(estimates), -1), variances.reshape(len(variances), -1)


def _coefficients(model, X, y):
    """Coefficients of one model, intercept first, and their variances."""
    kind = type(model).__name__
    # Penalised coefficients have no variances of the usual kind
    penalty = getattr(model, "C", np.inf) if kind == "LogisticRegression" else np.inf
    if kind not in ("LinearRegression", "LogisticRegression") or np.isfinite(penalty):
        condition = "be LinearRegression, or LogisticRegression with C=np.inf"
        way_out = "Compute variances yourself and use pool(estimates, variances)."
        raise invalid("models", condition, way_out, model=model)
    X, y, coefficients = float_array(X, "X"), np.ravel(y), np.ravel(model.coef_)
    if np.ndim(model.coef_) == 2 and len(model.coef_) > 1:
        raise invalid("models", "have one output", n_outputs=len(model.coef_))
    if model.fit_intercept:
        X = np.column_stack([np.ones(len(X)), X])
        coefficients = np.concatenate([np.ravel(model.intercept_), coefficients])
    if X.shape != (len(y), len(coefficients)):
        condition = f"be the {len(y)} rows and the columns that its model was fitted to"
        raise invalid("Every table of X", condition, shape=X.shape, model=model)
    _require_enough_rows(X)
    gradient, information = _derivatives(model, X, y, X @ coefficients)
    covariance = np.linalg.inv(information)
    variances = np.diag(covariance)
    # A maximum of the likelihood is where Newton's method stays
    if (np.abs(covariance @ gradient) > MAX_STEP * np.sqrt(variances)).any():
        condition = "maximise the likelihood of its table and target"
        way_out = "Fit it to them without weights and constraints, with columns in the same order."
        raise invalid("Every model", condition, way_out, model=model)
    return coefficients, variances


def _require_enough_rows(X):
    """Refuse designs (n, k) that do not determine the coefficients and their variances."""
    scales = np.abs(X).max(axis=0)
    rank = np.linalg.matrix_rank(X / np.where(scales > 0, scales, 1.0))
    if rank < X.shape[1] or len(X) <= rank:
        condition = "be linearly independent, with the intercept, and fewer than the rows"
        way_out = "Leave some columns out of the models."
        raise invalid(
            "Columns of X", condition, way_out, n_rows=len(X), n_columns=X.shape[1], rank=rank
        )


def _derivatives(model, X, y, score):
    """Gradient (k,) and Fisher information (k, k) of the log likelihood at coefficients."""
    if type(model).__name__ == "LinearRegression":
        residual = y.astype(np.float64) - score
        precision = (len(X) - X.shape[1]) / (residual @ residual)
        return X.T @ residual * precision, X.T @ X * precision
    probability = expit(score)
    weights = probability * (1 - probability)
    return X.T @ ((y == model.classes_[1]) - probability), (X * weights[:, None]).T @ X


def _names(model, n_coefficients):
    """Names of the coefficients, by the columns that a model was fitted on."""
    intercept = ["intercept"] if model.fit_intercept else []
    default = [f"x{j}" for j in range(n_coefficients - len(intercept))]
    return (*intercept, *getattr(model, "feature_names_in_", default))
