"""Categories that are decided by thresholds of a number."""
