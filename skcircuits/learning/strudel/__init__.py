"""Strudel: deterministic circuits grown from data."""
