"""Spanning trees: counting, sampling."""
