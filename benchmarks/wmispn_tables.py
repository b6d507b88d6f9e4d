"""Tables 2 to 4 and Figures 4 and 5 of the WMI-SPN paper, on random splits of its proportions.

Three quarters of the rows train, a tenth chooses (a peer's least number of rows; ours has its
defaults), the rest is scored; the paper's own splits are not published. Its Table 2 scores the bins
that numbers fall in, two of equal width (three on iris), beside categories: so are all models here.
Its leaves do not sum to one, so ours stand beside a factorised model of the same bins, too.

Figure 4 draws the polynomials of one column for two and for five intervals: `curve` measures how
far their distribution functions are from the rows. Figure 6 draws the probabilities of two bins of
each column: `spread` has their quartiles, and the distance to the fractions of the rows.

Results are kept; what is there is not computed again.

Run: OMP_NUM_THREADS=1 python -m benchmarks.wmispn_tables [STUDY ...], of
likelihoods, orders, queries, bins, curve, spread
"""

import sys
import time
import warnings

import numpy as np
from _hybrid_peers import PEERS
from _results import record
from hybrid import TABLES, Table, _random_boxes

from skcircuits import WMISPNDensity
from skcircuits.circuits import PiecewisePolynomial

# Figures in nats per row, as published
PUBLISHED = {
    "anneal-U": -14.543,
    "australian": -10.473,
    "auto": -27.126,
    "cars": -9.111,
    "cleve": -13.829,
    "crx": -10.525,
    "diabetes": -6.299,
    "german": -20.429,
    "german-org": -21.144,
    "heart": -14.875,
    "iris": -3.560,
}
# Nanoseconds a query on cloud, 1 to 5 continuous atoms
PUBLISHED_QUERIES = (1401, 2154, 2563, 3659, 4025)
N_SPLITS = 1
N_QUERIES = 20_000
GLUCOSE = 1  # column of diabetes whose polynomials the paper draws


class RandomSplit(Table):
    """A table with a random split into 75, 10 and 15 percent."""

    def __init__(self, name, seed):
        self.seed = seed
        super().__init__(name)

    def _split(self, frame):
        place = np.random.default_rng(self.seed).permutation(len(frame)) / len(frame)
        return np.array(["train", "valid", "test"], dtype=object)[
            np.searchsorted([0.75, 0.85], place, side="right")
        ]

    def bins_of(self, X, n_bins):
        """Ends of the bins of equal width that numbers fall in; categories are points."""
        lower, upper = X.copy(), X.copy()
        train = self.rows("train")
        for j in np.flatnonzero(self.cardinalities == 0):
            inner = np.linspace(train[:, j].min(), train[:, j].max(), n_bins + 1)[1:-1]
            edges = np.concatenate([[-np.inf], inner, [np.inf]])
            place = np.searchsorted(inner, X[:, j], side="right")
            lower[:, j], upper[:, j] = edges[place], edges[place + 1]
        return lower, upper

    def bin_score(self, circuit, X, n_bins):
        """Mean log probability of the bins and categories of rows."""
        return float(circuit.log_prob_box(*self.bins_of(X, n_bins)).mean())


def likelihoods(name):
    """Scores of ours, a factorised model and the peers, one per split."""
    n_bins = 3 if name == "iris" else 2
    scores = {}
    for seed in range(N_SPLITS):
        table = RandomSplit(name, seed)
        test, valid = table.rows("test"), table.rows("valid")
        ours, _ = table.fit(WMISPNDensity())
        plain, _ = table.fit(WMISPNDensity(alpha=0.0))
        circuits = {"ours": ours, "factorised": plain}
        for peer, candidates in PEERS.items():
            try:
                found = list(candidates(table.rows("train"), table.cardinalities))
            except ImportError:
                continue
            if found:
                circuits[peer] = max(found, key=lambda c: table.interval_score(c, valid))
        for model, circuit in circuits.items():
            own = scores.setdefault(model, {"bins": [], "intervals": []})
            own["bins"].append(table.bin_score(circuit, test, n_bins))
            own["intervals"].append(float(table.interval_score(circuit, test)))
    return {model: {k: float(np.mean(v)) for k, v in own.items()} for model, own in scores.items()}


def orders(name):
    """Fraction of the leaves by order (degree + 1), for 2 and 5 intervals."""
    table, found = RandomSplit(name, 0), {}
    for n_bins in (2, 5):
        circuit, _ = table.fit(WMISPNDensity(n_bins=n_bins))
        leaves = [u for u in circuit.plan.units if isinstance(u, PiecewisePolynomial)]
        order = [unit.degree + 1 for unit in leaves if unit.weights.sum() > 1e-3]
        found[str(n_bins)] = [float(np.mean(np.array(order) == k)) for k in range(1, 8)]
    return found


def queries(name):
    """Microseconds a query, by number of columns that it bounds."""
    table, found = RandomSplit(name, 0), {}
    circuit, _ = table.fit(WMISPNDensity())
    numbers = np.flatnonzero(table.cardinalities == 0)
    for n_atoms in range(1, min(5, len(numbers)) + 1):
        lower, upper = _random_boxes(table.X, numbers[:n_atoms], N_QUERIES)
        circuit.log_prob_box(lower[:1], upper[:1])  # prepares the circuit of these columns
        seconds = []
        for _ in range(5):
            start = time.process_time()
            circuit.log_prob_box(lower, upper)
            seconds.append(time.process_time() - start)
        found[str(n_atoms)] = 1e6 * min(seconds) / N_QUERIES
    return found


def bins(name):
    """Score of recording intervals by number of intervals of the leaves."""
    table, found = RandomSplit(name, 0), {}
    for n_bins in (1, 2, 5, 10, 15):
        circuit, _ = table.fit(WMISPNDensity(n_bins=n_bins))
        found[str(n_bins)] = float(table.interval_score(circuit, table.rows("test")))
    return found


def column_box(table, j, lower, upper):
    """Bounds of a single column as boxes of whole rows."""
    boxes = np.full((2, len(upper), table.X.shape[1]), np.inf)
    boxes[0] = -np.inf
    boxes[0, :, j], boxes[1, :, j] = lower, upper
    return boxes


def curve(name):
    """Order of the polynomial of glucose, distance to the rows, and score, by intervals."""
    table, found = RandomSplit(name, 0), {}
    half = table.resolution[GLUCOSE] / 2
    for n_bins in (2, 5, "bic"):
        circuit, _ = table.fit(WMISPNDensity(n_bins=n_bins, binning="uniform", alpha=0.0))
        [leaf] = [unit for unit in circuit.plan.units if unit.scope == (GLUCOSE,)]
        own = found[str(n_bins)] = {
            "intervals": len(leaf.knots) - 1,
            "order": leaf.degree + 1,
        }
        for part in ("train", "test"):
            numbers = np.sort(table.rows(part)[:, GLUCOSE])
            below = circuit.log_prob_box(*column_box(table, GLUCOSE, -np.inf, numbers + half))
            ranks = np.searchsorted(numbers, numbers, side="right") / len(numbers)
            own[f"{part} distance"] = float(np.abs(np.exp(below) - ranks).max())
            at = circuit.log_prob_box(*column_box(table, GLUCOSE, numbers - half, numbers + half))
            own[f"{part} score"] = float(at.mean())
    return found


def spread(name):
    """Probabilities of the lower of two bins of each column, and fractions of the rows."""
    table = RandomSplit(name, 0)
    circuit, _ = table.fit(WMISPNDensity())
    columns = np.flatnonzero(table.cardinalities == 0)
    rows = {part: table.rows(part)[:, columns] for part in ("train", "test")}
    middle = (rows["train"].min(axis=0) + rows["train"].max(axis=0)) / 2
    boxes = [column_box(table, j, -np.inf, np.array([end])) for j, end in zip(columns, middle)]
    found = {"model": [float(np.exp(circuit.log_prob_box(*box)[0])) for box in boxes]}
    return found | {part: (own <= middle).mean(axis=0).tolist() for part, own in rows.items()}


STUDIES = {
    likelihoods: [*PUBLISHED],
    orders: ["australian", "auto", "diabetes", "german", "iris", "cloud"],
    queries: ["diabetes", "iris", "cloud"],
    bins: ["australian", "auto", "diabetes", "german", "iris", "cloud"],
    curve: ["diabetes"],
    spread: [*PUBLISHED, "cloud"],
}


def main():
    warnings.simplefilter("ignore")
    for study, tables in STUDIES.items():
        if len(sys.argv) > 1 and study.__name__ not in sys.argv[1:]:
            continue
        for name in [table for table in TABLES if table in tables]:
            numbers = record("wmispn", f"{study.__name__} {name}", lambda: study(name))
            print(study.__name__, name, numbers, flush=True)


if __name__ == "__main__":
    main()
