"""Imputation by exact conditional distributions of missing values."""

from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import MissingIndicator
from sklearn.utils import check_random_state

from skcircuits.estimators._base import (
    TABLE_CONSTRAINTS,
    StrOptions,
    check_is_fitted,
    check_weights,
    feature_names,
    fit_context,
    inherit_documentation,
)
from skcircuits.estimators.automatic._inner_density import (
    DENSITY_CONSTRAINTS,
    InnerDensityMixin,
    best_density,
)
from skcircuits.estimators.shared._completion import complete_rows, predict_in_turns
from skcircuits.estimators.shared._density import BaseDensity
from skcircuits.estimators.shared._fitting import TrainingRows, weights_in_rows
from skcircuits.exceptions import ZeroProbabilityError, invalid, require_count
from skcircuits.learning._self_masking import learn_self_masking, may_be_self_masked
from skcircuits.numerics._arrays import float_array
from skcircuits.numerics._random import RowStreams
from skcircuits.parallel import Parallel, delayed, row_slices
from skcircuits.tabular._columns import Column, is_missing, read_date
from skcircuits.tabular._schema import (
    grouped_cardinalities,
    grouped_rows,
    learn_groups,
)

# Rows per task: results must not depend on n_jobs, so neither may the chunks
CHUNK_ROWS = 8192
_MASKED_ROWS = 2000  # most rows that tell why cells are missing


@inherit_documentation
class CircuitImputer(InnerDensityMixin, TransformerMixin, BaseEstimator):
    """Impute missing values according to their exact conditional distribution.

    A density is learned from incomplete rows. Every missing value is then imputed according to its
    conditional distribution given all observed cells of the row.

    Parameters
    ----------
    density : "auto", name of a density, density estimator or Circuit, default="auto"
        Distribution of the rows. ``"auto"`` compares families of densities by how well they predict
        hidden cells (`AutomaticDensity`), and learns from at most 200,000 rows; see ``density_``.
        Without comparison it is a `HiddenChowLiuDensity` if every numerical column holds few (at
        most ten) frequent integers, and for tables of categories alone with more than 400,000 cells
        or 60 columns. Names are ``"gaussian_mixture"``, ``"latent_tree"``, ``"wmispn"``,
        ``"chow_liu"`` and ``"strudel"``. An estimator is cloned and fitted to X. A circuit with one
        variable per column is used as it is.
    strategy : {"mean", "mpe", "sample"}, default="mean"
        How missing values are imputed.

        - ``"mean"``: the conditional mean, or the most probable category in categorical columns. If
          ``density="auto"`` averages the means of several densities, each mean is restricted to the
          observed range of the column, extended by one standard deviation. Columns of at most 100
          categories, and numbers in tables of at most 40 columns, are then also predicted by random
          trees from the other cells, with missing ones at their means and most probable categories;
          held-out cells determine the weight of these answers.
        - ``"mpe"``: the jointly most probable completion. It is exact if the circuit is
          deterministic. Otherwise it is the best completion of a search, which starts from the
          largest terms of the sums.
        - ``"sample"``: a draw from the conditional distribution. The draws of a row depend only on
          its cells and on `random_state`, so that they do not change with the order or the
          selection of the rows, or in repeated calls. Equal rows get different draws, in the order
          in which they occur.

        Draws and most probable values of columns that held only integers in `fit` are integers.
        Means are not, so that integer columns of a dataframe become columns of floats with
        ``"mean"`` (see `round_integers`).
    missing_values : number, str or None, default=nan
        A value that denotes a missing cell, in addition to None, NaN and the NA values of dataframe
        libraries.
    min_value, max_value : float, "observed", array-like of shape (n_features,), dict or None, \
            default=None
        Bounds of imputed values: a number for all numerical columns, one for each column (NaN for
        no bound), or a dict by name (``{"age": 0}``). Columns of dates are bounded by dates.
        ``"observed"`` uses the smallest and largest values in `fit`. None means no bounds.
        Imputed integers are the next ones within the bounds.
    round_integers : bool, default=False
        Whether to round means in columns that held only integers in `fit`, which then keep their
        integer dtype. By default they become floats (also of nullable integers), as in
        scikit-learn's imputers, because rounding would bias averages of imputed columns.
    add_indicator : bool, default=False
        Whether to append an indicator column for each column that had missing values in `fit`,
        which is 1 if the cell was missing.
    keep_empty_features : bool, default=False
        Whether to keep columns without any observed cell in `fit`, which are imputed from the prior
        of the density; missing dates stay missing, as do categories if none is known. By
        default such columns are dropped, with a warning.
    self_masking : bool, default=True
        Whether ``density="auto"`` with ``strategy="mean"`` takes into account that cells may be
        missing because of their own values (large incomes that are not reported). Columns where the
        own value, as predicted from the other cells, explains the missing cells better than other
        columns do are imputed from the conditional distribution times an exponential of the value
        [1]_. Otherwise cells are assumed to be missing at random.
    handle_unknown : {"missing", "error"}, default="missing"
        How to treat an observed category that did not occur in `fit`: ``"missing"`` ignores it when
        the other cells of its row are imputed (the cell itself is not changed), and ``"error"``
        raises an error.
    random_state : int, RandomState or None, default=None
        Controls the randomness of the density and of the draws.
    n_jobs : int, default=None
        Number of parallel jobs; the result is the same for any.
    verbose : int, default=0
        Verbosity of the fit of an ``"auto"`` density.

    Attributes
    ----------
    is_self_masked_ : ndarray of shape (n_features_in_,)
        Mask of the columns whose cells are probably missing because of their own values. False if
        that was not considered.
    indicator_ : MissingIndicator or None
        Which cells were missing; None unless ``add_indicator=True``.

    See Also
    --------
    ExpectedPredictionRegressor : Predicts from incomplete rows without imputing them.
    skcircuits.pool : Pools the results of several imputations.

    Notes
    -----
    Observed cells are never changed. If the observed cells of a row have probability zero, its
    missing values are imputed from the marginal distribution, with a warning.

    With an `AutomaticDensity`, the means of its densities are averaged with its weights, which are
    the same for all rows, and draws come from each density with a probability equal to its weight.
    ``"mpe"`` and ``circuit_`` refer to the mixture of these densities.

    The training rows are stored, because proper multiple imputation learns from them again.

    References
    ----------
    .. [1] Kim and Yu, "A Semiparametric Estimation of Mean Functionals with Nonignorable Missing
       Data", JASA 106, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import CircuitImputer
    >>> from skcircuits.circuits import Circuit, MultivariateGaussian
    >>> joint = Circuit(MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]]))
    >>> CircuitImputer(density=joint).fit_transform([[2.0, np.nan], [1.0, 1.0]])
    array([[2., 1.],
           [1., 1.]])
    """

    _mixes_families = True

    _parameter_constraints: ClassVar[dict] = {
        **DENSITY_CONSTRAINTS,
        "strategy": [StrOptions({"mean", "mpe", "sample"})],
        "missing_values": [Real, str, None],
        "min_value": [Real, StrOptions({"observed"}), "array-like", dict, None],
        "max_value": [Real, StrOptions({"observed"}), "array-like", dict, None],
        "round_integers": ["boolean"],
        "add_indicator": ["boolean"],
        "keep_empty_features": ["boolean"],
        "self_masking": ["boolean"],
        **TABLE_CONSTRAINTS,
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        *,
        density="auto",
        strategy="mean",
        missing_values=np.nan,
        min_value=None,
        max_value=None,
        round_integers=False,
        add_indicator=False,
        keep_empty_features=False,
        self_masking=True,
        categorical_features="from_dtype",
        handle_unknown="missing",
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.density = density
        self.strategy = strategy
        self.missing_values = missing_values
        self.min_value = min_value
        self.max_value = max_value
        self.round_integers = round_integers
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features
        self.self_masking = self_masking
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @fit_context
    def fit(self, X, y=None, sample_weight=None):
        """Learn the density of the rows.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; cells may be missing.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. None gives equal weights. Weights that are not all integers count
            relative to their mean. Rows of weight zero, or of less than 2e-16 times the largest
            weight, are ignored, except that their categories are known.

        Returns
        -------
        CircuitImputer
            The fitted imputer.

        Warns
        -----
        UserWarning
            If columns have no observed cell and are dropped, or if most rows have a category of
            their own in some column.
        """
        weights = None if sample_weight is None else check_weights(sample_weight, X)
        encoded = self._learn_density(X, self.missing_values, weights)
        # Proper imputations learn the density again, under other weights
        self._training = encoded, weights
        self._bounds = _imputation_bounds(self.min_value, self.max_value, encoded, self._schema)
        # As in scikit-learn's imputers: columns without values in fit are dropped
        self._kept = np.arange(encoded.shape[1])
        if not self.keep_empty_features:
            self._warn_of_empty_columns("they are dropped, unless keep_empty_features=True")
            self._kept = np.delete(self._kept, self._empty)
        self._seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        self._masking = self._learn_self_masking(encoded, weights)
        self.is_self_masked_ = np.zeros(encoded.shape[1], dtype=bool)
        if self._masking is not None:
            self.is_self_masked_ = self._masking.chances > 0.5
        self.indicator_ = None
        if self.add_indicator:
            self.indicator_ = MissingIndicator(error_on_new=False).fit(encoded)
        self._schema_out = self._make_schema_out()
        return self

    def _learn_self_masking(self, encoded, weights):
        """How values of missing cells differ from expectations; None if they are not to."""
        is_auto = isinstance(self.density, str) and self.density == "auto"
        if not (self.self_masking and is_auto and self.strategy == "mean"):
            return None
        rng = np.random.default_rng(self._seed)
        training = TrainingRows.of(encoded, weights)
        groups = learn_groups(training.X, self._schema.cardinalities, training.counts)
        if len(training.X) > _MASKED_ROWS:
            training = training.take(rng.choice(len(training.X), _MASKED_ROWS, replace=False))
        # The order of the rows of a small table must not matter
        rows = training.in_canonical_order().X
        states = grouped_rows(rows, groups)
        sizes = grouped_cardinalities(self._schema.cardinalities, groups)
        if not may_be_self_masked(states, sizes):  # predictions of densities take long
            return None
        _, experts, bounds, weights, _ = self._experts(self.density_)
        members = getattr(self.density_, "densities_", ())
        # A component for each training row knows the cells that are hidden
        kept = [k for k, own in enumerate(members) if getattr(own, "n_components", 1) != "rows"]
        if kept:
            experts = [experts[k] for k in kept]
            weights = None if weights is None else weights[kept]
            bounds = None if bounds is None else tuple(ends[kept] for ends in bounds)
        known, is_categorical = self._as_known(rows), self._schema.is_categorical
        try:
            means, tables = predict_in_turns(experts, known, is_categorical, bounds, weights, rng)
        except ZeroProbabilityError:
            # A density to which training rows are impossible is no guide to why cells are missing
            return None
        for j, own in groups.items():
            tables[j] = own.sums(tables[j])
        masking = learn_self_masking(states, means, tables)
        if masking is not None:
            # Categories of one state are missing for the same reason
            odds = masking.log_odds.items()
            by_category = {j: own[groups[j].states] if j in groups else own for j, own in odds}
            masking = replace(masking, log_odds=by_category)
        return masking

    def transform(self, X):
        """Impute the missing values.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows. Observed cells are not changed.

        Returns
        -------
        ndarray or dataframe of shape (n_samples, n_features_out)
            An array (of dtype object if categories are not numbers), or a dataframe with the dtypes
            of the fitted one if requested by ``set_output``.

        Warns
        -----
        UserWarning
            If the observed cells of some rows have probability zero.
        """
        encoded, unseen = self._read_incomplete(X)
        completed = self._complete(self.density_, encoded, self.strategy)[0][:, self._kept]
        if self.indicator_ is not None:
            is_missing = np.isnan(encoded)
            for j, (rows, _) in unseen.items():
                is_missing[rows, j] = False
            # Unseen categories are observed cells: no indicator marks them
            marked = np.where(is_missing, np.nan, 0.0)
            completed = np.hstack([completed, self.indicator_.transform(marked)])
        return self._write_table(completed, self._schema_out, X, self._among_kept(unseen))

    def sample_imputations(self, X, n_imputations=5, proper=True):
        """Draw several completed tables, for multiple imputation.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows.
        n_imputations : int, default=5
            Number of completed tables.
        proper : bool, default=True
            Whether to draw the parameters of the density as well. Each table is then drawn from a
            density that is learned again from the training rows under random weights (the Bayesian
            bootstrap [1]_), with as little shrinkage as they allow. Intervals that are pooled from
            improper imputations, which are drawn from the one fitted density, are too short. If the
            density is a `Circuit`, it has no parameters to learn and the two are the same.

        Returns
        -------
        ndarray of shape (n_imputations, n_samples, n_features), or list of dataframe
            Completed tables, without columns that were empty in `fit` (unless they are kept), or
            dataframes if requested by ``set_output``. Observed cells are the same in all tables.

        Raises
        ------
        ValueError
            If ``proper=True`` and the density cannot be fitted again with weights.

        References
        ----------
        .. [1] Rubin, "The Bayesian Bootstrap", Annals of Statistics 9, 1981; Rubin and
           Schenker, "Multiple Imputation for Interval Estimation from Simple Random Samples
           with Ignorable Nonresponse", JASA 81, 1986.

        Examples
        --------
        >>> import numpy as np
        >>> from skcircuits import CircuitImputer, GaussianMixtureDensity
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(50, 2)) @ [[1.0, 0.8], [0.0, 0.6]]
        >>> X[rng.random(X.shape) < 0.2] = np.nan
        >>> density = GaussianMixtureDensity(n_components=1)
        >>> imputer = CircuitImputer(density=density, random_state=0).fit(X)
        >>> imputer.sample_imputations(X, 3).shape
        (3, 50, 2)
        """
        check_is_fitted(self)
        require_count(1, n_imputations=n_imputations)
        encoded, unseen = self._read_incomplete(X)
        # Draws from one density alone would make intervals too narrow (Rubin 1987, chapter 4)
        if proper and self.density_ is not None:
            drawn = self._draw_properly(encoded, n_imputations)
        else:
            drawn = self._complete(self.density_, encoded, "sample", n_imputations)
        columns = tuple(self._schema.columns[j] for j in self._kept)
        # Columns of arrays are numbered; names that are numbers are pandas' own
        is_named = hasattr(self, "feature_names_in_") or self._container == "pandas"
        if self._schema.prototype is None or not is_named:
            columns = self._schema_out.columns[: len(columns)]
        schema = replace(self._schema, columns=columns)
        kept = self._among_kept(unseen)
        tables = [self._write_table(table, schema, X, kept) for table in drawn[..., self._kept]]
        return np.stack(tables) if isinstance(tables[0], np.ndarray) else tables

    def _draw_properly(self, encoded, n_imputations):
        """Draw each table from a density learned again under random weights."""
        density = best_density(self.density_)
        if not isinstance(density, BaseDensity):
            condition = "be one that can be fitted again for proper imputations"
            way_out = "Pass proper=False, or a density estimator of skcircuits."
            raise invalid("density", condition, way_out, density=density)
        rows, weights = self._training
        tables = Parallel(n_jobs=self.n_jobs)(
            delayed(_draw_with_new_parameters)(
                self, density, rows, encoded, _bootstrap_weights(weights, len(rows), seed), seed
            )
            # Independent of the number of workers, and of each other
            for seed in np.random.SeedSequence(self._seed).generate_state(n_imputations).tolist()
        )
        return np.stack(tables)

    def _read_incomplete(self, X):
        """Encode rows; give also the observed cells that codes do not hold."""
        check_is_fitted(self)
        table = self._schema.read(self._check_table(X, reset=False))
        return self._schema.encode(table, self.handle_unknown), self._schema.inexact_cells(table)

    def _among_kept(self, unseen):
        index_of = {j: index for index, j in enumerate(self._kept.tolist())}
        return {index_of[j]: cells for j, cells in unseen.items() if j in index_of}

    def get_feature_names_out(self, input_features=None):
        """Get the names of the output columns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the input columns. None uses those seen during `fit`, or x0, x1, ...

        Returns
        -------
        ndarray of str
            Names of the kept columns, followed by those of the indicators.
        """
        check_is_fitted(self)
        names = feature_names(self, input_features)
        kept = names[self._kept]
        if self.indicator_ is None:
            return kept
        return np.concatenate([kept, self.indicator_.get_feature_names_out(names)])

    def _complete(self, density, encoded, strategy, n_draws=1, seed=None):
        """Complete encoded rows, shape (n_draws, n, d); `density` None where a circuit is given."""
        circuit, experts, bounds, weights, forests = self._experts(density)
        completed = np.repeat(encoded[None], n_draws, axis=0)
        # Complete rows are their own answer
        incomplete = np.flatnonzero(np.isnan(encoded).any(axis=1))
        streams = None
        if strategy == "sample":
            # Keyed by the original cells, even if evidence has to be dropped
            streams = RowStreams(encoded[incomplete], self._seed if seed is None else seed)
        known = self._as_known(encoded[incomplete])
        is_categorical = self._schema.is_categorical
        chunks = row_slices(len(incomplete), CHUNK_ROWS)
        parts = Parallel(n_jobs=self.n_jobs, prefer="threads")(
            delayed(complete_rows)(
                experts,
                circuit,
                known[rows],
                strategy,
                None if streams is None else streams.take(rows),
                n_draws,
                is_categorical,
                bounds,
                weights,
                self._masking,
                np.flatnonzero(self._schema.is_integral),
                forests,
            )
            for rows in chunks
        )
        for rows, part in zip(chunks, parts, strict=True):
            cells = encoded[incomplete[rows]]
            imputed = self._confine(part, strategy)
            completed[:, incomplete[rows]] = np.where(np.isnan(cells), imputed, cells)
        return completed

    def _experts(self, density):
        """Circuit of a density, its experts, their bounds and weights of columns, and forests."""
        fitted = best_density(density)
        circuit = getattr(fitted, "circuit_", self.circuit_)
        if not isinstance(fitted, BaseDensity):
            return circuit, [(1.0, circuit)], None, None, None
        settings = fitted._mean_bounds, fitted._column_weights, fitted._forests
        return circuit, fitted._experts(), *settings

    def _confine(self, imputed, strategy):
        """Round, clip to the bounds, and leave dates missing where none was observed."""
        is_rounded = strategy != "mean" or self.round_integers
        imputed = (self._schema.rounded if is_rounded else self._schema.at_constants)(imputed)
        low, high = self._bounds
        if is_rounded:
            # Clipped to a fraction, integers would be none; the ceiling of -0.5 is -0.0
            inner = np.ceil(low) + 0.0, np.floor(high)
            has_integers = self._schema.is_integral & (inner[0] <= inner[1])
            low, high = np.where(has_integers, inner, self._bounds)
        imputed = np.clip(imputed, low, high)
        if self.density_ is not None:
            # Days around 1970, as a prior gives them, look like dates that someone observed
            unknown = [j for j in self._empty if self._schema.columns[j].has_dates]
            imputed[..., unknown] = np.nan
        return imputed

    def _make_schema_out(self):
        """Schema of the output: kept columns, then indicators."""
        names = self.get_feature_names_out().tolist()
        columns = [
            replace(self._schema.columns[j], name=name)
            for j, name in zip(self._kept, names, strict=False)
        ]
        # Indicators are numbers 0 and 1, as scikit-learn's are
        indicators = [Column(name, None, True) for name in names[len(columns) :]]
        return replace(self._schema, columns=(*columns, *indicators))


def _imputation_bounds(min_value, max_value, X, schema):
    """Lower and upper bounds (d,) of imputed values, infinite for categories; X as encoded."""
    low = _bound("min_value", min_value, X, schema, -np.inf, np.fmin)
    high = _bound("max_value", max_value, X, schema, np.inf, np.fmax)
    # Crossed bounds would be clipped to one of them, silently
    crossed = np.flatnonzero(low > high)
    if len(crossed):
        raise invalid(
            "min_value",
            f"not exceed max_value in column {schema.names[crossed[0]]!r}",
            min_value=float(low[crossed[0]]),
            max_value=float(high[crossed[0]]),
        )
    return low, high


def _bound(name, value, X, schema, open_end, extreme):
    n_columns = X.shape[1]
    if value is None:
        return np.full(n_columns, open_end)
    if isinstance(value, str):
        bound = extreme.reduce(X, axis=0)
    else:
        bound = float_array(_bounds_by_column(name, value, schema), name)
    # Codes have no bounds, whatever a single number asks for all columns
    return np.where(schema.is_categorical | np.isnan(bound), open_end, bound)


def _bounds_by_column(name, value, schema):
    """One bound per column, in the numbers of the encoded column."""
    shape = np.asarray(value, dtype=object).shape  # also of lists of unequal lengths
    if isinstance(value, dict):
        unknown = [key for key in value if key not in schema.names]
        if unknown:
            way_out = f"Columns are {list(schema.names)}."
            raise invalid(f"Names in {name}", "be columns", way_out, unknown=unknown)
        bounds = [value.get(column, np.nan) for column in schema.names]
    elif not shape:
        # Days since 1970 are meant by no one
        bounds = [np.nan if column.has_dates else value for column in schema.columns]
    else:
        if shape != (len(schema.columns),):
            condition = f"be a number or have shape ({len(schema.columns)},)"
            raise invalid(name, condition, shape=shape)
        bounds = list(value)
    return [
        np.nan if is_missing(own) else read_date(column, own) if column.has_dates else own
        for column, own in zip(schema.columns, bounds, strict=True)
    ]


def _bootstrap_weights(sample_weight, n_rows, seed):
    """Draw weights of the Bayesian bootstrap: exponential, that is Dirichlet up to scale."""
    weights = np.random.default_rng(seed).exponential(size=n_rows)
    # Mean one: priors have the same weight relative to the rows as in the fit
    weights /= weights.mean()
    return weights if sample_weight is None else weights * weights_in_rows(sample_weight)


def _draw_with_new_parameters(imputer, density, rows, encoded, sample_weight, seed):
    """Learn the density again under new weights and draw one completed table from it."""
    learned = density._clone_for_draw()._fit_encoded(rows, imputer._schema, sample_weight)
    return imputer._complete(learned, encoded, "sample", seed=seed)[0]
