"""Kernels, and their exact expectations under circuits."""

from skcircuits.kernels.expected_kernels import (
    circuit_kernel_matrix,
    expected_kernel,
    expected_kernel_matrix,
    is_kernel_compatible,
    mmd2,
)
from skcircuits.kernels.families.base import KernelCircuit, KernelFamily
from skcircuits.kernels.families.product import RBF, Delta, Hamming, Laplacian, Linear, Polynomial
from skcircuits.kernels.integrals import _rules  # noqa: F401  registers closed forms
from skcircuits.kernels.integrals.registry import register_expectation

__all__ = [
    "RBF",
    "Delta",
    "Hamming",
    "KernelCircuit",
    "KernelFamily",
    "Laplacian",
    "Linear",
    "Polynomial",
    "circuit_kernel_matrix",
    "expected_kernel",
    "expected_kernel_matrix",
    "is_kernel_compatible",
    "mmd2",
    "register_expectation",
]
