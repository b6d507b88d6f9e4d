"""Gaussian mixtures learned from incomplete rows."""
