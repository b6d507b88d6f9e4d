"""Input units restricted to evidence: probabilities, moments, draws and modes."""

from skcircuits.circuits.inputs.restriction._evidence import Evidence, RestrictedLayer, restrict
from skcircuits.circuits.inputs.restriction._gaussians import RestrictedGaussians, RestrictedJohnson
from skcircuits.circuits.inputs.restriction._intervals import (
    RestrictedDiscrete,
    RestrictedIntervals,
)

__all__ = [
    "Evidence",
    "RestrictedDiscrete",
    "RestrictedGaussians",
    "RestrictedIntervals",
    "RestrictedJohnson",
    "RestrictedLayer",
    "restrict",
]
