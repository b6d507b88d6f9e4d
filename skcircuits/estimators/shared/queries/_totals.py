"""Sums and counts of columns that lie in sets."""

from skcircuits.exceptions import CircuitPropertyError, must

__all__ = ["log_total_evidence"]


def log_total_evidence(plan, boxes, observed):
    """Log probability of boxes with totals, (n_boxes,)."""
    raise CircuitPropertyError(must("A query", "be about intervals and sets"))
