"""The numeric face of a circuit: plans, steps and passes."""
