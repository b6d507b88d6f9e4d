"""Common parts of the Stein estimators: targets, kernels and weighted samples."""
