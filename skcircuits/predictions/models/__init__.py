"""Expected predictions in closed form, one file per family of models."""
