"""Units (the symbolic face of a circuit), and the properties that their graph promises."""
