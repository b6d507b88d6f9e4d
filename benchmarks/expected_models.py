"""Expected predictions of scikit-learn's models beside imputation and native missing values.

Run with ``python benchmarks/expected_models.py [accuracy] [cost] [components] [classes] [rows]
[measuring]``; options restrict the tables. Errors of all methods come from the same splits and
masks. What `benchmarks/results` has already is not computed again. ``--tables`` takes names and
sets of them: ``classes`` are 27 classifications, ``keel`` the real tables of `_keel`, ``generated``
those of `_realistic_tables` with ``--rows`` training rows and 1200 others for the test. Few test
rows of one split cannot resolve differences of 1 %: fractions of the best are those of errors
pooled over ``--seeds`` splits, beside their mean over single splits.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import time
import warnings
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pandas as pd
from _model_tables import SETS, hide, is_classification, load, n_training_rows
from _results import Records
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import make_classification, make_friedman1
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    SplineTransformer,
    StandardScaler,
)
from sklearn.svm import SVC, SVR

from skcircuits import (
    ExpectedPredictionClassifier,
    ExpectedPredictionRegressor,
    GaussianMixtureDensity,
)
from skcircuits.predictions._closed_forms import count_terms

OURS = "expected prediction"
KEYS = ("table", "seed", "rate", "mechanism", "where", "model", "method")
NOISE = 1.64  # standard errors of one side of a normal interval of 95 %
MODELS = ("logistic", "ridge", "SVC", "SVR", "forest", "HGB")


def models(is_classes):
    """Base models by name."""
    if is_classes:
        return {
            "logistic": LogisticRegression(max_iter=1000),
            "SVC": CalibratedClassifierCV(SVC(), ensemble=False, cv=3),
            "forest": RandomForestClassifier(100, min_samples_leaf=3, random_state=0),
            "HGB": HistGradientBoostingClassifier(random_state=0),
        }
    return {
        "ridge": Ridge(),
        "SVR": SVR(C=3.0, epsilon=0.05),
        "forest": RandomForestRegressor(100, min_samples_leaf=3, random_state=0),
        "HGB": HistGradientBoostingRegressor(random_state=0),
    }


class Encoder(TransformerMixin, BaseEstimator):
    """Numbers and one-hot columns, missing values kept."""

    def fit(self, X, y=None):
        self.columns_ = list(pd.get_dummies(X, dtype=float).columns)
        return self

    def transform(self, X):
        encoded = pd.get_dummies(X, dtype=float).reindex(columns=self.columns_, fill_value=0.0)
        for column in X.select_dtypes("category"):
            own = [name for name in self.columns_ if name.startswith(f"{column}_")]
            encoded.loc[X[column].isna(), own] = np.nan
        return encoded.to_numpy()


def encoder():
    """What stands before a model that gets complete rows."""
    categories = make_column_selector(dtype_include="category")
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((one_hot, categories), remainder="passthrough")
    # One-hot columns are scaled, too, as behind the imputers: all methods have the same model
    return make_pipeline(columns, StandardScaler())


def methods(model, is_classes, setting, indicators):
    """What is compared for one model: estimators for tables with missing values."""
    estimator = ExpectedPredictionClassifier if is_classes else ExpectedPredictionRegressor
    base = make_pipeline(encoder(), clone(model))
    found = {OURS: estimator(base, random_state=0)}
    imputers = {
        "mean": SimpleImputer(),
        "KNN": KNNImputer(),
        "iterative": IterativeImputer(max_iter=10, random_state=0),
    }
    # Complete training rows have no indicators to learn from
    indicators = indicators and setting["where"] == "train and test"
    if indicators:
        told = {f"{name}, indicators": clone(imputer) for name, imputer in imputers.items()}
        imputers |= {name: imputer.set_params(add_indicator=True) for name, imputer in told.items()}
        found[f"{OURS}, indicators"] = clone(found[OURS]).set_params(add_indicator=True)
    for name, imputer in imputers.items():
        found[name] = make_pipeline(Encoder(), imputer, StandardScaler(), clone(model))
    if isinstance(model, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
        native = make_pipeline(Encoder(), clone(model))
        found["native"] = native
        found["native, masked copies"] = Masked(clone(native), setting["rate"])
    return found


class Masked(BaseEstimator):
    """Trains on the table and on copies of it with hidden values."""

    def __init__(self, estimator, rate):
        self.estimator = estimator
        self.rate = rate

    def fit(self, X, y):
        copies = [X, *(hide(X, self.rate, 100 + i, "MCAR") for i in range(3))]
        self.estimator.fit(pd.concat(copies, ignore_index=True), np.tile(y, len(copies)))
        return self

    def __getattr__(self, name):
        return getattr(self.estimator, name)


def scores(fitted, X, y, is_classes):
    """Loss first, log loss or RMSE, with those of the rows: logarithms or squares of errors.

    Then Brier score and calibration error of classes.
    """
    if not is_classes:
        squares = np.square(y - fitted.predict(X))
        return {"loss": np.sqrt(squares.mean()), "rows": squares}
    probabilities = np.clip(fitted.predict_proba(X), 1e-6, 1.0)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    truth = (y[:, None] == fitted.classes_).astype(float)
    losses = -np.log((probabilities * truth).sum(axis=1))
    return {
        "loss": losses.mean(),
        "rows": losses,
        "Brier": np.mean(((probabilities - truth) ** 2).sum(axis=1)),
        "calibration": _calibration_error(
            probabilities.max(axis=1), truth[np.arange(len(y)), probabilities.argmax(axis=1)]
        ),
    }


def _calibration_error(confidence, correct):
    """Mean distance of confidence and accuracy in ten bins of equal size."""
    order = np.array_split(np.argsort(confidence), 10)
    gaps = [abs(confidence[own].mean() - correct[own].mean()) * len(own) for own in order]
    return sum(gaps) / len(confidence)


def _error_of_difference(found, ours, is_classes):
    """Standard error of the difference of two losses on the same test rows."""
    if ours is None:  # it was computed by an earlier run
        return np.nan
    difference = found["rows"] - ours["rows"]
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    # a - b = (a² - b²) / (a + b)
    return float(error if is_classes else error / (found["loss"] + ours["loss"]))


def accuracy(options):
    """One line per table, model and setting; then how often ours is best, and by how much."""
    records = Records(options.save, KEYS)
    # Round by round over the tables, so that an interrupted run has seen all of them
    settings = itertools.product(
        range(options.seeds), options.mechanisms, options.rates, options.where, options.tables
    )
    for seed, mechanism, rate, where, name in settings:
        setting = dict(zip(KEYS, (name, seed, rate, mechanism, where)))
        _compare(setting, options, records)
    table = records.table()
    chosen = table["table"].isin(options.tables) & table["model"].isin(options.models)
    chosen &= table["rate"].isin(options.rates) & table["mechanism"].isin(options.mechanisms)
    chosen &= table["seed"] < options.seeds
    summarize(table[chosen & table["where"].isin(options.where)])


def _split(setting, n_rows):
    """Training and test rows with their missing values, and their targets."""
    X, y = load(setting["table"], setting["seed"], n_rows)
    cut = n_training_rows(setting["table"], len(y))
    hidden = setting["rate"], setting["seed"], setting["mechanism"]
    train, test = X[:cut], hide(X[cut:], *hidden)
    if setting["where"] == "train and test":
        train = hide(train, hidden[0], hidden[1] + 50, hidden[2])
    return train, y[:cut], test, y[cut:]


def _compare(setting, options, records):
    is_classes = is_classification(setting["table"])
    X, y, X_test, y_test = _split(setting, options.rows)
    for model_name, model in models(is_classes).items():
        line, ours = [], None
        for method, estimator in methods(model, is_classes, setting, options.indicators).items():
            record = {**setting, "model": model_name, "method": method, "classes": is_classes}
            if model_name not in options.models or record in records:
                continue
            start = time.process_time()
            estimator.fit(X, y)
            found = scores(estimator, X_test, y_test, is_classes)
            seconds = round(time.process_time() - start, 3)
            ours = found if method == OURS else ours
            numbers = {k: float(v) for k, v in found.items() if k != "rows"}
            numbers["error"] = _error_of_difference(found, ours, is_classes)
            records.add({**record, **numbers, "s": seconds})
            line.append(f"{method} {found['loss']:.3f} ({seconds:.1f} s)")
        if line:
            print(*setting.values(), model_name, *line, sep="  ", flush=True)


def summarize(table):
    """Shares of cells in which ours is best, and mean ratios to the best of the others."""
    keys = ["table", "rate", "mechanism", "where", "model", "classes"]
    loss = table.groupby([*keys, "method"])["loss"].mean().unstack()
    rest = loss[[method for method in loss if not method.startswith(OURS)]]
    finished = loss[OURS].notna() & rest["iterative"].notna()
    loss, rest = loss[finished], rest[finished]
    ratio = loss[OURS] / rest.min(axis=1)
    behind = _is_behind(table, keys, loss[OURS], rest)
    print(f"\n{len(ratio)} cells: best or within 1 % of the best in {(ratio <= 1.01).mean():.0%}")
    single = table.groupby([*keys, "seed", "method"])["loss"].mean().unstack()
    single = single[OURS] / single[rest.columns].min(axis=1)
    print(f"  ({(single.dropna() <= 1.01).mean():.0%} of those of single splits)")
    for label, own in ratio.groupby(["classes", "mechanism", "rate", "where"]):
        mean = np.exp(np.log(own).mean())
        kind = "log loss" if label[0] else "RMSE"
        print(
            f"  {kind}, {label[2]:.0%} missing {label[1]} in {label[3]}, {len(own)} cells: "
            f"{mean:.3f} x the best other, {(own <= 1.01).mean():.0%} best or within 1 %, "
            f"{behind[own.index].sum()} behind by more than 1 % and {NOISE} standard errors"
        )
    for method in loss.drop(columns=OURS):
        relative = np.log(loss[OURS] / loss[method]).groupby(level="classes").mean()
        print(
            f"  beside {method}:",
            *(
                f"{np.exp(value):.3f} x its {'log loss' if kind else 'RMSE'}"
                for kind, value in relative.items()
            ),
        )
    if "Brier" in table:
        means = table[table["classes"]].groupby("method")[["Brier", "calibration"]].mean()
        print(means.round(4).to_string())
    print(table.groupby("method")["s"].mean().round(2).to_string())


def _is_behind(table, keys, own, rest):
    """Tell where ours is behind the best other by more than 1 % and the noise of the test rows."""
    variances = (table["error"] ** 2).groupby([table[key] for key in [*keys, "method"]])
    error = np.sqrt(variances.sum(min_count=1)) / variances.size()  # of means over the splits
    best = rest.min(axis=1)
    error = error.unstack().reindex(rest.index)[rest.columns].where(rest.eq(best, axis=0))
    return own - 1.01 * best > NOISE * error.max(axis=1)


def cost(options):
    """Processor time of predictions beside imputation, one thread."""
    X, y = make_friedman1(10_000, n_features=20, random_state=0)
    X_test = X[2000:].copy()
    X_test[np.random.default_rng(0).random(X_test.shape) < 0.3] = np.nan
    X, y, many, X_test = X[:2000], y[:2000], X_test, X_test[:1000]
    missing = np.random.default_rng(1).random(X.shape) < 0.3
    imputers = [
        IterativeImputer(max_iter=3, random_state=0).fit(table)
        for table in (X, np.where(missing, np.nan, X))
    ]
    densities = {
        "automatic density": GaussianMixtureDensity(selection="cells", random_state=0),
        "three components": GaussianMixtureDensity(
            n_components=3, covariance_type="full", random_state=0
        ),
    }
    bases = {
        "ridge": Ridge(),
        "SVR": make_pipeline(StandardScaler(), SVR()),
        "SVR of 10 principal components": make_pipeline(StandardScaler(), PCA(10), SVR()),
        "Nystroem, 300 landmarks": make_pipeline(Nystroem(n_components=300), Ridge()),
    }
    print("predict rows of 20 columns, 30 % missing; processor time; beside imputers that were")
    print("fitted to complete rows (one round) and to incomplete rows (three)")
    for density_name, density in densities.items():
        density.fit(X)
        for name, model in bases.items():
            frozen = FrozenEstimator(model.fit(X, y))
            ours = ExpectedPredictionRegressor(frozen, density=density.circuit_).fit(X)
            # Fixed costs of imputation hide what a row costs if there are few of them
            for table in (X_test, many) if "Nystroem" in name else (X_test,):
                own = processor_time(ours.predict, table)
                others = [
                    processor_time(lambda i=i: model.predict(i.transform(table))) for i in imputers
                ]
                times = ", ".join(f"{other:.3f} s ({own / other:.2f} x)" for other in others)
                print(
                    f"  {name}, {density_name}, {len(table)} rows: {own:.3f} s, "
                    f"iterative imputation {times}"
                )
    further = {
        "ridge after splines": make_pipeline(SplineTransformer(), Ridge()),
        "ridge after bins": make_pipeline(KBinsDiscretizer(), Ridge()),
        "boosted stumps": GradientBoostingRegressor(max_depth=1, random_state=0),
        "boosted trees of depth three": GradientBoostingRegressor(random_state=0),
    }
    for density_name, density in densities.items():
        for name, model in further.items():
            frozen = FrozenEstimator(model.fit(X, y))
            own, drawn = (
                processor_time(
                    ExpectedPredictionRegressor(frozen, density=density.circuit_, method=method)
                    .fit(X)
                    .predict,
                    X_test,
                    repeat=3,
                )
                for method in ("auto", "draws")
            )
            print(f"  {name}, {density_name}: {own:.3f} s, {own / drawn:.2f} x draws")
    forest = RandomForestRegressor(100, random_state=0).fit(X, y)
    drawn = ExpectedPredictionRegressor(
        FrozenEstimator(forest), density=density.circuit_, method="draws", random_state=0
    ).fit(X)
    parts = {"predict": 0.0, "sample": 0.0}
    watch(forest, "predict", parts)
    watch(density.circuit_, "sample", parts)
    own = processor_time(lambda: drawn.predict(X_test), repeat=1)
    print(f"  forest by draws: {own:.2f} s, {own / sum(parts.values()):.2f} x its draws {parts}")
    single = GaussianMixtureDensity(n_components=5, covariance_type="diag", random_state=0)
    ours = ExpectedPredictionRegressor(FrozenEstimator(forest), density=single).fit(X)
    own = processor_time(lambda: ours.predict(X_test), repeat=3)
    print(f"  forest of 100 trees, univariate inputs: {own:.2f} s ({ours.method_})")


def components(options):
    """Processor time of kernel models under mixtures of many components, numbers and mixed."""
    X, y = make_friedman1(6000, n_features=20, random_state=0)
    numbers = pd.DataFrame(X).add_prefix("x")
    mixed = numbers.copy()
    for j in range(14, 20):
        mixed[f"x{j}"] = pd.cut(mixed[f"x{j}"], 4, labels=list("abcd"))
    print("seconds to predict 4000 rows of 20 columns, 30 % missing (300 landmarks)")
    for name, table in (("numbers", numbers), ("six categories", mixed)):
        train, test = table[:2000], table[2000:]
        test = test.mask(np.random.default_rng(0).random(test.shape) < 0.3)
        encode = make_column_transformer(
            (StandardScaler(), make_column_selector(dtype_include="number")),
            (OneHotEncoder(sparse_output=False), make_column_selector(dtype_include="category")),
        )
        models = {"Nystroem": make_pipeline(encode, Nystroem(n_components=300), Ridge())}
        models["SVR"] = make_pipeline(encode, SVR())
        models["ridge"] = make_pipeline(encode, Ridge())
        frozen = [FrozenEstimator(model.fit(train, y[:2000])) for model in models.values()]
        for kind, n_components in itertools.product(("full", "tied", "diag"), (1, 3, 8, 30)):
            density = GaussianMixtureDensity(
                n_components=n_components, covariance_type=kind, max_iter=5, random_state=0
            )
            density = FrozenEstimator(density.fit(train))
            times = [
                processor_time(
                    ExpectedPredictionRegressor(model, density=density, stacking=False)
                    .fit(train, y[:2000])
                    .predict,
                    test,
                    repeat=3,
                )
                for model in frozen
            ]
            words = ", ".join(f"{own} {value:.3f}" for own, value in zip(models, times))
            print(f"  {name}, {kind}, {n_components} components: {words}")


def classes(options):
    """Processor time of expected probabilities of several classes by sums and by draws."""
    print("milliseconds per row of multinomial logistic regression, 30 % missing")
    for n_classes, n_columns, n_components in itertools.product((3, 10, 20), (12,), (3, 18)):
        X, y = make_classification(
            2400,
            n_columns,
            n_informative=n_columns,
            n_redundant=0,
            n_classes=n_classes,
            n_clusters_per_class=1,
            random_state=0,
        )
        model = LogisticRegression(C=0.1, max_iter=1000).fit(X[:2000], y[:2000])
        density = GaussianMixtureDensity(
            n_components=n_components, max_iter=20, covariance_type="full", random_state=0
        )
        circuit = density.fit(X[:2000]).circuit_
        table = X[2000:].copy()
        table[np.random.default_rng(0).random(table.shape) < 0.3] = np.nan
        fitted = {
            method: ExpectedPredictionClassifier(
                FrozenEstimator(model), density=circuit, method=method, stacking=False
            ).fit(X[:2000], y[:2000])
            for method in ("exact", "draws", "auto")
        }
        expected = fitted["exact"]._expected_response("predict_proba")
        incomplete = fitted["exact"]._rows(table[np.isnan(table).any(axis=1)])
        n_terms = count_terms(expected.closed_form, incomplete, with_variance=False)
        for low, high in itertools.pairwise((0, 10_000, 100_000, 1_000_000, 10_000_000)):
            own = incomplete.take((n_terms >= low) & (n_terms < high))
            if not len(own):
                continue
            times = {
                method: processor_time(one.predict_proba, own.cells, repeat=3) * 1000 / len(own)
                for method, one in fitted.items()
            }
            words = ", ".join(f"{method} {own_time:.2f}" for method, own_time in times.items())
            print(
                f"  {n_classes} classes, {n_components} components, {len(own)} rows of {low} to "
                f"{high} terms: {words}, {times['exact'] / times['draws']:.1f} x draws"
            )


def rows(options):
    """Time and memory, beside the table, of predictions of very many rows through landmarks."""
    X, y = make_friedman1(2000, n_features=20, random_state=1)
    model = make_pipeline(Nystroem(n_components=300), Ridge()).fit(X, y)
    for n_rows in (100_000, 1_000_000):
        table = make_friedman1(n_rows, n_features=20, random_state=0)[0]
        rng = np.random.default_rng(0)
        for column in table.T:
            column[rng.random(n_rows) < 0.3] = np.nan
        for n_components in (1, 3):
            settings = {"n_components": n_components, "covariance_type": "full"}
            density = GaussianMixtureDensity(**settings, random_state=0).fit(X)
            ours = ExpectedPredictionRegressor(FrozenEstimator(model), density=density.circuit_)
            cost = time_and_memory(lambda: ours.fit(X).predict(table))
            print(f"predict {n_rows} rows, {n_components} components: {cost}", flush=True)
        density = GaussianMixtureDensity(**settings, random_state=0)
        print(f"  their density: {time_and_memory(lambda: density.fit(table))}", flush=True)


def measuring(options):
    """How fast errors fall when values are measured one by one, chosen in three ways."""
    print(
        f"error after 0, 1, 2, 3 measurements of rows that miss 80 % of their values, mean of "
        f"{options.splits} splits; by value beside importance, with its standard error"
    )
    for name in ("wine", "heart", "diabetes progression", "abalone"):
        if name not in options.tables:
            continue
        errors = {}
        for seed in range(options.splits):
            for way, found in _errors_while_measuring(name, seed).items():
                errors.setdefault(way, []).append(found)
        for way, found in errors.items():
            print(f"  {name}, {way}:", *np.mean(found, axis=0).round(3))
        gain = np.subtract(errors["by value of measuring"], errors["by feature importance"])
        spread = gain.std(axis=0, ddof=1) / np.sqrt(options.splits)
        print("    difference", *(f"{m:+.3f} ({s:.3f})" for m, s in zip(gain.mean(axis=0), spread)))


def _errors_while_measuring(name, seed):
    """Errors after 0 to 3 measurements of 100 rows of a split, by the way of choosing."""
    is_classes = is_classification(name)
    X, y = load(name, seed)
    X = X.select_dtypes("number")
    cut = 2 * len(y) // 3
    model = models(is_classes)["logistic" if is_classes else "SVR"]
    kind = ExpectedPredictionClassifier if is_classes else ExpectedPredictionRegressor
    # What a value is worth is asked of the expectation
    model = kind(make_pipeline(StandardScaler(), model), random_state=0, stacking=False)
    model.fit(X[:cut], y[:cut])
    rows, truth = X[cut : cut + 100], y[cut : cut + 100]
    importance = permutation_importance(model, X[:cut], y[:cut], random_state=0)
    rng = np.random.default_rng(seed)
    ways = {
        "by value of measuring": model.value_of_measuring,
        "by feature importance": lambda X: np.tile(importance.importances_mean, (len(X), 1)),
        "at random": lambda X: rng.random(X.shape),
    }
    errors = {}
    for way, choose in ways.items():
        known = hide(rows, 0.8, seed, "MCAR").to_numpy(copy=True)
        errors[way] = []
        for _ in range(4):
            table = pd.DataFrame(known, columns=rows.columns)
            errors[way].append(scores(model, table, truth, is_classes)["loss"])
            worth = np.where(np.isnan(known), choose(table), -np.inf)
            cells = np.arange(len(known)), worth.argmax(axis=1)
            known[cells] = rows.to_numpy()[cells]
    return errors


def watch(owner, name, seconds):
    """Add up the processor time of a method."""
    method = getattr(owner, name)

    def timed(*args, **kwargs):
        start = time.process_time()
        result = method(*args, **kwargs)
        seconds[name] += time.process_time() - start
        return result

    vars(owner)[name] = timed


def time_and_memory(call):
    """Say the processor time of a call, and by how much the memory of the process grows."""
    peaks, done = [_resident()], Event()

    def watch_memory():
        while not done.wait(0.005):
            peaks.append(_resident())

    watcher = Thread(target=watch_memory)
    watcher.start()
    start = time.process_time()
    call()
    seconds = time.process_time() - start
    done.set()
    watcher.join()
    return f"{seconds:.1f} s, {max(peaks) - peaks[0]:.0f} MB"


def _resident():
    """Memory of this process in MB."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize() / 2**20


def processor_time(call, *args, repeat=9):
    """Least processor seconds of a call."""
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        call(*args)
        seconds.append(time.process_time() - start)
    return min(seconds)


def main():
    """Run the named parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["accuracy", "cost", "measuring"])
    parser.add_argument("--tables", nargs="+", default=["all"], help=f"or {', '.join(SETS)}")
    parser.add_argument("--rows", type=int, default=900, help="of a table, at most")
    parser.add_argument("--rates", nargs="+", type=float, default=[0.1, 0.3, 0.5])
    parser.add_argument("--mechanisms", nargs="+", default=["MCAR", "MAR"])
    parser.add_argument("--where", nargs="+", default=["test", "train and test"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--splits", type=int, default=10, help="of measuring")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--indicators", action="store_true")
    parser.add_argument("--save", default="benchmarks/results/expected_models.jsonl")
    options = parser.parse_args()
    options.tables = [name for own in options.tables for name in SETS.get(own, [own])]
    for part in options.parts:
        globals()[part](options)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
