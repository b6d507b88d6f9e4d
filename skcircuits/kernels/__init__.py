"""Kernels, and their exact expectations under circuits."""

from skcircuits.kernels.expected_kernel import expected_kernel, is_kernel_compatible, mmd2
from skcircuits.kernels.families.base import KernelCircuit
from skcircuits.kernels.families.hamming import Delta, Hamming
from skcircuits.kernels.families.laplacian import Laplacian
from skcircuits.kernels.families.polynomial import Linear, Polynomial
from skcircuits.kernels.families.rbf import RBF
from skcircuits.kernels.integrals import _piecewise_polynomials  # noqa: F401  registers its rules
from skcircuits.kernels.matrix import expected_kernel_matrix

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
