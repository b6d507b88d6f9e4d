"""Imputation by the exact conditional distribution of the missing cells."""

from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import MissingIndicator
from sklearn.utils import check_random_state, check_scalar

from skcircuits.estimators._base import (
    StrOptions,
    check_is_fitted,
    feature_names,
    fit_context,
)
from skcircuits.estimators._inner_density import DENSITY_CONSTRAINTS, InnerDensityMixin
from skcircuits.estimators.shared._impossible_evidence import completed_or_marginal
from skcircuits.numerics._row_streams import RowStreams
from skcircuits.parallel import Parallel, delayed, row_slices
from skcircuits.tabular._columns import Column

__all__ = ["CircuitImputer"]

# Rows per task: results must not depend on n_jobs, so neither may the chunks
CHUNK_ROWS = 2048


class CircuitImputer(InnerDensityMixin, TransformerMixin, BaseEstimator):
    """Complete missing cells by their exact conditional distribution.

    A density of the rows is learned from rows with holes; every hole is then filled from
    its distribution given all observed cells of the row.

    Parameters
    ----------
    density : "auto", density estimator or Circuit, default="auto"
        What is learned of the rows. ``"auto"``: `HiddenChowLiuDensity` for tables of labels
        and of few (at most ten) often repeated whole numbers, `GaussianMixtureDensity` for
        any other (with diagonal covariances where few rows say so); see ``density_``. An
        estimator is cloned and fitted on X. A circuit is used as it is, one variable per
        column.
    strategy : {"mean", "mpe", "sample"}, default="mean"
        How holes are filled.

        - ``"mean"``: conditional means; the most probable label in columns of labels.
        - ``"mpe"``: the jointly most probable completion. Exact where the circuit is
          deterministic; elsewhere the completion of the largest term of every sum, the
          usual approximation.
        - ``"sample"``: a draw from the conditional distribution. Draws are keyed by the
          cells of the row: order, subset and repeated calls do not change them. Equal rows
          have draws of their own, told apart by the order in which they come. Draws of a
          column whose numbers were all whole in fit are rounded; means are not, so that
          integers of a dataframe come back as floats under ``"mean"``.
    missing_values : number, str or None, default=nan
        A cell that counts as missing, beside None, NaN and a library's own NA.
    add_indicator : bool, default=False
        Append one column per column that had holes in fit: 1 where the cell was missing.
    keep_empty_features : bool, default=False
        Keep columns without any observed cell in fit; they are filled from the density's
        prior. By default they are dropped.
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Columns of labels: strings, booleans, categories and enumerations of a dataframe
        or object array, or a mask, indices or names.
    random_state : int, RandomState or None, default=None
        Seed of the density and of the draws.
    n_jobs : int, default=None
        Number of parallel jobs in ``transform``; the result is the same for any.
    verbose : int, default=0
        Verbosity of the fit of an ``"auto"`` density.

    Attributes
    ----------
    density_ : density estimator or None
        The fitted density, None where a circuit was given.
    circuit_ : Circuit
        Its circuit.
    categories_ : list of ndarray or None
        Labels per column in the order of their codes, None for numbers.
    is_categorical_ : ndarray of shape (n_features_in_,)
        Mask of the columns of labels.
    indicator_ : MissingIndicator or None
        Which cells were missing; None unless ``add_indicator=True``.
    n_features_in_ : int
        Number of columns in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns in fit, where all are strings.

    See Also
    --------
    ExpectedPredictionSVR : Predicts from rows with holes without completing them.

    Notes
    -----
    Labels that fit has not seen count as missing and are replaced. Where the observed cells
    of a row have probability zero, its holes are filled from the marginal distribution, with
    a warning.

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

    _parameter_constraints: ClassVar[dict] = {
        **DENSITY_CONSTRAINTS,
        "strategy": [StrOptions({"mean", "mpe", "sample"})],
        "missing_values": [Real, str, None],
        "add_indicator": ["boolean"],
        "keep_empty_features": ["boolean"],
        "categorical_features": ["array-like", StrOptions({"from_dtype"}), None],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        density="auto",
        strategy="mean",
        missing_values=np.nan,
        add_indicator=False,
        keep_empty_features=False,
        categorical_features="from_dtype",
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.density = density
        self.strategy = strategy
        self.missing_values = missing_values
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features
        self.categorical_features = categorical_features
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @fit_context
    def fit(self, X, y=None):
        """Learn the density of the rows.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; cells may be missing.
        y : Ignored
            Present by convention.

        Returns
        -------
        CircuitImputer
            The fitted imputer.
        """
        encoded = self._learn_density(X, self.missing_values)
        missing = np.isnan(encoded)
        kept = self.keep_empty_features | ~missing.all(axis=0)
        self._kept = np.flatnonzero(kept)
        self._seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        self.indicator_ = None
        if self.add_indicator:
            self.indicator_ = MissingIndicator(error_on_new=False).fit(encoded)
        self._schema_out = self._make_schema_out()
        return self

    def transform(self, X):
        """Complete the missing cells.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; observed cells stay as they are.

        Returns
        -------
        ndarray or dataframe of shape (n_samples, n_features_out)
            An array, of objects where labels are not numbers, unless ``set_output`` asks
            for a dataframe, which gets the dtypes of the fitted one.
        """
        encoded = self._read_table(X)
        completed = self._complete(encoded, self.strategy)[0][:, self._kept]
        if self.indicator_ is not None:
            completed = np.hstack([completed, self.indicator_.transform(encoded)])
        return self._write_table(completed, self._schema_out, X)

    def sample_imputations(self, X, n_imputations=5):
        """Draw several completions of each row, as multiple imputation needs.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows.
        n_imputations : int, default=5
            Number of completed tables.

        Returns
        -------
        ndarray of shape (n_imputations, n_samples, n_features)
            Completed tables, without columns that were empty in fit (unless kept). The
            first one is that of ``strategy="sample"``, rounded alike.
        """
        check_is_fitted(self)
        check_scalar(n_imputations, "n_imputations", Integral, min_val=1)
        completed = self._complete(self._read_table(X), "sample", n_imputations)
        kept = replace(self._schema, columns=tuple(self._schema.columns[j] for j in self._kept))
        return kept.decode_array(completed[..., self._kept])

    def get_feature_names_out(self, input_features=None):
        """Names of the columns of the output.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the input columns; None takes those of fit, or x0, x1, ...

        Returns
        -------
        ndarray of str
            Names of the kept columns, then of the indicators.
        """
        check_is_fitted(self)
        names = feature_names(self, input_features)
        kept = names[self._kept]
        if self.indicator_ is None:
            return kept
        return np.concatenate([kept, self.indicator_.get_feature_names_out(names)])

    def _complete(self, encoded, strategy, n_draws=1):
        """Complete encoded rows, shape (n_draws, n, d)."""
        completed = np.repeat(encoded[None], n_draws, axis=0)
        # Complete rows are their own answer
        holes = np.flatnonzero(np.isnan(encoded).any(axis=1))
        # Keyed by the cells as they came, also where evidence has to be dropped
        streams = RowStreams(encoded[holes], self._seed)
        known = self._as_known(encoded[holes])
        chunks = row_slices(len(holes), CHUNK_ROWS)
        parts = Parallel(n_jobs=self.n_jobs, prefer="threads")(
            delayed(_complete_rows)(
                self.circuit_, known[rows], strategy, streams.take(rows), n_draws
            )
            for rows in chunks
        )
        for rows, part in zip(chunks, parts, strict=True):
            if strategy == "sample":
                part = np.where(self._schema.is_integral, np.round(part), part)
            cells = encoded[holes[rows]]
            completed[:, holes[rows]] = np.where(np.isnan(cells), part, cells)
        return completed

    def _make_schema_out(self):
        """Schema of the output: kept columns, then indicators."""
        names = self.get_feature_names_out().tolist()
        columns = [
            replace(self._schema.columns[j], name=name)
            for j, name in zip(self._kept, names, strict=False)
        ]
        indicators = [Column(name, None, True) for name in names[len(columns) :]]
        return replace(self._schema, columns=(*columns, *indicators))


def _complete_rows(circuit, X, strategy, streams, n_draws):
    """Complete rows with holes, shape (n_draws, n, d) or (n, d) for a single answer."""
    if strategy == "sample":

        def answer(rows):
            return circuit.sample(n_draws, X=rows, random_state=streams)

    elif strategy == "mpe":

        def answer(rows):
            return circuit.mpe(rows, method="max_product")

    else:

        def answer(rows):
            return _expected(circuit, rows)

    return completed_or_marginal(answer, X, circuit)


def _expected(circuit, X):
    """Complete rows with conditional means, and the most probable states where discrete."""
    completed = circuit.expectation(X)
    # The mean of codes means nothing: labels get the mode of their marginal
    if circuit.cardinalities:
        for j, probabilities in circuit.marginals(X).items():
            hole = np.isnan(X[:, j])
            completed[hole, j] = probabilities[hole].argmax(axis=1)
    return completed
