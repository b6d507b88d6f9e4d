"""Piecewise polynomial input units: pieces, point masses, boxes."""
