"""Exact inference and Gibbs sampling in factor graphs."""
