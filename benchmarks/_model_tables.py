"""Tables to predict on, with missing values of several kinds."""

import numpy as np
import pandas as pd
from _data import data_path
from _keel import KEEL, load_keel
from _realistic_tables import KINDS, realistic_table
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine, make_friedman1

__all__ = ["SETS", "hide", "is_classification", "load", "n_training_rows"]

# name: (folder, target, columns that hold categories); None: one of scikit-learn's
CLASSES = {
    "iris": None,
    "wine": None,
    "breast cancer": None,
    "heart": ("hybrid", "class", ["ChestPain", "ECG", "Thal", "STSlope"]),
    "cleve": ("hybrid", "class", ["Chest pain type", "Resting ecg"]),
    "australian": ("hybrid", "class", ["A4", "A5", "A6"]),
    "german": ("hybrid", "class", ["Status", "Credit-history", "Purpose", "Savings-account"]),
    "diabetes": ("hybrid", "class", []),
    "mammographic_masses": ("missing", "severity", ["shape", "margin"]),
    "hepatitis": ("missing", None, []),
}
NUMBERS = {
    "diabetes progression": None,
    "friedman1": None,
    "abalone": ("svr", "Rings", ["Sex"]),
    "elevators": ("svr", None, []),
    "delta-ailerons": ("svr", "Sa", []),
    "insurance": ("svr", "charges", ["sex", "smoker", "region"]),
    "cars": ("hybrid", "MPG", ["brand"]),
    "cloud": ("hybrid", "vis_mean", []),
}
# Further classifications, by which nothing was chosen
MORE_CLASSES = {
    "anneal-U": ("hybrid", "class", ["family", "steel", "surface-quality", "shape"]),
    "crx": ("hybrid", "class", ["A4", "A5", "A6", "A7"]),
    "shuttle": ("hybrid", "class", []),
    "horse_colic": ("missing", "surgical_lesion", ["temp_extremities", "pain", "abdomen"]),
    "pima_zeros_missing": ("missing", "class", []),
}
KEEL_TABLES = [f"keel_{name}" for name in KEEL]
GENERATED = {f"generated {kind}": kind for kind in KINDS}
N_TEST = 1200  # rows of generated tables: they resolve differences of 1 %
# Sets of tables by name
SETS = {
    "all": [*CLASSES, *NUMBERS],
    "classes": [*CLASSES, *MORE_CLASSES, *KINDS],
    "numbers": list(NUMBERS),
    "keel": KEEL_TABLES,
    "generated": list(GENERATED),
}
_FEWEST_ROWS = 15  # of a class that calibration in three folds can do with


def is_classification(name):
    """Whether the target of a table holds classes."""
    return name not in NUMBERS


def load(name, seed, n_rows=900):
    """Columns as a dataframe and target, rows in random order."""
    is_classes = is_classification(name)
    if name in KEEL_TABLES:
        X, y = _from_keel(name.removeprefix("keel_"), seed, n_rows)
    elif name in KINDS:
        X, y = _with_target(*realistic_table(list(KINDS).index(name)), _FEWEST_ROWS)
    elif name in GENERATED:
        X, y = _generated(GENERATED[name], seed, n_rows)
        n_rows = len(y)
    else:
        source = (CLASSES | MORE_CLASSES | NUMBERS)[name]
        X, y = _bundled(name, seed, n_rows) if source is None else _from_file(name, *source)
    order = np.random.default_rng(seed).permutation(len(y))[:n_rows]
    if is_classes:
        order = order[_is_frequent(np.asarray(y)[order])]
    y = np.asarray(y)[order]
    return X.iloc[order].reset_index(drop=True), y if is_classes else y / y.std()


def _is_frequent(y):
    """Tell which rows have a class that enough others have."""
    _, classes, sizes = np.unique(y, return_inverse=True, return_counts=True)
    return sizes[classes] >= _FEWEST_ROWS


def _bundled(name, seed, n_rows):
    loaders = {
        "iris": load_iris,
        "wine": load_wine,
        "breast cancer": load_breast_cancer,
        "diabetes progression": load_diabetes,
    }
    if name in loaders:
        X, y = loaders[name](return_X_y=True)
        X = X[:, :10] if name == "breast cancer" else X
    else:
        X, y = make_friedman1(n_rows, n_features=10, noise=1.0, random_state=seed)
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]), y


def _from_keel(name, seed, n_rows):
    """Some rows of a KEEL table."""
    table = load_keel(name)
    table = table.sample(min(len(table), n_rows), random_state=seed)
    X = table.drop(columns="class")
    return X[[c for c in X if X[c].nunique() > 1]], table["class"].astype(str).to_numpy()


def n_training_rows(name, n_rows):
    """How many of the first rows of a loaded table are for training."""
    return n_rows - N_TEST if name in GENERATED else 2 * n_rows // 3


def _generated(kind, seed, n_rows):
    """A table with as many training rows, and further rows for the test."""
    numbers, labels = KINDS[kind](n_rows + N_TEST, np.random.default_rng([19, seed]))
    categories = np.arange(len(numbers), len(numbers) + len(labels))
    least = _FEWEST_ROWS * (n_rows + N_TEST) / n_rows
    return _with_target(np.column_stack([*numbers, *labels]).astype(float), categories, least)


def _with_target(cells, categories, fewest):
    """A frame and its target, the first category all of whose states have enough rows."""
    table = pd.DataFrame(cells, columns=[f"x{j}" for j in range(cells.shape[1])])
    for column in table.columns[categories]:
        table[column] = table[column].map(lambda cell: f"c{cell:.0f}").astype("category")
    sizes = {c: table[c].value_counts().min() for c in table.columns[categories]}
    target = next(c for c, size in sizes.items() if size >= fewest)
    return table.drop(columns=target), table[target].astype(str).to_numpy()


def _from_file(name, folder, target, categories):
    suffix = "_raw" if folder == "svr" else ""
    table = pd.read_csv(data_path(folder, f"{name}{suffix}.csv.gz")).drop(
        columns="split", errors="ignore"
    )
    target = table.columns[-1] if target is None else target
    table = table[table[target].notna()]
    X, y = table.drop(columns=target), table[target]
    # Targets of other tasks say too much
    X = X.drop(columns=[c for c in ("class",) if c in X])
    for column in X:
        if column in categories or not pd.api.types.is_numeric_dtype(X[column]):
            X[column] = (
                X[column].map(lambda cell: f"c{cell}", na_action="ignore").astype("category")
            )
        else:
            X[column] = X[column].astype(float)
    return X, y.to_numpy()


def hide(X, rate, seed, mechanism):
    """Hide values: completely at random, or at a rate that grows with another or their own value.

    Under "MAR" that is the first column, which misses nothing; under "MNAR" the value itself.
    """
    rng = np.random.default_rng(seed)
    rates = np.full(X.shape, rate)
    if mechanism == "MAR":
        rates = np.repeat(2.0 * rate * _ranks(X.iloc[:, 0])[:, None], X.shape[1], 1)
        rates[:, 0] = 0.0
    elif mechanism == "MNAR":
        rates = 2.0 * rate * np.stack([_ranks(X[column]) for column in X], axis=1)
    return X.mask(rng.random(X.shape) < rates)


def _ranks(values):
    """Ranks of a column between 0 and 1; those of missing values do not matter."""
    values = values.cat.codes if hasattr(values, "cat") else values
    return values.rank(pct=True).fillna(0.0).to_numpy()
