"""Queries of a fitted mixture of all trees that other densities do not have; queries of boxes."""

import numpy as np
from scipy.special import softmax

from skcircuits.circuits.queries._boxes import Evidence
from skcircuits.estimators._base import check_is_fitted, make_generator
from skcircuits.estimators.shared.queries._quantiles import ColumnUnderConditions
from skcircuits.estimators.shared.queries._totals import as_box
from skcircuits.exceptions import CircuitPropertyError, must, require_choice, require_count
from skcircuits.numerics._arrays import safe_log
from skcircuits.trees._trees import edges_of
from skcircuits.trees.mixture_of_all_trees._conditionals import conditional_marginals
from skcircuits.trees.mixture_of_all_trees._model import sample_trees, sampled_circuit

_METHODS = ("auto", "collapsed", "importance", "blocked_gibbs", "gibbs", "exact")


class TreeQueriesMixin:
    """Draw trees, conditional marginals and circuits of a density with a ``mixture_``."""

    def _point_masses(self, column):
        bins = self._states.discretizer.bins[column]
        return np.empty(0) if bins is None else bins.points[~np.isnan(bins.points)]

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

    def _by_column(self, states):
        """Split the last axis (flat states) into columns of the table, and groups equally."""
        columns = np.split(states, self._states.layout.offsets[1:], axis=-1)
        for j, groups in self._category_groups.items():
            columns[j] = groups.spread(columns[j])
        return columns


class ColumnOfTrees(ColumnUnderConditions):
    """A column whose distribution function follows from the probabilities of its states.

    Within a state it is that of the bin, so that bisections take no further draws of trees.
    """

    def _box_moments(self):
        return self._model.moments_in_order(self._at)

    def _log_mass(self, cut, box_of):
        fraction = self._model.fraction_within(self._at, cut, box_of)
        return self._weighed.log_mass[box_of] + safe_log(fraction)


class RestrictedTrees:
    """Answers under boxes, as `RestrictedCircuit` gives them.

    `coverage_of` gives per column the fraction of each state that lies in each box, (n_boxes, k);
    `log_mass_of` gives log probabilities of such evidence, `draw_states` completions of one row,
    `find_best` most probable ones. They are exact where few joint states are possible, else
    averages over trees and searches.
    """

    def __init__(
        self, coverage_of, boxes, observed, states, *, log_mass_of, draw_states, find_best
    ):
        self._coverage_of, self._coverage = coverage_of, coverage_of(boxes, observed)
        self._boxes, self._observed = boxes, observed
        self._discretizer, self._log_mass_of = states.discretizer, log_mass_of
        self._bins = states.restricted_bins(Evidence(observed, as_box(boxes)))
        self._masses = {}  # of the columns that were asked for
        self._draw_states, self._find_best = draw_states, find_best

    @property
    def cardinalities(self):
        """Number of states of each column whose states are codes."""
        return {
            j: len(values)
            for j, values in enumerate(self._discretizer.values)
            if values is not None and np.array_equal(values, np.arange(len(values)))
        }

    def moments(self):
        """Means and variances of all columns, (n_boxes, d) each."""
        columns = [self._moments(j, self._state_masses(j)) for j in range(len(self._coverage))]
        means, variances = (np.stack(parts, axis=1) for parts in zip(*columns, strict=True))
        return means, variances

    def moments_in_order(self, j):
        """Means and variances of one column, (n_boxes,) each, as `fraction_within` has them."""
        return self._moments(j, self._ordered_masses(j))

    def _moments(self, j, masses):
        """Means and variances of a column with masses (n_boxes, k) of its states."""
        own, spread = self._moments_of_states(j)
        mean = (masses * own).sum(axis=1)
        variance = (masses * (spread + (own - mean[:, None]) ** 2)).sum(axis=1)
        cells = self._observed[:, j]
        is_seen = ~np.isnan(cells)
        return np.where(is_seen, cells, mean), np.where(is_seen, 0.0, variance)

    def fraction_within(self, j, cut, box_of):
        """Probability (n_cut,) of boxes that are cut in a column, each given the box it is part of.

        `box_of` (n_cut,): numbers of those boxes.
        """
        (own,) = self._coverage_of(cut, self._observed[box_of], [j])
        whole = self._coverage[j][box_of]
        part = np.divide(own, whole, out=np.zeros_like(own), where=whole > 0)
        return (self._ordered_masses(j)[box_of] * part).sum(axis=1)

    def state_probabilities(self):
        """Distribution of every column whose states are codes, (n_boxes, k) each."""
        found = {j: self._state_masses(j) for j in self.cardinalities}
        for j, groups in enumerate(self._discretizer.groups):
            if groups is not None:
                # Of a state, the categories in a box are equally probable
                inside = self._allowed_categories(j)
                each = found[j] / np.maximum(groups.sums(inside.astype(np.float64)), 1.0)
                found[j] = each[:, groups.states] * inside
        return found

    def sample(self, counts, rng):
        """Draw counts (n_boxes,) rows for each box, in the order of the boxes."""
        drawn = []
        for box, count in enumerate(counts.tolist()):
            if count == 0:
                continue
            states = self._draw_states(self._evidence(self._coverage, box), count, rng)
            rows = np.empty((count, len(self._coverage)))
            for j, own in enumerate(states.T):
                if j in self._bins:
                    rows[:, j] = self._bins[j].draw(own, np.full(count, box), rng)[:, 0]
                else:
                    rows[:, j] = self._numbers(j)[box, own]
            for j, groups in enumerate(self._discretizer.groups):
                if groups is not None:
                    inside = self._allowed_categories(j)[box]
                    rows[:, j] = groups.decode(states[:, j], rng, inside)
            is_seen = ~np.isnan(self._observed[box])
            rows[:, is_seen] = self._observed[box, is_seen]
            drawn.append(rows)
        return np.concatenate(drawn)

    def covariance(self, features):
        """Refuse: it needs the distributions of all pairs of columns."""
        way_out = "Take numpy.cov of draws: sample(n, given=...), or to_circuit(n_trees)."
        raise CircuitPropertyError(must("covariances", "be computed with a circuit", way_out))

    def mpe(self, left_out=(), **search):
        """Rows of highest density (n_boxes, d), and its logarithms (n_boxes,).

        `search`: parameters of the search for rows with too many completions to enumerate.
        """
        if len(left_out):
            way_out = "Ask the density itself: mpe(given=...), or marginals of few categories."
            condition = "include all columns of a mixture of all trees"
            raise CircuitPropertyError(must("most probable rows", condition, way_out))
        # No mode lies in a state outside a box
        log_heights = [
            np.where(own > 0.0, self._log_heights(j), -np.inf)
            for j, own in enumerate(self._coverage)
        ]
        # In units of the highest state: far out in a tail, densities are too small for floats
        log_units = [own.max(axis=1, keepdims=True) for own in log_heights]
        heights = [np.exp(own - unit) for own, unit in zip(log_heights, log_units, strict=True)]
        states, log_best = self._find_best(np.concatenate(heights, axis=1), **search)
        boxes, rows = np.arange(len(states)), np.empty(self._observed.shape)
        for j, own in enumerate(states.T):
            if j in self._bins:
                rows[:, j] = self._bins[j].mode(own, boxes)[:, 0]
            else:
                rows[:, j] = self._numbers(j)[boxes, own]
        rows = np.where(np.isnan(self._observed), rows, self._observed)
        return rows, log_best + np.concatenate(log_units, axis=1).sum(axis=1)

    def _allowed_categories(self, j):
        """Categories of a column in each box, (n_boxes, k)."""
        values = self._discretizer.values[j]
        lower, upper = self._boxes.lower[:, [j]], self._boxes.upper[:, [j]]
        return ~((values < lower) | (values > upper)) & self._boxes.states.get(j, True)

    def _evidence(self, coverage, box):
        return np.concatenate([own[[box]] for own in coverage], axis=1)

    def _moments_of_states(self, j):
        """Mean and variance of a column in each state, within each box, (n_boxes, k) each."""
        if j not in self._bins:
            numbers = self._numbers(j)
            return numbers, np.zeros(numbers.shape)
        return tuple(own[..., 0].T for own in self._bins[j].moments())

    def _log_heights(self, j):
        """Log of the highest density of each state of a column within each box, (n_boxes, k)."""
        if j in self._bins:
            return self._bins[j].log_max().T
        return -np.log(self._discretizer.volumes(j))

    def _numbers(self, j):
        """Number behind each state of a column of values, or a code in a box, (n_boxes, k)."""
        groups = self._discretizer.groups[j]
        if groups is not None:
            return groups.first_members(self._allowed_categories(j)).astype(np.float64)
        return np.broadcast_to(self._discretizer.values[j], self._coverage[j].shape)

    def _state_masses(self, j):
        """Distribution of the states of a column, (n_boxes, k)."""
        return softmax(self._log_masses(j, np.eye(self._coverage[j].shape[1])), axis=1)

    def _ordered_masses(self, j):
        """Distribution of the states of a column from probabilities of several lowest ones.

        Estimates of nested boxes have errors alike, which cancel in their ratios.
        """
        if j not in self._masses:
            log_reached = self._log_masses(j, np.tri(self._coverage[j].shape[1]))
            reached = np.exp(log_reached - log_reached[:, -1:])
            self._masses[j] = np.diff(np.maximum.accumulate(reached, axis=1), prepend=0.0)
        return self._masses[j]

    def _log_masses(self, j, parts):
        """Log probabilities (n_boxes, n_parts) of boxes with a column in sets of its states.

        `parts` (n_parts, k): 1 where a state is in a set.
        """
        start = sum(own.shape[1] for own in self._coverage[:j])
        whole = np.concatenate(self._coverage, axis=1)
        # One row of evidence per box and set
        each = np.repeat(whole, len(parts), axis=0)
        own = slice(start, start + parts.shape[1])
        each[:, own] *= np.tile(parts, (len(whole), 1))
        log_mass = np.full(len(each), -np.inf)
        possible = np.flatnonzero(each[:, own].any(axis=1))
        log_mass[possible] = self._log_mass_of(each[possible])
        return log_mass.reshape(len(whole), -1)
