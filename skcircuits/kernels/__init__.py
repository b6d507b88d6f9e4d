"""Kernels, and their exact expectations under circuits."""

# Registers its rules
from skcircuits.kernels import piecewise_polynomials  # noqa: F401  isort: skip
from skcircuits.kernels.base import KernelCircuit
from skcircuits.kernels.expected_kernel import expected_kernel, is_kernel_compatible, mmd2
from skcircuits.kernels.hamming import Delta, Hamming
from skcircuits.kernels.laplacian import Laplacian
from skcircuits.kernels.matrix import expected_kernel_matrix
from skcircuits.kernels.polynomial import Linear, Polynomial
from skcircuits.kernels.rbf import RBF

__all__ = [
    "RBF",
    "Delta",
    "Hamming",
    "KernelCircuit",
    "Laplacian",
    "Linear",
    "Polynomial",
    "expected_kernel",
    "expected_kernel_matrix",
    "is_kernel_compatible",
    "mmd2",
]
