"""The density that chooses itself."""
