"""Continuous mixtures of tree-shaped circuits."""
