"""Stein kernels over categorical variables, collapsed ones included."""
