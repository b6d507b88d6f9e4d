"""Particles that follow a continuous target: directions, bandwidths, optimisers, steps."""

from skcircuits.particles.bandwidths import median_bandwidths
from skcircuits.particles.blanket_check import nodes_outside_blankets
from skcircuits.particles.directions import kernel_direction, svgd_direction
from skcircuits.particles.discrepancy import node_discrepancies
from skcircuits.particles.fields import (
    Field,
    KernelField,
    LinearField,
    RandomField,
    SumField,
    make_field,
)
from skcircuits.particles.linear_term import linear_direction
from skcircuits.particles.neighborhoods import Neighborhoods
from skcircuits.particles.optimizers import (
    AdaGrad,
    Adam,
    GradientAscent,
    Optimizer,
    RMSprop,
    make_optimizer,
)
from skcircuits.particles.problem import SVGDProblem
from skcircuits.particles.random_scopes import RandomScopes
from skcircuits.particles.steps import StepSchedule, SVGDState, svgd_steps
from skcircuits.particles.threads import chunk_threads

__all__ = [
    "AdaGrad",
    "Adam",
    "Field",
    "GradientAscent",
    "KernelField",
    "LinearField",
    "Neighborhoods",
    "Optimizer",
    "RMSprop",
    "RandomField",
    "RandomScopes",
    "SVGDProblem",
    "SVGDState",
    "StepSchedule",
    "SumField",
    "chunk_threads",
    "kernel_direction",
    "linear_direction",
    "make_field",
    "make_optimizer",
    "median_bandwidths",
    "node_discrepancies",
    "nodes_outside_blankets",
    "svgd_direction",
    "svgd_steps",
]
