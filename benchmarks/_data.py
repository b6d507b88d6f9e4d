"""Locations of the benchmark data."""

import os
from pathlib import Path

__all__ = ["data_path"]


def data_path(*parts):
    """Path below ``$SKCIRCUITS_DATA``, by default ``../shared/data`` beside the project."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    path = Path(os.environ.get("SKCIRCUITS_DATA", beside)).joinpath(*parts)
    if not path.exists():
        raise SystemExit(f"Data not found: {path}. Set SKCIRCUITS_DATA to the data folder.")
    return path
