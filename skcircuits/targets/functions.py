"""Targets from log densities in NumPy, JAX or PyTorch, and the base class of all targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import invalid, needs_extra
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import BoolArray, FloatArray, ImmutableMixin, IntArray

# Points in a row that must show nothing new, and how many are tried at most.
_QUIET_POINTS, _MAX_POINTS = 2, 12
# Coordinates beyond which d² probes are refused.
_MAX_COORDINATES = 20_000


def find_neighbors(target: Any, X: ArrayLike, *, tol: float = 1e-9) -> list[IntArray]:
    """Find the Markov blanket of every coordinate from the sparsity of the Hessian.

    One coordinate is changed at a time, and the coordinates whose score changes are its neighbours.
    This is repeated for the rows of X, with changes of different sizes, until two successive rows
    reveal no new pairs. The result is an estimate: a dependence that vanishes up to rounding at all
    of these points is not detected.

    Parameters
    ----------
    target : object
        An object with ``grad_log_prob(X)``.
    X : array-like of shape (n, d)
        At least three points in regions of high probability.
    tol : float, default=1e-9
        Relative change of a score up to which it is attributed to rounding.

    Returns
    -------
    list of ndarray of int
        Neighbours of each coordinate in ascending order; the relation is symmetric.

    Raises
    ------
    ValueError
        If there are fewer than three points, if a score is not finite, or if every point reveals
        new pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.targets import find_neighbors, from_function
    >>> precision = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 2.0]])
    >>> target = from_function(lambda x: -0.5 * ((x @ precision) * x).sum(axis=1),
    ...                        lambda x: -x @ precision)
    >>> find_neighbors(target, np.random.default_rng(0).normal(size=(5, 3)))
    [array([1]), array([0, 2]), array([1])]
    """
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2 or len(points) <= _QUIET_POINTS:
        raise invalid("X", "have at least three rows", shape=points.shape)
    d = points.shape[1]
    if d > _MAX_COORDINATES:
        raise invalid("coordinates", f"be at most {_MAX_COORDINATES}", "Give neighbors.", n=d)
    rng = np.random.default_rng(0)
    scales = points.std(axis=0)
    scales[scales == 0] = 1.0
    found = np.zeros((d, d), dtype=bool)
    n_quiet = 0
    for row in rng.permutation(len(points))[:_MAX_POINTS]:
        # Random moves: symmetric ones could leave a score as it was
        moves = scales * rng.uniform(0.2, 1.0, d) * rng.choice([-1.0, 1.0], d)
        seen = _moved_scores(target, points[row], moves, tol)
        # Second derivatives are symmetric: either direction tells.
        seen |= seen.T
        n_quiet = 0 if (seen & ~found).any() else n_quiet + 1
        found |= seen
        if n_quiet == _QUIET_POINTS:
            np.fill_diagonal(found, False)
            return [np.flatnonzero(row) for row in found]
    condition = f"show all pairs before the last {_QUIET_POINTS} of at most {_MAX_POINTS}"
    way_out = "Pass more points where the target has its mass, or give neighbors."
    raise invalid("points of X", condition, way_out, n_pairs=int(found.sum()) // 2)


def _moved_scores(target: Any, point: FloatArray, moves: FloatArray, tol: float) -> BoolArray:
    """Tell which scores (columns) change when a coordinate (row) moves, (d, d)."""
    d = len(point)
    before = _finite(target.grad_log_prob(point[None]), point)[0]
    changed = np.empty((d, d), dtype=bool)
    for part in memory_bound_chunks(d, 4 * 8 * d):
        # The length of a chunk may change rounding: the point itself comes along.
        moved = np.tile(point, (part.stop - part.start + 1, 1))
        rows = np.arange(part.stop - part.start)
        moved[rows, part.start + rows] += moves[part]
        scores = _finite(target.grad_log_prob(moved), point)
        size = 1.0 + np.maximum(np.abs(before), np.abs(scores[:-1]))
        changed[part] = np.abs(scores[:-1] - scores[-1]) > tol * size
    return changed


def _finite(scores: ArrayLike, point: FloatArray) -> FloatArray:
    array = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(array).all():
        raise invalid("grad_log_prob", "be finite near the points", point=point.tolist())
    return array


class FunctionTarget(ImmutableMixin):
    """A batched log density and its gradient, with a graph if it is known."""

    def __init__(
        self,
        log_prob: Callable[[FloatArray], ArrayLike],
        grad_log_prob: Callable[[FloatArray], ArrayLike],
        neighbors: Sequence[ArrayLike] | None = None,
        blocks: Sequence[ArrayLike] | None = None,
    ) -> None:
        self._log_prob = log_prob
        self._grad_log_prob = grad_log_prob
        self.neighbors = neighbors
        self.blocks = blocks

    def log_prob_unnormalized(self, X: ArrayLike) -> FloatArray:
        """Compute the log density of rows (n, d) up to a constant, (n,)."""
        rows = np.asarray(X, dtype=np.float64)
        return _checked(self._log_prob(rows), (len(rows),), "log density")

    def grad_log_prob(self, X: ArrayLike) -> FloatArray:
        """Compute the gradient of the log density at rows (n, d), (n, d)."""
        rows = np.asarray(X, dtype=np.float64)
        return _checked(self._grad_log_prob(rows), rows.shape, "gradient")

    def with_neighbors(self, X: ArrayLike, *, tol: float = 1e-9) -> FunctionTarget:
        """Get the same target with the neighbours that `find_neighbors` finds near rows."""
        other = copy(self)
        other.neighbors = find_neighbors(self, X, tol=tol)
        return other


class SiteTarget(FunctionTarget):
    """The posterior of a model in unconstrained coordinates, with conversions of its sites."""

    def __init__(
        self,
        log_prob: Callable[[FloatArray], ArrayLike],
        grad_log_prob: Callable[[FloatArray], ArrayLike],
        n_coordinates: int,
        constrain: Callable[[FloatArray], Mapping[str, ArrayLike]],
        unconstrain: Callable[[Mapping[str, FloatArray]], ArrayLike],
    ) -> None:
        super().__init__(log_prob, grad_log_prob)
        self.n_coordinates = n_coordinates
        self._constrain = constrain
        self._unconstrain = unconstrain

    def draw_start(self, n_particles: int, rng: np.random.Generator) -> FloatArray:
        """Draw starting particles as Stan and numpyro do, from U(-2, 2)."""
        return rng.uniform(-2.0, 2.0, (n_particles, self.n_coordinates))

    def to_sites(self, X: ArrayLike) -> dict[str, FloatArray]:
        """Convert rows to constrained values by site name, each of shape (n, ...)."""
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.n_coordinates:
            raise invalid("X", f"have {self.n_coordinates} columns", shape=rows.shape)
        return {name: np.array(values) for name, values in self._constrain(rows).items()}

    def from_sites(self, values: Mapping[str, ArrayLike]) -> FloatArray:
        """Convert constrained values by site name to rows, (n, d); other names are ignored."""
        arrays = {name: np.asarray(value) for name, value in values.items()}
        try:
            # Frameworks look sites up by name: a missing one is the only KeyError
            rows = self._unconstrain(arrays)
        except KeyError as error:
            raise invalid(
                "values", "have every site of the model", missing=error.args[0]
            ) from error
        return _checked(rows, (len(next(iter(arrays.values()))), self.n_coordinates), "rows")


def _checked(values: ArrayLike, shape: tuple[int, ...], name: str) -> FloatArray:
    # A copy: arrays of other libraries may be read-only.
    array = np.array(values, dtype=np.float64)
    if array.shape != shape:
        raise invalid(f"the {name}", f"have shape {shape}", shape=array.shape)
    return array


# Rows that take as long as one; beyond, four numbers of rows per power of two are compiled.
FEW_ROWS = 8
# The cube root of the rounding error, in units of the coordinate: central differences.
STEP = 6e-6


def from_function(
    log_prob: Callable[[FloatArray], ArrayLike],
    grad_log_prob: Callable[[FloatArray], ArrayLike] | None = None,
    *,
    finite_differences: bool = False,
    neighbors: Sequence[ArrayLike] | None = None,
    blocks: Sequence[ArrayLike] | None = None,
) -> FunctionTarget:
    """Make a target from functions of rows.

    Parameters
    ----------
    log_prob : callable
        Log density up to a constant: values of shape (n,) for rows of shape (n, d).
    grad_log_prob : callable, default=None
        Gradient of the log density, of shape (n, d).
    finite_differences : bool, default=False
        Whether to approximate a gradient that is not given by central differences of `log_prob`,
        with 2 d evaluations per row and about ten correct digits.
    neighbors : sequence of array-like of int, default=None
        Markov blanket of each node.
    blocks : sequence of array-like of int, default=None
        Coordinates of each node; by default, each node has one coordinate.

    Returns
    -------
    target : object
        With ``log_prob_unnormalized(X)``, ``grad_log_prob(X)``, ``neighbors`` and ``blocks``.

    Raises
    ------
    ValueError
        If there is no gradient and `finite_differences` is false.

    Examples
    --------
    >>> from skcircuits.targets import from_function
    >>> target = from_function(lambda X: -0.5 * (X**2).sum(axis=1), lambda X: -X)
    >>> target.grad_log_prob([[1.0, -2.0]])
    array([[-1.,  2.]])
    """
    if grad_log_prob is None:
        if not finite_differences:
            way_out = (
                "Set finite_differences=True to approximate it, or use from_jax or from_torch."
            )
            raise invalid("grad_log_prob", "be given", way_out, grad_log_prob=grad_log_prob)

        def grad_log_prob(X: FloatArray) -> FloatArray:
            gradient = np.empty_like(X)
            for j in range(X.shape[1]):
                ahead, behind = X.copy(), X.copy()
                # Relative to the point: large coordinates have fewer digits after the point
                step = STEP * np.maximum(1.0, np.abs(X[:, j]))
                ahead[:, j] += step
                behind[:, j] -= step
                difference = np.asarray(log_prob(ahead)) - np.asarray(log_prob(behind))
                # What the rows differ by after rounding
                gradient[:, j] = difference / (ahead[:, j] - behind[:, j])
            return gradient

    return FunctionTarget(log_prob, grad_log_prob, neighbors, blocks)


def from_jax(
    log_density: Callable[[Any], Any],
    *,
    neighbors: Sequence[ArrayLike] | None = None,
    blocks: Sequence[ArrayLike] | None = None,
) -> FunctionTarget:
    """Make a target from a log density in JAX.

    The log density is differentiated, batched over rows and compiled in double precision for any
    configuration of JAX. Rows are padded, so that it is compiled for a few numbers of rows only.

    Parameters
    ----------
    log_density : callable
        Log density of one point up to a constant: a scalar for an array of shape (d,).
    neighbors, blocks : sequence of array-like of int, default=None
        As in `from_function`.

    Returns
    -------
    target : object
        With ``log_prob_unnormalized(X)``, ``grad_log_prob(X)``, ``neighbors`` and ``blocks``.

    Raises
    ------
    ImportError
        If JAX is not installed.

    Examples
    --------
    >>> from skcircuits import GraphicalSVGDSampler
    >>> from skcircuits.targets import from_jax
    >>> target = from_jax(lambda x: -0.5 * (x**2).sum())  # doctest: +SKIP
    >>> GraphicalSVGDSampler(target=target).fit(start)  # doctest: +SKIP
    """
    with needs_extra("jax", "jax"):
        import jax

    def in_double_precision(function: Callable[[Any], Any]) -> Callable[[FloatArray], FloatArray]:
        batched = jax.jit(jax.vmap(function))

        def evaluate(X: FloatArray) -> FloatArray:
            padded = np.concatenate([X, X[-1:].repeat(padded_length(len(X)) - len(X), axis=0)])
            # In single precision differences of scores, which metrics and tests take, would be
            # noise
            with jax.enable_x64(True):
                return np.asarray(batched(jax.numpy.asarray(padded, dtype=np.float64)))[: len(X)]

        return evaluate

    return FunctionTarget(
        in_double_precision(log_density),
        in_double_precision(jax.grad(log_density)),
        neighbors,
        blocks,
    )


def padded_length(n: int) -> int:
    """Round a number of rows up to one of a few: programs are compiled for each."""
    unit = FEW_ROWS
    while 8 * unit < n:
        unit *= 2
    return -(-n // unit) * unit


def from_torch(
    log_density: Callable[[Any], Any],
    *,
    neighbors: Sequence[ArrayLike] | None = None,
    blocks: Sequence[ArrayLike] | None = None,
) -> FunctionTarget:
    """Make a target from a log density in PyTorch.

    Parameters
    ----------
    log_density : callable
        Log densities of rows up to a constant: a tensor of shape (n,) for a tensor of shape (n, d)
        in double precision. Each value must depend only on its own row.
    neighbors, blocks : sequence of array-like of int, default=None
        As in `from_function`.

    Returns
    -------
    target : object
        With ``log_prob_unnormalized(X)``, ``grad_log_prob(X)``, ``neighbors`` and ``blocks``.

    Raises
    ------
    ImportError
        If PyTorch is not installed.

    Examples
    --------
    >>> from skcircuits.targets import from_torch
    >>> target = from_torch(lambda x: -0.5 * (x**2).sum(dim=1))  # doctest: +SKIP
    """
    with needs_extra("torch", "torch"):
        import torch

    def values(rows: Any) -> Any:
        found = log_density(rows)
        if not torch.is_tensor(found) or found.shape != (len(rows),):
            condition = f"be a tensor of shape ({len(rows)},) for {len(rows)} rows"
            shape = getattr(found, "shape", None)
            given = type(found).__name__ if shape is None else tuple(shape)
            raise invalid("the log density", condition, value=given)
        return found

    def log_prob(X: FloatArray) -> FloatArray:
        with torch.no_grad():
            return values(torch.tensor(X)).numpy()

    def grad_log_prob(X: FloatArray) -> FloatArray:
        with torch.enable_grad():
            rows = torch.tensor(X, requires_grad=True)
            found = values(rows)
            if not found.requires_grad or not found.is_floating_point():
                condition = "be a differentiable function of its rows"
                way_out = "Use functions of torch only, and detach nothing."
                raise invalid("the log density", condition, way_out, dtype=found.dtype)
            # The sum over rows has the gradient of each row in that row.
            (gradient,) = torch.autograd.grad(found.sum(), rows)
        return gradient.numpy()

    return FunctionTarget(log_prob, grad_log_prob, neighbors, blocks)
