"""Closed-form integrals of kernels under input units."""
