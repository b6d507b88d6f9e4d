"""Numeric representation of circuits: plans, steps and passes."""
