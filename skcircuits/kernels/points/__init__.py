"""Expected kernels of one circuit against points."""
