"""Comparisons with named peers for each task of the guide, and the page that shows them.

    OMP_NUM_THREADS=1 python benchmarks/overview.py [name ...]     measures, a few minutes
    python benchmarks/overview.py --page                           redraws doc/benchmarks.md

Both sides run in one process, one after the other in every round, with the same rows, masks and
seeds; times are processor times. Results are kept in `benchmarks/overview.jsonl`, one object per
comparison and round; a comparison that is measured again replaces its lines. The page shows
the median over rounds and the least and the largest.
"""

import argparse
import gzip
import importlib.metadata
import json
import platform
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.linear_model import RidgeCV
from sklearn.metrics import log_loss, root_mean_squared_error
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.svm import SVR

import skcircuits as sk

HERE = Path(__file__).parent
RESULTS = HERE / "overview.jsonl"
PAGE = HERE.parent / "doc" / "benchmarks.md"
PICTURE = HERE.parent / "doc" / "images" / "benchmarks.png"
CASES = {}


def case(task, what, unit, peer, n_rounds=5):
    """Register a comparison: a function of a seed that gives (ours, theirs), less is better."""

    def register(function):
        about = {"task": task, "what": what, "unit": unit, "peer": peer, "n_rounds": n_rounds}
        CASES[function.__name__] = (function, about)
        return function

    return register


def seconds(function):
    """Processor time of one call, and its result."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def hidden(X, rate, seed):
    """Rows with cells missing completely at random."""
    return np.where(np.random.default_rng(seed).random(X.shape) < rate, np.nan, X)


# Predictions with missing values: trained on complete rows, applied to incomplete ones


def _forest_losses(data, seed):
    X, y = data
    train, test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=seed)
    test = hidden(test, 0.3, seed)
    forest = RandomForestClassifier(min_samples_leaf=3, random_state=seed)
    ours = sk.ExpectedPredictionClassifier(forest, random_state=seed).fit(train, y_train)
    imputer = IterativeImputer(random_state=seed).fit(train)
    filled = ours.estimator_.predict_proba(imputer.transform(test))
    return log_loss(y_test, ours.predict_proba(test)), log_loss(y_test, filled)


@case("predict", "forest, breast cancer, 30 % missing", "log loss", "scikit-learn IterativeImputer")
def forest_cancer(seed):
    X, y = load_breast_cancer(return_X_y=True)
    return _forest_losses((X[:, :10], y), seed)


@case("predict", "forest, wine, 30 % missing", "log loss", "scikit-learn IterativeImputer")
def forest_wine(seed):
    return _forest_losses(load_wine(return_X_y=True), seed)


def _errors(model, peer, rate, seed):
    X, y = load_diabetes(return_X_y=True)
    train, test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=seed)
    test = hidden(test, rate, seed)
    errors = [
        root_mean_squared_error(y_test, one.fit(train, y_train).predict(test))
        for one in (sk.ExpectedPredictionRegressor(model, random_state=seed), peer)
    ]
    return tuple(errors)


@case("predict", "SVR, diabetes, 50 % missing", "RMSE", "scikit-learn IterativeImputer")
def svr_diabetes(seed):
    model = make_pipeline(StandardScaler(), SVR(C=100))
    return _errors(model, make_pipeline(IterativeImputer(random_state=seed), model), 0.5, seed)


@case("predict", "boosting, diabetes, 30 % missing", "RMSE", "native missing values")
def boosting_diabetes(seed):
    model = HistGradientBoostingRegressor(random_state=seed)
    return _errors(model, model, 0.3, seed)


@case("predict", "ridge, 1,000 x 20, 30 % missing", "s to predict", "scikit-learn IterativeImputer")
def ridge_time(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2000, 20)) @ rng.normal(size=(20, 20))
    y, test = X[:, :5].sum(axis=1), hidden(X[1000:], 0.3, seed)
    density = sk.GaussianMixtureDensity(n_components=3, random_state=seed)
    ours = sk.ExpectedPredictionRegressor(RidgeCV(), density=density).fit(X[:1000], y[:1000])
    imputer = IterativeImputer(random_state=seed).fit(hidden(X[:1000], 0.3, seed))
    peer = RidgeCV().fit(X[:1000], y[:1000])
    return (
        seconds(lambda: ours.predict(test))[0],
        seconds(lambda: peer.predict(imputer.transform(test)))[0],
    )


# Imputation: cells hidden in standardised tables


def _imputation(load, peer, rate, seed):
    X = scale(load().data)
    train, test = train_test_split(X, test_size=0.3, random_state=seed)
    incomplete = hidden(test, rate, seed)
    train, mask = hidden(train, rate, seed + 100), np.isnan(incomplete)
    imputers = (sk.CircuitImputer(random_state=seed), peer)
    filled = [imputer.fit(train).transform(incomplete) for imputer in imputers]
    return tuple(root_mean_squared_error(test[mask], one[mask]) for one in filled)


@case("impute", "wine, 30 % missing", "RMSE", "scikit-learn IterativeImputer")
def impute_wine(seed):
    return _imputation(load_wine, IterativeImputer(random_state=seed), 0.3, seed)


@case("impute", "breast cancer, 30 % missing", "RMSE", "scikit-learn IterativeImputer", 3)
def impute_cancer(seed):
    return _imputation(load_breast_cancer, IterativeImputer(random_state=seed), 0.3, seed)


@case("impute", "iris, 30 % missing", "RMSE", "scikit-learn KNNImputer")
def impute_iris(seed):
    return _imputation(load_iris, KNNImputer(), 0.3, seed)


class _MiceForest:
    """miceforest as an imputer: the mean of five completed tables."""

    def __init__(self, seed):
        self.seed = seed

    def fit(self, X):
        import miceforest

        self.kernel = miceforest.ImputationKernel(_frame(X), num_datasets=5, random_state=self.seed)
        self.kernel.mice(5, verbose=False)
        return self

    def transform(self, X):
        new = self.kernel.impute_new_data(_frame(X))
        return np.mean([new.complete_data(i).to_numpy() for i in range(5)], axis=0)


def _frame(X):
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])


@case("impute", "wine, 30 % missing", "RMSE", "miceforest, mean of 5 tables", 3)
def impute_wine_mice(seed):
    return _imputation(load_wine, _MiceForest(seed), 0.3, seed)


@case("impute", "wine, 30 % missing", "s to fit and transform", "miceforest, mean of 5 tables", 2)
def impute_wine_mice_time(seed):
    X = hidden(scale(load_wine().data), 0.3, seed)
    ours, peer = sk.CircuitImputer(random_state=seed), _MiceForest(seed)
    return seconds(lambda: ours.fit_transform(X))[0], seconds(lambda: peer.fit(X).transform(X))[0]


@case(
    "impute",
    "2,000 x 20, 20 % missing",
    "s to fit and transform",
    "scikit-learn IterativeImputer",
    3,
)
def impute_time(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2000, 4)) @ rng.normal(size=(4, 20)) + rng.normal(size=(2000, 20))
    X = hidden(X, 0.2, seed)
    imputers = (sk.CircuitImputer(random_state=seed), IterativeImputer(random_state=seed))
    return tuple(seconds(lambda one=one: one.fit_transform(X))[0] for one in imputers)


@case("impute", "wine, 30 % missing", "s to fit and transform", "scikit-learn IterativeImputer", 3)
def impute_wine_time(seed):
    X = hidden(scale(load_wine().data), 0.3, seed)
    imputers = (sk.CircuitImputer(random_state=seed), IterativeImputer(random_state=seed))
    return tuple(seconds(lambda one=one: one.fit_transform(X))[0] for one in imputers)


# Densities


def _clusters(rng, n_rows=10_000, n_columns=10):
    centres = 3.0 * rng.normal(size=(8, n_columns))
    return centres[rng.integers(8, size=n_rows)] + rng.normal(size=(n_rows, n_columns))


@case(
    "density",
    "10,000 x 10, 8 components",
    "s to fit 10 iterations",
    "scikit-learn GaussianMixture",
    3,
)
def density_fit(seed):
    X = _clusters(np.random.default_rng(seed))
    options = {"n_components": 8, "max_iter": 10, "tol": 0.0, "random_state": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = sk.GaussianMixtureDensity(covariance_type="full", **options)
        return seconds(lambda: ours.fit(X))[0], seconds(lambda: GaussianMixture(**options).fit(X))[
            0
        ]


@case("density", "10,000 x 10, 8 components", "s to score", "scikit-learn GaussianMixture")
def density_score(seed):
    X = _clusters(np.random.default_rng(seed))
    options = {"n_components": 8, "max_iter": 3, "random_state": seed}
    models = (
        sk.GaussianMixtureDensity(covariance_type="full", **options),
        GaussianMixture(**options),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = [model.fit(X) for model in models]
    return tuple(seconds(lambda m=model: m.score_samples(X))[0] for model in fitted)


def _held_out(load, seed):
    """Ours chooses itself, the peer its number of components by BIC.

    The measure is the geometric mean of 1 / density per column: exp(-log density / columns).
    """
    train, test = train_test_split(scale(load().data), test_size=0.3, random_state=seed)
    peers = [GaussianMixture(k, reg_covar=1e-3, random_state=seed).fit(train) for k in range(1, 7)]
    peer = min(peers, key=lambda peer: peer.bic(train))
    ours = sk.GaussianMixtureDensity(random_state=seed).fit(train)
    return tuple(float(np.exp(-one.score(test) / test.shape[1])) for one in (ours, peer))


@case("density", "wine, held-out rows", "1 / density", "scikit-learn GaussianMixture, BIC")
def density_wine(seed):
    return _held_out(load_wine, seed)


@case(
    "density",
    "breast cancer, held-out rows",
    "1 / density",
    "scikit-learn GaussianMixture, BIC",
    3,
)
def density_cancer(seed):
    return _held_out(load_breast_cancer, seed)


# Queries


def _marginals(name):
    """All marginals of one of pgmpy's networks, which it and we read from the same file."""
    import pgmpy
    from pgmpy.inference import VariableElimination
    from pgmpy.readwrite import BIFReader

    from skcircuits.graphical import BayesianNetwork

    packed = Path(pgmpy.__file__).parent / "utils" / "example_models" / f"{name}.bif.gz"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.bif"
        path.write_bytes(gzip.decompress(packed.read_bytes()))
        theirs, ours = BIFReader(str(path)).get_model(), BayesianNetwork.from_bif(path)
    query = VariableElimination(theirs).query
    query([ours.variable_names[0]], show_progress=False)
    ours_s, _ = seconds(ours.marginals)
    return ours_s, seconds(lambda: [query([v], show_progress=False) for v in theirs.nodes()])[0]


@case("query", "all marginals of mildew (first call)", "s", "pgmpy", 3)
def marginals_mildew(seed):
    return _marginals("mildew")


@case("query", "all marginals of alarm (first call)", "s", "pgmpy", 3)
def marginals_alarm(seed):
    return _marginals("alarm")


@case("query", "10,000 draws given an event of P = 0.01", "s", "rejection sampling", 3)
def conditional_draws(seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"x": rng.normal(size=2000), "y": rng.normal(size=2000)})
    X["y"] += X["x"]
    density = sk.GaussianMixtureDensity(n_components=3, covariance_type="full", random_state=seed)
    density.fit(X)
    bound = float(density.quantile(0.99, "y"))
    n = 10_000
    ours, _ = seconds(lambda: density.sample(n, given=f"y > {bound!r}", random_state=seed))

    def filtered():
        draws = density.sample(100 * n, random_state=seed)
        return draws[draws["y"] > bound]

    return ours, seconds(filtered)[0]


# Samplers


@case(
    "correct",
    "Gibbs chain of 500 sweeps, 4 x 4 Ising grid",
    "mean error of marginals",
    "unweighted chain",
)
def stein_weights(seed):
    from skcircuits.graphical import IsingModel

    rng = np.random.default_rng(seed)
    couplings, fields = rng.normal(0.0, 0.5, 24), rng.normal(0.0, 0.5, 16)
    grid = IsingModel.grid(4, 4, couplings=couplings, fields=fields)
    exact = np.array([marginal[1] for marginal in grid.marginals()])
    chain = grid.gibbs_sample(500, burn_in=0, random_state=seed)
    weights = sk.BBISWeighter(target=grid).fit(chain).weights_
    errors = [np.abs(w @ chain - exact).mean() for w in (weights, np.full(500, 1 / 500))]
    return tuple(errors)


@case(
    "particles",
    "10 x 10 Gaussian grid, 100 particles",
    "ms per iteration",
    "blackjax SVGD (float32)",
    3,
)
def svgd_step(seed):
    from _svgd_peers import blackjax_svgd, score_of_field
    from _svgd_targets import gaussian_field, grid_edges
    from svgd_speed import seconds_per_iteration

    rng = np.random.default_rng(seed)
    field = gaussian_field(grid_edges(10), 100, rng)
    ours = seconds_per_iteration(field, 100, 300, repeats=1, dtype="float32")
    start = rng.normal(size=(100, 100)).astype(np.float32)
    theirs = blackjax_svgd(score_of_field(field), start, 300)[1]
    return 1e3 * ours, 1e3 * theirs


def measure(names):
    """Run comparisons, replace their lines."""
    for name in names:
        function, about = CASES[name]
        lines = []
        for seed in range(about["n_rounds"]):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ours, theirs = map(float, function(seed))
            lines.append({"name": name, "seed": seed, "ours": ours, "theirs": theirs})
        ratios = [line["ours"] / line["theirs"] for line in lines]
        print(
            f"{name:20s} {np.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})", flush=True
        )
        # Read here: what a long run has not come to yet stays
        kept = [line for line in _read() if line["name"] != name]
        kept += [{**line, "machine": machine(), "versions": versions()} for line in lines]
        RESULTS.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")


def machine():
    """Name and architecture of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor()}, one thread, {platform.system()}"


def versions():
    """Versions of the packages on both sides, where they are installed."""
    found = {}
    for name in ("skcircuits", "numpy", "scikit-learn", "miceforest", "pgmpy", "blackjax", "jax"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _read():
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]


def summary():
    """One row per comparison, in the order of this file: medians, and the spread of ratios."""
    table = pd.DataFrame(_read())
    table["ratio"] = table["ours"] / table["theirs"]
    by_name = table.groupby("name", sort=False)
    numbers = by_name[["ours", "theirs", "ratio"]].median()
    numbers["least"], numbers["most"] = by_name["ratio"].min(), by_name["ratio"].max()
    about = pd.DataFrame({name: CASES[name][1] for name in CASES if name in numbers.index}).T
    return about.join(numbers)


def write_page():
    """Redraw the table and the picture."""
    table, lines = summary(), _read()
    body = "\n".join(
        f"| {r.task} | {r.what} | {r.unit} | {r.peer} | {r.ours:.3g} | {r.theirs:.3g} "
        f"| {'' if r.ratio < 1 else '**'}{r.ratio:.2f}{'' if r.ratio < 1 else '**'} "
        f"| {r.least:.2f} - {r.most:.2f} | {r.n_rounds} |"
        for r in table.itertuples()
    )
    versions = {name: version for line in lines for name, version in line["versions"].items()}
    for name, version in versions.items():
        body = body.replace(f"| {name} ", f"| {name} {version} ")
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    # Lines that were not repeated keep the machine that they were measured on
    measured = {line["machine"]: set() for line in lines}
    for line in lines:
        measured[line["machine"]].add(line["name"])
    *others, (main, _) = sorted(measured.items(), key=lambda own: len(own[1]))
    machines = [main, *(f"{own} ({', '.join(sorted(names))})" for own, names in others)]
    text = PAGE.read_text(encoding="utf-8")
    start, end = "<!-- table -->\n", "<!-- end of table -->"
    head, tail = text.split(start)[0], text.split(end)[1]
    heading = "| task | what | measure | peer | ours | theirs | ratio | range | rounds |"
    table_text = (
        f"{heading}\n|{'---|' * 9}\n{body}\n\nMachine: {'; '.join(machines)}. {packages}.\n"
    )
    PAGE.write_text(head + start + table_text + end + tail, encoding="utf-8")
    draw(table)


def draw(table):
    """Ratios with their range on a logarithmic axis; skcircuits is better on the left of 1."""
    import matplotlib.pyplot as plt

    plt.rcParams["axes.spines.right"] = plt.rcParams["axes.spines.top"] = False
    figure, ax = plt.subplots(figsize=(8, 0.36 * len(table) + 1), layout="constrained")
    places = np.arange(len(table))[::-1]
    colours = np.where(table["ratio"] < 1, "#0072B2", "#D55E00")
    ax.hlines(
        places, table["least"].astype(float), table["most"].astype(float), color=colours, lw=3
    )
    ax.scatter(table["ratio"], places, color=colours, zorder=2)
    ax.axvline(1.0, color="0.4", linewidth=1)
    ax.set_yticks(places, [f"{r.what}: {r.unit}\n{r.peer}" for r in table.itertuples()], fontsize=7)
    ax.set_xscale("log")
    ax.set_xlabel("ours / theirs (skcircuits is better on the left of 1)", fontsize=9)
    figure.savefig(PICTURE, dpi=110)


def main():
    """Measure, or redraw the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.page:
        write_page()
    else:
        measure(options.names or list(CASES))


if __name__ == "__main__":
    main()
