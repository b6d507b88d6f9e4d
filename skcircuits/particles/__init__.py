"""Stein variational gradient descent of particles towards a continuous target."""

from skcircuits.particles.directions import svgd_direction

__all__ = ["svgd_direction"]
