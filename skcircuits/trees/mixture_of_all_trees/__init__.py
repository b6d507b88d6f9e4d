"""Mixtures over all spanning trees."""
