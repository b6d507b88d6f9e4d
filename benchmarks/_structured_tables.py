"""Tables of the structures on which smooth densities lose to trees and neighbours.

Rules between categories and their parities, columns of many categories that are coarsened in
others, panels of units that are observed again and again, scales of few values, grades cut from
numbers, neighbouring pixels, manifolds, thresholds, and designed experiments. Most are small.
"""

import numpy as np

__all__ = ["KINDS", "structured_table"]

_SIZES = [(100, 200), (200, 500), (500, 1000), (1000, 2000)]


def structured_table(seed):
    """A table of the kind ``seed % len(KINDS)``, and which of its columns are categories."""
    kind = list(KINDS)[seed % len(KINDS)]
    rng = np.random.default_rng([4, seed])
    n = int(rng.integers(*_SIZES[rng.choice(4, p=[0.3, 0.35, 0.25, 0.1])]))
    numbers, labels = KINDS[kind](n, rng)
    columns = [*numbers, *labels]
    order = rng.permutation(len(columns))
    X = np.column_stack([columns[i] for i in order]).astype(float)
    return X, np.flatnonzero(order >= len(numbers))


def _uneven(n, size, rng):
    return rng.choice(size, n, p=rng.dirichlet(np.full(size, 2.0)))


def _changed(labels, size, rate, rng):
    """Some labels replaced by random ones."""
    return np.where(rng.random(len(labels)) < rate, rng.integers(0, size, len(labels)), labels)


def _cut(numbers, size, rng):
    edges = np.quantile(numbers, np.sort(rng.uniform(0.1, 0.9, size - 1)))
    return np.searchsorted(edges, numbers).astype(float)


def _ratings(n, rng):
    """Attributes on their own, and a class by the leaves of a tree of them."""
    sizes = rng.integers(2, 5, int(rng.integers(5, 9)))
    attributes = [_uneven(n, size, rng) for size in sizes]
    grades = []
    for _ in range(2):
        # A sum of points of the attributes, which a bad one spoils
        points = sum(rng.uniform(0, 2) * own for own in attributes[:4])
        veto = attributes[int(rng.integers(len(sizes)))] == 0
        grade = np.where(veto, 0, 1 + _cut(points + 0.1 * rng.random(n), 3, rng))
        grades.append(_changed(grade, 4, rng.choice([0.0, 0.05]), rng))
    return [], [*attributes, *grades]


def _parities(n, rng):
    """Labels that no single other column tells anything of."""
    bits = [rng.integers(0, 2, n) for _ in range(int(rng.integers(3, 6)))]
    a, b = rng.normal(size=(2, n))
    even = _changed(bits[0] ^ bits[1], 2, 0.05, rng)
    equal = _changed(bits[1] == bits[2], 2, 0.1, rng)
    quadrant = _changed((a > 0) ^ (b > 0), 2, 0.05, rng)
    response = np.where(bits[0] ^ bits[1], 2.0, -2.0) + 0.7 * rng.normal(size=n)
    product = a * b + 0.3 * rng.normal(size=n)
    return [a, b, response, product], [*bits, even, equal, quadrant]


def _places(n, rng):
    """A column of many categories that others coarsen, and numbers that depend on it."""
    size, n_regions = int(rng.integers(12, 40)), int(rng.integers(3, 7))
    town = rng.choice(size, n, p=rng.dirichlet(np.full(size, 1.0)))
    region = rng.integers(0, n_regions, size)[town]
    is_coast = rng.integers(0, 2, size)[town]
    level = rng.normal(size=size)[town] + rng.normal(size=n_regions)[region]
    rent = np.round(np.exp(6.5 + 0.4 * level + 0.2 * rng.normal(size=n)), -1)
    latitude = np.round(rng.uniform(36, 44, size)[town], 2)
    rain = np.round(np.exp(4 + 0.5 * is_coast + rng.normal(0, 0.4, size)[town]))
    age = np.round(rng.normal(40, 12, n))
    job = _changed(rng.integers(0, 8, size)[town], 8, 0.5, rng)
    return [rent, latitude, rain, age], [town, region, is_coast, job]


def _panel(n, rng):
    """Units that are observed in several years, with columns that never change in a unit."""
    n_years = int(rng.integers(3, 12))
    unit, year = np.divmod(np.arange(n), n_years)
    n_units = unit.max() + 1
    industry = rng.integers(0, 5, n_units)[unit]
    size = rng.normal(size=n_units)[unit]
    growth = rng.normal(0.03, 0.04, n_units)[unit]
    sales = np.exp(4 + 1.3 * size + growth * year + 0.08 * rng.normal(size=n))
    staff = np.round(np.exp(3 + size + 0.3 * rng.normal(size=n_units)[unit] + 0.04 * year))
    shock = rng.normal(size=n_years)[year]
    wage = np.exp(2 + 0.3 * rng.normal(size=n_units)[unit] + 0.03 * year + 0.05 * shock)
    founded = np.round(rng.uniform(1900, 2000, n_units))[unit]
    listed = (rng.random(n_units) < 0.4)[unit]
    union = _changed((rng.random(n_units) < 0.5)[unit], 2, 0.1, rng)
    identity = [unit] if rng.random() < 0.5 else []
    return [*identity, 1990 + year, sales, staff, wage, founded], [industry, listed, union]


def _growth(n, rng):
    """Curves of subjects over few ages, with treatments."""
    n_times = int(rng.integers(5, 12))
    subject, time = np.divmod(np.arange(n), n_times)
    diet = np.arange(subject.max() + 1)[subject] % int(rng.integers(2, 5))
    rate = (0.1 + 0.03 * rng.normal(size=subject.max() + 1))[subject] + 0.02 * diet
    weight = np.round(40 * np.exp(rate * time + 0.03 * rng.normal(size=n)), 1)
    intake = np.round(weight**0.75 + rng.normal(0, 1.5, n), 1)
    return [2 * time, weight, intake, subject], [diet]


def _grades(n, rng):
    """Scales of zero to ten or fifteen, nearly sums of a few factors, and a class."""
    top, n_classes = int(rng.choice([10, 15])), int(rng.integers(2, 8))
    kind = _uneven(n, n_classes, rng)
    columns = []
    factors = rng.normal(size=(n, 2)) + 1.5 * rng.normal(size=(n_classes, 2))[kind]
    for _ in range(int(rng.integers(6, 14))):
        signal = factors @ rng.normal(size=2) + 0.6 * rng.normal(size=n)
        signal += 0.7 * rng.normal(size=n_classes)[kind]
        signal = top * (0.4 + 0.2 * signal / signal.std())
        columns.append(np.clip(np.round(signal), 0, top))
    return columns, [kind]


def _pixels(n, rng):
    """Smooth images of several classes, seen at neighbouring places."""
    n_classes, side = int(rng.integers(3, 7)), 4
    kind = _uneven(n, n_classes, rng)
    where = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
    distance = np.square(where[:, None] - where).sum(axis=2)
    covariance = np.exp(-distance / rng.uniform(4, 16)) + 0.02 * np.eye(len(where))
    images = rng.multivariate_normal(np.zeros(len(where)), covariance, n)
    patterns = rng.multivariate_normal(np.zeros(len(where)), covariance, n_classes)
    values = np.clip(np.round(90 + 25 * (1.5 * patterns[kind] + images)), 0, 255)
    kept = rng.permutation(len(where))[: int(rng.integers(8, 17))]
    return list(values[:, kept].T), [kind]


def _manifold(n, rng):
    """Columns that are nearly functions of two hidden ones."""
    a, b = rng.uniform(-1.5, 1.5, (2, n))
    columns = []
    for _ in range(int(rng.integers(6, 12))):
        u, v = rng.normal(size=2)
        shapes = [np.sin(2 * (u * a + v * b)), u * a * a + v * b, np.exp(u * a) * (1 + 0.3 * b)]
        column = shapes[int(rng.integers(3))]
        columns.append(column / column.std() + 0.05 * rng.normal(size=n))
    kind = _cut(a * a + b * b, 2, rng)
    return columns, [kind]


def _thresholds(n, rng):
    """Numbers that jump where others cross thresholds."""
    columns = [rng.uniform(0, 10, n), np.round(rng.gamma(2, 10, n)), rng.normal(size=n)]
    labels = [_uneven(n, 3, rng), _uneven(n, 2, rng)]
    for _ in range(int(rng.integers(3, 6))):
        leaf = np.zeros(n, dtype=int)
        for _ in range(3):
            if rng.random() < 0.7:
                own = columns[int(rng.integers(len(columns)))]
                side = own > np.quantile(own, rng.uniform(0.2, 0.8))
            else:
                side = labels[int(rng.integers(2))] == 0
            leaf = 2 * leaf + side
        columns.append(rng.normal(0, 3, 8)[leaf] + rng.uniform(0.3, 1.0) * rng.normal(size=n))
    labels.append(_changed(_cut(columns[-1], 3, rng), 3, 0.05, rng))
    return columns, labels


def _votes(n, rng):
    """Yes or no to many questions, by groups."""
    n_groups = int(rng.integers(2, 5))
    group = _uneven(n, n_groups, rng)
    lean = rng.normal(size=n_groups)[group] + 0.4 * rng.normal(size=n)
    answers = []
    for _ in range(int(rng.integers(6, 15))):
        logit = rng.normal(0, 2.5) * lean + rng.normal(0, 1, n_groups)[group]
        answers.append(rng.random(n) < 1 / (1 + np.exp(-logit)))
    return [], [group, *answers]


def _design(n, rng):
    """Crossed factors, of which none tells of another, and responses."""
    sizes = rng.integers(2, 5, 3)
    cell = np.arange(n) % np.prod(sizes)
    factors = list(np.unravel_index(cell, sizes))
    block = np.arange(n) // np.prod(sizes)
    effects = sum(rng.normal(0, 1, size)[own] for size, own in zip(sizes, factors, strict=True))
    effects = effects + rng.normal(0, 1, (sizes[0], sizes[1]))[factors[0], factors[1]]
    yields = np.round(50 + 8 * effects + rng.normal(0, 4, n), 1)
    counts = rng.poisson(np.exp(1.5 + 0.4 * effects))
    dose = np.array([0.0, 1.0, 2.5, 5.0])[factors[2]]
    return [dose, yields, counts, block], factors[:2]


def _exams(n, rng):
    """Ordered grades cut from numbers that are also there, and sums of columns."""
    ability = rng.normal(size=n)
    marks = [
        np.clip(np.round(60 + 14 * (0.8 * ability + 0.6 * rng.normal(size=n))), 0, 100)
        for _ in range(3)
    ]
    total = sum(marks)
    grade = np.digitize(total, np.quantile(total, [0.2, 0.45, 0.7, 0.9]))
    passed = (np.min(marks, axis=0) >= 45).astype(float)
    school = np.clip(np.round(ability + 1.2 * rng.normal(size=n) + 3), 0, 6)
    lunch = rng.random(n) < 1 / (1 + np.exp(ability + 1))
    parents = np.clip(np.round(2.5 + ability + rng.normal(size=n)), 0, 5)
    return [*marks, total, parents], [grade, passed, school, lunch]


KINDS = {
    "ratings": _ratings,
    "parities": _parities,
    "places": _places,
    "panel": _panel,
    "growth": _growth,
    "grades": _grades,
    "pixels": _pixels,
    "manifold": _manifold,
    "thresholds": _thresholds,
    "votes": _votes,
    "design": _design,
    "exams": _exams,
}
