"""Support vector regression with exact expected predictions for rows with missing values."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.svm import SVR
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_memory

from skcircuits.circuits import Circuit
from skcircuits.estimators._base import (
    TABLE_CONSTRAINTS,
    HasMethods,
    Interval,
    KernelParametersMixin,
    StrOptions,
    check_is_fitted,
    check_weights,
    fit_context,
    inherit_documentation,
)
from skcircuits.estimators.automatic._inner_density import (
    DENSITY_CONSTRAINTS,
    InnerDensityMixin,
    MeasuringMixin,
)
from skcircuits.estimators.gaussian_mixture import GaussianMixtureDensity
from skcircuits.estimators.shared._completion import with_possible_evidence
from skcircuits.exceptions import invalid
from skcircuits.kernels import RBF, Hamming, Laplacian, expected_kernel_matrix
from skcircuits.kernels.families.base import Kernel, structure_of
from skcircuits.predictions import ExpectedResponse, KernelExpansion
from skcircuits.predictions._closed_forms import IncompleteRows, Response, explain
from skcircuits.predictions._expected_response import (
    MIN_DRAWS,
    VARIANCE,
    DrawBudget,
    value_of_measuring,
)

# Of the Gaussian mixture that density="auto" learns
_MAX_COMPONENTS = 8

_MAX_ITER = 10**7


@inherit_documentation
class ExpectedPredictionSVR(
    KernelParametersMixin,
    MeasuringMixin,
    InnerDensityMixin,
    RegressorMixin,
    BaseEstimator,
):
    """Support vector regression whose predictions are expectations over the missing values.

    For an incomplete row, the prediction is E[f(x) | observed cells]. It is computed exactly under
    a circuit that is learned from the training rows, without imputation or sampling. For a complete
    row, it is the prediction of an ordinary `sklearn.svm.SVR`.

    Parameters
    ----------
    kernel : {"rbf", "laplacian", "hamming"} or Kernel, default="rbf"
        The kernel between complete rows. With a string, categorical columns are treated like their
        one-hot encoding, so that each mismatch multiplies the kernel by ``exp(-2 * gamma)``.
        ``"hamming"`` requires that all columns are categorical. A kernel object is used as it is
        (``gamma`` must then have its default value); its variables are indices of columns. The
        parameters of a single kernel object can be tuned by names such as ``kernel__gamma``.
    gamma : {"scale", "auto"} or float, default="scale"
        Kernel coefficient. ``"scale"`` is 1 / (n_columns * variance of all cells) over the observed
        cells of the numerical and one-hot columns, and ``"auto"`` is 1 / n_columns.
    C : float, default=1.0
        Inverse strength of the regularisation.
    epsilon : float, default=0.1
        Half width of the tube in which errors have no penalty, in units of y.
    density : "auto", name of a density, density estimator or Circuit, default="auto"
        Distribution of the rows. ``"auto"`` is a `HiddenChowLiuDensity` if all columns hold
        categories or few (at most ten) frequent integers. For any other table it is a
        `GaussianMixtureDensity` of at most eight components that is chosen by the log density of
        held-out rows, from at most 200,000 rows (with diagonal covariances for
        ``kernel="laplacian"``, which has no closed form for other covariances); see ``density_``.
        Names are ``"gaussian_mixture"`` (the same mixture, from all rows), ``"latent_tree"``,
        ``"wmispn"``, ``"chow_liu"`` and ``"strudel"``. An estimator is cloned and fitted to X. A
        circuit with one variable per column is used as it is. Training on incomplete rows takes
        time in proportion to the pairs of components.
    memory : str or object with the joblib.Memory interface, default=None
        Cache for the fitted density, so that a grid search over ``C`` learns it only once.
    tol : float, default=1e-3
        Tolerance of the solver.
    shrinking : bool, default=True
        Whether the solver uses the shrinking heuristic.
    cache_size : float, default=200
        Size of the solver's kernel cache in MB.
    max_iter : int, default=-1
        Maximum number of iterations of the solver. -1 is the limit of LIBSVM, the larger of 10
        million and 100 per row.
    n_jobs : int, default=None
        Number of parallel jobs for kernel matrices; results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the density.
    verbose : int, default=0
        Verbosity of the solver.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel between complete rows.
    gamma_ : float or None
        Kernel coefficient, None if a kernel object was given.
    support_ : ndarray of shape (n_SV,)
        Indices of the support vectors in the training rows.
    support_vectors_ : ndarray of shape (n_SV, n_features)
        Encoded support vectors, with NaN for missing cells.
    dual_coef_ : ndarray of shape (1, n_SV)
        Coefficients of the support vectors.
    intercept_ : ndarray of shape (1,)
        Constant of the decision function.
    n_iter_ : int
        Iterations of the solver.
    method_ : str
        How rows with missing values are predicted.

    See Also
    --------
    CircuitImputer : Imputes the missing cells instead.
    sklearn.svm.SVR : The model for complete rows.

    Notes
    -----
    With f(x) = Σ_i α_i k(x, s_i) + b, the prediction is Σ_i α_i E[k(x, s_i) | x_o] + b: one
    expected kernel per support vector (Li et al., "Tractable Computation of Expected
    Kernels", UAI 2021, Prop. 4.1). Incomplete training rows enter through the Gram matrix
    of their kernel mean embeddings (`skcircuits.kernels.expected_kernel_matrix`).

    The expectation is exact under the learned density, and is only as accurate as that density. It
    assumes that cells are missing at random given the observed ones.

    Rows whose observed cells have probability zero under the circuit are predicted like rows
    without any observed cell, with a warning.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skcircuits import ExpectedPredictionSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), ExpectedPredictionSVR(C=100)).fit(X, y)
    >>> X[0, 2:5] = np.nan
    >>> model.predict(X[:1]).shape
    (1,)
    """

    _parameter_constraints: ClassVar[dict] = {
        **DENSITY_CONSTRAINTS,
        **TABLE_CONSTRAINTS,
        "kernel": [StrOptions({"rbf", "laplacian", "hamming"}), Kernel],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0.0, None, closed="neither")],
        "C": [Interval(Real, 0.0, None, closed="right")],
        "epsilon": [Interval(Real, 0.0, None, closed="left")],
        "memory": [None, str, HasMethods(["cache"])],
        "tol": [Interval(Real, 0.0, None, closed="neither")],
        "shrinking": ["boolean"],
        "cache_size": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, -1, None, closed="left")],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        *,
        kernel="rbf",
        gamma="scale",
        C=1.0,
        epsilon=0.1,
        density="auto",
        categorical_features="from_dtype",
        handle_unknown="missing",
        memory=None,
        tol=1e-3,
        shrinking=True,
        cache_size=200,
        max_iter=-1,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.epsilon = epsilon
        self.density = density
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.memory = memory
        self.tol = tol
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @fit_context
    def fit(self, X, y, sample_weight=None):
        """Learn the density of the rows and fit the regression.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Training rows; cells may be missing.
        y : array-like of shape (n_samples,)
            Target.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, for the density and the regression. To the density, weights that
            are not all integers count relative to their mean.

        Returns
        -------
        ExpectedPredictionSVR
            The fitted model.
        """
        n_columns = self._learn_table(X).shape[1]
        self._check_kernel_parameters(n_columns)
        y = self._check_target(y, X)
        sample_weight = check_weights(sample_weight, y)
        check_memory(self.memory)
        encoded = self._learn_density(X, sample_weight=sample_weight)
        if self._fills_empty_columns:
            self._warn_of_empty_columns("predictions do not depend on them")
        self._seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        # Rows of zero weight do not affect the scale either
        used = encoded if sample_weight is None else encoded[sample_weight > 0]
        self.kernel_ = self._make_kernel(used)
        self._check_closed_form(encoded)
        self._fit_regression(encoded, y, sample_weight)
        self._scale = float(np.std(y)) or 1.0
        self.method_ = explain(self._expansion, "", self.circuit_, self._schema.is_integral)
        return self

    def predict(self, X, return_std=False):
        """Predict the expected target of each row.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; cells may be missing.
        return_std : bool, default=False
            Whether to also return the standard deviation of the prediction that is due to the
            missing cells. It does not include the noise of the target. It is exact, up to a
            certified relative error of 1e-5, for kernels that consist of RBF and Hamming kernels.
            If support vectors have missing cells, it is estimated from draws, with a warning.

        Returns
        -------
        mean : ndarray of shape (n_samples,)
            E[f(x) | observed cells].
        std : ndarray of shape (n_samples,)
            Standard deviation of f(x) given the observed cells, 0 for complete rows. Returned only
            with ``return_std=True``.

        Warns
        -----
        UserWarning
            If the observed cells of some rows have probability zero.
        """
        check_is_fitted(self)
        encoded = self._read_table(X)
        # Complete rows need no density
        incomplete = np.isnan(encoded).any(axis=1, keepdims=True)
        encoded = np.where(incomplete, self._as_known(encoded), encoded)
        expansion = self._expansion
        mean = self._or_without_evidence(expansion.mean, encoded)[:, 0]
        if not return_std:
            return mean
        variance = self._or_without_evidence(expansion.variance, encoded)[:, 0]
        return mean, np.sqrt(variance)

    def explain_method(self):
        """Explain how the expectation is computed.

        Returns
        -------
        dict of str to str
            For ``"predict"``, ``"exact: <closed form>"``. Closed forms do not round missing
            integers.
        """
        check_is_fitted(self)
        return {"predict": self.method_}

    def _values_of_cells(self, encoded):
        """Give the values of the missing cells of incomplete rows, in units of the target."""
        budget = DrawBudget(MIN_DRAWS, np.inf, self._scale, self._seed, self.n_jobs)
        response = Response([self], "predict", self._schema.decode)
        expected = ExpectedResponse(response, self.circuit_, budget, self._expansion)

        def values(cells):
            rows = IncompleteRows(cells, cells, self._schema.is_integral)
            return value_of_measuring(expected, rows, VARIANCE, self._seed)

        return self._or_without_evidence(values, self._as_known(encoded)) / self._scale**2

    @property
    def _fills_empty_columns(self):
        return not isinstance(self.density, Circuit)  # which knows the distribution of all columns

    @property
    def _expansion(self):
        return KernelExpansion(
            self.support_vectors_,
            self.dual_coef_.T,
            self.intercept_,
            self.kernel_,
            self.circuit_,
            self.n_jobs,
        )

    def __sklearn_is_fitted__(self):
        return hasattr(self, "dual_coef_")

    def _check_kernel_parameters(self, n_columns):
        """Refuse kernels that do not fit to the parameters or the table, before any work."""
        is_default = isinstance(self.gamma, str) and self.gamma == "scale"
        if not isinstance(self.kernel, str) and not is_default:
            condition = "have its default value if kernel is a kernel object"
            way_out = "Set the coefficient of the kernel object itself."
            raise invalid("gamma", condition, way_out, gamma=self.gamma)
        if not isinstance(self.kernel, str):
            # It refuses kernels of variables that the table does not have
            structure_of(self.kernel, range(n_columns))
        numbers = np.flatnonzero(~self.is_categorical_)
        if isinstance(self.kernel, str) and self.kernel == "hamming" and len(numbers):
            raise invalid(
                "All columns",
                "hold labels for kernel='hamming'",
                "Name them in categorical_features, or use kernel='rbf'.",
                numeric_columns=[self._schema.names[j] for j in numbers],
            )

    def _check_closed_form(self, encoded):
        """Check in fit, before predict, whether the kernel can be integrated."""
        # A row without cells against a point asks for all closed forms at once
        nothing = np.full((1, encoded.shape[1]), np.nan)
        settings = {"circuit": self.circuit_, "kernel": self.kernel_}
        expected_kernel_matrix(nothing, np.zeros_like(nothing), **settings)

    def _named_density(self, encoded):
        """A density under which the kernel can be integrated, at bearable cost."""
        density = super()._named_density(encoded)
        if isinstance(density, GaussianMixtureDensity):
            # Kernels depend on the whole distribution of the missing cells, not on means alone.
            # Gram matrices of incomplete rows take all pairs of components
            density.set_params(selection="log_likelihood", pool=1, max_components=_MAX_COMPONENTS)
            if isinstance(self.kernel, str) and self.kernel == "laplacian":
                density.set_params(covariance_type="diag")  # joint Gaussians: no closed form
        return density

    def _make_kernel(self, encoded):
        """Make the kernel between complete rows; sets gamma_."""
        if not isinstance(self.kernel, str):
            self.gamma_ = None
            return self.kernel
        numbers = np.flatnonzero(~self.is_categorical_)
        labels = np.flatnonzero(self.is_categorical_)
        self.gamma_ = self._make_gamma(encoded)
        # One mismatch is two one-hot cells that differ by one.
        mismatches = Hamming(scale=0.5 / self.gamma_, variables=labels)
        if not len(numbers):
            return mismatches
        family = Laplacian if self.kernel == "laplacian" else RBF
        distance = family(gamma=self.gamma_, variables=numbers)
        return distance * mismatches if len(labels) else distance

    def _make_gamma(self, encoded):
        """Compute the kernel coefficient as scikit-learn does on [numeric, one-hot] columns."""
        if not isinstance(self.gamma, str):
            return float(self.gamma)
        # Columns without values in fit count as absent
        is_known = ~np.isin(np.arange(encoded.shape[1]), self._constant)
        expanded = self._one_hot(encoded, is_known)
        variance = np.nanvar(expanded) if self.gamma == "scale" and expanded.size else 1.0
        usable = np.isfinite(variance) and variance > 0
        return 1.0 / (max(expanded.shape[1], 1) * (float(variance) if usable else 1.0))

    def _one_hot(self, encoded, is_used=True):
        """Replace categorical columns by indicators of the categories that occur."""
        columns = [encoded[:, ~self.is_categorical_ & is_used]]
        for j in np.flatnonzero(self.is_categorical_ & is_used):
            codes = encoded[:, j, None]
            indicators = (codes == np.unique(codes[~np.isnan(codes)])).astype(np.float64)
            columns.append(np.where(np.isnan(codes), np.nan, indicators))
        return np.hstack(columns)

    def _fit_regression(self, encoded, y, sample_weight):
        """Solve the dual problem with scikit-learn's solver."""
        # Without a limit, a tolerance below rounding is a loop that Ctrl-C does not reach
        max_iter = self.max_iter if self.max_iter >= 0 else max(_MAX_ITER, 100 * len(y))
        solver = SVR(
            kernel="precomputed",
            C=self.C,
            epsilon=self.epsilon,
            tol=self.tol,
            shrinking=self.shrinking,
            cache_size=self.cache_size,
            max_iter=max_iter,
            verbose=bool(self.verbose),
        )
        used = np.arange(len(y))
        if sample_weight is not None:
            # The solver drops rows without weight, then counts support vectors among the rest
            used = np.flatnonzero(sample_weight)
            encoded, y, sample_weight = encoded[used], y[used], sample_weight[used]
        if self.kernel == "rbf" and not np.isnan(encoded).any():
            # The solver's own kernel needs no matrix of all pairs
            solver.set_params(kernel="rbf", gamma=self.gamma_)
            solver.fit(self._one_hot(encoded), y, sample_weight)
        else:
            settings = {"circuit": self.circuit_, "kernel": self.kernel_, "n_jobs": self.n_jobs}
            gram = self._or_without_evidence(
                lambda rows: expected_kernel_matrix(rows, **settings), encoded
            )
            solver.fit(gram, y, sample_weight)
        self.support_ = used[solver.support_]
        self.support_vectors_ = encoded[solver.support_]
        self.intercept_ = solver.intercept_
        self.n_iter_ = solver.n_iter_
        self.dual_coef_ = solver.dual_coef_  # the last: from here on the model is fitted

    def _or_without_evidence(self, answer, encoded):
        """Answer a query on rows; again without impossible evidence where there is some."""
        consequence = "they are treated as rows without any observed cell"
        return with_possible_evidence(answer, encoded, self._is_impossible, consequence)[0]

    def _is_impossible(self, encoded):
        """Tell which incomplete rows the density rules out; complete ones need no density."""
        incomplete = np.isnan(encoded).any(axis=1)
        impossible = np.zeros(len(encoded), dtype=bool)
        impossible[incomplete] = np.isneginf(self.circuit_.log_prob(encoded[incomplete]))
        return impossible
