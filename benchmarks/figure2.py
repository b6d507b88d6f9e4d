"""Regression with missing cells: Figure 2 of "Tractable Computation of Expected Kernels".

The published support vector regressions predict rows of which a fraction of the cells is
removed at random; the root mean squared error of several ways to do so, beside the recorded
numbers::

    python -m benchmarks.figure2 --data abalone delta-ailerons insurance
    python -m benchmarks.figure2 --data elevators --trials 2 --split test --mask feature
    python -m benchmarks.figure2 --picture figure2.png

All methods see the same masks, and statistics come from the training rows alone. ``bit``
removes cells one by one as published, ``feature`` whole raw features. "original" is the
circuit that was published with the regressions; "weighted" is a mean of the expected predictions
under all other densities, with the weights that predict held-out training rows, of which cells
are removed in the same way, with the least error. One of these densities is learned from the raw
features, of which the columns are indicators. "*" marks the least error of a column, "=" those
within one standard error of the paired difference to it. Errors are kept in
``benchmarks/papers/figure2.jsonl`` and not computed again.
"""

import argparse
import csv
import gzip
import tempfile
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from _data import data_path
from _results import record
from sklearn.base import clone

from skcircuits import HiddenChowLiuDensity, StrudelDensity
from skcircuits.circuits import Circuit, Indicator, Product, Sum
from skcircuits.kernels import RBF, expected_kernel_matrix
from skcircuits.stein import simplex_weights

DATA = ["abalone", "delta-ailerons", "elevators", "insurance"]
RATES = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
N_COMPLETIONS = 5
ROWS_AT_ONCE = 256  # of completed rows, whose kernel matrix is held in memory

# Densities of the columns behind "expected" predictions
DENSITIES = {
    "strudel": StrudelDensity(max_iter=300, random_state=0),
    "mixture": StrudelDensity(max_iter=20, n_components=8, random_state=0),
    "latent tree": HiddenChowLiuDensity(n_latent_states=16, random_state=0),
}
OF_FEATURES = "feature tree"
HELD_OUT = 0.1
MAX_HELD_OUT = 2000  # incomplete rows, which are enough for four weights


class Circuits:
    """Densities of the training rows of a data set, fitted when first asked for.

    `groups`: raw feature of each column.
    """

    def __init__(self, name, train, target, groups, regression):
        self.name = name
        self.train = train
        self.target = target
        self.groups = groups
        self.regression = regression

    @cached_property
    def by_name(self):
        """Circuits by the names of their densities, the published one too."""
        return self._fitted(self.train) | {"original": self._original()}

    @cached_property
    def weights(self):
        """Weights of the densities by which held-out training rows are predicted best."""
        rng = np.random.default_rng(0)
        order = rng.permutation(len(self.train))
        held_out, fitted = np.split(order, [int(HELD_OUT * len(order))])
        # Bits that no other row has set are impossible under every density.
        possible = np.all(self.train[held_out] <= self.train[fitted].max(axis=0), axis=1)
        held_out = held_out[possible]
        rows = np.repeat(self.train[held_out], len(RATES), axis=0)
        rates = np.tile(RATES, len(held_out))
        incomplete = np.where(rng.random(rows.shape) < rates[:, None], np.nan, rows)
        target = np.repeat(self.target[held_out], len(RATES))
        some = rng.permutation(len(rows))[:MAX_HELD_OUT]
        incomplete, target = incomplete[some], target[some]
        circuits = self._fitted(self.train[fitted])
        values = [self.regression.expected(incomplete, c) for c in circuits.values()]
        residuals = np.array(values) - target
        # Of an affine combination the squared error is a quadratic form in the weights
        found = simplex_weights(residuals @ residuals.T)
        return dict(zip(circuits, found, strict=True))

    def _fitted(self, rows):
        """Circuits over the columns, learned from some training rows."""
        circuits = {
            label: clone(density).fit(rows).circuit_ for label, density in DENSITIES.items()
        }
        return circuits | {OF_FEATURES: self._of_features(rows)}

    def _of_features(self, rows):
        """Latent tree of the raw features, as a circuit over the columns."""
        columns = [np.flatnonzero(self.groups == j) for j in range(self.groups.max() + 1)]
        states = {}
        for j, own in enumerate(columns):
            # Other rows may have values outside of the bins, whose indicators are all zero
            codes = np.where(rows[:, own].any(axis=1), rows[:, own].argmax(axis=1), len(own))
            states[f"feature {j}"] = pd.Categorical.from_codes(codes, np.arange(len(own) + 1))
        density = clone(DENSITIES["latent tree"]).fit(pd.DataFrame(states))
        return with_indicator_columns(density.circuit_, columns)

    def _original(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "circuit.psdd"
            path.write_bytes(gzip.decompress(data_path("svr", f"{self.name}.psdd.gz").read_bytes()))
            return Circuit.from_psdd(path, data_path("svr", f"{self.name}.vtree"))


def with_indicator_columns(circuit, columns):
    """Circuit over indicators of the states of categorical variables.

    `columns` of each variable: indicators of its first states; the last state has none.
    """

    @cache
    def indicators(variable, state):
        own = columns[variable].tolist()
        return Product([Indicator(column, int(i == state), 2) for i, column in enumerate(own)])

    @cache
    def converted(unit):
        if isinstance(unit, Product):
            return Product([converted(child) for child in unit.children])
        if isinstance(unit, Sum):
            return Sum([converted(child) for child in unit.children], weights=unit.weights)
        possible = np.flatnonzero(unit.probabilities)
        states = [indicators(unit.variable, state) for state in possible]
        return Sum(states, weights=np.asarray(unit.probabilities)[possible])

    return Circuit(converted(circuit.root))


class Regression:
    """A published regression: kernel, support vectors, coefficients."""

    def __init__(self, name):
        with np.load(data_path("svr", f"{name}_svr_model.npz")) as model:
            self.kernel = RBF(gamma=float(model["gamma"]))
            self.support_vectors = model["support_vectors"].astype(float)
            self.coefficients = model["dual_coef"].ravel()
            self.intercept = float(np.ravel(model["intercept"])[0])

    def predict(self, X):
        """Predict complete rows, shape (n,)."""
        parts = [
            self.kernel(X[start : start + ROWS_AT_ONCE], self.support_vectors)
            for start in range(0, len(X), ROWS_AT_ONCE)
        ]
        return np.concatenate(parts) @ self.coefficients + self.intercept

    def expected(self, X, circuit):
        """Predict incomplete rows by the expectation under a circuit, shape (n,)."""
        matrix = expected_kernel_matrix(
            X, self.support_vectors, circuit=circuit, kernel=self.kernel
        )
        return matrix @ self.coefficients + self.intercept


def predictions(regression, circuits, incomplete, seed):
    """Predictions of all methods by name, each of shape (n,)."""
    missing = np.isnan(incomplete)
    strudel = circuits.by_name["strudel"]
    completions = strudel.sample(N_COMPLETIONS, X=incomplete, random_state=seed)
    mean = circuits.train.mean(axis=0)
    result = {
        f"expected, {name}": regression.expected(incomplete, circuit)
        for name, circuit in circuits.by_name.items()
    }
    return result | {
        "expected, weighted": sum(
            weight * result[f"expected, {label}"] for label, weight in circuits.weights.items()
        ),
        "most probable": regression.predict(strudel.mpe(incomplete)),
        "samples": np.mean([regression.predict(rows) for rows in completions], axis=0),
        "mode": regression.predict(np.where(missing, mean > 0.5, incomplete)),
        "mean": regression.predict(np.where(missing, mean, incomplete)),
        "constant": np.full(len(incomplete), regression.predict(circuits.train).mean()),
    }


def random_mask(rng, shape, groups, rate, unit):
    """Cells to remove: single ones, or all cells of a raw feature."""
    if unit == "bit":
        return rng.random(shape) < rate
    return (rng.random((shape[0], groups.max() + 1)) < rate)[:, groups]


def run(name, arguments):
    """Errors of one data set: dict of (method, rate) to an array over trials."""
    with np.load(data_path("svr", f"{name}.npz")) as data:
        train, rows = data["X_train"].astype(float), data[f"X_{arguments.split}"].astype(float)
        target, groups = data[f"y_{arguments.split}"], data["feature_of_column"]
        y_train = data["y_train"]
    regression = Regression(name)
    circuits = Circuits(name, train, y_train, groups, regression)

    def one(rate, trial):
        rng = np.random.default_rng([trial, round(100 * rate)])
        mask = random_mask(rng, rows.shape, groups, rate, arguments.mask)
        found = predictions(regression, circuits, np.where(mask, np.nan, rows), trial)
        return {
            method: float(np.sqrt(np.mean(np.square(values - target))))
            for method, values in found.items()
        }

    errors = {}
    for trial in range(arguments.trials):
        for rate in arguments.rates:
            entry = f"{name} {arguments.split} {arguments.mask} {rate:.0%} {trial}"
            for method, error in record("figure2", entry, lambda: one(rate, trial)).items():
                errors.setdefault((method, rate), []).append(error)
        print(f"  trial {trial} done", flush=True)
    return {key: np.array(values) for key, values in errors.items()}


def recorded(name):
    """Recorded mean errors and standard errors: dict of (key, rate)."""
    with open(data_path("svr", "figure2_rmse.csv")) as file:
        return {
            (line["key"], round(float(line["missing_rate"]), 1)): (
                float(line["rmse_mean"]),
                float(line["rmse_std"]) / np.sqrt(float(line["n_trials"])),
            )
            for line in csv.DictReader(file)
            if line["dataset"] == name
        }


def print_table(name, errors, arguments):
    """One line per method, one column per fraction of missing cells."""
    scale = 10.0 ** -np.floor(np.log10(np.mean(list(errors.values()))))
    methods = methods_of(errors, arguments)
    print(
        f"\n{name}, {arguments.split} rows, {arguments.mask} masks, {arguments.trials} trials, "
        f"errors times {scale:g} (standard error)"
    )
    print("missing".ljust(24), *(f"{rate:13.0%}" for rate in arguments.rates))
    for method in methods:
        cells = []
        for rate in arguments.rates:
            values = errors[method, rate]
            best = min((errors[other, rate] for other in methods), key=np.mean)
            difference = values - best
            mark = " "
            if values is best:
                mark = "*"
            elif difference.mean() <= standard_error(difference):
                mark = "="
            error = f"({scale * standard_error(values):.3f})"
            cells.append(f"{scale * values.mean():6.3f}{error}{mark}".rjust(13))
        print(method.ljust(24), *cells)
    if arguments.split == "valid" and arguments.mask == "bit":
        published = recorded(name)
        for key in ("pc", "map", "mode", "sample", "mean"):
            cells = [
                f"{scale * published[key, rate][0]:6.3f}".ljust(13) for rate in arguments.rates
            ]
            print(f"recorded {key}".ljust(24), *cells)


def methods_of(errors, arguments):
    """Methods that all entries have: older entries lack the weighted predictions."""
    return [
        method
        for method in dict.fromkeys(method for method, _ in errors)
        if all(len(errors.get((method, r), ())) == arguments.trials for r in arguments.rates)
    ]


def standard_error(values):
    """Standard error of a mean over trials; 0 for a single one."""
    return values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0


def draw(results, arguments):
    """One panel per data set: error against the fraction of missing cells."""
    import matplotlib.pyplot as plt

    size = (4.5 * len(results) + 2.5, 4)
    figure, axes = plt.subplots(1, len(results), figsize=size, squeeze=False, layout="constrained")
    for axis, (name, errors) in zip(axes[0], results.items()):
        for method in methods_of(errors, arguments):
            means = [errors[method, rate].mean() for rate in arguments.rates]
            deviations = [standard_error(errors[method, rate]) for rate in arguments.rates]
            style = "-" if method.startswith("expected") else "--"
            axis.errorbar(arguments.rates, means, deviations, fmt=style, label=method)
        axis.set(title=name, xlabel="fraction of missing cells", ylabel="root mean squared error")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize="small")
    figure.savefig(arguments.picture, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--split", choices=["valid", "test"], default="valid")
    parser.add_argument("--mask", choices=["bit", "feature"], default="bit")
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--picture", help="file to draw into")
    arguments = parser.parse_args()
    results = {}
    for name in arguments.data:
        print(name, flush=True)
        results[name] = run(name, arguments)
        print_table(name, results[name], arguments)
    if arguments.picture:
        draw(results, arguments)


if __name__ == "__main__":
    main()
