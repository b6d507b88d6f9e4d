"""Readers of graphical models."""
