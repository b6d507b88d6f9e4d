"""Fit and transform of an imputer that chooses its density, beside scikit-learn's.

Prints ratios of process CPU times, ours over IterativeImputer's, and both RMSE in standard
deviations of the columns. Run it with one BLAS thread:

    OMP_NUM_THREADS=1 python benchmarks/density_choice.py [TABLES ...]

TABLES: ``low_rank``, ``wide``, ``skewed`` and ``mixed`` (by default), ``components``, ``large``,
``pairs``, ``tails``, ``thresholds``, ``frequent``, ``marginals``.
``components`` prints the errors of given numbers of components on the skewed tables. ``mixed``
reads the tables of ``$SKCIRCUITS_DATA/hybrid`` (default ``../shared/data``) and prints the error of
imputed numbers and categories instead; ``pairs`` compares what a density says of a number given a
category, and the other way round, with the table's own frequencies. ``tails`` does so for the
median and high quantiles of skewed numbers (`_pair_tables`). ``thresholds`` does so on
tables in which a number decides a category (`_threshold_tables`) and prints the largest difference
by density, and the mean log density of as many other rows. ``frequent`` prints the largest error
of the probabilities of a value that many rows share, and of intervals that end at it.
``marginals`` prints the largest errors of distribution functions on numeric tables
(`_numeric_tables`).
"""

import json
import os
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from _frequent_tables import KINDS as FREQUENT_KINDS
from _numeric_tables import KINDS as NUMERIC_KINDS
from _numeric_tables import largest_errors
from _pair_tables import KINDS as PAIR_KINDS
from _pair_tables import misfits, wages
from _threshold_tables import KINDS, largest_misfit
from sklearn.datasets import load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer

from skcircuits import (
    AutomaticDensity,
    CircuitImputer,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    WMISPNDensity,
)

# rows, columns, factors, fraction missing, columns that IterativeImputer regresses on
TABLES = {
    "low_rank": [
        (1_000, 10, 4, 0.3, None),
        (10_000, 20, 4, 0.3, None),
        (100_000, 20, 4, 0.3, None),
        (5_000, 100, 4, 0.3, None),
    ],
    "wide": [(80, 60, 5, 0.2, 30), (300, 150, 5, 0.2, 30), (100, 300, 5, 0.2, 30)],
    "skewed": [(1_000, 10, 4, 0.3, None), (10_000, 20, 4, 0.3, None)],
}


def low_rank(n_rows, n_columns, n_factors, fraction, skewed=False, seed=0):
    """A table and its mask of missing cells; skewed: a third of the columns exponentiated."""
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(n_factors, n_columns)) / np.sqrt(n_factors)
    X = rng.normal(size=(n_rows, n_factors)) @ loadings
    X += 0.3 * rng.normal(size=X.shape)
    if skewed:
        X[:, : n_columns // 3] = np.exp(X[:, : n_columns // 3])
    return X, rng.random(X.shape) < fraction


def timed(function, *args):
    """CPU seconds and result."""
    start = time.process_time()
    result = function(*args)
    return time.process_time() - start, result


def error(completed, X, missing):
    """Root mean squared error of the missing cells in standard deviations."""
    return np.sqrt(np.square((completed - X) / X.std(axis=0))[missing].mean())


def compare(kind):
    """One line per table: ratios of times, errors, what was chosen."""
    print(f"{kind}: rows x columns, fit, transform (ours / peer), RMSE ours and peer, choice")
    for n_rows, n_columns, n_factors, fraction, n_nearest in TABLES[kind]:
        X, missing = low_rank(n_rows, n_columns, n_factors, fraction, kind == "skewed")
        incomplete = np.where(missing, np.nan, X)
        ours = CircuitImputer(random_state=0)
        peer = IterativeImputer(random_state=0, n_nearest_features=n_nearest)
        fits = [timed(imputer.fit, incomplete)[0] for imputer in (ours, peer)]
        completed = [timed(imputer.transform, incomplete) for imputer in (ours, peer)]
        errors = [error(table, X, missing) for _, table in completed]
        chosen = [row for row in ours.density_.selection_ if row["weight"]]
        print(
            f"  {n_rows:>7,} x {n_columns:<4}"
            f" {fits[0]:6.2f} / {fits[1]:6.2f} s = {fits[0] / fits[1]:5.2f} x"
            f" {completed[0][0]:6.3f} / {completed[1][0]:6.3f} s"
            f" = {completed[0][0] / completed[1][0]:5.2f} x"
            f"   {errors[0]:.4f} {errors[1]:.4f}  {_words(chosen)}"
        )


def components():
    """Errors of mixtures with given numbers of components, beside that of the choice."""
    print("components: RMSE of 1, 2, 4 and 8 with full covariances, of the choice, over the best")
    for n_rows, n_columns, n_factors, fraction, _ in TABLES["skewed"]:
        X, missing = low_rank(n_rows, n_columns, n_factors, fraction, skewed=True)
        incomplete = np.where(missing, np.nan, X)
        densities = [
            GaussianMixtureDensity(n_components=k, covariance_type="full") for k in (1, 2, 4, 8)
        ]
        errors = [
            error(CircuitImputer(density=own, random_state=0).fit_transform(incomplete), X, missing)
            for own in (*densities, "auto")
        ]
        ratio = errors[-1] / min(errors[:-1])
        print(f"  {n_rows:>7,} x {n_columns:<4}", np.round(errors, 4), f"{ratio:.3f} x")


def _words(chosen):
    return ", ".join(f"{row['weight']:.2f} x {_word(row)}" for row in chosen)


def _word(row):
    if row["family"] != "gaussian_mixture":
        return f"{row['family']} {row.get('n_latent_states', '')}"
    factors = f"({row['n_factors']})" if row.get("n_factors") else ""
    return f"{row['covariance_type']}{factors} K={row['n_components']}"


def large():
    """A million rows in bounded memory."""
    X, missing = low_rank(1_000_000, 20, 4, 0.3)
    X[missing] = np.nan
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, imputer = timed(CircuitImputer(random_state=0).fit, X)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"1,000,000 x 20: fit {seconds:.1f} s, {_words(imputer.density_.selection_[:1])};"
        f" memory {before / 1e6:.2f} GB with the table, at most {peak / 1e6:.2f} GB in the fit"
    )


def mixed(n_rows=400):
    """Errors of imputed cells on mixed tables: 30 % missing in training and test rows."""
    folder = Path(os.environ.get("SKCIRCUITS_DATA", "../shared/data")) / "hybrid"
    print("mixed: RMSE of numbers, error rate of categories; ours, then mean / mode; fit seconds")
    totals = []
    for path in sorted(folder.glob("*.csv.gz")):
        frame = pd.read_csv(path).drop(columns="split", errors="ignore")
        kinds = json.loads(path.with_name(path.name[:-7] + ".json").read_text())["columns"]
        categorical = {c["name"] for c in kinds if c["type"] == "categorical"}
        frame = frame.sample(min(len(frame), n_rows), random_state=0)
        codes = frame.apply(
            lambda c, names=categorical: (
                pd.Series(pd.factorize(c)[0], c.index)
                if c.name in names or not pd.api.types.is_numeric_dtype(c)
                else c
            )
        ).astype(float)
        mask = np.array([name in categorical for name in frame.columns])
        mask |= ~frame.apply(pd.api.types.is_numeric_dtype).to_numpy()
        totals.append(_mixed_line(path.name[:-7], codes.to_numpy(), mask))
    print("  mean", np.round(np.nanmean(totals, axis=0), 3))


def _mixed_line(name, X, mask):
    rng = np.random.default_rng(0)
    missing = rng.random(X.shape) < 0.3
    incomplete = np.where(missing, np.nan, X)
    train = np.arange(len(X)) < 0.7 * len(X)
    ours = CircuitImputer(
        categorical_features=np.flatnonzero(mask), keep_empty_features=True, random_state=0
    )
    seconds, _ = timed(ours.fit, incomplete[train])
    peers = [SimpleImputer(keep_empty_features=True) for _ in range(2)]
    peers[1].set_params(strategy="most_frequent")
    simple = np.where(mask, *(p.fit(incomplete[train]).transform(incomplete) for p in peers[::-1]))
    result = []
    for completed in (ours.transform(incomplete[~train]), simple[~train]):
        wrong = np.where(missing[~train], completed != X[~train], np.nan)[:, mask]
        scale = np.nanstd(X[train], axis=0)
        squares = np.square((completed - X[~train]) / np.where(scale > 0, scale, 1.0))
        squares = np.where(missing[~train], squares, np.nan)[:, ~mask]
        result += [np.sqrt(np.nanmean(squares)), np.nanmean(wrong) if mask.any() else np.nan]
    print(f"  {name:14}", np.round(result, 3), f"{seconds:.1f} s")
    return result


def births(n_rows=189, seed=0):
    """Weights of children, and whether they are low."""
    rng = np.random.default_rng(seed)
    mother, smokes = np.round(rng.lognormal(4.84, 0.2, n_rows)), rng.random(n_rows) < 0.39
    weight = 3150 + 5 * (mother - 130) - 350 * smokes + 650 * rng.normal(size=n_rows)
    columns = {"low": np.where(weight < 2500, "yes", "no"), "mother": mother}
    columns["smokes"] = np.where(smokes, "yes", "no")
    return pd.DataFrame({**columns, "weight": np.round(weight)})


def pairs():
    """Categories and numbers together, by the default density."""
    print("pairs: model, then the table itself, then a million other rows")
    others = wages(np.random.default_rng(99), 1_000_000)
    for seed in range(2):
        table = wages(np.random.default_rng(seed), 1500)
        density, limit = AutomaticDensity(random_state=0).fit(table), table["wage"].quantile(0.7)
        for sex in ("female", "male"):
            model = density.probability(f"wage > {limit}", given={"sex": sex})
            own, true = ((t["wage"][t["sex"] == sex] > limit).mean() for t in (table, others))
            print(f"  P(wage > {limit:.2f} | {sex:6}) {model:.3f} {own:.3f} {true:.3f}")
        table = births(seed=seed)
        density = AutomaticDensity(random_state=0).fit(table)
        model = density.probability({"low": "yes"}, given={"weight": (None, 2500.0)})
        print(f"  P(low | weight < 2500)      {model:.3f} 1.000")
    wine = load_wine(as_frame=True)
    table = wine.data.assign(cultivar=wine.target.astype(str))
    order = np.random.default_rng(0).permutation(len(table))
    imputer = CircuitImputer(density=AutomaticDensity(random_state=0))
    imputer.set_output(transform="pandas").fit(table.iloc[order[:110]])
    test = table.iloc[order[110:]]
    completed = imputer.transform(test.assign(cultivar=None))
    right = (completed["cultivar"].to_numpy() == test["cultivar"].to_numpy()).mean()
    print(f"  wine: class from 13 measurements right in {right:.3f} of {len(test)} test rows")


def tails(n_seeds=2):
    """Skewed numbers given categories, by the default density."""
    print("tails: P(number > quantile | category): largest difference from the table's frequency,")
    print(
        "  root mean square, the same from 50,000 other rows; their mean log density; fit seconds"
    )
    for make in PAIR_KINDS:
        others = make(np.random.default_rng(99), 50_000)
        for n_rows in (500, 1500, 5000):
            lines = []
            for seed in range(n_seeds):
                table = make(np.random.default_rng([seed, n_rows]), n_rows)
                density = AutomaticDensity(random_state=0)
                seconds, _ = timed(density.fit, table)
                errors = misfits(density, table, others)
                spread = np.sqrt(np.square(errors).mean(axis=0))
                score = density.score(others[:5000])
                lines.append(
                    [*np.column_stack([errors.max(axis=0), spread]).ravel(), score, seconds]
                )
            shown = "  ".join(f"{value:.3f}" for value in np.mean(lines, axis=0))
            print(f"  {make.__name__:9} {n_rows:5} rows   {shown}", flush=True)


def thresholds(n_seeds=2):
    """Categories that a number decides."""
    densities = [AutomaticDensity, GaussianMixtureDensity, HiddenChowLiuDensity, WMISPNDensity]
    names = ", ".join(kind.__name__ for kind in densities)
    print(f"thresholds: largest difference / held-out log density of {names}")
    for make in KINDS:
        lines = []
        for seed in range(n_seeds):
            n_rows = make.__defaults__[0]
            both, *asked = make(np.random.default_rng(seed), 2 * n_rows)
            table, others = both[:n_rows], both[n_rows:]
            fitted = [kind(random_state=0).fit(table) for kind in densities]
            lines.append([(largest_misfit(d, table, *asked), d.score(others)) for d in fitted])
        means = np.mean(lines, axis=0)
        shown = "   ".join(f"{misfit:.3f} / {score:7.2f}" for misfit, score in means)
        print(f"  {make.__name__:12} {n_rows:5} x {table.shape[1]:<3} {shown}")


def frequent(n_seeds=3):
    """Values that many rows share."""
    densities = [
        AutomaticDensity(random_state=0),
        GaussianMixtureDensity(random_state=0),
        GaussianMixtureDensity(point_masses="frequent", random_state=0),
        HiddenChowLiuDensity(random_state=0),
        WMISPNDensity(random_state=0),
    ]
    print("frequent: largest error of P(z == v), P(z <= v) and P(z < v | group) of")
    print("  " + "\n  ".join(map(repr, densities)))
    for make in FREQUENT_KINDS:
        for n_rows in (300, 3000):
            errors = []
            for seed in range(n_seeds):
                table, value = make(np.random.default_rng(seed), n_rows)
                errors.append([_largest_error(d.fit(table), table, value) for d in densities])
            shown = "  ".join(f"{error:.3f}" for error in np.mean(errors, axis=0))
            print(f"  {make.__name__:8} {n_rows:5} rows   {shown}", flush=True)


def _largest_error(density, table, value):
    """Largest difference between probabilities and frequencies."""
    asked = [
        (f"z {sign} {value}", f"group == '{group}'" if group else None)
        for sign, group in (("==", None), ("<=", None), ("<", "a"), ("<", "b"))
    ]
    errors = []
    for query, given in asked:
        rows = table.query(given) if given else table
        frequency = len(rows.query(query)) / len(rows)
        errors.append(abs(float(density.probability(query, given=given)) - frequency))
    return max(errors)


def marginals():
    """Distributions of single columns and of pairs of numeric tables."""
    densities = [AutomaticDensity(random_state=0), GaussianMixtureDensity(random_state=0)]
    print(f"marginals: {' and '.join(map(repr, densities))}: largest errors of distribution")
    print("  functions of one column and of two, mean log density of other rows; fit seconds")
    for n_rows in (150, 600, 4000):
        lines = []
        for make in NUMERIC_KINDS:
            others = make(np.random.default_rng(99), 40_000)
            table, line = make(np.random.default_rng([1, n_rows]), n_rows), []
            for density in densities:
                seconds, _ = timed(density.fit, table)
                errors = largest_errors(density.sample(100_000, random_state=5), others)
                line.append([*errors, density.score(others[:5000]), seconds])
            lines.append(np.concatenate(line))
            _print_marginals(make.__name__, n_rows, lines[-1])
        _print_marginals("mean", n_rows, np.mean(lines, axis=0))


def _print_marginals(name, n_rows, line):
    shown = "   ".join(
        f"{single:.3f} {pair:.3f} {score:7.2f} {seconds:5.1f}"
        for single, pair, score, seconds in line.reshape(-1, 4)
    )
    print(f"  {name:10} {n_rows:5} rows   {shown}", flush=True)


def main():
    """Run what is named, or all but the largest table."""
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or ["low_rank", "wide", "skewed", "mixed"]:
        if name in TABLES:
            compare(name)
        else:
            others = [components, large, mixed, pairs, tails, thresholds, frequent, marginals]
            {run.__name__: run for run in others}[name]()


if __name__ == "__main__":
    main()
