"""Figures 1, 2 and 3 of the paper on Gaussian fields, and a strongly coupled one.

Every error is exact: moments and MMD of the field are known. Columns are mean log10 errors
of the mean, the second moment and the MMD, and the ratio of the particles' variance (1/n) to
the true one, each with its standard error over the trials. They are kept in
``benchmarks/papers/svgd_fields.jsonl`` and not computed again.

    python -m benchmarks.svgd_fields figure1|figure2|sparsity|figure3|coupled
        [--trials 10] [--n 10 20 50 100] [--picture out.png]
"""

import argparse
import warnings
from functools import partial
from itertools import product

import numpy as np
from _results import record
from _svgd_targets import (
    GaussianErrors,
    coupled_field,
    dense_field,
    edges_within,
    gaussian_field,
    grid_field,
    langevin,
    print_table,
)

from skcircuits import GraphicalSVGDSampler
from skcircuits.graphical import GaussianMRF

PURE = {"linear_weight": 0.0, "preconditioner": None}
RADII = (1, 2, 3, 5, 8, 14)  # of the neighbourhoods in Figure 2 (d)


def monte_carlo(field, n, seed):
    return field.sample(n, np.random.default_rng(seed))


def langevin_chains(field, n, seed):
    rng = np.random.default_rng(seed)
    start = rng.uniform(-5, 5, (n, len(field.linear)))
    step = 0.5 / np.abs(field.precision).sum(axis=1).max()
    return langevin(field, start, rng, n_steps=1000, step=step)


def svgd(**options):
    """Give a method that starts from U(-5, 5) as the paper does."""

    def particles(field, n, seed):
        start = np.random.default_rng(seed).uniform(-5, 5, (n, len(field.linear)))
        return (
            GraphicalSVGDSampler(target=field, random_state=seed, **options).fit(start).particles_
        )

    return particles


def with_neighbors(field, neighbors):
    """Give the same density with kernels over other coordinates."""
    other = GaussianMRF(field.precision, field.linear)
    other.__dict__["neighbors"] = neighbors
    return other


def without_graph(field):
    """Give the same density with kernels over single coordinates."""
    return with_neighbors(field, [np.empty(0, dtype=np.int64)] * len(field.linear))


def with_complete_graph(field):
    """Give the same density with kernels over all coordinates."""
    everyone = np.arange(len(field.linear))
    return with_neighbors(field, [np.delete(everyone, node) for node in everyone])


METHODS = {
    "exact Monte Carlo": monte_carlo,
    "Langevin": langevin_chains,
    "vanilla SVGD": svgd(kernel="global", **PURE),
    "graphical SVGD, pure": svgd(**PURE),
    "graphical SVGD, default": svgd(),
}
SCOPE_METHODS = {
    "exact Monte Carlo": monte_carlo,
    "vanilla SVGD": svgd(kernel="global", **PURE),
    "vanilla SVGD, default weight": lambda field, n, seed: svgd(preconditioner=None)(
        with_complete_graph(field), n, seed
    ),
}
DENSE_METHODS = {
    "exact Monte Carlo": monte_carlo,
    "vanilla SVGD": svgd(kernel="global", **PURE),
    "random(5), pure": svgd(kernel="random", **PURE),
    "combine, pure": svgd(kernel="combine", **PURE),
    "default (everyone a neighbor)": svgd(),
    "random(5), default weight": svgd(kernel="random"),
    "combine, default weight": svgd(kernel="combine"),
}
COUPLED_METHODS = METHODS | {
    "single coordinates, pure": lambda field, n, seed: svgd(**PURE)(without_graph(field), n, seed),
    "graphical, weight 1": svgd(linear_weight=1.0),
}


def errors_of(make_field, methods, n, trial):
    """Errors of all methods on the field of one trial."""
    rng = np.random.default_rng(trial)
    field = make_field(rng)
    errors = GaussianErrors.of(field, rng)
    return {
        name: [float(error) for error in errors(method(field, n, trial))]
        for name, method in methods.items()
    }


def compare(entry, make_field, methods, n, n_trials):
    """Errors by method, one row per trial."""
    found = [
        record("svgd_fields", f"{entry} {trial}", partial(errors_of, make_field, methods, n, trial))
        for trial in range(n_trials)
    ]
    return {name: [errors[name] for errors in found] for name in methods}


def tables(title, make_field, methods, arguments):
    found = {}
    for n in arguments.n:
        found[n] = compare(f"{arguments.what} {n}", make_field, methods, n, arguments.trials)
        print_table(
            f"{title}, n = {n}, {arguments.trials} trials", GaussianErrors.columns, found[n]
        )
    if arguments.picture:
        draw(found, methods, GaussianErrors.columns, "number of particles", arguments.picture)


def sparsity(arguments):
    """Figure 2 (d): MMD at n = 20 while the connectivity radius grows."""
    methods = {name: METHODS[name] for name in METHODS if name != "Langevin"}
    found = {}
    for radius in RADII:
        edges = edges_within(10, radius)

        def make_field(rng, edges=edges):
            return gaussian_field(edges, 100, rng)

        degree = round(2 * len(edges) / 100, 1)
        found[degree] = compare(f"sparsity {degree}", make_field, methods, 20, arguments.trials)
        print_table(f"mean degree {degree}, n = 20", GaussianErrors.columns, found[degree])
    if arguments.picture:
        draw(found, methods, GaussianErrors.columns, "mean degree", arguments.picture)


def figure1(arguments):
    """Figure 1: variance of N(0, I) by the number of particles and of coordinates of a kernel."""
    found = {}
    for n, d in product(arguments.n, (1, 2, 5, 10, 20, 50, 100)):

        def make_field(rng, d=d):
            return GaussianMRF(np.eye(d), np.zeros(d))

        found[d] = compare(f"figure1 {n} {d}", make_field, SCOPE_METHODS, n, arguments.trials)
        print_table(f"N(0, I), d = {d}, n = {n}", GaussianErrors.columns, found[d])
    if arguments.picture:
        draw(found, SCOPE_METHODS, GaussianErrors.columns, "dimension", arguments.picture)


def draw(found, methods, columns, abscissa, picture):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(columns), figsize=(14, 3.4), layout="constrained")
    for j, (ax, column) in enumerate(zip(axes, columns)):
        for name in methods:
            means = [np.mean(found[x][name], axis=0)[j] for x in found]
            ax.plot(list(found), means, "o-", markersize=3, label=name)
        label = column if column == "variance ratio" else f"log10 error of {column}"
        ax.set(xscale="log", xlabel=abscissa, ylabel=label)
    axes[0].legend(fontsize=7)
    figure.savefig(picture, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["figure1", "figure2", "sparsity", "figure3", "coupled"])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--n", type=int, nargs="+", default=[10, 20, 50, 100])
    parser.add_argument("--picture", default=None)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.what == "figure1":
        figure1(arguments)
    elif arguments.what == "sparsity":
        sparsity(arguments)
    elif arguments.what == "figure2":
        tables("10 x 10 grid", grid_field, METHODS, arguments)
    elif arguments.what == "figure3":
        tables("50-d dense field", dense_field, DENSE_METHODS, arguments)
    else:
        tables("strongly coupled grid", coupled_field, COUPLED_METHODS, arguments)


if __name__ == "__main__":
    main()
