"""Levels of the independence tests of sum-product networks, compared on many tables.

Per table and level: mean log likelihood of complete held-out rows, errors of cells that are hidden
in these rows at random (numbers in standard deviations of the column, categories as the fraction of
wrong ones), and CPU seconds of the fit. Seven tenths of the rows teach. Tables are scikit-learn's,
those of ``$SKCIRCUITS_DATA`` and generated ones (`_imputation_tables`); the summary compares every
level with the first one.

Results are kept in a file; what is there is not computed again.

Run: OMP_NUM_THREADS=1 python -m benchmarks.wmispn_levels [--tables iris crx] [--levels .01 auto]
     [--max-rows 1000] [--results FILE]
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from _imputation_tables import BUNDLED, HYBRID, INCOMPLETE, REGRESSION, hide, load
from _results import Records
from imputation import errors

from skcircuits import CircuitImputer, WMISPNDensity

RESULTS = Path(__file__).parent / "results" / "wmispn_levels.jsonl"
GENERATED = [f"{kind}_{seed}" for seed in range(100, 112) for kind in ("realistic", "process")]
GENERATED += [f"{kind}_{s}" for s in range(200, 213) for kind in ("realistic", "process", "random")]
TABLES = [*BUNDLED, *HYBRID, *INCOMPLETE, *REGRESSION, *GENERATED]
LEVELS = ["0.01", "0.05", "0.1", "0.2", "0.5", "auto"]
RATE = 0.3


def examine(name, level, max_rows):
    """Likelihood, errors and cost of one level on one table."""
    X, categorical, _ = load(name, max_rows)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(X))
    train, test = np.split(X[order], [int(0.7 * len(X))])
    alpha = level if level == "auto" else float(level)
    imputer = CircuitImputer(
        density=WMISPNDensity(alpha=alpha, random_state=0),
        categorical_features=categorical,
        random_state=0,
    )
    start = time.process_time()
    imputer.fit(train)
    seconds = time.process_time() - start
    # What was never seen can neither be scored nor imputed.
    for j in categorical:
        test = test[np.isnan(test[:, j]) | np.isin(test[:, j], train[:, j])]
    hidden = hide(test, RATE, "MCAR", rng) & ~np.isnan(test)
    filled = np.asarray(imputer.transform(np.where(hidden, np.nan, test)), dtype=float)
    numbers, categories = errors(filled, test, hidden, categorical)
    return {
        "n_rows": len(train),
        "alpha": imputer.density_.alpha_,
        "log_likelihood": float(imputer.density_.score(test)),
        "numbers": numbers,
        "categories": categories,
        "seconds": seconds,
    }


def summarise(results, levels):
    """Print how each level compares with the first one."""
    wide = results.pivot(
        index="table",
        columns="level",
        values=["log_likelihood", "numbers", "categories", "seconds"],
    ).astype(float)
    first = levels[0]
    print(f"\n{'beside ' + first:12s} tables  log likelihood: wins, losses, mean, median  ", end="")
    print("errors of numbers: mean, wins, losses   of categories   seconds: ratio")
    for level in levels[1:]:
        gain = wide["log_likelihood"][level] - wide["log_likelihood"][first]
        line = f"{level:12s} {gain.notna().sum():6d}  {(gain > 1e-9).sum():6d} "
        line += f"{(gain < -1e-9).sum():6d} {gain.mean():9.4f} {gain.median():9.4f}  "
        for what in ("numbers", "categories"):
            off = (wide[what][level] - wide[what][first]).dropna()
            line += f"{off.mean():12.4f} {(off < -1e-9).sum():4d} {(off > 1e-9).sum():4d}     "
        cost = wide["seconds"][level] / wide["seconds"][first]
        print(line, f"{np.exp(np.log(cost).mean()):8.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--levels", nargs="+", default=LEVELS)
    parser.add_argument("--max-rows", type=int, default=1000)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    records = Records(options.results, ["table", "level", "max_rows"])
    for table in options.tables:
        for level in options.levels:
            key = {"table": table, "level": level, "max_rows": options.max_rows}
            if key not in records:
                records.add({**key, **examine(table, level, options.max_rows)})
        rows = [line for line in records.lines if line["table"] == table]
        print(
            table, *(f"{line['level']} {line['log_likelihood']:.3f}" for line in rows), flush=True
        )
    results = records.table()
    summarise(results[results["max_rows"] == options.max_rows], options.levels)


if __name__ == "__main__":
    main()
