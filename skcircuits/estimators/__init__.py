"""The public estimators, one file each."""

from skcircuits.estimators.imputer import CircuitImputer

__all__ = ["CircuitImputer"]
