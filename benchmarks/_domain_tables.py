"""Tables of eighteen domains, each drawn anew from a seed, in two halves.

What was changed because of these tables was developed on the kinds of the first half; those of the
second were looked at only afterwards. Each difficulty is in both: answers on ordered scales, sums
over many categories, classes that differ by their covariances, wide categorical tables, manifolds,
heavy tails, clipped values.
"""

import numpy as np

__all__ = ["APART", "DEVELOPMENT", "KINDS", "domain_table"]


def domain_table(kind, n, seed):
    """A table of ``n`` rows, and which of its columns are categories, and ordered ones."""
    rng = np.random.default_rng([5, list(KINDS).index(kind), seed])
    numbers, labels, scales = KINDS[kind](n, rng)
    columns = [*numbers, *labels, *scales]
    order = rng.permutation(len(columns))
    X = np.column_stack([columns[i] for i in order]).astype(float)
    is_category = order >= len(numbers)
    is_ordered = order >= len(numbers) + len(labels)
    return X, np.flatnonzero(is_category), np.flatnonzero(is_ordered)


def _frequent(size, rng, evenness=1.5):
    return rng.dirichlet(np.full(size, evenness))


def _draw(n, size, rng, evenness=1.5):
    return rng.choice(size, n, p=_frequent(size, rng, evenness))


def _occurs(logit, rng):
    return rng.random(len(logit)) < 1.0 / (1.0 + np.exp(-logit))


def _cut(numbers, quantiles):
    return np.searchsorted(np.quantile(numbers, quantiles), numbers)


# ---- Development ----


def _rentals(n, rng):
    """Rentals per hour: daily, weekly and yearly cycles, weather, and counts that add up."""
    hour, day = rng.integers(0, 24, n), rng.integers(0, 365, n)
    workday = rng.random(n) < 0.7
    year = np.cos(2 * np.pi * (day - 200) / 365)
    warmth = 12 + 10 * year + 3 * np.sin(2 * np.pi * (hour - 9) / 24) + rng.normal(0, 3, n)
    weather = np.digitize(rng.normal(size=n) - 0.3 * year, [0.3, 1.0, 1.8])
    humidity = np.clip(60 + 12 * weather - 0.8 * (warmth - 12) + rng.normal(0, 8, n), 10, 100)
    rush = np.exp(-((hour - 8) ** 2) / 4) + np.exp(-((hour - 17) ** 2) / 6)
    noon = np.exp(-((hour - 14) ** 2) / 18)
    level = 3 + 0.04 * warmth - 0.3 * weather + rng.normal(0, 0.2, n)
    members = rng.poisson(np.exp(level + np.where(workday, 1.5 * rush, 0.8 * noon)))
    guests = rng.poisson(np.exp(level - 1.5 + np.where(workday, 0.6, 1.6) * noon))
    numbers = [hour, day // 30.5, warmth.round(1), humidity.round(), members, guests]
    return [*numbers, members + guests], [workday, weather], []


def _doses(n, rng):
    """Viability of cells under compounds: curves of Hill with replicates and plates."""
    size = int(rng.integers(4, 9))
    compound, line = _draw(n, size, rng), _draw(n, 3, rng)
    dose = np.array([0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0])[rng.integers(0, 8, n)]
    half = np.exp(rng.normal(1, 1.3, size))[compound] * np.exp(rng.normal(0, 0.5, 3))[line]
    slope = rng.uniform(0.7, 2.5, size)[compound]
    plate = rng.integers(0, 6, n)
    alive = 100 / (1 + (dose / half) ** slope)
    viability = np.clip(alive + rng.normal(0, 2, 6)[plate] + rng.normal(0, 5, n), 0, 120)
    signal = 50 * viability * np.exp(rng.normal(0, 0.1, n))
    stress = np.exp(0.5 + 1.5 * (1 - alive / 100) + rng.normal(0, 0.3, n))
    toxic = viability < 50
    return [dose, viability.round(1), signal.round(), stress, plate], [compound, line, toxic], []


def _likert(n, rng):
    """Answers from one to five, some to reversed questions, by few attitudes."""
    attitudes = rng.normal(size=(n, 3)) @ np.linalg.cholesky(0.4 + 0.6 * np.eye(3)).T
    style = rng.normal(0, 0.3, n)
    items = []
    for j in range(int(rng.integers(9, 14))):
        value = rng.choice([-1, 1], p=[0.3, 0.7]) * rng.uniform(0.7, 1.3) * attitudes[:, j % 3]
        value += style + rng.normal(0, 0.7, n)
        items.append(np.digitize(value, rng.normal(0, 0.3) + np.array([-1.4, -0.5, 0.5, 1.4])))
    age = np.clip(40 + 8 * attitudes[:, 0] + rng.normal(0, 12, n), 18, 90).round()
    sex = rng.integers(0, 2, n)
    region = (attitudes @ rng.normal(0, 0.7, (3, 4)) + rng.gumbel(size=(n, 4))).argmax(axis=1)
    return [age], [sex, region], items


def _invoices(n, rng):
    """Prices of many products, fees of places, and the sums of all before."""
    product, place = (
        _draw(n, int(rng.integers(15, 30)), rng),
        _draw(n, int(rng.integers(6, 12)), rng),
    )
    price = rng.gamma(3, 15, product.max() + 1)[product] * np.exp(rng.normal(0, 0.02, n))
    weight = rng.gamma(2, 3, product.max() + 1)[product] + rng.normal(0, 0.2, n)
    fee = rng.gamma(3, 4, place.max() + 1)[place] + 0.8 * weight + rng.normal(0, 0.5, n)
    discount = rng.choice([0.0, 5.0, 10.0], n, p=[0.6, 0.3, 0.1])
    net = price + fee - discount
    tax = np.array([0.07, 0.19])[rng.integers(0, 2, product.max() + 1)[product]] * net
    numbers = [price, weight, fee, discount, net, tax, net + tax]
    department = rng.integers(0, 5, product.max() + 1)[product]
    return [own.round(2) for own in numbers], [product, place, department], []


def _regimes(n, rng):
    """Sensors of a machine, whose couplings rather than levels differ between regimes."""
    n_regimes, d = int(rng.integers(3, 6)), int(rng.integers(6, 10))
    regime = _draw(n, n_regimes, rng)
    mixing = rng.normal(size=(n_regimes, d, 3))
    loads = rng.normal(size=(n, 3))
    values = np.einsum("nij,nj->ni", mixing[regime], loads)
    values += 0.4 * rng.normal(size=(n_regimes, d))[regime] + 0.3 * rng.normal(size=(n, d))
    alarm = np.abs(values[:, 0]) > np.quantile(np.abs(values[:, 0]), 0.85)
    valve = _occurs(2 * loads[:, 1], rng)
    return list(values.round(2).T), [regime, alarm, valve], []


def _checklists(n, rng):
    """Thirty findings of three to five states, by kinds of case and a few severities."""
    n_kinds = int(rng.integers(4, 9))
    kind, severity = _draw(n, n_kinds, rng), rng.normal(size=(n, 4))
    labels = []
    for _ in range(30):
        size = int(rng.integers(3, 6))
        logits = rng.normal(0, 1.0, (n_kinds, size))[kind] + rng.normal(0, 0.5, size)
        logits += np.outer(severity[:, rng.integers(4)], rng.normal(0, 1.5, size))
        labels.append((logits + rng.gumbel(size=logits.shape)).argmax(axis=1))
    return [], labels, []


def _assays(n, rng):
    """Concentrations between the limits of detection of their assays, in batches."""
    factors = rng.normal(size=(n, 3))
    batch, group = _draw(n, 4, rng), rng.integers(0, 2, n)
    columns = []
    for _ in range(int(rng.integers(7, 11))):
        log = factors @ rng.normal(0, 0.7, 3) + rng.normal(0, 0.3, 4)[batch]
        log += rng.choice([0.0, 0.8]) * group + 0.4 * rng.normal(size=n)
        low, high = np.quantile(log, [rng.choice([0.0, 0.1, 0.4]), rng.choice([1.0, 0.9])])
        columns.append(np.exp(np.clip(log, low, high)).round(3))
    age = np.clip(50 + 8 * factors[:, 0] + rng.normal(0, 10, n), 18, 95).round()
    sick = _occurs(2 * factors[:, 1] + group - 0.5, rng)
    return [*columns, age], [batch, group, sick], []


def _arms(n, rng):
    """Angles of the joints of an arm, and where its elbow and hand are."""
    a, b = rng.uniform(-1.2, 1.2, n), rng.uniform(0.1, 2.2, n)
    turn = rng.uniform(-np.pi / 2, np.pi / 2, n)
    reach = np.cos(a) + 0.8 * np.cos(a + b)
    height = np.sin(a) + 0.8 * np.sin(a + b)
    torque = 3 * reach + np.cos(a) + 0.1 * rng.normal(size=n)
    columns = [a, b, turn, reach * np.cos(turn), reach * np.sin(turn), height, torque]
    columns = [own + 0.02 * rng.normal(size=n) for own in columns]
    zone = 2 * (height > 0.8) + (turn > 0)
    return columns, [zone, reach > np.quantile(reach, 0.8)], []


def _citations(n, rng):
    """Counts without bounds: authors, papers, citations, and indices made of them."""
    field, career = _draw(n, 5, rng), rng.gamma(2, 7, n).round() + 1
    talent = rng.normal(size=n)
    papers = rng.poisson(career * np.exp(0.6 * talent + rng.normal(0, 0.4, 5)[field])) + 1
    rate = np.exp(1.5 + 0.7 * talent + rng.normal(0, 0.6, 5)[field] + rng.normal(0, 0.6, n))
    citations = rng.poisson(papers * rate)
    index = np.round(np.sqrt(citations) * 0.54 * np.exp(rng.normal(0, 0.1, n)))
    grants = rng.negative_binomial(1, 1 / (1 + np.exp(0.5 * talent + 0.03 * career)))
    followers = np.floor(np.exp(3 + talent + rng.standard_t(3, n)))
    tenured = _occurs(0.2 * (career - 12) + talent, rng)
    return [career, papers, citations, index, grants, followers], [field, tenured], []


# ---- Apart ----


def _stations(n, rng):
    """Measurements at places on a map, smooth in space, and classes of ground."""
    places = rng.uniform(0, 10, (n, 2))
    waves, phases = rng.normal(0, 0.6, (12, 2)), rng.uniform(0, 2 * np.pi, 12)
    basis = np.cos(places @ waves.T + phases)
    fields = basis @ rng.normal(0, 0.4, (12, 5))
    elevation = np.exp(5 + 0.8 * fields[:, 0]).round()
    warmth = 18 - 0.006 * elevation + fields[:, 1] + rng.normal(0, 0.4, n)
    rain = np.exp(6 + 0.4 * fields[:, 2] + 0.0005 * elevation + rng.normal(0, 0.1, n)).round()
    metal = np.exp(fields[:, 3] + rng.normal(0, 0.3, n)).round(2)
    ground = (fields @ rng.normal(0, 1.5, (5, 4)) + rng.gumbel(size=(n, 4)) * 0.5).argmax(axis=1)
    flooded = _occurs(3 * fields[:, 4] - 0.01 * (elevation - 150), rng)
    return [*places.round(2).T, elevation, warmth.round(1), rain, metal], [ground, flooded], []


def _budgets(n, rng):
    """Incomes with heavy tails, what is spent on what, and what is left."""
    region, size = _draw(n, 5, rng), rng.choice(5, n, p=[0.35, 0.3, 0.15, 0.15, 0.05]) + 1
    income = np.exp(7.5 + 0.6 * rng.normal(size=n) + rng.normal(0, 0.2, 5)[region])
    income = np.where(rng.random(n) < 0.05, income * rng.pareto(1.8, n) * 2 + income, income)
    rent = income**0.7 * np.exp(1.1 + rng.normal(0, 0.15, 5)[region] + rng.normal(0, 0.2, n))
    food = income**0.4 * size**0.5 * np.exp(2.4 + rng.normal(0, 0.2, n))
    travel = np.where(rng.random(n) < 0.3, 0.0, 0.06 * income * np.exp(rng.normal(0, 0.7, n)))
    saved = income - rent - food - travel
    wealth = np.maximum(saved, 50) * rng.gamma(2, 12, n)
    owner = _occurs(1.2 * (np.log(wealth) - 9), rng)
    numbers = [income, rent, food, travel, saved, wealth]
    return [size, *(own.round() for own in numbers)], [region, owner], []


def _branches(n, rng):
    """Shops in cities in regions, several of them rare, and amounts that add their effects."""
    shop = _draw(n, 36, rng, 0.5)
    city, goods = rng.integers(0, 14, 36)[shop], _draw(n, 12, rng, 0.6)
    region = rng.integers(0, 4, 14)[city]
    group = rng.integers(0, 4, 12)[goods]
    base = 40 + rng.normal(0, 10, 14)[city] + rng.normal(0, 12, 12)[goods]
    base += rng.normal(0, 4, 36)[shop] + rng.normal(0, 3, n)
    staff = rng.poisson(rng.gamma(4, 2, 36)[shop] + 1)
    cost = 0.6 * base + 1.5 * staff + rng.normal(0, 1, n)
    numbers = [base, cost, base - cost, staff]
    return [own.round(1) for own in numbers], [shop, city, region, goods, group], []


def _orders(n, rng):
    """Rising numbers of orders beside dates, numbers of customers, codes of places, prices."""
    order = np.sort(rng.choice(10 * n, n, replace=False)) + 100_000
    date = (order - 100_000) / (10 * n) * 730 + rng.normal(0, 2, n)
    joined = rng.uniform(0, 1, n) * date
    customer = (5_000 + 20 * joined + rng.normal(0, 30, n)).round()
    post = rng.integers(10, 99, 25)[_draw(n, 25, rng, 0.8)] * 1000 + rng.integers(0, 999, n)
    zone = post // 20_000
    quantity = rng.geometric(0.4, n)
    unit = rng.choice([4.99, 9.99, 14.5, 29.0, 99.0], n, p=[0.3, 0.3, 0.2, 0.15, 0.05])
    unit = unit * np.where(date > 365, 1.1, 1.0)
    days = rng.poisson(2 + 0.8 * zone)
    gift = _occurs(-2 + 2 * (np.cos(2 * np.pi * date / 365) > 0.8), rng)
    numbers = [order, date.round(), customer, post, quantity, unit.round(2), days]
    return [*numbers, (quantity * unit).round(2)], [zone, gift], []


def _formulas(n, rng):
    """Voltages, currents, powers: products and quotients of columns, and who interacts."""
    volts = rng.choice([12.0, 24.0, 48.0], n) * np.exp(rng.normal(0, 0.04, n))
    ohms = np.exp(rng.normal(1.5, 0.5, n))
    amperes = volts / ohms * np.exp(rng.normal(0, 0.03, n))
    watts = volts * amperes * np.exp(rng.normal(0, 0.03, n))
    material, cooled = _draw(n, 3, rng), rng.integers(0, 2, n)
    area = np.exp(rng.normal(1, 0.3, n))
    rise = np.array([0.4, 1.0, 1.6])[material] * np.where(cooled, 0.4, 1.0) * watts / area / 3
    rise = rise + rng.normal(0, 3, n)
    hot = (rise > np.quantile(rise, 0.7)).astype(int)
    swap = np.where(rng.random(n) < 0.05, rng.integers(0, 2, n), cooled ^ (material == 2))
    return [volts, ohms, amperes, watts, area, rise], [material, cooled, hot, swap], []


def _triage(n, rng):
    """Grades of patients, from none to severe, beside vital signs and values of the laboratory."""
    illness, frailty = rng.normal(size=(2, n))
    age = np.clip(55 + 14 * frailty + rng.normal(0, 8, n), 18, 98).round()
    scales = []
    for size in (3, 4, 4, 5, 6, 10):
        value = rng.uniform(0.8, 1.4) * illness + rng.normal(0, 0.6) * frailty
        value += rng.normal(0, 0.7, n)
        scales.append(_cut(value, np.sort(rng.uniform(0.1, 0.95, size - 1))))
    pulse = (75 + 9 * illness + rng.normal(0, 9, n)).round()
    pressure = (130 + 8 * frailty - 6 * illness + rng.normal(0, 10, n)).round()
    protein = np.exp(1.5 + 0.8 * illness + rng.normal(0, 0.5, n)).round(1)
    ward = (np.outer(illness, [-1.5, 0, 1.5]) + rng.gumbel(size=(n, 3))).argmax(axis=1)
    admitted = _occurs(2 * illness + 0.5 * frailty, rng)
    return [age, pulse, pressure, protein], [ward, admitted, rng.integers(0, 2, n)], scales


def _motions(n, rng):
    """Three axes of two accelerometers: what is done shows in amplitudes and correlations."""
    activity = _draw(n, 5, rng, 3.0)
    amplitude = np.exp(rng.normal(0, 0.7, (5, 6)))
    coupling = np.stack([np.linalg.qr(rng.normal(size=(6, 6)))[0] for _ in range(5)])
    spread = np.exp(rng.normal(0, 0.8, (5, 6)))
    values = np.einsum("nij,nj->ni", coupling[activity], spread[activity] * rng.normal(size=(n, 6)))
    values = values * amplitude[activity] + rng.normal(0, 0.3, (5, 6))[activity]
    energy = np.log(np.square(values).sum(axis=1))
    pulse = (70 + 8 * energy + rng.normal(0, 5, n)).round()
    return [*values.round(3).T, pulse], [activity, rng.integers(0, 2, n)], []


def _genotypes(n, rng):
    """Pairs of chromosomes, each copied from one of a few ancestors with rare changes of these."""
    width, n_ancestors = 28, int(rng.integers(4, 8))
    ancestors = rng.random((n_ancestors, width)) < rng.uniform(0.1, 0.6, width)
    total = np.zeros((n, width), dtype=int)
    for _ in range(2):
        own = rng.integers(0, n_ancestors, n)
        for j in range(width):
            own = np.where(rng.random(n) < 0.12, rng.integers(0, n_ancestors, n), own)
            total[:, j] += ancestors[own, j] ^ (rng.random(n) < 0.01)
    trait = total[:, [3, 14]].sum(axis=1) * 0.8 + rng.normal(0, 1, n)
    return [trait], list(total.T), []


def _soils(n, rng):
    """Shares of sand, silt and clay, which add to a hundred, and what follows from them."""
    horizon = _draw(n, 3, rng)
    logits = (
        rng.normal(size=(n, 2)) @ rng.normal(0, 0.9, (2, 3)) + rng.normal(0, 0.5, (3, 3))[horizon]
    )
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    sand, silt, clay = (100 * shares).round(1).T
    organic = np.exp(0.8 - 0.5 * horizon + 0.01 * clay + rng.normal(0, 0.4, n)).round(2)
    density = 1.6 - 0.08 * organic - 0.002 * clay + rng.normal(0, 0.04, n)
    water = 5 + 0.4 * clay + 2.5 * organic + rng.normal(0, 2, n)
    acid = np.clip(6.5 - 0.2 * organic + rng.normal(0, 0.6, n), 3.5, 9)
    texture = np.where(clay > 40, 0, np.where(sand > 60, 1, np.where(silt > 50, 2, 3)))
    numbers = [sand, silt, clay, organic, density.round(2), water.round(1), acid.round(1)]
    return numbers, [horizon, texture], []


DEVELOPMENT = {
    "rentals": _rentals,
    "doses": _doses,
    "likert": _likert,
    "invoices": _invoices,
    "regimes": _regimes,
    "checklists": _checklists,
    "assays": _assays,
    "arms": _arms,
    "citations": _citations,
}
APART = {
    "stations": _stations,
    "budgets": _budgets,
    "branches": _branches,
    "orders": _orders,
    "formulas": _formulas,
    "triage": _triage,
    "motions": _motions,
    "genotypes": _genotypes,
    "soils": _soils,
}
KINDS = DEVELOPMENT | APART
