"""Fields, baselines and error measures shared by the svgd benchmarks."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist, pdist

from skcircuits.graphical import ContinuousFactor, ContinuousMarkovNetwork, GaussianMRF


def grid_edges(side):
    """Give the edges of a square lattice, shape (n_edges, 2)."""
    node = np.arange(side * side).reshape(side, side)
    right = np.stack([node[:, :-1].ravel(), node[:, 1:].ravel()], axis=1)
    down = np.stack([node[:-1].ravel(), node[1:].ravel()], axis=1)
    return np.concatenate([right, down])


def edges_within(side, radius):
    """Give the pairs of lattice points at most `radius` apart."""
    row, column = np.divmod(np.arange(side * side), side)
    first, second = np.triu_indices(side * side, 1)
    squared = (row[first] - row[second]) ** 2 + (column[first] - column[second]) ** 2
    close = squared <= radius**2
    return np.stack([first[close], second[close]], axis=1)


def gaussian_field(edges, n_coordinates, rng, coupling=0.1):
    """Draw a Gaussian field as in section 4.1 of the paper.

    A_ij is uniform on [-coupling, coupling], symmetrised; A_ii = 0.1 + Σ|A_ij|; b is
    standard normal.
    """
    weights = rng.uniform(-coupling, coupling, (2, len(edges))).mean(axis=0)
    links = _symmetric(edges, weights, n_coordinates)
    precision = links + sparse.diags_array(0.1 + abs(links).sum(axis=1))
    return GaussianMRF(precision, rng.normal(size=n_coordinates))


def _symmetric(edges, weights, n):
    """Give the symmetric matrix with these entries off the diagonal."""
    upper = sparse.csr_array((weights, (edges[:, 0], edges[:, 1])), shape=(n, n))
    return upper + upper.T


def grid_field(rng):
    """Draw the field of figure 2: a 10 × 10 grid."""
    return gaussian_field(grid_edges(10), 100, rng)


def dense_field(rng):
    """Draw the field of figure 3: 50 coordinates, fully connected."""
    return gaussian_field(np.stack(np.triu_indices(50, 1), axis=1), 50, rng)


def coupled_field(rng, side=10, slack=0.1):
    """Draw a strongly coupled grid: neighbours are drawn together, correlations near one."""
    edges, n = grid_edges(side), side * side
    links = _symmetric(edges, -rng.uniform(0.5, 1.5, len(edges)), n)
    precision = links + sparse.diags_array(slack - links.sum(axis=1))
    return GaussianMRF(precision, slack * rng.normal(size=n))


class Funnel:
    """Neal's funnel: a log variance of standard deviation `scale`, and coordinates with it."""

    def __init__(self, d, scale=3.0):
        self.d, self.scale = d, scale

    def log_prob(self, X, exp=np.exp):
        """Log densities over the last axis, but for a constant; `exp` may be that of JAX."""
        v, squares = X[..., 0], (X[..., 1:] ** 2).sum(axis=-1)
        return -0.5 * ((v / self.scale) ** 2 + squares * exp(-v) + (self.d - 1) * v)

    def score(self, X):
        """Gradients of the log densities, shape (n, d)."""
        v, x = X[:, :1], X[:, 1:]
        squares = (x**2).sum(axis=1, keepdims=True) * np.exp(-v)
        along = -v / self.scale**2 + 0.5 * (squares - (self.d - 1))
        return np.hstack([along, -x * np.exp(-v)])

    def draw(self, n, rng):
        """Exact draws, shape (n, d)."""
        v = self.scale * rng.normal(size=(n, 1))
        return np.hstack([v, np.exp(0.5 * v) * rng.normal(size=(n, self.d - 1))])


def double_wells(rng, coupling, side=5):
    """Draw a grid of double wells, tilted a little, neighbours coupled by J x_i x_j."""
    n = side * side
    tilt = rng.uniform(-0.3, 0.3, n)
    wells = ContinuousFactor(
        np.arange(n)[:, None],
        lambda x: -1.5 * (x[..., 0] ** 2 - 1) ** 2 + tilt * x[..., 0],
        lambda x: -6.0 * (x**2 - 1) * x + tilt[:, None],
    )
    bonds = ContinuousFactor(
        grid_edges(side),
        lambda x: coupling * x[..., 0] * x[..., 1],
        lambda x: coupling * x[..., ::-1],
    )
    return ContinuousMarkovNetwork([wells, bonds])


def skewed_field(rng, coupling=0.5, side=5):
    """Draw a grid of log gamma variables, neighbours pulled together."""
    n = side * side
    shape = rng.uniform(1.0, 2.0, n)
    skewed = ContinuousFactor(
        np.arange(n)[:, None],
        lambda x: shape * x[..., 0] - np.exp(x[..., 0]),
        lambda x: shape[:, None] - np.exp(np.minimum(x, 50.0)),
    )
    bonds = ContinuousFactor(
        grid_edges(side),
        lambda x: -0.5 * coupling * (x[..., 0] - x[..., 1]) ** 2,
        lambda x: coupling * (x[..., ::-1] - x),
    )
    return ContinuousMarkovNetwork([skewed, bonds])


def langevin(target, start, rng, *, n_steps, step, adjusted=False):
    """Run one Langevin chain per row of `start`, with or without Metropolis adjustment.

    Adjusted chains tune their common step to 57 % acceptance in the first half.
    """
    x, score = start.copy(), target.grad_log_prob(start)
    log_prob = target.log_prob_unnormalized(x) if adjusted else None
    for t in range(n_steps):
        noise = rng.normal(size=x.shape)
        proposal = x + 0.5 * step * score + np.sqrt(step) * noise
        new_score = target.grad_log_prob(proposal)
        if not adjusted:
            x, score = proposal, new_score
            continue
        new_log_prob = target.log_prob_unnormalized(proposal)
        back = (x - proposal - 0.5 * step * new_score) / np.sqrt(step)
        log_ratio = new_log_prob - log_prob + 0.5 * np.sum(noise**2 - back**2, axis=1)
        accept = np.log(rng.random(len(x))) < log_ratio
        x = np.where(accept[:, None], proposal, x)
        score = np.where(accept[:, None], new_score, score)
        log_prob = np.where(accept, new_log_prob, log_prob)
        if t < n_steps // 2:
            step *= np.exp(0.05 * (accept.mean() - 0.57))
    return x


@dataclass
class GaussianErrors:
    """Errors against a Gaussian field, all exact."""

    field: GaussianMRF
    bandwidth: float
    columns = ("mean", "second moment", "MMD", "variance ratio")

    @classmethod
    def of(cls, field, rng):
        """Take the bandwidth from the median squared distance of 1000 exact draws."""
        return cls(field, float(np.median(pdist(field.sample(1000, rng), "sqeuclidean"))))

    def __call__(self, x):
        """Give log10 errors of mean, second moment and MMD, and the variance ratio."""
        mean, variance = self.field.mean_, np.diag(self.field.covariance_)
        return [
            np.log10(np.mean((x.mean(axis=0) - mean) ** 2)),
            np.log10(np.mean(((x**2).mean(axis=0) - variance - mean**2) ** 2)),
            0.5 * np.log10(self.field.mmd2(x, self.bandwidth)),
            np.mean(x.var(axis=0) / variance),
        ]


class SampleErrors:
    """Errors against a large sample of the truth."""

    columns = ("mean", "second moment", "edge products", "P(x > 0)", "MMD")

    def __init__(self, truth, edges):
        self.truth = truth
        self.edges = edges
        self.moments = self._moments(truth)
        self.reference = truth[:3000]
        self.bandwidth = np.median(pdist(truth[:1000], "sqeuclidean"))
        self.within = np.exp(
            -cdist(self.reference, self.reference, "sqeuclidean") / self.bandwidth
        ).mean()

    def _moments(self, x):
        products = x[:, self.edges[:, 0]] * x[:, self.edges[:, 1]]
        return [v.mean(axis=0) for v in (x, x**2, products, x > 0)]

    def __call__(self, x):
        """Give log10 errors of all columns."""
        errors = [
            np.log10(np.mean((found - true) ** 2))
            for found, true in zip(self._moments(x), self.moments)
        ]
        own = np.exp(-cdist(x, x, "sqeuclidean") / self.bandwidth).mean()
        cross = np.exp(-cdist(x, self.reference, "sqeuclidean") / self.bandwidth).mean()
        return [*errors, 0.5 * np.log10(max(own - 2 * cross + self.within, 1e-12))]


def print_table(title, columns, rows):
    """Print named rows of numbers, mean and standard error over the first axis."""
    print(f"\n{title}\n{'':34s}" + "".join(f"{name:>17s}" for name in columns))
    for name, values in rows.items():
        values = np.asarray(values)
        mean = values.mean(axis=0)
        deviation = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
        error = deviation / np.sqrt(len(values))
        cells = "".join(f"{m:10.2f} ± {e:4.2f}" for m, e in zip(mean, error))
        print(f"{name:34s}{cells}", flush=True)


def draw_table(columns, rows, picture, height=2.6):
    """Draw the averages of a table as bars, one panel per column."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(columns), figsize=(12, height), sharey=True, layout="constrained"
    )
    for j, (ax, column) in enumerate(zip(axes, columns)):
        ax.barh(list(rows), [np.mean(values, axis=0)[j] for values in rows.values()])
        ax.set(xlabel=column if j == 0 else f"log10 error of {column}")
    figure.savefig(picture, dpi=120)
