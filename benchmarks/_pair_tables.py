"""Generated tables in which categories and skewed numbers go together, and what to ask of them."""

import numpy as np
import pandas as pd

QUANTILES = (0.5, 0.75, 0.9, 0.97)
_LEAST_ROWS = 25  # of a category: frequencies of fewer rows are noise


def wages(rng, n_rows):
    """Log wages of which few are women's, beside integers."""
    female, years = rng.random(n_rows) < 0.12, rng.integers(1, 45, n_rows)
    education = np.clip(np.round(rng.normal(12.8, 2.8, n_rows)), 4, 17)
    married = rng.random(n_rows) < np.where(female, 0.3, 0.85)
    wage = 5.6 + 0.06 * education + 0.028 * years - 0.0005 * years**2 - 0.45 * female
    wage += 0.07 * married + 0.35 * rng.normal(size=n_rows)
    columns = {"years": years, "education": education, "wage": wage}
    columns["sex"] = np.where(female, "female", "male")
    columns["married"] = np.where(married, "yes", "no")
    return pd.DataFrame(columns)


def salaries(rng, n_rows):
    """The same not on the log scale, rounded, by job."""
    job = rng.choice(4, n_rows, p=[0.4, 0.3, 0.2, 0.1])
    female = rng.random(n_rows) < np.array([0.2, 0.5, 0.7, 0.35])[job]
    age = np.round(np.clip(rng.gamma(9, 4.6, n_rows), 18, 70))
    log_salary = np.array([2.5, 2.8, 3.0, 3.6])[job] + 0.01 * age - 0.25 * female
    log_salary += np.array([0.2, 0.3, 0.35, 0.6])[job] * rng.normal(size=n_rows)
    hours = np.round(
        np.where(rng.random(n_rows) < 0.4, 40, 36 - 5 * female + 6 * rng.normal(size=n_rows))
    )
    columns = {"age": age, "salary": np.round(np.exp(log_salary), 2), "hours": hours}
    columns["job"], columns["sex"] = np.array(list("abcd"))[job], np.where(female, "f", "m")
    return pd.DataFrame(columns)


def houses(rng, n_rows):
    """Areas, lots and prices, of slopes by district."""
    district = rng.choice(5, n_rows, p=[0.35, 0.25, 0.2, 0.12, 0.08])
    area = np.exp(4.6 + 0.35 * rng.normal(size=n_rows) + 0.1 * (district == 3))
    slope, level = (
        np.array([0.8, 1.0, 1.2, 1.3, 0.9])[district],
        np.array([0, 0.3, 0.5, 1, -0.5])[district],
    )
    price = np.exp(12 + level + slope * (np.log(area) - 4.6) + 0.2 * rng.normal(size=n_rows))
    lot = np.exp(5.5 + 0.7 * rng.normal(size=n_rows) - 0.5 * (district < 2))
    garage = rng.random(n_rows) < 1 / (1 + np.exp(1 - 0.02 * (area - 100)))
    columns = {"area": np.round(area), "price": np.round(price, -2), "lot": np.round(lot)}
    columns["per_area"] = price / area
    columns["district"] = np.array(list("abcde"))[district]
    columns["garage"] = np.where(garage, "yes", "no")
    return pd.DataFrame(columns)


def firms(rng, n_rows):
    """Sizes over four orders of magnitude, correlated."""
    sector, size = rng.choice(4, n_rows, p=[0.4, 0.3, 0.2, 0.1]), rng.normal(size=n_rows)
    size += np.array([0.0, 0.3, -0.5, 1.0])[sector]
    sales = np.exp(4 + 1.2 * size + 0.3 * rng.normal(size=n_rows))
    costs = sales * np.clip(
        0.8 + np.array([0, 0.08, -0.05, 0.02])[sector] + 0.1 * rng.normal(size=n_rows), 0.3, 1.3
    )
    staff = np.round(np.exp(2 + 0.9 * size + 0.4 * rng.normal(size=n_rows))) + 1
    listed = rng.random(n_rows) < 1 / (1 + np.exp(1.5 - 1.5 * size))
    columns = {"sales": sales, "costs": costs, "profit": sales - costs, "staff": staff}
    columns["sector"] = np.array(list("abcd"))[sector]
    columns["listed"] = np.where(listed, "yes", "no")
    return pd.DataFrame(columns)


def waits(rng, n_rows):
    """Exponential and gamma times, by queue and hour."""
    queue, hour = rng.choice(3, n_rows, p=[0.6, 0.3, 0.1]), rng.integers(8, 20, n_rows)
    wait = rng.exponential(np.array([2.0, 5.0, 12.0])[queue] * (1 + 0.05 * (hour - 8)))
    service = rng.gamma(np.array([1.0, 2.0, 4.0])[queue], 3.0)
    left = rng.random(n_rows) < 1 - np.exp(-wait / 40)
    columns = {"hour": hour, "wait": wait, "service": service}
    columns["queue"] = np.array(list("abc"))[queue]
    columns["left"] = np.where(left, "yes", "no")
    return pd.DataFrame(columns)


def claims(rng, n_rows):
    """Pareto and Student tails, by region and a rare kind."""
    region = rng.choice(4, n_rows)
    rare = rng.random(n_rows) < 0.08
    amount = np.array([1.0, 1.3, 1.6, 2.0])[region] * np.where(rare, 2.5, 1.0)
    amount = amount * (1 + rng.pareto(2.2, n_rows))
    change = 0.3 * (region - 1.5) + rng.standard_t(3, n_rows) * np.where(rare, 2.0, 1.0)
    delay = np.round(rng.lognormal(2 + 0.2 * np.log(amount), 0.8))
    columns = {"amount": amount, "change": change, "delay": delay}
    columns["region"] = np.array(list("abcd"))[region]
    columns["kind"] = np.where(rare, "rare", "usual")
    return pd.DataFrame(columns)


def groups(rng, n_rows):
    """Normal and two-peaked numbers, with means and spreads by group."""
    group = rng.choice(3, n_rows, p=[0.5, 0.35, 0.15])
    z = rng.normal(size=(n_rows, 3))
    columns = {"near": z[:, 0] + 0.5 * group, "wide": z[:, 1] * np.array([1.0, 2.0, 4.0])[group]}
    side = np.where(rng.random(n_rows) < np.array([0.2, 0.5, 0.8])[group], 2.0, -2.0)
    columns["peaks"] = side + 0.7 * z[:, 2] + 0.3 * z[:, 0]
    columns["group"] = np.array(list("abc"))[group]
    columns["coin"] = np.where(z[:, 0] + rng.normal(size=n_rows) > 0.5, "yes", "no")
    return pd.DataFrame(columns)


def corners(rng, n_rows):
    """A category that two numbers decide together, one of them skewed."""
    z = rng.normal(size=(n_rows, 3))
    z[:, 1] += 0.5 * z[:, 0]
    table = pd.DataFrame({"x": z[:, 0], "y": np.exp(z[:, 1]), "w": z[:, 2] + 0.4 * z[:, 1]})
    high = (table["x"] > 0) & (table["y"] > 0.8)
    return table.assign(flag=np.where(high, "yes", "no"), kind=rng.choice(list("ab"), n_rows))


KINDS = (wages, salaries, houses, firms, waits, claims, groups, corners)


def misfits(density, table, others):
    """Errors of P(number > quantile | category), an array (n_events, 2).

    Differences from the frequencies of the table itself, and from those of many `others`. The
    quantiles are those of the table; rare categories are left out.
    """
    numbers = table.select_dtypes("number").columns
    errors = []
    for category in table.columns.difference(numbers):
        counts = table[category].value_counts()
        labels = counts.index[counts >= _LEAST_ROWS].tolist()
        given = [{category: label} for label in labels]
        for number in numbers:
            for limit in np.unique(table[number].quantile(QUANTILES)).tolist():
                model = density.probability(f"{number} > {limit!r}", given=given)
                own, true = (
                    (rows[number] > limit).groupby(rows[category]).mean().reindex(labels).to_numpy()
                    for rows in (table, others)
                )
                errors.append(np.column_stack([model - own, model - true]))
    return np.abs(np.concatenate(errors))
