"""Graphical models: factor graphs over categorical variables, continuous Markov networks."""

from skcircuits.graphical.bayesian_network import BayesianNetwork
from skcircuits.graphical.continuous.crowdsourcing import CrowdsourcingModel
from skcircuits.graphical.continuous.markov_fields import (
    ContinuousFactor,
    ContinuousMarkovNetwork,
    GaussianMRF,
)
from skcircuits.graphical.continuous.sensor_network import SensorNetwork
from skcircuits.graphical.factor import Factor
from skcircuits.graphical.factor_graph import FactorGraph
from skcircuits.graphical.ising import IsingModel

__all__ = [
    "BayesianNetwork",
    "ContinuousFactor",
    "ContinuousMarkovNetwork",
    "CrowdsourcingModel",
    "Factor",
    "FactorGraph",
    "GaussianMRF",
    "IsingModel",
    "SensorNetwork",
]
