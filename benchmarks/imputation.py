"""Imputation exam: cells hidden in held-out rows, ours beside the usual imputers.

Tables: scikit-learn's, the hybrid and the incomplete ones. Masks: completely at random (MCAR),
depending on an observed column (MAR), depending on the hidden cell itself (MNAR). Half of the rows
teach, the other half are imputed; cells are hidden in both. Numbers: root mean squared error in
standard deviations of the column; categories: fraction of wrong ones; then seconds of fit and
transform. Peers get categories as one-hot columns (the largest wins).

Run: OMP_NUM_THREADS=1 python benchmarks/imputation.py [--tables iris crx] [--rates .3]
     [--masks MCAR MAR] [--imputers ours iterative] [--seeds 2]
"""

import argparse
import json
import time
import warnings

import numpy as np
import pandas as pd
from _data import data_path
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_linnerud, load_wine
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from skcircuits import CircuitImputer

BUNDLED = {
    "iris": load_iris,
    "wine": load_wine,
    "diabetes": load_diabetes,
    "breast_cancer": load_breast_cancer,
    "linnerud": load_linnerud,
}
HYBRID = ["australian", "auto", "cars", "cleve", "cloud", "crx", "german-org", "heart"]
INCOMPLETE = ["hepatitis", "horse_colic", "mammographic_masses", "pima_zeros_missing"]
TABLES = [*BUNDLED, *HYBRID, *INCOMPLETE]
MAX_ROWS = 2000


def load(name):
    """Give a float table (categories as codes, NaN where missing) and the categorical columns."""
    if name in BUNDLED:
        bunch = BUNDLED[name]()
        X = np.column_stack([bunch.data, bunch.target])
        n_classes = len(np.unique(bunch.target))
        return X, np.array([X.shape[1] - 1] if n_classes <= 10 else [], dtype=int)
    folder = "hybrid" if name in HYBRID else "missing"
    frame = pd.read_csv(data_path(folder, f"{name}.csv.gz")).drop(columns="split", errors="ignore")
    columns = json.loads(data_path(folder, f"{name}.json").read_text())["columns"]
    kinds = {column["name"]: column["type"] for column in columns}
    frame = frame[[column for column in frame if column in kinds]]
    is_category = np.array([kinds[column] == "categorical" for column in frame])
    X = np.column_stack(
        [
            pd.factorize(frame[column], sort=True)[0] if category else frame[column].astype(float)
            for column, category in zip(frame, is_category, strict=True)
        ]
    ).astype(float)
    X[:, is_category] = np.where(X[:, is_category] < 0, np.nan, X[:, is_category])
    order = np.random.default_rng(0).permutation(len(X))[:MAX_ROWS]
    return X[order], np.flatnonzero(is_category)


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
    else:  # large cells are hidden more often
        chance = 1 / (1 + np.exp(-1.5 * score))
    chance *= rate / max(chance[:, chance.sum(axis=0) > 0].mean(), 1e-12)
    return observed & (rng.random(X.shape) < chance)


class OneHot:
    """Give an imputer of numbers one-hot columns, and read its categories off the largest."""

    def __init__(self, imputer, categorical):
        self.imputer, self.categorical = imputer, categorical

    def fit(self, X):
        self.n_states = {j: int(np.nanmax(X[:, j])) + 1 for j in self.categorical}
        self.numerical = [j for j in range(X.shape[1]) if j not in self.n_states]
        self.imputer.fit(self._expand(X))
        return self

    def _expand(self, X):
        parts = [X[:, self.numerical]]
        for j, k in self.n_states.items():
            one_hot = (X[:, [j]] == np.arange(k)).astype(float)
            parts.append(np.where(np.isnan(X[:, [j]]), np.nan, one_hot))
        return np.hstack(parts)

    def transform(self, X):
        filled = self.imputer.transform(self._expand(X))
        result, start = X.copy(), len(self.numerical)
        result[:, self.numerical] = filled[:, :start]
        for j, k in self.n_states.items():
            result[:, j] = filled[:, start : start + k].argmax(axis=1)
            start += k
        return np.where(np.isnan(X), result, X)


def make_imputers(categorical):
    """Imputers by name, each a function that makes one."""
    trees = {"n_estimators": 30, "min_samples_leaf": 3, "n_jobs": 1, "random_state": 0}
    makers = {
        "mean": lambda: SimpleImputer(keep_empty_features=True),
        "knn": lambda: KNNImputer(n_neighbors=10, keep_empty_features=True),
        "iterative": lambda: IterativeImputer(random_state=0, keep_empty_features=True),
        "trees": lambda: IterativeImputer(
            ExtraTreesRegressor(**trees), max_iter=5, random_state=0, keep_empty_features=True
        ),
    }
    imputers = {
        name: lambda make=make: OneHot(make(), categorical) for name, make in makers.items()
    }
    return {
        "ours": lambda: CircuitImputer(
            categorical_features=categorical, keep_empty_features=True, random_state=0
        ),
        **imputers,
    }


def errors(filled, X, hidden, categorical):
    """Error of numbers in standard deviations, error rate of categories (NaN where none)."""
    filled = np.asarray(filled, dtype=float)
    numbers, categories = [], []
    for j in np.flatnonzero(hidden.any(axis=0)):
        rows = hidden[:, j]
        if j in categorical:
            categories.append(np.mean(filled[rows, j] != X[rows, j]))
        elif np.nanstd(X[:, j]) > 0:
            off = filled[rows, j] - X[rows, j]
            numbers.append(np.sqrt(np.mean(off**2)) / np.nanstd(X[:, j]))
    return [np.mean(found) if found else np.nan for found in (numbers, categories)]


def run(name, mechanism, rate, seed, chosen):
    """Errors and seconds of each imputer on one masked table."""
    X, categorical = load(name)
    rng = np.random.default_rng(seed)
    hidden = hide(X, rate, mechanism, rng)
    masked = np.where(hidden, np.nan, X)
    half = rng.permutation(len(X))
    train, test = half[: len(X) // 2], half[len(X) // 2 :]
    found = {}
    for label, make in make_imputers(categorical).items():
        if chosen and label not in chosen:
            continue
        start = time.process_time()
        imputer = make().fit(masked[train])
        middle = time.process_time()
        filled = imputer.transform(masked[test])
        seconds = [middle - start, time.process_time() - middle]
        found[label] = [*errors(filled, X[test], hidden[test], categorical), *seconds]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--rates", nargs="+", type=float, default=[0.1, 0.3, 0.5])
    parser.add_argument("--masks", nargs="+", default=["MCAR", "MAR", "MNAR"])
    parser.add_argument("--imputers", nargs="+")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cells = {}
    for name in options.tables:
        for mechanism in options.masks:
            for rate in options.rates:
                runs = [
                    run(name, mechanism, rate, seed, options.imputers)
                    for seed in range(options.seeds)
                ]
                means = {k: np.mean([r[k] for r in runs], axis=0) for k in runs[0]}
                cells[name, mechanism, rate] = means
                shown = "  ".join(
                    f"{k} {m[0]:.3f}|{m[1]:.3f} {m[2]:.1f}+{m[3]:.2f}s" for k, m in means.items()
                )
                print(f"{name:20} {mechanism} {rate:.1f}  {shown}", flush=True)
    summarise(cells)


def summarise(cells):
    """Print how often ours is best or within one percent of the best, and mean errors."""
    for index, what in enumerate(("numbers", "categories")):
        table = pd.DataFrame(
            {key: {k: m[index] for k, m in c.items()} for key, c in cells.items()}
        ).T
        table = table.dropna()
        if "ours" in table and len(table):
            near = table["ours"] <= 1.01 * table.min(axis=1)
            print(f"{what}: best or within 1 % in {near.mean():.0%} of {len(table)} cells; means")
            print(table.mean().round(4).to_dict())


if __name__ == "__main__":
    main()
