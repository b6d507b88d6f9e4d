"""Black-box importance sampling on small models: weights against no weights.

Markov chains of an Ising grid, of ASIA, and of models that nothing was tuned on (a frustrated
6 x 6 grid, a 5 x 5 grid with random couplings, child and alarm softened, ferromagnets whose samples
are the ends of short chains from uniform starts) are weighted by
:class:`skcircuits.BBISWeighter` with its defaults and with the published operator (under our
Hamming scale and a ridge), without and with collapsed variables. All curves of a run use one
chain and one subset per fraction.

Online collapsed importance sampling over compiled circuits draws samples of its own, which have
their importance weights (CIS) or black-box ones (online CBBIS).

Prints means over runs of the log of the mean Hellinger distance of single and pairwise
marginals, and paired differences to unweighted samples; then, for functions of the states
that were fixed beforehand (``_sample_scores.FUNCTIONS``), the log of the root mean square
error over the runs without weights, and what weights change about it. Standard errors are
those of the mean and of the jackknife. Errors are kept in ``benchmarks/papers/figure3.jsonl`` and
not computed again.

    python -m benchmarks.figure3 --runs 30 --model ising asia --picture figure3.png

``--warnings`` compares, for 20 independent samples, the runs in which `fit` warns with those in
which weights are worse than none.
"""

import argparse
import itertools
import time
import warnings
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
from _collapsed_importance import draw_collapsed_samples
from _data import data_path
from _results import record
from _sample_scores import FUNCTIONS, Scores

from skcircuits import BBISWeighter
from skcircuits.graphical import BayesianNetwork, FactorGraph, IsingModel

SIZES = (20, 50, 100, 200, 500)
FRACTIONS = (0.0, 0.25, 0.5)
# Couplings of 4 x 4 ferromagnets: every sample ends a chain of its own from a uniform start
FERROMAGNETS = {"ferromagnet-0.3": 0.3, "ferromagnet-0.6": 0.6}
MODELS = ["ising", "asia", "grid", "random", "child", "alarm", *FERROMAGNETS]
ONLINE = ("CIS", "online CBBIS")
# The paper has no ridge, without which the weights of its operator are worse than none
PUBLISHED = {"operator": "difference", "regularization": 0.3}
# Half of the variables of these leave too many states between any two samples' conditionals
FEW_COLLAPSED = ("child", "alarm")
# Share of the edges of the whole model's circuit that online collapsed importance sampling may use
CIS_SHARE = 0.25
NAMES = {0.0: ("VS", "BBIS"), 0.25: ("CVS 25%", "CBBIS 25%"), 0.5: ("CVS 50%", "CBBIS 50%")}


def load(name):
    """Give a model and the burn-in and thinning of its chains, in sweeps."""
    if name == "ising":
        # 2000 and 1000 updates of one of 16 variables.
        return FactorGraph.from_uai(data_path("bbis", "ising_4x4_rand_id0.uai")), 125, 62
    if name == "asia":
        return BayesianNetwork.from_bif(data_path("bbis", "asia.bif")).soften(0.05), 250, 125
    if name in ("child", "alarm"):
        return BayesianNetwork.from_bif(data_path("bn", f"{name}.bif")).soften(0.05), 100, 20
    if name in FERROMAGNETS:
        return IsingModel.grid(4, 4, FERROMAGNETS[name], fields=0.0), 5, 1
    if name == "random":
        # Nothing was tuned on it: normal couplings and fields.
        rng = np.random.default_rng(2026)
        return IsingModel.grid(5, 5, 0.5 * rng.normal(size=40), 0.5 * rng.normal(size=25)), 80, 40
    rng = np.random.default_rng(6)
    couplings, fields = rng.choice([-0.6, 0.6], size=60), rng.normal(0, 0.3, size=36)
    return IsingModel.grid(6, 6, couplings, fields), 56, 28


def run_once(model, scores, chain, seed, fractions=FRACTIONS):
    """Errors of every curve for one chain, {(curve, size): errors}."""
    rng = np.random.default_rng(1000 + seed)
    subset = np.random.default_rng(seed).permutation(chain.shape[1])
    results = {}
    for size, fraction in itertools.product(SIZES, fractions):
        collapse = subset[: round(fraction * chain.shape[1])] if fraction else None
        plain, weighted = NAMES[fraction]
        for setting, parameters in (("", {}), (" published", PUBLISHED)):
            weighter = BBISWeighter(target=model, collapse=collapse, **parameters)
            weighter.fit(chain[:size])
            results[weighted + setting, size] = scores(weighter, weighter.weights_)
        results[plain, size] = scores(weighter, np.full(size, 1 / size))
    max_edges = int(CIS_SHARE * model.compile().n_edges)
    for size in SIZES:
        drawn = draw_collapsed_samples(model, size, max_edges, rng)
        results[ONLINE[0], size] = scores(drawn, drawn.weights)
        weighter = BBISWeighter(target=model, collapse=drawn.summed_out)
        # Collapsed cells are summed out, whatever they hold
        weighter.fit(np.nan_to_num(drawn.rows))
        # Marginals alone: other functions would list all states of what is summed out
        only_marginals = SimpleNamespace(marginals=weighter.marginals)
        results[ONLINE[1], size] = scores(only_marginals, weighter.weights_)
    return results


def run(name, n_runs):
    """All runs of one model, {(curve, size): array (n_runs, n_scores)}."""
    model, burn_in, thin = load(name)
    scores = Scores(model)
    fractions = FRACTIONS[:2] if name in FEW_COLLAPSED else FRACTIONS

    @cache
    def chains():
        n_rows = n_runs * max(SIZES)
        n_chains = n_rows if name in FERROMAGNETS else n_runs
        rows = model.gibbs_sample(
            n_rows, burn_in=burn_in, thin=thin, n_chains=n_chains, random_state=0
        )
        return rows.reshape(max(SIZES), n_runs, -1).transpose(1, 0, 2)

    def one(seed):
        found = run_once(model, scores, chains()[seed], seed, fractions)
        return {f"{curve}, N={size}": list(errors) for (curve, size), errors in found.items()}

    kept = [
        record("figure3", f"{name} {n_runs} runs {seed}", partial(one, seed))
        for seed in range(n_runs)
    ]
    keys = [(curve, int(size)) for curve, size in (key.split(", N=") for key in kept[0])]
    values = np.array([list(entry.values()) for entry in kept])
    return scores.names, {key: values[:, i] for i, key in enumerate(keys)}


def warned_runs(name, n_runs, size=20):
    """Errors of single marginals of some samples, and which of the weights `fit` warns of.

    Per run the mean Hellinger distance with weights and without, and whether there was a warning.
    """
    model, burn_in, thin = load(name)
    scores = Scores(model)
    rows = model.gibbs_sample(
        n_runs * size, burn_in=burn_in, thin=thin, n_chains=n_runs * size, random_state=14
    )
    found = []
    for samples in rows.reshape(size, n_runs, -1).transpose(1, 0, 2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            weighter = BBISWeighter(target=model).fit(samples)
        errors = (scores(weighter, w)[0] for w in (weighter.weights_, np.full(size, 1 / size)))
        warned = any("BBISWeighter" in str(warning.message) for warning in caught)
        found.append([*map(float, errors), warned])
    return found


def print_tables(name, score_names, results):
    """Print the marginals, then the functions where they are known."""
    for index, score in enumerate(score_names):
        if score not in FUNCTIONS:
            _print_marginals(f"{name}: ln error of {score} marginals", index, results)
    functions = [score for score in score_names if score in FUNCTIONS]
    if functions:
        columns = [score_names.index(score) for score in functions]
        for plain, weighted in NAMES.values():
            _print_functions(name, (plain, weighted), dict(zip(functions, columns)), results)


def _print_marginals(title, index, results):
    print(f"\n{title}, mean ± standard error")
    print(f"{'':22s}" + "".join(f"{'N=' + str(size):>13s}" for size in SIZES))
    logs = {key: np.log(errors[:, index]) for key, errors in results.items()}
    curves = list(dict.fromkeys(curve for curve, _ in results))
    for curve in sorted(curves, key=lambda curve: (curve.split()[1:], "B" in curve)):
        if not np.isnan(logs[curve, SIZES[0]]).any():
            print(f"{curve:22s}" + "".join(_cell(*_mean(logs[curve, n])) for n in SIZES))
    for plain, weighted in _pairs(results):
        cells = [_mean(logs[weighted, n] - logs[plain, n]) for n in SIZES]
        print(f"{weighted + ' - ' + plain:22s}" + "".join(_cell(*cell) for cell in cells))


def _print_functions(name, curves, columns, results):
    plain, weighted = curves
    print(f"\n{name}: ln rms error of functions, {plain}, and change by {weighted}")
    print(f"{'':22s}" + "".join(f"{'N=' + str(size):>21s}" for size in SIZES))
    for function, column in columns.items():
        cells = []
        for size in SIZES:
            before, after = (results[curve, size][:, column] for curve in curves)
            change, error = _log_rms_ratio(after, before)
            cells.append(f"{0.5 * np.log((before**2).mean()):8.2f}{_cell(change, error)}")
        print(f"{function:22s}" + "".join(cells))


def _pairs(results):
    """Samples without and with black-box weights that a model has results of."""
    known = {curve for curve, _ in results}
    return [names for names in (ONLINE, *NAMES.values()) if known.issuperset(names)]


def _mean(values):
    """Mean and its standard error."""
    return values.mean(), values.std(ddof=1) / np.sqrt(len(values))


def _log_rms_ratio(after, before):
    """Log of the ratio of two root mean squares over paired runs, with jackknife error.

    The log of a single error near zero says nothing; that of a mean square does.
    """
    squares = np.array([after, before]) ** 2
    sums = squares.sum(axis=1, keepdims=True)
    ratio = 0.5 * np.log(sums[0] / sums[1])
    left_out = 0.5 * np.diff(np.log(sums - squares)[::-1], axis=0)
    return float(ratio[0]), np.sqrt((len(after) - 1) * left_out.var())


def _cell(value, error):
    return f"{value:7.2f}±{error:.2f} "


def draw(path, all_results):
    """Save the curves of the single marginals."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(all_results), figsize=(5 * len(all_results), 4), squeeze=False
    )
    for ax, (name, results) in zip(axes[0], all_results.items()):
        for color, (plain, weighted) in zip("gkbr", _pairs(results)):
            for curve, style in ((plain, "--"), (weighted, "-"), (f"{weighted} published", ":")):
                if (curve, SIZES[0]) in results:
                    ax.plot(SIZES, _mean_logs(results, curve), color + style, label=curve)
        ax.set(title=name, xlabel="N", ylabel="ln mean Hellinger distance")
    axes[0, 0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _mean_logs(results, curve):
    return [np.log(results[curve, size][:, 0]).mean() for size in SIZES]


def main():
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--model", nargs="+", default=MODELS)
    parser.add_argument("--picture", default=None)
    parser.add_argument("--warnings", action="store_true", help="which runs fit warns of")
    options = parser.parse_args()
    if options.warnings:
        for name in options.model:
            study = partial(warned_runs, name, options.runs)
            found = record("figure3_warnings", f"{name} {options.runs} runs", study)
            for weighted, plain, warned in found:
                print(f"{name} {weighted:.3f} {plain:.3f} {'warns' if warned else ''}")
        return
    if options.runs < 2:
        parser.error("standard errors need at least two runs")
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
