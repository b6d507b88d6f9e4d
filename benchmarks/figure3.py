"""Black-box importance sampling on small models: weights against no weights.

Markov chains of an Ising grid, of ASIA and of a frustrated 6 x 6 grid are weighted by
:class:`skcircuits.BBISWeighter` with its defaults and with the published operator, without
and with collapsed variables. All curves of a run use one chain and one subset per share;
online collapsed importance sampling (CIS) draws samples of its own. Prints means over runs
of the log of the mean Hellinger distance of the estimated marginals, with standard errors,
the paired differences, and saves a picture.

    python benchmarks/figure3.py [--runs 30] [--model ising asia grid] [--picture figure3.png]
"""

import argparse
import itertools
import time
import warnings

import numpy as np
from _collapsed_importance import draw_collapsed_samples
from _data import data_path

from skcircuits import BBISWeighter
from skcircuits.graphical import BayesianNetwork, FactorGraph, IsingModel

SIZES = (10, 20, 40, 60, 100, 200)
SHARES = (0.0, 0.25, 0.5)
# Nonlinear functions of the states that are scored.
N_FUNCTIONS = 4
# Induced width that online collapsed importance sampling may sum out: trees.
CIS_WIDTH = 1
NAMES = {0.0: ("VS", "BBIS"), 0.25: ("CVS 25%", "CBBIS 25%"), 0.5: ("CVS 50%", "CBBIS 50%")}


def load(name):
    """Give a model and the burn-in and thinning of its chains, in sweeps."""
    if name == "ising":
        # 2000 and 1000 updates of one of 16 variables.
        return FactorGraph.from_uai(data_path("bbis", "ising_4x4_rand_id0.uai")), 125, 62
    if name == "asia":
        return BayesianNetwork.from_bif(data_path("bbis", "asia.bif")).soften(0.05), 250, 125
    rng = np.random.default_rng(6)
    couplings, fields = rng.choice([-0.6, 0.6], size=60), rng.normal(0, 0.3, size=36)
    return IsingModel.grid(6, 6, couplings, fields), 56, 28


class Scores:
    """Log errors of weighted samples against the exact answers.

    Single marginals always; pairwise marginals and a few nonlinear functions where all
    states can be listed. Distances of distributions are Hellinger distances, errors of
    means are in standard deviations of the function.

    Parameters
    ----------
    model : FactorGraph
        The target.
    """

    def __init__(self, model):
        self.model = model
        self.marginals = model.marginals()
        self.names = ["single"]
        if np.prod(model.cardinalities.astype(float)) <= 2**16:
            self.names += ["pairs", "functions"]
            states = np.array(list(itertools.product(*map(range, model.cardinalities))), float)
            p = np.exp(model.log_prob_unnormalized(states) - model.log_partition())
            values = self._values(states)
            self.means = p @ values
            self.deviations = np.sqrt(p @ (values - self.means) ** 2)

    def __call__(self, weighter, weights):
        """Log errors, one per name."""
        found = weighter.marginals(weights)
        errors = [np.mean([_hellinger(p, q) for p, q in zip(found, self.marginals)])]
        if not hasattr(weighter, "expectation"):
            errors += [np.nan] * (len(self.names) - 1)
        elif len(self.names) > 1:
            means = weighter.expectation(self._values, weights)
            errors.append(_hellinger(_pair_tables(means), _pair_tables(self.means)).mean())
            off = np.abs(means - self.means) / self.deviations
            errors.append(off[-N_FUNCTIONS:].mean())
        return np.log(errors)

    def _values(self, states):
        """The binary variables, their products, and the nonlinear functions."""
        first, second = np.triu_indices(states.shape[1], 1)
        total = states.sum(axis=1)
        center = sum(p[1] for p in self.marginals)
        functions = [
            np.abs(total - center),
            total**2,
            total > center,
            self.model.log_prob_unnormalized(states),
        ]
        return np.column_stack([states, states[:, first] * states[:, second], *functions])


def _pair_tables(means):
    """Tables of all pairs of binary variables from their first and second moments."""
    d = int((np.sqrt(1 + 8 * (len(means) - N_FUNCTIONS)) - 1) / 2)
    first, second = np.triu_indices(d, 1)
    a, b, both = means[first], means[second], means[d:-N_FUNCTIONS]
    return np.stack([both, a - both, b - both, 1 - a - b + both], axis=-1)


def _hellinger(p, q):
    """Distance along the last axis."""
    roots = np.sqrt(np.maximum(p, 0)) - np.sqrt(np.maximum(q, 0))
    return np.sqrt((roots**2).sum(axis=-1) / 2)


def run_once(model, scores, chain, seed):
    """Log errors of every curve for one chain, {(curve, size): errors}."""
    rng = np.random.default_rng(1000 + seed)
    subset = np.random.default_rng(seed).permutation(chain.shape[1])
    results = {}
    for size, share in itertools.product(SIZES, SHARES):
        collapse = subset[: round(share * chain.shape[1])] if share else None
        plain, weighted = NAMES[share]
        for operator in ("auto", "difference"):
            weighter = BBISWeighter(target=model, operator=operator, collapse=collapse)
            weighter.fit(chain[:size])
            curve = weighted if operator == "auto" else f"{weighted} published"
            results[curve, size] = scores(weighter, weighter.weights_)
        results[plain, size] = scores(weighter, np.full(size, 1 / size))
    for size in SIZES:
        drawn = draw_collapsed_samples(model, size, CIS_WIDTH, rng)
        results["CIS", size] = scores(drawn, drawn.weights)
    return results


def run(name, n_runs):
    """All runs of one model, {(curve, size): array (n_runs, n_scores)}."""
    model, burn_in, thin = load(name)
    scores = Scores(model)
    rows = model.gibbs_sample(
        n_runs * max(SIZES), burn_in=burn_in, thin=thin, n_chains=n_runs, random_state=0
    )
    chains = rows.reshape(max(SIZES), n_runs, -1).transpose(1, 0, 2)
    runs = [run_once(model, scores, chain, seed) for seed, chain in enumerate(chains)]
    return scores.names, {key: np.array([r[key] for r in runs]) for key in runs[0]}


def print_tables(name, score_names, results):
    """Means of the log errors and paired differences to the unweighted curves."""
    curves = list(dict.fromkeys(curve for curve, _ in results))
    for index, score in enumerate(score_names):
        print(f"\n{name}: ln error of {score}, mean ± standard error")
        print(f"{'':22s}" + "".join(f"{'N=' + str(size):>13s}" for size in SIZES))
        for curve in sorted(curves, key=lambda curve: (curve.split()[1:], "B" in curve)):
            if np.isnan(results[curve, SIZES[0]][:, index]).any():
                continue
            print(f"{curve:22s}" + "".join(_cell(results[curve, n][:, index]) for n in SIZES))
        for plain, weighted in NAMES.values():
            cells = [results[weighted, n][:, index] - results[plain, n][:, index] for n in SIZES]
            print(f"{weighted + ' - ' + plain:22s}" + "".join(map(_cell, cells)))


def _cell(values):
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():7.2f}±{error:.2f} "


def draw(path, all_results):
    """Save the curves of the single marginals."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(all_results), figsize=(5 * len(all_results), 4), squeeze=False
    )
    for ax, (name, results) in zip(axes[0], all_results.items()):
        for color, (plain, weighted) in zip("kbr", NAMES.values()):
            for curve, style in ((plain, "--"), (weighted, "-"), (f"{weighted} published", ":")):
                means = [results[curve, size][:, 0].mean() for size in SIZES]
                ax.plot(SIZES, means, color + style, label=curve)
        ax.plot(SIZES, [results["CIS", size][:, 0].mean() for size in SIZES], "g-.", label="CIS")
        ax.set(title=name, xlabel="N", ylabel="ln mean Hellinger distance")
    axes[0, 0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--model", nargs="+", default=["ising", "asia", "grid"])
    parser.add_argument("--picture", default=None)
    options = parser.parse_args()
    # Singular problems of the published operator may stop a little early.
    warnings.simplefilter("ignore", RuntimeWarning)
    all_results = {}
    for name in options.model:
        start = time.perf_counter()
        score_names, all_results[name] = run(name, options.runs)
        print_tables(name, score_names, all_results[name])
        print(f"{options.runs} runs in {time.perf_counter() - start:.0f} s")
    if options.picture:
        draw(options.picture, all_results)


if __name__ == "__main__":
    main()
