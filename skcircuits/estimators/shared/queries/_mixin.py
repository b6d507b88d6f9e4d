"""The queries of densities: probabilities, moments, quantiles and draws under conditions.

`marginal` returns the density of some columns under a condition, which has all queries again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Real

import numpy as np
from sklearn.utils import check_scalar

from skcircuits.estimators._base import make_generator
from skcircuits.estimators.shared.queries._model_under_conditions import (
    MAX_STATES,
    ModelUnderConditions,
    column_indices,
    estimate_information,
    gaussian_information,
    has_bounds,
    in_frame,
    joint_states,
    log_totals,
    mutual_information,
    n_joint_states,
    only_numbers,
    require_possible,
)
from skcircuits.estimators.shared.queries._quantiles import probability_bounds
from skcircuits.estimators.shared.queries._restricted_models import members
from skcircuits.exceptions import must, require_choice, require_count
from skcircuits.numerics._arrays import float_array
from skcircuits.tabular import compile_queries
from skcircuits.tabular.queries._conditions import read_conditions


class QueriesMixin(ModelUnderConditions):
    """Answer queries given conditions in all supported forms."""

    _is_conditional = False

    def score(self, X, y=None):
        """Compute the mean log density of the rows.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; missing cells are marginalised.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        float
            The mean and not the sum, so that it does not grow with the number of rows.
        """
        return float(self.score_samples(X).mean())

    def probability(
        self, query, given=None, method="exact", *, n_samples=100_000, random_state=None, tol=0.01
    ):
        """Compute the probability that a row satisfies a query.

        Parameters
        ----------
        query : str, dict or Query
            A text such as ``"30 <= age < 40 and not job in ('nurse', 'cook')"``, a dict, or an
            object that is made by :func:`skcircuits.col`. A dict maps columns to a number, a closed
            interval ``(lower, upper)`` (None is unbounded), a set of numbers, a category or a set
            of categories. In a column that held only integers in `fit`, an integer stands for all
            values that round to it, and an interval for all values that round to the integers
            inside. In a constant column, numbers close to the constant count as equal to it. If the
            density was fitted to an array, columns are named by their index (``x0``, ``x1``, ... in
            texts). The grammar is described in the user guide.
        given : str, dict, Query, row, dataframe or list, default=None
            One or several conditions. A single condition is any form of a query (in which a single
            number of a continuous column is an observed value), or a row of cells. Missing cells of
            a row are unconstrained, and the other cells are observed values that enter through
            their density, also in integer columns. Several conditions are given by a list, or by a
            dataframe of rows, whose cells may also be intervals or sets, or bounds with two levels
            of column names (``("age", "lower")``, ``("age", "upper")``).
        method : {"exact", "bounds", "estimate"}, default="exact"
            For queries without an exact answer, such as linear comparisons of many columns,
            "bounds" gives certified bounds under one condition, which are refined until they differ
            by `tol`, and "estimate" averages over draws under the condition.
        n_samples : int, default=100_000
            Number of draws of an estimate.
        random_state : int, RandomState or None, default=None
            Source of randomness of an estimate.
        tol : float, default=0.01
            Maximum difference of the bounds.

        Returns
        -------
        float, or ndarray of shape (n_conditions,)
            The probability, or the probability under each of several conditions. With
            ``method="estimate"`` a pair of the probability and its standard error, and with
            ``method="bounds"`` a pair of the lower and the upper bound.

        Raises
        ------
        ZeroProbabilityError
            If a condition has probability zero.
        ValueError
            If the query is malformed, names an unknown column or category, or is decomposed into
            too many boxes.
        CircuitPropertyError
            If the model has no exact answer to the query.

        Warns
        -----
        ConvergenceWarning
            If bounds cannot be refined until they differ by `tol`.
        UserWarning
            If a Gaussian mixture spreads a value that many rows have over its neighbours (see its
            `point_masses`), so that the answer is inaccurate.
        """
        require_choice("exact", "bounds", "estimate", method=method)
        if method == "bounds":
            return self._bounds(query, given, tol)
        if method == "estimate":
            return self._estimate(query, given, n_samples, make_generator(random_state))
        answer = self.probabilities([query], given)
        return float(answer[0]) if answer.ndim == 1 else answer[:, 0]

    def probabilities(self, queries, given=None):
        """Compute the probability of each of several queries.

        Parameters
        ----------
        queries : sequence of str, dict or Query
            Queries as in `probability`.
        given : str, dict, Query, row, dataframe or list, default=None
            One or several conditions for all queries, as in `probability`.

        Returns
        -------
        ndarray of shape (n_queries,), or (n_conditions, n_queries)
            The probabilities of the queries under each condition.

        Raises
        ------
        ZeroProbabilityError
            If a condition has probability zero.
        """
        self._require_fitted()
        is_scalar = getattr(queries, "ndim", 1) == 0  # arrays of one number iterate over nothing
        if isinstance(queries, str | Mapping) or not isinstance(queries, Iterable) or is_scalar:
            condition = "be a list of texts, mappings or objects made by col"
            raise ValueError(must("queries", condition, "probability takes one.", queries=queries))
        queries = list(queries)
        boxes = self._compile(queries)
        if given is None and not self._is_conditional:
            # The most frequent case needs no pairs of conditions and queries
            schema = self._model_schema
            boxes = boxes.around_numbers(schema.grids, schema.constants)
            nothing = np.full(boxes.lower.shape, np.nan)
            log_mass = self._log_evidence(boxes, nothing) if len(boxes) else np.empty(0)
            return np.exp(np.minimum(log_totals(boxes, log_mass), 0.0))
        conditions = self._conditions(given)
        joint = conditions.with_queries(boxes)
        if self._is_certain(conditions):
            log_condition = np.zeros(1)
        else:
            weighed = self._weigh(conditions)
            require_possible(weighed, given)
            log_condition = weighed.log_total
            if (~np.isnan(weighed.conditions.observed)).any():
                # Conditions on single numbers have become observed cells: the query needs the
                # same cells
                joint = weighed.conditions.with_queries(boxes)
        log_joint = self._weigh(joint, is_given=False).log_total
        log_joint = log_joint.reshape(len(conditions), len(queries))
        # Rounding, and the error of an estimate, may leave a sum of boxes above one
        answer = np.exp(np.minimum(log_joint - log_condition[:, None], 0.0))
        return answer[0] if conditions.is_single else answer

    def expectation(self, given=None, columns=None):
        """Compute expected values of columns.

        Parameters
        ----------
        given : str, dict, Query, row, dataframe or list, default=None
            One or several conditions, as in `probability`.
        columns : column or list of columns, default=None
            Columns by name or index; None selects all numerical columns. For a column whose
            categories are not numbers, the result contains the probability of each category, in
            columns with names such as ``job_cook``.

        Returns
        -------
        ndarray of shape (n_values,) or (n_conditions, n_values), or dataframe
            Expected values. The result is a dataframe with a row per condition if the density was
            fitted to a dataframe; there, those of dates are dates, and in arrays days since 1970.

        Raises
        ------
        ZeroProbabilityError
            If a condition has probability zero.

        Notes
        -----
        Of an integer column that the condition bounds, alone or in a sum, it is the expectation of
        the integers that draws are rounded to. Without bounds, of columns that spread over more
        than 256 integers, or if three columns are bounded, it is that of the continuous variable of
        the model.

        Examples
        --------
        >>> import numpy as np
        >>> from skcircuits import GaussianMixtureDensity
        >>> X = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 2000)
        >>> density = GaussianMixtureDensity(n_components=1).fit(X)
        >>> density.expectation("x0 > 1", columns=[1]).round(1)
        array([1.2])
        """
        weighed = self._ask(given)
        wanted = self._features(columns)
        features = self._to_model(wanted).features
        values = weighed.average(self._means(weighed, features))
        for column, feature in enumerate(features):
            divided = self._at_integers(weighed, [feature])
            if divided is not weighed:
                values[:, [column]] = divided.average(self._means(divided, [feature]))
        return self._labelled(values, wanted, weighed.conditions)

    def covariance(self, given=None, columns=None):
        """Compute covariances of columns.

        Parameters
        ----------
        given : str, dict, Query, row, dataframe or list, default=None
            One or several conditions, as in `probability`.
        columns : column or list of columns, default=None
            Columns, as in `expectation`.

        Returns
        -------
        ndarray of shape (n_values, n_values) or (n_conditions, n_values, n_values), or dataframe
            Covariances, in which dates count as days. The result under a single condition is a
            dataframe if the density was fitted to a dataframe.

        Raises
        ------
        ZeroProbabilityError
            If a condition has probability zero.
        """
        wanted = self._features(columns)
        features = self._to_model(wanted).features
        weighed = self._at_integers(self._ask(given), features)
        means = self._means(weighed, features)
        inner = self._model_of(weighed).covariance(features)
        varies = np.isnan(only_numbers(weighed, features, self._model_schema))
        inner = np.where(varies[:, :, None] & varies[:, None], inner, 0.0)
        # Law of total covariance over the boxes
        centred = means - weighed.average(means)[weighed.condition_of]
        values = weighed.average(inner + centred[:, :, None] * centred[:, None])
        if not weighed.conditions.is_single:
            return values
        if self._schema.prototype is None:
            return values[0]
        return in_frame(dict(zip(wanted.names, values[0])), self._schema, index=wanted.names)

    def quantile(self, q, column, given=None):
        """Compute quantiles of a column.

        Parameters
        ----------
        q : float or array-like of shape (n_levels,)
            Levels between 0 and 1.
        column : str or int
            A numerical column, or a column of ordered categories.
        given : str, dict, Query, row, dataframe or list, default=None
            One or several conditions, as in `probability`.

        Returns
        -------
        float or category, ndarray of shape (n_levels,), (n_conditions,) or \
                (n_conditions, n_levels)
            The smallest values at which the distribution function reaches q; integers in integer
            columns.

        Raises
        ------
        ZeroProbabilityError
            If a condition has probability zero.
        """
        levels = np.atleast_1d(float_array(q, "q"))
        if levels.ndim != 1 or len(levels) == 0 or not ((levels > 0.0) & (levels < 1.0)).all():
            raise ValueError(must("q", "contain levels between 0 and 1, both excluded", q=q))
        weighed = self._ask(given)
        values = self._column_under(weighed, column).quantiles(levels)
        values = values[..., 0] if np.ndim(q) == 0 else values
        return values[0] if weighed.conditions.is_single else values

    def interval(self, level, column, given=None, kind="central"):
        """Compute an interval that contains a given fraction of the values of a column.

        Parameters
        ----------
        level : float
            Probability of the interval, between 0 and 1.
        column : str or int
            A numerical column.
        given : str, dict, Query, row, dataframe or list, default=None
            One or several conditions, as in `probability`.
        kind : {"central", "highest_density"}, default="central"
            The central interval leaves equal probabilities on both sides. The highest-density
            interval is the shortest one (for two separate peaks, it spans both or contains one of
            them).

        Returns
        -------
        ndarray of shape (2,) or (n_conditions, 2), or dataframe
            Lower and upper ends. For conditions in a dataframe, the result is a dataframe with the
            columns ``lower`` and ``upper``.

        Raises
        ------
        ZeroProbabilityError
            If a condition has probability zero.
        """
        check_scalar(level, "level", Real, min_val=0.0, max_val=1.0, include_boundaries="neither")
        require_choice("central", "highest_density", kind=kind)
        weighed = self._ask(given)
        own = self._column_under(weighed, column)
        # Equal probabilities below and above; the shortest interval may lie elsewhere
        if kind == "central":
            ends = own.quantiles([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        else:
            ends = own.shortest_intervals(level)
        if weighed.conditions.like is not None:
            columns = {"lower": ends[:, 0], "upper": ends[:, 1]}
            return in_frame(columns, self._schema, weighed.conditions.like)
        return ends[0] if weighed.conditions.is_single else ends

    def marginal(self, columns=None, given=None):
        """Get the density of some columns, with the others summed or integrated out.

        Parameters
        ----------
        columns : column or list of columns, default=None
            Columns by name or index; None keeps all.
        given : str, dict, Query or row, default=None
            A single condition, as in `probability`.

        Returns
        -------
        ConditionalDensity
            An object with the methods of densities: ``score_samples``, ``sample`` and all queries.

        Raises
        ------
        ZeroProbabilityError
            If the condition has probability zero.
        """
        weighed = self._ask_one(given, "a marginal density")
        chosen = np.arange(len(self._schema.columns))
        if columns is not None:
            chosen = np.array(column_indices(columns, self._schema))
        return self._make_conditional(weighed, chosen)

    def mpe(self, given=None):
        """Find the most probable rows.

        Parameters
        ----------
        given : str, dict, Query, row, dataframe or list, default=None
            One or several conditions, as in `probability`.

        Returns
        -------
        ndarray of shape (n_features,) or (n_conditions, n_features), or dataframe
            The most probable row under each condition. It is exact for deterministic circuits and
            single components. For other circuits it is the best row of a search, which starts from
            the rows of max-product, the best for the most probable choice of components. In integer
            columns it holds integers; those of columns that are jointly normal are found by a
            search, in mixtures from those nearest to the best real numbers. Under counts and sums
            of columns it is that of max-product. For a `marginal`, it is exact if the columns are
            categories or few integers, up to 2^20 joint states, and computed by max-product
            otherwise.

        Raises
        ------
        ZeroProbabilityError
            If a condition has probability zero.
        """
        return self._most_probable(self._ask(given))

    def mutual_information(
        self, columns, others, given=None, method="exact", *, n_samples=10_000, random_state=None
    ):
        """Compute the mutual information of two groups of columns, in nats.

        Parameters
        ----------
        columns, others : column or list of columns
            Disjoint groups of columns.
        given : str, dict, Query or row, default=None
            A single condition, as in `probability`.
        method : {"exact", "estimate"}, default="exact"
            "exact" sums over all joint states of categories and of integers that have separate
            probabilities in the model, and uses a closed form for continuous columns of a single
            Gaussian. "estimate" averages the log ratio of densities over draws, for all other
            columns.
        n_samples : int, default=10_000
            Number of draws of an estimate.
        random_state : int, RandomState or None, default=None
            Source of randomness of an estimate.

        Returns
        -------
        float
            The mutual information, or a pair of an estimate and its standard error with
            ``method="estimate"``.

        Raises
        ------
        CircuitPropertyError
            If there is no exact answer, or if there are too many joint states.
        ZeroProbabilityError
            If the condition has probability zero.

        Examples
        --------
        >>> import numpy as np
        >>> from skcircuits import GaussianMixtureDensity
        >>> X = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 2000)
        >>> density = GaussianMixtureDensity(n_components=1).fit(X)
        >>> round(density.mutual_information(0, 1), 1)
        0.5
        """
        require_choice("exact", "estimate", method=method)
        weighed = self._ask_one(given, "a mutual information")
        groups = [column_indices(group, self._schema) for group in (columns, others)]
        if set(groups[0]) & set(groups[1]):
            raise ValueError(must("columns and others", "be disjoint", columns=columns))
        if method == "estimate":
            require_count(2, n_samples=n_samples)
            densities = [
                self._make_conditional(weighed, np.array(own))
                for own in (groups[0] + groups[1], *groups)
            ]
            return estimate_information(*densities, n_samples, random_state)
        is_number = ~self._schema.is_categorical & ~self._schema.is_integral
        # Bounds make a truncated Gaussian, whose information has no closed form
        is_closed = self._is_gaussian() and not has_bounds(weighed.conditions.boxes)
        if is_closed and is_number[groups[0] + groups[1]].all():
            names = [self._schema.names[j] for j in groups[0] + groups[1]]
            features = self._to_model(self._features(names)).features
            covariance = self._model_of(weighed).covariance(features)[0]
            return gaussian_information(covariance, len(groups[0]))
        groups = [self._own_columns(np.arange(self._width))[group].tolist() for group in groups]
        cardinalities = self._model_of(weighed).cardinalities
        return mutual_information(weighed, groups, cardinalities, self._log_evidence)

    def sample(self, n_samples=1, random_state=None, X=None, given=None):
        """Draw rows, rows under conditions, or completions of given rows.

        Parameters
        ----------
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState or None, default=None
            Source of randomness.
        X : dataframe or array-like of shape (n, n_features), default=None
            Rows to complete. Their missing cells are drawn given the observed ones.
        given : str, dict, Query, row, dataframe or list, default=None
            One or several conditions, as in `probability`. Draws are exact for any probability of
            the condition and need no rejection: a box is drawn first, and then a row inside it.

        Returns
        -------
        ndarray or dataframe of shape (n_samples, n_features), or \
                ndarray of shape (n_samples, n, n_features)
            Draws, as a dataframe with the fitted columns and dtypes if the density was fitted to a
            dataframe (floats if draws leave the range of an integer dtype). With `X` or with
            several conditions, the first axis is over the draws and the second over the rows or
            conditions. Draws of columns that held only integers in `fit` are rounded, in the same
            way as in queries.

        Raises
        ------
        ZeroProbabilityError
            If a condition has probability zero.
        """
        self._require_fitted()
        require_count(1, n_samples=n_samples)
        generator = make_generator(random_state)
        if given is not None and X is not None:
            way_out = "Pass the rows alone as given to draw under several conditions."
            raise ValueError(must("sample", "have X or given, not both", way_out))
        if given is None and X is None:
            drawn = self._schema.rounded(self._draw(n_samples, None, generator))
            return self._schema.decode(drawn)
        if X is not None:
            X = self._read_table(X)
            drawn = self._draw(n_samples, X, generator)
            rounded = np.where(np.isnan(X), self._schema.rounded(drawn), drawn)
            return self._schema.decode_array(rounded)
        weighed = self._ask(given)
        drawn = self._schema.rounded(self._draw_given(weighed, n_samples, generator))
        if weighed.conditions.is_single:
            return self._schema.decode(drawn[:, 0])
        return self._schema.decode_array(drawn)

    def _ask_one(self, given, answer):
        """Read and weigh a single condition, which an answer needs."""
        weighed = self._ask(given)
        if not weighed.conditions.is_single:
            condition = f"be a single condition for {answer}"
            raise ValueError(must("The condition", condition, n_conditions=len(weighed)))
        return weighed

    def _bounds(self, query, given, tol):
        """Certified bounds of the probability of a query under one condition."""
        check_scalar(tol, "tol", Real, min_val=0.0, include_boundaries="neither")
        weighed = self._ask_one(given, "bounds")
        joint = weighed.conditions.with_queries(self._compile([query]))
        model, schema = self._model_of(weighed), self._model_schema
        return probability_bounds(joint, weighed, model, self._log_evidence, schema, tol)

    def _estimate(self, query, given, n_samples, generator):
        """Fraction of draws that satisfy a query, and its standard error."""
        self._require_fitted()
        require_count(2, n_samples=n_samples)
        boxes = compile_queries([query], self._schema)
        if given is None:
            drawn = self._draw(n_samples, None, generator)[:, None]
        else:
            drawn = self._draw_given(self._ask(given), n_samples, generator)
        drawn = self._schema.rounded(drawn)
        inside = members(boxes, drawn.reshape(-1, drawn.shape[-1]), self._schema)
        fraction = inside.reshape(n_samples, -1).mean(axis=0)
        # If no draw is inside, the rule of three bounds the probability
        error = np.sqrt(np.maximum(fraction * (1.0 - fraction), 1.0 / n_samples) / n_samples)
        if given is None or len(fraction) == 1:
            return float(fraction[0]), float(error[0])
        return fraction, error


class ConditionalDensity(QueriesMixin):
    """Density of some columns under a condition, as returned by `marginal`.

    Parameters
    ----------
    parent : density
        A fitted density.
    weighed : Weighed
        A single condition.
    columns : ndarray of int
        Columns of the table of the parent that are kept.

    Attributes
    ----------
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns.
    n_features_in_ : int
        Number of columns.
    """

    _is_conditional = True

    def __init__(self, parent, weighed, columns):
        self._parent, self._base, self._columns = parent, weighed.conditions, columns
        self._log_base = float(weighed.log_total[0])
        self._schema = parent._schema.select(columns)
        self.n_features_in_ = len(columns)
        self.feature_names_in_ = np.array(self._schema.names, dtype=object)

    def score_samples(self, X):
        """Compute the log density of each row of these columns.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; missing cells are marginalised.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log density; ``-inf`` if the condition excludes the row.
        """
        conditions = self._to_parent(self._encoded_conditions(X))
        boxes = conditions.boxes
        log_mass = self._log_evidence(boxes, conditions.observed) if len(boxes) else np.empty(0)
        return log_totals(boxes, log_mass) - self._log_base

    def __repr__(self):
        """Name the columns."""
        return f"ConditionalDensity(columns={self._schema.names})"

    def _require_fitted(self):
        """It is made from a fitted density."""

    def _encoded_conditions(self, X):
        rows = X if hasattr(X, "columns") else np.atleast_2d(np.asarray(X))
        # Rows are conditions of equality; scores are an array also of one row
        return replace(read_conditions(rows, self._schema), is_single=False)

    def _conditions(self, given):
        return self._to_parent(read_conditions(given, self._schema))

    def _to_parent(self, conditions):
        """Conditions on the parent's columns, together with the base."""
        width = len(self._parent._schema.columns)
        boxes = conditions.boxes.on_columns(self._columns, width)
        observed = np.full((len(boxes), width), np.nan)
        observed[:, self._columns] = conditions.observed
        moved = replace(conditions, boxes=boxes, observed=observed)
        # A condition on a conditional density is a condition with both
        return moved.intersect(self._base.boxes, self._base.observed)

    def _compile(self, queries):
        boxes = super()._compile(queries)
        return boxes.on_columns(self._columns, len(self._parent._schema.columns))

    def _is_certain(self, conditions):
        # The base is a condition itself
        return False

    @property
    def _model_schema(self):
        return self._parent._model_schema

    def _to_model(self, features):
        return features.on(self._parent._own_columns(np.arange(self._width))[self._columns])

    def _own_columns(self, rows):
        return self._parent._own_columns(rows)[..., self._columns]

    def _most_probable(self, weighed):
        columns = self._own_columns(np.arange(self._width))
        left_out = np.setdiff1d(np.arange(self._width), columns)
        if not len(left_out):
            return super()._most_probable(weighed)
        model = self._model_of(weighed)
        # Other columns have to be summed out first: listed where joint states are few, left to the
        # model where not
        if n_joint_states(columns, model.cardinalities) * len(weighed.log_mass) > MAX_STATES:
            return self._best_rows(weighed, left_out=left_out)
        states, masses = joint_states(weighed, columns, model.cardinalities, self._log_evidence)
        best = states[masses.argmax(axis=1)].astype(float)
        return self._decode_rows(best, weighed.conditions)

    def _read_table(self, X):
        return self._encoded_conditions(X).observed

    def _draw(self, n_samples, X, generator):
        if X is None:
            return self._draw_given(self._ask(None), n_samples, generator)[:, 0]
        drawn = self._draw_given(self._ask(X), n_samples, generator)
        return np.where(np.isnan(X), drawn, X)

    def _is_gaussian(self):
        return self._parent._is_gaussian() and not has_bounds(self._base.boxes)

    def _log_evidence(self, boxes, observed):
        return self._parent._log_evidence(boxes, observed)

    def _restricted(self, boxes, observed):
        return self._parent._restricted(boxes, observed)

    def _point_masses(self, column):
        return self._parent._point_masses(column)

    @property
    def _column_type(self):
        return self._parent._column_type

    def _make_conditional(self, weighed, columns):
        return ConditionalDensity(self._parent, weighed, self._columns[columns])
