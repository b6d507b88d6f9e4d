"""Stein kernels over categorical variables, with or without collapsed variables."""
