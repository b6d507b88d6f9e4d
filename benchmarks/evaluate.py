"""Speed of circuits: densities, completions and samples, in rows per processor second.

(a) a balanced tree of 32-state latent variables over the 69 plants columns; (b) an irregular
circuit learned by deeprob-kit, evaluated by both; (c) Gaussian mixtures beside scikit-learn's;
then how cost and memory grow with rows and edges. Peers run in an interpreter of their own,
``$SKCIRCUITS_PEERS`` (a Python that has deeprob-kit and spflow)::

    OMP_NUM_THREADS=1 SKCIRCUITS_PEERS=/path/to/python python -m benchmarks.evaluate [figure.png]
"""

import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
from _data import data_path
from _timing import warm_seconds
from sklearn.mixture import GaussianMixture

from skcircuits.circuits import Bernoulli, Categorical, Circuit, MultivariateGaussian, Product, Sum
from skcircuits.circuits.engine._passes import log_values
from skcircuits.circuits.engine._transformations import lower
from skcircuits.parallel import row_slices

_ROUNDS = 5


def rate(function, n_rows):
    """Rows per processor second."""
    return n_rows / warm_seconds(function, _ROUNDS)


def with_missing_values(X, fraction=0.3, seed=0):
    """Hide a fraction of the cells."""
    return np.where(np.random.default_rng(seed).random(X.shape) < fraction, np.nan, X)


def latent_tree(rng, n_variables, n_states):
    """A latent tree over binary variables, balanced: sums of a region share their products."""

    def region(variables, n_sums):
        if len(variables) == 1:
            return [Categorical(variables[0], rng.dirichlet(np.ones(2))) for _ in range(n_states)]
        halves = np.array_split(variables, 2)
        products = [Product(pair) for pair in zip(*(region(half, n_states) for half in halves))]
        return [Sum(products, weights=rng.dirichlet(np.ones(n_states))) for _ in range(n_sums)]

    return Circuit(region(range(n_variables), 1)[0])


def plants():
    """Training and test rows of plants."""
    with np.load(data_path("twenty", "plants.npz")) as archive:
        return archive["train"].astype(float), archive["test"].astype(float)


def queries(circuit, rows, incomplete):
    """Rates of all queries on one circuit."""
    few = incomplete[:3000]
    return {
        "log_prob": rate(lambda: circuit.log_prob(rows), len(rows)),
        "log_prob, 30 % NaN": rate(lambda: circuit.log_prob(incomplete), len(rows)),
        "mpe": rate(lambda: circuit.mpe(few, method="max_product"), len(few)),
        "sample": rate(lambda: circuit.sample(20_000, random_state=0), 20_000),
        "conditional sample": rate(lambda: circuit.sample(1, few, random_state=0), len(few)),
    }


def moments(circuit, incomplete):
    """Rates of what a pass down the circuit gives for all cells at once."""
    asked = circuit.expectation, circuit.variance, circuit.marginals
    return {query.__name__: rate(partial(query, incomplete), len(incomplete)) for query in asked}


def report(title, rates):
    """Print rates in columns."""
    print(title)
    for name, value in rates.items():
        print(f"  {name:24s} {value:12,.0f} rows/core-s")


def latent_tree_over_plants(test):
    """(a): with and without tables, one row, sampling."""
    circuit = latent_tree(np.random.default_rng(0), 69, 32)
    rows = np.tile(test, (6, 1))
    incomplete = with_missing_values(rows)
    print(f"(a) {circuit!r}")
    rates = queries(circuit, rows, incomplete) | moments(circuit, incomplete[:3000])
    report("  all queries", rates)
    for tabulate in (False, True):
        fast = lower(circuit.plan, tabulate=tabulate)

        def evaluate(fast=fast):
            return [fast.log_values(incomplete[part]) for part in row_slices(len(incomplete), 512)]

        name = "with" if tabulate else "without"
        print(f"  log_prob, 30 % NaN, {name} tables: {rate(evaluate, len(incomplete)):,.0f}")
        spent = warm_seconds(lambda t=tabulate: lower(circuit.plan, tabulate=t), _ROUNDS)
        print(f"    compiled in {spent:.3f} s")
    plain = rate(lambda: log_values(circuit.plan, incomplete[:512]), 512)
    print(f"  log_prob, 30 % NaN, plain pass in log space: {plain:,.0f}")
    row = incomplete[:1]
    one = warm_seconds(lambda: [circuit.log_prob(row) for _ in range(100)], _ROUNDS) / 100
    print(f"  one row: {1e3 * one:.3f} ms")


def ask_peer(peer, train, rows, incomplete):
    """Run a peer in its own interpreter; None where it is not installed."""
    python = os.environ.get("SKCIRCUITS_PEERS")
    if python is None:
        print(f"  {peer}: not installed (set SKCIRCUITS_PEERS)")
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "rows.npz"), Path(folder, "result.json")
        np.savez(source, train=train, rows=rows, incomplete=incomplete)
        script = Path(__file__).with_name("_circuit_peers.py")
        run = subprocess.run(
            [python, script, peer, source, target], capture_output=True, text=True, check=False
        )
        if run.returncode:
            print(f"  {peer}: not installed ({run.stderr.strip().splitlines()[-1]})")
            return None
        return json.loads(target.read_text())


def rebuild(units):
    """Our circuit from the units of a deeprob circuit."""
    built = []
    for unit in units:
        children = [built[number] for number in unit.get("children", [])]
        if not children:
            built.append(Bernoulli(unit["variable"], unit["p"]))
        elif "weights" in unit:
            weights = np.array(unit["weights"])
            built.append(Sum(children, weights=weights / weights.sum()))
        else:
            built.append(Product(children))
    return Circuit(built[-1])


def learned_circuit(train, test):
    """(b): the circuit deeprob-kit learns, evaluated by both."""
    print("(b) irregular circuit, learned by deeprob-kit on 6000 rows of plants")
    incomplete = with_missing_values(test)
    peer = ask_peer("deeprob", train[:6000], test, incomplete)
    if peer is None:
        return
    circuit = rebuild(peer["units"])
    difference = np.abs(circuit.log_prob(incomplete) - peer["log_likelihoods"]).max()
    print(f"  {circuit!r}; largest difference of log likelihoods {difference:.1e} (peer: float32)")
    own = queries(circuit, test, incomplete)
    for name, value in own.items():
        theirs = peer["rates"][name]
        beside = f"deeprob {theirs:8,.0f}: x {value / theirs:.1f}"
        print(f"  {name:24s} {value:12,.0f} rows/core-s, {beside}")
    edges = circuit.n_edges * own["log_prob, 30 % NaN"]
    print(f"  {edges:,.0f} edges/core-s at 30 % NaN")
    spflow = ask_peer("spflow", train[:2000], test, incomplete)
    if spflow is not None:
        report(
            f"  SPFlow hidden Chow-Liu tree, {spflow['n_parameters']} parameters", spflow["rates"]
        )


def gaussian_mixture(n_columns, n_rows):
    """(c): five full components, beside scikit-learn's."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(5, n_columns, n_columns))
    covariances = factors @ factors.transpose(0, 2, 1) / n_columns + 0.5 * np.eye(n_columns)
    means, weights = rng.normal(size=(5, n_columns)), rng.dirichlet(np.ones(5))
    units = [MultivariateGaussian(range(n_columns), m, c) for m, c in zip(means, covariances)]
    circuit = Circuit(Sum(units, weights=weights))
    peer = GaussianMixture(5)
    peer.weights_, peer.means_, peer.covariances_ = weights, means, covariances
    peer.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(covariances))
    X = circuit.sample(n_rows, random_state=0)
    incomplete = with_missing_values(X)
    base = rate(lambda: peer.score_samples(X), n_rows)
    complete = rate(lambda: circuit.log_prob(X), n_rows)
    missing = rate(lambda: circuit.log_prob(incomplete), n_rows)
    print(
        f"(c) mixture of 5 Gaussians, {n_columns} columns, {n_rows} rows: scikit-learn {base:,.0f}"
    )
    print(f"  no NaN   {complete:12,.0f} rows/core-s, {complete / base:.2f} x scikit-learn")
    print(
        f"  30 % NaN {missing:12,.0f} rows/core-s, {base / missing:.1f} x slower than scikit-learn"
    )
    np.testing.assert_allclose(circuit.log_prob(X), peer.score_samples(X), rtol=1e-8)


def growth(figure=None):
    """Time and memory over two decades of rows and of edges."""
    rng = np.random.default_rng(0)
    circuit = latent_tree(rng, 69, 16)
    by_rows, by_edges = [], []
    for n_rows in (1_000, 10_000, 100_000):
        X = with_missing_values(np.tile(circuit.sample(1000, random_state=0), (n_rows // 1000, 1)))
        circuit.log_prob(X[:5000])
        tracemalloc.start()
        circuit.log_prob(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        by_rows.append((n_rows, warm_seconds(lambda X=X: circuit.log_prob(X), 2), peak / 2**20))
    for n_states in (4, 8, 16, 32, 64):
        tree = latent_tree(rng, 69, n_states)
        X = with_missing_values(tree.sample(2000, random_state=0))
        by_edges.append((tree.n_edges, warm_seconds(lambda tree=tree, X=X: tree.log_prob(X), 2)))
    print("growth: rows, seconds, MiB beyond the table")
    print("\n".join(f"  {n:8d} {s:9.4f} {m:8.1f}" for n, s, m in by_rows))
    print("growth: edges, seconds for 2000 rows")
    print("\n".join(f"  {n:8d} {s:9.4f}" for n, s in by_edges))
    if figure is not None:
        draw_growth(by_rows, by_edges, figure)


def draw_growth(by_rows, by_edges, figure):
    """Two log-log panels."""
    import matplotlib.pyplot as plt

    _, panels = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for panel, points, label in zip(panels, (by_rows, by_edges), ("rows", "edges")):
        size, cost = np.array([point[:2] for point in points]).T
        panel.loglog(size, cost, "o-", label="measured")
        panel.loglog(size, cost[-1] * size / size[-1], ":", label="linear")
        panel.set(xlabel=label, ylabel="processor seconds")
        panel.legend()
    plt.savefig(figure)


if __name__ == "__main__":
    train_rows, test_rows = plants()
    latent_tree_over_plants(test_rows)
    gaussian_mixture(10, 100_000)
    gaussian_mixture(30, 20_000)
    growth(*sys.argv[1:2])
    learned_circuit(train_rows, test_rows)
