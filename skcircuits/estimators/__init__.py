"""The public estimators, one file each."""

__all__: list[str] = []
