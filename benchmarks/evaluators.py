"""Evaluators that stand beside the engine of circuits, and the engine, on the same questions.

(a) One step of expectation maximisation of a latent tree: all rows up and down once, then new
parameters. (b) Marginals of incomplete rows under many trees of one mixture of all trees; the
engine is timed on compiled circuits, and including their construction, which would be necessary
for every draw of trees. Least processor times of one run; results are compared::

    OMP_NUM_THREADS=1 python -m benchmarks.evaluators
"""

import numpy as np
from _data import data_path
from _timing import fastest

from skcircuits.circuits import Categorical, Circuit
from skcircuits.learning import expectation_maximization
from skcircuits.learning.latent_tree._emissions import LatentRows
from skcircuits.learning.latent_tree._learner import LatentSchedule, _maximize, learn_latent_tree
from skcircuits.trees._chow_liu import pair_statistics
from skcircuits.trees._spanning_trees import sample_spanning_trees
from skcircuits.trees._trees import StateLayout, TreeInference, conditional_tables, tree_unit
from skcircuits.trees.mixture_of_all_trees._model import MixtureOfAllTrees

N_EM_ROWS = 4096
N_TREES, N_TREE_ROWS = 32, 64


def incomplete_rows(n_rows):
    """Rows of plants with 30 % of the cells missing."""
    with np.load(data_path("twenty", "plants.npz")) as archive:
        X = archive["train"][:n_rows].astype(float)
    return np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X)


def latent_trees():
    """(a): belief propagation on plain arrays and the passes over the tree's circuit."""
    X = incomplete_rows(N_EM_ROWS)
    n_columns, weight = X.shape[1], np.ones(len(X))
    layout = StateLayout([2] * n_columns)
    completed = np.nan_to_num(X).astype(np.int64)
    rows = LatentRows(X, weight, completed, layout, np.ones(n_columns, dtype=bool))
    for n_states in (8, 16, 32):
        steps = learn_latent_tree(
            rows, n_states, np.random.default_rng(0), schedule=LatentSchedule(1, 0)
        )
        step = next(steps)

        def propagate(step=step):
            totals = step.propagation.totals(step.tree, X, weight)
            return _maximize(step.tree, totals, 0.5)

        circuit = step.circuit
        own, _ = fastest(propagate)
        engine, _ = fastest(lambda c=circuit: next(expectation_maximization(c, X)))
        own_score = step.mean_log_prob(X, weight)
        assert abs(own_score - circuit.log_prob(X).mean()) < 1e-4
        print(
            f"(a) EM step, {n_states} latent states, {len(X)} rows: belief propagation "
            f"{own:.3f} s, engine {engine:.3f} s, {engine / own:.1f} x",
            flush=True,
        )


def many_trees():
    """(b): all trees at once over their common tables, and one circuit per tree."""
    X = incomplete_rows(N_TREE_ROWS)
    codes = np.nan_to_num(X, nan=-1.0).astype(np.int64)
    layout = StateLayout([2] * X.shape[1])
    rng = np.random.default_rng(0)
    train = np.nan_to_num(incomplete_rows(2000)).astype(np.int64)
    statistics = pair_statistics(train, layout, pseudo_count=1.0)
    weights = np.ones((1, X.shape[1], X.shape[1]))
    parents = sample_spanning_trees(weights, np.zeros(N_TREES, dtype=np.int64), rng.random)
    model = MixtureOfAllTrees(layout, weights[0], statistics.nodes, statistics.pairs)
    ratios = model.ratios()
    evidence = layout.evidence(codes)[None]

    def propagate():
        return TreeInference(parents, layout, model.nodes, ratios, evidence).marginals()

    def circuits():
        tables = [conditional_tables(layout, model.nodes, model.pairs, tree) for tree in parents]
        return [Circuit(tree_unit(own, tree, Categorical)) for own, tree in zip(tables, parents)]

    built = circuits()
    own, marginals = fastest(propagate)
    compiled, found = fastest(lambda: [circuit.marginals(X) for circuit in built])
    fresh, _ = fastest(lambda: [circuit.marginals(X) for circuit in circuits()])
    theirs = np.stack([np.hstack([tables[j] for j in sorted(tables)]) for tables in found])
    np.testing.assert_allclose(marginals, theirs, atol=1e-9)
    print(
        f"(b) marginals, {N_TREES} trees, {N_TREE_ROWS} rows: tree inference {own:.3f} s, engine "
        f"{compiled:.3f} s compiled, {compiled / own:.1f} x, {fresh:.3f} s not, {fresh / own:.1f} x"
    )


if __name__ == "__main__":
    latent_trees()
    many_trees()
