"""Densities on mixed tables: held-out scores, granularity, orders, query and fit times.

Rounded columns reward spikes, so models are scored by the log probability of the interval in
which each number was recorded (value ± half the column's resolution), in nats per row; the
raw log density stands beside it. Joint normal leaves have no exact probability of a box in
more than three dimensions: there the density is averaged over 64 points of the interval.
Peers run where they are installed; the validation rows choose their row threshold. Ours has
its defaults everywhere.

Run: OMP_NUM_THREADS=1 python benchmarks/hybrid.py scores|granularity|orders|queries|fit [tables]
"""

import json
import sys
import time
from collections import Counter

import numpy as np
import pandas as pd
from _data import data_path
from _hybrid_peers import PEERS
from scipy.stats import qmc
from sklearn.base import clone

from skcircuits import GaussianMixtureDensity, HiddenChowLiuDensity, WMISPNDensity
from skcircuits.circuits import PiecewisePolynomial
from skcircuits.circuits.engine._passes import feedforward, input_buffer
from skcircuits.circuits.inputs import Box, MultivariateGaussianLayer
from skcircuits.numerics._arrays import logsumexp

TABLES = (
    *("anneal-U", "australian", "auto", "cars", "cleve", "crx", "diabetes"),
    *("german", "german-org", "heart", "iris", "cloud", "shuttle"),
)
N_POINTS = 64


class Table:
    """A table with its published split (cloud: two thirds for training, at random)."""

    def __init__(self, name):
        frame = pd.read_csv(data_path("hybrid", f"{name}.csv.gz"))
        columns = json.loads(data_path("hybrid", f"{name}.json").read_text())["columns"]
        self.name = name
        self.X = frame[[column["name"] for column in columns]].to_numpy(float)
        is_label = np.array([column["type"] == "categorical" for column in columns])
        self.labels = np.flatnonzero(is_label)
        self.cardinalities = np.zeros(len(columns), dtype=int)
        for j in self.labels:
            values = np.unique(self.X[:, j])
            self.X[:, j] = np.searchsorted(values, self.X[:, j])
            self.cardinalities[j] = len(values)
        gaps = [np.diff(np.unique(column)) for column in self.X.T]
        self.resolution = np.array([gap.min() if len(gap) else 1.0 for gap in gaps])
        self.resolution[self.labels] = 0.0
        self.split = self._split(frame)

    def _split(self, frame):
        if "split" in frame:
            split = frame["split"].to_numpy(object)
        else:
            draw = np.random.RandomState(0).permutation(len(frame)) % 3
            split = np.where(draw > 0, "train", "test").astype(object)
        if "valid" not in split:
            train = np.flatnonzero(split == "train")
            split[np.random.RandomState(0).permutation(train)[: len(train) // 10]] = "valid"
        return split

    def rows(self, *parts):
        return self.X[np.isin(self.split, parts)]

    def fit(self, density):
        """Declare all labels, those that only test rows have too."""
        frame = pd.DataFrame(self.rows("train"))
        for j in self.labels:
            codes = frame[j].astype(int)
            frame[j] = pd.Categorical(codes, categories=range(self.cardinalities[j]))
        frame.columns = [f"x{j}" for j in frame.columns]
        start = time.perf_counter()
        density.fit(frame)
        return density.circuit_, time.perf_counter() - start

    def interval_score(self, circuit, X):
        """Mean log probability of the recording intervals."""
        half = self.resolution / 2
        box = Box(X - half, X + half)

        def values_of(layer):
            if not isinstance(layer, MultivariateGaussianLayer):
                return layer.log_box(box)
            offsets = qmc.Sobol(X.shape[1], seed=0).random(N_POINTS) - 0.5
            points = [layer.log_prob(X + offset * self.resolution) for offset in offsets]
            volume = np.log(self.resolution[layer.variables]).sum()
            return logsumexp(np.array(points)) - np.log(N_POINTS) + volume

        values = input_buffer(circuit.plan, values_of, (len(X),))
        return feedforward(circuit.plan, values)[circuit.plan.root].mean()


MODELS = {
    "factorised": WMISPNDensity(alpha=0.0),
    "WMISPN": WMISPNDensity(),
    "WMISPN joint": WMISPNDensity(leaf="multivariate"),
    "latent tree": HiddenChowLiuDensity(random_state=0),
    "Gaussian mixture": GaussianMixtureDensity(random_state=0),
}


def scores(tables):
    names = [*MODELS, *PEERS]
    print(f"{'interval score | density':24}" + "".join(f"{name:>24}" for name in names))
    for name in tables:
        table = Table(name)
        cells = []
        for density in MODELS.values():
            circuit, seconds = table.fit(clone(density))
            cells.append(_cell(table, circuit, seconds))
        cells += [_peer_cell(table, peer) for peer in PEERS.values()]
        print(f"{name:24}" + "".join(f"{cell:>24}" for cell in cells), flush=True)


def _cell(table, circuit, seconds):
    test = table.rows("test")
    with np.errstate(all="ignore"):
        interval, density = table.interval_score(circuit, test), circuit.log_prob(test).mean()
    return f"{interval:.2f} | {density:.2f} ({seconds:.1f} s)"


def _peer_cell(table, circuits):
    start = time.perf_counter()
    try:
        found = list(circuits(table.rows("train"), table.cardinalities))
    except ImportError:
        return "not installed"
    seconds = time.perf_counter() - start
    best = max(found, key=lambda circuit: table.interval_score(circuit, table.rows("valid")))
    return _cell(table, best, seconds / len(found))


def granularity(tables):
    print("interval score by number of intervals (rows) and highest degree (columns)")
    for name in tables:
        table = Table(name)
        print(f"{name:12}" + "".join(f"{degree:>10}" for degree in (0, 1, 2, 3, 6)))
        for n_bins in ("bic", 1, 2, 5, 10, 15):
            line = []
            for degree in (0, 1, 2, 3, 6):
                circuit, _ = table.fit(WMISPNDensity(n_bins=n_bins, max_degree=degree))
                line.append(f"{table.interval_score(circuit, table.rows('test')):10.3f}")
            print(f"{n_bins!s:12}" + "".join(line), flush=True)


def orders(tables):
    print("fraction of leaves by order (degree + 1), in %")
    for name in tables:
        for n_bins in (2, 5, "bic"):
            circuit, _ = Table(name).fit(WMISPNDensity(n_bins=n_bins))
            leaves = [u for u in circuit.plan.units if isinstance(u, PiecewisePolynomial)]
            counts = Counter(unit.degree + 1 for unit in leaves if unit.weights.sum() > 1e-3)
            total = sum(counts.values())
            fractions = "".join(f"{100 * counts[order] / total:8.1f}" for order in range(1, 8))
            print(f"{name:12} {n_bins!s:>4} intervals: orders 1-7 {fractions}")


def queries(tables):
    print("interval queries on one fit, CPU time")
    for name in tables:
        table = Table(name)
        density = WMISPNDensity()
        circuit, _ = table.fit(density)
        interval = table.interval_score(circuit, table.rows("test"))
        print(f"{name}: {circuit.n_units} units, test score {interval:.2f}")
        numbers = np.flatnonzero(table.cardinalities == 0)
        for n_atoms in range(1, 6):
            lower, upper = _random_boxes(table.X, numbers[:n_atoms], 200_000)
            circuit.log_prob_box(lower[:1], upper[:1])  # prepares the circuit of these columns
            best = min(_seconds(circuit.log_prob_box, lower, upper) for _ in range(10))
            atoms = {f"x{j}": (lower[0, j], upper[0, j]) for j in numbers[:n_atoms]}
            single = min(_seconds(density.probability, atoms, repeat=50) for _ in range(20))
            print(
                f"  {n_atoms} atoms: {len(lower) / best:10.0f} queries/s in one call, "
                f"{1e6 * single:6.0f} us for a single dict",
                flush=True,
            )


def _random_boxes(X, columns, n):
    """Intervals between two random rows, on the same columns for all."""
    rng = np.random.default_rng(0)
    lower = np.full((n, X.shape[1]), np.nan)
    upper = lower.copy()
    for j in columns:
        lower[:, j], upper[:, j] = np.sort(rng.choice(X[:, j], size=(2, n)), axis=0)
    return lower, upper


def _seconds(function, *arguments, repeat=1):
    start = time.process_time()
    for _ in range(repeat):
        function(*arguments)
    return (time.process_time() - start) / repeat


def fit(tables):
    print("fit times with the score reached")
    for name in tables:
        table = Table(name)
        circuit, seconds = table.fit(WMISPNDensity())
        score = table.interval_score(circuit, table.rows("test"))
        n_rows = len(table.rows("train"))
        print(f"{name:12} {n_rows:6} rows {seconds:7.2f} s  {circuit.n_units:6} units {score:9.2f}")


if __name__ == "__main__":
    study = {f.__name__: f for f in (scores, granularity, orders, queries, fit)}[sys.argv[1]]
    study(sys.argv[2:] or TABLES)
