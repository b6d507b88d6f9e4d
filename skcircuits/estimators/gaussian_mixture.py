"""Density estimation by Gaussian mixtures on mixed tables with missing values."""

from collections import Counter
from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skcircuits.circuits import (
    Categorical,
    Circuit,
    FactorGaussian,
    Gaussian,
    JohnsonGaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Product,
    Sum,
)
from skcircuits.estimators._base import (
    TABLE_CONSTRAINTS,
    Interval,
    Options,
    StrOptions,
    _num_samples,
    check_weights,
    fit_context,
    inherit_documentation,
)
from skcircuits.estimators.shared._density import CircuitDensity, check_observed
from skcircuits.estimators.shared._fitting import drive, warn_not_converged
from skcircuits.exceptions import invalid, warn
from skcircuits.learning._columns import describe_column
from skcircuits.learning.gaussian_mixture._candidates import (
    KERNELS,
    START_ROWS,
    Candidate,
    CandidateSpace,
    Comparison,
    choose_pool,
    grouped_columns,
    learn_pool,
    without_structure,
)
from skcircuits.learning.gaussian_mixture._categories import MAX_KERNEL_ROWS
from skcircuits.learning.gaussian_mixture._factor_gaussians import FactorGaussians
from skcircuits.learning.gaussian_mixture._learner import EMSettings, learn_more
from skcircuits.learning.gaussian_mixture._table import MixtureTable, fit_sinh_map
from skcircuits.tabular._columns import in_local_time
from skcircuits.tabular._schema import grouped_cardinalities, grouped_rows

# Nats over all rows that an iteration must gain, and most iterations, where parameters are drawn
_DRAW_TOL, _MAX_DRAW_ITERATIONS = 0.02, 2000
# Starts of each kind of mixture in a pool that are left out: some end in poor optima
_N_SPARE = 2
_FIRST_ROWS = 10  # of a first batch, for each component
# Rows whose frequent values are compared with what Gaussians make of them, and largest difference
_COMPARED_ROWS, _MAX_MISFIT = 2000, 0.05
# Standard deviations from where on a square leaves no digit of one
_MAX_DISTANCE = np.finfo(float).eps ** -0.5
_COVARIANCE_TYPES = {"full", "shrunk", "tied", "factor", "diag"}


@inherit_documentation
class GaussianMixtureDensity(CircuitDensity):
    """Gaussian mixture for mixed tables with missing values.

    Each component is the product of a Gaussian over the numerical columns and a categorical
    distribution for each categorical column. It is learned by EM from the observed cells; missing
    cells are marginalised exactly, in `fit` and in all queries. By default, the type of the
    covariances, the numbers of factors and components, and the number of restarts that are pooled
    into one mixture are chosen by how well candidates predict held-out rows; see ``selection_``.

    Parameters
    ----------
    n_components : "auto", "bic", "rows" or int, default="auto"
        Number of components of each mixture. ``"auto"`` chooses it on held-out rows. ``"bic"``
        tries 1, 2, ... up to `max_components` and selects the number with the lowest Bayesian
        information criterion, stopping when the criterion has increased twice in a row. ``"rows"``
        is a kernel density estimate with one component per training row, for tables of at most
        5,000 different rows. All its components share one covariance and, for each categorical
        column, the probability that a category differs from that of the row; both maximise the
        leave-one-out likelihood [4]_, of 400 rows if there are more. On small tables, it follows
        curved structure that few components cannot represent.
    covariance_type : {"auto", "full", "shrunk", "tied", "factor", "diag"}, default="auto"
        Type of the covariances of the numerical columns.

        - ``"full"``: one covariance per component, shrunk towards the covariance of a single
          component, scaled to an equal fraction of its volume [1]_.
        - ``"shrunk"``: one covariance per component, shrunk towards a common one, times a scale of
          the component.
        - ``"tied"``: one covariance for all components, shrunk towards its diagonal.
        - ``"factor"``: one covariance of low rank plus a diagonal for all components (factor
          analysis [2]_), which can be learned from wide tables.
        - ``"diag"``: independent columns within each component.

        The amount of shrinkage is learned from the rows.
    n_factors : "auto" or int, default="auto"
        Number of factors of ``covariance_type="factor"``.
    max_components : int, default=32
        Maximum number of components of one mixture that is tried.
    location_model : "auto" or bool, default="auto"
        Whether the components are the combinations of categories of the most relevant columns, with
        means that are sums of one effect per category and one covariance for all components (the
        general location model [3]_). There are `n_components` components for each combination. It
        needs few rows to learn how numerical columns depend on many categories. ``"auto"`` uses it
        if it is better on held-out rows.
    transformation : None or "johnson", default=None
        Transformation of the columns. ``"johnson"`` models skewed and heavy-tailed columns as
        hyperbolic sines of normal variables (Johnson's unbounded system [5]_). This makes each
        column more nearly normal, but linear relations between columns become curved. The input
        units are `JohnsonGaussian`.
    point_masses : False or "frequent", default=False
        Whether values of numerical columns that are repeated very often, such as zero in a column
        of debts, have a positive probability. Columns with such values are independent of the other
        columns within a component, and have no ``means_`` and ``covariances_``: a component has a
        probability of each frequent value and of groups of other numbers. If False, Gaussians
        spread the probability of frequent values over their neighbours, and queries on such columns
        warn.
    histograms : bool, default=False
        Whether numerical columns that are far from normal, and from transformed normal ones, have
        histograms instead, if this gains more than their correlation with the other columns is
        worth. A column that is uniform or has several peaks is an example. As with `point_masses`,
        a component has a probability of each of a few groups of numbers, and no ``means_`` and
        ``covariances_`` of such columns.
    pool : "auto" or int, default="auto"
        Number of restarts that are pooled with equal weights into one mixture; the worst of a few
        further restarts are discarded. If the numbers of factors and components and the type are
        given, ``"auto"`` is 1.
    selection : {"log_likelihood", "cells"}, default="log_likelihood"
        Criterion that compares candidates on held-out rows: the log density, or the errors of
        predicted hidden cells (squared errors and log losses, relative to those of the mean and the
        frequencies of the column).
    pseudo_count : float, default=1.0
        Weight of the prior of each component, in rows: this number of rows at the mean of a single
        component, and half as many with its frequencies of categories.
    n_init : int, default=1
        Number of initialisations of each restart; only the best one after ten iterations goes on,
        whereas the restarts of `pool` are kept beside each other.
    max_iter : int, default=200
        Maximum number of iterations of one mixture.
    tol : float, default=1e-3
        Iterations stop when the gain of the lower bound is below this value, in nats per row.
    random_state : int, RandomState or None, default=None
        Controls the randomness of the initialisations and of the held-out rows.

    Attributes
    ----------
    circuit_ : Circuit
        The mixture, over the original units and the codes of ``categories_``.
    weights_ : ndarray of shape (n_components_,)
        Mixture weights.
    means_ : ndarray of shape (n_components_, n_numeric)
        Means of the numerical columns without point masses in original units, or of the underlying
        normal variables with a `transformation`.
    covariances_ : ndarray of shape (n_components_, n_numeric, n_numeric) or \
            (n_components_, n_numeric)
        Covariances, or variances if all components have independent columns.
    category_log_probs_ : list of ndarray of shape (n_components_, n_categories_j) or None
        For each column, the log probabilities of its categories in each component; None for
        numerical columns.
    point_masses_ : list of ndarray
        For each column, the numbers with a positive probability.
    n_components_ : int
        Total number of components of the pooled mixtures.
    selection_ : list of dict
        One entry for each candidate, with the chosen ones first: ``family``, ``covariance_type``,
        ``location_model``, ``n_factors`` (of factor analysers only), ``n_components``, the mean
        held-out ``loss`` with its ``standard_error``, and the number of restarts in the ``pool``.
        Candidates of several components that are clearly worse than a single one after five
        iterations are left out.
    bic_ : dict of int to float
        With ``n_components="bic"``, the criterion on the training rows for each number of
        components that was tried.
    lower_bound_ : float
        Log posterior per row, up to a constant, of the last mixture before its final iteration.
    n_iter_ : int
        Number of iterations of the last mixture.
    converged_ : bool
        Whether all mixtures converged.

    See Also
    --------
    sklearn.mixture.GaussianMixture : For complete numerical tables.
    CircuitImputer : Imputes missing cells by such a density.

    Notes
    -----
    A column without any observed cell has a standard normal distribution. Rows without any observed
    cell are ignored. A numerical column with few distinct values is assumed to be recorded with a
    resolution equal to their distance, so that a component cannot collapse onto one of them. A
    constant column has a narrow density, so that scores detect new values. Queries and draws treat
    all numbers close to the constant as equal to it, so that `x <= c` and `x == c` have probability
    one.

    References
    ----------
    .. [1] Fraley and Raftery, "Bayesian Regularization for Normal Mixture Estimation and
       Model-Based Clustering", Journal of Classification 24, 2007.
    .. [2] Ghahramani and Hinton, "The EM Algorithm for Mixtures of Factor Analyzers", 1996.
    .. [3] Little and Schluchter, "Maximum Likelihood Estimation for Mixed Continuous and
       Categorical Data with Missing Values", Biometrika 72, 1985.
    .. [4] Duin, "On the Choice of Smoothing Parameters for Parzen Estimators of Probability
       Density Functions", IEEE Transactions on Computers C-25, 1976; Aitchison and Aitken,
       "Multivariate Binary Discrimination by the Kernel Method", Biometrika 63, 1976.
    .. [5] Johnson, "Systems of Frequency Curves Generated by Methods of Translation", Biometrika
       36, 1949.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import GaussianMixtureDensity
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2)) + np.repeat([[0.0, 0.0], [6.0, 6.0]], 100, axis=0)
    >>> X[::5, 1] = np.nan
    >>> density = GaussianMixtureDensity(n_components="bic", random_state=0).fit(X)
    >>> density.n_components_
    2
    >>> density.sample(3, random_state=0).shape
    (3, 2)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [
            StrOptions({"auto", "bic", "rows"}),
            Interval(Integral, 1, None, closed="left"),
        ],
        "covariance_type": [StrOptions({"auto", *_COVARIANCE_TYPES})],
        "n_factors": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_components": [Interval(Integral, 1, None, closed="left")],
        "location_model": [StrOptions({"auto"}), bool],
        "transformation": [StrOptions({"johnson"}), None],
        "point_masses": [Options(bool, {False}), StrOptions({"frequent"})],
        "histograms": [bool],
        "pool": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "selection": [StrOptions({"log_likelihood", "cells"})],
        "pseudo_count": [Interval(Real, 0, None, closed="neither")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        **TABLE_CONSTRAINTS,
    }

    _given_pool = None  # choices of an earlier fit, in clones that keep them
    _given_fits = None  # fits of its candidates to some of the rows
    _given_grouped = None  # columns of the rows that are grouped
    _given_start = None  # the same mixture without grouped columns, of some of the rows

    def __init__(
        self,
        *,
        n_components="auto",
        covariance_type="auto",
        n_factors="auto",
        max_components=32,
        location_model="auto",
        transformation=None,
        point_masses=False,
        histograms=False,
        pool="auto",
        selection="log_likelihood",
        pseudo_count=1.0,
        n_init=1,
        max_iter=200,
        tol=1e-3,
        categorical_features="from_dtype",
        handle_unknown="missing",
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.n_factors = n_factors
        self.max_components = max_components
        self.location_model = location_model
        self.transformation = transformation
        self.point_masses = point_masses
        self.histograms = histograms
        self.pool = pool
        self.selection = selection
        self.pseudo_count = pseudo_count
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    @fit_context
    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the mixture by a batch of rows.

        The first batch, with at least ten rows for each component, is fitted as by `fit`. It
        determines which columns are categorical, the number and the type of the components, their
        prior and the probability of new categories. Later batches, and batches after a `fit`, are
        used once, for one iteration of on-line expectation maximisation [1]_.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; cells may be missing. Batches should be random samples of the rows, with many rows
            for each component.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. None gives equal weights.

        Returns
        -------
        GaussianMixtureDensity
            The estimator.

        Raises
        ------
        ValueError
            If the first batch has too few rows, or if a cell of a later batch is so many standard
            deviations away from it that the covariances would be lost to rounding.

        References
        ----------
        .. [1] Cappé and Moulines, "On-line Expectation-Maximization Algorithm for Latent Data
           Models", Journal of the Royal Statistical Society B 71, 2009.

        Examples
        --------
        >>> import numpy as np
        >>> from skcircuits import GaussianMixtureDensity
        >>> rng = np.random.default_rng(0)
        >>> density = GaussianMixtureDensity(n_components=1)
        >>> for _ in range(5):
        ...     density = density.partial_fit(rng.normal(3.0, 1.0, size=(1000, 2)))
        >>> density.means_.round(1)
        array([[3., 3.]])
        """
        if not self.__sklearn_is_fitted__():
            _check_first_batch(_num_samples(X), self.n_components)
            return self._fit(X, sample_weight)
        X = self._read_table(X)
        sample_weight = check_weights(sample_weight, X)
        check_observed(X, sample_weight)
        table = self._prepare(X, sample_weight, self._units)
        _check_distance(table, X, self._schema)
        # a restart may stand in the pool several times
        learned = {s: learn_more(table, s, self.pseudo_count) for s in dict.fromkeys(self._states)}
        self._keep([learned[state] for state in self._states], table)
        return self

    def _keep(self, states, table):
        """Set the fitted attributes, and keep the state for partial_fit."""
        self._states, self._units = states, table.take(np.empty(0, dtype=np.intp))
        self._misfits = None
        vars(self).update(self._attributes(states, table))

    def _n_parameters(self):
        # Units of grouped columns are counted by their groups, new integers included
        found = super()._n_parameters() + self._n_given
        for unit in self.circuit_.plan.units:
            if isinstance(unit, PiecewisePolynomial):
                found += self._grouped[unit.variable].n_groups - 1 - unit.n_free_parameters
        # Distributions within groups are the same in all components
        return found + sum(
            grouped.cells.n_cells - grouped.n_groups for grouped in self._grouped.values()
        )

    def _fit_map(self, rows):
        """The transformation of the columns, if there is one."""
        if self.transformation is None:
            return None
        return fit_sinh_map(rows.X[:, self._cardinalities == 0], _weights(rows))

    def _group_columns(self, rows):
        """The numerical columns that are left to no Gaussian, by their index."""
        if self._given_grouped is not None:
            return self._given_grouped
        X = grouped_rows(rows.X, self._category_groups)
        cardinalities = grouped_cardinalities(self._schema.cardinalities, self._category_groups)
        return grouped_columns(X, _weights(rows), cardinalities, self.point_masses, self.histograms)

    def _frequent_values(self, rows):
        """Frequent values that Gaussians spread, each with its frequency, by column."""
        if self.point_masses:
            return {}
        some = rows.take(np.arange(len(rows.X))[:: 1 + len(rows.X) // _COMPARED_ROWS])
        found = {}
        # Constants are certain, whatever the Gaussian that stands for them
        varies = (self._cardinalities == 0) & np.isnan(self._schema.constants)
        for j in np.flatnonzero(varies).tolist():
            column = describe_column(j, some.X[:, j], _weights(some), 0, "frequent")
            if len(column.atoms):
                found[j] = column.atoms, column.fractions[:-1]
        return found

    def __getstate__(self):
        # A pickle does not depend on queries: what is read from it may warn again
        state = super().__getstate__()
        return state | {"_misfits": None} if "_misfits" in state else state

    def _log_evidence(self, boxes, observed):
        if self._misfits is None:
            # Set first: the comparison asks for probabilities, too
            self._misfits = {}
            self._misfits = self._describe_misfits()
        is_bounded = ~np.isnan([boxes.lower, boxes.upper]).all(axis=(0, 1))
        # Once is enough: some queries ask many times
        found = [self._misfits.pop(j) for j in list(self._misfits) if is_bounded[j]]
        if found:
            warn(
                f"Conditions on {', '.join(found)} have inaccurate probabilities. Set "
                "point_masses='frequent', or name such columns in categorical_features.",
            )
        return super()._log_evidence(boxes, observed)

    def _describe_misfits(self):
        """For each column with a wrong probability of a frequent value, the worst one in words."""
        described = {}
        for j, (values, frequencies) in self._frequent.items():
            column = self._schema.columns[j]
            # Queries name dates, not the numbers of days that they are here
            cells = in_local_time(column, column.decode(values)).tolist()
            found = self.probabilities([{column.name: cell} for cell in cells])
            worst = np.abs(found - frequencies).argmax()
            if abs(found[worst] - frequencies[worst]) > _MAX_MISFIT:
                shown = cells[worst] if column.has_dates else f"{values[worst]:g}"
                described[j] = (
                    f"column {column.name!r} ({frequencies[worst]:.2g} of its cells are "
                    f"{shown}, and Gaussians give this value {found[worst]:.2g})"
                )
        return described

    @property
    def _cardinalities(self):
        """Number of categories or groups of each column, 0 for Gaussians."""
        cardinalities = grouped_cardinalities(self._schema.cardinalities, self._category_groups)
        for j, grouped in self._grouped.items():
            cardinalities[j] = grouped.n_groups
        return cardinalities

    def _prepare(self, X, sample_weight, units=None):
        """Rows as prepared for the components."""
        X = grouped_rows(grouped_rows(X, self._category_groups), self._grouped)
        return MixtureTable.prepare(X, self._cardinalities, sample_weight, units, self._map)

    def _fit_rows(self, rows, generator):
        start = self._given_start
        self._grouped = start.grouped if start else self._group_columns(rows)
        self._map = start.sinh_map if start else self._fit_map(rows)
        self._frequent = self._frequent_values(rows)
        table = self._prepare(rows.X, rows.weight, start.units if start else None)
        settings = EMSettings(
            pseudo_count=self.pseudo_count,
            n_init=self.n_init,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        if self.n_components == "bic":
            self._fit_by_bic(rows.X, table, settings, generator)
            return
        # One seed for the choice: the fit after it is the same however long the choice took
        seed = int(generator.integers(np.iinfo(np.int32).max))
        pool, fits = self._choose_pool(table, settings, seed)
        self._pool = pool
        if KERNELS in pool:
            _check_size(table)
        if self._is_draw:
            settings = _as_draw(settings, pool, table.total_weight)
        n_members = sum(pool.values())
        if n_members > 1:
            settings = replace(settings, n_spare=_N_SPARE)
        result = drive(
            self,
            learn_pool(table, pool, settings, generator, fits),
            # a pool that is not complete yet loses to any longer one
            score=len,
            progress=lambda states: _progress(states, n_members),
            attributes=lambda states: self._attributes(states, table),
            X=rows.X,
        )
        # They have done their part
        self._given_fits = self._given_start = self._given_grouped = None
        self._keep(result.state, table)
        self._check_convergence(result.converged, len(result.state) == n_members)

    def _choose_pool(self, table, settings, seed):
        """Mixtures to pool, and fits to start from; those that were given, if any."""
        pool, fits = self._given_pool, self._given_fits
        if pool:
            if self._is_draw and self.covariance_type == "auto":
                pool = without_structure(pool, table.numbers.shape[1])
            self.selection_ = [{**c.described(), "pool": times} for c, times in pool.items()]
            return pool, fits
        comparison = Comparison(table, self.selection, settings, seed)
        pool = choose_pool(table, self._space(), comparison)
        if self._given_start:
            # Going on from the last fit: its parameters are better than any start
            fits = dict.fromkeys(pool, self._given_start.state)
        elif len(table.weights) >= 2 * START_ROWS and not fits:
            # For many rows the trials have done most of the work. For few, restarts are diverse,
            # and single Gaussians that go on from some of the rows stop before their optimum
            fits = comparison.starts
        self.selection_ = comparison.report(pool)
        return pool, fits

    def _clone_for_draw(self):
        cloned = super()._clone_for_draw()
        # The choice takes most of the time, and draws that differ in it would not be of one model
        cloned._given_pool = getattr(self, "_pool", None)
        return cloned

    def _space(self):
        """The search space of the choice."""

        def asked(value):
            return None if isinstance(value, str) and value in ("auto", "bic", "rows") else value

        by_rows = self.n_components == "rows"
        if by_rows and (
            self.covariance_type not in ("auto", "tied") or self.location_model is True
        ):
            raise invalid(
                'A density with n_components="rows"',
                "have one covariance for all components and no location model",
                'Set covariance_type="tied" and location_model=False.',
                covariance_type=self.covariance_type,
                location_model=self.location_model,
            )
        if self.location_model is True and self.covariance_type not in ("auto", "tied"):
            condition = "have one covariance for all components"
            way_out = 'Set covariance_type="tied".'
            raise invalid(
                "A location model", condition, way_out, covariance_type=self.covariance_type
            )
        return CandidateSpace(
            asked(self.covariance_type),
            asked(self.n_factors),
            asked(self.n_components),
            self.max_components,
            asked(self.pool),
            asked(self.location_model),
            by_rows,
        )

    def _fit_by_bic(self, X, table, settings, generator):
        """Try 1, 2, ... components until the criterion has risen twice in a row."""
        covariance_type = "full" if self.covariance_type == "auto" else self.covariance_type
        n_factors = 0
        if covariance_type == "factor":
            n_factors = 2 if self.n_factors == "auto" else self.n_factors
        self.bic_ = {}
        lowest = {}

        def steps():
            best, n_worse = np.inf, 0
            most = max(1, min(self.max_components, len(table.weights)))
            for n_components, stream in enumerate(generator.spawn(most), start=1):
                candidate = Candidate(covariance_type, n_factors, n_components)
                yield from learn_pool(table, {candidate: 1}, settings, stream)
                bic = self.bic_[n_components]
                n_worse = 0 if bic < best else n_worse + 1
                best = min(best, bic)
                # Once may be a poor start; twice in a row the criterion rises
                if n_worse == 2:
                    return

        def score(states):
            """Note the criterion; the latest state of the best candidate so far wins."""
            (state,) = states
            bic = self.bic_[state.n_components] = state.bic(table.total_weight)
            # Iterations of one candidate lower its criterion: the latest ties with the lowest
            lowest[state.n_components] = min(bic, lowest.get(state.n_components, np.inf))
            return -lowest[state.n_components]

        result = drive(
            self,
            steps(),
            score=score,
            attributes=lambda states: self._attributes(states, table),
            X=X,
        )
        self._keep(result.state, table)
        self._check_convergence(result.converged, True)

    def _check_convergence(self, has_ended, is_complete):
        """Warn and suggest settings if max_iter was reached; `drive` warns of interruptions."""
        self.converged_ &= is_complete
        if has_ended and not self.converged_:
            warn_not_converged(self, self.max_iter)

    def _attributes(self, states, table):
        """Fitted attributes of a pool of mixtures, in original units."""
        is_number = table.cardinalities == 0
        numeric_columns = np.flatnonzero(is_number)
        # a mixture whose restarts are all the same stands in the pool several times
        times = Counter(states)
        n_members, states = len(states), list(times)
        parts = [_moments(state, table) for state in states]
        tables = iter(zip(*(state.categories.log_probabilities for state in states), strict=True))
        log_probs = [None if number else np.vstack(next(tables)) for number in is_number]
        for j, groups in self._category_groups.items():
            log_probs[j] = (log_probs[j] - np.log(groups.sizes))[:, groups.states]
        attributes = {
            "weights_": np.concatenate(
                [times[state] / n_members * state.weights for state in states]
            ),
            "means_": np.vstack([means for means, _, _ in parts]),
            "covariances_": _joined([covariances for _, covariances, _ in parts]),
            "category_log_probs_": [
                None if j in self._grouped else own for j, own in enumerate(log_probs)
            ],
            "point_masses_": [
                self._grouped[j].cells.column.atoms if j in self._grouped else np.empty(0)
                for j in range(len(log_probs))
            ],
            "n_components_": sum(state.n_components for state in states),
            "lower_bound_": states[-1].lower_bound,
            "n_iter_": states[-1].n_iter,
            "converged_": all(state.at_optimum for state in states),
        }
        units = _numeric_units(states, parts, numeric_columns, self._map)
        circuit = _as_circuit(attributes["weights_"], units, log_probs, self._grouped)
        return {**attributes, "circuit_": circuit}


def _weights(rows):
    """Weights of rows; without any, all are equal."""
    return np.ones(len(rows.X)) if rows.weight is None else rows.weight


def _progress(states, n_members):
    """Which mixture of a pool is being learned, and how far it is."""
    of_pool = f"mixture {len(states)} of {n_members}, " if n_members > 1 else ""
    state = states[-1]
    if not state.has_fixed_prior:  # posteriors under different priors cannot be compared
        value = state.log_likelihood / (state.total_weight or 1.0)
        return f"{of_pool}log likelihood {value:.6g} per row, the prior is being learned"
    return f"{of_pool}log posterior {state.lower_bound:.6g} per row"


def _check_size(table):
    """Refuse tables whose rows are too many components."""
    n_rows = len(table.weights)
    if n_rows > MAX_KERNEL_ROWS:
        subject = 'A table with n_components="rows"'
        condition = f"have at most {MAX_KERNEL_ROWS:,} different rows"
        raise invalid(subject, condition, "Set n_components to a number.", n_rows=n_rows)


def _check_distance(table, X, schema):
    """Refuse later cells so large that rounding of their squares would erase what was learned."""
    far = np.argwhere(np.abs(table.numbers) > _MAX_DISTANCE)
    if len(far):
        row, own = far[0]
        # Scales are those of the first rows: squares of cells far outside would swallow all
        # digits
        column = np.flatnonzero(table.cardinalities == 0)[own]
        what = f"Cells of column {schema.names[column]!r}"
        condition = f"lie within {_MAX_DISTANCE:.1e} standard deviations of the first rows' mean"
        way_out = "Omit such rows, or fit all rows at once."
        raise invalid(what, condition, way_out, cell=float(X[table.source[row], column]))


def _check_first_batch(n_samples, n_components):
    """Refuse so few first rows that units and priors taken from them would be meaningless."""
    n_components = n_components if isinstance(n_components, Integral) else 1
    least = _FIRST_ROWS * n_components
    if n_samples < least:
        condition = f"have at least {least} rows, {_FIRST_ROWS} for each component"
        way_out = "Collect more rows before the first call, which determines scales and priors."
        raise invalid("The first batch", condition, way_out, n_samples=n_samples)


def _as_draw(settings, pool, total_weight):
    """Iterate until the remaining gain is negligible compared with the sampling error."""
    # In nats over all rows, whatever their number: half a nat is a standard deviation of a
    # parameter. Several components are not determined as precisely.
    settings = replace(settings, is_draw=True)
    # With one component the posterior has one mode, and the way to it is short
    if any(candidate.n_components > 1 for candidate in pool):
        return settings
    tol = min(settings.tol, _DRAW_TOL / max(total_weight, 1.0))
    max_iter = max(settings.max_iter, _MAX_DRAW_ITERATIONS)
    return replace(settings, tol=tol, max_iter=max_iter)


def _moments(state, table):
    """Means, covariances (variances where columns are independent) and factors, if any."""
    gaussians = state.gaussians
    if not isinstance(gaussians, FactorGaussians):
        return *gaussians.in_units(table.location, table.scale), None
    means, loadings, noise = gaussians.in_units(table.location, table.scale)
    # Without factors columns are independent, and variances suffice
    if not loadings.shape[2]:
        return means, noise, (loadings, noise)
    covariances = loadings @ loadings.transpose(0, 2, 1)
    diagonal = np.arange(means.shape[1])
    covariances[:, diagonal, diagonal] += noise
    return means, covariances, (loadings, noise)


def _numeric_units(states, parts, columns, sinh_map):
    """Input units of the numerical columns per component, of one family for the whole pool."""
    # Units of one family stand in one layer, and have closed forms with one another
    n_components = sum(state.n_components for state in states)
    if not len(columns):
        return [[] for _ in range(n_components)]
    if sinh_map is not None and sinh_map.curvatures.any():
        maps = sinh_map.centers, sinh_map.curvatures
        return [
            # A component that hardly has cells of a column may be arbitrarily wide there
            [JohnsonGaussian(columns.tolist(), mean, sinh_map.narrowed(covariance), *maps)]
            for mean, covariance in _dense(parts)
        ]
    if len(columns) == 1 or all(covariances.ndim == 2 for _, covariances, _ in parts):
        return [
            [Gaussian(int(j), mean[i], stds[i]) for i, j in enumerate(columns)]
            for means, covariances, _ in parts
            for mean, stds in zip(means, np.sqrt(covariances.reshape(means.shape)), strict=True)
        ]
    scope = columns.tolist()
    all_factors = [factors for _, _, factors in parts]
    most = max((factors[0].shape[2] for factors in all_factors if factors is not None), default=0)
    # From half as many factors as columns on, dense covariances cost less, at points most of all.
    if all(factors is not None for factors in all_factors) and 2 * most <= len(scope):
        return [
            [FactorGaussian(scope, mean, np.pad(own, ((0, 0), (0, most - own.shape[1]))), noise)]
            for means, _, (loadings, noises) in parts
            for mean, own, noise in zip(means, loadings, noises, strict=True)
        ]
    return [[MultivariateGaussian(scope, *own)] for own in _dense(parts)]


def _dense(parts):
    """Means and dense covariances of all components."""
    covariances = _joined([covariances for _, covariances, _ in parts])
    if covariances.ndim == 2:
        covariances = covariances[:, None] * np.eye(covariances.shape[1])
    return zip(np.vstack([means for means, _, _ in parts]), covariances, strict=True)


def _joined(covariances):
    """Variances where all are, else covariances."""
    if all(part.ndim == 2 for part in covariances):
        return np.vstack(covariances)
    return np.concatenate(
        [part if part.ndim == 3 else part[:, None] * np.eye(part.shape[1]) for part in covariances]
    )


def _as_circuit(weights, numeric_units, log_probs, grouped):
    """Write the mixture as a circuit: a sum of products of input units."""
    components = []
    for k, factors in enumerate(numeric_units):
        factors = factors + [
            grouped[j].unit(np.exp(table[k])) if j in grouped else Categorical(j, np.exp(table[k]))
            for j, table in enumerate(log_probs)
            if table is not None
        ]
        components.append(factors[0] if len(factors) == 1 else Product(factors))
    if len(components) == 1:
        # A mixture of one is no mixture: queries are faster without the sum
        return Circuit(components[0])
    return Circuit(Sum(components, weights=weights))
