"""Generated tables in which thresholds of a number decide a category, and what to ask of them."""

import numpy as np
import pandas as pd


def low_rank(rng, n_rows, n_columns, n_factors=3):
    """Columns that depend on a few factors."""
    loadings = rng.normal(size=(n_factors, n_columns)) / np.sqrt(n_factors)
    noise = 0.5 * rng.normal(size=(n_rows, n_columns))
    return rng.normal(size=(n_rows, n_factors)) @ loadings + noise


def _yes(flags):
    return np.where(flags, "yes", "no")


def _frame(X):
    return pd.DataFrame(X, columns=[f"z{j}" for j in range(X.shape[1])])


def births(rng, n_rows=189):
    """Few rows of integers."""
    mother, smokes = np.round(rng.lognormal(4.84, 0.2, n_rows)), rng.random(n_rows) < 0.39
    weight = 3150 + 5 * (mother - 130) - 350 * smokes + 650 * rng.normal(size=n_rows)
    table = pd.DataFrame({"mother": mother, "smokes": _yes(smokes), "weight": np.round(weight)})
    return table.assign(low=_yes(table["weight"] < 2500)), "low", "weight", [2500.0]


def ages(rng, n_rows=1000):
    """A rare category of whole years, beside skewed and correlated columns."""
    Z = low_rank(rng, n_rows, 3)
    age = np.floor(np.clip(rng.gamma(4, 10, n_rows), 0, 95))
    columns = {"age": age, "income": np.exp(9 + 0.01 * age + 0.5 * Z[:, 0]), "height": Z[:, 1]}
    table = pd.DataFrame({**columns, "sex": rng.choice(["f", "m"], n_rows)})
    return table.assign(adult=_yes(age >= 18)), "adult", "age", [18.0]


def bands(rng, n_rows=2000):
    """An ordered category with four thresholds of a skewed number."""
    income = np.round(rng.lognormal(3, 0.6, n_rows), 2)
    Z = low_rank(rng, n_rows, 2)
    cuts = np.round(np.quantile(income, [0.2, 0.4, 0.65, 0.9]))
    table = _frame(Z + np.column_stack([0.5 * np.log(income), np.zeros(n_rows)]))
    band = np.array(list("abcde"))[np.digitize(income, cuts)]
    return table.assign(income=income, band=band), "band", "income", cuts.tolist()


def rare(rng, n_rows=1000):
    """One row in twenty lies beyond the threshold of one of ten columns."""
    table = _frame(low_rank(rng, n_rows, 10))
    cut = float(table["z0"].quantile(0.95))
    return table.assign(flag=_yes(table["z0"] >= cut)), "flag", "z0", [cut]


def noisy(rng, n_rows=1500):
    """Three per cent of the rows have the wrong category."""
    table = _frame(low_rank(rng, n_rows, 4))
    flags = (table["z1"] >= 0.4) ^ (rng.random(n_rows) < 0.03)
    return table.assign(flag=_yes(flags)), "flag", "z1", [0.4]


def many(rng, n_rows=1000):
    """Twenty columns of low rank."""
    table = _frame(low_rank(rng, n_rows, 20, 4))
    return table.assign(flag=_yes(table["z3"] < -0.7)), "flag", "z3", [-0.7]


def marks(rng, n_rows=400):
    """Marks out of a hundred."""
    mark = np.round(np.clip(60 + 15 * rng.normal(size=n_rows), 0, 100))
    hours = np.round(mark / 10 + 2 * rng.normal(size=n_rows), 1)
    table = pd.DataFrame({"mark": mark, "hours": hours, "group": rng.choice(list("xyz"), n_rows)})
    return table.assign(passed=_yes(mark >= 48)), "passed", "mark", [48.0]


def small(rng, n_rows=200):
    """Few rows, a skewed column."""
    table = _frame(rng.normal(size=(n_rows, 3)))
    table["z1"] = np.exp(table["z0"] + table["z1"])
    return table.assign(flag=_yes(table["z0"] >= 0.5)), "flag", "z0", [0.5]


def large(rng, n_rows=5000):
    """Two thresholds of a skewed column, and one per cent of noise."""
    Z = low_rank(rng, n_rows, 7)
    size = np.exp(Z[:, 2])
    label = np.digitize(size, [0.5, 2.0])
    label = np.where(rng.random(n_rows) < 0.01, rng.integers(3, size=n_rows), label)
    return (
        _frame(np.delete(Z, 2, axis=1)).assign(size=size, label=np.array(list("abc"))[label]),
        "label",
        "size",
        [0.5, 2],
    )


def two_numbers(rng, n_rows=2000):
    """Two numbers together decide."""
    table = _frame(low_rank(rng, n_rows, 5))
    flags = (table["z0"] >= 0) & (table["z1"] >= -0.3)
    return table.assign(flag=_yes(flags)), "flag", "z0", [0.0]


KINDS = [births, ages, bands, rare, noisy, many, marks, small, large, two_numbers]


def largest_misfit(density, table, category, number, cuts):
    """Largest difference of P(category | side), P(side | category) from the table's frequencies."""
    differences = []
    for cut in cuts:
        sides = {f"{number} < {cut!r}": table[number] < cut}
        sides[f"{number} >= {cut!r}"] = table[number] >= cut
        for label in table[category].unique():
            event = f"{category} == '{label}'"
            for text, side in sides.items():
                own, is_label = side.to_numpy(), (table[category] == label).to_numpy()
                if own.any():
                    model = density.probability(event, given=text)
                    differences.append(model - is_label[own].mean())
                model = density.probability(text, given=event)
                differences.append(model - own[is_label].mean())
    return float(np.abs(differences).max())
