"""Expected predictions of regressors and classifiers: what both estimators share."""
