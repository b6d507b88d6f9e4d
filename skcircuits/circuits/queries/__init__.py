"""Queries of single circuits."""
