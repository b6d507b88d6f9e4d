"""Automatic choice of a density."""
