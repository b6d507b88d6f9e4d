"""Input units restricted to what is known about their variables: masses, moments, draws, modes."""

from skcircuits.circuits.inputs.restriction._evidence import Evidence, RestrictedLayer, restrict
from skcircuits.circuits.inputs.restriction._gaussians import RestrictedGaussians
from skcircuits.circuits.inputs.restriction._intervals import (
    RestrictedDiscrete,
    RestrictedIntervals,
)
from skcircuits.circuits.inputs.restriction._johnson import RestrictedJohnson

__all__ = [
    "Evidence",
    "RestrictedDiscrete",
    "RestrictedGaussians",
    "RestrictedIntervals",
    "RestrictedJohnson",
    "RestrictedLayer",
    "restrict",
]
