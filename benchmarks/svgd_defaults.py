"""Why the defaults of GraphicalSVGDSampler are what they are.

Candidates of (bandwidth_factor, linear_weight) on the Gaussian grid, where both should be
large, and on double wells and skewed fields, where both can hurt. A candidate passes on a
field if no column is worse than the published method (1, 0) by more than two standard
errors of the paired difference.

    python benchmarks/svgd_defaults.py [--trials 10] [--n 100]
"""

import argparse
import warnings

import numpy as np
from _svgd_targets import (
    GaussianErrors,
    SampleErrors,
    double_wells,
    grid_edges,
    grid_field,
    langevin,
    print_table,
    skewed_field,
)

from skcircuits import GraphicalSVGDSampler

CANDIDATES = [(1.0, 0.0), (1.0, 0.05), (1.0, 0.1), (1.0, 0.2), (2.0, 0.0), (2.0, 0.05), (2.0, 0.1)]
FIELDS = {
    "double wells, weak coupling": lambda rng: double_wells(rng, 0.1),
    "double wells, strong coupling": lambda rng: double_wells(rng, 0.3),
    "skewed, coupled": skewed_field,
}


def particles(target, n, seed, factor, weight, **options):
    sampler = GraphicalSVGDSampler(
        target=target,
        n_particles=n,
        bandwidth_factor=factor,
        linear_weight=weight,
        random_state=seed,
        **options,
    )
    return sampler.fit().particles_


def compare(make_target, make_errors, n, n_trials, candidates):
    rows = {candidate: [] for candidate in candidates}
    for trial in range(n_trials):
        rng = np.random.default_rng(trial)
        target = make_target(rng)
        errors = make_errors(target, rng)
        for candidate, found in rows.items():
            found.append(errors(particles(target, n, trial, *candidate)))
    return {candidate: np.array(found) for candidate, found in rows.items()}, errors.columns


def sampled_truth(target, rng):
    start = rng.normal(size=(3000, target.n_variables))
    truth = langevin(target, start, rng, n_steps=1000, step=0.1, adjusted=True)
    return SampleErrors(truth, grid_edges(5))


def verdict(found, baseline):
    difference = found - baseline
    error = difference.std(axis=0, ddof=1) / np.sqrt(len(difference))
    worse = difference.mean(axis=0) > 2 * error
    return "fails" if np.any(worse) else "passes"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--n", type=int, nargs="+", default=[100])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for n in arguments.n:
        found, columns = compare(grid_field, GaussianErrors.of, n, arguments.trials, CANDIDATES)
        print_table(f"Gaussian grid, n = {n}", columns, {str(key): v for key, v in found.items()})
        for name, make_target in FIELDS.items():
            found, columns = compare(make_target, sampled_truth, n, arguments.trials, CANDIDATES)
            baseline = found[CANDIDATES[0]]
            rows = {f"{key} {verdict(v, baseline)}": v for key, v in found.items()}
            print_table(f"{name}, n = {n}", columns, rows)


if __name__ == "__main__":
    main()
