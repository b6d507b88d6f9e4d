"""Queries of densities under conditions."""
