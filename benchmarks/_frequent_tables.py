"""Generated tables with a value that many rows share, in a column ``z`` beside three others."""

import numpy as np
import pandas as pd


def _frame(rng, z, effect):
    """A category, a number that depends on it, and one that depends on both numbers."""
    n_rows = len(z)
    group = rng.choice(["a", "b", "c"], n_rows)
    x = rng.normal(group == "a")
    return pd.DataFrame({"group": group, "x": x, "y": rng.normal(0.5 * x + effect), "z": z})


def debts(rng, n_rows):
    """Zero or a continuous number."""
    z = np.where(rng.random(n_rows) < 0.6, 0.0, rng.lognormal(3.0, 1.0, n_rows))
    return _frame(rng, z, z > 0), 0.0


def gains(rng, n_rows):
    """Zero, or an integer of a range so wide that single integers are not resolved."""
    z = np.where(rng.random(n_rows) < 0.9, 0.0, rng.lognormal(8.0, 1.0, n_rows).round())
    return _frame(rng, z, z > 0), 0.0


def counts(rng, n_rows):
    """Zero or a count."""
    z = np.where(rng.random(n_rows) < 0.6, 0.0, rng.poisson(12.0, n_rows))
    return _frame(rng, z, 0.1 * z), 0.0


def limits(rng, n_rows):
    """Counts up to the limit of a gauge."""
    z = np.minimum(rng.negative_binomial(3, 0.02, n_rows), 150).astype(float)
    return _frame(rng, z, 0.02 * z), 150.0


def hours(rng, n_rows):
    """Most work full time, others more or less."""
    z = np.where(rng.random(n_rows) < 0.45, 40.0, rng.normal(40.0, 12.0, n_rows).round())
    return _frame(rng, z, 0.05 * (z - 40.0)), 40.0


KINDS = (debts, gains, counts, limits, hours)
