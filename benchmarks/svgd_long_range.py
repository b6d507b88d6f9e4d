"""Variances of targets whose coordinates depend on each other over long distances.

``GraphicalSVGDSampler`` with its defaults, a hundred particles, with the graph and without it,
beside the published method (``preconditioner=None``): distance of the means in standard
deviations, least and greatest ratio of a variance to the true one, processor time, and what was
warned of. Truths are closed forms, quadrature over the two scales of the state-space model, and
elliptical slice sampling of the latent autoregression. ``--blackjax`` adds a thousand steps of
``blackjax.svgd`` from the same start.

    python -m benchmarks.svgd_long_range [--targets chain ...] [--seeds 1] [--large] [--blackjax]

``--large`` takes chains and grids of thousands of coordinates instead, those of more than 2000
with their graph only.
"""

import argparse
import time
import warnings
from functools import partial

import numpy as np
from _svgd_peers import blackjax_svgd
from _svgd_targets import Funnel
from scipy import sparse

from skcircuits import GraphicalSVGDSampler
from skcircuits.graphical import GaussianMRF

N_PARTICLES = 100


class Target:
    """A score function, a log density, a graph that may be hidden, and true moments."""

    def __init__(self, score, log_prob, neighbors, mean, variance):
        self.grad_log_prob, self.log_prob_unnormalized = score, log_prob
        self.neighbors, self.mean, self.variance = neighbors, mean, variance

    @classmethod
    def gaussian(cls, precision, mean):
        field = GaussianMRF(sparse.csr_array(precision), precision @ mean)
        variance = np.diag(np.linalg.inv(sparse.csr_array(precision).toarray()))
        return cls(
            field.grad_log_prob, field.log_prob_unnormalized, field.neighbors, mean, variance
        )


def laplacian(*sides):
    """Precision ``2 I`` minus neighbours, along every side of a lattice."""
    total = 0
    for axis, side in enumerate(sides):
        line = sparse.diags_array(
            [np.full(side, 2.0), -np.ones(side - 1), -np.ones(side - 1)], offsets=[0, 1, -1]
        )
        before = sparse.eye_array(int(np.prod(sides[:axis])))
        after = sparse.eye_array(int(np.prod(sides[axis + 1 :])))
        total = total + sparse.kron(sparse.kron(before, line), after)
    return sparse.csr_array(total)


def autoregression(correlation, d):
    """Precision of a stationary AR(1) process with innovations of variance one."""
    links = np.full(d - 1, -correlation)
    ends = np.r_[1.0, np.full(d - 2, 1.0 + correlation**2), 1.0]
    return sparse.csr_array(sparse.diags_array([ends, links, links], offsets=[0, 1, -1]))


def latent_autoregression(correlation=0.95, d=60, n_steps=20_000):
    """AR(1) with a coin per step, its logit the state; moments by elliptical slice sampling."""
    rng = np.random.default_rng(2)
    Q = (autoregression(correlation, d) / (1.0 - correlation**2)).toarray()
    root = np.linalg.cholesky(np.linalg.inv(Q))
    coins = rng.random(d) < 1.0 / (1.0 + np.exp(-root @ rng.normal(size=d)))

    def log_likelihood(X):
        return (coins * X - np.logaddexp(0.0, X)).sum(axis=-1)

    def score(X):
        return coins - 1.0 / (1.0 + np.exp(-X)) - X @ Q

    def log_prob(X):
        return log_likelihood(X) - 0.5 * np.einsum("ni,ij,nj->n", X, Q, X)

    states = elliptical_slices(log_likelihood, root, n_steps, rng)
    near = [[j for j in (i - 1, i + 1) if 0 <= j < d] for i in range(d)]
    return Target(score, log_prob, near, states.mean(axis=0), states.var(axis=0))


def elliptical_slices(log_likelihood, root, n_steps, rng, n_chains=20):
    """States of chains under a normal prior with that root (Murray, Adams and MacKay 2010)."""
    x = rng.normal(size=(n_chains, len(root))) @ root.T
    kept = []
    for step in range(n_steps // n_chains + 200):
        nu = rng.normal(size=x.shape) @ root.T
        level = log_likelihood(x) + np.log(rng.random(n_chains))
        angle = rng.uniform(0.0, 2.0 * np.pi, n_chains)
        low, high = angle - 2.0 * np.pi, angle.copy()
        proposal = x * np.cos(angle)[:, None] + nu * np.sin(angle)[:, None]
        refused = log_likelihood(proposal) <= level
        while refused.any():
            high = np.where(refused & (angle > 0), angle, high)
            low = np.where(refused & (angle <= 0), angle, low)
            angle = np.where(refused, rng.uniform(low, high), angle)
            proposal = x * np.cos(angle)[:, None] + nu * np.sin(angle)[:, None]
            refused = log_likelihood(proposal) <= level
        x = proposal
        if step >= 200:
            kept.append(x)
    return np.concatenate(kept)


def state_space(n=50):
    """A random walk seen with noise, log scales of both; moments by quadrature over the scales."""
    rng = np.random.default_rng(4)
    seen = np.cumsum(0.3 * rng.normal(size=n)) + 0.7 * rng.normal(size=n)

    def log_prob(X):
        z, walk, noise = X[:, :n], X[:, n], X[:, n + 1]
        steps = (np.diff(z, axis=1) ** 2).sum(axis=1)
        errors = ((seen - z) ** 2).sum(axis=1)
        prior = (z[:, 0] / 3) ** 2 + (walk + 1) ** 2 + (noise + 1) ** 2
        terms = steps * np.exp(-2 * walk) + errors * np.exp(-2 * noise) + prior
        return -0.5 * terms - (n - 1) * walk - n * noise

    def score(X):
        z, walk, noise = X[:, :n], X[:, n : n + 1], X[:, n + 1 :]
        steps, errors = np.diff(z, axis=1), seen - z
        gradient = errors * np.exp(-2 * noise)
        gradient[:, 1:] -= steps * np.exp(-2 * walk)
        gradient[:, :-1] += steps * np.exp(-2 * walk)
        gradient[:, 0] -= z[:, 0] / 9
        of_walk = (steps**2).sum(axis=1, keepdims=True) * np.exp(-2 * walk) - n - walk
        of_noise = (errors**2).sum(axis=1, keepdims=True) * np.exp(-2 * noise) - n - noise - 1
        return np.hstack([gradient, of_walk, of_noise])

    near = [[*(j for j in (i - 1, i + 1) if 0 <= j < n), n, n + 1] for i in range(n)]
    moments = scale_quadrature(seen)
    return Target(score, log_prob, [*near, [*range(n)], [*range(n)]], *moments)


def scale_quadrature(seen, n_points=60):
    """Means and variances of states and log scales, the states summed out on a grid of scales."""
    n = len(seen)
    walks, noises = np.linspace(-3.5, 1.0, n_points), np.linspace(-2.0, 0.8, n_points)
    differences = np.diff(np.eye(n), axis=0)
    logs, first, second = [], [], []
    for walk in walks:
        prior = np.exp(-2 * walk) * differences.T @ differences
        prior[0, 0] += 1.0 / 9.0
        for noise in noises:
            precision = prior + np.exp(-2 * noise) * np.eye(n)
            mean = np.linalg.solve(precision, np.exp(-2 * noise) * seen)
            quadratic = np.exp(-2 * noise) * seen @ (seen - mean)
            log_scales = (
                -0.5 * (walk + 1) ** 2 - 0.5 * (noise + 1) ** 2 - (n - 1) * walk - n * noise
            )
            logs.append(log_scales - 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * quadratic)
            first.append(np.r_[mean, walk, noise])
            own = np.r_[np.diag(np.linalg.inv(precision)), 0.0, 0.0]
            second.append(own + first[-1] ** 2)
    p = np.exp(np.array(logs) - max(logs))
    p /= p.sum()
    mean = p @ np.array(first)
    return mean, p @ np.array(second) - mean**2


def funnel(d=10):
    """Neal's funnel: every coordinate beside the log variance depends on it alone."""
    model = Funnel(d)
    near = [[*range(1, d)], *[[0]] * (d - 1)]
    variance = np.r_[9.0, np.full(d - 1, np.exp(4.5))]
    return Target(model.score, model.log_prob, near, np.zeros(d), variance)


TARGETS = {
    "Laplacian chain 30, far": lambda: Target.gaussian(laplacian(30), np.full(30, 5.0)),
    "Laplacian grid 100": lambda: Target.gaussian(laplacian(10, 10), np.zeros(100)),
    "AR(1) .9, 100": lambda: Target.gaussian(autoregression(0.9, 100), np.zeros(100)),
    "AR(1) .99, 100": lambda: Target.gaussian(autoregression(0.99, 100), np.zeros(100)),
    "latent AR(1) .95, 60": latent_autoregression,
    "state space, 50 steps": state_space,
    "funnel, 10": funnel,
}
LARGE = {
    "Laplacian chain 2000": lambda: Target.gaussian(laplacian(2000), np.full(2000, 5.0)),
    "AR(1) .999, 5000": lambda: Target.gaussian(autoregression(0.999, 5000), np.zeros(5000)),
    "Laplacian grid 2025": lambda: Target.gaussian(laplacian(45, 45), np.zeros(2025)),
    "Laplacian grid 4900": lambda: Target.gaussian(laplacian(70, 70), np.zeros(4900)),
}
METHODS = [("defaults", {}), ("published", {"preconditioner": None})]


def run(target, with_graph, seed, **options):
    """Errors of means and variances, seconds and warnings of one run."""
    shown = Target(target.grad_log_prob, target.log_prob_unnormalized, target.neighbors, None, None)
    if not with_graph:
        del shown.neighbors
    start = np.random.default_rng(seed).normal(size=(N_PARTICLES, len(target.mean)))
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler = GraphicalSVGDSampler(target=shown, random_state=seed, **options).fit(start)
    seconds = time.process_time() - began
    return errors(target, sampler.particles_, seconds), [str(w.message) for w in caught]


def errors(target, particles, seconds):
    """Distance of the means, least and greatest ratio of a variance, seconds."""
    ratio = particles.var(axis=0) / target.variance
    shift = np.abs(particles.mean(axis=0) - target.mean) / np.sqrt(target.variance)
    return [shift.max(), ratio.min(), ratio.max(), seconds]


def run_blackjax(target, seed, n_steps=1000):
    """Errors of blackjax's SVGD, which asks the same NumPy function for scores."""
    import jax

    def scores(X):
        rows = np.asarray(X, dtype=float).reshape(-1, X.shape[-1])
        return target.grad_log_prob(rows).reshape(X.shape).astype(X.dtype)

    def score(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(scores, shape, x, vmap_method="broadcast_all")

    start = np.random.default_rng(seed).normal(size=(N_PARTICLES, len(target.mean)))
    particles, per_step = blackjax_svgd(score, start, n_steps)
    return errors(target, particles, n_steps * per_step), []


def main():
    """Print a line per target, graph and method, the worst of the seeds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--targets", nargs="+", help="beginnings of names; by default all")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--blackjax", action="store_true")
    options = parser.parse_args()
    print(f"{'':26s}{'':10s}{'':12s}   shift  least  most  seconds  warned")
    for name, make in (LARGE if options.large else TARGETS).items():
        if options.targets and not name.startswith(tuple(options.targets)):
            continue
        target = make()
        cases = [
            (graph, method, partial(run, with_graph=with_graph, **chosen))
            for graph, with_graph in (("graph", True), ("no graph", False))
            if with_graph or len(target.mean) <= 2000
            for method, chosen in METHODS[: 1 if options.large else None]
        ]
        if options.blackjax:
            cases.append(("no graph", "blackjax", run_blackjax))
        for graph, method, measure in cases:
            runs = [measure(target, seed=seed) for seed in range(options.seeds)]
            values = np.array([values for values, _ in runs])
            worst = [values[:, 0].max(), values[:, 1].min(), values[:, 2].max()]
            numbers = "".join(f"{v:7.2f}" for v in (*worst, values[:, 3].mean()))
            warned = sum(bool(caught) for _, caught in runs)
            print(f"{name:26s}{graph:10s}{method:12s}{numbers}  {warned} of {len(runs)}")
            for text in next((caught for _, caught in runs if caught), []):
                print(f"    {text[:400]}", flush=True)


if __name__ == "__main__":
    main()
