"""Latent Chow-Liu trees."""
