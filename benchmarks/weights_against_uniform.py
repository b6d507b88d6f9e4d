"""Whether weights are ever worse than none: targets of many shapes, samples wrong in many ways.

Each of about twenty continuous targets has samples that are exact, too wide and shifted, too
narrow, from a much wider Gaussian, or states of short unadjusted Langevin chains. Printed per
problem: the error of means and variances (in those of the target) without weights and with the
defaults, their ratio, the fraction of uniform weights that the defaults mixed in, and how many fits
are wrong (a mean by .3 standard deviations, or a variance by a factor of 1.5) and how many warn.
Rules were chosen on the targets marked with a star; the last lines summarise these and the others.

    python -m benchmarks.weights_against_uniform [--n 100] [--seeds 3] [--first-seed 0]
"""

import argparse
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from _svgd_targets import Funnel

from benchmarks.stein_scores import random_mixture
from skcircuits import BBISWeighter
from skcircuits.graphical import GaussianMRF

KINDS = ("exact", "wide", "narrow", "far", "chains")
# For densities of one number from a grid.
GRID = np.linspace(-4.0, 4.0, 8001)
# Logarithm of the factor by which the variance of a wrong fit is off.
LARGE = np.log(1.5)


@dataclass(frozen=True)
class Target:
    """A score function with exact draws."""

    grad_log_prob: Any
    draw: Any  # n, rng -> (n, d)


def independent(score, log_density, d):
    """Coordinates with one density each, drawn from a grid."""
    p = np.exp(log_density(GRID))
    noise = GRID[1] - GRID[0]

    def draw(n, rng):
        drawn = rng.choice(GRID, (n, d), p=p / p.sum())
        return drawn + noise * rng.uniform(-0.5, 0.5, (n, d))

    return Target(score, draw)


def gaussian(precision):
    field = GaussianMRF(precision, np.ones(len(precision)))
    return Target(field.grad_log_prob, field.sample)


def mixture(seed, k, d, distance):
    """Random weights, covariances, and means that far apart."""
    model = random_mixture(np.random.default_rng(seed), k, d, distance)
    return Target(model.grad_log_prob, lambda n, rng: model.sample(n, random_state=rng))


def student(freedom, d):
    scales = np.linspace(0.5, 3.0, d)
    return Target(
        lambda X: -(freedom + 1.0) * X / (freedom * scales**2 + X**2),
        lambda n, rng: scales * rng.standard_t(freedom, size=(n, d)),
    )


def banana(d, bend):
    def score(X):
        above = 4.0 * (X[:, 1] + bend * (X[:, 0] ** 2 - 1.0))
        found = -X
        found[:, 1] = -above
        found[:, 0] -= 2.0 * bend * X[:, 0] * above
        return found

    def draw(n, rng):
        X = rng.normal(size=(n, d))
        X[:, 1] = 0.5 * X[:, 1] - bend * (X[:, 0] ** 2 - 1.0)
        return X

    return Target(score, draw)


def funnel(d, scale):
    model = Funnel(d, scale)
    return Target(model.score, model.draw)


def log_gamma(shape, d):
    return Target(lambda X: shape - np.exp(X), lambda n, rng: np.log(rng.gamma(shape, size=(n, d))))


def ring():
    radii = GRID[GRID > 0.01]
    p = radii * np.exp(-2.0 * (radii - 3.0) ** 2)

    def score(X):
        radius = np.linalg.norm(X, axis=1, keepdims=True)
        return 4.0 * (3.0 / radius - 1.0) * X

    def draw(n, rng):
        angle = rng.uniform(0.0, 2.0 * np.pi, n)
        circle = np.column_stack([np.cos(angle), np.sin(angle)])
        return rng.choice(radii, n, p=p / p.sum())[:, None] * circle

    return Target(score, draw)


def wells(d, depth):
    return independent(
        lambda X: -4.0 * depth * X * (X**2 - 1.0) + 0.3,
        lambda x: -depth * (x**2 - 1.0) ** 2 + 0.3 * x,
        d,
    )


def targets():
    """Names and targets, those with a star seen when rules were chosen."""
    factor = np.random.default_rng(5).normal(size=(5, 5))
    chain = 2.0 * np.eye(10) - 0.8 * (np.eye(10, k=1) + np.eye(10, k=-1))
    return {
        "chain, 10*": gaussian(chain),
        "independent, 30": gaussian(np.eye(30)),
        "correlated, 5*": gaussian(factor @ factor.T + 0.05 * np.eye(5)),
        "t of 5": student(5, 5),
        "t of 3*": student(3, 3),
        "banana, 2*": banana(2, 1.0),
        "banana, 6": banana(6, 0.5),
        "funnel, 3*": funnel(3, 1.5),
        "funnel, 8": funnel(8, 1.0),
        "log gamma, 1*": log_gamma(1.0, 4),
        "log gamma, .5": log_gamma(0.5, 2),
        "ring": ring(),
        "shallow wells*": wells(3, 1.0),
        "deep wells": wells(2, 3.0),
        "fourth power*": independent(lambda X: -(X**3), lambda x: -(x**4) / 4.0, 6),
        "mixture 2, 2": mixture(100, 2, 2, 1.0),
        "mixture 3, 3*": mixture(101, 3, 3, 1.5),
        "mixture 2, 5": mixture(102, 2, 5, 3.0),
        "mixture 4, 2*": mixture(103, 4, 2, 4.0),
        "mixture 3, 6": mixture(104, 3, 6, 2.0),
        "mixture 5, 1*": mixture(105, 5, 1, 3.0),
    }


def samples(target, kind, n, mean, scale, rng):
    """Samples that are wrong in one way."""
    if kind == "chains":
        return langevin_chains(target, n, mean, scale, rng)
    X = target.draw(n, rng)
    if kind == "wide":
        return mean + 1.3 * (X - mean) + 0.3 * scale
    if kind == "narrow":
        return mean + 0.7 * (X - mean)
    return mean + 1.8 * scale * rng.normal(size=X.shape) if kind == "far" else X


def langevin_chains(target, n, mean, scale, rng, n_chains=4, burn_in=10):
    """Unadjusted, with steps that are too long."""
    d = len(mean)
    step = 0.5 * d ** (-1.0 / 3.0)
    x, states = mean + 2.0 * scale * rng.normal(size=(n_chains, d)), []
    for _ in range(burn_in + n // n_chains):
        slope = scale * target.grad_log_prob(x)
        slope /= np.maximum(1.0, np.linalg.norm(slope, axis=1, keepdims=True) / 10.0)
        x = x + scale * (0.5 * step * slope + np.sqrt(step) * rng.normal(size=x.shape))
        states.append(x)
    return np.concatenate(states[burn_in:])


def error(X, weights, mean, variance):
    found = weights @ X
    ratio = weights @ (X - found) ** 2 / variance
    return np.sqrt(np.mean((found - mean) ** 2 / variance) + np.mean((ratio - 1.0) ** 2))


def is_wrong(X, weights, mean, variance):
    """Whether a mean is off by .3 standard deviations or a variance by a factor of 1.5."""
    found = weights @ X
    ratios = np.log(weights @ (X - found) ** 2 / variance)
    return (np.abs(found - mean) > 0.3 * np.sqrt(variance)).any() or np.abs(ratios).max() > LARGE


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    ratios, judged = {True: [], False: []}, {True: [], False: []}
    for name, target in targets().items():
        exact = target.draw(200_000, np.random.default_rng(1000))
        mean, variance = exact.mean(axis=0), exact.var(axis=0)
        for kind in KINDS:
            found = []
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                rng = np.random.default_rng(seed)
                X = samples(target, kind, options.n, mean, np.sqrt(variance), rng)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    weighter = BBISWeighter(target=target).fit(X)
                wrong = is_wrong(X, weighter.weights_, mean, variance)
                judged[name.endswith("*")].append([wrong, bool(caught)])
                uniform = np.full(len(X), 1.0 / len(X))
                both = [error(X, w, mean, variance) for w in (uniform, weighter.weights_)]
                found.append([*both, weighter.uniform_fraction_, wrong, bool(caught)])
            none, weighted, fraction, wrong, warned = np.mean(found, axis=0)
            ratios[name.endswith("*")].append(weighted / none)
            print(f"{name:18s}{kind:8s}{none:7.3f}{weighted:7.3f}{weighted / none:6.2f}", end="")
            print(f"{fraction:6.2f}{wrong:6.2f}{warned:6.2f}", flush=True)
    for seen, values in ratios.items():
        print(
            f"{'seen' if seen else 'unseen'}: {len(values)} problems, geometric mean "
            f"{np.exp(np.mean(np.log(values))):.2f}, above 1.02: "
            f"{np.sum(np.array(values) > 1.02)}, largest {max(values):.2f}"
        )
        wrong, warned = np.array(judged[seen]).T
        print(
            f"  {len(wrong)} fits: {np.sum(wrong & warned)} wrong and warned, "
            f"{np.sum(wrong & ~warned)} wrong in silence, "
            f"{np.sum(~wrong & warned)} right but warned"
        )


if __name__ == "__main__":
    main()
