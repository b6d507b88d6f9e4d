"""Graphical models: factor graphs over categorical variables, continuous Markov fields."""

from skcircuits.graphical.bayesian_network import BayesianNetwork
from skcircuits.graphical.factor_graph import FactorGraph
from skcircuits.graphical.factors import Factor
from skcircuits.graphical.ising import IsingModel

__all__ = ["BayesianNetwork", "Factor", "FactorGraph", "IsingModel"]
