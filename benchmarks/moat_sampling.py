"""Samplers of conditional marginals against enumeration.

Reproduces Figures 4 and 5 of Selvam, Zhang and Van den Broeck, "Mixtures of All Trees" (2023):
the Kullback-Leibler divergence of the estimated single-variable marginals, summed over the
missing variables, against the number of samples, for evidence of several sizes, averaged over
evidence and seeds; and a histogram of the importance weights. Blocked Gibbs is not in the paper.
The marginals of the model itself come from enumeration::

    python -m benchmarks.moat_sampling --evidence 2 4 6 8 10 12
    python -m benchmarks.moat_sampling --data msnbc --evidence 4 8 12

The paper shows nltcs; other data sets need enough observed cells that enumeration is possible.
``--repeats`` gives bias, standard deviation and time of a single number of samples instead, and
``--incomplete`` scores rows with missing cells: errors of log probabilities against many times as
many draws, and the time::

    python -m benchmarks.moat_sampling --repeats 40 --rows 20 --evidence 4 12
    python -m benchmarks.moat_sampling --incomplete jester plants --rows 100

Results are kept in ``benchmarks/papers/moat_sampling.jsonl`` (``moat_bias.jsonl``,
``moat_incomplete.jsonl``) and not computed again. The last
column divides by the divergence of single-site Gibbs at the same number of samples, averages over
the numbers of samples, and gives the mean over the seeds with its standard error.

A sample is a tree (collapsed), a tree and a row (importance), or a sweep over all missing
cells of one chain (Gibbs samplers, which start at the marginals of the columns and discard
nothing). Importance sampling averages the distributions that the cells of its rows were drawn
from; the Gibbs samplers count states.
"""

import argparse
import time
from functools import cache, partial
from itertools import islice

import numpy as np
from _results import record
from twenty import PUBLISHED, load

from skcircuits import MoATDensity
from skcircuits.trees.mixture_of_all_trees._conditionals import (
    blocked_gibbs,
    conditional_marginals,
    enumerate_evidence,
    single_site_gibbs,
)
from skcircuits.trees.mixture_of_all_trees._evidence import estimate_evidence, estimate_marginals

PRIOR = ", prior"  # ends the names of methods whose trees are drawn from the prior
TREES = ("importance", "collapsed")
METHODS = ("gibbs", "blocked_gibbs", *(name + PRIOR for name in TREES), *TREES)
GIBBS = {"gibbs": single_site_gibbs, "blocked_gibbs": blocked_gibbs}
_SMALLEST_ESTIMATE = 1e-6
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
N_TREES = 500  # draws of the histogram of weights
N_BIAS = 64  # samples whose bias and variance are measured
RATES = (0.1, 0.3, 0.5)  # of missing cells
N_DRAWS, N_TIMES_AS_MANY = 256, 12  # the default of scores, and the reference
EDGES = (0, 0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2, 4, np.inf)


def estimates(method, mixture, codes, rng, counts=SAMPLES):
    """Running estimates (n_counts, n_rows, n_states) after each number of samples."""
    layout = mixture.layout
    if method in GIBBS:
        nodes = mixture.components[0].nodes[layout.offsets + 1]
        start = np.where(codes < 0, rng.random(codes.shape) < nodes, codes)
        sweeps = GIBBS[method](mixture, start.astype(np.int64), codes < 0, rng)
        indicators = np.stack([layout.one_hot(rows) for rows in islice(sweeps, counts[-1])])
        running = np.cumsum(indicators, axis=0)
        return np.stack([running[count - 1] / count for count in counts])
    answers = []
    for count in counts:
        marginals = estimate_marginals(
            mixture,
            layout.evidence(codes),
            count,
            rng,
            collapsed=method.startswith("collapsed"),
            from_prior=method.endswith(PRIOR),
        )
        answers.append(marginals.probabilities)
    return np.stack(answers)


def divergence(exact, estimate, missing):
    """Sum over missing variables of KL(exact || estimate)."""
    # A state that was never drawn would make it infinite.
    bounded = np.maximum(estimate, _SMALLEST_ESTIMATE)
    log_ratio = np.log(exact / bounded, out=np.zeros_like(exact), where=exact > 0)
    return ((exact * log_ratio).reshape(*missing.shape, -1).sum(axis=2) * missing).sum(axis=1)


def curves(mixture, test, size, n_rows, rng):
    """Mean divergences (n_methods, n_counts) for random rows with ``size`` observed cells."""
    codes = hide(test[rng.choice(len(test), n_rows, replace=False)], size, rng)
    exact = conditional_marginals(mixture, codes, "exact", 1, rng).probabilities
    # The same random numbers for all: importance and collapsed sampling get the same trees.
    seed = int(rng.integers(2**32))
    answers = [estimates(method, mixture, codes, np.random.default_rng(seed)) for method in METHODS]
    return [[divergence(exact, a, codes < 0).mean() for a in method] for method in answers]


def hide(codes, n_observed, rng):
    """Leave so many random cells per row."""
    order = np.argsort(rng.random(codes.shape), axis=1)
    codes = codes.copy()
    np.put_along_axis(codes, order[:, n_observed:], -1, axis=1)
    return codes


@cache
def fitted(data):
    """The model of a data set and its test rows, fitted when something is not kept yet."""
    train, valid, test = load(data)
    mixture = MoATDensity(random_state=0).fit(train, X_val=valid).mixture_
    return mixture, test.astype(np.int64)


def divergences(data, size, n_rows, n_seeds):
    """Per method mean divergences by number of samples, and how they compare to Gibbs'."""
    seeds = [curves(*fitted(data), size, n_rows, np.random.default_rng(s)) for s in range(n_seeds)]
    values = np.array(seeds)
    ratios = (values / values[:, :1]).mean(axis=2)
    errors = ratios.std(axis=0, ddof=1) / np.sqrt(n_seeds)
    return {
        method: {"divergences": curve.tolist(), "ratio": float(ratio), "error": float(error)}
        for method, curve, ratio, error in zip(
            METHODS, values.mean(axis=0), ratios.mean(axis=0), errors, strict=True
        )
    }


def bias_and_spread(data, n_observed, n_rows, n_repeats):
    """Per method bias and standard deviation of marginals, and milliseconds per row."""
    mixture, test = fitted(data)
    rng = np.random.default_rng(0)
    codes = hide(test[rng.choice(len(test), n_rows, replace=False)], n_observed, rng)
    exact = conditional_marginals(mixture, codes, "exact", 1, rng).probabilities
    hidden = np.repeat(codes < 0, 2, axis=1)  # states of the hidden columns
    found = {}
    for method in METHODS:
        start = time.process_time()
        drawn = np.stack(
            [estimates(method, mixture, codes, rng, [N_BIAS])[0] for _ in range(n_repeats)]
        )
        seconds = time.process_time() - start
        errors = (drawn - exact)[:, hidden]
        variance = errors.var(axis=0, ddof=1).mean()
        # The mean of so many estimates varies, too
        bias = (errors.mean(axis=0) ** 2).mean() - variance / n_repeats
        found[method] = {
            "bias": float(np.sqrt(max(bias, 0.0))),
            "bias error": float(np.sqrt(variance / n_repeats)),
            "standard deviation": float(np.sqrt(variance)),
            "milliseconds": 1000 * seconds / (n_repeats * n_rows),
        }
    return found


def print_bias(data, n_observed, n_rows, n_repeats):
    entry = f"{data} {n_observed} {n_rows} {n_repeats}"
    compute = partial(bias_and_spread, data, n_observed, n_rows, n_repeats)
    print(f"{data}, {n_observed} observed cells, {N_BIAS} samples")
    for method, own in record("moat_bias", entry, compute).items():
        print(f"{method:18s}" + "".join(f"  {what} {value:.4f}" for what, value in own.items()))


def weights(data, n_observed, n_rows):
    """Shares of the estimates of P(evidence) by single trees, over its exact value."""
    mixture, test = fitted(data)
    rng = np.random.default_rng(0)
    codes = hide(test[rng.choice(len(test), n_rows, replace=False)], n_observed, rng)
    evidence = mixture.layout.evidence(codes)
    exact = enumerate_evidence(mixture, evidence)
    found = [np.exp(estimate_evidence(mixture, evidence, 1, s) - exact) for s in range(N_TREES)]
    return (np.histogram(np.ravel(found), EDGES)[0] / np.size(found)).tolist()


def figure_4(data, sizes, n_rows, n_seeds):
    print("Mean divergence (nats) by number of samples")
    counts = "".join(f"{count:9d}" for count in SAMPLES)
    print(f"evidence method        {counts}     / gibbs")
    for size in sizes:
        entry = f"{data} evidence {size}, {n_seeds} seeds of {n_rows} rows"
        found = record("moat_sampling", entry, partial(divergences, data, size, n_rows, n_seeds))
        for method, own in found.items():
            columns = "".join(f"{value:9.5f}" for value in own["divergences"])
            comparison = f"{own['ratio']:5.2f} ± {own['error']:4.2f}"
            print(f"{size:8d} {method:13s} {columns}  {comparison}", flush=True)


def figure_5(data, n_observed, n_rows):
    """Histogram of importance weights."""
    entry = f"{data} weights {n_observed}, {n_rows} rows"
    fractions = record("moat_sampling", entry, partial(weights, data, n_observed, n_rows))
    print(f"Importance weights for {n_observed} observed cells: fraction of the draws per interval")
    for low, high, fraction in zip(EDGES[:-1], EDGES[1:], fractions, strict=True):
        print(f"    {low:4.2f} to {high:4.2f}: {fraction:6.3f} " + "#" * round(60 * fraction))


def incomplete(data, n_rows):
    """By rate of missing cells the error of log probabilities, and milliseconds per row."""
    mixture, test = fitted(data)
    rng = np.random.default_rng(0)
    found = {}
    for rate in RATES:
        codes = test[rng.choice(len(test), n_rows, replace=False)]
        codes[rng.random(codes.shape) < rate] = -1
        evidence = mixture.layout.evidence(codes)
        start = time.process_time()
        log_prob = estimate_evidence(mixture, evidence, N_DRAWS, 0)
        seconds = time.process_time() - start
        reference = estimate_evidence(mixture, evidence, N_TIMES_AS_MANY * N_DRAWS, 1)
        error = float(np.sqrt(np.mean((log_prob - reference) ** 2)))
        found[f"{rate:.0%}"] = {"error": error, "milliseconds": 1000 * seconds / n_rows}
    return found


def print_incomplete(data, n_rows):
    found = record("moat_incomplete", f"{data} {n_rows}", partial(incomplete, data, n_rows))
    for rate, own in found.items():
        print(
            f"{data:10s} {rate:>4s} missing: {own['error']:.3f} nats, {own['milliseconds']:.2f} ms"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=sorted(PUBLISHED), default="nltcs")
    parser.add_argument("--evidence", nargs="+", type=int, default=[2, 4, 6, 8, 10, 12])
    parser.add_argument("--weights", type=int, default=4, help="observed cells of the histogram")
    parser.add_argument("--rows", type=int, default=40, help="rows of evidence per seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=0, help="estimates of bias and variance")
    parser.add_argument("--incomplete", nargs="+", choices=sorted(PUBLISHED), default=[])
    arguments = parser.parse_args()
    if arguments.incomplete:
        for data in arguments.incomplete:
            print_incomplete(data, arguments.rows)
        return
    if arguments.repeats:
        for size in arguments.evidence:
            print_bias(arguments.data, size, arguments.rows, arguments.repeats)
        return
    figure_4(arguments.data, arguments.evidence, arguments.rows, arguments.seeds)
    figure_5(arguments.data, arguments.weights, arguments.rows)


if __name__ == "__main__":
    main()
