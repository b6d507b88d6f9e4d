"""What several estimators share."""
