"""Density estimation by Gaussian mixtures on tables with labels and missing cells."""

import warnings
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skcircuits.circuits import Categorical, Circuit, Gaussian, MultivariateGaussian, Product, Sum
from skcircuits.estimators._base import CATEGORICAL_CONSTRAINTS, Interval, StrOptions
from skcircuits.estimators.shared._density import CircuitDensity
from skcircuits.estimators.shared._fitting import drive
from skcircuits.learning.gaussian_mixture._learner import EMSettings, search_components
from skcircuits.learning.gaussian_mixture._table import MixtureTable

__all__ = ["GaussianMixtureDensity"]


class GaussianMixtureDensity(CircuitDensity):
    """Mixture of Gaussians learned from rows with missing cells.

    Each component is a Gaussian over the numeric columns times a distribution for each
    categorical column. Missing cells are marginalised exactly, in fit and ever after.

    Parameters
    ----------
    n_components : "bic" or int, default="bic"
        Number of components. ``"bic"`` tries 1, 2, ... up to `max_components` and takes the
        one with the lowest Bayesian information criterion, stopping when that has risen
        twice in a row.
    max_components : int, default=10
        Most components that ``n_components="bic"`` tries.
    covariance_type : {"full", "diag"}, default="full"
        Whether the numeric columns of a component may depend on one another.
    pseudo_count : float, default=0.1
        Weight of the prior, in rows per component: rows that vary as those of a single
        Gaussian do, within an equal share of its volume [1]_; labels with their frequencies
        in the data. A thousandth of a row of uncorrelated columns is always added: it keeps
        covariances positive definite whatever the rows, constant columns included.
    n_init : int, default=3
        Number of starts per number of components; the best after ten iterations goes on.
    max_iter : int, default=200
        Most iterations for one number of components.
    tol : float, default=1e-4
        Least gain of the lower bound, in nats per row, that an iteration must make.
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Which columns hold labels: by dtype, none, or a mask, indices or names.
    handle_unknown : {"missing", "error"}, default="missing"
        What a label that fit has not seen counts as.
    random_state : int, RandomState or None, default=None
        Source of the starts.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    circuit_ : Circuit
        The mixture, in original units and codes of labels.
    weights_ : ndarray of shape (n_components_,)
        Mixture weights.
    means_ : ndarray of shape (n_components_, n_numeric)
        Means of the numeric columns, in original units.
    covariances_ : ndarray of shape (n_components_, n_numeric, n_numeric) or \
            (n_components_, n_numeric)
        Covariances, or variances with ``covariance_type="diag"``.
    category_log_probs_ : list of ndarray of shape (n_components_, n_categories_j) or None
        Per column the log probabilities of its labels in each component, None for numbers.
    n_components_ : int
        Number of components.
    bic_ : dict of int to float
        Bayesian information criterion of the training rows for each number of components
        tried.
    lower_bound_ : float
        Log posterior per row, up to a constant, of the mixture before its last iteration.
    n_iter_ : int
        Iterations of the chosen mixture since its best start was chosen.
    converged_ : bool
        Whether they ended by themselves.
    is_categorical_ : ndarray of shape (n_features_in_,)
        Mask of the columns of labels.
    categories_ : list of ndarray or None
        Labels per column in the order of their codes, None for numbers.
    n_features_in_ : int
        Number of columns in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns in fit, where all are strings.

    See Also
    --------
    sklearn.mixture.GaussianMixture : For complete tables of numbers.
    CircuitImputer : Completes missing cells by such a density.

    Notes
    -----
    A column without any observed cell has a standard normal distribution. Rows without any
    observed cell say nothing and are left out, also of the number of rows in the criterion.

    References
    ----------
    .. [1] Fraley and Raftery, "Bayesian Regularization for Normal Mixture Estimation and
       Model-Based Clustering", Journal of Classification 24, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import GaussianMixtureDensity
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2)) + np.repeat([[0.0, 0.0], [6.0, 6.0]], 100, axis=0)
    >>> X[::5, 1] = np.nan
    >>> density = GaussianMixtureDensity(random_state=0).fit(X)
    >>> density.n_components_
    2
    >>> density.sample(3, random_state=0).shape
    (3, 2)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [StrOptions({"bic"}), Interval(Integral, 1, None, closed="left")],
        "max_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions({"full", "diag"})],
        "pseudo_count": [Interval(Real, 0, None, closed="neither")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        **CATEGORICAL_CONSTRAINTS,
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        n_components="bic",
        max_components=10,
        covariance_type="full",
        pseudo_count=0.1,
        n_init=3,
        max_iter=200,
        tol=1e-4,
        categorical_features="from_dtype",
        handle_unknown="missing",
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.max_components = max_components
        self.covariance_type = covariance_type
        self.pseudo_count = pseudo_count
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    def _fit_rows(self, rows, generator):
        table = MixtureTable.prepare(rows.X, self._schema.cardinalities, rows.weight)
        candidates = self._candidates(table)
        settings = EMSettings(
            self.covariance_type, self.pseudo_count, self.n_init, self.max_iter, self.tol
        )
        total_weight = table.weights.sum()
        self.bic_ = {}
        lowest = {}

        def score(state):
            """Note the criterion; the latest state of the best candidate so far wins."""
            bic = self.bic_[state.n_components] = state.bic(total_weight)
            lowest[state.n_components] = min(bic, lowest.get(state.n_components, np.inf))
            return -lowest[state.n_components]

        result = drive(
            self,
            search_components(table, candidates, settings, generator),
            score=score,
            attributes=lambda state: self._attributes(state, table),
            X=rows.X,
        )
        vars(self).update(self._attributes(result.state, table))
        # drive itself has warned of an interruption
        if result.converged and not self.converged_:
            warnings.warn(
                f"GaussianMixtureDensity did not converge in max_iter={self.max_iter} "
                "iterations. Increase max_iter or tol.",
                ConvergenceWarning,
                stacklevel=2,
            )

    def _candidates(self, table):
        """Numbers of components to try: never more than there are different rows."""
        if self.n_components == "bic":
            return range(1, max(1, min(self.max_components, len(table.weights))) + 1)
        return [self.n_components]

    def _attributes(self, state, table):
        """Fitted attributes of a state, in original units."""
        means, covariances = state.gaussians.in_units(table.location, table.scale)
        is_number = table.cardinalities == 0
        tables = iter(state.categories.log_probabilities)
        attributes = {
            "weights_": state.weights,
            "means_": means,
            "covariances_": covariances,
            "category_log_probs_": [None if number else next(tables) for number in is_number],
            "n_components_": state.n_components,
            "lower_bound_": state.lower_bound,
            "n_iter_": state.n_iter,
            "converged_": state.at_optimum,
        }
        return {**attributes, "circuit_": _as_circuit(attributes, np.flatnonzero(is_number))}


def _as_circuit(attributes, numeric_columns):
    """Write the mixture as a circuit: a sum of products of input units."""
    components = []
    for k in range(attributes["n_components_"]):
        factors = _gaussian_units(
            numeric_columns, attributes["means_"][k], attributes["covariances_"][k]
        )
        factors += [
            Categorical(j, np.exp(table[k]))
            for j, table in enumerate(attributes["category_log_probs_"])
            if table is not None
        ]
        components.append(factors[0] if len(factors) == 1 else Product(factors))
    if len(components) == 1:
        return Circuit(components[0])
    return Circuit(Sum(components, weights=attributes["weights_"]))


def _gaussian_units(columns, mean, covariance):
    """Input units of one component: one joint unit, or one per column."""
    if covariance.ndim == 2 and len(columns) > 1:
        return [MultivariateGaussian(tuple(columns.tolist()), mean, covariance)]
    stds = np.sqrt(covariance.ravel())
    return [Gaussian(int(j), mean[i], stds[i]) for i, j in enumerate(columns)]
