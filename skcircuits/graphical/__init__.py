"""Graphical models: factor graphs over categorical variables, continuous Markov networks."""

from skcircuits.graphical.bayesian_network import BayesianNetwork
from skcircuits.graphical.continuous.markov_fields import (
    ContinuousFactor,
    ContinuousMarkovNetwork,
    GaussianMRF,
)
from skcircuits.graphical.continuous.measurement_models import CrowdsourcingModel, SensorNetwork
from skcircuits.graphical.factor import Factor
from skcircuits.graphical.factor_graph import FactorGraph, IsingModel

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
