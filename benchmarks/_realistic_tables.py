"""Tables that look like real ones, of a dozen kinds, each drawn anew from a seed.

What real tables have and smooth processes lack: thresholds (``low`` is ``weight < 2500``), ratios
and sums of columns, integers and counts, skewed amounts of money, zeros, categories of unequal
frequency that depend on numbers and the reverse, groups with regressions of their own, ordinal
scales, dates as numbers, interactions, nearly equal columns, and columns that are noise.
"""

import numpy as np

__all__ = ["KINDS", "realistic_table"]

_SIZES = [(100, 200), (200, 500), (500, 1000), (1000, 2500)]


def realistic_table(seed):
    """A table of the kind ``seed % len(KINDS)``, and which of its columns are categories."""
    kind = list(KINDS)[seed % len(KINDS)]
    rng = np.random.default_rng([3, seed])
    n = int(rng.integers(*_SIZES[rng.choice(4, p=[0.3, 0.35, 0.25, 0.1])]))
    numbers, labels = KINDS[kind](n, rng)
    noise = [rng.normal(size=n), np.round(rng.gamma(2.0, 3.0, n))][: rng.integers(3)]
    columns = [*numbers, *noise, *labels]
    order = rng.permutation(len(columns))
    first_label = len(columns) - len(labels)
    X = np.column_stack([columns[i] for i in order]).astype(float)
    return X, np.flatnonzero(order >= first_label)


def _uneven(size, rng):
    """Frequencies of some categories, most of them in a few."""
    return rng.dirichlet(np.full(size, 1.5))


def _labels(n, size, rng):
    return rng.choice(size, n, p=_uneven(size, rng))


def _happens(logit, rng):
    """One where an event of this log odds happens."""
    return (rng.random(len(logit)) < 1.0 / (1.0 + np.exp(-logit))).astype(float)


def _choice(logits, rng):
    """A category per row, by multinomial logits (n, k)."""
    return (logits + rng.gumbel(size=logits.shape)).argmax(axis=1).astype(float)


def _standard(column):
    return (column - column.mean()) / max(column.std(), 1e-9)


def _births(n, rng):
    mother = np.round(np.clip(rng.normal(26, 6, n), 14, 45))
    height = rng.normal(163, 6.5, n)
    bmi = np.exp(rng.normal(3.15, 0.17, n))
    mass = np.round(bmi * (height / 100) ** 2, 1)
    race = _labels(n, 3, rng)
    smokes = _happens(-1.0 + rng.normal(0, 0.6, 3)[race] - 0.05 * (mother - 26), rng)
    visits = rng.poisson(np.exp(0.3 + 0.03 * (mother - 26)))
    weeks = np.round(40 - rng.gamma(1.5, 1.2, n), 1)
    grams = 3300 + 120 * (weeks - 38) + 8 * (mass - 58) - 260 * smokes
    grams = np.round(grams + rng.normal(0, 90, 3)[race] + rng.normal(0, 380, n))
    hypertension = _happens(-3.5 + 0.12 * (bmi - 23), rng)
    numbers = [mother, mass, visits, weeks, grams, np.round(bmi, 1)]
    low, early = (grams < 2500).astype(float), (weeks < 37).astype(float)
    return numbers, [race, smokes, low, early, hypertension]


def _wages(n, rng):
    female, union = _labels(n, 2, rng), _happens(np.full(n, -1.3), rng)
    education = np.clip(np.round(rng.normal(12.8, 2.5, n)), 6, 18)
    age = np.round(rng.uniform(19, 64, n))
    experience = np.maximum(age - education - 6, 0)
    sector = _choice(np.outer(_standard(education), rng.normal(0, 1, 5)) + rng.normal(size=5), rng)
    returns = rng.uniform(0.04, 0.12, 5)
    log_wage = 1.0 + returns[sector.astype(int)] * education + 0.03 * experience
    log_wage += -0.0005 * experience**2 - 0.22 * female + 0.15 * union + rng.normal(0, 0.35, n)
    hours = np.where(rng.random(n) < 0.5, 40, np.round(rng.normal(38 - 6 * female, 9)))
    married = _happens(0.06 * (age - 33) - 0.5 * female, rng)
    wage = np.round(np.exp(log_wage), 2)
    return [education, age, experience, wage, hours], [female, union, sector, married]


def _houses(n, rng):
    size = int(rng.integers(3, 8))
    district = _labels(n, size, rng)
    area = np.round(np.exp(rng.normal(4.6, 0.35, n)))
    rooms = np.maximum(1, np.round(area / 27 + rng.normal(0, 0.8, n)))
    baths = np.maximum(1, np.round(rooms / 3 + rng.normal(0, 0.4, n)))
    year = np.round(2020 - rng.gamma(2.0, 18, n))
    slope, level = rng.normal(1.0, 0.25, size), rng.normal(7.5, 0.5, size)
    log_price = level[district] + slope[district] * (np.log(area) - 4.6) + 4.6
    log_price += np.where(year > 1990, 0.004 * (year - 1990), 0.0) + rng.normal(0, 0.18, n)
    price = np.round(np.exp(log_price), -2)
    lot = np.round(np.where(rng.random(n) < 0.35, 0, np.exp(rng.normal(5.5, 0.7, n))))
    garage = _happens(-1 + 0.02 * (area - 100) + 0.03 * (year - 1980), rng)
    style = np.where(year < 1945, 0, np.where(lot > 0, 1, 2)).astype(float)
    style = np.where(rng.random(n) < 0.1, rng.integers(0, 3, n), style)
    return [area, rooms, baths, year, price, lot, price / area], [district, garage, style]


def _claims(n, rng):
    age = np.round(18 + rng.gamma(3.0, 9, n))
    exposure = np.round(np.where(rng.random(n) < 0.6, 1.0, rng.uniform(0.05, 1, n)), 2)
    region, power = _labels(n, int(rng.integers(3, 7)), rng), np.round(rng.gamma(6, 15, n))
    car_age = rng.poisson(np.exp(1.5 + 0.2 * rng.normal(size=n)))
    bonus = np.clip(np.round(50 + 60 * np.exp(-(age - 18) / 8) + rng.normal(0, 6, n)), 50, 150)
    rate = np.exp(-1.2 + 0.02 * (bonus - 50) + rng.normal(0, 0.3, region.max() + 1)[region])
    claims = rng.poisson(rate * exposure)
    amount = np.round(np.where(claims > 0, claims * np.exp(rng.normal(6.8, 0.9, n)), 0.0))
    premium = np.round(200 + 2.2 * power + 4 * (bonus - 50) - 5 * car_age + rng.normal(0, 25, n))
    kind = np.digitize(power, [60, 90, 130]).astype(float)
    young = (age < 25).astype(float)
    return [age, exposure, power, car_age, bonus, claims, amount, premium], [region, kind, young]


def _scales(n, rng):
    factors = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.4], [0.0, 0.9]])
    items = []
    for j in range(int(rng.integers(5, 10))):
        value = 3 + rng.choice([-1.0, 1.0]) * 0.8 * factors[:, j % 2] + rng.normal(0, 0.8, n)
        items.append(np.clip(np.round(value), 1, 5))
    total = np.sum(items, axis=0)
    age = np.round(rng.uniform(18, 80, n))
    sex, group = _labels(n, 2, rng), _choice(np.outer(factors[:, 0], rng.normal(0, 1, 3)), rng)
    case = (total > np.quantile(total, 0.75)).astype(float)
    treated = np.where(case == 1, _happens(np.full(n, 1.5), rng), _happens(np.full(n, -2.5), rng))
    pulse = np.round(72 + 5 * factors[:, 1] - 0.1 * (age - 50) + rng.normal(0, 6, n))
    return [*items, total, age, pulse], [sex, group, case, treated]


def _engines(n, rng):
    cylinders = rng.choice([3.0, 4.0, 5.0, 6.0, 8.0], n, p=[0.02, 0.5, 0.03, 0.25, 0.2])
    litres = np.round(0.45 * cylinders * np.exp(rng.normal(0, 0.15, n)), 1)
    inches = np.round(61.02 * litres)
    power = np.round(42 * litres**0.9 * np.exp(rng.normal(0, 0.15, n)))
    mass = np.round(700 + 260 * litres + 2.5 * power + rng.normal(0, 120, n))
    year = np.round(rng.uniform(70, 84, n))
    logits = np.outer(_standard(litres), [1.5, -0.5, -1.0])
    origin = _choice(logits + np.array([0.5, 0.0, 0.0]), rng)
    consumption = 3 + 0.0045 * mass + 0.012 * power - 0.12 * (year - 70) - 0.5 * (origin == 2)
    mpg = np.round(235 / np.maximum(consumption + rng.normal(0, 0.6, n), 3), 1)
    pace = np.round(8 + 0.9 * mass / power + rng.normal(0, 0.9, n), 1)
    diesel = _happens(-3 + 1.5 * (power / mass < 0.065), rng)
    drive = _choice(np.outer(_standard(mass), [1.0, 0.0, -1.0]), rng)
    return [cylinders, litres, inches, power, mass, year, mpg, pace], [origin, diesel, drive]


def _species(n, rng):
    site = _labels(n, int(rng.integers(3, 8)), rng)
    depth = np.round(np.exp(rng.normal(2, 0.6, n)) * np.exp(rng.normal(0, 0.4, 8))[site], 1)
    warmth = np.round(12 + rng.normal(0, 3, 8)[site] - 1.5 * np.log(depth) + rng.normal(0, 2, n), 1)
    acidity = np.round(rng.normal(7.2, 0.5, n) + 0.03 * (warmth - 10), 2)
    counts = []
    for _ in range(int(rng.integers(3, 6))):
        peak, width = rng.normal(10, 4), rng.uniform(2, 5)
        log_rate = rng.uniform(1, 3) - ((warmth - peak) / width) ** 2 + rng.normal(0, 0.5, 8)[site]
        counts.append(rng.poisson(np.exp(np.clip(log_rate, -4, 5)) * rng.gamma(2, 0.5, n)))
    richness = np.sum([count > 0 for count in counts], axis=0)
    season = _choice(np.outer(_standard(warmth), [-1.5, 0, 1.5, 0.2]), rng)
    mud = _happens(1.5 * _standard(np.log(depth)) - 0.5, rng)
    return [depth, warmth, acidity, *counts, richness], [site, season, mud]


def _rules(n, rng):
    """Answers by the leaves of a tree of numbers and categories."""
    a, b, c = rng.uniform(0, 100, n), np.round(np.exp(rng.normal(3, 0.8, n))), rng.normal(size=n)
    first, second = _labels(n, 3, rng), _labels(n, 2, rng)
    levels = rng.normal(0, 1.5, (2, 2, 3))
    leaf = levels[(a > rng.uniform(30, 70)).astype(int), (b > np.median(b)).astype(int), first]
    answer = np.round(10 + 3 * (leaf + 0.4 * c * np.where(second == 1, 1, -1)), 1)
    answer = answer + rng.normal(0, 0.8, n)
    other = np.where((a > 50) == (second == 1), 20, 5) + 2 * rng.normal(size=n)
    score = np.round(np.clip(a / 10 + rng.normal(0, 1, n), 0, 10))
    grade = np.digitize(answer, np.quantile(answer, [0.2, 0.6, 0.9])).astype(float)
    alarm = ((b > np.quantile(b, 0.7)) & (a < 60)).astype(float)
    alarm = np.where(rng.random(n) < 0.03, 1 - alarm, alarm)
    return [a, b, c, answer, other, score], [first, second, grade, alarm]


def _survey(n, rng):
    kinds = int(rng.integers(3, 7))
    kind = _labels(n, kinds, rng)
    labels = [
        _choice(1.3 * rng.normal(size=(kinds, k))[kind] + 0.5 * rng.normal(size=k), rng)
        for k in rng.integers(2, 6, int(rng.integers(4, 9)))
    ]
    age = np.round(np.clip(rng.normal(25 + 8 * kind, 9), 18, 90))
    income = np.round(np.exp(rng.normal(7, 0.5, n) + rng.normal(0, 0.4, kinds)[kind]), -1)
    rating = np.clip(np.round(3 + rng.normal(0, 1, kinds)[kind] + rng.normal(0, 0.8, n)), 1, 5)
    band = np.digitize(income, np.quantile(income, [0.3, 0.6, 0.85])).astype(float)
    return [age, income, rating], [*labels, band]


def _dates(n, rng):
    day = np.sort(np.round(rng.uniform(14000, 15500, n)))
    yearly = np.sin(2 * np.pi * day / 365.25 + rng.uniform(0, 6))
    warmth = np.round(12 + 9 * yearly + rng.normal(0, 3, n), 1)
    store = _labels(n, int(rng.integers(2, 6)), rng)
    weekend = (day % 7 < 2).astype(float)
    holiday = _happens(np.full(n, -3.0), rng)
    visits = np.exp(4 + rng.normal(0, 0.6, 6)[store] + 0.0004 * (day - 14000) + 0.5 * weekend)
    visits = rng.poisson(visits * np.where(holiday == 1, 0.4, 1.0))
    sales = np.round(visits * np.exp(2.3 + 0.02 * (warmth - 12) + rng.normal(0, 0.15, n)), 2)
    rain = np.round(np.where(rng.random(n) < 0.55, 0, rng.gamma(0.8, 7, n)), 1)
    month = np.minimum(day % 365.25 // 30.5, 11)
    season = (month // 3).astype(float)
    return [day, warmth, visits, sales, rain, month], [store, weekend, holiday, season]


def _players(n, rng):
    role = _labels(n, 4, rng)
    age = np.round(np.clip(rng.normal(27, 4, n), 18, 41))
    games = np.round(82 * rng.beta(2, 1.3, n))
    skill = rng.normal(size=n) - 0.01 * (age - 27) ** 2
    attempts = rng.poisson(games * np.exp(1.1 + 0.3 * skill + rng.normal(0, 0.4, 4)[role]))
    hits = rng.binomial(attempts, 1 / (1 + np.exp(-(-0.9 + 0.15 * skill))))
    errors = rng.poisson(games * np.exp(-3 + rng.normal(0, 0.7, 4)[role]))
    years = np.maximum(0, age - np.round(rng.normal(21, 1.5, n)))
    salary = np.round(np.exp(5 + 0.6 * skill + 0.12 * np.minimum(years, 8) + rng.normal(0, 0.4, n)))
    average = np.round(hits / np.maximum(attempts, 1), 3)
    star = (salary > np.quantile(salary, 0.85)).astype(float)
    league = _labels(n, 2, rng)
    return [age, games, attempts, hits, errors, years, salary, average], [role, star, league]


def _firms(n, rng):
    sector = _labels(n, int(rng.integers(3, 7)), rng)
    size = rng.normal(size=n)
    sales = np.exp(4 + 1.2 * size + rng.normal(0, 0.3, n))
    costs = sales * np.clip(rng.normal(0.8, 0.1, n) + rng.normal(0, 0.08, 7)[sector], 0.3, 1.3)
    profit = sales - costs
    assets = np.exp(4.5 + 1.1 * size + rng.normal(0, 0.5, 7)[sector] + rng.normal(0, 0.4, n))
    debt = np.where(rng.random(n) < 0.2, 0.0, assets * rng.beta(2, 3, n))
    staff = np.round(np.exp(2 + 0.9 * size + rng.normal(0, 0.4, n))) + 1
    margin, leverage = profit / sales, debt / assets
    rating = np.digitize(margin - 0.3 * leverage + 0.05 * rng.normal(size=n), [-0.05, 0.05, 0.15])
    listed = _happens(1.5 * size - 1, rng)
    columns = [sales, costs, profit, assets, debt, staff, margin, leverage]
    return [np.round(own, 3) for own in columns], [sector, rating.astype(float), listed]


KINDS = {
    "births": _births,
    "wages": _wages,
    "houses": _houses,
    "claims": _claims,
    "scales": _scales,
    "engines": _engines,
    "species": _species,
    "rules": _rules,
    "survey": _survey,
    "dates": _dates,
    "players": _players,
    "firms": _firms,
}
