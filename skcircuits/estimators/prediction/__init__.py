"""Common base of expected predictions of regressors and of classifiers."""
