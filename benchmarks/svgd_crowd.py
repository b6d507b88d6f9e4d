"""Figure 6 of the paper: quantities estimated by a crowd, on the calories of meals.

Estimates are logarithms of calories, standardised over all workers. As in the paper, each item has
one to five workers and each worker three items or more, an eighth of the items are control
questions with known answers, and the others are inferred together with the bias and log variance
of every worker, the latter clipped to [-3, 3]. Errors: of the items against the truth, of posterior
means, second moments and MMD against long adjusted Langevin chains. They are kept in
``benchmarks/papers/svgd_crowd.jsonl`` and not computed again.

    python -m benchmarks.svgd_crowd [--trials 5] [--picture out.png]
"""

import argparse
import warnings
from functools import cache, partial

import numpy as np
import pandas as pd
from _data import data_path
from _results import record
from _svgd_targets import SampleErrors, draw_table, langevin, print_table

from skcircuits import GraphicalSVGDSampler
from skcircuits.graphical import CrowdsourcingModel

CONTROL_SHARE = 1 / 8  # ten of eighty questions in the paper
MAX_WORKERS_PER_ITEM, MIN_ITEMS_PER_WORKER = 5, 3
LOG_VARIANCE_RANGE = (-3.0, 3.0)
SIZES = (10, 20, 50)
COLUMNS = ("items, RMSE", "mean", "second moment", "MMD")
PURE = {"linear_weight": 0.0, "preconditioner": None}  # the published methods
METHODS = {
    "graphical SVGD, default": {},
    "graphical SVGD, published": PURE,
    "vanilla SVGD": {"kernel": "global", **PURE},
}


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


def assigned(items, workers, rng):
    """Choose estimates such that items have one to five and workers three or more."""
    capacity = rng.integers(1, MAX_WORKERS_PER_ITEM, size=items.max() + 1, endpoint=True)
    left, chosen = capacity.copy(), []
    for worker in rng.permutation(workers.max() + 1):
        own = np.flatnonzero(workers == worker)
        own = own[left[items[own]] > 0]
        if len(own) >= MIN_ITEMS_PER_WORKER:
            left[items[own]] -= 1
            chosen.append(own)
    # Items that no worker is left for have no estimate, and are left out
    return np.concatenate(chosen)


def draw_crowd(rng):
    """Assign workers to items, and tell the answers of a few control questions."""
    items, workers, estimates, truth = read_calories()
    kept = assigned(items, workers, rng)
    asked, items = np.unique(items[kept], return_inverse=True)
    workers = np.unique(workers[kept], return_inverse=True)[1]
    controls = rng.choice(len(asked), round(CONTROL_SHARE * len(asked)), replace=False)
    known = {int(item): float(truth[asked[item]]) for item in controls}
    return CrowdsourcingModel(items, workers, estimates[kept], known=known), truth[asked]


class ClippedVariances:
    """The posterior of a crowd, whose score sees clipped log variances, as in the paper."""

    def __init__(self, model):
        self.model, self.neighbors, self.blocks = model, model.neighbors, model.blocks

    def _clipped(self, X):
        X = X.copy()
        variances = X[:, -self.model.n_workers :]
        np.clip(variances, *LOG_VARIANCE_RANGE, out=variances)
        return X

    def grad_log_prob(self, X):
        return self.model.grad_log_prob(self._clipped(X))

    def log_prob_unnormalized(self, X):
        return self.model.log_prob_unnormalized(self._clipped(X))


def samples_of(model, start, rng):
    """Particles of every method from the same start."""
    target = ClippedVariances(model)
    for name, options in METHODS.items():
        sampler = GraphicalSVGDSampler(target=target, random_state=0, **options)
        yield name, sampler.fit(start).particles_
    yield "Langevin", langevin(target, start, rng, n_steps=1000, step=0.01)


@cache
def posterior(trial):
    """Model, true values of the unknown items, and long chains of one trial."""
    rng = np.random.default_rng(trial)
    model, truth = draw_crowd(rng)
    d = len(model.unknown_items) + 2 * model.n_workers
    start = 0.3 * rng.normal(size=(400, d))
    chains = langevin(model, start, rng, n_steps=4000, step=0.02, adjusted=True)
    return model, truth[model.unknown_items], chains


def errors_of(trial, n_particles):
    """Per method the error of the items, and log10 errors of posterior moments."""
    model, truth, chains = posterior(trial)
    d = chains.shape[1]
    measure = SampleErrors(chains, edges=np.stack([np.arange(d - 1), np.arange(1, d)], axis=1))
    rng = np.random.default_rng(1000 * n_particles + trial)
    start = 0.3 * rng.normal(size=(n_particles, d))
    found = {}
    for name, sample in [*samples_of(model, start, rng), ("long chains", chains)]:
        gap = sample[:, : len(truth)].mean(axis=0) - truth
        errors = [np.sqrt(np.mean(gap**2)), *np.take(measure(sample), [0, 1, 4])]
        found[name] = [float(error) for error in errors]
    found["long chains"] = found["long chains"][:1]  # the others compare them with themselves
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--picture", default=None)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = {}
    for trial in range(arguments.trials):
        for n_particles in SIZES:
            name = f"{n_particles} particles {trial}"
            found = record("svgd_crowd", name, partial(errors_of, trial, n_particles))
            for method, errors in found.items():
                if len(errors) == len(COLUMNS):
                    rows.setdefault(f"{method}, n={n_particles}", []).append(errors)
    print_table("calories, one to five workers per item", COLUMNS, rows)
    if arguments.picture:
        draw_table(COLUMNS, rows, arguments.picture)


if __name__ == "__main__":
    main()
