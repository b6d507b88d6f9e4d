"""Stein kernels and discrepancies, and the weights that minimise them."""

from skcircuits.stein.gram import stein_gram
from skcircuits.stein.langevin import InverseMultiquadric
from skcircuits.stein.simplex import simplex_weights

__all__ = ["InverseMultiquadric", "simplex_weights", "stein_gram"]
