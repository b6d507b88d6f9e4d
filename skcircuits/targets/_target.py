"""What all targets made of functions have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray

__all__ = ["FunctionTarget", "import_extra"]


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

    def __sklearn_clone__(self) -> FunctionTarget:
        """Return the target itself: it is immutable."""
        return self


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
