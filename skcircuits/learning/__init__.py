"""Learning circuits from rows: parameters of any circuit, and structures."""

from skcircuits.learning.parameters import EMStep, expectation_maximization, fit_parameters

__all__ = ["EMStep", "expectation_maximization", "fit_parameters"]
