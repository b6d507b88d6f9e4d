"""Particles that follow a continuous target: directions of Stein variational gradient descent."""

from skcircuits.particles.directions import svgd_direction

__all__ = ["svgd_direction"]
