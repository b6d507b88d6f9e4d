"""Density estimation on mixed tables by sum-product networks with polynomial leaves."""

from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.estimators._base import CATEGORICAL_CONSTRAINTS, Interval, RealNotInt, StrOptions
from skcircuits.estimators.shared._density import CircuitDensity
from skcircuits.estimators.shared._fitting import drive
from skcircuits.learning import expectation_maximization
from skcircuits.learning.sum_product._learner import (
    SplitSettings,
    held_out_scores,
    learn_structure,
    structure_to_unit,
)
from skcircuits.learning.sum_product._leaves import LeafSettings, MixedTable
from skcircuits.learning.univariate._columns import describe_column
from skcircuits.learning.univariate._polynomials import PolynomialSettings
from skcircuits.tabular import column_mask

# Levels of the tests that alpha="auto" compares on held-out rows, up to so many rows: with many,
# tests of any level find the dependence that matters.
_ALPHAS = (0.01, 0.1, 0.5)
_MAX_CHOICE_ROWS = 2000
_N_FOLDS = 3
# Groups of fewer rows, or of a smaller fraction, are not cut by default.
MIN_ROWS = 10
MIN_FRACTION = 0.0025


class WMISPNDensity(CircuitDensity):
    """Sum-product network with piecewise polynomial leaves, for mixed tables.

    LearnSPN [1]_ cuts the table into independent groups of columns and similar groups of
    rows. Within a group numbers have piecewise polynomial densities (B-splines whose order
    and intervals a criterion chooses, or a B-spline in small groups) with exponential tails and,
    where values repeat heavily, point masses [2]_; categories have categorical distributions.
    Missing cells are marginalised in fit and ever after; probabilities of intervals and sets
    are exact.

    Parameters
    ----------
    n_bins : "bic" or int, default="bic"
        Number of polynomial pieces. ``"bic"`` chooses it per leaf by the Bayesian
        information criterion, together with the degree.
    binning : {"quantile", "uniform", "mean"}, default="quantile"
        Pieces of equal weight, of equal width, or cut at means.
    max_degree : int, default=6
        Highest degree of the polynomials; 0 gives histograms.
    alpha : "auto" or float, default=0.01
        Probability of finding any dependence among independent columns of a group: each of
        its pairs is tested at alpha divided by their number. In tables of some hundred rows
        a small value overlooks dependence. ``"auto"`` takes the one of 0.01, 0.1 and 0.5
        under which the rows left out in three folds are most likely, and 0.01 for tables of
        more than 2000 rows; the fit takes about six times as long.
    min_samples_split : "auto", int or float, default="auto"
        Least number of rows, or fraction of all rows, that are cut further. ``"auto"``: a
        quarter of a percent of all rows, at least 10.
    smoothing : float, default=1.0
        Pseudo-rows in every leaf: for categories and point masses like the rows that its group
        was cut from and, in part, all rows; uniform for densities. Categories take a twentieth to
        four times as many, per column, whatever makes rows left out of their leaf likeliest: few
        where a number decides the category.
    leaf : {"polynomial", "histogram", "gaussian", "multivariate"}, default="polynomial"
        Distribution of numbers in a leaf. ``"multivariate"`` gives the columns of a leaf a
        joint normal distribution (and cuts rows only where the information criterion gains);
        columns with point masses keep polynomials in any case.
    independence : {"g_test", "rdc"}, default="g_test"
        Test of independence: a G-test on categories and levels of numbers, with the degrees of
        freedom of the levels observed (rank correlation for pairs of numbers with few rows),
        or random features of ranks.
    point_masses : bool, default=True
        Whether numbers that repeat heavily have a probability of their own, and so have all
        points of the grid that a column was recorded on (integers, multiples of .005) where
        there are at most 256, with ten rows each on average. Draws are points of that grid then.
        With False every number has a density, as a Gaussian mixture gives it, and the two can
        be compared and mixed.
    integer_features : "auto", None or array-like, default="auto"
        Which numerical columns are whole by nature: those that were in fit, none, or a
        mask, indices or names. Draws of them are whole, and queries about them mean whole
        numbers: an interval covers what rounds to those inside.
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Which columns hold categories: by dtype, none, or a mask, indices or names.
    handle_unknown : {"missing", "error"}, default="missing"
        What a category that fit has not seen counts as.
    random_state : int, RandomState or None, default=None
        Source of the features of ``independence="rdc"``.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    circuit_ : Circuit
        The density, in original units and codes of categories.
    point_masses_ : list of ndarray
        Per column the numbers that have a probability of their own.
    alpha_ : float
        The level of the tests.
    log_likelihood_ : float
        Mean log likelihood of the training rows, of 1000 of them where there are more.
    resolutions_ : ndarray of shape (n_features_in_,)
        How finely each numerical column was recorded, 0 for categories.
    is_integer_ : ndarray of shape (n_features_in_,)
        Mask of the columns of integers.
    is_categorical_ : ndarray of shape (n_features_in_,)
        Mask of the categorical columns.
    categories_ : list of ndarray or None
        Categories per column in the order of their codes, None for numbers.
    n_iter_ : int
        Groups that were examined.
    n_features_in_ : int
        Number of columns in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns in fit, where all are strings.

    See Also
    --------
    GaussianMixtureDensity : Where numerical columns depend linearly.

    Notes
    -----
    ``score_samples`` adds log densities of numbers and log masses of categories and point masses;
    `score_components` tells them apart. A column without any observed cell is uniform on
    [-0.5, 0.5], with tails.

    Where cells are missing, the structure is learned from the observed ones, then all
    parameters by expectation maximisation.

    Ctrl-C during the fit keeps the groups found so far; numbers then have histograms where
    they would have polynomials.

    References
    ----------
    .. [1] Gens and Domingos, "Learning the Structure of Sum-Product Networks", ICML 2013.
    .. [2] Bueff, Speichert and Belle, "Tractable Querying and Learning in Hybrid Domains via
       Sum-Product Networks", 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skcircuits import WMISPNDensity
    >>> rng = np.random.default_rng(0)
    >>> job = rng.choice(["cook", "nurse"], size=400)
    >>> wage = rng.normal(np.where(job == "nurse", 30.0, 20.0), 2.0)
    >>> density = WMISPNDensity().fit(pd.DataFrame({"job": job, "wage": wage}))
    >>> round(density.probability("wage > 25", given={"job": "nurse"}), 2)
    0.99
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_bins": [StrOptions({"bic"}), Interval(Integral, 1, None, closed="left")],
        "binning": [StrOptions({"quantile", "uniform", "mean"})],
        "max_degree": [Interval(Integral, 0, 6, closed="both")],
        "alpha": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both")],
        "min_samples_split": [
            StrOptions({"auto"}),
            Interval(Integral, 2, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
        ],
        "smoothing": [Interval(Real, 0, None, closed="neither")],
        "leaf": [StrOptions({"polynomial", "histogram", "gaussian", "multivariate"})],
        "independence": [StrOptions({"g_test", "rdc"})],
        "point_masses": ["boolean"],
        "integer_features": ["array-like", StrOptions({"auto"}), None],
        **CATEGORICAL_CONSTRAINTS,
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        n_bins="bic",
        binning="quantile",
        max_degree=6,
        alpha=0.01,
        min_samples_split="auto",
        smoothing=1.0,
        leaf="polynomial",
        independence="g_test",
        point_masses=True,
        integer_features="auto",
        categorical_features="from_dtype",
        handle_unknown="missing",
        random_state=None,
        verbose=0,
    ):
        self.n_bins = n_bins
        self.binning = binning
        self.max_degree = max_degree
        self.alpha = alpha
        self.min_samples_split = min_samples_split
        self.smoothing = smoothing
        self.leaf = leaf
        self.independence = independence
        self.point_masses = point_masses
        self.integer_features = integer_features
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    def _fit_rows(self, rows, generator):
        self._mark_integers()
        X, weights = rows.X, rows.weight
        # Whoever asks for normal distributions of numbers gets them for numbers on a grid too
        grid = self.leaf in ("polynomial", "histogram")
        columns = tuple(
            describe_column(j, X[:, j], weights, int(cardinality), self.point_masses, grid)
            for j, cardinality in enumerate(self._schema.cardinalities)
        )
        table = MixedTable(X, weights, columns)
        leaves = self._leaf_settings()

        splits = self._choose_splits(table, leaves, generator)

        def circuit(root, leaves=leaves):
            return Circuit(structure_to_unit(table, root, leaves))

        with self._stages("structure", "parameters") as (structure, parameters):
            result = drive(
                self,
                learn_structure(table, splits, generator),
                attributes=lambda root: {"circuit_": circuit(root)},
                X=X,
                context=structure,
                finish=circuit,
            )
            if result.finished is None:
                # Who interrupts does not wait for polynomials: they take longer than structures
                self.circuit_ = circuit(result.state, leaves.without_degrees())
            elif rows.has_missing:
                steps = expectation_maximization(
                    result.finished, X, weights, pseudo_count=self.smoothing
                )
                self.circuit_ = self._refine(steps, X, parameters)
            else:
                self.circuit_ = result.finished
        self.log_likelihood_ = self._mean_log_likelihood(rows)
        self.n_iter_ = result.n_iter
        self.point_masses_ = [column.atoms for column in columns]
        self.resolutions_ = np.array([column.resolution for column in columns])

    def _choose_splits(self, table, leaves, generator):
        """The settings of the splits, `alpha` chosen on held-out rows where it is "auto"."""
        if self.alpha != "auto":
            self.alpha_ = float(self.alpha)
        elif len(table.X) > _MAX_CHOICE_ROWS or table.X.shape[1] == 1:
            self.alpha_ = _ALPHAS[0]
        else:
            # Histograms tell structures apart as polynomials do, in a small part of the time
            plain = leaves.without_degrees()
            candidates = [(self._split_settings(table, alpha), plain) for alpha in _ALPHAS]
            scores = held_out_scores(table, candidates, _N_FOLDS, generator)
            self.alpha_ = _ALPHAS[int(scores.argmax())]
        return self._split_settings(table, self.alpha_)

    def _mark_integers(self):
        """Write into the schema which columns hold integers."""
        if not (isinstance(self.integer_features, str) and self.integer_features == "auto"):
            chosen = column_mask(
                self.integer_features,
                self._schema.names,
                parameter="integer_features",
                keyword="auto",
            )
            columns = tuple(
                replace(column, is_integral=column.categories is None and bool(is_chosen))
                for column, is_chosen in zip(self._schema.columns, chosen, strict=True)
            )
            self._set_schema(replace(self._schema, columns=columns))
        self.is_integer_ = self._schema.is_integral

    def _leaf_settings(self):
        degree = 0 if self.leaf == "histogram" else self.max_degree
        polynomials = PolynomialSettings(self.n_bins, self.binning, degree, self.smoothing)
        return LeafSettings(self.leaf, polynomials, self.smoothing)

    def _split_settings(self, table, alpha):
        least, total = self.min_samples_split, table.weights.sum()
        if least == "auto":
            least = max(MIN_ROWS, MIN_FRACTION * total)
        elif not isinstance(least, Integral):
            least = least * total
        is_joint = self.leaf == "multivariate"
        return SplitSettings(alpha, float(least), self.independence, is_joint)

    def score_components(self, X):
        """Log density of numbers and log mass of categories, apart.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; missing cells are marginalised.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            Log density of the numbers that are no point mass, given the other cells.
        log_mass : ndarray of shape (n_samples,)
            Log probability of the categories and of the numbers that are point masses. The two
            add up to ``score_samples(X)``.
        """
        X = self._read_table(X)
        is_mass = self.is_categorical_ | np.column_stack(
            [np.isin(X[:, j], atoms) for j, atoms in enumerate(self.point_masses_)]
        )
        log_mass = self._log_density(np.where(is_mass, X, np.nan))
        with np.errstate(invalid="ignore"):
            log_density = self._log_density(X) - log_mass
        # Impossible categories leave nothing to condition on
        return np.where(np.isneginf(log_mass), 0.0, log_density), log_mass
