"""Generated tables of numbers, most of them not normal, and errors of their distributions."""

import numpy as np

_LEVELS = np.linspace(0.01, 0.99, 99)
_PAIR_LEVELS = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])


def lognormal(rng, n_rows):
    """Four dependent columns of different spreads."""
    z = rng.normal(size=(n_rows, 2)) @ [[1.0, 0.5, 0.3, -0.4], [0.0, 0.8, 0.5, 0.6]]
    return np.exp((z + 0.4 * rng.normal(size=(n_rows, 4))) * [1.0, 0.7, 1.2, 0.5])


def pareto(rng, n_rows):
    """Heavy tails, of which two columns share one."""
    a = 1.0 + rng.pareto(2.2, n_rows)
    b = a * np.exp(0.3 * rng.normal(size=n_rows))
    return np.column_stack([a, b, rng.pareto(3.0, n_rows) + 0.1 * b])


def years(rng, n_rows):
    """A uniform year, prices that grow, and distances that do."""
    year = 1980.0 + 40.0 * rng.random(n_rows)
    price = np.exp(1.0 + 0.04 * (year - 1980.0) + 0.3 * rng.normal(size=n_rows))
    return np.column_stack([year, price, rng.gamma(2.0, 1.5 * (2021.0 - year))])


def peaks(rng, n_rows):
    """Two columns with two peaks."""
    x = np.where(rng.random(n_rows) < 0.4, 3.0, -2.0) + 0.6 * rng.normal(size=n_rows)
    w = np.where(rng.random(n_rows) < 0.5, 4.0, 0.0) + 0.5 * rng.normal(size=n_rows)
    return np.column_stack([x, 0.5 * x + rng.normal(size=n_rows), w])


def bounded(rng, n_rows):
    """Fractions, with most rows at the ends or in between."""
    a, c = rng.beta(0.5, 0.5, n_rows), rng.random(n_rows)
    b = rng.beta(2.0 + 3.0 * a, 2.0)
    return np.column_stack([a, b, c, np.minimum(1.0, a * c + 0.05 * rng.random(n_rows))])


def inflated(rng, n_rows):
    """Debts, of which many are zero, and incomes."""
    z = rng.normal(size=(n_rows, 2))
    debt = np.where(z[:, 0] > 0.2, np.exp(2.0 + z[:, 0] + 0.5 * z[:, 1]), 0.0)
    income = np.exp(3.0 + 0.5 * z[:, 0] + 0.4 * rng.normal(size=n_rows))
    return np.column_stack([debt, income, income - 0.1 * debt + 3.0 * rng.normal(size=n_rows)])


def ratios(rng, n_rows):
    """Areas and prices, and one over the other."""
    area = np.exp(4.6 + 0.35 * rng.normal(size=n_rows))
    price = np.exp(12.0 + (np.log(area) - 4.6) + 0.3 * rng.normal(size=n_rows))
    lot = np.exp(5.5 + 0.7 * rng.normal(size=n_rows))
    return np.column_stack([area, price, lot, price / area])


def sums(rng, n_rows):
    """Three skewed columns and their sum."""
    z = rng.normal(size=n_rows)
    b = np.exp(1.5 + 0.6 * z + 0.6 * rng.normal(size=n_rows))
    parts = np.column_stack([np.exp(2.0 + z), b, rng.gamma(1.5, 4.0, n_rows)])
    return np.column_stack([parts, parts.sum(axis=1)])


def copies(rng, n_rows):
    """A skewed column and nearly the same, beside independent ones."""
    size = np.exp(0.8 * rng.normal(size=n_rows))
    copy = size * np.exp(0.02 * rng.normal(size=n_rows))
    return np.column_stack(
        [size, copy, 2000.0 + 20.0 * rng.random(n_rows), rng.exponential(3.0, n_rows)]
    )


def relations(rng, n_rows):
    """Two linear relations with little noise, of a heavy tail and a uniform year."""
    x, year = rng.pareto(2.5, n_rows) + 1.0, 1990.0 + 30.0 * rng.random(n_rows)
    near, rest = 0.01 * rng.normal(size=n_rows), 0.02 * rng.normal(size=n_rows)
    return np.column_stack([x, 3.0 * x + near, year, year - x + rest, rng.beta(0.6, 1.2, n_rows)])


def groups(rng, n_rows):
    """Three groups with correlations of their own, and skewed columns."""
    group, z = rng.choice(3, n_rows, p=[0.5, 0.3, 0.2]), rng.normal(size=(n_rows, 2))
    r = np.array([0.9, -0.7, 0.0])[group]
    z[:, 1] = r * z[:, 0] + np.sqrt(1.0 - r * r) * z[:, 1]
    x = z + np.array([[0.0, 0.0], [4.0, 2.0], [-3.0, 4.0]])[group]
    return np.column_stack([x, np.exp(0.5 * x[:, 0]), rng.exponential(1.0 + group)])


def counts(rng, n_rows):
    """Integers and what depends on them."""
    mean = rng.gamma(1.2, 6.0, n_rows)
    count = rng.poisson(mean)
    duration = mean * np.exp(0.4 * rng.normal(size=n_rows))
    return np.column_stack([count, duration, rng.gamma(3.0, count + 1.0)]).astype(float)


def squares(rng, n_rows):
    """Sums of squares."""
    z = rng.normal(size=(n_rows, 4))
    x = z[:, 0] ** 2
    return np.column_stack([x, x + z[:, 1] ** 2, z[:, 2] ** 2 + 0.3 * x, z[:, 3] + 0.5 * z[:, 0]])


def waves(rng, n_rows):
    """Columns that depend on an angle."""
    angle = rng.random(n_rows) * 2.0 * np.pi
    sine = np.sin(angle) + 0.1 * rng.normal(size=n_rows)
    cosine = np.cos(angle) * np.exp(0.3 * rng.normal(size=n_rows))
    return np.column_stack([angle, sine, cosine, rng.exponential(1.0, n_rows)])


def normal(rng, n_rows):
    """A joint normal distribution."""
    return rng.normal(size=(n_rows, 5)) @ (np.eye(5) + np.diag([0.5, 0.7, 0.3, -0.6], 1))


def student(rng, n_rows):
    """Student's distribution with three degrees of freedom."""
    z = rng.normal(size=(n_rows, 3))
    z[:, 1] += 0.7 * z[:, 0]
    return z * np.sqrt(3.0 / rng.chisquare(3, n_rows))[:, None]


KINDS = (lognormal, pareto, years, peaks, bounded, inflated, ratios, sums)
KINDS += (copies, relations, groups, counts, squares, waves, normal, student)


def largest_errors(draws, rows):
    """Largest differences of distribution functions: of one column, and of two of them."""
    columns, own = np.sort(rows, axis=0).T, np.sort(draws, axis=0).T
    singles = []
    for cells, drawn in zip(columns, own, strict=True):
        limits = np.quantile(cells, _LEVELS, method="inverted_cdf")
        below = [np.searchsorted(c, limits, side="right") / len(c) for c in (cells, drawn)]
        singles.append(np.abs(below[0] - below[1]).max())
    limits = np.quantile(rows, _PAIR_LEVELS, axis=0, method="inverted_cdf")
    tables = []
    for table in (rows, draws):
        below = (table[:, :, None] <= limits.T).reshape(len(table), -1).astype(np.float32)
        tables.append(below.T @ below / len(table))
    return float(max(singles)), float(np.abs(tables[0] - tables[1]).max())
