"""Imputation of mixed tables: hidden cells, ours beside scikit-learn's imputers.

A fifth of the observed cells are hidden at random. Numbers: root mean squared error in units
of the column's standard deviation; labels: share of wrong ones. scikit-learn's imputers see
labels as their codes (`SimpleImputer` takes the most frequent one); what they fill in is
rounded to the nearest code.

Run: OMP_NUM_THREADS=1 python benchmarks/impute_mixed.py
"""

import json
import warnings

import numpy as np
import pandas as pd
from _data import data_path
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from skcircuits import CircuitImputer, WMISPNDensity

TABLES = ("hepatitis", "horse_colic", "mammographic_masses", "pima_zeros_missing")
N_SEEDS = 3
SHARE = 0.2


def load(name):
    """Numbers and codes of labels, NaN where missing, and the columns of labels."""
    frame = pd.read_csv(data_path("missing", f"{name}.csv.gz"))
    columns = json.loads(data_path("missing", f"{name}.json").read_text())["columns"]
    is_label = np.array([column["type"] == "categorical" for column in columns])
    table = [frame[column["name"]] for column in columns]
    X = np.column_stack(
        [
            pd.factorize(cells, sort=True)[0].astype(float) if label else cells.astype(float)
            for cells, label in zip(table, is_label)
        ]
    )
    X[:, is_label] = np.where(X[:, is_label] < 0, np.nan, X[:, is_label])
    return X, np.flatnonzero(is_label)


class Simple:
    """Means of numbers, most frequent labels."""

    def __init__(self, labels):
        self.labels = labels

    def fit_transform(self, X):
        filled = SimpleImputer().fit_transform(X)
        frequent = SimpleImputer(strategy="most_frequent").fit_transform(X)
        filled[:, self.labels] = frequent[:, self.labels]
        return filled


def make_imputers(labels):
    ours = {"categorical_features": labels, "random_state": 0}
    return {
        "mean/frequent": Simple(labels),
        "nearest": KNNImputer(),
        "iterative": IterativeImputer(max_iter=20, random_state=0),
        "circuit, WMISPN": CircuitImputer(density=WMISPNDensity(), **ours),
        "circuit, auto": CircuitImputer(**ours),
    }


def errors(filled, X, hidden, labels):
    """Mean error of numbers and of labels over the columns."""
    found = {"numbers": [], "labels": []}
    for j in range(X.shape[1]):
        rows = hidden[:, j]
        if not rows.any():
            continue
        truth, guess = X[rows, j], filled[rows, j].astype(float)
        if j in labels:
            found["labels"].append(np.mean(np.round(guess) != truth))
        else:
            found["numbers"].append(np.sqrt(np.mean((guess - truth) ** 2)) / np.nanstd(X[:, j]))
    return np.mean(found["numbers"]), np.mean(found["labels"])


def main():
    warnings.simplefilter("ignore")
    print(f"{'error of numbers | labels':24}" + "".join(f"{n:>18}" for n in make_imputers([])))
    for name in TABLES:
        X, labels = load(name)
        cells = []
        for imputer in make_imputers(labels).values():
            scores = []
            for seed in range(N_SEEDS):
                rng = np.random.default_rng(seed)
                hidden = ~np.isnan(X) & (rng.random(X.shape) < SHARE)
                filled = np.asarray(imputer.fit_transform(np.where(hidden, np.nan, X)))
                scores.append(errors(filled, X, hidden, labels))
            cells.append("{:.3f} | {:.3f}".format(*np.mean(scores, axis=0)))
        print(f"{name:24}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
