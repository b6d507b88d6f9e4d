"""Units (the symbolic representation of a circuit) and structural properties of their graph."""
