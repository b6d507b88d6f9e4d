"""Shared numerics: log space, small factorisations, Gaussians with missing values."""
