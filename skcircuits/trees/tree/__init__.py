"""Distributions over one tree: statistics, learning, inference."""
