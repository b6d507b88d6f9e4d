"""What all targets made of functions or models have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray
from skcircuits.targets.neighbors import find_neighbors


class FunctionTarget:
    """A batched log density and its gradient, with a graph where one is known."""

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
        """Log density of rows up to a constant, (n,) of (n, d)."""
        rows = np.asarray(X, dtype=np.float64)
        return _checked(self._log_prob(rows), (len(rows),), "log density")

    def grad_log_prob(self, X: ArrayLike) -> FloatArray:
        """Gradient of the log density at rows, (n, d) of (n, d)."""
        rows = np.asarray(X, dtype=np.float64)
        return _checked(self._grad_log_prob(rows), rows.shape, "gradient")

    def with_neighbors(self, X: ArrayLike, *, tol: float = 1e-9) -> FunctionTarget:
        """Give the same target with the neighbours that `find_neighbors` finds near rows."""
        other = copy(self)
        other.neighbors = find_neighbors(self, X, tol=tol)
        return other

    def __sklearn_clone__(self) -> FunctionTarget:
        """Return the target itself: it is immutable."""
        return self


class SiteTarget(FunctionTarget):
    """The posterior of a model in unconstrained coordinates, and the way to its sites and back."""

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
        """Give rows as constrained values by site name, each of shape (n, ...)."""
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.n_coordinates:
            raise ValueError(must("X", f"have {self.n_coordinates} columns", shape=rows.shape))
        return {name: np.array(values) for name, values in self._constrain(rows).items()}

    def from_sites(self, values: Mapping[str, ArrayLike]) -> FloatArray:
        """Give constrained values by site name as rows, (n, d); other names are left out."""
        arrays = {name: np.asarray(value) for name, value in values.items()}
        try:
            rows = self._unconstrain(arrays)
        except KeyError as error:
            raise ValueError(
                must("values", "have every site of the model", missing=error.args[0])
            ) from error
        return _checked(rows, (len(next(iter(arrays.values()))), self.n_coordinates), "rows")


def _checked(values: ArrayLike, shape: tuple[int, ...], name: str) -> FloatArray:
    # A copy: arrays of other libraries may be read-only.
    array = np.array(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(must(f"the {name}", f"have shape {shape}", shape=array.shape))
    return array


def import_extra(module: str, extra: str) -> ImportError:
    """Make the error for a library that is not installed."""
    return ImportError(
        must(module, "be installed", f"pip install 'skcircuits[{extra}]'", installed=False)
    )
