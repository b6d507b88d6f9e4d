"""Targets of the Stein estimators: learned from samples, in units of columns, and their faults."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.linalg import solve_triangular
from sklearn.base import clone
from sklearn.covariance import GraphicalLassoCV
from sklearn.exceptions import ConvergenceWarning

from skcircuits.circuits import Circuit
from skcircuits.exceptions import invalid, warn
from skcircuits.graphical import FactorGraph, GaussianMRF
from skcircuits.numerics._arrays import float_array, log_probs_at, spread_rows
from skcircuits.numerics._optimization import separate_parts
from skcircuits.numerics._patterns import unique_rows
from skcircuits.particles._diagnosis import nodes_outside_blankets, some
from skcircuits.particles._metric import DiagonalMetric
from skcircuits.trees._chow_liu import chow_liu_tree
from skcircuits.trees._trees import StateLayout

# A constant column does not determine its spread, which is this fraction of its value.
SPREAD_OF_CONSTANTS = 1e-6
# Gradients that differ by less are those of one row.
SAME = 1e-6

# Rows that are divided into two clusters, the least part of the weight and effective number of rows
# of each, and the flux between halves of a density in which there is no valley (that of a normal
# one is .48). Parts are apart if less than NEAREST of each is nearer to the other than a width.
MAX_CLUSTERED, LEAST_MASS, LEAST_ROWS, LARGE_FLUX, NEAREST = 1000, 0.05, 10.0, 0.3, 0.05

# Modes are searched for from at most MAX_SEEN particles and N_AROUND points around them, spread by
# WIDTH of their standard deviations.
MAX_SEEN, N_AROUND, WIDTH = 100, 50, 3.0
# Points at which log density and score are compared: over how much of the way to another point, or
# to where the log density changes by REACH, and relative and absolute differences by rounding.
N_COMPARED, PART_OF_WAY, REACH = 20, 0.05, 0.5
RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE, ROUNDING = 0.1, 1e-3, 1e-6
# Ends of a support are searched, along at most so many coordinates, within so many standard
# deviations and by so many bisections; a density ends at once that is so little below its highest
# there, and falls so little over the last half of them.
MAX_ENDED, WAY_OUT, N_HALVINGS, LOW, FLAT = 1000, 8.0, 40, 3.0, 0.5
# Largest mean score of particles, in units of one over their standard deviations, beyond its
# standard errors.
MAX_MEAN_SCORE, ESCAPE_ERRORS = 1.0, 5.0
# Difference of equal scores, relative to the largest, that single precision explains.
SINGLE_PRECISION = 0.01
# Gauss-Legendre rules of two orders: where they agree, a score is integrated accurately.
RULES = tuple(np.polynomial.legendre.leggauss(order) for order in (3, 5))


def column_units(X):
    """Standardised coordinates of the columns of rows."""
    mean, standard_deviation = X.mean(axis=0), X.std(axis=0)
    # Rounding errors of the mean of a constant column are not a spread.
    constant = standard_deviation <= 1e-12 * np.abs(mean)
    spread = SPREAD_OF_CONSTANTS * np.where(mean == 0, 1.0, np.abs(mean))
    return DiagonalMetric(np.where(constant, spread, standard_deviation), center=mean)


@dataclass(frozen=True)
class Whitening:
    """Coordinates ``z = L^-1 (x - mean) / standard_deviation``, L L' the correlation of samples."""

    units: DiagonalMetric
    root: np.ndarray  # (d, d), lower triangular

    @classmethod
    def of(cls, X):
        """Estimate the correlation from rows, shrunk towards zero if there are few."""
        n, d = X.shape
        units = column_units(X)
        standardized = units.transform(X)
        correlation = standardized.T @ standardized / n
        correlation *= n / (n + d)
        # Constant columns have no correlation either.
        correlation[np.diag_indices(d)] = 1.0
        return cls(units, np.linalg.cholesky(correlation))

    def transform(self, X):
        """Give points in these coordinates."""
        return solve_triangular(self.root, self.units.transform(X).T, lower=True).T

    def inverse_transform(self, Z):
        """Give points in the original coordinates."""
        return self.units.inverse_transform(Z @ self.root.T)

    def stretch(self, Z):
        """Give displacements z as displacements x."""
        return self.units.stretch(Z @ self.root.T)

    def pull(self, scores):
        """Give gradients in these coordinates."""
        return self.units.pull(scores) @ self.root

    def moment_residuals(self, X, scores):
        """Apply Stein's identity to the first two moments of each column, (n, 2 d)."""
        # With Σ the covariance of the samples, Σ s and 1 + x_i (Σ s)_i / Σ_ii have mean zero under
        # the target; where it is Gaussian with this covariance they are the distances of x from the
        # mean and of its square from the second moment
        along = self.pull(scores)
        return np.hstack([along, 1.0 + self.units.transform(X) * (along @ self.root.T)])

    def variance_errors(self, X, scores, weights):
        """Give errors (d,) of Stein's identity for variances of weighted rows, and their noise."""
        # With Σ as above, 1 + E[(x - E[x])_i (Σ s)_i] / Σ_ii vanishes for the target; where that is
        # Gaussian with this covariance, it is the relative error of the variance
        standardized = self.units.transform(X)
        centred = standardized - weights @ standardized
        terms = 1.0 + centred * (self.pull(scores) @ self.root.T)
        errors = weights @ terms
        return errors, np.sqrt(weights**2 @ (terms - errors) ** 2)


def are_divided(points, scores, weights):
    """Tell whether weighted rows are two clusters, each of which fulfils Stein's identity alone.

    The mean score within a part of a density is the flux over its border: nothing but the density
    in between tells the masses of parts that it does not connect.
    """
    rows = np.flatnonzero(weights)
    rows = rows[spread_rows(len(rows), MAX_CLUSTERED)]
    if len(rows) < 2:
        return False
    points, scores, weights = points[rows], scores[rows], weights[rows]
    sides = fcluster(linkage(points, "ward"), 2, "maxclust") == np.array([[1], [2]])
    fractions = sides * weights
    masses = fractions.sum(axis=1, keepdims=True)
    if masses.min() < LEAST_MASS * masses.sum():
        return False
    fractions /= masses
    way = np.diff(fractions @ points, axis=0)[0]
    along, slopes = (values @ (way / np.linalg.norm(way)) for values in (points, scores))
    flux = fractions @ slopes
    noise = np.sqrt((fractions**2 * (slopes - flux[:, None]) ** 2).sum(axis=1))
    width = np.sqrt((fractions * (along - (fractions @ along)[:, None]) ** 2).sum(axis=1))
    is_known = LEAST_ROWS * (fractions**2).sum(axis=1) <= 1.0
    # The halves of a ring have little flux between them, too
    order = np.argsort(along)
    first, second = np.cumsum(fractions[:, order], axis=1)
    ends = order[[np.searchsorted(first, 1.0 - NEAREST), np.searchsorted(second, NEAREST)]]
    is_apart = np.diff(along[ends])[0] > width.max()
    return bool(is_apart and (is_known & ((np.abs(flux) + noise) * width < LARGE_FLUX)).all())


class GivenGradients:
    """The score function as a table: rows that it does not list are refused."""

    def __init__(self, samples, gradients):
        gradients = float_array(gradients, "gradients")
        if gradients.shape != samples.shape:
            raise invalid("gradients", "have the shape of X", shape=gradients.shape)
        if not np.isfinite(gradients).all():
            row = int(np.isfinite(gradients).all(axis=1).argmin())
            raise invalid("gradients", "be finite", row=row)
        first, which = unique_rows(samples)
        # Vectorised gradients of equal rows may differ in their last digits.
        differs = ~np.isclose(gradients[first][which], gradients, rtol=SAME, atol=SAME)
        if differs.any():
            row = int(differs.any(axis=1).argmax())
            raise invalid("gradients", "be equal for equal rows of X", row=row)
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
            raise invalid("a target", condition, way_out, target=None)
        return self._gradients[position]


# Penalties to choose from, on the scale of correlations.
PENALTIES = np.geomspace(0.01, 0.8, 8)
# Fewer rows leave none to hold out.
MIN_ROWS_FOR_LINKS = 4


def in_original_units(field, units):
    """Give a Gaussian field over standardised columns in the units of the table."""
    precision = field.precision / np.outer(units.scales, units.scales)
    return GaussianMRF(precision, precision @ units.center)


def learn_standardized_field(X):
    """Learn a sparse Gaussian field by the graphical lasso, over standardised columns; units."""
    if len(X) < 2:
        raise invalid("X", "have at least 2 rows to learn a field", n_samples=len(X))
    units = column_units(X)
    standardized = units.transform(X)
    # The penalty is chosen by cross-validation
    precision = np.eye(X.shape[1])
    # Constant columns have no spread in any unit
    varying = np.flatnonzero(standardized.std(axis=0) > 0.5)
    if varying.size > 1 and len(X) >= MIN_ROWS_FOR_LINKS:
        precision[np.ix_(varying, varying)] = _lasso_precision(standardized[:, varying])
    return GaussianMRF(precision, np.zeros(X.shape[1])), units


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
    units: DiagonalMetric

    def grad_log_prob(self, Z):
        """Compute the score in these coordinates."""
        return self.units.pull(self.target.grad_log_prob(self.units.inverse_transform(Z)))


def resolve_continuous_target(target, X):
    """Give the target of the particles, the target in the coordinates of the run, and its units."""
    # A target learned from X is approached in standardised coordinates: one step size serves tables
    # of any scale
    if target is not None and not hasattr(target, "fit"):
        _refuse_gaps(target)
        return target, target, DiagonalMetric(1.0)
    if X is None:
        raise invalid("X", "hold data to learn the target from", "Pass a target or data.", X=X)
    if target is None:
        field, units = learn_standardized_field(X)
        return in_original_units(field, units), field, units
    # FrozenEstimator insists on a y, others ignore it.
    density = clone(target).fit(X, None)
    if not hasattr(density, "grad_log_prob"):
        way_out = "GaussianMixtureDensity has it if all columns are numerical."
        raise invalid("a density as target", "have grad_log_prob after fit", way_out, target=target)
    units = column_units(X)
    return density, StandardizedTarget(density, units), units


def _refuse_gaps(target):
    """Refuse circuits without variables for some columns, in which particles would diverge."""
    if isinstance(target, Circuit) and target.variables != tuple(range(len(target.variables))):
        condition = "have the variables 0, 1, ... d - 1"
        way_out = "Renumber the variables of its input units."
        raise invalid("a circuit as target", condition, way_out, variables=target.variables)


def learn_target(samples, is_categorical, cardinalities):
    """Learn a sparse Gaussian field of numbers, a Chow-Liu tree of labels."""
    if not is_categorical.any():
        return in_original_units(*learn_standardized_field(samples))
    if not is_categorical.all():
        condition = "be all numeric or all categorical"
        way_out = "Pass a target for mixed tables."
        raise invalid("columns", condition, way_out, n_categorical=int(is_categorical.sum()))
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


def warn_of_wrong_graph(problem, start, rng):
    """Warn where a score depends on more than its blanket."""
    if problem.neighbors is None:
        return
    outside = nodes_outside_blankets(problem.score, problem.graph, start, rng)
    if outside.size:
        warn(
            "The score of some nodes depends on more than their neighbors "
            f"(nodes {outside[:10].tolist()}); kernels over the wrong blankets do not match "
            "the conditional distributions.",
        )


def warn_of_dependent_rows(problem, points, estimator):
    """Warn where the score of a row depends on the rows beside it."""
    points = points[spread_rows(len(points), N_COMPARED)]
    together, again = (problem.score(points) for _ in range(2))
    alone = problem.score(points[:1])[0]
    with np.errstate(invalid="ignore"):
        # Scores of random parts of the data differ from call to call
        noise = np.abs(together - again).max()
        tolerance = SINGLE_PRECISION * np.abs(together).max() + 100.0 * noise
        difference = np.abs(together[0] - alone).max()
    if difference > tolerance:
        warn(
            f"{type(estimator).__name__}: the score of a row changes by {difference:.3g} if other "
            "rows are evaluated with it. Every log density must depend on its own row only: do not "
            "subtract means over rows, and set neural networks to evaluation mode.",
        )


def warn_of_wrong_score(problem, points, estimator):
    """Warn where the score of a target is not the gradient of its log density near points."""
    if problem.log_prob is None:
        return
    points = np.asarray(points, dtype=np.float64)[spread_rows(len(points), N_COMPARED)]
    way = PART_OF_WAY * (np.roll(points, 1, axis=0) - points)
    with np.errstate(all="ignore"):
        slopes = np.abs((problem.score(points) * way).sum(axis=1, keepdims=True))
        way *= np.minimum(1.0, REACH / np.maximum(slopes, 1e-300))
        before, after = (problem.log_prob(X) for X in (points, points + way))
        rough, gained = (_integrated(problem.score, points, way, rule) for rule in RULES)
        size = np.maximum(np.abs(after - before), np.abs(gained))
        tolerance = RELATIVE_TOLERANCE * size + ABSOLUTE_TOLERANCE + ROUNDING * np.abs(before)
        # Comparisons with NaN are false: such points tell nothing
        usable = (np.abs(rough - gained) <= tolerance / 2) & np.isfinite(after - before)
        wrong = usable & (np.abs(after - before - gained) > tolerance)
    if wrong.sum() <= max(1, usable.sum() / 2):
        return
    row = int(wrong.argmax())
    warn(
        f"{type(estimator).__name__}: grad_log_prob of the target is not the gradient of its "
        f"log_prob_unnormalized: between two points, the log density changes by "
        f"{after[row] - before[row]:.3g}, and by {gained[row]:.3g} according to the gradient. "
        "Only the gradient is used. Check the signs and factors of both.",
    )


def abrupt_ends(problem, samples):
    """Give the coordinates along which a density ends at once: Stein's identity does not hold."""
    d, scale = samples.shape[1], samples.std(axis=0)
    if problem.log_prob is None or d > MAX_ENDED:
        return np.empty(0, dtype=int)
    log_probs = problem.log_prob(samples)
    origin, height = samples[log_probs.argmax()], log_probs.max()
    ways = WAY_OUT * scale * np.vstack([np.eye(d), -np.eye(d)])
    with np.errstate(all="ignore"):
        ways = ways[~np.isfinite(problem.log_prob(origin + ways)) & ways.any(axis=1)]
        inside = np.zeros(len(ways))
        values = []
        for step in 0.5 ** np.arange(1, N_HALVINGS + 1):
            ahead = problem.log_prob(origin + (inside + step)[:, None] * ways)
            inside += step * np.isfinite(ahead)
            values.append(problem.log_prob(origin + inside[:, None] * ways))
    # A density that vanishes falls on and on towards its end
    is_abrupt = (values[-1] > height - LOW) & (values[-1] > values[N_HALVINGS // 2] - FLAT)
    return np.unique(ways[is_abrupt].nonzero()[1])


def warn_of_ends(ended, outcome, names, estimator):
    """Warn of coordinates along which a density ends at once; tell whether there are."""
    if ended.size:
        warn(
            f"{type(estimator).__name__}: the density of the target does not vanish at the ends of "
            f"its support (of {some(ended, names)}), where Stein's identity does not hold: "
            f"{outcome}. Transform bounded coordinates to unbounded ones, for example by a "
            "logarithm, and add the log Jacobian to the log density.",
        )
    return bool(ended.size)


def _integrated(score, points, way, rule):
    """Change of the log density along ways from points, (n,), by its score."""
    nodes, weights = rule
    along = points + 0.5 * (1.0 + nodes[:, None, None]) * way
    scores = score(along.reshape(-1, points.shape[1])).reshape(along.shape)
    return 0.5 * weights @ (scores * way).sum(axis=2)


def require_log_densities(problem, start):
    """Raise the error of a log density that fails at starting particles, as by a wrong shape."""
    if problem.log_prob is not None:
        # Not by problem.log_prob, to which an error means that a point is out of the support
        log_probs_at(problem.target.log_prob_unnormalized, np.asarray(start[:2], np.float64))


def warn_of_impossible_particles(problem, particles, estimator):
    """Warn where the density is zero or unknown at particles, which follow the score alone."""
    if problem.log_prob is None:
        return
    values = problem.log_prob(np.asarray(particles, np.float64))
    n_outside = int(np.isneginf(values).sum())
    if n_outside:
        warn(
            f"{type(estimator).__name__}: the density of the target is zero at {n_outside} of "
            f"{len(particles)} particles, which follow its gradient over the ends of its support. "
            "Transform bounded coordinates to unbounded ones, for example by a logarithm.",
            ConvergenceWarning,
        )
    unknown = np.isnan(values) | np.isposinf(values)
    if unknown.any():
        row = int(unknown.argmax())
        warn(
            f"{type(estimator).__name__}: the log density of the target is not a number (-inf "
            f"where impossible) at {int(unknown.sum())} of {len(particles)} particles, for example "
            f"{values[row]} at {particles[row][:10].tolist()}. They may lie outside of its "
            "support, and expectations cannot be trusted. Start from points where it is a number, "
            "or transform bounded coordinates to unbounded ones, for example by a logarithm.",
            ConvergenceWarning,
        )


def warn_of_escape(problem, particles, estimator, names):
    """Warn where the score alone is known, and its mean at the particles is far from zero."""
    # Nothing else tells that particles have left a support: each score may be right
    if problem.log_prob is not None or len(particles) < 2:
        return
    particles = np.asarray(particles, dtype=np.float64)
    with np.errstate(all="ignore"):
        scores, widths = problem.score(particles), particles.std(axis=0)
        mean, noise = np.abs(scores.mean(axis=0)), scores.std(axis=0) / np.sqrt(len(scores))
        escaped = np.flatnonzero(~((mean - ESCAPE_ERRORS * noise) * widths <= MAX_MEAN_SCORE))
    if escaped.size:
        warn(
            f"{type(estimator).__name__}: the mean of the score at the particles is far from zero "
            f"({some(escaped, names)}), which it is under every density that vanishes at the ends "
            "of its support: particles may have left it. Give the target log_prob_unnormalized, "
            "which is -inf there, or transform bounded coordinates to unbounded ones, for example "
            "by a logarithm.",
            ConvergenceWarning,
        )


def warn_of_shrinkage(problem, n_particles):
    """Warn where kernels depend on so many coordinates that the repulsion of particles vanishes."""
    # On standard normal targets the variance of n particles comes out below about three quarters
    # once a kernel sees n / 2 coordinates, or n with the linear term
    if problem.kernel == "graphical":
        n_seen = problem.graph.scope_sizes.max()
    elif problem.kernel == "random":
        n_seen = problem.n_neighbors * problem.n_coordinates / problem.graph.n_nodes
    else:
        n_seen = problem.n_coordinates
    n_bearable = n_particles if problem.linear_weight else n_particles / 2
    if n_particles > 1 and n_seen > n_bearable:
        warn(
            f"{n_particles} particles are few for kernels over {n_seen:.0f} coordinates: the "
            "variances will be too small. Use more particles, or kernel='random'.",
        )


def names_of(target, n_coordinates, columns=None):
    """Names of the coordinates of a target, by its table or itself; None if there are none."""
    names = getattr(target, "variable_names", None) if columns is None else columns
    return names if names is not None and len(names) == n_coordinates else None


def warn_of_faults(diagnosis, estimator, is_corrected, names):
    """Warn of moments that contradict the target or cannot be compared; tell whether there are."""
    # Chains that have not mixed improve the particles, but do not reach the target.
    where = diagnosis.doubtful & diagnosis.unmixed if is_corrected else None
    faults = diagnosis.faults(where, names)
    if not faults and diagnosis.n_closed:
        warn(
            f"{type(estimator).__name__}: the particles lie in {diagnosis.n_closed} parts of the "
            "density, between which chains do not move. The fractions of the particles in them "
            "are those of the start, right or wrong: set annealing, or give the target "
            "log_prob_unnormalized, if it has none.",
            ConvergenceWarning,
        )
        return True
    if not faults:
        return False
    by_chains = diagnosis.draws is None
    if is_corrected:
        why = "the chains have not mixed" if by_chains else "the draws are too uneven"
        outcome = f"They were moved towards the target, but {why} there"
        way_out = "reparametrise the target, or take more particles from closer to it"
    else:
        outcome = "Expectations cannot be trusted"
        way_out = "set correction=True, reparametrise the target, or start closer to it"
    warn(
        f"{type(estimator).__name__}: by {diagnosis.method}, {'; '.join(faults)}. "
        f"{outcome}: {way_out}.",
        ConvergenceWarning,
    )
    return True


def warn_of_few_particles(diagnosis, n_particles, n_enough, estimator, names):
    """Warn where so few particles are far from the target that they cannot be corrected."""
    faults = diagnosis.faults(diagnosis.grossly_wrong, names)
    if faults:
        warn(
            f"{type(estimator).__name__}: by {diagnosis.method}, {'; '.join(faults)}. "
            f"{n_particles} particles are too few: take at least {n_enough}, which are corrected.",
            ConvergenceWarning,
        )


def warn_of_missed_modes(problem, particles, estimator):
    """Warn where the density has modes around the particles that no particle belongs to."""
    particles = np.asarray(particles, dtype=np.float64)
    center, scale = particles.mean(axis=0), particles.std(axis=0)
    scale[scale == 0] = 1.0
    chosen = (particles[spread_rows(len(particles), MAX_SEEN)] - center) / scale
    # Draws of its own: equal particles have equal faults.
    around = WIDTH * np.random.default_rng(0).standard_normal((N_AROUND, particles.shape[1]))

    def score(Z):
        return scale * problem.score(center + scale * Z)

    if problem.log_prob is not None:
        # Beyond the ends of a support, a score means nothing
        around = around[np.isfinite(problem.log_prob(center + scale * around))]
    parts = separate_parts(score, np.concatenate([chosen, around]), MAX_SEEN + N_AROUND)
    missed = np.setdiff1d(parts, parts[: len(chosen)])
    if missed.size:
        warn(
            f"{type(estimator).__name__}: the density has further modes without particles "
            f"({missed.size} were found). Means and variances are those of the modes with "
            "particles. Start from particles in all modes, or set annealing.",
            ConvergenceWarning,
        )
