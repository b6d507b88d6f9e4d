"""Tables of the imputation exam, and the masks that hide their cells.

scikit-learn's tables, those of ``$SKCIRCUITS_DATA`` and simulated ones whose columns depend on one
another in ways that no single family of densities has by nature. ``random_7`` is the
table of seed 7, so that settings that were chosen on some seeds can be evaluated on others.
``process_7`` is drawn from one of several processes: low-rank, tied clusters, nonlinear, counts,
zero-inflated, categories that numbers depend on, regressions one after the other.
``realistic_7`` is drawn to look like a real table, ``structured_7`` has rules, parities, panels or
designs, ``keel_vehicle`` is a real one of `_keel`. ``domain_triage_250_7`` is of a kind of
`_domain_tables`, with 250 rows to fit and 800 others.
"""

import json

import numpy as np
import pandas as pd
from _data import data_path
from _domain_tables import domain_table
from _keel import KEEL, load_keel
from _realistic_tables import realistic_table
from _structured_tables import structured_table
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

__all__ = ["KEEL_TABLES", "TABLES", "hide", "load", "n_training_rows"]

BUNDLED = {
    "iris": load_iris,
    "wine": load_wine,
    "diabetes": load_diabetes,
    "breast_cancer": load_breast_cancer,
}
HYBRID = [
    *("anneal-U", "australian", "auto", "cars", "cleve", "cloud", "crx", "german", "german-org"),
    *("heart", "shuttle"),
]
INCOMPLETE = ["hepatitis", "horse_colic", "mammographic_masses", "pima_zeros_missing"]
REGRESSION = ["abalone", "delta-ailerons", "elevators", "insurance"]
_MOST_CATEGORIES = 10  # of a target of scikit-learn's tables
_N_OTHERS = 800  # rows of tables of domains that are not to fit


def load(name, max_rows):
    """Give a float table (codes of categories, NaN where missing), its categories, ordered ones."""
    ordered = []
    if name.startswith("random_"):
        X, categorical = _random_table(
            np.random.default_rng([1, int(name.removeprefix("random_"))])
        )
    elif name.startswith("process_"):
        X, categorical = _process_table(
            np.random.default_rng([2, int(name.removeprefix("process_"))])
        )
    elif name.startswith("realistic_"):
        X, categorical = realistic_table(int(name.removeprefix("realistic_")))
    elif name.startswith("structured_"):
        X, categorical = structured_table(int(name.removeprefix("structured_")))
    elif name.startswith("domain_"):
        _, kind, n_rows, seed = name.split("_")
        X, categorical, ordered = domain_table(kind, int(n_rows) + _N_OTHERS, int(seed))
    elif name.startswith("keel_"):
        X, categorical = _coded(load_keel(name.removeprefix("keel_")))
    elif name in SIMULATED:
        X, categorical = SIMULATED[name](np.random.default_rng(0))
    elif name in BUNDLED:
        bunch = BUNDLED[name]()
        X = np.column_stack([bunch.data, bunch.target])
        is_label = len(np.unique(bunch.target)) <= _MOST_CATEGORIES
        categorical = [X.shape[1] - 1] if is_label else []
    elif name in REGRESSION:
        X, categorical = _coded(pd.read_csv(data_path("svr", f"{name}_raw.csv.gz")))
    else:
        folder = "hybrid" if name in HYBRID else "missing"
        frame = pd.read_csv(data_path(folder, f"{name}.csv.gz"))
        columns = json.loads(data_path(folder, f"{name}.json").read_text())["columns"]
        kinds = {column["name"]: column["type"] for column in columns}
        X, categorical = _coded(frame[[column for column in frame if column in kinds]], kinds)
    order = np.random.default_rng(0).permutation(len(X))[:max_rows]
    X = X[order].astype(float)
    # a subset of the rows may have lost categories, or all that a column told
    told = np.array([len(np.unique(column[~np.isnan(column)])) > 1 for column in X.T])
    is_categorical = np.isin(np.arange(X.shape[1]), categorical)[told]
    is_ordered = np.isin(np.arange(X.shape[1]), ordered)[told]
    X = X[:, told]
    for j in np.flatnonzero(is_categorical):
        known = ~np.isnan(X[:, j])
        X[known, j] = np.unique(X[known, j], return_inverse=True)[1]
    return X, np.flatnonzero(is_categorical), np.flatnonzero(is_ordered)


def n_training_rows(name, n_rows):
    """How many of the rows of a table are to fit."""
    return n_rows - _N_OTHERS if name.startswith("domain_") else int(0.7 * n_rows)


def _coded(frame, kinds=None):
    """Codes of the categories of a dataframe, and which columns they are."""
    if kinds is None:
        kinds = {
            c: "number" if pd.api.types.is_numeric_dtype(frame[c]) else "categorical" for c in frame
        }
    parts = []
    for column in frame:
        if kinds[column] == "categorical":
            codes = pd.factorize(frame[column], sort=True)[0].astype(float)
            parts.append(np.where(codes < 0, np.nan, codes))
        else:
            parts.append(frame[column].to_numpy(dtype=float))
    categorical = [j for j, column in enumerate(frame) if kinds[column] == "categorical"]
    return np.column_stack(parts), categorical


def _cut(numbers, n_categories):
    """Categories of a number, of unequal frequency."""
    edges = np.quantile(numbers, np.sort(np.linspace(0, 1, n_categories + 1)[1:-1] ** 1.3))
    return np.searchsorted(edges, numbers).astype(float)


def _simulated_copula(rng):
    """Low-rank Gaussian dependence seen through skewed, counted and cut columns."""
    latent = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 14)) + 0.8 * rng.normal(size=(500, 14))
    latent /= latent.std(axis=0)
    columns = list(latent[:, :4].T)
    columns += [np.exp(column) for column in latent[:, 4:7].T]
    columns += [rng.poisson(np.exp(0.7 * column + 1)).astype(float) for column in latent[:, 7:10].T]
    columns += [_cut(column, k) for column, k in zip(latent[:, 10:].T, (2, 3, 4, 6), strict=True)]
    return np.column_stack(columns), [10, 11, 12, 13]


def _simulated_classes(rng):
    """Latent classes: categories and numbers are independent given five classes."""
    label = rng.choice(5, 450, p=[0.35, 0.25, 0.2, 0.1, 0.1])
    numbers = rng.normal(size=(5, 5)) * 1.3
    columns = [numbers[label, j] + rng.gamma(2.0, 0.5, 450) for j in range(5)]
    columns += [rng.poisson(rng.gamma(1.0, 4.0, 5)[label]).astype(float) for _ in range(2)]
    columns += [_drawn(rng.dirichlet(np.full(k, 0.4), 5)[label], rng) for k in (2, 2, 3, 4, 5, 3)]
    return np.column_stack(columns), list(range(7, 13))


def _drawn(probabilities, rng):
    """One category per row of probabilities."""
    cumulated = probabilities.cumsum(axis=1)
    return (
        (rng.random((len(cumulated), 1)) * cumulated[:, -1:] > cumulated).sum(axis=1).astype(float)
    )


def _simulated_curves(rng):
    """Smooth curves and thresholds of two drivers, with interactions by a category."""
    n = 400
    group = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    a, b = rng.uniform(-2, 2, n), rng.normal(size=n) + 0.6 * group
    columns = [a, b, a**2 + 0.4 * rng.normal(size=n), np.sin(2 * a) + 0.3 * rng.normal(size=n)]
    columns += [np.where(group == 1, b, -b) + 0.5 * rng.normal(size=n)]
    columns += [
        np.abs(b) * a + 0.5 * rng.normal(size=n),
        np.exp(0.5 * a + 0.3 * rng.normal(size=n)),
    ]
    columns += [rng.normal(size=n), group, _cut(a + 0.7 * rng.normal(size=n), 3)]
    columns += [(rng.random(n) < 1 / (1 + np.exp(-3 * columns[4]))).astype(float)]
    return np.column_stack(columns), [8, 9, 10]


def _simulated_chain(rng):
    """A chain of regressions and choices, each column taught by one or two before it."""
    n, columns, categorical = 350, [rng.normal(size=350)], []
    for j in range(1, 12):
        parents = rng.choice(j, min(j, 2), replace=False)
        mean = sum(
            rng.normal() * (columns[p] - np.mean(columns[p])) / np.std(columns[p]) for p in parents
        )
        cell = mean + 0.7 * rng.normal(size=n)
        if j % 3 == 0:
            categorical.append(j)
            cell = _cut(cell, int(rng.integers(2, 5)))
        elif j % 3 == 1:
            cell = np.round(np.exp(0.5 * cell) * 10)
        columns.append(cell)
    return np.column_stack(columns), categorical


def _simulated_wide(rng):
    """More than a column for every seven rows, few factors, and labels of two of them."""
    factors = rng.normal(size=(200, 4))
    X = factors @ rng.normal(size=(4, 30)) + rng.normal(size=(200, 30))
    return np.column_stack([X, _cut(factors[:, 0], 2), _cut(factors[:, 1] + factors[:, 2], 3)]), [
        30,
        31,
    ]


def _simulated_zeros(rng):
    """Amounts that are zero for many rows, integers of a short scale, and rounded measurements."""
    n = 450
    wealth, health = rng.normal(size=(2, n))
    amount = np.where(rng.random(n) < 1 / (1 + np.exp(1 - wealth)), np.exp(wealth + 3), 0.0)
    other = np.where(rng.random(n) < 0.6, 0.0, np.round(np.exp(2 + 0.5 * health) * 5))
    scales = [
        np.clip(np.round(3 + c * health + 0.8 * rng.normal(size=n)), 1, 5) for c in (1, 0.8, -1)
    ]
    age = np.round(45 + 12 * (0.5 * wealth - 0.4 * health + rng.normal(size=n)))
    size = np.round(170 + 8 * rng.normal(size=n), 0)
    weight = np.round(0.9 * (size - 100) + 8 * health + 5 * rng.normal(size=n), 1)
    job = _drawn(np.exp(np.outer(wealth, [-1, 0, 0.5, 1])), rng)
    smokes = (rng.random(n) < 1 / (1 + np.exp(1 + 1.5 * health))).astype(float)
    columns = [amount, other, *scales, age, size, weight, job, smokes]
    return np.column_stack(columns), [8, 9]


def _random_table(rng):
    """Columns that depend on factors and on columns before them, each in a way of its own."""
    n, n_columns = int(rng.integers(120, 600)), int(rng.integers(5, 18))
    seen = list(rng.normal(size=(n, int(rng.integers(1, 4)))).T)
    noise, categorical_rate = rng.choice([0.3, 0.7, 1.2]), rng.choice([0.0, 0.3, 0.6])
    columns, categorical = [], []
    for j in range(n_columns):
        chosen = rng.choice(len(seen), min(len(seen), int(rng.integers(1, 4))), replace=False)
        signal = _random_relation(np.stack([seen[i] for i in chosen]), rng)
        signal = signal / max(signal.std(), 1e-9) + noise * _random_noise(n, rng)
        if rng.random() < categorical_rate:
            column = _cut(signal, int(rng.integers(2, 6)))
            if rng.random() < 0.5:  # labels without an order
                column = rng.permutation(6)[column.astype(int)].astype(float)
            categorical.append(j)
        else:
            column = _random_scale(signal, rng)
        columns.append(column)
        seen.append((column - column.mean()) / max(column.std(), 1e-9))
    return np.column_stack(columns), categorical


def _random_relation(parents, rng):
    """Sums, products, waves, steps or a tree of some columns (k, n)."""
    slopes = rng.normal(size=len(parents))
    kind = rng.choice(["sum", "sum", "product", "wave", "steps", "tree"])
    if kind == "product":
        return parents.prod(axis=0) + slopes @ parents
    if kind == "wave":
        return np.sin(2.0 * slopes @ parents)
    if kind == "steps":
        return slopes @ (parents > rng.normal(size=(len(parents), 1)))
    if kind == "tree":
        leaf = np.zeros(parents.shape[1], dtype=int)
        for _ in range(3):
            split = rng.integers(len(parents))
            leaf = 2 * leaf + (parents[split] > np.quantile(parents[split], rng.uniform(0.2, 0.8)))
        return rng.normal(size=8)[leaf]
    return slopes @ parents


def _random_noise(n, rng):
    draws = rng.normal(size=n), rng.standard_t(3, n), rng.gamma(1.0, 1.0, n)
    return draws[rng.integers(3)]


def _random_scale(signal, rng):
    """Numbers as they are, skewed, rounded, counted, cut off or with heavy tails."""
    signal = np.clip(signal / signal.std(), -4.0, 4.0)
    kind = rng.integers(6)
    if kind == 1:
        return np.exp(signal)
    if kind == 2:
        return np.round(10.0 * signal)
    if kind == 3:
        return rng.poisson(np.exp(0.7 * signal + 1.0)).astype(float)
    if kind == 4:
        return np.maximum(signal, np.quantile(signal, rng.uniform(0.1, 0.6)))
    return np.sinh(signal) if kind == 5 else signal


def _process_table(rng):
    """A table of one process: half are small, one in ten is large."""
    sizes = [(100, 250), (250, 500), (500, 1500), (3000, 6000)]
    n = int(rng.integers(*sizes[rng.choice(4, p=[0.4, 0.3, 0.2, 0.1])]))
    n_columns = int(rng.integers(5, 16))
    process = rng.choice(list(_PROCESSES))
    numbers, labels = _PROCESSES[process](n, n_columns, rng)
    X = np.column_stack([numbers, *labels])
    order = rng.permutation(X.shape[1])
    return X[:, order], np.flatnonzero(order >= numbers.shape[1])


def _labels_of(signals, rng):
    """Labels without an order, noisy cuts of some signals (k, n)."""
    labels = []
    for signal in signals:
        size = int(rng.integers(2, 6))
        cut = _cut(
            signal / signal.std() + rng.uniform(0.1, 1.0) * rng.normal(size=len(signal)), size
        )
        labels.append(rng.permutation(size)[cut.astype(int)].astype(float))
    return labels


def _n_labels(n_columns, rng):
    return int(rng.integers(0, n_columns // 2 + 1))


def _low_rank_process(n, n_columns, rng):
    """A few factors, some columns skewed, labels cut from directions of the factors."""
    factors = rng.normal(size=(n, int(rng.integers(1, 5))))
    loadings = rng.normal(size=(factors.shape[1], n_columns))
    signals = factors @ loadings / np.sqrt(factors.shape[1])
    k = _n_labels(n_columns, rng)
    labels = _labels_of(signals[:, :k].T, rng)
    numbers = signals[:, k:] + rng.uniform(0.1, 1.0) * rng.normal(size=(n, n_columns - k))
    for j in np.flatnonzero(rng.random(n_columns - k) < rng.choice([0.0, 0.4])):
        numbers[:, j] = np.exp(numbers[:, j])
    return numbers, labels


def _clusters_process(n, n_columns, rng):
    """Clusters with one covariance; labels have frequencies of their own in each."""
    n_clusters, k = int(rng.integers(2, 9)), _n_labels(n_columns, rng)
    cluster = rng.choice(n_clusters, n, p=rng.dirichlet(np.full(n_clusters, 3.0)))
    size = n_columns - k
    mixing = rng.normal(size=(size, size)) / np.sqrt(size)
    centers = rng.uniform(0.5, 2.5) * rng.normal(size=(n_clusters, size))
    numbers = centers[cluster] + rng.normal(size=(n, size)) @ mixing
    sizes = rng.integers(2, 6, k)
    labels = [_drawn(rng.dirichlet(np.full(m, 0.5), n_clusters)[cluster], rng) for m in sizes]
    return numbers, labels


def _curves_process(n, n_columns, rng):
    """Curves, products and thresholds of a few drivers, which are among the columns."""
    drivers = rng.uniform(-2.0, 2.0, (int(rng.integers(2, 4)), n))
    columns, noise = list(drivers), rng.uniform(0.1, 0.6)
    while len(columns) < n_columns:
        a, b = drivers[rng.integers(len(drivers), size=2)]
        shapes = [
            a**2,
            np.sin(2.0 * a),
            np.abs(a) * b,
            np.tanh(3.0 * a) + b,
            np.exp(0.7 * a),
            a * b,
        ]
        signal = shapes[rng.integers(len(shapes))]
        columns.append(signal / signal.std() + noise * rng.normal(size=n))
    k = min(_n_labels(n_columns, rng), n_columns - 2)
    return np.column_stack(columns[: n_columns - k]), _labels_of(columns[n_columns - k :], rng)


def _counts_process(n, n_columns, rng):
    """Counts with rates that factors share, overdispersed ones among them."""
    factors = rng.normal(size=(n, int(rng.integers(1, 4))))
    signals = factors @ rng.normal(size=(factors.shape[1], n_columns)) / np.sqrt(factors.shape[1])
    k = _n_labels(n_columns, rng)
    rates = np.exp(rng.uniform(0.3, 0.9) * signals[:, k:] + rng.uniform(0.0, 3.0, n_columns - k))
    if rng.random() < 0.5:
        rates = rates * rng.gamma(3.0, 1.0 / 3.0, rates.shape)
    return rng.poisson(rates).astype(float), _labels_of(signals[:, :k].T, rng)


def _zeros_process(n, n_columns, rng):
    """Amounts that are zero or lognormal, both by the same factors, beside other numbers."""
    factors = rng.normal(size=(n, int(rng.integers(2, 5))))
    signals = factors @ rng.normal(size=(factors.shape[1], n_columns)) / np.sqrt(factors.shape[1])
    k = _n_labels(n_columns, rng)
    numbers = signals[:, k:] + rng.uniform(0.2, 0.8) * rng.normal(size=(n, n_columns - k))
    for j in np.flatnonzero(rng.random(n_columns - k) < 0.5):
        spends = rng.random(n) < 1.0 / (1.0 + np.exp(rng.normal() - 2.0 * numbers[:, j]))
        amount = np.exp(2.0 + 0.7 * numbers[:, j] + 0.3 * rng.normal(size=n))
        numbers[:, j] = np.where(spends, np.round(amount, 1), 0.0)
    return numbers, _labels_of(signals[:, :k].T, rng)


def _groups_process(n, n_columns, rng):
    """Numbers whose means, and slopes on a driver, depend on one or two categories."""
    first, second = (int(size) for size in rng.integers(2, 6, 2))
    labels = [rng.choice(m, n, p=rng.dirichlet(np.full(m, 2.0))) for m in (first, second)]
    driver, columns = rng.normal(size=n), []
    for _ in range(n_columns - 3):
        means, slopes = rng.normal(size=(first, second)), rng.normal(size=first)
        signal = means[labels[0], labels[1]] + slopes[labels[0]] * driver
        columns.append(signal + rng.uniform(0.2, 1.0) * rng.normal(size=n))
    more = _labels_of(columns[: int(rng.integers(0, 3))], rng)
    kept = columns[len(more) :] or columns[:1]
    return np.column_stack([driver, *kept]), [*(own.astype(float) for own in labels), *more]


def _chain_process(n, n_columns, rng):
    """Each column a regression, with gamma noise at times, or a choice, on columns before it."""
    seen, numbers, labels = [rng.normal(size=n)], [], []
    numbers.append(seen[0])
    rate = rng.choice([0.0, 0.3, 0.6])
    for _ in range(n_columns - 1):
        parents = rng.choice(len(seen), min(len(seen), 3), replace=False)
        signal = rng.normal(size=len(parents)) @ np.stack([seen[i] for i in parents])
        noise = rng.normal(size=n) if rng.random() < 0.7 else rng.gamma(1.0, 1.0, n) - 1.0
        signal = signal / signal.std() + rng.uniform(0.2, 1.2) * noise
        if rng.random() < rate:
            labels += _labels_of([signal], rng)
        else:
            numbers.append(signal)
        seen.append((signal - signal.mean()) / signal.std())
    return np.column_stack(numbers), labels


_PROCESSES = {
    "low_rank": _low_rank_process,
    "clusters": _clusters_process,
    "curves": _curves_process,
    "counts": _counts_process,
    "zeros": _zeros_process,
    "groups": _groups_process,
    "chain": _chain_process,
}

SIMULATED = {
    "simulated_copula": _simulated_copula,
    "simulated_classes": _simulated_classes,
    "simulated_curves": _simulated_curves,
    "simulated_chain": _simulated_chain,
    "simulated_wide": _simulated_wide,
    "simulated_zeros": _simulated_zeros,
}
TABLES = [*BUNDLED, *HYBRID, *INCOMPLETE, *REGRESSION, *SIMULATED]
KEEL_TABLES = [f"keel_{name}" for name in KEEL]


def hide(X, rate, mechanism, rng):
    """Mask of the cells to hide, about `rate` of the observed ones."""
    observed = ~np.isnan(X)
    if mechanism == "MCAR":
        return observed & (rng.random(X.shape) < rate)
    score = np.where(observed, X, np.nanmean(X, axis=0))
    score = (score - score.mean(axis=0)) / (score.std(axis=0) + 1e-12)
    if mechanism == "MAR":  # by one column that stays observed
        driver = int(rng.integers(X.shape[1]))
        slope = rng.choice([-1.5, 1.5])
        chance = 1 / (1 + np.exp(-slope * score[:, [driver]])) * np.ones(X.shape)
        chance[:, driver] = 0.0
    elif mechanism == "STEPS":  # the largest two fifths are hidden four times as often
        chance = np.where(score > np.quantile(score, 0.6, axis=0), 0.8, 0.2)
    else:  # large cells are hidden more often
        chance = 1 / (1 + np.exp(-1.5 * score))
    chance *= rate / max(chance[:, chance.sum(axis=0) > 0].mean(), 1e-12)
    return observed & (rng.random(X.shape) < chance)
