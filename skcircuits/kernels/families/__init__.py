"""Kernels, and their sums and products."""
