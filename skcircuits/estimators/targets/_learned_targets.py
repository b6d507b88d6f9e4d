"""Targets that are learned from the samples, and coordinates that make columns comparable."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.base import clone
from sklearn.covariance import GraphicalLassoCV
from sklearn.exceptions import ConvergenceWarning

from skcircuits.circuits import Circuit
from skcircuits.exceptions import must
from skcircuits.graphical import FactorGraph, GaussianMRF
from skcircuits.numerics._arrays import float_array
from skcircuits.numerics._patterns import unique_rows
from skcircuits.trees._chow_liu import chow_liu_tree
from skcircuits.trees._trees import StateLayout

# A constant column does not determine its spread, which is this fraction of its value.
SPREAD_OF_CONSTANTS = 1e-6
# Gradients that differ by less are those of one row.
SAME = 1e-6


@dataclass(frozen=True)
class ColumnUnits:
    """Standardised coordinates ``z = (x - mean) / standard_deviation``; by default x itself."""

    mean: np.ndarray | float = 0.0  # (n_features,) or float
    standard_deviation: np.ndarray | float = 1.0  # (n_features,) or float

    @classmethod
    def of(cls, X):
        """Take the units from rows."""
        mean, standard_deviation = X.mean(axis=0), X.std(axis=0)
        # Rounding errors of the mean of a constant column are not a spread.
        constant = standard_deviation <= 1e-12 * np.abs(mean)
        spread = SPREAD_OF_CONSTANTS * np.where(mean == 0, 1.0, np.abs(mean))
        return cls(mean, np.where(constant, spread, standard_deviation))

    def transform(self, X):
        """Give points in these coordinates."""
        return (X - self.mean) / self.standard_deviation

    def inverse_transform(self, Z):
        """Give points in the original coordinates."""
        return self.mean + self.standard_deviation * Z

    def transform_scores(self, scores):
        """Give gradients in these coordinates."""
        return self.standard_deviation * scores

    @property
    def axes(self):
        """Steps of x along each of these coordinates, (d, d) in columns."""
        return np.diag(self.standard_deviation)


@dataclass(frozen=True)
class Whitening:
    """Coordinates ``z = L^-1 (x - mean) / standard_deviation``, L L' the correlation of samples."""

    units: ColumnUnits
    root: np.ndarray  # (d, d), lower triangular

    @classmethod
    def of(cls, X):
        """Estimate the correlation from rows, shrunk towards zero if there are few."""
        n, d = X.shape
        units = ColumnUnits.of(X)
        standardized = units.transform(X)
        correlation = standardized.T @ standardized / n
        correlation *= n / (n + d)
        # Constant columns have no correlation either.
        correlation[np.diag_indices(d)] = 1.0
        return cls(units, np.linalg.cholesky(correlation))

    @property
    def axes(self):
        """Steps of x along each of these coordinates, (d, d) in columns."""
        return np.reshape(self.units.standard_deviation, (-1, 1)) * self.root

    def transform(self, X):
        """Give points in these coordinates."""
        return solve_triangular(self.root, self.units.transform(X).T, lower=True).T

    def inverse_transform(self, Z):
        """Give points in the original coordinates."""
        return self.units.inverse_transform(Z @ self.root.T)

    def transform_scores(self, scores):
        """Give gradients in these coordinates."""
        return (self.units.standard_deviation * scores) @ self.root

    def moment_residuals(self, X, scores):
        """Apply Stein's identity to the first two moments of each column, (n, 2 d).

        With Σ the covariance of the samples, ``Σ s`` and ``1 + x_i (Σ s)_i / Σ_ii`` have mean zero
        under the target; where it is Gaussian with this covariance they are the distances of x
        from the mean and of its square from the second moment.
        """
        along = self.transform_scores(scores)
        return np.hstack([along, 1.0 + self.units.transform(X) * (along @ self.root.T)])

    def variance_errors(self, X, scores, weights):
        """Give errors of Stein's identity for variances of weighted rows, and their noise, (d,).

        With Σ as above, ``1 + E[(x - E[x])_i (Σ s)_i] / Σ_ii`` vanishes for the target; where that
        is Gaussian with this covariance, it is the relative error of the variance.
        """
        standardized = self.units.transform(X)
        centred = standardized - weights @ standardized
        terms = 1.0 + centred * (self.transform_scores(scores) @ self.root.T)
        errors = weights @ terms
        return errors, np.sqrt(weights**2 @ (terms - errors) ** 2)


class GivenGradients:
    """The score function as a table: rows that it does not list are refused."""

    def __init__(self, samples, gradients):
        gradients = float_array(gradients, "gradients")
        if gradients.shape != samples.shape:
            raise ValueError(must("gradients", "have the shape of X", shape=gradients.shape))
        if not np.isfinite(gradients).all():
            row = int(np.isfinite(gradients).all(axis=1).argmin())
            raise ValueError(must("gradients", "be finite", row=row))
        first, which = unique_rows(samples)
        # Vectorised gradients of equal rows may differ in their last digits.
        differs = ~np.isclose(gradients[first][which], gradients, rtol=SAME, atol=SAME)
        if differs.any():
            row = int(differs.any(axis=1).argmax())
            raise ValueError(must("gradients", "be equal for equal rows of X", row=row))
        self._samples, self._gradients = samples[first], gradients[first]

    def grad_log_prob(self, X):
        """Look rows up, (n, d)."""
        n_known = len(self._samples)
        first, which = unique_rows(np.concatenate([self._samples, X]))
        # Known rows come first, so that they represent those that are equal.
        position = first[which[n_known:]]
        if (position >= n_known).any():
            condition = "be given to evaluate rows that were not in fit"
            way_out = "Only the gradients passed to fit are known."
            raise ValueError(must("a target", condition, way_out, target=None))
        return self._gradients[position]


# Penalties to choose from, on the scale of correlations.
PENALTIES = np.geomspace(0.01, 0.8, 8)
# Fewer rows leave none to hold out.
MIN_ROWS_FOR_LINKS = 4


@dataclass(frozen=True)
class SparseField:
    """A Gaussian field over standardised columns, and its conversion to original units."""

    units: ColumnUnits
    standardized: GaussianMRF

    def in_original_units(self):
        """Give the field in the original units of the columns."""
        scale = self.units.standard_deviation
        precision = self.standardized.precision / np.outer(scale, scale)
        return GaussianMRF(precision, precision @ self.units.mean)


def learn_sparse_field(X):
    """Learn a sparse Gaussian field in the units of the table."""
    return learn_standardized_field(X).in_original_units()


def learn_standardized_field(X):
    """Learn mean and sparse precision by the graphical lasso, penalty by cross-validation."""
    if len(X) < 2:
        raise ValueError(must("X", "have at least 2 rows to learn a field", n_samples=len(X)))
    units = ColumnUnits.of(X)
    standardized = units.transform(X)
    precision = np.eye(X.shape[1])
    # Constant columns have no spread in any unit
    varying = np.flatnonzero(standardized.std(axis=0) > 0.5)
    if varying.size > 1 and len(X) >= MIN_ROWS_FOR_LINKS:
        precision[np.ix_(varying, varying)] = _lasso_precision(standardized[:, varying])
    return SparseField(units, GaussianMRF(precision, np.zeros(X.shape[1])))


def _lasso_precision(standardized):
    """Give the sparse precision of standardised columns."""
    for first in range(len(PENALTIES) - 1):
        try:
            return _chosen_precision(standardized, PENALTIES[first:])
        except FloatingPointError:  # collinear columns: the smallest penalty was too small
            continue
    return np.eye(standardized.shape[1])


def _chosen_precision(standardized, penalties):
    """Give the precision of the penalty that the cross-validation chooses."""
    n_folds = min(5, len(standardized) // 2)
    lasso = GraphicalLassoCV(alphas=penalties, cv=n_folds, assume_centered=True)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        # Small penalties may not converge on near-collinear columns, or diverge where a fold
        # has an outlier; they are then not chosen by the cross-validation.
        warnings.simplefilter("ignore", ConvergenceWarning)
        precision = lasso.fit(standardized).precision_
    return (precision + precision.T) / 2


@dataclass(frozen=True)
class StandardizedTarget:
    """A continuous target in standardised coordinates."""

    target: Any
    units: ColumnUnits

    def grad_log_prob(self, Z):
        """Compute the score in these coordinates."""
        return self.units.standard_deviation * self.target.grad_log_prob(
            self.units.inverse_transform(Z)
        )


def resolve_continuous_target(target, X):
    """Give the target of the particles, the target in the coordinates of the run, and its units.

    A target learned from X is approached in standardised coordinates, so that one step size serves
    tables of any scale.
    """
    if target is not None and not hasattr(target, "fit"):
        _refuse_gaps(target)
        return target, target, ColumnUnits()
    if X is None:
        raise ValueError(
            must("X", "hold data to learn the target from", "Pass a target or data.", X=X)
        )
    if target is None:
        field = learn_standardized_field(X)
        return field.in_original_units(), field.standardized, field.units
    # FrozenEstimator insists on a y, others ignore it.
    density = clone(target).fit(X, None)
    if not hasattr(density, "grad_log_prob"):
        condition = "have grad_log_prob after fit"
        way_out = "GaussianMixtureDensity has it if all columns are numerical."
        raise ValueError(must("a density as target", condition, way_out, target=target))
    units = ColumnUnits.of(X)
    return density, StandardizedTarget(density, units), units


def _refuse_gaps(target):
    """Refuse circuits without variables for some columns, in which particles would diverge."""
    if isinstance(target, Circuit) and target.variables != tuple(range(len(target.variables))):
        condition = "have the variables 0, 1, ... d - 1"
        way_out = "Renumber the variables of its input units."
        raise ValueError(
            must("a circuit as target", condition, way_out, variables=target.variables)
        )


def learn_target(samples, is_categorical, cardinalities):
    """Learn a sparse Gaussian field of numbers, a Chow-Liu tree of labels."""
    if not is_categorical.any():
        return learn_sparse_field(samples)
    if not is_categorical.all():
        condition = "be all numeric or all categorical"
        way_out = "Pass a target for mixed tables."
        raise ValueError(
            must("columns", condition, way_out, n_categorical=int(is_categorical.sum()))
        )
    return _tree_graph(chow_liu_tree(samples.astype(np.int64), StateLayout(cardinalities)))


def _tree_graph(tree):
    """Write a tree distribution as factors: ``p(root) prod p(child | parent)``."""
    # As factors rather than as a circuit: collapsed samples need the graph.
    factors = []
    for child, parent in enumerate(tree.parents.tolist()):
        own = _states_of(tree.layout, child)
        if parent < 0:
            factors.append(((child,), tree.statistics.nodes[own]))
            continue
        above = _states_of(tree.layout, parent)
        # The pseudo-count keeps every state of the parent possible.
        joint = tree.statistics.pairs[above, own]
        factors.append(((parent, child), joint / tree.statistics.nodes[above][:, None]))
    return FactorGraph(factors, tree.layout.cardinalities)


def _states_of(layout, variable):
    start = layout.offsets[variable]
    return slice(start, start + layout.cardinalities[variable])
