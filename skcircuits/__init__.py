"""Exact probabilistic reasoning as ordinary scikit-learn estimators."""

__version__ = "0.1.0"

__all__: list[str] = []
