"""Sources of randomness."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["as_generator"]


def as_generator(random_state: Any) -> np.random.Generator:
    """Make a generator from what scikit-learn calls a random state.

    Parameters
    ----------
    random_state : int, numpy.random.Generator, RandomState or None
        The seed or source of randomness.

    Returns
    -------
    numpy.random.Generator
        The generator; one made from a RandomState advances that state.

    Examples
    --------
    >>> from skcircuits.numerics.random import as_generator
    >>> bool(as_generator(0).integers(10) == as_generator(0).integers(10))
    True
    """
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    return np.random.default_rng(random_state)
