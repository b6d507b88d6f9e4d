"""Continuous graphical models with arbitrary differentiable factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from skcircuits.exceptions import must, require
from skcircuits.numerics._arrays import float_array, integer_array, listed, neighbor_lists
from skcircuits.protocols import FloatArray, ImmutableMixin, IntArray


@dataclass(frozen=True)
class ContinuousFactor:
    """A positive function of some variables, or one function of many groups of variables.

    Parameters
    ----------
    variables : array-like of int of shape (n_variables,) or (n_groups, n_variables)
        Arguments of the function. A two-dimensional array applies the function to each group, so
        that thousands of equal potentials are one factor and are evaluated in one call.
    log_value : callable
        Logarithm of the function, which maps (n_samples, n_groups, n_variables) to (n_samples,
        n_groups).
    gradient : callable
        Gradient of `log_value` with respect to its variables, with the shape of its argument.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.graphical import ContinuousFactor
    >>> chain = ContinuousFactor(
    ...     [[0, 1], [1, 2]],
    ...     lambda x: -0.5 * (x[..., 0] - x[..., 1]) ** 2,
    ...     lambda x: (x[..., ::-1] - x))
    >>> chain.variables.shape
    (2, 2)
    """

    variables: IntArray = field(repr=False)
    log_value: Callable[[FloatArray], FloatArray]
    gradient: Callable[[FloatArray], FloatArray]

    def __post_init__(self) -> None:
        # A copy, because networks cache derived quantities.
        variables = np.atleast_2d(integer_array(self.variables, "variables"))
        object.__setattr__(self, "variables", variables)


class ContinuousMarkovNetwork(ImmutableMixin):
    """The density p(x) ∝ exp(Σ log factors).

    Variables are neighbours if they occur in the same factor.

    Parameters
    ----------
    factors : sequence of ContinuousFactor
        The factors.
    n_variables : int, default=None
        Number of variables; by default determined by the largest index in a factor.
    blocks : sequence of array-likes of int, default=None
        Variables that form one node (such as the two coordinates of a position), if nodes have more
        than one variable.

    Attributes
    ----------
    neighbors : list of n_nodes ndarrays of int
        Markov blanket of each node.
    blocks : list of n_nodes ndarrays of int
        Variables of each node.

    Examples
    --------
    >>> from skcircuits.graphical import ContinuousFactor, ContinuousMarkovNetwork
    >>> network = ContinuousMarkovNetwork([
    ...     ContinuousFactor([[0, 1], [1, 2]], lambda x: -0.5 * (x[..., 0] - x[..., 1]) ** 2,
    ...                      lambda x: x[..., ::-1] - x),
    ...     ContinuousFactor([[0], [1], [2]], lambda x: -x[..., 0] ** 4 / 4, lambda x: -x ** 3)])
    >>> network.grad_log_prob([[1.0, 0.0, 0.0]])
    array([[-2.,  1.,  0.]])
    >>> [blanket.tolist() for blanket in network.neighbors]
    [[1], [0, 2], [1]]
    """

    def __init__(
        self,
        factors: Sequence[ContinuousFactor],
        n_variables: int | None = None,
        blocks: Sequence[ArrayLike] | None = None,
    ) -> None:
        self.factors = listed(factors, "factors")
        for factor in self.factors:
            require("log_value", "a ContinuousFactor", **{"every factor": factor})
        if not self.factors:
            raise ValueError(must("factors", "hold at least one factor", n_factors=0))
        # A variable that no factor mentions has a flat density, so that n_variables may be larger
        greatest = max(int(factor.variables.max()) for factor in self.factors)
        self.n_variables = greatest + 1 if n_variables is None else n_variables
        smallest = min(int(factor.variables.min()) for factor in self.factors)
        if smallest < 0 or greatest >= self.n_variables:
            condition = f"lie in 0..{self.n_variables - 1}"
            raise ValueError(
                must("variables of the factors", condition, min=smallest, max=greatest)
            )
        if blocks is None:
            self.blocks = list(np.arange(self.n_variables)[:, None])
        else:
            self.blocks = [np.array(block, dtype=np.int64) for block in blocks]

    @cached_property
    def _scatter(self) -> list[sparse.csr_array]:
        """Per factor the matrix that adds the entries of all groups to their variables."""
        return [
            sparse.csr_array(
                (
                    np.ones(factor.variables.size),
                    (factor.variables.ravel(), np.arange(factor.variables.size)),
                ),
                shape=(self.n_variables, factor.variables.size),
            )
            for factor in self.factors
        ]

    @cached_property
    def neighbors(self) -> list[IntArray]:
        """Markov blanket of each node."""
        # Blocks may hold several coordinates: neighbours are nodes, not coordinates
        node_of_variable = np.empty(self.n_variables, dtype=np.int64)
        for node, block in enumerate(self.blocks):
            node_of_variable[block] = node
        pairs = []
        for factor in self.factors:
            nodes = node_of_variable[factor.variables]
            first, second = np.meshgrid(*[np.arange(nodes.shape[1])] * 2)
            pairs.append(np.stack([nodes[:, first.ravel()], nodes[:, second.ravel()]], axis=-1))
        row, column = np.concatenate([pair.reshape(-1, 2) for pair in pairs]).T
        shape = (len(self.blocks), len(self.blocks))
        return neighbor_lists(sparse.csr_array((np.ones(row.size), (row, column)), shape=shape))

    def grad_log_prob(self, X: ArrayLike) -> FloatArray:
        """Compute the score, the sum of the gradients of the factors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_variables)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_variables)
            Score.
        """
        X = float_array(X, "X")
        # Coordinates first, so that a sparse product adds up all groups of a factor
        scores = np.zeros((self.n_variables, len(X)))
        for factor, scatter in zip(self.factors, self._scatter):
            gradient = np.asarray(factor.gradient(X[:, factor.variables]))
            scores += scatter @ gradient.reshape(len(X), -1).T
        return scores.T

    def log_prob_unnormalized(self, X: ArrayLike) -> FloatArray:
        """Compute the sum of the logarithms of the factors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_variables)
            Points.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log density up to a constant.
        """
        X = float_array(X, "X")
        values = [factor.log_value(X[:, factor.variables]).sum(axis=1) for factor in self.factors]
        return np.sum(values, axis=0)
