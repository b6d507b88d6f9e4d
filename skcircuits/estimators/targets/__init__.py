"""What the Stein estimators have in common: targets, kernels and weighted samples."""
