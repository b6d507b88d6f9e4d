"""Figures 4 and 5 of the paper: sensors localised by noisy distances.

``small``: nine sensors and three anchors, one sensor can lie on either side of a line. How
many of 50 particles each method leaves in both modes, and a picture beside long Langevin chains
(and NUTS where blackjax is installed).

``large``: a hundred sensors. Localisation error (root mean square per coordinate) of the
particles' mean for 10 to 50 particles, from positions that the measurements alone suggest and
from other starts; errors of posterior moments against long adjusted Langevin chains started at
the true positions.

Peers are Langevin chains and particle max-product in both published variants. Errors are kept in
``benchmarks/papers/svgd_sensors.jsonl`` and not computed again.

    python -m benchmarks.svgd_sensors small|large [--trials 3] [--picture out.png]
"""

import argparse
import time
import warnings
from functools import cache, partial

import numpy as np
from _results import record
from _svgd_peers import blackjax_nuts, have_blackjax, particle_max_product
from _svgd_targets import SampleErrors, draw_table, langevin, print_table

from skcircuits import GraphicalSVGDSampler
from skcircuits.graphical import SensorNetwork

CORNERS = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])
# Eight sensors that hear of each other, and a ninth that hears of the first two only.
NINE_SENSORS = np.array(
    [
        [-0.5, 0.0], [0.5, -0.1], [-0.7, -0.6], [0.2, -0.8], [0.8, -0.6],
        [-0.8, 0.5], [-0.3, 0.8], [0.1, -0.4], [0.05, 0.55],
    ]
)  # fmt: skip
AMBIGUOUS_SENSOR = 8

# The published methods
PURE = {"linear_weight": 0.0, "preconditioner": None}
METHODS = {
    "graphical SVGD, default": {},
    "graphical SVGD, published": PURE,
    "vanilla SVGD": {"kernel": "global", **PURE},
}
PEERS = {"D-PMP": True, "T-PMP": False}
SIZES = (10, 20, 50)
N_SMALL = 50
SMALL_COLUMNS = ("fraction at truth", "fraction at mirror", "mean log density")
LARGE_COLUMNS = ("RMSE", "mean", "second moment", "MMD")


def large_layout(seed):
    rng = np.random.default_rng(seed)
    positions = rng.uniform(-1, 1, (100, 2))
    return positions, SensorNetwork.simulate(
        positions, CORNERS, radius=0.5, random_state=rng, box=(-1.0, 1.0)
    )


def small_layout():
    everyone = SensorNetwork.simulate(
        NINE_SENSORS, CORNERS[:3], radius=1.7, random_state=0, box=(-1.0, 1.0)
    )
    hears = np.all(everyone.pairs != AMBIGUOUS_SENSOR, axis=1) | (everyone.pairs[:, 0] < 2)
    network = SensorNetwork(
        everyone.pairs[hears], everyone.distances[hears], CORNERS[:3], 9, box=(-1.0, 1.0)
    )
    return NINE_SENSORS, network


def mirror_image(network, positions, sensor):
    """Reflect a sensor in the line through its two neighbours."""
    nodes = np.concatenate([positions, network.anchors])
    ends = network.pairs[np.any(network.pairs == sensor, axis=1)]
    first, second = nodes[ends[ends != sensor]]
    along = (second - first) / np.linalg.norm(second - first)
    gap = positions[sensor] - first
    return first + 2 * (gap @ along) * along - gap


def small_samples(network):
    """Particles of every method, all from the same uniform start, and long chains."""
    rng = np.random.default_rng(1)
    start = network.draw_start(400, rng)
    cloud = start[:N_SMALL]
    # Without annealing the cloud moves into one mode before it can split.
    samples = {
        name: GraphicalSVGDSampler(target=network, annealing=0.5, random_state=0, **options)
        .fit(cloud)
        .particles_
        for name, options in METHODS.items()
    }
    for name, diverse in PEERS.items():
        samples[name] = particle_max_product(network, cloud, rng, diverse=diverse)
    samples["long Langevin"] = langevin(
        network, start, rng, n_steps=10_000, step=1e-4, adjusted=True
    )
    if have_blackjax():
        samples["NUTS"], _ = blackjax_nuts(jax_log_density(network), start[:20], 200)
    return samples


def small_fractions(positions, network, mirror, samples):
    """How many particles of the ambiguous sensor lie in each of its modes."""
    found = {}
    for name, sample in samples.items():
        at = sample.reshape(-1, 9, 2)[:, AMBIGUOUS_SENSOR]
        modes = (positions[AMBIGUOUS_SENSOR], mirror)
        fractions = [float(np.mean(np.linalg.norm(at - mode, axis=1) < 0.25)) for mode in modes]
        found[name] = [*fractions, float(network.log_prob_unnormalized(sample).mean())]
    return found


def small(arguments):
    positions, network = small_layout()
    mirror = mirror_image(network, positions, AMBIGUOUS_SENSOR)

    @cache
    def samples():
        return small_samples(network)

    fractions = record(
        "svgd_sensors", "small", lambda: small_fractions(positions, network, mirror, samples())
    )
    rows = {name: [values] for name, values in fractions.items()}
    print_table("nine sensors, one of them ambiguous", SMALL_COLUMNS, rows)
    if arguments.picture:
        draw_clouds(samples(), positions, mirror, arguments.picture)


def jax_log_density(network):
    import jax.numpy as jnp

    pairs, distances = jnp.asarray(network.pairs), jnp.asarray(network.distances)

    def log_density(x):
        nodes = jnp.concatenate([x.reshape(-1, 2), jnp.asarray(network.anchors)])
        gaps = nodes[pairs[:, 0]] - nodes[pairs[:, 1]]
        misfit = jnp.sqrt(jnp.sum(gaps**2, axis=1) + 1e-12) - distances
        outside = x - jnp.clip(x, *network.box)
        return -0.5 * (jnp.sum(misfit**2) + jnp.sum(outside**2)) / network.noise**2

    return log_density


def draw_clouds(samples, positions, mirror, picture):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(samples), figsize=(3.2 * len(samples), 3.4), layout="constrained"
    )
    for ax, (name, sample) in zip(axes, samples.items()):
        clouds = sample[-400:].reshape(-1, 9, 2)
        for sensor in range(9):
            ax.plot(*clouds[:, sensor].T, ".", markersize=3, alpha=0.5)
        ax.plot(*positions.T, "k^", markersize=6, label="truth")
        ax.plot(*mirror, "kv", markersize=6, fillstyle="none", label="mirror image")
        ax.plot(*CORNERS[:3].T, "kx", markersize=8, label="anchor")
        ax.set(title=name, xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    axes[0].legend(fontsize=7)
    figure.savefig(picture, dpi=120)


def large(arguments):
    rows = {}
    for seed in range(arguments.trials):
        for n_particles in SIZES:
            name = f"large {n_particles} particles {seed}"
            found = record("svgd_sensors", name, partial(large_errors, seed, n_particles))
            for method, errors in found.items():
                rows.setdefault(f"{method}, n={n_particles}", []).append(errors)
    print_table("100 sensors: error, and posterior against long chains", LARGE_COLUMNS, rows)
    if arguments.picture:
        draw_table(LARGE_COLUMNS, rows, arguments.picture, height=6.0)


@cache
def large_truth(seed):
    """Layout, posterior and exact draws of one trial."""
    positions, network = large_layout(seed)
    start = np.tile(positions.ravel(), (300, 1))
    rng = np.random.default_rng(seed)
    return positions, network, langevin(network, start, rng, n_steps=2000, step=1e-4, adjusted=True)


def large_errors(seed, n_particles):
    """Per method the localisation error and log10 errors of posterior moments."""
    positions, network, truth = large_truth(seed)
    measure = SampleErrors(truth, edges=np.arange(200).reshape(-1, 2))
    found = {}
    rng = np.random.default_rng(1000 * n_particles + seed)
    for name, sample in large_samples(network, positions, rng, n_particles):
        gap = sample.mean(axis=0) - positions.ravel()
        errors = [np.sqrt(np.mean(gap**2)), *np.take(measure(sample), [0, 1, 4])]
        found[name] = [float(error) for error in errors]
    return found


def large_samples(network, positions, rng, n_particles):
    """Every method from what the measurements suggest, and from other starts."""
    guess, near_truth = (
        centre + 0.05 * rng.normal(size=(n_particles, 200))
        for centre in (network.estimate_positions(), positions.ravel())
    )
    uniform = network.draw_start(n_particles, rng)
    yield "graph distances alone", network.estimate_positions()[None]
    runs = {name: (guess, options) for name, options in METHODS.items()}
    if n_particles == max(SIZES):
        runs["default, uniform start"] = (uniform, {})
        runs["default, uniform start, annealing"] = (uniform, {"annealing": 0.6})
        runs["default, near truth"] = (near_truth, {})
    for name, (start, options) in runs.items():
        sampler = GraphicalSVGDSampler(target=network, random_state=0, max_iter=2000, **options)
        yield name, sampler.fit(start).particles_
    yield "Langevin", langevin(network, guess, rng, n_steps=2000, step=2e-5)
    for name, diverse in PEERS.items():
        yield name, particle_max_product(network, guess, rng, diverse=diverse)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["small", "large"])
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--picture", default=None)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    {"small": small, "large": large}[arguments.what](arguments)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
