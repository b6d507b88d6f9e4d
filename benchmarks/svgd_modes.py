"""Whether ``GraphicalSVGDSampler`` tells, or mends, wrong fractions of modes and wrong variances.

Mixtures of Gaussians with two or three modes, from starts at one mode or between them, products of
t distributions, and normal distributions, in several dimensions. Particles are wrong if a mean is
off by more than .3 standard deviations, a variance by a factor of more than 1.4, or more than a
tenth of the particles are in another mode than they should be. For each number of coordinates: fits
that are wrong without a warning, wrong with one, right, and right with a warning.

    python -m benchmarks.svgd_modes [--dimensions 1 2 5 20] [--seeds 2] [--published]

``--published`` takes the published method (``preconditioner=None``), whose particles are not
corrected.
"""

import argparse
import time
import warnings
from collections import Counter

import numpy as np
from scipy.special import logsumexp

from skcircuits import GraphicalSVGDSampler

N_PARTICLES = 100
MAX_SHIFT, MAX_RATIO, MAX_MISPLACED = 0.3, 1.4, 0.1


class Mixture:
    """Gaussian components with diagonal covariances."""

    def __init__(self, weights, means, scale=1.0):
        self.weights, self.means = np.asarray(weights), np.asarray(means, dtype=np.float64)
        self.scales = np.broadcast_to(np.reshape(scale, (-1, 1)), self.means.shape)
        self.mean = self.weights @ self.means
        squares = self.scales**2 + (self.means - self.mean) ** 2
        self.variance = self.weights @ squares

    def _parts(self, X):
        moved = (X[:, None] - self.means) / self.scales
        heights = np.log(self.weights) - np.log(self.scales).sum(axis=1)
        return heights - 0.5 * np.square(moved).sum(axis=2)

    def log_prob_unnormalized(self, X):
        """Log density up to a constant."""
        return logsumexp(self._parts(X), axis=1)

    def grad_log_prob(self, X):
        """Gradient of the log density."""
        parts = self._parts(X)
        own = np.exp(parts - logsumexp(parts, axis=1, keepdims=True))
        return np.einsum("nk,nkd->nd", own, (self.means - X[:, None]) / self.scales**2)

    def misplaced(self, X):
        """Fraction of the rows in other modes than they should be."""
        held = np.bincount(self._parts(X).argmax(axis=1), minlength=len(self.weights)) / len(X)
        return 0.5 * np.abs(held - self.weights).sum()


class StudentProduct:
    """Independent t distributions."""

    def __init__(self, freedom, n_coordinates):
        self._freedom, self.mean = freedom, np.zeros(n_coordinates)
        self.variance = np.full(n_coordinates, freedom / (freedom - 2.0))

    def log_prob_unnormalized(self, X):
        """Log density up to a constant."""
        return -(self._freedom + 1.0) / 2.0 * np.log1p(X**2 / self._freedom).sum(axis=1)

    def grad_log_prob(self, X):
        """Gradient of the log density."""
        return -(self._freedom + 1.0) * X / (self._freedom + X**2)

    def misplaced(self, X):
        """There is one mode."""
        return 0.0


def targets(n_coordinates):
    """Give targets with their names."""
    way = np.full(n_coordinates, n_coordinates**-0.5)
    yield "normal", Mixture([1.0], [0.0 * way])
    for distance in (5.0, 10.0, 30.0):
        around, ahead = [-0.5 * distance * way, 0.5 * distance * way], [0.0 * way, distance * way]
        for weight in (0.5, 0.8):
            yield f"{weight} around, {distance:g}", Mixture([weight, 1.0 - weight], around)
            yield f"{weight} here, {distance:g}", Mixture([weight, 1.0 - weight], ahead)
    yield "three", Mixture([0.5, 0.3, 0.2], [-8.0 * way, 0.0 * way, 8.0 * way], [1.0, 0.5, 2.0])
    yield "near", Mixture([0.5, 0.5], [-1.2 * way, 1.2 * way])
    yield "small", Mixture([0.98, 0.02], [0.0 * way, 8.0 * way])
    for freedom in (3.0, 5.0, 10.0):
        yield f"t({freedom:g})", StudentProduct(freedom, n_coordinates)


def judge(target, seed, options):
    """Fit, and tell whether the particles are right and whether there was a warning."""
    start = np.random.default_rng(seed).standard_normal((N_PARTICLES, len(target.mean)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler = GraphicalSVGDSampler(target=target, random_state=seed, **options).fit(start)
    particles = sampler.particles_
    shift = np.abs(particles.mean(axis=0) - target.mean) / np.sqrt(target.variance)
    ratio = particles.var(axis=0) / target.variance
    is_wrong = (
        shift.max() > MAX_SHIFT
        or np.maximum(ratio, 1.0 / ratio).max() > MAX_RATIO
        or target.misplaced(particles) > MAX_MISPLACED
    )
    kinds = ("right", "right, warned"), ("wrong in silence", "wrong, warned")
    return kinds[bool(is_wrong)][bool(caught)]


def main():
    """Fit all targets and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[1, 2, 5, 20])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--published", action="store_true")
    arguments = parser.parse_args()
    options = {"preconditioner": None} if arguments.published else {}
    for n_coordinates in arguments.dimensions:
        begin, counts, silent = time.process_time(), Counter(), []
        for name, target in targets(n_coordinates):
            for seed in range(arguments.seeds):
                kind = judge(target, seed, options)
                counts[kind] += 1
                if kind == "wrong in silence":
                    silent.append(f"{name} (seed {seed})")
        seconds = time.process_time() - begin
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        print(f"d = {n_coordinates:2d}: {listed}; {seconds:.1f} s {'; '.join(silent)}", flush=True)


if __name__ == "__main__":
    main()
