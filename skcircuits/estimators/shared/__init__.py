"""Code shared by several estimators."""
