"""Whether weights are ever worse than none on discrete models with zeros, collapsed or not.

Gibbs chains cannot cross the zeros of a Bayesian network, and weights cannot move mass between
parts that no change of one variable connects. Samples are exact, states of twenty chains, or of
one. Per model and kind: mean total variation of single marginals and of pairs along the edges
without weights, and its ratios with the defaults; then single marginals with ``collapse=.3``, and
the processor time of that fit, or its refusal. Averages over the seeds.

Networks come with pgmpy; random models (networks with zeros, Potts grids) are new for every
``--first-seed``.

    python -m benchmarks.weights_of_networks [--networks win95pts hailfinder hepar2] [--random 6]
        [--n 200] [--seeds 3] [--first-seed 0]
"""

import argparse
import tempfile
import time
import warnings

import numpy as np
from compilation import peer_network

from skcircuits import BBISWeighter
from skcircuits.graphical import BayesianNetwork, FactorGraph

N_TRUTH = 200_000


def network(name):
    with tempfile.TemporaryDirectory() as folder:
        theirs = peer_network(name, folder)
    for table in theirs.get_cpds():
        table.normalize()  # rows of the files miss one by their last digit
    return BayesianNetwork.from_pgmpy(theirs)


def random_network(rng, n=20):
    """Two parents at most, two to four states, a third of the entries zero."""
    counts = rng.integers(2, 5, size=n)
    parents = [sorted(rng.choice(i, min(i, 2), replace=False).tolist()) for i in range(n)]
    tables = []
    for i, above in enumerate(parents):
        shape = [counts[p] for p in above]
        entries = rng.dirichlet(np.ones(counts[i]), size=shape)
        kept = rng.random(entries.shape) > 1 / 3
        # One state at least stays possible.
        np.put_along_axis(kept, entries.argmax(axis=-1)[..., None], True, axis=-1)
        entries = entries * kept
        tables.append(entries / entries.sum(axis=-1, keepdims=True))
    return BayesianNetwork(parents, tables)


def random_potts(rng, side=4, n_states=3):
    """A grid of three states with normal couplings, for equal ones and for fields."""
    factors = [((v,), np.exp(0.5 * rng.normal(size=n_states))) for v in range(side * side)]
    for v in range(side * side):
        near = [v + 1] * (v % side < side - 1) + [v + side] * (v < side * (side - 1))
        factors += [((v, w), np.exp(rng.normal() * np.eye(n_states))) for w in near]
    return FactorGraph(factors, [n_states] * side**2)


def edges(model):
    """Pairs of variables that meet in a factor."""
    found = set()
    for variable, near in enumerate(model.neighbors):
        found |= {
            (min(variable, other), max(variable, other)) for other in np.asarray(near).tolist()
        }
    return sorted(found)


def pair_tables(X, weights, pairs, counts):
    return [
        np.bincount((X[:, a] * counts[b] + X[:, b]).astype(int), weights, counts[a] * counts[b])
        for a, b in pairs
    ]


def distance(found, truth):
    return np.mean([0.5 * np.abs(p - q).sum() for p, q in zip(found, truth)])


KINDS = {
    "exact": lambda model, n, seed: model.sample(n, random_state=seed),
    "chains": lambda model, n, seed: model.gibbs_sample(n, n_chains=20, random_state=seed),
    "chain": lambda model, n, seed: model.gibbs_sample(n, random_state=seed),
}


def compare(model, n, seeds):
    """Kind, errors and seconds, the mean of the seeds."""
    counts, pairs = model.cardinalities, edges(model)
    exact = np.asarray(model.sample(N_TRUTH, random_state=12345))
    singles = model.marginals()
    truth = pair_tables(exact, np.full(N_TRUTH, 1 / N_TRUTH), pairs, counts)
    uniform = np.full(n, 1 / n)
    for kind, draw in KINDS.items():
        rows = []
        for seed in seeds:
            X = np.asarray(draw(model, n, seed), dtype=float)
            weighter = BBISWeighter(target=model).fit(X)
            row = []
            for weights in (uniform, weighter.weights_):
                row.append(distance(weighter.marginals(weights), singles))
                row.append(distance(pair_tables(X, weights, pairs, counts), truth))
            began = time.process_time()
            try:
                collapsed = BBISWeighter(target=model, collapse=0.3, random_state=seed).fit(X)
            except ValueError as refusal:
                print("    refused:", str(refusal)[:150])
                rows.append([*row, np.nan, np.nan, time.process_time() - began])
                continue
            seconds = time.process_time() - began
            for weights in (uniform, collapsed.weights_):
                row.append(distance(collapsed.marginals(weights), singles))
            rows.append([*row, seconds])
        yield kind, np.mean(rows, axis=0)


def main():
    """Print a line per model: errors without weights, ratios with them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--networks", nargs="*", default=["win95pts", "hailfinder", "hepar2"])
    parser.add_argument("--random", type=int, default=6)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    models = {name: lambda name=name: network(name) for name in options.networks}
    for i in range(options.first_seed, options.first_seed + options.random):
        make = random_potts if i % 2 else random_network
        models[f"{make.__name__} {i}"] = lambda i=i, make=make: make(
            np.random.default_rng(1000 + i)
        )
    print(f"{'':28s}  single  pairs | ratio  ratio | collapsed  ratio  seconds")
    for name, make in models.items():
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        for kind, row in compare(make(), options.n, seeds):
            single, pair, single_w, pair_w, none, collapsed, seconds = row
            print(
                f"{name:20s}{kind:8s}{single:8.4f}{pair:8.4f}{single_w / single:8.3f}"
                f"{pair_w / pair:7.3f}{none:10.4f}{collapsed / none:8.3f}{seconds:8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
