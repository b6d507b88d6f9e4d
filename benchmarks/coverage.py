"""Coverage of 95 % intervals of regression coefficients after multiple imputation.

Rows of four correlated columns, y = 1 + x1 - x2 / 2 + x3 / 2 + noise; cells of x1, x2 and y are
hidden completely at random (MCAR) or depending on x3, which stays observed (MAR). Each of m tables
gives a least-squares fit; `pool_models` (Rubin; Barnard and Rubin) gives the intervals. Beside
ours (proper with one Gaussian and with the automatic density; improper):
`IterativeImputer(sample_posterior=True)`, miceforest, and complete rows only.

Results are appended to a file, one line per simulated table and method.

Run: OMP_NUM_THREADS=1 python benchmarks/coverage.py [--rates .1 .3 .5] [--masks MCAR MAR]
     [--repetitions 300] [--rows 200] [--imputations 10] [--methods one auto] [--results FILE]
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from skcircuits import CircuitImputer, GaussianMixtureDensity, pool

RESULTS = Path(__file__).parent / "results" / "coverage.jsonl"
COEFFICIENTS = np.array([1.0, 1.0, -0.5, 0.5])
KEYS = ["mask", "rate", "seed", "method"]
METHODS = ["one", "auto", "improper", "iterative", "miceforest", "complete rows"]


def simulate(n_rows, mask, rate, rng):
    """A complete table (x1, x2, x3, y) and the same with hidden cells."""
    common = rng.normal(size=(n_rows, 1))
    x = 0.6 * common + 0.8 * rng.normal(size=(n_rows, 3))
    y = COEFFICIENTS[0] + x @ COEFFICIENTS[1:] + rng.normal(size=n_rows)
    table = np.column_stack([x, y])
    chance = np.full(n_rows, rate)
    if mask == "MAR":
        chance = stats.norm.cdf(1.5 * x[:, 2])
        chance *= rate / chance.mean()
    hidden = rng.random(table.shape) < np.minimum(chance, 0.95)[:, None]
    hidden[:, 2] = False
    return table, np.where(hidden, np.nan, table)


def least_squares(table):
    """Coefficients and their variances."""
    design = np.column_stack([np.ones(len(table)), table[:, :3]])
    inverse = np.linalg.inv(design.T @ design)
    found = inverse @ design.T @ table[:, 3]
    freedom = len(table) - design.shape[1]
    noise = np.square(table[:, 3] - design @ found).sum() / freedom
    return found, noise * np.diag(inverse), freedom


def pooled_interval(tables):
    """Pooled 95 % intervals, shape (4, 2)."""
    fits = [least_squares(table) for table in tables]
    result = pool(
        [f[0] for f in fits], [f[1] for f in fits], complete_degrees_of_freedom=fits[0][2]
    )
    return result.interval(0.95)


def intervals(method, incomplete, m, seed):
    """Intervals of one method."""
    if method == "complete rows":
        found, variances, freedom = least_squares(incomplete[~np.isnan(incomplete).any(axis=1)])
        half = stats.t.ppf(0.975, freedom) * np.sqrt(variances)
        return np.column_stack([found - half, found + half])
    if method == "iterative":
        return pooled_interval(
            [
                IterativeImputer(sample_posterior=True, random_state=1000 * seed + i).fit_transform(
                    incomplete
                )
                for i in range(m)
            ]
        )
    if method == "miceforest":
        return pooled_interval(forests(incomplete, m, seed))
    one = GaussianMixtureDensity(n_components=1, covariance_type="tied", random_state=seed)
    imputer = CircuitImputer(density="auto" if method == "auto" else one, random_state=seed)
    imputer.fit(incomplete)
    return pooled_interval(imputer.sample_imputations(incomplete, m, proper=method != "improper"))


def forests(incomplete, m, seed):
    """Tables completed by miceforest."""
    import miceforest

    frame = pd.DataFrame(incomplete, columns=list("abcd"))
    kernel = miceforest.ImputationKernel(frame, num_datasets=m, random_state=seed)
    kernel.mice(4, num_threads=1)
    return [kernel.complete_data(i).to_numpy() for i in range(m)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", nargs="+", type=float, default=[0.1, 0.3, 0.5])
    parser.add_argument("--masks", nargs="+", default=["MCAR", "MAR"])
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--imputations", type=int, default=10)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if options.results.exists():
        done = {tuple(json.loads(line)[k] for k in KEYS) for line in options.results.open()}
    for seed in range(options.repetitions):
        for mask in options.masks:
            for rate in options.rates:
                rng = np.random.default_rng([seed, int(100 * rate), mask == "MAR"])
                _, incomplete = simulate(options.rows, mask, rate, rng)
                for method in options.methods:
                    if (mask, rate, seed, method) in done:
                        continue
                    found = intervals(method, incomplete, options.imputations, seed)
                    covered = (found[:, 0] <= COEFFICIENTS) & (found[:, 1] >= COEFFICIENTS)
                    row = dict(zip(KEYS, (mask, rate, seed, method), strict=True))
                    row |= {"covered": covered.mean(), "width": (found[:, 1] - found[:, 0]).mean()}
                    with options.results.open("a") as file:
                        file.write(json.dumps(row) + "\n")
    summarise(options.results)


def summarise(path):
    """Print coverage and mean width per mask, rate and method."""
    results = pd.DataFrame([json.loads(line) for line in path.open()])
    for what in ("covered", "width"):
        table = results.pivot_table(index=["mask", "rate"], columns="method", values=what)
        print(f"{what}\n{table.round(3).to_string()}")
    counts = results.pivot_table(
        index=["mask", "rate"], columns="method", values="seed", aggfunc=len
    )
    print(f"simulated tables\n{counts.to_string()}")


if __name__ == "__main__":
    main()
