"""Typical posteriors: particles beside numpyro's and blackjax's SVGD and NUTS.

All methods move in the unconstrained coordinates of the same log density, written in JAX. Truth is
a long run of NUTS (of the non-centred form for both parametrisations of the eight schools, exact
draws for funnel and mixture). ``GraphicalSVGDSampler`` runs with its defaults from a hundred
standard normal particles; the SVGD of numpyro (its own start) and of blackjax (the same start) make
as many evaluations of the gradient; NUTS runs as long as the sampler did, compilation excluded,
adaptation included.

Per method, the worst of the seeds (numpyro's SVGD has one): the largest error of a mean in
standard deviations, least and greatest ratio of a variance to the true one; and how often the
sampler warned. Results go to a file after every seed, seeds that it has are not run again, and
``table`` writes the table of the user guide from it.

    python -m benchmarks.posteriors run [--models ...] [--seeds 3] [--results posteriors.json]
    python -m benchmarks.posteriors table
"""

import argparse
import json
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from _svgd_peers import blackjax_svgd, nuts_sampler
from _svgd_targets import Funnel

N_PARTICLES = 100
FUNNEL = Funnel(10)
RESULTS = Path(__file__).with_suffix(".json")
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def schools(centred):
    """Eight schools: effects, mean, log of the scale."""
    import jax.numpy as jnp

    y, sigma = SCHOOLS

    def log_density(x):
        mu, log_tau = x[8], x[9]
        tau = jnp.exp(log_tau)
        prior = -0.5 * (mu / 5.0) ** 2 - jnp.log1p((tau / 5.0) ** 2) + log_tau
        if centred:
            theta = x[:8]
            prior += -0.5 * jnp.sum(((theta - mu) / tau) ** 2) - 8 * log_tau
        else:
            theta = mu + tau * x[:8]
            prior += -0.5 * jnp.sum(x[:8] ** 2)
        return prior - 0.5 * jnp.sum(((y - theta) / sigma) ** 2)

    return log_density, 10


def logistic():
    """Logistic regression, ten correlated columns, 200 rows."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 10)) @ (np.eye(10) + 0.5 * np.eye(10, k=1))
    y = rng.random(200) < 1 / (1 + np.exp(-X @ rng.normal(size=10)))

    def log_density(x):
        logits = jnp.asarray(X) @ x
        likelihood = jnp.sum(jnp.where(jnp.asarray(y), logits, 0.0) - jax.nn.softplus(logits))
        return likelihood - 0.5 * jnp.sum((x / 2.5) ** 2)

    return log_density, 10


def stochastic_volatility(n=100):
    """Log variances that follow an AR(1) process, its mean, logit of persistence, log scale."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(1)
    h = np.zeros(n)
    for t in range(1, n):
        h[t] = 0.95 * h[t - 1] + 0.3 * rng.normal()
    y = np.exp(h / 2) * rng.normal(size=n)

    def log_density(x):
        h, mu, raw, log_sigma = x[:n], x[n], x[n + 1], x[n + 2]
        phi = jax.nn.sigmoid(raw)
        sigma = jnp.exp(log_sigma)
        steps = h[1:] - mu - phi * (h[:-1] - mu)
        start = sigma / jnp.sqrt(1.0 - phi**2)
        process = -0.5 * jnp.sum((steps / sigma) ** 2) - (n - 1) * log_sigma
        process += -0.5 * ((h[0] - mu) / start) ** 2 - jnp.log(start)
        likelihood = -0.5 * jnp.sum(h + jnp.asarray(y) ** 2 * jnp.exp(-h))
        priors = (
            -0.5 * mu**2 - 0.5 * ((raw - 3.0) / 1.0) ** 2 - 0.5 * ((log_sigma + 1.5) / 0.7) ** 2
        )
        return process + likelihood + priors

    return log_density, n + 3


def funnel():
    """Neal's funnel: a log variance and nine coordinates with that variance."""
    import jax.numpy as jnp

    return partial(FUNNEL.log_prob, exp=jnp.exp), FUNNEL.d


CENTERS = np.array([[2.0, 2.0], [-2.0, 2.0], [2.0, -2.0], [-2.0, -2.0]])


def four_modes():
    """Four normal modes on a square, of unequal weights."""
    import jax
    import jax.numpy as jnp

    logs = jnp.log(jnp.array([0.4, 0.3, 0.2, 0.1]))

    def log_density(x):
        return jax.nn.logsumexp(logs - 0.5 * jnp.sum((x - jnp.asarray(CENTERS)) ** 2, axis=1) / 0.6)

    return log_density, 2


MODELS = {
    "eight schools, centred": lambda: schools(True),
    "eight schools, not centred": lambda: schools(False),
    "logistic regression, 10": logistic,
    "stochastic volatility, 100 steps": stochastic_volatility,
    "funnel, 10": funnel,
    "four modes": four_modes,
}


def truth(name, n=40_000):
    """Draws of the target, exact or by a long run of NUTS."""
    rng = np.random.default_rng(0)
    if name.startswith("funnel"):
        return FUNNEL.draw(n, rng)
    if name == "four modes":
        own = CENTERS[rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])]
        return own + np.sqrt(0.6) * rng.normal(size=(n, 2))
    if name == "eight schools, centred":
        x = truth("eight schools, not centred", n)
        x[:, :8] = x[:, 8:9] + np.exp(x[:, 9:10]) * x[:, :8]
        return x
    log_density, d = MODELS[name]()
    return nuts(log_density, np.zeros(d), 1000, n // 2)[0]


def nuts(log_density, start, n_warmup, n_samples, seed=0):
    """Run one chain; draws and processor time, compilation excluded."""
    import jax

    chain = nuts_sampler(log_density, n_warmup, n_samples, target_accept_prob=0.9)
    # The first run compiles, the second one counts.
    chain.run(jax.random.PRNGKey(seed), init_params=start)
    begin = time.process_time()
    chain.run(jax.random.PRNGKey(seed + 1), init_params=start)
    draws = np.array(chain.get_samples())
    return draws, time.process_time() - begin


def nuts_of_equal_time(log_density, start, seconds, seed):
    """Share the time: as many draws as fit after as many steps of adaptation."""
    _, pilot = nuts(log_density, start, 50, 50, seed)
    n = int(np.clip(50 * seconds / max(pilot, 1e-3), 50, 5000))
    return nuts(log_density, start, n, n, seed)


def numpyro_svgd(log_density, start, n_steps):
    """Run numpyro's SVGD with its default kernel and start; compilation counts."""
    import jax
    import numpyro
    from numpyro.contrib.einstein import SVGD, RBFKernel
    from numpyro.distributions import Normal
    from numpyro.optim import Adagrad

    def model():
        x = numpyro.sample("x", Normal(0.0, 1.0).expand([start.shape[1]]).to_event(1))
        # Only a place to start from: its density is taken out again.
        numpyro.factor("density", log_density(x) + 0.5 * (x**2).sum())

    svgd = SVGD(model, Adagrad(0.5), RBFKernel(), num_stein_particles=len(start))
    begin = time.process_time()
    state = svgd.run(jax.random.PRNGKey(0), n_steps, progress_bar=False).state
    (particles,) = svgd.get_params(state).values()
    return np.asarray(particles), time.process_time() - begin


class Counted:
    """A target that counts the rows at which its density or gradient was evaluated."""

    def __init__(self, target):
        self.target, self.n_rows = target, 0

    def grad_log_prob(self, X):
        self.n_rows += len(X)
        return self.target.grad_log_prob(X)

    def log_prob_unnormalized(self, X):
        self.n_rows += len(X)
        return self.target.log_prob_unnormalized(X)


def run(name, draws, seed):
    """Compare all methods on one model."""
    import jax

    from skcircuits import GraphicalSVGDSampler
    from skcircuits.targets import from_jax

    log_density, d = MODELS[name]()
    mean, variance = draws.mean(axis=0), draws.var(axis=0)
    start = np.random.default_rng(seed).normal(size=(N_PARTICLES, d))
    target = Counted(from_jax(log_density))
    GraphicalSVGDSampler(target=target, max_iter=3).fit(start)  # compiles
    target.n_rows = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.process_time()
        sampler = GraphicalSVGDSampler(target=target, random_state=seed).fit(start)
        seconds = time.process_time() - begin
    n_steps = max(1, target.n_rows // N_PARTICLES)

    def errors(x, seconds):
        ratio = x.var(axis=0) / variance
        shift = np.abs(x.mean(axis=0) - mean) / np.sqrt(variance)
        found = {"mean": shift.max(), "low": ratio.min(), "high": ratio.max(), "seconds": seconds}
        return {key: float(value) for key, value in found.items()}

    found = {
        "gradients": n_steps * N_PARTICLES,
        "warned": any("Hamiltonian Monte Carlo" in str(w.message) for w in caught),
        "particles": errors(sampler.particles_, seconds),
        "NUTS, equal time": errors(*nuts_of_equal_time(log_density, start[0], seconds, seed)),
    }
    moved, per_step = blackjax_svgd(jax.grad(log_density), start, n_steps)
    found["blackjax SVGD"] = errors(moved, n_steps * per_step)
    # It takes ten times as long as all the others together: one seed shows what it does.
    if seed == 0:
        found["numpyro SVGD"] = errors(*numpyro_svgd(log_density, start, n_steps))
    return found


def worst(found):
    """Give the worst of the seeds of one method; times are means."""
    pick = {"mean": max, "low": min, "high": max, "seconds": lambda v: sum(v) / len(v)}
    values = {key: [errors[key] for errors in found] for key in pick}
    return {key: choose(values[key]) for key, choose in pick.items()}


def table(results):
    """Write the table of the user guide."""
    methods = ("particles", "blackjax SVGD", "numpyro SVGD", "NUTS, equal time")
    print("| target | " + " | ".join(methods) + " | warned |")
    print("| --- " * (len(methods) + 2) + "|")
    for name, seeds in results.items():
        cells = [
            f"{e['mean']:.2f}, {e['low']:.2f} to {e['high']:.2f}, {e['seconds']:.1f} s"
            for e in (
                worst([found[method] for found in seeds.values() if method in found])
                for method in methods
            )
        ]
        n_warned = sum(found["warned"] for found in seeds.values())
        print(f"| {name} | " + " | ".join(cells) + f" | {n_warned} of {len(seeds)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    results = json.loads(arguments.results.read_text()) if arguments.results.exists() else {}
    if arguments.what == "run":
        import numpyro

        numpyro.enable_x64()
        for name in arguments.models:
            found = results.setdefault(name, {})
            missing = [seed for seed in range(arguments.seeds) if str(seed) not in found]
            draws = truth(name) if missing else None
            for seed in missing:
                found[str(seed)] = run(name, draws, seed)
                arguments.results.write_text(json.dumps(results, indent=1) + "\n")
                print(name, seed, json.dumps(found[str(seed)]), flush=True)
    table(results)


if __name__ == "__main__":
    main()
