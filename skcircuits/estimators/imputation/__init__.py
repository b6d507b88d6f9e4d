"""Around the imputer: bounds of what is imputed, and pooling of several imputations."""
