"""What the Stein estimators share: targets, kernels and weighted samples."""
