"""Crowdsourcing model: quantities estimated by workers, each with a bias and a variance."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from skcircuits.exceptions import must, require
from skcircuits.numerics._arrays import float_array, integer_array, neighbor_lists
from skcircuits.protocols import FloatArray, ImmutableMixin, IntArray


class CrowdsourcingModel(ImmutableMixin):
    """Posterior of items, biases and log variances given the estimates of a crowd.

    Worker j estimates item i as ``r_ij = x_i + b_j + sqrt(v_j) noise``, with Gaussian priors on
    items and biases and v_j ~ InverseGamma(shape, rate). The coordinates are
    θ = (x, b, log v); the Jacobian of the logarithm makes the prior of λ = log v

        log p(λ) = -shape λ - rate exp(-λ) + constant.

    Parameters
    ----------
    items, workers : array-like of int of shape (n_estimates,)
        Item and worker of each estimate, as indices from 0.
    estimates : array-like of shape (n_estimates,)
        The estimates r_ij.
    known : dict of int to float, default=None
        Control items with their true value. Without any, a common shift of all items and all biases
        is determined only by the priors.
    item_scale, bias_scale : float, default=5.0
        Standard deviations of the priors, centred at zero.
    shape, rate : float, default=3.0 and 1.0
        Parameters of the inverse gamma prior.

    Attributes
    ----------
    unknown_items : ndarray of shape (n_unknown,)
        Items in the order of their coordinates.
    neighbors : list of ndarrays of int
        A bipartite graph: the workers of each unknown item, and the unknown items of each worker.
    blocks : list of ndarrays of int
        One coordinate per unknown item, followed by the bias and log variance of each worker.

    Examples
    --------
    >>> from skcircuits.graphical import CrowdsourcingModel
    >>> model = CrowdsourcingModel([0, 0, 1, 1], [0, 1, 0, 1], [2.0, 3.0, 1.0, 2.0], known={1: 1.0})
    >>> model.unknown_items, [block.tolist() for block in model.blocks]
    (array([0]), [[0], [1, 3], [2, 4]])
    """

    def __init__(
        self,
        items: ArrayLike,
        workers: ArrayLike,
        estimates: ArrayLike,
        *,
        known: Mapping[int, float] | None = None,
        item_scale: float = 5.0,
        bias_scale: float = 5.0,
        shape: float = 3.0,
        rate: float = 1.0,
    ) -> None:
        # Copies, because derived quantities are cached.
        self.items = integer_array(items, "items")
        self.workers = integer_array(workers, "workers")
        self.estimates = float_array(estimates, "estimates").copy()
        if known is not None:
            require("items", "a dict from items to values", known=known)
        self.known = dict(known or {})
        self.item_scale = item_scale
        self.bias_scale = bias_scale
        self.shape = shape
        self.rate = rate
        if not self.items.shape == self.workers.shape == self.estimates.shape:
            raise ValueError(
                must(
                    "items, workers and estimates",
                    "be equally long",
                    shapes=(self.items.shape, self.workers.shape, self.estimates.shape),
                )
            )
        for name, numbers in (("items", self.items), ("workers", self.workers)):
            if numbers.ndim != 1 or numbers.min(initial=1) < 0 or len(numbers) == 0:
                way_out = "pandas.factorize numbers names."
                raise ValueError(must(name, "be a list of numbers from 0 on", way_out))
        if not np.isfinite([*self.estimates, *self.known.values()]).all():
            raise ValueError(
                must("estimates and known values", "be finite", "Leave out what is unknown.")
            )
        self.n_items = int(self.items.max()) + 1
        self.n_workers = int(self.workers.max()) + 1
        # Control items are constants of the density and have no coordinate
        self.unknown_items = np.setdiff1d(np.arange(self.n_items), list(self.known))

    @cached_property
    def blocks(self) -> list[IntArray]:
        """One coordinate per unknown item, bias and log variance of each worker."""
        n_unknown = len(self.unknown_items)
        biases = n_unknown + np.arange(self.n_workers)
        worker_blocks = np.stack([biases, biases + self.n_workers], axis=1)
        return [*np.arange(n_unknown)[:, None], *worker_blocks]

    @cached_property
    def neighbors(self) -> list[IntArray]:
        """Workers of each unknown item, unknown items of each worker, as nodes."""
        # Items meet through workers only, and workers through items: a bipartite graph
        asked = self._to_unknown.T @ self._to_worker
        return neighbor_lists(sparse.block_array([[None, asked], [asked.T, None]], format="csr"))

    def grad_log_prob(self, X: ArrayLike) -> FloatArray:
        """Compute the score with respect to θ = (x, b, log v).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_unknown + 2 * n_workers)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_unknown + 2 * n_workers)
            Score.
        """
        x, bias, log_variance = self._split(X)
        inverse_variance = np.exp(-log_variance)
        residuals = self._residuals(x, bias)
        # Log variances, so that every coordinate may be any number
        pulls = residuals * inverse_variance[self.workers]
        squares = self._to_worker.T @ (residuals * pulls)
        counts = np.bincount(self.workers, minlength=self.n_workers)[:, None]
        item_score = self._to_unknown.T @ pulls - x / self.item_scale**2
        bias_score = self._to_worker.T @ pulls - bias / self.bias_scale**2
        # The inverse gamma prior of the variance, with the Jacobian of its logarithm
        variance_score = 0.5 * (squares - counts) - self.shape + self.rate * inverse_variance
        return np.concatenate([item_score, bias_score, variance_score]).T

    def log_prob_unnormalized(self, X: ArrayLike) -> FloatArray:
        """Compute the log density of θ up to a constant.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_unknown + 2 * n_workers)
            Points.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log density.
        """
        x, bias, log_variance = self._split(X)
        inverse_variance = np.exp(-log_variance)
        squares = self._residuals(x, bias) ** 2 * inverse_variance[self.workers]
        likelihood = -0.5 * np.sum(squares + log_variance[self.workers], axis=0)
        gaussian = np.sum((x / self.item_scale) ** 2, axis=0)
        gaussian += np.sum((bias / self.bias_scale) ** 2, axis=0)
        gamma = -np.sum(self.shape * log_variance + self.rate * inverse_variance, axis=0)
        return likelihood - 0.5 * gaussian + gamma

    @cached_property
    def _to_unknown(self) -> sparse.csr_array:
        """One where an estimate is of an unknown item, shape (n_estimates, n_unknown)."""
        place = np.full(self.n_items, -1)
        place[self.unknown_items] = np.arange(len(self.unknown_items))
        rows = np.flatnonzero(place[self.items] >= 0)
        columns = place[self.items[rows]]
        shape = (len(self.items), len(self.unknown_items))
        return sparse.csr_array((np.ones(rows.size), (rows, columns)), shape)

    @cached_property
    def _to_worker(self) -> sparse.csr_array:
        """One where an estimate is by a worker, shape (n_estimates, n_workers)."""
        rows = np.arange(len(self.workers))
        return sparse.csr_array(
            (np.ones(rows.size), (rows, self.workers)), (rows.size, self.n_workers)
        )

    @cached_property
    def _known_part(self) -> FloatArray:
        """Estimates less the true values of control items, shape (n_estimates, 1)."""
        values = np.zeros(self.n_items)
        values[list(self.known)] = list(self.known.values())
        return (self.estimates - values[self.items])[:, None]

    def _residuals(self, x: FloatArray, bias: FloatArray) -> FloatArray:
        """Give r_ij - x_i - b_j, shape (n_estimates, n_samples)."""
        return self._known_part - self._to_unknown @ x - bias[self.workers]

    def _split(self, X: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Cut θ into items, biases and log variances, one row per coordinate."""
        coordinates = np.ascontiguousarray(float_array(X, "X").T)
        n_unknown = len(self.unknown_items)
        ends = [n_unknown, n_unknown + self.n_workers]
        x, bias, log_variance = np.split(coordinates, ends)
        return x, bias, log_variance
