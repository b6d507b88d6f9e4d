"""Imputation exam: cells hidden in held-out rows, ours beside the usual imputers.

Tables: scikit-learn's, the hybrid, incomplete and regression ones, simulated ones. Masks:
completely at random (MCAR), depending on an observed column (MAR), depending on the hidden cell
itself (MNAR). Seven tenths of the rows teach, the others are imputed; cells are hidden in both.
Numbers: root mean squared error in standard deviations of the column; categories: fraction of
wrong ones; then seconds of fit and transform. Peers other than miceforest get standardised
numbers and categories as one-hot columns (the largest wins).

miceforest 6.0 needs lightgbm below 4.7.

Results are appended to a file, one line per table, mask and imputer; what is there is not run
again.

Run: OMP_NUM_THREADS=1 python benchmarks/imputation.py [--tables iris crx] [--rates .3]
     [--masks MCAR MAR] [--imputers ours iterative] [--seeds 2] [--results FILE]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from _imputation_tables import TABLES, hide, load
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from skcircuits import CircuitImputer

RESULTS = Path(__file__).parent / "results" / "imputation.jsonl"
KEYS = ["table", "mask", "rate", "seed", "imputer"]


class OneHot:
    """Give an imputer of numbers one-hot columns, and read its categories off the largest."""

    def __init__(self, imputer, categorical):
        self.imputer, self.categorical = imputer, categorical

    def fit(self, X):
        self.n_states = {j: int(np.nanmax(X[:, j], initial=0)) + 1 for j in self.categorical}
        self.numerical = [j for j in range(X.shape[1]) if j not in self.n_states]
        self.mean = np.nan_to_num(np.nanmean(X[:, self.numerical], axis=0))
        self.scale = np.nan_to_num(np.nanstd(X[:, self.numerical], axis=0))
        self.scale[self.scale == 0.0] = 1.0
        self.imputer.fit(self._expand(X))
        return self

    def _expand(self, X):
        parts = [(X[:, self.numerical] - self.mean) / self.scale]
        for j, k in self.n_states.items():
            one_hot = (X[:, [j]] == np.arange(k)).astype(float)
            parts.append(np.where(np.isnan(X[:, [j]]), np.nan, one_hot))
        return np.hstack(parts)

    def transform(self, X):
        filled = self.imputer.transform(self._expand(X))
        result, start = X.copy(), len(self.numerical)
        result[:, self.numerical] = filled[:, :start] * self.scale + self.mean
        for j, k in self.n_states.items():
            result[:, j] = filled[:, start : start + k].argmax(axis=1)
            start += k
        return np.where(np.isnan(X), result, X)


class Forest:
    """miceforest: mean of the numbers, mode of the categories of several completed tables."""

    def __init__(self, categorical, n_tables=3):
        self.categorical, self.n_tables = categorical, n_tables

    def fit(self, X):
        import miceforest

        self.kernel = miceforest.ImputationKernel(
            self._frame(X), num_datasets=self.n_tables, random_state=0
        )
        self.kernel.mice(4, num_threads=1)
        return self

    def _frame(self, X):
        frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
        for j in self.categorical:
            frame[f"c{j}"] = frame[f"c{j}"].astype("category")
        return frame

    def transform(self, X):
        filled = self.kernel.impute_new_data(self._frame(X), verbose=False)
        tables = np.stack(
            [filled.complete_data(i).to_numpy(dtype=float) for i in range(self.n_tables)]
        )
        result = tables.mean(axis=0)
        for j in self.categorical:
            result[:, j] = pd.DataFrame(tables[:, :, j]).mode().iloc[0]
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
        "miceforest": lambda: Forest(categorical),
    }


def errors(filled, X, hidden, categorical):
    """Error of numbers in standard deviations, error rate of categories (None where none)."""
    filled = np.asarray(filled, dtype=float)
    numbers, categories = [], []
    for j in np.flatnonzero(hidden.any(axis=0)):
        rows = hidden[:, j]
        if j in categorical:
            categories.append(np.mean(filled[rows, j] != X[rows, j]))
        elif np.nanstd(X[:, j]) > 0:
            off = filled[rows, j] - X[rows, j]
            numbers.append(np.sqrt(np.mean(off**2)) / np.nanstd(X[:, j]))
    return [float(np.mean(found)) if found else None for found in (numbers, categories)]


def masked_table(name, mechanism, rate, seed, max_rows=500):
    """Training rows, test rows, both with hidden cells; the truth, what is hidden, categories."""
    X, categorical = load(name, max_rows)
    rng = np.random.default_rng(seed)
    hidden = hide(X, rate, mechanism, rng)
    masked = np.where(hidden, np.nan, X)
    order = rng.permutation(len(X))
    cut = int(0.7 * len(X))
    train, test = order[:cut], order[cut:]
    # what was never seen cannot be imputed: the same for all
    for j in categorical:
        hidden[:, j] &= np.isin(X[:, j], masked[train, j])
    return masked[train], masked[test], X[test], hidden[test], categorical


def examine(make, table):
    """Errors and seconds of one imputer on one masked table."""
    train, test, truth, hidden, categorical = table
    start = time.process_time()
    imputer = make().fit(train)
    middle = time.process_time()
    filled = imputer.transform(test)
    seconds = [middle - start, time.process_time() - middle]
    numbers, categories = errors(filled, truth, hidden, categorical)
    return {
        "numbers": numbers,
        "categories": categories,
        "fit": seconds[0],
        "transform": seconds[1],
    }


def run(cell, imputers, path, done):
    """Examine on one masked table the imputers that have not been."""
    table = None
    for label in imputers:
        if (*cell, label) in done:
            continue
        table = table or masked_table(*cell)
        try:
            found = examine(make_imputers(table[4])[label], table)
        except Exception as error:  # a peer that cannot do it is reported, not hidden
            found = {"error": repr(error)[:200]}
        row = dict(zip(KEYS, (*cell, label), strict=True)) | found
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def read(path):
    """Results so far, one row per table, mask and imputer."""
    if not path.exists():
        return pd.DataFrame(columns=KEYS)
    return pd.DataFrame([json.loads(line) for line in path.open()])


def summarise(results):
    """Print errors per table, how often ours is best or within one percent of the best, times."""
    for what in ("numbers", "categories"):
        cells = results.pivot_table(index=KEYS[:3], columns="imputer", values=what).dropna()
        if not len(cells) or "ours" not in cells:
            continue
        per_table = cells.groupby("table").mean()
        print(f"\n{what}\n{per_table.round(3).to_string()}")
        near = cells["ours"] <= 1.01 * cells.drop(columns="ours").min(axis=1)
        worst = (per_table["ours"] / per_table.drop(columns="ours").min(axis=1)).max() - 1
        print(f"best or within 1 % in {near.mean():.0%} of {len(cells)} cells, at most {worst:.1%}")
        print("behind on a table;", near.groupby("mask").mean().round(2).to_dict(), "; means")
        print(cells.mean().round(4).to_dict())
    seconds = results.groupby("imputer")[["fit", "transform"]].mean()
    print(f"\nmean seconds\n{seconds.round(3).to_string()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--rates", nargs="+", type=float, default=[0.1, 0.3, 0.5])
    parser.add_argument("--masks", nargs="+", default=["MCAR", "MAR", "MNAR"])
    parser.add_argument("--imputers", nargs="+", default=list(make_imputers([])))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    known = read(options.results)
    done = set(known[KEYS].itertuples(index=False, name=None))
    for seed in range(options.seeds):
        for rate in options.rates:
            for name in options.tables:
                for mechanism in options.masks:
                    cell = name, mechanism, rate, seed
                    run(cell, options.imputers, options.results, done)
    summarise(read(options.results))


if __name__ == "__main__":
    main()
