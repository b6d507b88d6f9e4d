"""Circuits from pairs of circuits: products, quotients, shifts, divergences."""
