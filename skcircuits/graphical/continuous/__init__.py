"""Graphical models over continuous variables."""
