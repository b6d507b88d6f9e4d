"""Black-box importance weights of samples by Stein discrepancies."""

from copy import copy
from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import _safe_indexing, check_consistent_length

from skcircuits.estimators._base import (
    Interval,
    KernelParametersMixin,
    StrOptions,
    TableMixin,
    check_is_fitted,
    fit_context,
    inherit_documentation,
    make_generator,
)
from skcircuits.estimators.targets._targets import (
    GivenGradients,
    abrupt_ends,
    learn_target,
    names_of,
    warn_of_dependent_rows,
    warn_of_ends,
    warn_of_wrong_score,
)
from skcircuits.estimators.targets._weighing import WeighingProblem
from skcircuits.estimators.targets._weighted_samples import (
    align_labels,
    complete_rows,
    draws_of_rows,
    function_values,
    is_inference_data,
    read_draws,
    refuse_missing,
    rows_of_sites,
    summarize,
    systematic_rows,
    to_inference_data,
)
from skcircuits.exceptions import invalid, require_choice, require_count, warn
from skcircuits.graphical import FactorGraph
from skcircuits.numerics._arrays import float_array
from skcircuits.stein._measures import estimated_seconds
from skcircuits.stein._ridge import UNIFORM_ERROR
from skcircuits.stein._targets import is_continuous, state_counts
from skcircuits.stein.discrepancy import positive_curvatures, thin_columns
from skcircuits.stein.gram import collapse_cells

# Estimated time for which a fraction of the variables is collapsed.
_MAX_COLLAPSE_SECONDS = 10.0
# Effective sample sizes below this, and below this part of the distinct samples, are too few.
_FEW_SAMPLES, _FEW_PART = 5.0, 10
# Samples of states that are worth less than this part of as many independent ones miss something.
_FEW_EQUIVALENT = 4.0
# Errors beyond these lead to a warning: of marginal probabilities, where they are known, and of
# Stein's identity for variances, where a density is known at the samples alone.
_LARGE_ERROR, _LARGE_VARIANCE_ERROR = 0.1, 0.35


@inherit_documentation
class BBISWeighter(
    KernelParametersMixin, OneToOneFeatureMixin, TransformerMixin, TableMixin, BaseEstimator
):
    """Black-box importance sampling: weights of samples that minimise a Stein discrepancy.

    The weights minimise the Stein discrepancy between the weighted samples and the target. The
    samples may come from any distribution, and the normalising constant of the target is not
    needed.

    Parameters
    ----------
    target : object, default=None
        The distribution that the samples should represent: a categorical target (with
        ``log_prob_unnormalized`` and ``cardinalities``), a continuous target (with
        ``grad_log_prob``), a circuit whose variables are all of one of these types, or a density
        estimator. A density estimator is cloned and fitted to the samples, unless it is passed in a
        ``FrozenEstimator``. Circuits over continuous variables need Gaussian input units, such as
        those of `GaussianMixtureDensity`. None learns a target from the samples: a sparse Gaussian
        Markov random field for numerical columns, or a Chow-Liu tree for categorical ones. For
        densities and learned targets, all kernels compare standardised columns, so that the weights
        do not depend on the units.
    kernel : "auto" or kernel object, default="auto"
        Base kernel. For continuous targets, ``"auto"`` is ``InverseMultiquadric`` with the median
        heuristic, in coordinates in which the samples have unit covariance, so that units and
        correlations do not matter. It is combined with Stein's identities for the first two
        moments, and the fractions of the samples in modes that are separated by valleys of the
        density are preserved. For categorical targets, ``"auto"`` is ``Hamming`` with a scale of 16
        times the number of variables. With the Barker operator, it is combined with the identity
        for the log probability, to which such a wide kernel is hardly sensitive.
    operator : {"auto", "barker", "difference", "langevin"}, default="auto"
        The Stein operator: by which function the target enters. "barker" uses
        ``p(x') / (p(x) + p(x'))`` for neighbouring states, "difference" the ratios
        ``p(x') / p(x)``, and "langevin" the gradient of the log density. ``"auto"`` is "barker" for
        categorical and "langevin" for continuous targets. "difference" is the published operator.
        Its ratios are unbounded, so that its weights are worse than uniform ones for targets whose
        probabilities vary strongly between neighbouring states.
    regularization : "auto" or float, default="auto"
        Ridge penalty of the weights, relative to the mean diagonal and divided by the number of
        equal samples. ``"auto"`` predicts single and pairwise marginals (coordinates and their
        products) at each sample from the others by kriging with the Stein kernel. For categorical
        targets it minimises the errors, and for continuous targets it maximises the likelihood. If
        zero probabilities divide the support of the target into parts, the ridge is increased as
        far as necessary, so that the weights approach uniform ones. If the predictions do not
        determine it, the ridge is 0.3 times the fourth power of the fraction of variables that are
        not collapsed. For continuous targets, the weights are then averaged with uniform ones
        according to the expected errors of both. The same is done for categorical targets with
        zeros if the discrepancy of the weighted samples exceeds that of as many independent ones.
        If a categorical target has at most 4096 states, these weights are averaged with those that
        give every sample the probabilities of the states that are nearest to it, so that the errors
        of single and pairwise marginals are least. If no state is possible that the samples do not
        hold, the weights are the probabilities of the states, and the ridge is 0.
    collapse : None, float or array-like of int, default=None
        Variables that are summed out exactly: a fraction of all variables, which are drawn at
        random (fewer if this would take long), or their indices. The target must be a factor graph.
    shared_subset : bool, default=True
        Whether the random subset of variables is drawn once for all samples, or for each sample,
        which is possible if all joint states of the variables fit into memory.
    n_components : "auto", int or None, default="auto"
        Rank of an approximation of the Gram matrix, for large numbers of samples. None computes the
        complete Gram matrix. ``"auto"`` is 300 for more than 5000 distinct samples.
    n_jobs : int, default=None
        Number of parallel jobs for the Gram matrix; the result does not depend on it.
    random_state : int, RandomState or None, default=None
        Controls the choice of the collapsed variables.
    verbose : int, default=0
        Whether to print the discrepancy that the weights achieve.

    Attributes
    ----------
    weights_ : ndarray of shape (n_samples,)
        Non-negative weights that sum to one. Equal samples have equal weights.
    stein_discrepancy_ : float
        Squared Stein discrepancy of the weighted samples, in the coordinates of the kernel. It is
        an unbiased estimate if the Gram matrix is approximated.
    effective_sample_size_ : float
        ``1 / sum(weights_ ** 2)``.
    target_ : object
        The given or learned target.
    kernel_ : kernel object
        The base kernel that was used.
    regularization_ : float
        The ridge penalty that was used.
    uniform_fraction_ : float
        Weight of the uniform weights in the average. It is larger if few samples are close to the
        target, or if the weights change means by no more than the noise of independent samples. For
        categorical targets, it is larger if parts of the support of a target with zeros have no
        samples. It is zero if `regularization` is a number. The weights of nearest states come
        afterwards.
    samples_ : ndarray of shape (n_samples, n_features)
        The encoded samples, NaN for collapsed variables.

    See Also
    --------
    GraphicalSVGDSampler : Moves particles instead of weighting samples.

    Notes
    -----
    Samples of probability zero get weight zero. If a categorical target has zeros, the relative
    probability of parts of its support that are not connected by changes of a single variable
    cannot be estimated, and `fit` issues a warning. Use ``soften()`` of the target, or collapse the
    variables that are functions of others.

    References
    ----------
    Liu and Lee (2017), Black-box importance sampling. AISTATS.
    Li, Zeng, Vergari and Van den Broeck (2021), Tractable computation of expected
    kernels. UAI.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import BBISWeighter
    >>> from skcircuits.graphical import IsingModel
    >>> model = IsingModel.grid(2, 2, couplings=0.3, fields=[0.8, 0.0, 0.0, 0.0])
    >>> anywhere = np.random.default_rng(0).integers(2, size=(100, 4))
    >>> weighter = BBISWeighter(target=model).fit(anywhere)
    >>> weighter.marginals()[0].round(2), model.marginals()[0].round(2)
    (array([0.17, 0.83]), array([0.17, 0.83]))
    """

    _parameter_constraints: ClassVar[dict] = {
        "target": "no_validation",
        "kernel": [StrOptions({"auto"}), callable],
        "operator": [StrOptions({"auto", "barker", "difference", "langevin"})],
        "regularization": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "collapse": [None, Interval(Real, 0, 1, closed="left"), "array-like"],
        "shared_subset": ["boolean"],
        "n_components": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left"), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        target=None,
        kernel="auto",
        operator="auto",
        regularization="auto",
        collapse=None,
        shared_subset=True,
        n_components="auto",
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.target = target
        self.kernel = kernel
        self.operator = operator
        self.regularization = regularization
        self.collapse = collapse
        self.shared_subset = shared_subset
        self.n_components = n_components
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @fit_context
    def fit(self, X, y=None, *, gradients=None):
        """Compute the weights of the samples.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Complete samples, given by the indices of states, or by the names of states if the
            target has ``state_names``. Other categories are matched to states in the order of
            ``categories_``; there must be as many as there are states. X may also be
            ``InferenceData`` or ``DataTree`` of ArviZ with a posterior, whose sites are matched by
            name if the target is a model, and whose variables become columns in their order
            otherwise.
        y : Ignored
            Not used, present for API consistency by convention.
        gradients : array-like of shape (n_samples, n_features), default=None
            Gradients of the log density of the target at the samples, instead of a `target`.
            Gradient-based samplers compute them anyway. A `target` is also evaluated elsewhere, at
            tens of thousands of points, to compare means and variances.

        Returns
        -------
        BBISWeighter
            The fitted weighter.

        Warns
        -----
        UserWarning
            - If the target has zeros next to the samples.
            - If single marginals are wrong by more than 0.1: beside all of up to 4096 states, the
              probable states that a search finds, if they hold most of the probability, or the
              exact marginals of circuits and of graphs of small width (there only by more than as
              many draws of the target, or if the mean squared error or the mean Hellinger distance
              is larger than without weights).
            - If few samples carry nearly all of the weight, or would do so without the uniform
              weights, or if the weights hardly bring the samples closer to the target.
            - If all samples of a density are equal.
            - If weighted means or variances of a density are wrong, by .3 standard deviations or by
              a factor of 1.5, according to chains from the samples or weighted draws from all
              modes (with `gradients`, according to Stein's identity for variances), or cannot be
              compared, as the target is known at the samples alone.
            - If the samples lie in parts of the density between which nothing moves, so that the
              weights of the parts are about those of the samples.
            - If the score of the target is not the gradient of its log density or depends on other
              rows, or if its density does not vanish at the ends of its support.
        """
        X, draws = self._read_draws(X)
        samples = refuse_missing(self._learn_table(X), self)
        self._draws = draws
        self.target_, state_names = self._find_target(X, samples, gradients)
        # The states of the target set the order of the codes, not that of the samples
        self._set_schema(align_labels(self._schema, self.target_, state_names))
        samples = self._read_samples(X)
        found = self._weigh(samples)
        if not (self._warn_of_target(samples) or self._warn_of_fault(found)):
            self._warn_of_moments()
        return self

    def _weigh(self, samples):
        """Set everything that depends on the samples."""
        # Collapsed first: weights, kernel and discrepancy are all those of the remaining
        # variables
        self.samples_ = collapse_cells(samples, self._choose_collapsed(samples.shape))
        self._problem = self._pose_problem()
        found = self._problem.solve()
        self.kernel_ = self._problem.base_kernel
        self.weights_, self.regularization_ = found.weights, found.regularization
        self.stein_discrepancy_ = found.discrepancy
        self.effective_sample_size_ = found.effective_sample_size
        self.uniform_fraction_ = found.uniform_fraction
        self._report(found)
        return found

    def _pose_problem(self):
        return WeighingProblem(
            self.target_,
            self.samples_,
            self.kernel,
            None if self.operator == "auto" else self.operator,
            self.regularization,
            self.n_components,
            self.n_jobs,
            is_learned=self.target is None or hasattr(self.target, "fit"),
        )

    def summary(self, quantiles=(0.05, 0.5, 0.95)):
        """Compare weighted estimates with those of the unweighted samples.

        Parameters
        ----------
        quantiles : sequence of float, default=(0.05, 0.5, 0.95)
            Probabilities.

        Returns
        -------
        DataFrame
            A row for every element of every site of the model (or for every column of X), with the
            columns "mean", "sd", "5%", ... and, without weights, "raw_mean", "raw_sd", "raw_5%",
            ...
        """
        check_is_fitted(self)
        return summarize(self._site_draws(), self.weights_, quantiles)

    def to_arviz(self):
        """Export the samples and their weights to ArviZ.

        Returns
        -------
        InferenceData or DataTree
            The container of the installed version of ArviZ, with the sites of the model in the
            group "posterior". The weights, which sum to one over all chains, are "weight" in
            "sample_stats".
        """
        check_is_fitted(self)
        return to_inference_data(
            self._site_draws(), self.weights_, stein_discrepancy=self.stein_discrepancy_
        )

    def _read_draws(self, X):
        """Turn inference data into a table; None where X is a table already."""
        if not is_inference_data(X):
            return X, None
        draws = read_draws(X)
        return rows_of_sites(self.target, draws), draws

    def _site_draws(self):
        """Give the samples as values of sites."""
        if self._draws is not None:
            return self._draws
        if np.isnan(self.samples_).any():
            way_out = "Use marginals() for collapsed samples."
            raise invalid("samples", "be complete", way_out, collapsed=True)
        return draws_of_rows(self.target_, self.samples_, self.get_feature_names_out())

    def transform(self, X):
        """Return the samples unchanged, for use in a pipeline.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The checked cells of X, or a dataframe with the dtypes of the fitted one if requested by
            ``set_output``.
        """
        samples = self._read_samples(X)
        names = self.get_feature_names_out()
        columns = tuple(
            replace(column, name=name) for column, name in zip(self._schema.columns, names)
        )
        return self._write_table(samples, replace(self._schema, columns=columns), X)

    def marginals(self, weights=None):
        """Estimate the distribution of every variable of a categorical target.

        Parameters
        ----------
        weights : array-like of shape (n_samples,), default=None
            Non-negative weights that sum to one, to be used instead of ``weights_``.

        Returns
        -------
        list of ndarray of shape (k_j,)
            Weighted means of the indicators of the samples, or of the exact conditional
            distributions of collapsed variables.
        """
        weights = self._weights_or(weights)
        if is_continuous(self.target_):
            raise invalid("target", "be categorical", "Use expectation(f) for continuous targets.")
        # Samples without weight may be impossible, and then have no conditional distribution.
        samples, weights = self.samples_[weights != 0], weights[weights != 0]
        if np.isnan(samples).any():
            # Indicators where sampled, exact conditional distributions where collapsed.
            return [weights @ table for table in self.target_.conditional_marginals(samples)]
        counts = state_counts(self.target_, samples.shape[1])
        codes = samples.astype(np.int64)
        return [np.bincount(codes[:, j], weights, minlength=k) for j, k in enumerate(counts)]

    def expectation(self, f, weights=None):
        """Estimate the expectation of a function.

        Parameters
        ----------
        f : callable
            Function from complete encoded rows of shape (m, n_features) to values of shape (m,) or
            (m, ...).
        weights : array-like of shape (n_samples,), default=None
            Non-negative weights that sum to one, to be used instead of ``weights_``.

        Returns
        -------
        float or ndarray
            The weighted mean, with collapsed variables summed out exactly.
        """
        weights = self._weights_or(weights)
        rows, probabilities = complete_rows(self.target_, self.samples_, weights)
        return np.tensordot(probabilities, function_values(f, rows), axes=1)[()]

    def thin(self, n_samples, *, regularized=False, batch_size=None):
        """Select the few samples that represent the target best.

        Parameters
        ----------
        n_samples : int
            Number of samples to select. A sample may be selected more than once.
        regularized : bool, default=False
            Whether to prefer probable samples and to avoid valleys of the density, because thinning
            without regularisation selects points of low probability where scores vanish. The target
            must be continuous and have ``log_prob_unnormalized``.
        batch_size : int, default=None
            Number of samples, drawn without replacement, that each step considers; all by default.

        Returns
        -------
        ndarray of int of shape (n_samples,)
            Indices of rows of the X of `fit`, chosen greedily by the Stein discrepancy.

        References
        ----------
        Bénard, Staber and Da Veiga (2023), Kernel Stein discrepancy thinning. NeurIPS.
        Teymur, Gorham, Riabiz and Oates (2021), Optimal quantisation of probability measures
        using maximum mean discrepancy. AISTATS.
        """
        check_is_fitted(self)
        problem = self._problem
        gram = problem.columns
        log_prob = curvature = None
        if regularized:
            if not is_continuous(self.target_):
                way_out = "Pass regularized=False."
                raise invalid("target", "be continuous to be regularized", way_out)
            distinct = problem.samples[problem.distinct_rows(gram.which)]
            log_prob = self._log_densities(distinct, "regularized thinning")
            # Curvatures are compared in the units of the kernel
            axes = np.eye(distinct.shape[1])
            if problem.units is not None:
                axes = problem.units.stretch(axes).T
            curvature = positive_curvatures(self.target_, distinct, axes)
        chosen = thin_columns(
            gram,
            n_samples,
            log_prob=log_prob,
            curvature=curvature,
            batch_size=batch_size,
            rng=make_generator(self.random_state),
        )
        # From distinct possible samples back to rows of X
        return problem.distinct_rows(gram.which)[chosen]

    def fit_resample(self, X, y=None, *, method="systematic", n_samples=None, gradients=None):
        """Compute the weights and resample to equally weighted samples.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Samples, as in `fit`.
        y : array-like of shape (n_samples,), default=None
            Values that belong to the samples and are resampled with them.
        method : {"systematic", "thinning", "regularized_thinning"}, default="systematic"
            Systematic resampling according to the weights, with one random number from
            `random_state`, or the selection of `thin`, without or with regularisation.
        n_samples : int, default=None
            Number of samples; that of X by default.
        gradients : array-like of shape (n_samples, n_features), default=None
            As in `fit`.

        Returns
        -------
        X_resampled : dataframe or ndarray of shape (n_samples, n_features)
            Rows of X, with the type of X.
        y_resampled : ndarray of shape (n_samples,)
            The resampled values of y, if y is given.
        """
        require_choice("systematic", "thinning", "regularized_thinning", method=method)
        X = self._read_draws(X)[0]
        self.fit(X, gradients=gradients)
        n_samples = len(self.weights_) if n_samples is None else n_samples
        require_count(1, n_samples=n_samples)
        # Thinning selects by the discrepancy and needs no weights
        if method == "systematic":
            rng = make_generator(self.random_state)
            rows = systematic_rows(self.weights_, n_samples, rng)
        else:
            rows = self.thin(n_samples, regularized=method == "regularized_thinning")
        if y is None:
            return _safe_indexing(X, rows)
        check_consistent_length(X, y)
        return _safe_indexing(X, rows), _safe_indexing(y, rows)

    def score_samples(self, X):
        """Evaluate the unnormalised log density of the target.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Unnormalised log probability or log density.
        """
        return self._log_densities(self._read_samples(X), "score_samples")

    def _log_densities(self, samples, use):
        """Evaluate the target, where it can be."""
        if not hasattr(self.target_, "log_prob_unnormalized"):
            condition = "have log_prob_unnormalized"
            way_out = "Log densities cannot be computed from gradients alone."
            raise invalid(
                f"target of {use}", condition, way_out, target=type(self.target_).__name__
            )
        return self.target_.log_prob_unnormalized(samples)

    def score(self, X, y=None):
        """Measure how well the weighted samples represent the target.

        The samples are weighted as in `fit`. The kernel of the discrepancy is always that of
        ``kernel="auto"`` and does not depend on `kernel`, `regularization` and `collapse`, so that
        these can be tuned. Collapsed samples are treated as the mixture of their completions. If
        there are too many of these, the score is an unbiased estimate from draws. For continuous
        targets, the discrepancy includes Stein's identities for the first two moments, and the
        variance of weighted means that is due to noise that the kernel does not explain.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Samples.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        float
            The negative squared Stein discrepancy of the weighted samples.
        """
        # A score must not change the weights that were fitted
        other = copy(self)
        other.verbose = 0
        samples = self._read_samples(X)
        found = other._weigh(samples)
        if not other._warn_of_target(samples):
            other._warn_of_fault(found)
        return -other._problem.measure(other.weights_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        return tags

    def _read_samples(self, X):
        check_is_fitted(self)
        table = self._check_table(X, reset=False)
        return refuse_missing(self._schema.encode(table, handle_unknown="error"), self)

    def _find_target(self, X, samples, gradients):
        """Give the target and the names of its states, if it has names."""
        if gradients is not None:
            if self.target is not None:
                condition = "be None if a target is given"
                way_out = "Use BBISWeighter() without a target."
                raise invalid("gradients", condition, way_out, target=type(self.target).__name__)
            return GivenGradients(samples, gradients), None
        if self.target is None:
            target = learn_target(samples, self.is_categorical_, self._schema.cardinalities)
            return target, self.categories_
        if not hasattr(self.target, "fit"):
            return self.target, getattr(self.target, "state_names", None)
        # FrozenEstimator insists on a y, others ignore it.
        density = clone(self.target).fit(X, None)
        # Densities of ours answer on encoded rows, other estimators on the rows they saw
        target = density._target() if hasattr(density, "_target") else density
        return target, getattr(density, "categories_", None)

    def _choose_collapsed(self, shape):
        """Give the collapsed variables: indices, or a mask where each row has its own."""
        if self.collapse is None or not isinstance(self.collapse, Real):
            return self.collapse
        n_collapsed = round(float(self.collapse) * shape[1])
        rng = make_generator(self.random_state)
        if self.shared_subset:
            chosen = rng.choice(shape[1], n_collapsed, replace=False)
            # At most that many: fewer if collapsing them would take too long.
            while chosen.size and self._takes_long(chosen, shape):
                chosen = chosen[: int(0.8 * chosen.size)]
            return chosen
        # Ranks of random numbers: a subset of the same size for every row.
        return rng.random(shape).argsort(axis=1) < n_collapsed

    def _takes_long(self, collapsed, shape):
        if not isinstance(self.target_, FactorGraph):
            return False
        counts = state_counts(self.target_, shape[1])
        posterior = self.target_.posterior(np.sort(collapsed))
        return estimated_seconds(posterior, shape[0], counts) > _MAX_COLLAPSE_SECONDS

    def _weights_or(self, weights):
        check_is_fitted(self)
        if weights is None:
            return self.weights_
        weights = float_array(weights, "weights")
        if weights.shape != self.weights_.shape:
            raise invalid("weights", f"have shape {self.weights_.shape}", shape=weights.shape)
        if (weights < 0).any():
            raise invalid("weights", "not be negative", min=float(weights.min()))
        # Unnormalised importance weights would give unnormalised answers; NaN fails too.
        if not abs(weights.sum() - 1.0) <= 1e-6:
            raise invalid(
                "weights", "sum to one", "Divide them by their sum.", sum=float(weights.sum())
            )
        return weights

    def _report(self, found):
        if self.verbose:
            print(
                f"[BBISWeighter] {len(self.weights_)} samples, {found.n_distinct} distinct: "
                f"squared Stein discrepancy {found.uniform_discrepancy:.3e} -> "
                f"{found.discrepancy:.3e}, effective sample size {found.effective_sample_size:.1f}"
            )

    def _fault(self, found):
        """Why estimates rest on a handful of samples, or would without uniform weights, or ""."""
        size, n_distinct = found.size_alone, found.n_distinct
        if found.marginal_error > _LARGE_ERROR:
            return (
                f"marginal probabilities are wrong by up to {found.marginal_error:.2g} "
                "(stein_diagnosis names the variables)"
            )
        if n_distinct == 1 and self._problem.is_continuous:
            return "all samples are equal, so that weights change nothing"
        if size < _FEW_SAMPLES and n_distinct > _FEW_PART * size:
            return (
                f"few of {n_distinct} distinct samples carry nearly all weight (effective sample "
                f"size {size:.1f})"
            )
        if found.variance_error > _LARGE_VARIANCE_ERROR:
            return (
                f"weighted samples break Stein's identity for variances by "
                f"{found.variance_error:.2g}, so that these are wrong by about as large a fraction"
            )
        if found.error > UNIFORM_ERROR:
            return (
                f"weighted means are as uncertain as those of {1.0 / found.error:.2g} independent "
                f"samples, so that uniform weights make up {found.uniform_fraction:.0%}"
            )
        if found.n_equivalent * _FEW_EQUIVALENT < len(self.samples_):
            return (
                f"weighted samples are as far from the target as {found.n_equivalent:.2g} "
                "independent ones, hardly closer than without weights (stein_diagnosis names the "
                "variables)"
            )
        return ""

    def _warn_of_fault(self, found):
        """Warn where there is a fault; tell whether there is."""
        fault = self._fault(found)
        if fault:
            warn(
                f"BBISWeighter: {fault}: the samples are far from the target. Draw them closer to "
                "it, or collapse variables.",
            )
        return bool(fault)

    def _warn_of_target(self, samples):
        """Warn of densities that depend on other rows, of wrong scores, and of mass at the ends."""
        if self._problem.is_learned or not is_continuous(self.target_):
            return False
        points = samples[self._problem.possible]
        warn_of_dependent_rows(self._problem.searched, points, self)
        warn_of_wrong_score(self._problem.searched, points, self)
        ended = abrupt_ends(self._problem.searched, points)
        return warn_of_ends(ended, "weights may be wrong", self._coordinate_names(), self)

    def _warn_of_moments(self):
        """Warn where the target has other means or variances than the weighted samples."""
        try:
            found = self._problem.diagnose(self.weights_)
        except Exception as error:
            # Targets of users may be known near the samples alone; learned ones never are
            if self._problem.is_learned:
                raise
            fault = (
                "means and variances are not compared with those of the target, which cannot be "
                f"evaluated away from the samples ({type(error).__name__}: {error}). Pass "
                "gradients to fit instead of the target"
            )
        else:
            if found is None:
                self._warn_of_division()
                return
            # A density learned from constants gives them the least variance it can
            is_fixed = self._problem.is_learned & (np.ptp(self.samples_, axis=0) == 0)
            wrong = found.grossly_wrong & ~is_fixed
            if wrong.any():
                faults = found.faults(wrong, self._coordinate_names())
                fault = (
                    f"by {found.method}, {'; '.join(faults)}: the samples "
                    "do not reach everywhere where the target has mass, or are too few. Draw more, "
                    "or closer to the target"
                )
            elif found.n_closed:
                fault = (
                    f"the samples lie in {found.n_closed} parts of the density, between which "
                    "nothing moves and no draws are possible: the weights of the parts are those "
                    "of the samples, right or wrong"
                )
            else:
                return
        warn(f"BBISWeighter: {fault}.")

    def _warn_of_division(self):
        """Warn where gradients do not tell the weights of parts of the samples."""
        if self._problem.is_divided(self.weights_):
            warn(
                "BBISWeighter: the samples lie in parts between which the density vanishes, and "
                "gradients do not tell the weights of the parts: they are about those of the "
                "samples, right or wrong. Pass a target with log_prob_unnormalized, which is "
                "evaluated elsewhere, too."
            )

    def _coordinate_names(self):
        """Give the names of the columns, if they have names, in the table or in the target."""
        columns = getattr(self, "feature_names_in_", None)
        if self._draws is not None and not hasattr(self.target_, "from_sites"):
            columns = [name for site in self._draws.sites for name in self._draws.names(site)]
        return names_of(self.target_, self.samples_.shape[1], columns)
