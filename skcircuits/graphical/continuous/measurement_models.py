"""Posteriors given noisy measurements: positions of sensors, and estimates of a crowd."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph

from skcircuits.exceptions import invalid, require, require_count
from skcircuits.graphical.continuous.markov_fields import ContinuousModel
from skcircuits.numerics._arrays import (
    float_array,
    integer_array,
    is_number,
    neighbor_lists,
    single_or_double,
)
from skcircuits.numerics._random import as_generator
from skcircuits.protocols import FloatArray, IntArray

# The distance has no gradient where two nodes coincide; its square plus this one has.
SQUARED_DISTANCE_FLOOR = 1e-12


class SensorNetwork(ContinuousModel):
    """Posterior of sensor positions given measured distances.

    A measured distance is the true one plus Gaussian noise::

        p(x) ∝ prior(x) Π exp[ -(|x_i - x_j| - r_ij)² / (2 noise²) ].

    Nodes 0, 1, ... are the sensors, followed by the anchors. Sensor i has the coordinates 2i and
    2i + 1 and is one block of the graph.

    Parameters
    ----------
    pairs : array-like of int of shape (n_measured, 2)
        Nodes between which a distance was measured.
    distances : array-like of shape (n_measured,)
        Measured distances.
    anchors : array-like of shape (n_anchors, 2)
        Known positions.
    n_sensors : int
        Number of unknown positions.
    noise : float, default=0.05
        Standard deviation of a measurement.
    prior_scale : float, default=None
        Standard deviation of a Gaussian prior around the origin. None is a flat prior.
    box : tuple of (float, float), default=None
        A flat prior on the square [low, high]², which decreases outside like a Gaussian with
        standard deviation `noise`. None is the whole plane.

    Attributes
    ----------
    neighbors : list of n_sensors ndarrays of int
        Sensors with a measured distance to each sensor.
    blocks : list of n_sensors ndarrays of int
        The two coordinates of each sensor.

    Raises
    ------
    ValueError
        If some sensors have no path to an anchor under a flat prior, because the posterior of their
        position is improper.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.graphical import SensorNetwork
    >>> corners = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    >>> network = SensorNetwork([[0, 1], [0, 2], [0, 3]], [0.5, 0.7, 0.7], corners, n_sensors=1)
    >>> bool(network.log_prob_unnormalized([[0.4, 0.4]]) > network.log_prob_unnormalized([[1, 1]]))
    True
    """

    def __init__(
        self,
        pairs: ArrayLike,
        distances: ArrayLike,
        anchors: ArrayLike,
        n_sensors: int,
        *,
        noise: float = 0.05,
        prior_scale: float | None = None,
        box: tuple[float, float] | None = None,
    ) -> None:
        # Copies, because derived quantities are cached.
        self.pairs = _two_columns(integer_array(pairs, "pairs"), "pairs")
        self.distances = float_array(distances, "distances").ravel().copy()
        self.anchors = _two_columns(float_array(anchors, "anchors"), "anchors").copy()
        self.n_sensors = n_sensors
        self.noise = noise
        self.prior_scale = prior_scale
        self.box = box
        self._check()

    @classmethod
    def simulate(
        cls,
        positions: ArrayLike,
        anchors: ArrayLike,
        *,
        radius: float = 0.5,
        noise: float = 0.05,
        random_state: int | np.random.Generator | None = None,
        **prior: Any,
    ) -> SensorNetwork:
        """Measure all distances below a radius, with noise.

        Parameters
        ----------
        positions : array-like of shape (n_sensors, 2)
            True positions.
        anchors : array-like of shape (n_anchors, 2)
            Positions of the anchors.
        radius : float, default=0.5
            Pairs that are closer than this are measured, except for pairs of anchors.
        noise : float, default=0.05
            Standard deviation of a measurement.
        random_state : int, numpy.random.Generator or None, default=None
            Source of the noise.
        **prior : object
            `prior_scale` or `box`.

        Returns
        -------
        SensorNetwork
            The posterior.
        """
        rng = as_generator(random_state)
        positions = float_array(positions, "positions")
        nodes = np.concatenate([positions, float_array(anchors, "anchors")])
        first, second = np.triu_indices(len(nodes), 1)
        lengths = np.linalg.norm(nodes[first] - nodes[second], axis=1)
        # Distances between anchors are known without measuring
        measured = (lengths < radius) & (first < len(positions))
        pairs = np.stack([first[measured], second[measured]], axis=1)
        distances = np.abs(lengths[measured] + noise * rng.standard_normal(measured.sum()))
        return cls(pairs, distances, anchors, len(positions), noise=noise, **prior)

    @cached_property
    def neighbors(self) -> list[IntArray]:
        """Sensors with a measured distance to each sensor."""
        between_sensors = self.pairs[np.all(self.pairs < self.n_sensors, axis=1)]
        both_ways = np.concatenate([between_sensors, between_sensors[:, ::-1]])
        adjacency = sparse.csr_array(
            (np.ones(len(both_ways)), tuple(both_ways.T)), shape=(self.n_sensors,) * 2
        )
        return neighbor_lists(adjacency)

    @cached_property
    def blocks(self) -> list[IntArray]:
        """The two coordinates of each sensor."""
        return list(np.arange(2 * self.n_sensors).reshape(-1, 2))

    def grad_log_prob(self, X: ArrayLike) -> FloatArray:
        """Compute the score at positions (n_samples, 2 * n_sensors), in the precision of X."""
        positions = self._by_sensor(X)
        gaps, lengths = self._gaps(positions)
        # Over the length: gaps are not of length one
        pulls = (self.distances.astype(lengths.dtype)[:, None] - lengths) / lengths
        forces = gaps * (pulls / self.noise**2)[:, None]
        # One sparse product adds the forces of all pairs to both of their ends
        incidence = self._incidence.astype(lengths.dtype)
        scores = (incidence @ forces.reshape(len(forces), -1)).reshape(positions.shape)
        if self.prior_scale is not None:
            scores -= positions / self.prior_scale**2
        if self.box is not None:
            # Walls of the box are soft, so that scores point back inside
            scores -= (positions - np.clip(positions, *self.box)) / self.noise**2
        return scores.reshape(2 * self.n_sensors, -1).T

    def log_prob_unnormalized(self, X: ArrayLike) -> FloatArray:
        """Compute the log density of positions (n_samples, 2 * n_sensors) up to a constant."""
        positions = self._by_sensor(X).astype(np.float64)
        _, lengths = self._gaps(positions)
        misfit = (lengths - self.distances[:, None]) / self.noise
        value = -0.5 * np.sum(misfit**2, axis=0)
        if self.prior_scale is not None:
            value -= 0.5 * np.sum((positions / self.prior_scale) ** 2, axis=(0, 1))
        if self.box is not None:
            outside = (positions - np.clip(positions, *self.box)) / self.noise
            value -= 0.5 * np.sum(outside**2, axis=(0, 1))
        return value

    def estimate_positions(self) -> FloatArray:
        """Estimate the positions from distances along the graph, as a start for sampling.

        The estimate is classical multidimensional scaling of the shortest paths, rotated to fit the
        anchors (Shang et al., "Localization from mere connectivity", MobiHoc 2003). It uses only
        the measurements; at least three anchors are needed to determine the orientation.

        Returns
        -------
        ndarray of shape (2 * n_sensors,)
            A rough estimate of all coordinates.
        """
        return _embed_by_graph_distances(
            self.pairs, self.distances, self.anchors, self.n_sensors
        ).ravel()

    def draw_start(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw starting positions from the prior, or around the anchors.

        Parameters
        ----------
        n_samples : int
            Number of starts.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray of shape (n_samples, 2 * n_sensors)
            Positions.
        """
        shape = (n_samples, self.n_sensors, 2)
        if self.box is None and self.prior_scale is not None:
            starts = self.prior_scale * rng.standard_normal(shape)
        elif self.box is not None:
            starts = rng.uniform(*self.box, shape)
        else:
            # A flat prior cannot be drawn from: sensors are looked for where the anchors are
            starts = rng.uniform(self.anchors.min(axis=0), self.anchors.max(axis=0), shape)
        return starts.reshape(n_samples, -1)

    @cached_property
    def _incidence(self) -> sparse.csr_array:
        """+1 and -1 where a pair pulls at a sensor, shape (n_sensors, n_measured)."""
        columns = np.tile(np.arange(len(self.pairs)), 2)
        signs = np.repeat([1.0, -1.0], len(self.pairs))
        n_nodes = self.n_sensors + len(self.anchors)
        shape = (n_nodes, len(self.pairs))
        return sparse.csr_array((signs, (self.pairs.T.ravel(), columns)), shape)[: self.n_sensors]

    def _by_sensor(self, X: ArrayLike) -> FloatArray:
        """Lay positions out as (n_sensors, 2, n_samples)."""
        return np.ascontiguousarray(single_or_double(X, "X").T).reshape(self.n_sensors, 2, -1)

    def _gaps(self, positions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Give x_i - x_j of the measured pairs, (n_measured, 2, n_samples), and its length."""
        n_samples = positions.shape[2]
        fixed = np.repeat(self.anchors.astype(positions.dtype)[..., None], n_samples, axis=2)
        nodes = np.concatenate([positions, fixed])
        gaps = nodes[self.pairs[:, 0]] - nodes[self.pairs[:, 1]]
        return gaps, np.sqrt(np.einsum("pcn,pcn->pn", gaps, gaps) + SQUARED_DISTANCE_FLOOR)

    def _check(self) -> None:
        require_count(0, n_sensors=self.n_sensors)
        n_nodes = self.n_sensors + len(self.anchors)
        if len(self.pairs) != len(self.distances):
            condition = "be one per pair"
            raise invalid(
                "distances", condition, n_pairs=len(self.pairs), n_distances=len(self.distances)
            )
        for name, values in (("distances", self.distances), ("anchors", self.anchors)):
            if not np.isfinite(values).all():
                raise invalid(name, "be finite", "Leave out what is unknown.")
        if self.pairs.size and (self.pairs.min() < 0 or self.pairs.max() >= n_nodes):
            raise invalid("pairs", f"name nodes 0..{n_nodes - 1}", greatest=int(self.pairs.max()))
        if np.any(self.pairs[:, 0] == self.pairs[:, 1]):
            raise invalid("pairs", "join different nodes")
        if not (is_number(self.noise) and self.noise > 0):
            raise invalid("noise", "be positive", noise=self.noise)
        if self.prior_scale is None and self.box is None:
            self._check_anchored(n_nodes)

    def _check_anchored(self, n_nodes: int) -> None:
        """Without a prior, a component without an anchor floats freely."""
        links = sparse.csr_array((np.ones(len(self.pairs)), tuple(self.pairs.T)), (n_nodes,) * 2)
        _, component = csgraph.connected_components(links, directed=False)
        floating = np.flatnonzero(~np.isin(component, component[self.n_sensors :]))
        if floating.size:
            condition = "have a path of measured distances to an anchor"
            way_out = "Pass prior_scale or box."
            raise invalid("every sensor", condition, way_out, sensors=floating[:10].tolist())


def _two_columns(values: Any, name: str) -> Any:
    """See an array, or all of its numbers, as pairs."""
    if values.size % 2:
        raise invalid(name, "have shape (n, 2)", shape=values.shape)
    return values.reshape(-1, 2)


def _embed_by_graph_distances(
    pairs: IntArray, lengths: FloatArray, anchors: FloatArray, n_free: int
) -> FloatArray:
    """Classical scaling of shortest paths of each component, turned, mirrored and scaled onto its
    anchors, of which fewer than three leave its orientation to chance.
    """
    n_nodes = n_free + len(anchors)
    graph = sparse.csr_array((lengths, tuple(pairs.T)), (n_nodes, n_nodes))
    paths = csgraph.shortest_path(graph, directed=False)
    _, component = csgraph.connected_components(graph, directed=False)
    positions = np.empty((n_nodes, 2))
    for label in range(component.max() + 1):
        members = np.flatnonzero(component == label)
        held = members >= n_free
        points = _classical_scaling(paths[np.ix_(members, members)])
        if np.any(held):
            points = _align(points, points[held], anchors[members[held] - n_free])
        else:
            points += anchors.mean(axis=0)
        positions[members] = points
    return positions[:n_free]


def _classical_scaling(distances: FloatArray) -> FloatArray:
    """Positions in the plane whose inner products fit the centred squared distances best."""
    points = np.zeros((len(distances), 2))
    squares = distances**2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()
    values, vectors = np.linalg.eigh(-0.5 * centred)
    n_axes = min(2, len(distances))
    points[:, :n_axes] = vectors[:, -n_axes:] * np.sqrt(np.maximum(values[-n_axes:], 0.0))
    return points


def _align(points: FloatArray, source: FloatArray, target: FloatArray) -> FloatArray:
    """Turn, mirror, scale and shift points so that source lies best on target (Procrustes)."""
    centre, goal = source.mean(axis=0), target.mean(axis=0)
    left, singular_values, right = np.linalg.svd((source - centre).T @ (target - goal))
    spread = np.sum((source - centre) ** 2)
    scale = singular_values.sum() / spread if spread > 0 else 1.0
    return scale * (points - centre) @ (left @ right) + goal


class CrowdsourcingModel(ContinuousModel):
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
            raise invalid(
                "items, workers and estimates",
                "be equally long",
                shapes=(self.items.shape, self.workers.shape, self.estimates.shape),
            )
        for name, numbers in (("items", self.items), ("workers", self.workers)):
            if numbers.ndim != 1 or numbers.min(initial=1) < 0 or len(numbers) == 0:
                way_out = "pandas.factorize numbers names."
                raise invalid(name, "be a list of numbers from 0 on", way_out)
        if not np.isfinite([*self.estimates, *self.known.values()]).all():
            raise invalid("estimates and known values", "be finite", "Leave out what is unknown.")
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
        """Compute the score with respect to θ = (x, b, log v), (n, n_unknown + 2 n_workers)."""
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
        """Compute the log density of θ up to a constant."""
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
