"""Density estimation by the mixture over all spanning trees."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skcircuits.estimators._base import (
    TABLE_CONSTRAINTS,
    Interval,
    StrOptions,
    check_is_fitted,
    check_weights,
    fit_context,
    inherit_documentation,
    make_generator,
)
from skcircuits.estimators.shared._density import BaseDensity, StatesMixin, check_observed
from skcircuits.estimators.shared._fitting import ValidationMixin, drive
from skcircuits.estimators.shared.queries._restricted_models import ColumnOfTrees, RestrictedTrees
from skcircuits.exceptions import (
    CircuitPropertyError,
    invalid,
    must,
    require_choice,
    require_count,
    warn,
)
from skcircuits.numerics._patterns import unique_rows
from skcircuits.trees._chow_liu import complete_rows
from skcircuits.trees._trees import edges_of
from skcircuits.trees.mixture_of_all_trees._conditionals import (
    MAX_COMPLETIONS,
    MAX_EXACT_COMPLETIONS,
    conditional_marginals,
    draw_enumerated,
    enumerate_evidence,
    most_probable_completions,
    n_completions,
)
from skcircuits.trees.mixture_of_all_trees._evidence import estimate_evidence, sample_completions
from skcircuits.trees.mixture_of_all_trees._learning import (
    Schedule,
    learn_all_trees,
    start_training,
)
from skcircuits.trees.mixture_of_all_trees._model import sample_rows, sample_trees, sampled_circuit

_METHODS = ("auto", "collapsed", "importance", "blocked_gibbs", "gibbs", "exact")


@inherit_documentation
class MoATDensity(ValidationMixin, StatesMixin, BaseDensity):
    """Mixture of all trees (MoAT): a discrete density with an exact likelihood.

    The tree distributions of all spanning trees share one set of pairwise tables. The weight of a
    tree is the product of the weights of its edges, and a determinant sums over all trees [1]_. The
    table of every pair of columns is free, for any numbers of states. With ``n_components > 1``, a
    finite mixture of such models is learned.

    Parameters
    ----------
    n_components : int, default=1
        Number of mixtures of all trees, each with its own pairwise tables and edge weights.
    init : {"mutual_information", "published", "random"}, default="mutual_information"
        Initial parameters. ``"mutual_information"`` uses empirical pairwise tables, with the cubes
        of the mutual information as edge weights (with several components, those of the groups of a
        mixture of Chow-Liu trees). ``"published"`` uses the mutual information itself as edge
        weights, as in [1]_. ``"random"`` uses random parameters.
    learning_rate : float, default=0.05
        Initial learning rate of Adam, at most 1. The parameters are logarithms, and a step changes
        each of them by about this amount. The learning rate follows a cosine schedule over
        `max_iter` iterations.
    batch_size : int, default=1024
        Number of rows per step.
    max_iter : int, default=50
        Maximum number of iterations over the rows.
    tol : float, default=1e-4
        Minimum improvement of the validation score that counts for `n_iter_no_change`.
    n_iter_no_change : int, default=10
        Number of iterations without improvement after which the fit is stopped.
    pseudo_count : float, default=1.0
        Weight of uniform pseudo-counts for the estimation of the pairwise tables.
    missing : {"estimate", "error"}, default="estimate"
        How to treat rows with missing cells, whose exact probability is NP-hard to compute.
        ``"estimate"`` averages over drawn completions or trees, and learns from the probable
        completions of training rows by a Chow-Liu tree, each with its probability. ``"error"``
        raises an error.
    n_tree_samples : int, default=256
        Number of trees that are drawn for each row with missing cells. The completions of rows with
        at most this many completions are enumerated instead, which is exact. For rows whose missing
        cells hardly depend on each other, a sixteenth as many completions are drawn (more with less
        than 100 columns), which is faster and more accurate. The relative standard error of an
        estimated probability is inversely proportional to the square root of this number. The
        random numbers are fixed in `fit`, so that scores are reproducible. Completions
        (``sample(X=...)``) and queries are exact for up to 4096 completions. Otherwise, all
        completions of a row are drawn from this many trees, which is exact in the limit.
    warm_start : bool, default=False
        Whether to continue from the parameters of the previous fit, with its states and bins.
    n_jobs : int, default=None
        Number of threads; results do not depend on it.

    Attributes
    ----------
    mixture_ : AllTreesMixture
        The model over states.
    weights_ : ndarray of shape (n_components,)
        Mixture weights.
    edge_weights_ : ndarray of shape (n_components, n_features_in_, n_features_in_)
        Edge weights. Only their ratios within a component matter.
    edge_marginals_ : ndarray of shape (n_components, n_features_in_, n_features_in_)
        Probability that a pair of columns is an edge of the tree.
    node_marginals_ : list of ndarray of shape (n_components, n_states_j)
        For each column, the probabilities of its states.
    loss_curve_ : list of float
        Mean negative log-likelihood of the states of the training rows during each iteration.
    validation_scores_ : list of float
        Mean log-likelihood of the states of the validation rows after each iteration.
    n_iter_ : int
        Number of iterations.

    See Also
    --------
    GaussianMixtureDensity : For continuous columns.

    Notes
    -----
    In columns of at most 32 distinct integers, every value is a state. Other numerical columns are
    divided into quantile bins with a uniform density, the outermost further where the density
    falls, so that scores are densities in the original units. On each side of the observed range
    lies an exponential tail whose probability is about 1 / (n_rows + 1), so that no number is
    impossible. A value that many rows have, such as zero in a column of debts, is a further state:
    a point mass, which enters scores with its probability instead of a density. Integers that did
    not occur in `fit` are treated as new categories.

    In tables of 512 or more columns, gradients are computed in single precision and neglect changes
    of edge weights below a two-thousandth of the degree of a vertex in the Laplacian, which is much
    faster; `loss_curve_` is approximate there. Scores are exact.

    Since the learning rate is annealed over `max_iter` iterations, running all of them is the
    regular end of a fit, and does not issue a warning.

    References
    ----------
    .. [1] Selvam, Zhang and Van den Broeck, "Mixtures of All Trees", AISTATS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import MoATDensity
    >>> rng = np.random.default_rng(0)
    >>> X = (rng.random((500, 1)) + 0.3 * rng.normal(size=(500, 4)) > 0.5).astype(float)
    >>> density = MoATDensity(max_iter=10, random_state=0).fit(X)
    >>> bool(density.score(X) > np.log(1 / 16))
    True
    >>> density.sample_trees(3, random_state=0).shape
    (3, 3, 2)
    """

    _model = "mixture_"
    _column_type = ColumnOfTrees
    _parameter_constraints: ClassVar[dict] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"mutual_information", "published", "random"})],
        "learning_rate": [Interval(Real, 0, 1, closed="right")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        **ValidationMixin._validation_constraints,
        "pseudo_count": [Interval(Real, 0, None, closed="neither")],
        "missing": [StrOptions({"estimate", "error"})],
        "n_tree_samples": [Interval(Integral, 1, None, closed="left")],
        **TABLE_CONSTRAINTS,
        "warm_start": ["boolean"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        *,
        n_components=1,
        init="mutual_information",
        learning_rate=0.05,
        batch_size=1024,
        max_iter=50,
        tol=1e-4,
        n_iter_no_change=10,
        validation_fraction=0.1,
        pseudo_count=1.0,
        missing="estimate",
        n_tree_samples=256,
        categorical_features="from_dtype",
        handle_unknown="missing",
        warm_start=False,
        random_state=None,
        verbose=0,
        n_jobs=None,
    ):
        self.n_components = n_components
        self.init = init
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.validation_fraction = validation_fraction
        self.pseudo_count = pseudo_count
        self.missing = missing
        self.n_tree_samples = n_tree_samples
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    @fit_context
    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the parameters by one iteration over a batch of rows.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows. Those of the first call also determine the states and bins of the columns, and the
            probability of new categories.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. None gives equal weights.

        Returns
        -------
        MoATDensity
            The estimator.
        """
        # The first call fixes columns, states and starting parameters; later ones only learn
        first = not hasattr(self, "_training")
        if not first:
            self._training = self._training.copy()  # a failure leaves the old one as it was
        X = self._learn_table(X) if first else self._read_next_table(X)
        sample_weight = check_weights(sample_weight, X)
        generator = make_generator(self.random_state)
        check_observed(X, sample_weight)
        rows = self._training_rows(X, sample_weight)
        self._prepare_rows(rows)
        if first:
            self._expect_new_states(rows)
        rows = self._view_rows(rows)
        (completions,) = self._complete([rows.codes], rows.weight)
        if first:
            self._training = self._start(completions, rows.weight, generator)
        if not hasattr(self, "mixture_"):
            self.loss_curve_, self.validation_scores_, self.n_iter_ = [], [], 0
        # A single pass of a stream has no end towards which the rate could fall
        schedule = Schedule(1, self.learning_rate, self.batch_size, last_rate=1.0)
        (epoch,) = learn_all_trees(
            self._training,
            completions,
            generator,
            schedule,
            sample_weight=rows.weight,
            n_jobs=self.n_jobs,
        )
        self._training.close()
        self.loss_curve_.append(epoch.loss)
        self.n_iter_ += 1
        self._set_mixture(epoch.mixture, _new_seed(generator))
        return self

    def sample_trees(self, n_trees=1, random_state=None):
        """Draw spanning trees from their prior.

        Parameters
        ----------
        n_trees : int, default=1
            Number of trees.
        random_state : int, RandomState or None, default=None
            Source of randomness.

        Returns
        -------
        ndarray of shape (n_trees, n_features - 1, 2)
            Edges of each tree as pairs of columns.
        """
        check_is_fitted(self)
        require_count(1, n_trees=n_trees)
        generator = make_generator(random_state)
        _, parents = sample_trees(self.mixture_, n_trees, generator)
        return edges_of(parents)

    def conditional_marginals(
        self,
        X,
        method="auto",
        n_samples=1000,
        random_state=None,
        return_errors=False,
        proposal="posterior",
    ):
        """Compute the distribution of every column given the observed cells of each row.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_rows, n_features)
            Rows with missing cells.
        method : {"auto", "collapsed", "importance", "blocked_gibbs", "gibbs", "exact"}, \
                default="auto"
            Method to compute the marginals. ``"auto"`` enumerates the completions of rows with at
            most 4096 completions. For other rows, it uses weighted completions that are drawn from
            a mean field if enough cells are observed, and ``"collapsed"`` otherwise. The other
            methods are used for all rows. ``"collapsed"`` is a weighted average of the exact
            marginals of drawn trees, and ``"importance"`` of the conditional distributions that
            occur when a row is drawn from each tree. ``"blocked_gibbs"`` uses Markov chains that
            alternate between tree and row, and ``"gibbs"`` chains that draw one cell at a time.
            ``"exact"`` enumerates all completions, for few missing cells.
        n_samples : int, default=1000
            Number of draws; ignored by ``"exact"``.
        random_state : int, RandomState or None, default=None
            Source of randomness.
        return_errors : bool, default=False
            Whether to also return standard errors and effective sample sizes.
        proposal : {"posterior", "prior"}, default="posterior"
            Distribution of the trees that ``"collapsed"`` and ``"importance"`` draw: one that
            approximates the distribution given the observed cells, or the prior, as in the paper
            by Selvam, Zhang and Van den Broeck. The prior needs many more trees.

        Returns
        -------
        marginals : list of ndarray of shape (n_rows, n_states_j)
            For each column, the probabilities of its states; 0 and 1 for observed cells.
        standard_errors : list of ndarray of shape (n_rows, n_states_j)
            Standard errors of the marginals, with ``return_errors=True``; infinite if a single draw
            has all of the weight.
        effective_sample_sizes : ndarray of shape (n_rows,)
            Number of independent draws with the same accuracy, with ``return_errors=True``.
        """
        require_choice(*_METHODS, method=method)
        require_choice("posterior", "prior", proposal=proposal)
        require_count(1, n_samples=n_samples)
        codes = self._codes(self._read_table(X))
        generator = make_generator(random_state)
        answer = conditional_marginals(
            self.mixture_, codes, method, n_samples, generator, from_prior=proposal == "prior"
        )
        marginals = self._by_column(answer.probabilities)
        if not return_errors:
            return marginals
        errors = self._by_column(answer.standard_errors)
        return marginals, errors, answer.effective_sample_size

    def to_circuit(self, n_trees=256, random_state=None):
        """Approximate the density by a mixture of drawn trees, as a circuit.

        Parameters
        ----------
        n_trees : int, default=256
            Number of trees, which are drawn from their prior. A circuit of few trees fits less well
            than the mixture of all trees, so compare their scores.
        random_state : int, RandomState or None, default=None
            Source of randomness.

        Returns
        -------
        Circuit
            A circuit over the columns in original units.
        """
        check_is_fitted(self)
        require_count(1, n_trees=n_trees)
        generator = make_generator(random_state)
        return sampled_circuit(self.mixture_, n_trees, generator, self._states.original_unit)

    def mpe(self, given=None, n_starts=16, random_state=None):
        """Most probable rows.

        Parameters
        ----------
        given : str, dict, Query, row, dataframe or list, default=None
            One or several conditions, as in `probability`, including rows to complete.
        n_starts : int, default=16
            Number of starts of a local search, which is used for rows with more than 131072
            completions, because finding the most probable completion is NP-hard. It draws this
            number of completions and changes each of them one cell at a time until no change
            increases its probability. The best one is returned, and a ``UserWarning`` reports the
            number of rows for which it may not be the most probable one.
        random_state : int, RandomState or None, default=None
            Controls the randomness of the search.

        Returns
        -------
        ndarray of shape (n_features,) or (n_conditions, n_features), or dataframe
            The row of highest density under each condition. For bins of numerical columns, it holds
            the midpoint of the part of the bin that satisfies the condition, or, if only numbers
            beyond the observed range do, the nearest of them.

        Raises
        ------
        ZeroProbabilityError
            If a condition has probability zero.
        """
        require_count(1, n_starts=n_starts)
        weighed = self._ask(given)
        search = {"n_starts": n_starts, "generator": make_generator(random_state)}
        return self._best_rows(weighed, **search)

    @property
    def _continues(self):
        return self.warm_start and hasattr(self, "_training")

    def _learn_table(self, X, missing_value=np.nan):
        if not self._continues:
            return super()._learn_table(X, missing_value)
        return self._read_next_table(X)

    def _read_next_table(self, X):
        """Read rows to go on with."""
        if len(self._training.vectors) != self.n_components:
            condition = f"stay {len(self._training.vectors)} where learning goes on"
            way_out = "Call fit with warm_start=False to start afresh."
            raise invalid("n_components", condition, way_out, n_components=self.n_components)
        return self._encode_table(X)

    def _reset(self):
        super()._reset()
        vars(self).pop("_training", None)

    def _prepare_rows(self, rows, groups=None):
        if not hasattr(self, "_training"):
            super()._prepare_rows(rows, groups)

    def _fit_rows(self, rows, generator):
        validation = rows.validation
        # Validation rows are completed by what was learned from others
        tables = [rows.codes, validation.codes]
        completions, held_out = self._complete(tables, rows.weight)
        held_out_weight = held_out.totals(validation.weight)
        if self._continues:
            self._training = self._training.copy()
            self._training.reset()
        else:
            self._training = self._start(completions, rows.weight, generator)
        seed = _new_seed(generator)
        # Noted here, not in the result: the best pass may not be the last
        losses = []
        result = drive(
            self,
            self._epochs(completions, rows.weight, generator, losses),
            max_iter=self.max_iter,
            score=lambda epoch: np.average(
                epoch.mixture.log_prob(held_out.codes, n_jobs=self.n_jobs),
                weights=held_out_weight,
            ),
            tol=self.tol,
            n_iter_no_change=self.n_iter_no_change,
            attributes=lambda epoch: self._attributes(epoch.mixture, seed),
            X=rows.X,
        )
        self.loss_curve_ = losses[: result.n_iter]
        self.validation_scores_ = result.scores
        self.n_iter_ = result.n_iter
        # Further rows are learned from the pass that was best, as they are scored
        self._training.restore(result.state)
        self._training.close()
        self._set_mixture(result.state.mixture, seed)

    def _complete(self, tables, sample_weight):
        for codes in tables:
            self._check_complete(codes)
        return complete_rows(
            tables,
            self._states.layout,
            sample_weight=sample_weight,
            pseudo_count=self.pseudo_count,
        )

    def _start(self, completions, sample_weight, generator):
        return start_training(
            completions,
            self._states.layout,
            self.n_components,
            generator,
            sample_weight=sample_weight,
            pseudo_count=self.pseudo_count,
            init=self.init,
        )

    def _epochs(self, completions, sample_weight, generator, losses):
        """The learner's epochs; their losses are recorded."""
        schedule = Schedule(self.max_iter, self.learning_rate, self.batch_size)
        for epoch in learn_all_trees(
            self._training,
            completions,
            generator,
            schedule,
            sample_weight=sample_weight,
            n_jobs=self.n_jobs,
        ):
            losses.append(epoch.loss)
            yield epoch

    def _set_mixture(self, mixture, seed):
        for name, value in self._attributes(mixture, seed).items():
            setattr(self, name, value)

    def _attributes(self, mixture, seed):
        # Parameters may move on while a callback looks at them: these are copies
        nodes = np.stack([component.nodes for component in mixture.components])
        return {
            "mixture_": mixture,
            "weights_": np.exp(mixture.log_weights),
            "edge_weights_": np.stack([component.weights for component in mixture.components]),
            "edge_marginals_": np.stack([c.tree_distribution[1] for c in mixture.components]),
            "node_marginals_": self._by_column(nodes),
            "_seed": seed,
        }

    def _codes(self, X):
        """State numbers, -1 where missing."""
        codes = np.nan_to_num(self._states.discretizer.encode(X), nan=-1.0).astype(np.int64)
        self._check_complete(codes)
        return codes

    def _check_complete(self, codes):
        # Values that fit has not seen have no state, as missing cells
        if self.missing == "error" and (codes < 0).any():
            what = "rows of a mixture of all trees"
            condition = "be complete with missing='error', of values seen in fit"
            way_out = "Use missing='estimate'."
            raise invalid(
                what, condition, way_out, n_missing_or_unseen_cells=int((codes < 0).sum())
            )

    def _log_density(self, X):
        codes = self._codes(X)
        complete = (codes >= 0).all(axis=1)
        log_prob = np.empty(len(X))
        log_prob[complete] = self.mixture_.log_prob(codes[complete], n_jobs=self.n_jobs)
        # A missing cell is evidence for all of its states
        evidence = self._states.layout.evidence(codes[~complete])
        log_prob[~complete] = self._log_states(evidence, self.n_tree_samples)
        return log_prob - self._states.discretizer.log_volume(X)

    def _draw(self, n_samples, X, generator):
        if X is None:
            codes = sample_rows(self.mixture_, n_samples, generator)
            return self._states.discretizer.decode(codes, generator)
        evidence = self._states.layout.evidence(self._codes(X))
        # Few completions are enumerated and drawn from exactly, others need drawn trees
        few = n_completions(evidence, self.mixture_) <= MAX_EXACT_COMPLETIONS
        codes = np.empty((n_samples, *X.shape), dtype=np.int64)
        codes[:, few] = draw_enumerated(self.mixture_, evidence[few], n_samples, generator)
        codes[:, ~few] = sample_completions(
            self.mixture_, evidence[~few], n_samples, self.n_tree_samples, generator
        )
        return np.where(np.isnan(X), self._states.discretizer.decode(codes, generator), X)

    def _log_evidence(self, boxes, observed):
        evidence = np.concatenate(self._coverage(boxes, observed), axis=1)
        log_mass = self._log_states(evidence, MAX_EXACT_COMPLETIONS)
        return log_mass - self._states.discretizer.log_volume(observed)

    def _coverage(self, boxes, observed, columns=None):
        """Fraction of each state of each column that lies in each box, (n_boxes, k) each."""
        if boxes.totals:
            way_out = "Use to_circuit(n_trees), a mixture of drawn trees, or method='estimate'."
            message = must("Sums and counts of columns", "be asked of a circuit", way_out)
            raise CircuitPropertyError(message)
        columns = range(observed.shape[1]) if columns is None else columns
        coverage = self._states.discretizer.coverage(boxes, columns)
        states = self._states.discretizer.encode(observed)
        for column, own in zip(columns, coverage, strict=True):
            cells = observed[:, column]
            seen = ~np.isnan(cells)
            # An observed cell covers its own state whole if the box holds the cell, else nothing
            is_held = ~((cells < boxes.lower[:, column]) | (cells > boxes.upper[:, column]))
            if column in boxes.states:
                codes = np.nan_to_num(cells).astype(np.intp)
                is_held &= boxes.states[column][np.arange(len(cells)), codes]
            is_own = np.arange(own.shape[1]) == states[:, [column]]
            own[seen] = (is_own & is_held[:, None])[seen]
        return coverage

    def _restricted(self, boxes, observed):
        return RestrictedTrees(
            self._coverage,
            boxes,
            observed,
            self._states,
            log_mass_of=lambda evidence: self._log_states(evidence, MAX_EXACT_COMPLETIONS),
            draw_states=self._draw_states_given,
            find_best=self._find_best,
        )

    def _draw_states_given(self, evidence, n_samples, generator):
        """Draw states (n_samples, d) given one row of evidence."""
        if n_completions(evidence, self.mixture_)[0] <= MAX_EXACT_COMPLETIONS:
            return draw_enumerated(self.mixture_, evidence, n_samples, generator)[:, 0]
        return sample_completions(
            self.mixture_, evidence, n_samples, self.n_tree_samples, generator
        )[:, 0]

    def _find_best(self, evidence, n_starts=16, generator=None):
        """Best states (n, d) given evidence, and their log probabilities times its factors."""
        # The same question gets the same answer
        generator = make_generator(self._seed) if generator is None else generator
        states, is_searched = most_probable_completions(
            self.mixture_, evidence, n_starts, self.n_tree_samples, generator
        )
        if is_searched.any():
            warn(
                f"{int(is_searched.sum())} most probable rows have too many completions to "
                "enumerate. They were found by a local search and may not be the most probable "
                "ones. Observe more cells, or increase n_starts.",
            )
        # Boxes may hold a part of a state: its factor belongs to the probability
        factors = np.take_along_axis(evidence, self._states.layout.flat(states), axis=1)
        return states, self.mixture_.log_prob(states) + np.log(factors).sum(axis=1)

    def _log_states(self, evidence, most_completions):
        """Log probability of evidence, exact where it has few completions."""
        # Equal rows are evaluated once, because each takes many trees
        first, inverse = unique_rows(evidence)
        evidence, log_evidence = evidence[first], np.empty(len(first))
        most_completions = min(most_completions, MAX_COMPLETIONS)
        few = n_completions(evidence, self.mixture_) <= most_completions
        log_evidence[few] = enumerate_evidence(self.mixture_, evidence[few])
        log_evidence[~few] = estimate_evidence(
            self.mixture_, evidence[~few], self.n_tree_samples, self._seed
        )
        return log_evidence[inverse]

    def _target(self):
        others = [
            name
            for name, values in zip(
                self._schema.names, self._states.discretizer.values, strict=True
            )
            if values is None or not np.array_equal(values, np.arange(len(values)))
        ]
        others += [self._schema.names[j] for j in self._category_groups]
        if others:
            what = "columns of a mixture of all trees as target"
            condition = "be categories, few or frequent ones, or hold the numbers 0, 1, ... k - 1"
            way_out = "Encode the states of a column in this way, or convert it to categories."
            raise CircuitPropertyError(must(what, condition, way_out, columns=others))
        return self.mixture_

    def _point_masses(self, column):
        bins = self._states.discretizer.bins[column]
        return np.empty(0) if bins is None else bins.points[~np.isnan(bins.points)]

    def _by_column(self, states):
        """Split the last axis (flat states) into columns of the table, and groups equally."""
        columns = np.split(states, self._states.layout.offsets[1:], axis=-1)
        for j, groups in self._category_groups.items():
            columns[j] = groups.spread(columns[j])
        return columns

    def _n_parameters(self):
        free = self._states.layout.cardinalities - 1
        n_pair_parameters = (free.sum() ** 2 - (free**2).sum()) // 2
        # Only ratios of edge weights matter: a common factor cancels
        n_ratios = max(0, len(self._states.layout.pairs[0]) - 1)
        per_component = n_pair_parameters + free.sum() + n_ratios
        n_components = len(self.mixture_.components)
        return int(n_components * per_component + n_components - 1)


def _new_seed(generator):
    """Seed of the trees that score rows with missing cells."""
    return int(generator.integers(np.iinfo(np.int64).max))
