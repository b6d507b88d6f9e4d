"""Regression on rows with missing cells: accuracy and speed beside imputation.

Run with ``python benchmarks/svr_missing.py [PARTS]``, some of ``accuracy``, ``tables``,
``components``, ``rates``, ``speed`` and ``fit``; without arguments all parts run. Times are
processor times of one thread; every ratio compares two programs in this run.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
import pandas as pd
from _data import data_path
from _model_tables import NUMBERS
from _model_tables import load as load_table
from joblib import parallel_config
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from skcircuits import ExpectedPredictionSVR, GaussianMixtureDensity

SEEDS = range(20)
MISSING = 0.3


def hide(X, fraction, seed):
    """Hide cells completely at random."""
    missing = np.random.default_rng(seed).random(X.shape) < fraction
    return np.where(missing, np.nan, X)


def models_of(parameters):
    """Models by name; all see the same rows."""
    svr = {
        "IterativeImputer": IterativeImputer(random_state=0, max_iter=20),
        "KNNImputer": KNNImputer(),
    }
    svr["SimpleImputer"] = SimpleImputer()
    models = {
        name: make_pipeline(imputer, StandardScaler(), SVR(**parameters))
        for name, imputer in svr.items()
    }
    models["HistGradientBoosting"] = HistGradientBoostingRegressor(random_state=0)
    ours = ExpectedPredictionSVR(**parameters, random_state=0)
    return {"ExpectedPredictionSVR": make_pipeline(StandardScaler(), ours), **models}


def accuracy():
    """Median RMSE with complete training rows and 30 % of the test cells missing."""
    tables = {
        "diabetes": (lambda seed: load_diabetes(return_X_y=True), {"C": 100}),
        "friedman1": (
            lambda seed: make_friedman1(3000, n_features=10, noise=1.0, random_state=seed),
            {"C": 10},
        ),
    }
    for name, (load, parameters) in tables.items():
        errors = {}
        for seed in SEEDS:
            X, y = load(seed)
            X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=seed)
            X_test = hide(X_test, MISSING, seed)
            for model_name, model in models_of(parameters).items():
                predicted = model.fit(X, y).predict(X_test)
                errors.setdefault(model_name, []).append(root_mean_squared_error(y_test, predicted))
        report(name, errors)


def tables():
    """RMSE on the raw numeric columns of three real tables, target standardised."""
    n_seeds = 30
    for name in ("abalone", "delta-ailerons", "elevators"):
        raw = pd.read_csv(data_path("svr", f"{name}_raw.csv.gz"))
        numbers = raw.select_dtypes("number").to_numpy()
        errors = {}
        for seed in range(n_seeds):
            rows = np.random.default_rng(seed).permutation(len(numbers))
            X, y = numbers[rows[:1600], :-1], numbers[rows[:1600], -1]
            X_test = hide(numbers[rows[1600:2400], :-1], MISSING, seed)
            y, y_test = (v - y.mean() for v in (y, numbers[rows[1600:2400], -1]))
            scale = y.std()
            models = models_of({"C": 3, "epsilon": 0.05})
            native = make_pipeline(HideCells(seed), HistGradientBoostingRegressor(random_state=0))
            models["HistGradientBoosting, native"] = native
            for model_name, model in models.items():
                predicted = model.fit(X, y / scale).predict(X_test)
                error = root_mean_squared_error(y_test / scale, predicted)
                errors.setdefault(model_name, []).append(error)
        report(name, errors)


def components():
    """RMSE under densities with given numbers of components, and under the chosen one."""
    numbers = (1, 2, 3, 5, 8)
    densities = {
        f"K={k}": GaussianMixtureDensity(n_components=k, covariance_type="full", random_state=0)
        for k in numbers
    }
    densities["chosen"] = "auto"
    print("\ncomponents: mean RMSE of 20 splits, 30 % of the test cells missing; chosen / best K,")
    print("with the standard error of that ratio")
    for name in NUMBERS:
        errors = np.array([_errors_by_density(name, seed, densities) for seed in SEEDS])
        means = errors.mean(axis=0)
        best = means[:-1].argmin()
        ratios = errors[:, -1] / errors[:, best]
        spread = ratios.std(ddof=1) / np.sqrt(len(ratios))
        shown = "  ".join(f"{n} {mean:.4f}" for n, mean in zip(densities, means, strict=True))
        print(f"  {name:20s} {shown}   {means[-1] / means[best]:.3f} ({spread:.3f})", flush=True)


def _errors_by_density(name, seed, densities):
    """RMSE of one split of a table under some densities."""
    X, y = load_table(name, seed)
    X, cut = X.select_dtypes("number").dropna(axis=1).to_numpy(), 2 * len(y) // 3
    scaler = StandardScaler().fit(X[:cut])
    X, X_test = scaler.transform(X[:cut]), scaler.transform(hide(X[cut:], MISSING, seed))
    errors = []
    for density in densities.values():
        model = ExpectedPredictionSVR(density=density, C=3, epsilon=0.05, random_state=0)
        predicted = model.fit(X, y[:cut]).predict(X_test)
        errors.append(root_mean_squared_error(y[cut:], predicted))
    return errors


class HideCells:
    """Hides training cells, leaves the rows to predict alone."""

    def __init__(self, seed):
        self.seed = seed

    def fit_transform(self, X, y=None, **parameters):
        return hide(X, MISSING, self.seed + 1000)

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


def rates():
    """Error relative to the constant E[f] at 10 % to 90 % missing cells, two splits each."""
    print("\nerror / error of the constant E[f] at 10, 20, ..., 90 % missing")
    for name in ("diabetes", "abalone", "delta-ailerons", "elevators"):
        for seed in range(2):
            if name == "diabetes":
                X, y = load_diabetes(return_X_y=True)
                parameters = {"C": 100}
            else:
                raw = pd.read_csv(data_path("svr", f"{name}_raw.csv.gz"))
                table = raw.select_dtypes("number").to_numpy()
                table = table[np.random.default_rng(seed).permutation(len(table))[:2400]]
                X, y = table[:, :-1], table[:, -1] / table[:, -1].std()
                parameters = {"C": 3, "epsilon": 0.05}
            X, X_test, y, y_test = train_test_split(X, y, test_size=1 / 3, random_state=seed)
            model = ExpectedPredictionSVR(**parameters, random_state=0)
            model = make_pipeline(StandardScaler(), model).fit(X, y)
            constant = model.predict(np.full_like(X_test, np.nan))
            least = root_mean_squared_error(y_test, constant)
            errors = [
                root_mean_squared_error(y_test, model.predict(hide(X_test, fraction, seed)))
                for fraction in np.arange(0.1, 1.0, 0.1)
            ]
            print(f"  {name:15s}", np.round(np.array(errors) / least, 3), flush=True)


def report(name, errors):
    """Print errors and their ratio to ours."""
    ours = np.array(errors["ExpectedPredictionSVR"])
    print(f"\n{name}: RMSE of {len(ours)} seeds, 30 % of the test cells missing")
    print(f"  {'':32s} {'mean':>9s} {'median':>9s}   ours / this (means, medians)")
    for model, values in errors.items():
        mean, median = np.mean(values), np.median(values)
        print(
            f"  {model:32s} {mean:9.4f} {median:9.4f}   "
            f"{np.mean(ours) / mean:.3f} {np.median(ours) / median:.3f}",
            flush=True,
        )


def speed():
    """Prediction time of 1000 rows with 30 % missing, beside imputation and SVR.predict."""
    print("\npredict 1000 rows, 30 % missing, 2000 training rows (one thread, processor time)")
    print("beside SVR after an IterativeImputer that was fitted to complete rows, which makes one")
    print("round, and after one that was fitted to incomplete rows")
    one, three = ({"n_components": n, "pool": 1, "covariance_type": "full"} for n in (1, 3))
    factors = {"n_components": 1, "pool": 1, "covariance_type": "factor"}
    for n_columns, name, n_factors, settings in (
        (10, "1 component", None, one),
        (10, "3 components", None, three),
        (10, "6 x 3 components", None, {**three, "pool": 6}),
        (100, "1 component", None, one),
        (100, "3 components", None, three),
        (100, "4 factors", 4, factors),
    ):
        X, y = speed_table(n_columns, n_factors)
        X, y, X_test = X[:2000], y[:2000], hide(X[2000:], MISSING, 1)
        density = GaussianMixtureDensity(**settings, random_state=0, max_iter=20)
        ours = ExpectedPredictionSVR(density=density).fit(X, y)
        svr = SVR().fit(X, y)
        imputers = [
            IterativeImputer(max_iter=3, random_state=0).fit(table)
            for table in (X, hide(X, MISSING, 2))
        ]
        calls = [lambda: ours.predict(X_test)]
        calls += [lambda i=i: svr.predict(i.transform(X_test)) for i in imputers]
        rounds = [[processor_time(call) for call in calls] for _ in range(9)]
        own, *others = np.median(rounds, axis=0)
        peers = ", ".join(f"{1e3 * other:6.1f} ms ({own / other:.2f} x)" for other in others)
        print(
            f"  {n_columns:3d} columns, {name}, {len(ours.support_)} support vectors: "
            f"{1e3 * own:6.1f} ms; {peers}",
            flush=True,
        )
        if n_columns == 10:
            first, again = (
                processor_time(lambda: ours.predict(X_test, return_std=True)) for _ in range(2)
            )
            print(f"      return_std: {first:.2f} s, {first / own:.0f} x predict", end="")
            print(f"; a second time {again:.2f} s, {again / own:.0f} x", flush=True)


def speed_table(n_columns, n_factors):
    """3000 rows with covariances of full rank, or of few factors and noise."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(n_factors or n_columns, n_columns)) / np.sqrt(n_columns)
    if n_factors is None:
        X = rng.normal(size=(3000, n_columns)) @ (mixing + 0.3 * np.eye(n_columns))
    else:
        X = rng.normal(size=(3000, n_factors)) @ (np.sqrt(n_columns) * mixing)
        X += 0.5 * rng.normal(size=X.shape)
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=3000)


def fit():
    """Fitting on incomplete rows, with one and two processes."""
    print("\nfit on rows with 30 % of the cells missing, 10 columns (wall time)")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 10)) @ rng.normal(size=(10, 10))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=2000)
    X = hide(X, MISSING, 0)
    for n_rows in (500, 2000):
        start = time.perf_counter()
        ExpectedPredictionSVR(random_state=0).fit(X[:n_rows], y[:n_rows])
        print(f"  {n_rows} rows, default density: {time.perf_counter() - start:.1f} s")
    # A pool of six mixtures would have eighteen components, and 36 times as many pairs of them
    density = GaussianMixtureDensity(n_components=3, covariance_type="full", pool=1, random_state=0)
    with parallel_config("loky", inner_max_num_threads=1):
        seconds = {}
        for n_jobs in (2, 1, 2):  # the first run starts the processes
            start = time.perf_counter()
            model = ExpectedPredictionSVR(random_state=0, density=density, n_jobs=n_jobs)
            model.fit(X, y)
            seconds[n_jobs] = time.perf_counter() - start
    print(
        f"  2000 rows, 3 components: {seconds[1]:.1f} s with one process, {seconds[2]:.1f} s "
        f"with two, {seconds[1] / seconds[2]:.2f} x"
    )


def processor_time(call):
    """Processor seconds of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    for part in sys.argv[1:] or ["accuracy", "tables", "components", "rates", "speed", "fit"]:
        globals()[part]()
