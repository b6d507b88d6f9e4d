"""What several estimators have in common."""
