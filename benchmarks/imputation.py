"""Imputation exam: cells hidden in held-out rows, ours beside the usual imputers.

Tables: scikit-learn's, the hybrid, incomplete and regression ones, simulated ones. Masks:
completely at random (MCAR), depending on an observed column (MAR), depending on the hidden cell
itself by log odds that are linear (MNAR) or in two steps (STEPS). 70 % of the rows train, the
others are imputed; cells are hidden in both. Numbers: root mean squared error in standard
deviations of the column; categories: fraction of wrong ones. Energy: score of draws of the hidden
cells of each row (Gneiting and Raftery, 2007; numbers in standard deviations, two categories are
one apart); imputers that cannot draw count with their one answer. Downstream: R² or accuracy, on
complete test rows, of gradient boosting of the last column taught by the imputed training rows.
Then seconds of fit and transform. Peers other than miceforest get standardised numbers and
categories as one-hot columns (the largest wins), the iterative ones also as codes.

miceforest 6.0 needs lightgbm below 4.7.

Results are appended to a file, one line per table, mask and imputer; what is there is not run
again. The order is random, so that a part of the results is representative.

With ``--processes 100 130`` the tables are those drawn by the seeds 100 to 129 from varied
processes (`_imputation_tables`), with as many rows as drawn, and one mask and rate each; the
imputers then include our fixed densities and ours under the assumption that cells are missing at
random, whose names begin with "own". ``--realistic 100 130`` draws tables that look like real ones
(`_realistic_tables`) instead, ``--structured 100 130`` those of `_structured_tables` (rules,
parities, panels, designs). ``--domains 0 2`` draws two of each kind of `_domain_tables` (or of the
kinds in ``--kinds``), with 250 and 800 rows to fit and 800 others; ours gets answers on scales as
ordered categories of a dataframe. ``--tables keel`` takes the real tables of `_keel`.
``--errors-only`` leaves draws and downstream models out.

Run: OMP_NUM_THREADS=1 python benchmarks/imputation.py [--tables iris crx] [--rates .3]
     [--masks MCAR MAR] [--imputers ours iterative] [--seeds 2] [--max-rows 500]
     [--processes FIRST END] [--realistic FIRST END] [--structured FIRST END]
     [--domains FIRST END] [--kinds development | apart | KIND ...] [--errors-only] [--results FILE]
"""

import argparse
import json
import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from _domain_tables import APART, DEVELOPMENT
from _imputation_tables import KEEL_TABLES, TABLES, hide, load, n_training_rows
from _realistic_tables import KINDS
from _structured_tables import KINDS as STRUCTURES
from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from skcircuits import (
    CircuitImputer,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    WMISPNDensity,
)

RESULTS = Path(__file__).parent / "results" / "imputation.jsonl"
KEYS = ["table", "mask", "rate", "seed", "imputer"]
N_DRAWS = 10
LOSSES = ["numbers", "categories", "energy", "downstream"]


# Densities of ours that nothing is chosen for
FIXED = {
    "single": GaussianMixtureDensity(n_components=1, covariance_type="tied"),
    "full_4": GaussianMixtureDensity(n_components=4, covariance_type="full"),
    "shrunk_8": GaussianMixtureDensity(n_components=8, covariance_type="shrunk"),
    "tied_16": GaussianMixtureDensity(n_components=16, covariance_type="tied"),
    "location_4": GaussianMixtureDensity(n_components=4, location_model=True),
    "tree": HiddenChowLiuDensity(),
    "wmispn": WMISPNDensity(),
}


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


class Codes:
    """Give an imputer of numbers the codes of categories, and round what it says of them.

    A missing category misses all its one-hot columns, which tell one another that they are what
    they were filled with first; the order of codes means nothing. Either may serve a peer better.
    """

    def __init__(self, imputer, categorical):
        self.imputer, self.categorical = imputer, categorical

    def fit(self, X):
        self.mean = np.nan_to_num(np.nanmean(X, axis=0))
        self.scale = np.nan_to_num(np.nanstd(X, axis=0))
        self.scale[self.scale == 0.0] = 1.0
        self.most = np.nanmax(X, axis=0, initial=0)
        self.imputer.fit((X - self.mean) / self.scale)
        return self

    def transform(self, X):
        filled = self.imputer.transform((X - self.mean) / self.scale) * self.scale + self.mean
        for j in self.categorical:
            filled[:, j] = np.clip(np.round(filled[:, j]), 0, self.most[j])
        return np.where(np.isnan(X), filled, X)


class Scales:
    """Give an imputer of dataframes the columns that are ordered categories as such."""

    def __init__(self, imputer, ordered):
        self.imputer, self.ordered = imputer, ordered

    def fit(self, X):
        self.states = {j: np.unique(X[~np.isnan(X[:, j]), j]) for j in self.ordered}
        self.imputer.fit(self._frame(X))
        return self

    def _frame(self, X):
        frame = pd.DataFrame(X)
        for j, states in self.states.items():
            frame[j] = pd.Categorical(frame[j], states, ordered=True)
        return frame

    def transform(self, X):
        return np.asarray(self.imputer.transform(self._frame(X)), dtype=float)

    def sample_imputations(self, X, n_imputations, proper):
        return self.imputer.sample_imputations(self._frame(X), n_imputations, proper)


class Forest:
    """miceforest: mean of the numbers, mode of the categories of several completed tables."""

    def __init__(self, categorical, n_tables=3):
        self.categorical, self.n_tables = categorical, n_tables

    def fit(self, X):
        import miceforest

        self.states = {j: np.unique(X[~np.isnan(X[:, j]), j]) for j in self.categorical}
        self.kernel = miceforest.ImputationKernel(
            self._frame(X), num_datasets=self.n_tables, random_state=0
        )
        self.kernel.mice(4, num_threads=1)
        return self

    def _frame(self, X):
        frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
        for j in self.categorical:
            frame[f"c{j}"] = pd.Categorical(frame[f"c{j}"], self.states[j])
        return frame

    def tables(self, X):
        filled = self.kernel.impute_new_data(self._frame(X), verbose=False)
        return np.stack(
            [filled.complete_data(i).to_numpy(dtype=float) for i in range(self.n_tables)]
        )

    def transform(self, X):
        tables = self.tables(X)
        result = tables.mean(axis=0)
        for j in self.categorical:
            result[:, j] = pd.DataFrame(tables[:, :, j]).mode().iloc[0]
        return np.where(np.isnan(X), result, X)


def make_imputers(categorical, ordered=()):
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

    coded = {
        f"{name}_codes": lambda make=makers[name]: Codes(make(), categorical)
        for name in ("iterative", "trees")
    }

    def ours(density="auto", self_masking=True):
        imputer = CircuitImputer(
            density=density,
            self_masking=self_masking,
            categorical_features=categorical,
            keep_empty_features=True,
            random_state=0,
        )
        return Scales(imputer, ordered) if len(ordered) else imputer

    return {
        "ours": ours,
        **imputers,
        **(coded if len(categorical) else {}),
        "miceforest": lambda: Forest(categorical),
        "own_at_random": lambda: ours(self_masking=False),
        **{f"own_{name}": lambda own=own: ours(clone(own)) for name, own in FIXED.items()},
    }


def errors(filled, X, hidden, categorical):
    """Error of numbers in standard deviations, error rate of categories (None where none)."""
    numbers, categories = [], []
    for j in np.flatnonzero(hidden.any(axis=0)):
        rows = hidden[:, j]
        if j in categorical:
            categories.append(np.mean(filled[rows, j] != X[rows, j]))
        elif np.nanstd(X[:, j]) > 0:
            off = filled[rows, j] - X[rows, j]
            numbers.append(np.sqrt(np.mean(off**2)) / np.nanstd(X[:, j]))
    return [float(np.mean(found)) if found else None for found in (numbers, categories)]


def draws(imputer, X, filled):
    """Completed tables (m, n, d): draws where the imputer can, else its one answer."""
    if isinstance(imputer, CircuitImputer | Scales):
        return imputer.sample_imputations(X, N_DRAWS, proper=False)
    if isinstance(imputer, Forest):
        return imputer.tables(X)
    inner = imputer.imputer
    if isinstance(inner, IterativeImputer) and inner.estimator is None:
        inner.set_params(sample_posterior=True)
        return np.stack([imputer.transform(X) for _ in range(N_DRAWS)])
    return filled[None]


def energy_score(tables, X, hidden, categorical):
    """Mean over rows of E|Y - x| - E|Y - Y'| / 2 over the hidden cells; lower is better."""
    scale = np.nanstd(X, axis=0)
    is_category = np.isin(np.arange(X.shape[1]), categorical)
    used = hidden & (is_category | (scale > 0))

    def distance(one, other):
        off = (one - other) / np.where(scale > 0, scale, 1.0)
        squares = np.where(is_category, one != other, off**2)
        return np.sqrt(np.where(used, squares, 0.0).sum(axis=1))

    rows = used.any(axis=1)
    error = np.mean([distance(table, X) for table in tables], axis=0)
    spread = [distance(a, b) for i, a in enumerate(tables) for b in tables[:i]]
    # pairs of different draws: unbiased however few there are
    return float((error - 0.5 * np.mean(spread, axis=0) if spread else error)[rows].mean())


def downstream_score(train, filled, truth, categorical):
    """How well a model of the last column that imputed rows teach predicts complete rows."""
    last = train.shape[1] - 1
    known, complete = ~np.isnan(train[:, last]), ~np.isnan(truth[:, last])
    kind = HistGradientBoostingRegressor
    if last in categorical:
        kind = HistGradientBoostingClassifier
    features = np.isin(np.arange(last), categorical)
    model = kind(max_iter=50, categorical_features=features, random_state=0, early_stopping=False)
    model.fit(filled[known, :last], train[known, last])
    return float(model.score(truth[complete, :last], truth[complete, last]))


def masked_table(name, mechanism, rate, seed, max_rows=500):
    """Training and test rows with hidden cells, the truth, what is hidden, categories, scales."""
    X, categorical, ordered = load(name, max_rows)
    rng = np.random.default_rng(seed)
    hidden = hide(X, rate, mechanism, rng)
    masked = np.where(hidden, np.nan, X)
    order = rng.permutation(len(X))
    cut = n_training_rows(name, len(X))
    train, test = order[:cut], order[cut:]
    # what was never seen cannot be imputed: the same for all
    for j in categorical:
        hidden[:, j] &= np.isin(X[:, j], masked[train, j])
    return masked[train], masked[test], X[test], hidden[test], categorical, ordered


def examine(make, table, errors_only):
    """Errors and seconds of one imputer on one masked table."""
    train, test, truth, hidden, categorical, _ = table
    start = time.process_time()
    imputer = make().fit(train)
    middle = time.process_time()
    filled = imputer.transform(test)
    seconds = [middle - start, time.process_time() - middle]
    filled = np.asarray(filled, dtype=float)
    numbers, categories = errors(filled, truth, hidden, categorical)
    found = {
        "numbers": numbers,
        "categories": categories,
        "fit": seconds[0],
        "transform": seconds[1],
    }
    if errors_only:
        return found
    taught = np.asarray(imputer.transform(train), dtype=float)
    tables = np.asarray(draws(imputer, test, filled), dtype=float)
    return found | {
        "energy": energy_score(tables, truth, hidden, categorical),
        "downstream": downstream_score(train, taught, truth, categorical),
    }


def run(cell, imputers, max_rows, path, done, errors_only=False):
    """Examine on one masked table the imputers that have not been."""
    table = None
    for label in imputers:
        if (*cell, label) in done:
            continue
        table = table or masked_table(*cell, max_rows)
        makers = make_imputers(*table[4:])
        if label not in makers:
            continue
        try:
            found = examine(makers[label], table, errors_only)
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


def _kind(table):
    """What a table has in common with others that are drawn alike."""
    family, _, seed = table.partition("_")
    if family == "domain":
        return "_".join(seed.split("_")[:2])
    kinds = {"realistic": list(KINDS), "structured": list(STRUCTURES)}.get(family)
    return kinds[int(seed) % len(kinds)] if kinds else family


def summarise(results):
    """Print errors per table, how often ours is best or within one percent of the best, times."""
    for what in (own for own in LOSSES if own in results):
        cells = results.pivot_table(index=KEYS[:4], columns="imputer", values=what)
        if "ours" not in cells or cells["ours"].isna().all():
            continue
        cells = cells.dropna(subset="ours")  # peers that fail do not compete
        peers = cells.drop(columns="ours")
        per_table = cells.groupby("table").mean()
        print(f"\n{what}\n{per_table.round(3).to_string()}")
        if what == "downstream":  # a score, not an error: one point is one hundredth
            near = cells["ours"] >= peers.max(axis=1) - 0.01
            worst = (per_table[peers.columns].max(axis=1) - per_table["ours"]).max()
        else:
            near = cells["ours"] <= 1.01 * peers.min(axis=1)
            worst = (per_table["ours"] / per_table[peers.columns].min(axis=1)).max() - 1
        print(f"best or within 1 % in {near.mean():.0%} of {len(cells)} cells, at most {worst:.1%}")
        by_mask = near.groupby(["mask", "rate"]).mean().unstack()
        print(f"behind on a table; by mask and rate\n{by_mask.round(2).to_string()}")
        behind = cells["ours"] / peers.min(axis=1).clip(lower=1e-3)
        kinds = cells.index.get_level_values("table").map(_kind)
        by_kind = pd.DataFrame({"near": near, "behind": behind}).groupby(kinds).mean()
        print(f"by kind of table, mean ratio to the best\n{by_kind.round(3).to_string()}")
        print("means", cells.mean().round(3).to_dict())
    print_ratios(results)
    cells = results.pivot_table(index=KEYS[:4], columns="imputer", values=["fit", "transform"])
    cells = cells.dropna()
    print(f"\nmean seconds of {len(cells)} cells")
    print(cells.mean().unstack().round(3).to_string())
    slower = cells["fit"][["ours"]].to_numpy() > cells["fit"]
    print("ours is slower to fit in", slower.mean().round(2).to_dict())


def print_ratios(results):
    """Print geometric means of our error divided by that of each imputer, by mask."""
    tables = {}
    # No cell is wrong in some columns: error rates below 2 % count as 2 %
    for what, least in (("numbers", 0.0), ("categories", 0.02)):
        cells = results.pivot_table(index=KEYS[:4], columns="imputer", values=what)
        cells = cells.clip(lower=least)
        peers = cells.drop(columns="ours")
        peers["the best of these"] = peers.min(axis=1)
        logs = np.log(peers.rdiv(cells["ours"], axis=0))
        tables[what] = np.exp(logs.groupby("mask").mean()).T
    print(f"\nratios\n{pd.concat(tables, axis=1).round(2).to_string()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--rates", nargs="+", type=float, default=[0.1, 0.3, 0.5])
    parser.add_argument("--masks", nargs="+", default=["MCAR", "MAR", "MNAR"])
    parser.add_argument("--imputers", nargs="+")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--max-rows", type=int, default=500)
    parser.add_argument("--processes", nargs=2, type=int, metavar=("FIRST", "END"))
    parser.add_argument("--realistic", nargs=2, type=int, metavar=("FIRST", "END"))
    parser.add_argument("--structured", nargs=2, type=int, metavar=("FIRST", "END"))
    parser.add_argument("--domains", nargs=2, type=int, metavar=("FIRST", "END"))
    parser.add_argument("--kinds", nargs="+", default=["development", "apart"])
    parser.add_argument("--errors-only", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.tables == ["keel"]:
        options.tables = KEEL_TABLES
    options.results.parent.mkdir(parents=True, exist_ok=True)
    known = read(options.results)
    done = set(known[KEYS].itertuples(index=False, name=None))
    cells = list(product(options.tables, options.masks, options.rates, range(options.seeds)))
    drawn = {
        "process": options.processes,
        "realistic": options.realistic,
        "structured": options.structured,
    }
    halves = {"development": DEVELOPMENT, "apart": APART}
    if options.domains:
        chosen = [kind for half in options.kinds for kind in halves.get(half, [half])]
        options.tables = [
            f"domain_{kind}_{n_rows}_{seed}"
            for kind, n_rows, seed in product(chosen, (250, 800), range(*options.domains))
        ]
        options.max_rows = None
        cells = list(product(options.tables, options.masks, options.rates, range(options.seeds)))
    is_own = any(drawn.values())
    if is_own:
        kinds = list(product(options.masks, options.rates))
        cells = [
            (f"{family}_{seed}", *kinds[np.random.default_rng(seed).integers(len(kinds))], 0)
            for family, seeds in drawn.items()
            for seed in range(*(seeds or (0,)))
        ]
    imputers = options.imputers or [
        name for name in make_imputers([0]) if is_own or not name.startswith("own_")
    ]
    max_rows = None if is_own else options.max_rows
    for i in np.random.default_rng(0).permutation(len(cells)):
        run(cells[i], imputers, max_rows, options.results, done, options.errors_only)
    summarise(read(options.results))


if __name__ == "__main__":
    main()
