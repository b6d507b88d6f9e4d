"""Circuits as files and as text."""
