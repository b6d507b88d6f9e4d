"""Graphical Stein variational gradient descent for continuous graphical models."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from skcircuits.estimators._base import (
    HasMethods,
    Interval,
    StrOptions,
    TableMixin,
    check_is_fitted,
    fit_context,
    make_generator,
)
from skcircuits.estimators.shared._fitting import drive
from skcircuits.estimators.targets._targets import (
    abrupt_ends,
    names_of,
    require_log_densities,
    resolve_continuous_target,
    warn_of_dependent_rows,
    warn_of_ends,
    warn_of_escape,
    warn_of_faults,
    warn_of_few_particles,
    warn_of_impossible_particles,
    warn_of_missed_modes,
    warn_of_shrinkage,
    warn_of_wrong_graph,
    warn_of_wrong_score,
)
from skcircuits.estimators.targets._weighted_samples import (
    draws_of_rows,
    function_values,
    to_inference_data,
)
from skcircuits.exceptions import invalid, require_count
from skcircuits.numerics._arrays import float_array
from skcircuits.parallel import Parallel, dask_client, delayed, single_threaded_blas
from skcircuits.particles._metric import Metric, SparseMetric
from skcircuits.particles._neighborhoods import index_lists
from skcircuits.particles._problem import SVGDProblem
from skcircuits.particles._steps import NOTHING_KEPT, Snapshot, StepSchedule, SVGDState
from skcircuits.tabular._columns import refuse_extremes

# Limits of preconditioner="auto": dense matrices of more coordinates cost more than they save, and
# fewer particles give too little information about their errors.
MAX_COORDINATES, MIN_PARTICLES = 1000, 20
# Numbers beyond which moments are not tested: chains would cost as much as the run.
MAX_DIAGNOSED = 2e7
# Numbers from which workers save more than communication costs.
MIN_SENT = 1e6
# Condition number of the correlations up to which a preconditioner gains little.
EASY_CONDITION = 10.0


def _target_has_log_prob(sampler):
    """Tell whether the (future) target gives log densities."""
    target = getattr(sampler, "target_", sampler.target)
    return target is None or hasattr(target, "log_prob_unnormalized")


class GraphicalSVGDSampler(CallbackSupportMixin, BaseEstimator):
    """Approximate a continuous graphical model by particles, with one kernel per node.

    Stein variational gradient descent moves particles along the steepest descent of the
    Kullback-Leibler divergence. With one kernel over all coordinates, the variances collapse as the
    dimension grows. Here, the kernel of each node depends only on its Markov blanket, and a linear
    kernel on the blanket corrects the first two moments.

    The particles approach a distribution whose *conditionals* given the blankets are those of the
    target. This does not imply that the joint distributions are the same. Only expectations of
    functions of a node and its neighbours can be trusted.

    Parameters
    ----------
    target : object, default=None
        A continuous target with ``grad_log_prob(X)`` and, if the graph is known, ``neighbors`` (for
        each node, the indices of its blanket) and ``blocks`` (for each node, its coordinates; by
        default one). Without a graph, all coordinates are neighbours of each other. A density
        estimator is cloned and fitted to X, unless it is passed in a ``FrozenEstimator``. Its
        circuit must have Gaussian input units only, such as that of `GaussianMixtureDensity` for
        numerical columns, so that it has a score function. None learns a sparse Gaussian Markov
        random field from X by the graphical lasso.
    n_particles : int, default=100
        Number of particles, if no starting particles are passed to `fit`.
    kernel : {"auto", "graphical", "global", "combine", "random"}, default="auto"
        ``"graphical"`` uses RBF kernels over the blankets, ``"global"`` one kernel over all
        coordinates (vanilla SVGD), ``"random"`` kernels over `n_neighbors` nodes that are drawn
        from the blanket at every iteration, for dense graphs, and ``"combine"`` a weighted sum of
        ``"random"`` and ``"global"``. ``"auto"`` is ``"global"`` in preconditioned coordinates, and
        ``"graphical"`` otherwise.
    preconditioner : {"auto", "hessian", "covariance"}, None or array, default="auto"
        Metric Q of the coordinates in which the particles move. With ``"hessian"``, Q is the
        negative Hessian of the log density, averaged under the Gaussian that satisfies Stein's
        identity for linear functions. It is found by Newton's method, with Hessians from
        differences of scores, as few as a colouring of the graph allows. The starting particles are
        standardised and mapped to this Gaussian. With ``"covariance"``, Q is the inverse covariance
        of the starting particles. An array of shape (n_features, n_features) is Q itself. None is
        the published method. ``"auto"`` is ``"hessian"`` if there are 2 to 1000 coordinates and at
        least 20 particles, the kernel is "auto" or "global", there is no annealing, an ascent of
        the density from a few particles leads to a single mode, and the density is log-concave or
        its coordinates are strongly correlated. Otherwise it is None. For more than 1000
        coordinates, if the graph is sparse and the density is log-concave, ``"auto"`` starts the
        particles from the Gaussian of ``"hessian"`` and then moves them in units of its standard
        deviations.
    bandwidth_factor : float, default=1.0
        Bandwidths are this factor times the squared median distance of the particles. A larger
        factor represents the spread of unimodal targets better, and a smaller one keeps modes
        apart.
    linear_weight : "auto" or float, default="auto"
        Weight of the linear kernel on the blankets (for "random" and "combine", on the random
        neighbourhoods; in preconditioned coordinates, on the most correlated coordinates).
        ``"auto"`` is 1 if the particles are preconditioned and the target is log-concave (as nearly
        Gaussian targets are), and 0.1 otherwise. Larger weights give more accurate variances on
        nearly Gaussian targets; 0 is the published method.
    n_neighbors : int, default=5
        Number of nodes of each kernel in "random" and "combine", including its own.
    local_weight : float, default=0.5
        Weight of the random neighbourhoods in "combine"; the global kernel has the remaining
        weight.
    max_iter : int, default=1000
        Maximum number of iterations. The step size is constant for 60 % of them and then decreases
        to a hundredth. Preconditioned runs stop when the discrepancy to the target stops
        decreasing, usually within a hundred iterations.
    step_size : float, default=0.05
        Length of the initial steps. Steps that increase the distance from the target are undone and
        shortened.
    tol : float, default=1e-4
        The run stops when the root mean square of the direction, with each coordinate in units of
        one over the standard deviation of the particles, is at most this value. After `max_iter`
        iterations, a value of up to 0.05 also counts as convergence.
    optimizer : {"rmsprop", "adam", "adagrad", "sgd"}, default="rmsprop"
        Rule that computes steps from directions; "sgd" uses the direction itself.
    annealing : float, default=0.0
        Fraction of the iterations in which the exponent of the target density increases from a
        hundredth to one, so that particles can move between modes at first.
    correction : {"auto"} or bool, default="auto"
        Whether to replace the particles if their means, variances or fractions in the modes are
        clearly wrong, or if some have left the support of the log density. Weighted draws around
        all modes that ascents of the density find take their place, if the weights and Stein's
        identity show that the draws represent the target, and otherwise states of Hamiltonian Monte
        Carlo chains, one of which starts from every particle. They are scaled to the means and
        variances of all draws or states. ``"auto"`` corrects the particles unless a kernel is given
        or `preconditioner` is None, which keeps the published method unchanged. Without correction,
        a warning is issued.
    n_init : int, default=1
        Number of independent runs, of which the particles with the smallest Stein discrepancy are
        kept. If starting particles are given, there is a single run.
    warm_start : bool, default=False
        Whether `fit` starts from the particles of the previous fit.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the particles. Iterations in float32 take about .6 of the time.
    n_jobs : int, default=None
        Number of threads over nodes in one run, or of joblib workers over runs if `n_init` > 1.
        Results do not depend on it. Under ``joblib.parallel_config("dask")``, particles with at
        least a million numbers in total that are moved by kernels over the blankets are divided
        into one block per worker.
    random_state : int, RandomState or None, default=None
        Controls the randomness of the starting particles and the random neighbourhoods.
    verbose : int, default=0
        Print about twenty progress messages if 1, and one per iteration if larger.

    Attributes
    ----------
    particles_ : ndarray of shape (n_particles, n_features)
        The particles.
    target_ : object
        The target that the particles approximate.
    stein_discrepancy_ : float
        Squared Stein discrepancy to the target, with kernels over the blankets for any `kernel`. If
        the target is learned from X, it is measured in standardised coordinates.
    stein_discrepancy_per_node_ : ndarray of shape (n_nodes,)
        Contributions of the nodes to the discrepancy, which measure how well the conditional
        distribution of each node is matched.
    bandwidths_ : ndarray of shape (n_nodes,)
        Bandwidths of the kernels of the discrepancy.
    force_ : float
        Relative size of the last direction, which is compared with `tol`.
    variance_change_ : float
        Largest relative change of a variance in the last iteration.
    n_iter_ : int
        Number of iterations.
    preconditioner_ : ndarray of shape (n_features, n_features) or None
        The matrix Q that was used (in standardised coordinates for a learned target).
    mean_shift_, variance_ratio_ : ndarray of shape (n_features,)
        For at least 20 particles, the comparison of the moments of the SVGD particles with those of
        weighted draws, or of Hamiltonian Monte Carlo chains (see `correction`): the distance of the
        means in standard deviations, and the variance divided by that of the target. It is exact
        for Gaussian targets.
    corrected_ : bool
        Whether the particles were corrected; see `correction`.
    n_features_in_ : int
        Number of coordinates.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if `fit` was called with a dataframe.

    See Also
    --------
    BBISWeighter : Weights that adapt samples to a target.

    Examples
    --------
    >>> from skcircuits import GraphicalSVGDSampler
    >>> from skcircuits.graphical import GaussianMRF
    >>> field = GaussianMRF([[2.0, -1.0], [-1.0, 2.0]], [1.0, 0.0])
    >>> sampler = GraphicalSVGDSampler(target=field, random_state=0).fit()
    >>> sampler.particles_.shape
    (100, 2)
    >>> bool(abs(sampler.particles_.mean(axis=0) - field.mean_).max() < 0.02)
    True
    """

    _doc_link_module = TableMixin._doc_link_module
    _doc_link_template = TableMixin._doc_link_template

    _parameter_constraints: ClassVar[dict] = {
        "target": [HasMethods(["grad_log_prob"]), HasMethods(["fit"]), None],
        "n_particles": [Interval(Integral, 1, None, closed="left")],
        "kernel": [StrOptions({"auto", "graphical", "global", "combine", "random"})],
        "preconditioner": [StrOptions({"auto", "hessian", "covariance"}), "array-like", None],
        "bandwidth_factor": [Interval(Real, 0, None, closed="neither")],
        "linear_weight": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "local_weight": [Interval(Real, 0, 1, closed="both")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "optimizer": [StrOptions({"rmsprop", "adam", "adagrad", "sgd"})],
        "annealing": [Interval(Real, 0, 1, closed="both")],
        "correction": [StrOptions({"auto"}), "boolean"],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "dtype": [StrOptions({"float64", "float32"})],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        target=None,
        n_particles=100,
        kernel="auto",
        preconditioner="auto",
        bandwidth_factor=1.0,
        linear_weight="auto",
        n_neighbors=5,
        local_weight=0.5,
        max_iter=1000,
        step_size=0.05,
        tol=1e-4,
        optimizer="rmsprop",
        annealing=0.0,
        correction="auto",
        n_init=1,
        warm_start=False,
        dtype="float64",
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.target = target
        self.n_particles = n_particles
        self.kernel = kernel
        self.preconditioner = preconditioner
        self.bandwidth_factor = bandwidth_factor
        self.linear_weight = linear_weight
        self.n_neighbors = n_neighbors
        self.local_weight = local_weight
        self.max_iter = max_iter
        self.step_size = step_size
        self.tol = tol
        self.optimizer = optimizer
        self.annealing = annealing
        self.correction = correction
        self.n_init = n_init
        self.warm_start = warm_start
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @fit_context
    def fit(self, X=None, y=None):
        """Move the particles towards the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), default=None
            If a target is given, the starting particles, which are drawn if X is None. Without a
            target, or with a density estimator, the data from which the target is learned.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        GraphicalSVGDSampler
            The fitted sampler.

        Warns
        -----
        ConvergenceWarning
            If the directions have not become small within `max_iter` iterations, or if the means or
            variances of some coordinates, which are named, or the fractions of the particles in the
            modes are wrong and were not corrected, or were corrected by chains that have not mixed.
            Means or variances of 2 to 19 particles, which are not corrected, are named if they are
            off by .3 standard deviations or a factor of 1.5, and if weighted draws represent the
            target. Also if the particles lie in parts of the density between which nothing moves,
            if ascents of the density from points around the particles find modes without
            particles, or if the density is zero or not a number at some particles, or their mean
            score, where the target has no log density, is far from zero.
        UserWarning
            If a score depends on more than its blanket or on other rows, or is not the gradient of
            the log density, if the density does not vanish at the ends of its support, or if there
            are so few particles for the kernels that variances will be too small.
        """
        if X is not None:
            X = self._read_points(X, reset=True)
            for name, column in zip(getattr(self, "feature_names_in_", count()), X.T):
                refuse_extremes(name, column)
        rng = make_generator(self.random_state)
        self.target_, target, units = resolve_continuous_target(self.target, X)
        problem = self._pose_problem(target, X)
        self.n_features_in_ = problem.n_coordinates
        starts = [
            units.transform(start).astype(self.dtype)
            for start in self._starts(X, problem.n_coordinates, rng)
        ]
        if self._given_a_target():
            require_log_densities(problem, starts[0])
        warn_of_wrong_graph(problem, starts[0], rng)
        # Drawn before the runs, so that results do not depend on which worker takes which
        seeds = rng.integers(np.iinfo(np.int64).max, size=len(starts))
        start, metric = starts[0], self._choose_metric(problem, starts[0])
        is_dense = isinstance(metric, Metric)
        if metric is None:
            warn_of_shrinkage(problem, len(starts[0]))
        else:
            if is_dense and self.linear_weight == "auto" and problem.is_concave(metric, rng):
                problem = problem.with_linear_weight(1.0)
            # Where the particles start from in the coordinates of the metric.
            starts = [self._enter(metric, start) for start in starts]
        self.preconditioner_ = metric.precision if is_dense else None
        if len(starts) == 1:
            state = self._run_once(problem, starts[0], seeds[0], units, metric)
        else:
            state = self._run_restarts(problem, starts, seeds, metric)
        columns = None if X is None else getattr(self, "feature_names_in_", None)
        names = names_of(self.target_, problem.n_coordinates, columns)
        self._keep(self._check(problem, state, start, metric, names), problem, units)
        if self._given_a_target():
            warn_of_impossible_particles(problem, self.particles_, self)
            warn_of_escape(problem, self.particles_, self, names)
            warn_of_dependent_rows(problem, self.particles_, self)
            warn_of_wrong_score(problem, self.particles_, self)
        return self

    def sample(self, n_samples=1, random_state=None):
        """Draw particles with replacement.

        Parameters
        ----------
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState or None, default=None
            Source of randomness.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Copies of the drawn particles.
        """
        check_is_fitted(self)
        require_count(1, n_samples=n_samples)
        # Particles have equal weights
        rows = make_generator(random_state).integers(len(self.particles_), size=n_samples)
        return self.particles_[rows]

    def expectation(self, f):
        """Average a function over the particles.

        Parameters
        ----------
        f : callable
            Function from points of shape (n, n_features) to values of shape (n,) or (n, ...).

        Returns
        -------
        ndarray or float
            The mean over the first axis.
        """
        check_is_fitted(self)
        return function_values(f, self.particles_).mean(axis=0)

    def to_arviz(self):
        """Export the particles to ArviZ.

        Returns
        -------
        InferenceData or DataTree
            The container of the installed version of ArviZ, with the particles as one chain of the
            group "posterior", by site name if the target is a model, and by column otherwise.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{j}" for j in range(self.n_features_in_)]
        draws = draws_of_rows(self.target_, self.particles_.astype(np.float64), names)
        return to_inference_data(draws, stein_discrepancy=self.stein_discrepancy_)

    def score(self, X=None, y=None):
        """Measure how well the particles represent the target.

        The kernels of the discrepancy are those over the blankets with bandwidths by the median
        heuristic. They do not depend on the parameters of the run.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), default=None
            Checked, but not used, because the score is that of the particles.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        float
            The negative `stein_discrepancy_`.
        """
        check_is_fitted(self)
        if X is not None:
            self._read_points(X)
        return -self.stein_discrepancy_

    @available_if(_target_has_log_prob)
    def score_samples(self, X):
        """Evaluate the unnormalised log density of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log density up to a constant.
        """
        check_is_fitted(self)
        X = self._read_points(X)
        return self.target_.log_prob_unnormalized(X)

    def _read_points(self, X, *, reset=False):
        """Check a table of finite numbers."""
        points = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)
        try:
            points = points.astype(np.float64)
        except OverflowError as error:  # of integers, which NumPy raises
            raise invalid("X", "hold numbers that a float can hold") from error
        except (TypeError, ValueError):
            points = float_array(points, "X")  # words its error
        unknown = points[~np.isfinite(points)]
        if len(unknown):
            way_out = "Complete the rows first, for example by CircuitImputer."
            condition = "be finite, neither NaN nor infinity"
            raise invalid("Cells of X", condition, way_out, value=float(unknown[0]))
        return points

    def _given_a_target(self):
        return self.target is not None and not hasattr(self.target, "fit")

    def _pose_problem(self, target, X):
        """Describe the run: the target, its graph, and the parameters."""
        neighbors, blocks = self._lists_of_target("neighbors"), self._lists_of_target("blocks")
        n_coordinates = self._count_coordinates(neighbors, blocks, X)
        if X is not None and X.shape[1] != n_coordinates:
            condition = f"have one column per coordinate of the target ({n_coordinates})"
            raise invalid("X", condition, n_features=X.shape[1])
        return SVGDProblem(
            target,
            n_coordinates,
            neighbors=neighbors,
            blocks=blocks,
            kernel="graphical" if self.kernel == "auto" else self.kernel,
            bandwidth_factor=self.bandwidth_factor,
            # A little helps variances also where targets are far from Gaussian
            linear_weight=0.1 if self.linear_weight == "auto" else self.linear_weight,
            n_neighbors=self.n_neighbors,
            local_weight=self.local_weight,
            optimizer=self.optimizer,
            schedule=StepSchedule(self.step_size, self.max_iter, self.annealing, self.tol),
            may_fail=self._given_a_target(),
        )

    def _choose_metric(self, problem, start):
        """Give the coordinates to move in, or None for those of the target."""
        kind = self.preconditioner
        if kind is None:
            return None
        if not isinstance(kind, str):
            return Metric.of_precision(start.mean(axis=0), _check_precision(kind, start.shape[1]))
        if kind == "covariance":
            return Metric.of_particles(start.astype(np.float64))
        is_wanted = self.kernel in ("auto", "global") and self.annealing == 0.0
        # A metric of one coordinate is its unit, which step sizes adapt to anyway
        fits = len(start) >= MIN_PARTICLES and start.shape[1] >= 2
        if kind == "auto" and not (is_wanted and fits):
            return None
        if kind == "auto" and start.shape[1] > MAX_COORDINATES:
            if self.kernel != "auto" or start.size > MAX_DIAGNOSED:
                return None
            return problem.find_sparse_metric(start, np.random.default_rng(0))
        # Draws of its own: the run is the same with the metric given as an array.
        metric = problem.find_metric(start, np.random.default_rng(0))
        if metric is None and kind == "hessian":
            what = "target of preconditioner='hessian'"
            condition = "have one mode and a Gaussian that matches its scores and Hessians"
            way_out = "Use preconditioner='auto', which falls back to None."
            raise invalid(what, condition, way_out, target=type(self.target_).__name__)
        # Kernels of the published method resolve the shape of densities that are easy to move in.
        is_easy = metric is not None and metric.condition < EASY_CONDITION
        if kind == "auto" and is_easy and not problem.is_concave(metric, np.random.default_rng(0)):
            return None
        return metric

    def _enter(self, metric, start):
        """Give starting particles in the coordinates of the metric."""
        if isinstance(self.preconditioner, str) and self.preconditioner != "covariance":
            # Only their shape is kept: location and scale of the Gaussian are more accurate.
            scale = start.std(axis=0)
            shape = (start - start.mean(axis=0)) / np.where(scale > 0, scale, 1)
            if not isinstance(metric, SparseMetric):
                return shape
            return (metric.stretch(shape) / metric.standardized.scales).astype(start.dtype)
        return metric.transform(start).astype(start.dtype)

    def _check(self, problem, state, start, metric, names):
        """Compare means and variances with the target; correct them, or warn of them."""
        self.corrected_, n_particles = False, len(state.particles)
        # A single particle stands for a mode, not for a distribution.
        if n_particles == 1 or state.particles.size > MAX_DIAGNOSED:
            return state
        if n_particles < MIN_PARTICLES:
            few = problem.diagnose_without_chains(state.particles, metric)
            if few is not None:
                warn_of_few_particles(few, n_particles, MIN_PARTICLES, self, names)
            return state
        is_corrected = self.correction
        if is_corrected == "auto":
            # The particles of published methods are left as they are
            is_corrected = self.kernel == "auto" and self.preconditioner is not None
        particles = state.particles
        possible = problem.within_support(particles, start)
        has_left, ended = possible is not particles, abrupt_ends(problem, possible)
        metric = None if has_left else metric
        found = problem.diagnose(possible, metric, is_corrected, bool(ended.size))
        if has_left:
            # Its chains start from others
            weights = np.full(n_particles, 1.0 / n_particles)
            found = found.of_weighted(particles.astype(np.float64), weights)
        self.mean_shift_, self.variance_ratio_ = found.shift, found.variance_ratio
        self.corrected_ = bool(is_corrected and (found.is_wrong or has_left))
        has_warned = warn_of_faults(found, self, self.corrected_, names)
        outcome = "SVGD does not apply" + ", and chains replace it" * self.corrected_
        has_warned |= warn_of_ends(ended, outcome, names, self)
        if self.corrected_:
            particles = problem.corrected(found).astype(self.dtype)
            change = partial(float, state.variance_change)
            state = replace(state, snapshot=Snapshot(partial(np.asarray, particles), change))
        # Ascents along a funnel do not arrive either; all ways together are many numbers.
        is_known = found.draws is not None or found.is_connected or has_warned
        if not is_known and problem.n_coordinates <= MAX_COORDINATES:
            warn_of_missed_modes(problem, state.particles, self)
        return state

    def _lists_of_target(self, name):
        lists = getattr(self.target_, name, None)
        return None if lists is None else index_lists(lists, name)

    def _count_coordinates(self, neighbors, blocks, X):
        """Number of coordinates according to the blocks, the graph, X, or the last particles."""
        if blocks is not None:
            return sum(map(len, blocks))
        if neighbors is not None:
            return len(neighbors)
        if X is not None:
            return X.shape[1]
        if self._continues():
            return self.particles_.shape[1]
        raise invalid(
            "X", "be given for a target without neighbors", "Pass starting particles.", X=X
        )

    def _continues(self):
        return self.warm_start and hasattr(self, "particles_")

    def _starts(self, X, n_coordinates, rng):
        """Give the starting particles of every run, in the coordinates of X."""
        # X is data where the target is learned, and the start where it is given
        if X is not None and self._given_a_target():
            return [X]
        if self._continues():
            if self.particles_.shape[1] != n_coordinates:
                what = "the last particles"
                condition = f"have one column per coordinate of the target ({n_coordinates})"
                way_out = "Set warm_start=False for another target."
                raise invalid(what, condition, way_out, n_features=self.particles_.shape[1])
            return [self.particles_]
        return [self._draw_start(X, n_coordinates, rng) for _ in range(self.n_init)]

    def _draw_start(self, X, n_coordinates, rng):
        """Draw from the target's own proposal, around the data, or from a standard normal."""
        if hasattr(self.target_, "draw_start"):
            return self.target_.draw_start(self.n_particles, rng)
        noise = rng.standard_normal((self.n_particles, n_coordinates))
        return noise if X is None else X.mean(axis=0) + X.std(axis=0) * noise

    def _run_once(self, problem, start, seed, units, metric):
        """Run with threads over nodes; the fit loop serves callbacks and Ctrl-C."""

        def attributes(state):
            constant = {"target_": self.target_, "n_features_in_": self.n_features_in_}
            measured = {"stein_discrepancy_": state.discrepancy}
            return constant | measured | _state_attributes(state, units)

        with single_threaded_blas():
            # Small clouds move faster than they are sent
            client = dask_client() if start.size >= MIN_SENT else None
            steps = problem.steps(start, seed, self.n_jobs, metric, client)
            result = drive(self, steps, max_iter=self.max_iter, attributes=attributes)
        return result.state

    def _run_restarts(self, problem, starts, seeds, metric):
        """Run all starts in parallel, keep the one with the least discrepancy."""
        parallel = Parallel(n_jobs=self.n_jobs, return_as="generator")
        runs = parallel(
            delayed(_finish)(problem, start, seed, metric) for start, seed in zip(starts, seeds)
        )
        # A generator, so that Ctrl-C keeps the best of the finished runs
        result = drive(self, runs, score=lambda run: -run.discrepancy)
        return result.state.last

    def _keep(self, state, problem, units):
        """Set the fitted attributes."""
        for name, value in _state_attributes(state, units).items():
            setattr(self, name, value)
        self.stein_discrepancy_per_node_, self.bandwidths_ = problem.measure(state.particles)
        self.stein_discrepancy_ = float(self.stein_discrepancy_per_node_.sum())


def _check_precision(values, n_coordinates):
    """Refuse invalid metrics."""
    precision = float_array(values, "preconditioner")
    is_square = precision.shape == (n_coordinates, n_coordinates)
    if (
        not is_square
        or not np.allclose(precision, precision.T)
        # A preconditioner that is not positive would turn steps back
        or np.linalg.eigvalsh(precision)[0] <= 0
    ):
        condition = f"be symmetric and positive definite, of shape {(n_coordinates,) * 2}"
        raise invalid("preconditioner", condition, shape=precision.shape)
    return precision


@dataclass(frozen=True)
class _Run:
    """One of several runs, at its end."""

    last: SVGDState
    discrepancy: float


def _finish(problem, start, seed, metric):
    """Run to the end without callbacks; one task of a joblib worker."""
    with single_threaded_blas():
        for state in problem.steps(start, seed, metric=metric):
            if state.converged:
                break
    # Runs compare by a measure that none of them has minimised
    discrepancy = problem.measure(state.particles)[0].sum()
    # What measures the kept particles holds the target, which need not be sent back
    return _Run(replace(state, kept=NOTHING_KEPT), discrepancy)


def _state_attributes(state, units):
    """Give the fitted attributes that cost little at every state."""
    return {
        "particles_": np.ascontiguousarray(units.inverse_transform(state.particles)),
        "n_iter_": state.n_iter,
        "force_": state.force,
        "variance_change_": state.variance_change,
    }
