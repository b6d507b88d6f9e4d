"""Expectation maximisation on any circuit."""
