"""Questions to a fitted mixture of all trees beyond those every density answers."""

import numpy as np

from skcircuits.estimators._base import check_is_fitted, make_generator
from skcircuits.exceptions import must, require_count
from skcircuits.trees import (
    conditional_marginals,
    edges_of,
    sample_trees,
    sampled_circuit,
)

_METHODS = {"auto", "collapsed", "importance", "blocked_gibbs", "gibbs", "exact"}


class TreeQueriesMixin:
    """Trees, conditional marginals and circuits of a density with a ``mixture_``."""

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
        self, X, method="auto", n_samples=1000, random_state=None, return_errors=False
    ):
        """Distribution of every column given the observed cells of each row.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_rows, n_features)
            Rows with missing cells.
        method : {"auto", "collapsed", "importance", "blocked_gibbs", "gibbs", "exact"}, \
                default="auto"
            How the marginals are found. ``"auto"``: exactly where a row has at most 4096
            completions; where enough else is observed by weighted completions, drawn from what a
            mean field believes of each cell; else collapsed. The others for all rows: weighted
            averages of the exact answers of drawn trees (collapsed) or of the distributions met
            while drawing a row from each of them (importance), Markov chains that alternate
            between tree and row (blocked Gibbs) or move one cell at a time (Gibbs), or exact
            enumeration for few missing cells.
        n_samples : int, default=1000
            Number of draws; ignored by ``"exact"``.
        random_state : int, RandomState or None, default=None
            Source of randomness.
        return_errors : bool, default=False
            Also return standard errors and effective sample sizes.

        Returns
        -------
        marginals : list of ndarray of shape (n_rows, n_states_j)
            Per column the probabilities of its states; 0 and 1 where observed.
        standard_errors : list of ndarray of shape (n_rows, n_states_j)
            Their standard errors, with ``return_errors=True``; infinite where a single draw
            counts.
        effective_sample_sizes : ndarray of shape (n_rows,)
            Independent draws that would estimate equally well, with ``return_errors=True``.
        """
        if not isinstance(method, str) or method not in _METHODS:
            raise ValueError(must("method", f"be one of {sorted(_METHODS)}", method=method))
        require_count(1, n_samples=n_samples)
        codes = self._codes(self._read_table(X))
        generator = make_generator(random_state)
        answer = conditional_marginals(self.mixture_, codes, method, n_samples, generator)
        marginals = self._by_column(answer.probabilities)
        if not return_errors:
            return marginals
        errors = self._by_column(answer.standard_errors)
        return marginals, errors, answer.effective_sample_size

    def to_circuit(self, n_trees=256, random_state=None):
        """Write a mixture of drawn trees as a circuit, for queries that need one.

        Parameters
        ----------
        n_trees : int, default=256
            Number of trees, drawn from their prior. A circuit of few trees fits less well
            than the mixture of all of them: compare their scores.
        random_state : int, RandomState or None, default=None
            Source of randomness.

        Returns
        -------
        Circuit
            Over the columns in original units.
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
            Condition or conditions, as in `probability`: rows to complete among them.
        n_starts : int, default=16
            Where a row has more than 131072 completions, to find the most probable one is
            NP-hard. Then so many completions are drawn and each is changed one cell at a time
            until no change makes it more probable; the best one is given and a
            ``UserWarning`` says for how many rows it may not be the most probable one.
        random_state : int, RandomState or None, default=None
            Source of randomness of the search.

        Returns
        -------
        ndarray of shape (n_features,) or (n_conditions, n_features), or dataframe
            The row of highest density under each condition; of bins of numerical columns the
            middles of what the condition leaves of them.

        Raises
        ------
        ZeroProbabilityError
            If a condition is impossible.
        """
        require_count(1, n_starts=n_starts)
        weighed = self._ask(given)
        search = {"n_starts": n_starts, "generator": make_generator(random_state)}
        return self._best_rows(weighed, *self._model_of(weighed).mpe(**search))

    def _by_column(self, states):
        """Split the last axis (flat states) into columns of the table."""
        return np.split(states, self._states.layout.offsets[1:], axis=-1)
