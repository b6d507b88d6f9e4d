"""Figure 6 of the paper: quantities estimated by a crowd, on the calories of meals.

Estimates are logarithms of calories, standardised over all workers. A few items are
control questions with known answers; the others are inferred together with the bias and
variance of every worker. Errors: of the items against the truth, of posterior means, second
moments and MMD against long adjusted Langevin chains.

    python benchmarks/svgd_crowd.py [--trials 5] [--workers 60] [--picture out.png]
"""

import argparse
import warnings

import numpy as np
import pandas as pd
from _data import data_path
from _svgd_targets import SampleErrors, draw_table, langevin, print_table

from skcircuits import GraphicalSVGDSampler
from skcircuits.graphical import CrowdsourcingModel

N_CONTROLS = 6
COLUMNS = ("items, RMSE", "mean", "second moment", "MMD")


def read_calories():
    """Give items, workers, standardised log estimates and log truth."""
    table = pd.read_csv(data_path("crowd", "calories.csv"))
    table = table[table["estimate"] > 0]
    estimate, truth = np.log(table["estimate"]), np.log(table.groupby("item")["truth"].first())
    centre, spread = estimate.mean(), estimate.std()
    items = table["item"].rank(method="dense").astype(int).to_numpy() - 1
    workers = table["worker"].rank(method="dense").astype(int).to_numpy() - 1
    return (
        items,
        workers,
        ((estimate - centre) / spread).to_numpy(),
        ((truth - centre) / spread).to_numpy(),
    )


def draw_crowd(rng, n_workers):
    """Keep some workers, and tell the answers of a few control questions."""
    items, workers, estimates, truth = read_calories()
    chosen = rng.choice(workers.max() + 1, n_workers, replace=False)
    kept = np.isin(workers, chosen)
    items, estimates = items[kept], estimates[kept]
    workers = np.unique(workers[kept], return_inverse=True)[1]
    controls = rng.choice(truth.size, N_CONTROLS, replace=False)
    known = {int(item): float(truth[item]) for item in controls}
    return CrowdsourcingModel(items, workers, estimates, known=known), truth


def methods(model, start, rng):
    """Give the particles of every method from the same start."""
    runs = {
        "graphical SVGD, default": {},
        "graphical SVGD, pure": {"linear_weight": 0.0, "preconditioner": None},
        "vanilla SVGD": {"kernel": "global", "linear_weight": 0.0, "preconditioner": None},
    }
    samples = {
        name: GraphicalSVGDSampler(target=model, random_state=0, **options).fit(start).particles_
        for name, options in runs.items()
    }
    samples["Langevin"] = langevin(model, start, rng, n_steps=1000, step=0.01)
    return samples


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--workers", type=int, default=60)
    parser.add_argument("--picture", default=None)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = {}
    for trial in range(arguments.trials):
        rng = np.random.default_rng(trial)
        model, truth = draw_crowd(rng, arguments.workers)
        n_items, n_workers = len(model.unknown_items), model.n_workers
        d = n_items + 2 * n_workers
        chains = langevin(
            model, 0.3 * rng.normal(size=(400, d)), rng, n_steps=6000, step=0.02, adjusted=True
        )
        measure = SampleErrors(chains, edges=np.stack([np.arange(d - 1), np.arange(1, d)], axis=1))
        samples = methods(model, 0.3 * rng.normal(size=(50, d)), rng)
        samples["long chains"] = chains
        for name, sample in samples.items():
            gap = sample[:, :n_items].mean(axis=0) - truth[model.unknown_items]
            found = [np.sqrt(np.mean(gap**2)), *np.take(measure(sample), [0, 1, 4])]
            rows.setdefault(name, []).append(found)
    title = f"calories, {arguments.workers} workers, {N_CONTROLS} controls, 50 particles"
    rows["long chains"] = [[row[0], np.nan, np.nan, np.nan] for row in rows["long chains"]]
    print_table(title, COLUMNS, rows)
    if arguments.picture:
        draw_table(COLUMNS, rows, arguments.picture)


if __name__ == "__main__":
    main()
