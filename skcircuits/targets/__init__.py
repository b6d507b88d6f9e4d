"""Continuous targets from log densities in JAX, PyTorch, numpyro, PyMC, Stan or NumPy."""

from skcircuits.targets.functions import find_neighbors, from_function, from_jax, from_torch
from skcircuits.targets.models import from_bridgestan, from_numpyro, from_pymc

__all__ = [
    "find_neighbors",
    "from_bridgestan",
    "from_function",
    "from_jax",
    "from_numpyro",
    "from_pymc",
    "from_torch",
]
