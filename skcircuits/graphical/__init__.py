"""Graphical models: factor graphs over categorical variables, continuous Markov fields."""

from skcircuits.graphical.bayesian_network import BayesianNetwork
from skcircuits.graphical.factor_graph import FactorGraph
from skcircuits.graphical.factors import Factor
from skcircuits.graphical.ising import IsingModel
from skcircuits.graphical.posterior import Component, Posterior, Solution
from skcircuits.graphical.rows import missing_patterns

__all__ = [
    "BayesianNetwork",
    "Component",
    "Factor",
    "FactorGraph",
    "IsingModel",
    "Posterior",
    "Solution",
    "missing_patterns",
]
