"""Continuous targets from log densities in JAX, PyTorch, numpyro, PyMC, Stan or NumPy."""

from skcircuits.targets.bridgestan import from_bridgestan
from skcircuits.targets.functions import from_function
from skcircuits.targets.jax import from_jax
from skcircuits.targets.neighbors import find_neighbors
from skcircuits.targets.numpyro import from_numpyro
from skcircuits.targets.pymc import from_pymc
from skcircuits.targets.torch import from_torch

__all__ = [
    "find_neighbors",
    "from_bridgestan",
    "from_function",
    "from_jax",
    "from_numpyro",
    "from_pymc",
    "from_torch",
]
