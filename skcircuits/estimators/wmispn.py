"""Density estimation on mixed tables by sum-product networks with polynomial leaves."""

from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skcircuits.estimators._base import (
    TABLE_CONSTRAINTS,
    Interval,
    RealNotInt,
    StrOptions,
    inherit_documentation,
)
from skcircuits.estimators.shared._density import CircuitDensity
from skcircuits.estimators.shared._fitting import drive, stages
from skcircuits.learning import expectation_maximization
from skcircuits.learning._polynomials import PolynomialSettings
from skcircuits.learning._sum_product import (
    LeafSettings,
    MixedTable,
    SplitSettings,
    held_out_scores,
    learn_structure,
    structure_to_circuit,
)
from skcircuits.tabular import column_mask
from skcircuits.tabular._schema import grouped_cardinalities, grouped_rows

# Levels of the tests that alpha="auto" compares on held-out rows, up to so many rows: with many,
# tests of any level find the dependence that matters.
_ALPHAS = (0.01, 0.1, 0.5)
_MAX_CHOICE_ROWS = 2000
_N_FOLDS = 3


@inherit_documentation
class WMISPNDensity(CircuitDensity):
    """Sum-product network with piecewise polynomial leaves, for mixed tables.

    LearnSPN [1]_ partitions the table into independent groups of columns and clusters of similar
    rows. Within a cluster, numerical columns have piecewise polynomial densities (B-splines whose
    order and intervals are chosen by an information criterion, or a single B-spline in small
    clusters), with exponential tails and with point masses at values that are repeated very often
    [2]_. Categories have categorical distributions. Missing cells are marginalised in `fit` and in
    queries. Probabilities of intervals and sets are exact.

    Parameters
    ----------
    n_bins : "bic" or int, default="bic"
        Number of polynomial pieces. ``"bic"`` chooses it, together with the degree, for each leaf
        by the Bayesian information criterion.
    binning : {"quantile", "uniform", "mean"}, default="quantile"
        Whether the pieces have equal weight, equal width, or are split at means.
    max_degree : int, default=6
        Maximum degree of the polynomials; 0 gives histograms.
    alpha : "auto" or float, default=0.05
        Level of the independence tests: the probability of finding any dependence among independent
        columns of a group. Each pair is tested at alpha divided by the number of pairs. In tables
        of a few hundred rows, tests with a small value overlook dependence. ``"auto"`` chooses the
        value among 0.01, 0.1 and 0.5 that maximises the likelihood of held-out rows in three-fold
        cross-validation (0.01 for tables of more than 2000 rows or of a single column); the fit
        takes about five times as long.
    min_samples_split : "auto", int or float, default="auto"
        Minimum number of rows, or fraction of all rows, of a group that is split further.
        ``"auto"`` is a quarter of a per cent of all rows, at least 10.
    smoothing : float, default=1.0
        Number of pseudo-counts in every leaf. For categories and point masses, they are distributed
        like the rows from which the group was split and, in part, like all rows; for densities they
        are uniform. For each categorical column, the number is multiplied by a factor between a
        twentieth and four that maximises the leave-one-out likelihood of the leaves; it is small if
        a number determines the category.
    leaf : {"polynomial", "histogram", "gaussian", "multivariate"}, default="polynomial"
        Distribution of numerical columns in a leaf. ``"multivariate"`` uses a joint normal
        distribution of the columns of a leaf (and splits rows only if the information criterion
        improves); columns with point masses always have polynomial densities.
    independence : {"g_test", "rdc"}, default="g_test"
        Test of independence: a G-test on categories and levels of numbers, with the degrees of
        freedom of the observed levels (or rank correlation for pairs of numerical columns with few
        rows), or a test on random features of ranks.
    point_masses : bool or "frequent", default=True
        Whether single numbers may have a positive probability. These are values that are repeated
        very often, and all points of the grid on which a column was recorded (integers, multiples
        of .005) if there are at most 256 points with at least ten rows each on average. Draws are
        then points of that grid. With ``"frequent"``, points of grids have densities, and if False,
        every number has. Only densities with equal `point_masses` can be compared and mixed.
    integer_features : "auto", None or array-like, default="auto"
        Numerical columns that are integer-valued: those with only integers in `fit`, none, or a
        mask, indices or names. Their draws are integers, and queries refer to integers: an interval
        contains all values that round to the integers inside.
    random_state : int, RandomState or None, default=None
        Controls the random features of ``independence="rdc"``.

    Attributes
    ----------
    circuit_ : Circuit
        The density, over the original units and the codes of ``categories_``.
    point_masses_ : list of ndarray
        For each column, the numbers with a positive probability.
    alpha_ : float
        The level of the tests.
    log_likelihood_ : float
        Mean log likelihood of the training rows (of 1000 of them, if there are more).
    resolutions_ : ndarray of shape (n_features_in_,)
        Resolution with which each numerical column was recorded; 0 for categorical columns.
    is_integer_ : ndarray of shape (n_features_in_,)
        Mask of the columns of integers.
    n_iter_ : int
        Number of groups that were examined.

    See Also
    --------
    GaussianMixtureDensity : For numerical columns with linear dependence.

    Notes
    -----
    ``score_samples`` adds log densities of numbers and log probabilities of categories and point
    masses; `score_components` returns them separately. A column without any observed cell has a
    uniform distribution on [-0.5, 0.5] with tails.

    If cells are missing, the structure is learned from the observed ones, and then all parameters
    by expectation maximisation.

    Ctrl-C during the fit keeps the groups that have been found so far; numerical columns then have
    histograms instead of polynomials.

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
        "point_masses": ["boolean", StrOptions({"frequent"})],
        "integer_features": ["array-like", StrOptions({"auto"}), None],
        **TABLE_CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        n_bins="bic",
        binning="quantile",
        max_degree=6,
        alpha=0.05,
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

    def _view_rows(self, rows):
        # Sums of the same numbers in another order differ by rounding
        return rows.in_canonical_order()

    def _fit_rows(self, rows, generator):
        self._mark_integers()
        groups = self._category_groups
        X, weights = grouped_rows(rows.X, groups), rows.weight
        point_masses = self.point_masses
        # Normal leaves are meant for numbers on a grid, too
        if point_masses is True and self.leaf in ("gaussian", "multivariate"):
            point_masses = "frequent"
        cardinalities = grouped_cardinalities(self._schema.cardinalities, groups)
        table = MixedTable.describe(X, weights, cardinalities, point_masses)
        leaves = self._leaf_settings()
        splits = self._choose_splits(table, leaves, generator)

        def circuit(root, leaves=leaves):
            return structure_to_circuit(table, root, leaves)

        with stages(self, "structure", "parameters") as (structure, parameters):
            result = drive(
                self,
                learn_structure(table, splits, generator),
                attributes=lambda root: {"circuit_": self._with_categories(circuit(root))},
                X=rows.X,
                context=structure,
                finish=circuit,
            )
            if result.finished is None:
                # Nothing slow follows an interrupt: polynomials take longer than structures
                learned = circuit(result.state, leaves.without_degrees())
            # Structures are learned from observed cells: parameters, too, until flows fill the
            # gaps
            elif rows.has_missing:
                steps = expectation_maximization(
                    result.finished, X, weights, pseudo_count=self.smoothing
                )
                learned = self._refine(steps, rows.X, parameters, self._with_categories)
            else:
                learned = result.finished
        self.circuit_ = self._with_categories(learned)
        self.log_likelihood_ = self._mean_log_likelihood(rows)
        self.n_iter_ = result.n_iter
        self.point_masses_ = [column.atoms for column in table.columns]
        self.resolutions_ = np.array([column.resolution for column in table.columns])

    def _choose_splits(self, table, leaves, generator):
        """The settings of the splits, `alpha` chosen on held-out rows where it is "auto"."""
        if self.alpha != "auto":
            self.alpha_ = float(self.alpha)
        elif len(table.X) > _MAX_CHOICE_ROWS or table.X.shape[1] == 1:
            self.alpha_ = _ALPHAS[0]
        else:
            # Histograms compare structures as well as polynomials in a small fraction of the time
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
        more = {"independence": self.independence, "joint": self.leaf == "multivariate"}
        least = self.min_samples_split
        if least != "auto":
            is_count = isinstance(least, Integral)
            more["min_weight"] = float(least if is_count else least * table.weights.sum())
        return SplitSettings.for_table(table, alpha, **more)

    def score_components(self, X):
        """Compute log densities of numbers and log probabilities of categories separately.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; missing cells are marginalised.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            Log density of the numbers without point mass, given the other cells.
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
        # Impossible categories cannot be conditioned on
        return np.where(np.isneginf(log_mass), 0.0, log_density), log_mass
