"""Continuous targets from log densities written in JAX, PyTorch, numpyro or plain NumPy."""

from skcircuits.targets.functions import from_function
from skcircuits.targets.jax import from_jax
from skcircuits.targets.numpyro import from_numpyro
from skcircuits.targets.torch import from_torch

__all__ = ["from_function", "from_jax", "from_numpyro", "from_torch"]
