"""Five Bayesian models: short chains before and after weighting, and particles, against long runs.

``python -m benchmarks.bayesian_models [--seeds 3] [--models "eight schools" ...]`` needs the extra
``jax``. A short chain is four NUTS chains of 100 draws after 50 steps of warm-up. Errors are root
mean squares over the coordinates, in standard deviations of the posterior, and of the variance
about its mean. "score" is the largest difference from the score derived by hand, relative to the
largest score.
"""

from __future__ import annotations

import argparse
import warnings
from importlib.util import find_spec

import numpy as np

from skcircuits import BBISWeighter, GraphicalSVGDSampler
from skcircuits.targets import from_numpyro

N_CHAINS = 4


def run_nuts(target, model, args, n_warmup, n_draws, seed, accept=0.8):
    """Draws in unconstrained coordinates, chain after chain."""
    import jax
    from numpyro.infer import MCMC, NUTS

    chain = MCMC(
        NUTS(model, target_accept_prob=accept),
        num_warmup=n_warmup,
        num_samples=n_draws,
        num_chains=N_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    chain.run(jax.random.PRNGKey(seed), *args)
    return target.from_sites(chain.get_samples())


def errors(truth, X, weights):
    """Errors of the means and of the second moments."""
    center, scale = truth.mean(axis=0), truth.std(axis=0)
    first = (weights @ X - center) / scale
    second = weights @ ((X - center) / scale) ** 2 - 1.0
    return np.sqrt([(first**2).mean(), (second**2).mean()])


def main():
    if find_spec("numpyro") is None:
        print("not run: pip install 'skcircuits[jax]'")
        return
    import numpyro

    from benchmarks._bayesian_models import five_models

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", nargs="*", default=list(five_models()))
    options = parser.parse_args()
    numpyro.enable_x64()
    print(f"{'':22s} short chain     weighted (ratio)          particles   score (sites)")
    for name in options.models:
        model, by_hand, args = five_models()[name]
        target = from_numpyro(model, *args)
        points = np.random.default_rng(1).normal(size=(50, target.n_coordinates))
        scores = by_hand(points, *args)
        off = np.abs(target.grad_log_prob(points) - scores).max() / np.abs(scores).max()
        truth = run_nuts(target, model, args, 1000, 4000, seed=1000, accept=0.9)
        before, after = np.zeros(2), np.zeros(2)
        for seed in range(options.seeds):
            X = run_nuts(target, model, args, 50, 100, seed)
            weights = BBISWeighter(target=target).fit(X).weights_
            before += errors(truth, X, np.full(len(X), 1.0 / len(X))) / options.seeds
            after += errors(truth, X, weights) / options.seeds
        start = target.draw_start(100, np.random.default_rng(0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            particles = GraphicalSVGDSampler(target=target, random_state=0).fit(start).particles_
        moved = errors(truth, particles, np.full(100, 0.01))
        sites = ", ".join(target.to_sites(particles))
        ratio = after / before
        print(
            f"{name:22s} {before[0]:.3f} {before[1]:.3f}     {after[0]:.3f} {after[1]:.3f} "
            f"({ratio[0]:.2f} {ratio[1]:.2f})   {moved[0]:.3f} {moved[1]:.3f}   {off:.0e} "
            f"({sites})",
            flush=True,
        )


if __name__ == "__main__":
    main()
