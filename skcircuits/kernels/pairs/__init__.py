"""Expected kernels of two circuits: one pass over pairs of units."""
