"""The mixture over all spanning trees (MoAT) as a distribution."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.spanning._laplacian import RowLaplacians, log_tree_sum
from skcircuits.trees.tree._layout import StateLayout

__all__ = ["MixtureOfAllTrees", "distinct_rows"]


class MixtureOfAllTrees:
    """The mixture of the tree distributions of all spanning trees.

    Every spanning tree T of the complete graph over the variables weighs
    ``Π_{uv∈T} w_uv``, and its distribution has the one set of pair tables that all trees share:

        p(x) = (1/Z) Σ_T Π_{uv∈T} w_uv · Π_u P_u(x_u) Π_{uv∈T} P_uv(x_u, x_v) / (P_u P_v)

    By the matrix-tree theorem the sum is a determinant (Selvam, Zhang and Van den Broeck,
    "Mixtures of All Trees", 2023, eq. 2).

    Parameters
    ----------
    layout : StateLayout
        Numbering of the states.
    weights : ndarray of shape (n_variables, n_variables)
        Edge weights: symmetric, positive off the diagonal, zero on it.
    nodes : ndarray of shape (n_states,)
        Positive probability of every state.
    pairs : ndarray of shape (n_states, n_states)
        Probability of every pair of states; symmetric, with margins ``nodes``. The blocks of
        a variable with itself are ignored.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import MixtureOfAllTrees, StateLayout, pair_statistics
    >>> layout = StateLayout([2, 2, 2])
    >>> states = np.array(np.unravel_index(np.arange(8), (2, 2, 2))).T
    >>> statistics = pair_statistics(states[[0, 0, 3, 7]], layout)
    >>> model = MixtureOfAllTrees(layout, np.ones((3, 3)) - np.eye(3), *statistics)
    >>> bool(np.isclose(np.exp(model.log_prob(states)).sum(), 1))
    True
    """

    def __init__(
        self, layout: StateLayout, weights: FloatArray, nodes: FloatArray, pairs: FloatArray
    ) -> None:
        self.layout = layout
        self.weights = weights
        self.nodes = nodes
        self.pairs = pairs

    def log_prob(self, codes: IntArray, *, n_jobs: int | None = None) -> FloatArray:
        """Log probability of complete rows; equal rows are computed once.

        Parameters
        ----------
        codes : ndarray of shape (n_rows, n_variables)
            Complete rows.
        n_jobs : int, default=None
            Threads.

        Returns
        -------
        ndarray of shape (n_rows,)
            Log probabilities.
        """
        # Tables of few states repeat their rows: nltcs six times, plants twice.
        rows, inverse = distinct_rows(codes)
        log_prob = self.laplacians().log_tree_sums(rows, n_jobs=n_jobs)
        log_prob += self.log_normaliser(rows)
        return log_prob[inverse]

    def log_normaliser(self, codes: IntArray) -> FloatArray:
        """Log of Π_u P_u(x_u) / Z: what turns a sum over trees into a probability."""
        flat = self.layout.flat(codes)
        log_sum, _ = self.tree_law
        return np.log(self.nodes)[flat].sum(axis=1) - log_sum

    def ratios(self) -> FloatArray:
        """P_uv(a, b) / (P_u(a) P_v(b)) at all pairs of states, zero within a variable."""
        # In place after the first division: the matrix may be the largest array around.
        ratios = self.pairs / self.nodes[:, None]
        ratios /= self.nodes
        owner = self.layout.owner
        ratios[owner[:, None] == owner] = 0.0
        return ratios

    def affinities(self) -> FloatArray:
        """Edge weights w_uv r_uv(a, b) given the states of the two variables."""
        owner = self.layout.owner
        affinities = self.ratios()
        affinities *= self.weights[owner[:, None], owner]
        return affinities

    def laplacians(self) -> RowLaplacians:
        """The Laplacians of the rows.

        They are made anew by every call: kept, they would take twice the model.
        """
        root = int(self.weights.sum(axis=1).argmax())
        return RowLaplacians(self.affinities(), self.layout, root)

    @cached_property
    def tree_law(self) -> tuple[float, FloatArray]:
        """Log of Z, and the prior probability of every edge to be in the tree."""
        return log_tree_sum(self.weights)


def distinct_rows(codes: IntArray) -> tuple[IntArray, IntArray]:
    """Find the distinct rows of a table of codes.

    Parameters
    ----------
    codes : ndarray of shape (n_rows, n_variables)
        Non-negative codes.

    Returns
    -------
    rows : ndarray of shape (n_distinct, n_variables)
        Distinct rows.
    inverse : ndarray of shape (n_rows,)
        ``rows[inverse]`` are the codes.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import distinct_rows
    >>> distinct_rows(np.array([[1, 0], [0, 2], [1, 0]]))
    (array([[0, 2],
           [1, 0]]), array([1, 0, 1]))
    """
    # Rows as opaque bytes sort much faster than columns one after the other.
    narrow = np.ascontiguousarray(codes.astype(np.min_scalar_type(codes.max(initial=0))))
    opaque = narrow.view(np.dtype((np.void, narrow.itemsize * narrow.shape[1]))).ravel()
    _, index, inverse = np.unique(opaque, return_index=True, return_inverse=True)
    return codes[index], inverse
