"""Kernels integrated against pairs of input units, in closed form."""
