"""Mixtures of all trees on wide tables, trained on a GPU until validation scores stop.

`MoATDensity` neglects small changes of edge weights on tables of 512 columns or more, and takes
minutes per iteration. Here the same model is trained with exact gradients in double precision: the
same first parameters, batches, steps and stopping rule. Training needs CuPy and a GPU, or
``--numpy``::

    python -m benchmarks.moat_gpu train FOLDER --run cr52 mutual_information 64 0.05 8

A run is a data set, first parameters, rows per batch, learning rate and number of iterations. The
folder gets a log and, per data set, the parameters with the best validation score over all runs, in
single precision; runs that the log holds are not repeated. What was trained is scored by
`skcircuits`, on any machine, and kept with the results of `benchmarks.twenty`::

    python -m benchmarks.moat_gpu score FOLDER
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from _data import data_path

STARTS = ("mutual_information", "published")
TOLERANCE, PATIENCE = 1e-4, 10  # of the estimator: when validation scores have stopped
CHUNK = 128  # Laplacians at once
LEAF = 64  # largest matrices that are inverted by LAPACK


def array_module(use_numpy):
    """CuPy on a GPU, or NumPy."""
    if use_numpy:
        return np
    import cupy

    return cupy


class Model:
    """A mixture of all trees over binary variables: one flat vector, as `Parameterization` has it.

    Log weights of the pairs of variables, logits of the states, and a quarter of the log odds ratio
    of every pair.
    """

    def __init__(self, xp, n):
        self.xp, self.n = xp, n
        self.pairs = tuple(xp.asarray(part) for part in np.triu_indices(n, 1))
        self.n_pairs = n * (n - 1) // 2

    def start(self, rows, init):
        """Parameters from smoothed counts and the mutual information of pairs."""
        xp, (first, second) = self.xp, self.pairs
        rows, total = xp.asarray(rows, dtype=float), len(rows) + 1.0
        ones = rows.sum(axis=0)
        both = rows.T @ rows
        tables = [len(rows) - ones[:, None] - ones + both, ones - both, ones[:, None] - both, both]
        tables = [(table[first, second] + 0.25) / total for table in tables]
        nodes = xp.stack([len(rows) - ones + 0.5, ones + 0.5], axis=1) / total
        information = sum(
            table * xp.log(table / (nodes[first, a // 2] * nodes[second, a % 2]))
            for a, table in enumerate(tables)
        )
        weights = xp.maximum(information, 1e-4)
        if init == "mutual_information":
            weights = weights**3
            weights = xp.maximum(weights, weights.max() * float(self.n) ** -2.5)
        logs = [xp.log(table) for table in tables]
        contrasts = (logs[0] - logs[1] - logs[2] + logs[3]) / 4
        return self.bounded(xp.concatenate([xp.log(weights), xp.log(nodes).ravel(), contrasts]))

    def bounded(self, vector):
        """Shift and clip the parameters into their bounds, in place."""
        xp = self.xp
        log_weights, logits, contrasts = self.parts(vector)
        log_weights -= (log_weights.max() + log_weights.min()) / 2
        logits -= logits.max(axis=1, keepdims=True)
        logits[:] = xp.maximum(logits, -25.0)
        log_weights[:] = xp.clip(log_weights, -9.0, 9.0)
        contrasts[:] = xp.clip(contrasts, -12.0, 12.0)
        return vector

    def parts(self, vector):
        """Views of the vector."""
        ends = self.n_pairs, self.n_pairs + 2 * self.n
        logits = vector[ends[0] : ends[1]].reshape(self.n, 2)
        return vector[: ends[0]], logits, vector[ends[1] :]

    def matrix(self, values):
        """Spread one value per pair over the upper triangle of a matrix."""
        matrix = self.xp.zeros((self.n, self.n))
        matrix[self.pairs] = values
        return matrix

    def tables(self, vector):
        """Nodes (n, 2), and cells of the pair tables by the states, each (n_pairs,)."""
        xp, (first, second) = self.xp, self.pairs
        _, logits, contrasts = self.parts(vector)
        scaled = xp.exp(logits)
        nodes = scaled / scaled.sum(axis=1, keepdims=True)
        # The closed form of `scale_to_marginals`
        turned = contrasts < 0
        odds = xp.exp(4 * xp.abs(contrasts))
        rows, columns = nodes[first].T, nodes[second].T
        columns = xp.where(turned, columns[::-1], columns)
        excess = odds - 1
        linear = 1 + (columns[0] - rows[0]) * excess
        root = xp.sqrt(linear**2 + 4 * excess * rows[0] * columns[1])
        cells = [[None, None], [None, None]]
        for a, slope in enumerate([linear, 2 - linear]):
            total = 1 + (rows[a] + columns[a]) * excess + root
            cells[a][a] = 2 * odds * rows[a] * columns[a] / total
            total = xp.abs(slope) + root
            small = 2 * rows[a] * columns[1 - a] / total
            large = total / xp.where(slope < 0, 2 * excess, 1.0)
            cells[a][1 - a] = xp.where(slope < 0, large, small)
        return nodes, [
            [xp.where(turned, cells[a][1 - b], cells[a][b]) for b in (0, 1)] for a in (0, 1)
        ]

    def affinities(self, vector, nodes, cells):
        """Edge weights (n, n), and their products with the ratios of the states of both ends."""
        first, second = self.pairs
        weights = self.xp.exp(self.parts(vector)[0])
        upper = [
            [
                self.matrix(weights * cells[a][b] / (nodes[first, a] * nodes[second, b]))
                for b in (0, 1)
            ]
            for a in (0, 1)
        ]
        prior = self.matrix(weights)
        return prior + prior.T, [[upper[a][b] + upper[b][a].T for b in (0, 1)] for a in (0, 1)]

    def sums(self, vector, rows):
        """Log-likelihoods of the rows, and what the gradient needs of them."""
        xp, n = self.xp, self.n
        nodes, cells = self.tables(vector)
        prior, affinities = self.affinities(vector, nodes, cells)
        root = int(prior.sum(axis=1).argmax())
        log_sums = []
        # Resistances of all edges, over all rows, by the states of both ends
        totals = xp.zeros((n, n)), xp.zeros((n, n)), xp.zeros((n, n))
        for start in range(0, len(rows), CHUNK):
            own = rows[start : start + CHUNK]
            ones = own.astype(bool)
            ends = ones[:, :, None], ones[:, None, :]
            weights = xp.where(
                ends[0],
                xp.where(ends[1], affinities[1][1], affinities[1][0]),
                xp.where(ends[1], affinities[0][1], affinities[0][0]),
            )
            if not start:
                weights = xp.concatenate([weights, prior[None]])
            log_sum, inverses = invert_laplacians(xp, weights, root)
            del weights
            diagonals = xp.einsum("gvv->gv", inverses).copy()
            inverses *= -2.0
            inverses += diagonals[:, :, None]
            inverses += diagonals[:, None, :]
            if not start:
                log_partition, log_sum = log_sum[-1], log_sum[:-1]
                prior_marginals, inverses = prior * inverses[-1], inverses[:-1]
            log_sums.append(log_sum)
            factors = own.astype(float)
            totals[0][:] += inverses.sum(axis=0)
            inverses *= factors[:, :, None]
            totals[1][:] += inverses.sum(axis=0)
            inverses *= factors[:, None, :]
            totals[2][:] += inverses.sum(axis=0)
        every, by_row, both = totals
        resistances = [[every - by_row - by_row.T + both, by_row.T - both], [by_row - both, both]]
        counts = [[affinities[a][b] * resistances[a][b] for b in (0, 1)] for a in (0, 1)]
        log_nodes = xp.log(nodes)
        log_prob = xp.concatenate(log_sums) - log_partition + log_nodes[:, 0].sum()
        log_prob += rows.astype(float) @ (log_nodes[:, 1] - log_nodes[:, 0])
        return log_prob, nodes, cells, prior_marginals, counts

    def log_prob(self, vector, rows):
        """Log-likelihoods (n_rows,)."""
        return self.sums(vector, rows)[0]

    def gradient(self, vector, rows):
        """Log-likelihood of the rows, and its gradient."""
        xp, pairs = self.xp, self.pairs
        log_prob, nodes, cells, prior_marginals, counts = self.sums(vector, rows)
        found = xp.empty(len(vector))
        by_weights, by_logits, by_contrasts = self.parts(found)
        edges = sum(counts[a][b] for a in (0, 1) for b in (0, 1))
        by_weights[:] = (edges - len(rows) * prior_marginals)[pairs]
        ones = rows.astype(float).sum(axis=0)
        degrees = [(counts[a][0] + counts[a][1]).sum(axis=1) for a in (0, 1)]
        own = [len(rows) - ones - degrees[0], ones - degrees[1]]
        own = xp.stack(own, axis=1) / nodes
        # `marginal_gradient` of two states
        counts = [[counts[a][b][pairs] for b in (0, 1)] for a in (0, 1)]
        r = [nodes[pairs[0], a] for a in (0, 1)]
        by_row = [counts[a][0] + counts[a][1] for a in (0, 1)]
        known = sum(by_row[a] / r[a] * cells[a][0] for a in (0, 1))
        curvature = sum(cells[a][0] * cells[a][1] / r[a] for a in (0, 1))
        by_column = (counts[0][0] + counts[1][0] - known) / curvature  # none by the second state
        by_row = [(by_row[a] - cells[a][0] * by_column) / r[a] for a in (0, 1)]
        by_contrasts[:] = sum(
            (-1) ** (a + b)
            * (counts[a][b] - cells[a][b] * (by_row[a] + (by_column if b == 0 else 0.0)))
            for a in (0, 1)
            for b in (0, 1)
        )
        own[:, 0] += self.matrix(by_column).sum(axis=0)
        for a in (0, 1):
            own[:, a] += self.matrix(by_row[a]).sum(axis=1)
        own *= nodes
        by_logits[:] = own - nodes * own.sum(axis=1, keepdims=True)
        return float(log_prob.sum()), found


def invert_laplacians(xp, weights, root):
    """Log sums over trees, and inverses of Laplacians without their root, zero there."""
    matrices = -weights
    diagonal = xp.arange(weights.shape[1])
    matrices[:, diagonal, diagonal] = weights.sum(axis=2)
    matrices[:, root], matrices[:, :, root] = 0.0, 0.0
    matrices[:, root, root] = 1.0
    log_sums = invert(xp, matrices)
    matrices[:, root, root] = 0.0
    return log_sums, matrices


def invert(xp, matrices):
    """Invert positive definite matrices in place, by blocks; the log-determinants."""
    size = matrices.shape[1]
    if size <= LEAF:
        matrices[:] = (matrices + matrices.transpose(0, 2, 1)) / 2
        factors = xp.linalg.cholesky(matrices)
        matrices[:] = xp.linalg.inv(matrices)
        diagonal = xp.arange(size)
        return 2 * xp.log(factors[:, diagonal, diagonal]).sum(axis=1)
    half = 8 * round(size / 16)
    corner, rest = matrices[:, :half, :half], matrices[:, half:, half:]
    side = matrices[:, half:, :half].copy()
    log_determinants = invert(xp, corner)
    scaled = xp.matmul(side, corner)
    rest -= xp.matmul(scaled, side.transpose(0, 2, 1))
    log_determinants = log_determinants + invert(xp, rest)
    product = xp.matmul(rest, scaled)
    corner += xp.matmul(scaled.transpose(0, 2, 1), product)
    matrices[:, half:, :half] = -product
    matrices[:, :half, half:] = -product.transpose(0, 2, 1)
    return log_determinants


def train(xp, train_rows, valid_rows, init, batch_size, learning_rate, n_epochs):
    """After every iteration the training loss, the validation score and the parameters."""
    n_rows = len(train_rows)
    train_rows = train_rows[np.lexsort(train_rows.T[::-1])]  # as the estimator orders them
    model = Model(xp, train_rows.shape[1])
    vector = model.start(train_rows, init)
    rows, held_out = xp.asarray(train_rows), xp.asarray(valid_rows)
    # The generator of the estimator with random_state=0, after the seed of its trees
    seed = np.random.RandomState(0).randint(0, 2**32, size=4, dtype=np.uint32)
    rng = np.random.default_rng(seed)
    rng.integers(np.iinfo(np.int64).max)
    means, squares, n_steps = xp.zeros(len(vector)), xp.zeros(len(vector)), 0
    n_batches = -(-n_rows // batch_size)
    for epoch in range(n_epochs):
        order = rng.permutation(n_rows)
        total = 0.0
        for i in range(n_batches):
            chosen = order[i * batch_size : (i + 1) * batch_size]
            done = (epoch + i / n_batches) / n_epochs
            rate = float(learning_rate * (0.02 + 0.98 * (1 + np.cos(np.pi * done)) / 2))
            log_likelihood, gradient = model.gradient(vector, rows[xp.asarray(chosen)])
            gradient /= len(chosen)
            total += log_likelihood
            n_steps += 1
            means += (1 - 0.9) * (gradient - means)
            squares += (1 - 0.99) * (gradient**2 - squares)
            step = rate / (1 - 0.9**n_steps)
            vector += step * means / (xp.sqrt(squares / (1 - 0.99**n_steps)) + 1e-8)
            model.bounded(vector)
        yield -total / n_rows, float(model.log_prob(vector, held_out).mean()), vector


def load(name):
    with np.load(data_path("twenty", f"{name}.npz")) as splits:
        return splits["train"], splits["valid"], splits["test"]


def train_all(arguments):
    """Train run after run, as long as there is time; every iteration is logged."""
    began = time.perf_counter()
    xp = array_module(arguments.numpy)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    log = arguments.folder / "log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    best = {}
    for line in lines:
        best[line["data"]] = max(best.get(line["data"], -np.inf), line["valid"])
    finished = [line["run"] for line in lines if line["stopped"]]
    for run in arguments.run:
        if run in finished:
            continue
        data, init, *numbers = run
        batch_size, rate, n_epochs = int(numbers[0]), float(numbers[1]), int(numbers[2])
        train_rows, valid_rows, _ = load(data)
        start, highest, bar, n_stalled = time.perf_counter(), -np.inf, -np.inf, 0
        steps = train(xp, train_rows, valid_rows, init, batch_size, rate, n_epochs)
        for epoch, (loss, valid, vector) in enumerate(steps, start=1):
            highest = max(highest, valid)
            bar, n_stalled = (valid, 0) if valid > bar + TOLERANCE else (bar, n_stalled + 1)
            why = "validation" if n_stalled >= PATIENCE else "iterations"
            stopped = n_stalled >= PATIENCE or epoch == n_epochs or not np.isfinite(valid)
            line = {"data": data, "run": run, "iteration": epoch, "loss": loss, "valid": valid}
            line |= {"seconds": round(time.perf_counter() - start, 2)}
            line |= {"stopped": why if stopped else "", "machine": machine(xp)}
            if valid >= best.get(data, -np.inf):
                best[data] = valid
                values = vector if xp is np else vector.get()
                path = arguments.folder / f"{data}.npz"
                np.savez(path, vector=values.astype(np.float32), line=json.dumps(line))
            with log.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(*run, f"{epoch:3d} {loss:10.4f} {valid:10.4f} {line['seconds']:7.1f}", flush=True)
            if time.perf_counter() - began > arguments.seconds:
                return
            if stopped:
                break


def score_all(arguments):
    """Keep the scores of what was trained; the command kept with them is that of all runs."""
    from _results import FOLDER, Records

    from skcircuits.trees._trees import StateLayout
    from skcircuits.trees.mixture_of_all_trees._learning import Parameterization

    records = Records(FOLDER / "twenty.jsonl", ["name"])
    log = (arguments.folder / "log.jsonl").read_text().splitlines()
    ends = [line for line in map(json.loads, log) if line["stopped"]]
    for path in sorted(arguments.folder.glob("*.npz")):
        with np.load(path) as stored:
            best, vector = json.loads(str(stored["line"])), stored["vector"].astype(float)
        data, init, batch_size, rate, n_epochs = best["run"]
        parameters = {"init": init} if init != STARTS[0] else {}
        parameters |= {"batch_size": int(batch_size), "learning_rate": float(rate)}
        parameters |= {"max_iter": int(n_epochs)}
        tried = [line for line in ends if line["data"] == data]
        end = next(line for line in tried if line["run"] == best["run"])
        runs = " ".join(f"--run {' '.join(line['run'])}" for line in tried)
        entry = {
            "name": f"moat {data} {parameters} on {best['machine']}",
            "command": f"python -m benchmarks.moat_gpu train FOLDER {runs}",
            "seconds": round(sum(line["seconds"] for line in tried), 1),
        }
        if entry in records:
            continue
        _, valid, test = load(data)
        model = Parameterization(StateLayout([2] * valid.shape[1])).model(vector)
        scores = [float(model.log_prob(rows.astype(int)).mean()) for rows in (valid, test)]
        numbers = {"valid": scores[0], "test": scores[1], "passes": end["iteration"]}
        numbers |= {"best_pass": best["iteration"], "stopped": end["stopped"]}
        numbers |= {"seconds": end["seconds"], "parameters": f"{parameters} on a GPU"}
        print(data, numbers, flush=True)
        records.add(entry | {"numbers": numbers})


def machine(xp):
    """The name of the GPU."""
    return "CPU" if xp is np else xp.cuda.runtime.getDeviceProperties(0)["name"].decode()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["train", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", nargs=5, action="append", default=[])
    parser.add_argument("--numpy", action="store_true", help="train without a GPU")
    parser.add_argument("--seconds", type=float, default=np.inf, help="start no iteration later")
    return parser.parse_args()


def main():
    arguments = parse()
    {"train": train_all, "score": score_all}[arguments.task](arguments)


if __name__ == "__main__":
    main()
