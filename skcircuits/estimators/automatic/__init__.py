"""Automatic choice of a density, and mixtures of given ones."""
