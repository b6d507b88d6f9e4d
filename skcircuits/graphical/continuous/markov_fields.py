"""Continuous graphical models: arbitrary differentiable factors, and Gaussian fields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.linalg import cho_solve, solve_triangular

from skcircuits.exceptions import invalid, require, require_count
from skcircuits.numerics._arrays import (
    float_array,
    integer_array,
    listed,
    neighbor_lists,
    single_or_double,
)
from skcircuits.numerics._random import as_generator
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


class ContinuousModel(ImmutableMixin, ABC):
    """An unnormalised density over real coordinates, given by its logarithm and its score."""

    @abstractmethod
    def grad_log_prob(self, X: ArrayLike) -> FloatArray:
        """Compute the score.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_coordinates)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_coordinates)
            Gradients of the log density.
        """

    @abstractmethod
    def log_prob_unnormalized(self, X: ArrayLike) -> FloatArray:
        """Compute the log density up to a constant.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_coordinates)
            Points.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log density up to a constant.
        """


class ContinuousMarkovNetwork(ContinuousModel):
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
            raise invalid("factors", "hold at least one factor", n_factors=0)
        # A variable that no factor mentions has a flat density, so that n_variables may be larger
        greatest = max(int(factor.variables.max()) for factor in self.factors)
        self.n_variables = greatest + 1 if n_variables is None else n_variables
        smallest = min(int(factor.variables.min()) for factor in self.factors)
        if smallest < 0 or greatest >= self.n_variables:
            condition = f"lie in 0..{self.n_variables - 1}"
            raise invalid("variables of the factors", condition, min=smallest, max=greatest)
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
        """Compute the score, the sum of the gradients of the factors."""
        X = float_array(X, "X")
        # Coordinates first, so that a sparse product adds up all groups of a factor
        scores = np.zeros((self.n_variables, len(X)))
        for factor, scatter in zip(self.factors, self._scatter):
            gradient = np.asarray(factor.gradient(X[:, factor.variables]))
            scores += scatter @ gradient.reshape(len(X), -1).T
        return scores.T

    def log_prob_unnormalized(self, X: ArrayLike) -> FloatArray:
        """Compute the sum of the logarithms of the factors."""
        X = float_array(X, "X")
        values = [factor.log_value(X[:, factor.variables]).sum(axis=1) for factor in self.factors]
        return np.sum(values, axis=0)


class GaussianMRF(ContinuousModel):
    """The density p(x) ∝ exp(linear·x - ½ xᵀ precision x).

    Coordinates i and j are neighbours if ``precision[i, j]`` is not zero. Gradients take one sparse
    matrix product. Methods that need the covariance factorise the dense precision once.

    Parameters
    ----------
    precision : array-like or sparse matrix of shape (n_coordinates, n_coordinates)
        Symmetric and positive definite precision matrix (checked when it is first factorised).
    linear : array-like of shape (n_coordinates,)
        The linear term; the mean is ``precision⁻¹ linear``.

    Attributes
    ----------
    mean_ : ndarray of shape (n_coordinates,)
        Exact mean.
    covariance_ : ndarray of shape (n_coordinates, n_coordinates)
        Exact covariance.
    neighbors : list of n_coordinates ndarrays of int
        Markov blanket of each coordinate.

    Examples
    --------
    >>> from skcircuits.graphical import GaussianMRF
    >>> field = GaussianMRF([[2.0, -1.0], [-1.0, 2.0]], [1.0, 0.0])
    >>> field.mean_.round(3), field.covariance_.round(3).tolist()
    (array([0.667, 0.333]), [[0.667, 0.333], [0.333, 0.667]])
    >>> field.grad_log_prob([[0.0, 0.0]])
    array([[1., 0.]])
    """

    def __init__(self, precision: ArrayLike | sparse.sparray, linear: ArrayLike) -> None:
        self.linear = _finite_vector(linear, "linear")
        self._precision = _as_symmetric_csr(precision, self.linear.size, "precision", "linear")

    @classmethod
    def from_moments(cls, mean: ArrayLike, covariance: ArrayLike) -> GaussianMRF:
        """Build the field with a given mean and covariance.

        Parameters
        ----------
        mean : array-like of shape (n_coordinates,)
            Mean.
        covariance : array-like of shape (n_coordinates, n_coordinates)
            Covariance; its inverse has no exact zeros, so the graph is complete.

        Returns
        -------
        GaussianMRF
            The field.

        Raises
        ------
        ValueError
            If the covariance is not symmetric and positive definite, or does not match the mean.
        """
        mean = _finite_vector(mean, "mean")
        checked = _as_symmetric_csr(covariance, mean.size, "covariance", "mean")
        factor = _cholesky(checked.toarray(), "covariance")
        precision = cho_solve((factor, True), np.eye(mean.size))
        # Rounding differs across the diagonal, and precision matrices are refused for it
        return cls((precision + precision.T) / 2, precision @ mean)

    @property
    def precision(self) -> FloatArray:
        """Precision matrix as a dense array, shape (n_coordinates, n_coordinates)."""
        return self._precision.toarray()

    @cached_property
    def neighbors(self) -> list[IntArray]:
        """Markov blanket of each coordinate."""
        return neighbor_lists(self._precision)

    @cached_property
    def mean_(self) -> FloatArray:
        """Exact mean, shape (n_coordinates,)."""
        return cho_solve((self._factor, True), self.linear)

    @cached_property
    def covariance_(self) -> FloatArray:
        """Exact covariance, shape (n_coordinates, n_coordinates)."""
        return cho_solve((self._factor, True), np.eye(self.linear.size))

    @cached_property
    def _single_precision(self) -> sparse.csr_array:
        return self._precision.astype(np.float32)

    @cached_property
    def _factor(self) -> FloatArray:
        return _cholesky(self.precision, "precision")

    @cached_property
    def _log_normalizer(self) -> float:
        half_log_determinant = np.log(np.diag(self._factor)).sum()
        constant = 0.5 * self.linear.size * np.log(2 * np.pi) + 0.5 * self.linear @ self.mean_
        return float(constant - half_log_determinant)

    def grad_log_prob(self, X: ArrayLike) -> FloatArray:
        """Compute the score, linear - precision x, in the precision of X."""
        X = self._checked(single_or_double(X, "X"))
        columns = np.ascontiguousarray(X.T)
        precision = self._single_precision if X.dtype == np.float32 else self._precision
        scores = precision @ columns
        np.subtract(self.linear.astype(X.dtype)[:, None], scores, out=scores)
        return scores.T

    def log_prob_unnormalized(self, X: ArrayLike) -> FloatArray:
        """Compute linear·x - ½ xᵀ precision x."""
        X = self._checked(float_array(X, "X"))
        return X @ self.linear - 0.5 * np.einsum("nd,nd->n", X, (self._precision @ X.T).T)

    def _checked(self, X: NDArray[Any]) -> NDArray[Any]:
        if X.ndim != 2 or X.shape[1] != len(self.linear):
            raise invalid("X", f"have shape (n, {len(self.linear)})", shape=X.shape)
        return X

    def log_prob(self, X: ArrayLike) -> FloatArray:
        """Compute the log density.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_coordinates)
            Points.

        Returns
        -------
        ndarray of shape (n_samples,)
            Normalised log density.
        """
        return self.log_prob_unnormalized(X) - self._log_normalizer

    def sample(
        self, n_samples: int, random_state: int | np.random.Generator | None = None
    ) -> FloatArray:
        """Draw exact samples.

        Parameters
        ----------
        n_samples : int
            Number of draws.
        random_state : int, numpy.random.Generator or None, default=None
            Source of randomness.

        Returns
        -------
        ndarray of shape (n_samples, n_coordinates)
            Independent draws.
        """
        require_count(0, n_samples=n_samples)
        rng = as_generator(random_state)
        noise = rng.standard_normal((self.linear.size, n_samples))
        # precision = L L', so that L'^-1 z has its inverse for a covariance
        scaled = solve_triangular(self._factor, noise, lower=True, trans="T")
        return self.mean_ + scaled.T

    def mmd2(self, X: ArrayLike, bandwidth: float) -> float:
        """Compute the squared maximum mean discrepancy of a sample to this density, exactly.

        With z = x - mean, Σ the covariance and the kernel ``exp(-|x - y|²/h)``, the expectations
        under the density have closed forms: ``E k(x, Y) = |I + 2Σ/h|^(-½) exp(-zᵀ(hI + 2Σ)⁻¹z)``
        and ``E k(Y, Y') = |I + 4Σ/h|^(-½)``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_coordinates)
            The sample.
        bandwidth : float
            h of the kernel.

        Returns
        -------
        float
            Squared discrepancy (V-statistic), non-negative.
        """
        z = self._checked(float_array(X, "X")) - self.mean_
        width = float_array(bandwidth, "bandwidth")
        if width.ndim or not 0 < width < np.inf:
            raise invalid("bandwidth", "be positive and finite", bandwidth=bandwidth)
        # On the axes of the covariance all integrals are products of one-dimensional ones
        variances, axes = np.linalg.eigh(self.covariance_)
        norms = np.einsum("nd,nd->n", z, z)
        # Rounding of the difference of squares may be negative
        distances = np.maximum(norms[:, None] + norms - 2.0 * z @ z.T, 0.0)
        between = np.exp(-((z @ axes) ** 2) @ (1.0 / (bandwidth + 2.0 * variances)))
        between *= np.exp(-0.5 * np.log1p(2.0 * variances / bandwidth).sum())
        within = np.exp(-0.5 * np.log1p(4.0 * variances / bandwidth).sum())
        value = np.exp(-distances / bandwidth).mean() - 2.0 * between.mean() + within
        return max(float(value), 0.0)


def _finite_vector(values: ArrayLike, name: str) -> FloatArray:
    """Copy a vector: moments once computed must not differ from it later."""
    vector = float_array(values, name).ravel().copy()
    if not np.isfinite(vector).all():
        raise invalid(name, "be finite", values=values)
    return vector


def _as_symmetric_csr(
    values: ArrayLike | sparse.sparray, size: int, name: str, companion: str
) -> sparse.csr_array:
    """Validate a matrix by the size of the vector that comes with it; drop explicit zeros."""
    given: Any = values if sparse.issparse(values) else np.atleast_2d(float_array(values, name))
    if given.ndim != 2:
        raise invalid(name, "be a matrix", shape=given.shape)
    matrix = sparse.csr_array(given, dtype=np.float64, copy=True)  # edited below
    if matrix.shape != (size, size):
        raise invalid(name, f"have shape {(size, size)} like {companion}", shape=matrix.shape)
    if not (np.isfinite(matrix.data).all()):
        raise invalid(name, "be finite")
    asymmetry = abs(matrix - matrix.T)
    if asymmetry.nnz and asymmetry.max() > 1e-10 * abs(matrix).max():
        raise invalid(name, "be symmetric", "Use (A + A.T) / 2.", asymmetry=float(asymmetry.max()))
    # An explicit zero would be read as an edge of the graph
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def _cholesky(matrix: FloatArray, name: str) -> FloatArray:
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        least = float(np.linalg.eigvalsh(matrix)[0])
        raise invalid(name, "be positive definite", least_eigenvalue=least) from None
