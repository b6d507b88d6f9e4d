"""Figures 4 and 5 of the paper: sensors localised by noisy distances.

``small``: nine sensors and three anchors, one sensor can lie on either side of a line. How
many of 50 particles each method leaves in both modes, and errors of posterior moments.

``large``: a hundred sensors. Localisation error (root mean square per coordinate) of the
particles' mean for 10 to 50 particles, from positions that the measurements alone suggest and
from other starts; errors of posterior moments.

The truth of both is long chains of numpyro's NUTS with dense mass matrices, four from the true
positions (and four from their mirror image: the two have equal mass, as they differ by a
reflection); R-hat and effective sample sizes are kept beside the errors. Peers are Langevin chains,
short chains of NUTS (small) and particle max-product in both published variants. Errors are kept
in ``benchmarks/papers/svgd_sensors.jsonl`` and not computed again.

    python -m benchmarks.svgd_sensors small|large [--trials 3] [--picture out.png]
"""

import argparse
import time
import warnings
from functools import cache, partial
from importlib.util import find_spec

import numpy as np
from _results import record
from _svgd_peers import chain_quality, nuts_chains, particle_max_product
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
ERROR_COLUMNS = ("mean", "second moment", "MMD")  # of posterior moments, log10
SMALL_COLUMNS = ("fraction at truth", "fraction at mirror", "mean log density", *ERROR_COLUMNS)
LARGE_COLUMNS = ("RMSE", *ERROR_COLUMNS)
N_CHAINS, N_WARMUP, N_DRAWS = 4, 2000, 3000  # of the truth


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
    short, _ = nuts_chains(jax_log_density(network), start[:20], 500, 200)
    samples["NUTS"] = short.reshape(-1, short.shape[2])
    return samples


def long_chains(network, positions):
    """NUTS from given positions: chains (n_chains, n_draws, n_coordinates), and their quality."""
    start = np.tile(positions.ravel(), (N_CHAINS, 1))
    draws, n_divergent = nuts_chains(
        jax_log_density(network), start, N_WARMUP, N_DRAWS, dense_mass=True
    )
    return draws, chain_quality(draws, n_divergent)


def shuffled(*chains):
    """All draws in random order, because errors take a part of them as a reference."""
    draws = np.concatenate(chains).reshape(-1, chains[0].shape[2])
    return np.random.default_rng(0).permutation(draws)


def moment_errors(truth):
    """Log10 errors of the posterior mean, second moment and MMD, as a function of a sample."""
    edges = np.arange(truth.shape[1]).reshape(-1, 2)
    measure = SampleErrors(truth, edges=edges)
    return lambda sample: np.take(measure(sample), [0, 1, 4]).tolist()


def small_rows(positions, network, mirror, samples, truth):
    """Per method the fractions in both modes of the ambiguous sensor, and errors."""
    measure, found = moment_errors(truth), {}
    modes = (positions[AMBIGUOUS_SENSOR], mirror)
    for name, sample in {**samples, "long NUTS": truth}.items():
        at = sample.reshape(-1, 9, 2)[:, AMBIGUOUS_SENSOR]
        fractions = [float(np.mean(np.linalg.norm(at - mode, axis=1) < 0.25)) for mode in modes]
        log_density = float(network.log_prob_unnormalized(sample).mean())
        errors = [] if sample is truth else measure(sample)
        found[name] = [*fractions, log_density, *errors]
    return found


def small(arguments):
    positions, network = small_layout()
    mirror = mirror_image(network, positions, AMBIGUOUS_SENSOR)
    mirrored = positions.copy()
    mirrored[AMBIGUOUS_SENSOR] = mirror

    @cache
    def samples():
        return small_samples(network)

    @cache
    def truth():
        return [long_chains(network, start) for start in (positions, mirrored)]

    quality = record("svgd_sensors", "NUTS small", lambda: [own for _, own in truth()])
    found = record(
        "svgd_sensors",
        "small",
        lambda: small_rows(
            positions, network, mirror, samples(), shuffled(*(draws for draws, _ in truth()))
        ),
    )
    for own in quality:
        print(own)
    rows = {name: [values] for name, values in found.items() if len(values) == len(SMALL_COLUMNS)}
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
        quality = record("svgd_sensors", f"NUTS large {seed}", partial(large_quality, seed))
        print(quality)
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
    """Layout, posterior, draws of long chains and their quality in one trial."""
    positions, network = large_layout(seed)
    chains, quality = long_chains(network, positions)
    return positions, network, shuffled(chains), quality


def large_quality(seed):
    """Quality of the long chains, and the error of their mean."""
    positions, _, truth, quality = large_truth(seed)
    return {**quality, "RMSE": position_error(truth, positions)}


def position_error(sample, positions):
    """Root mean squared error of the mean of a sample, per coordinate."""
    return float(np.sqrt(np.mean((sample.mean(axis=0) - positions.ravel()) ** 2)))


def large_errors(seed, n_particles):
    """Per method the localisation error and log10 errors of posterior moments."""
    positions, network, truth, _ = large_truth(seed)
    measure = moment_errors(truth)
    found = {}
    rng = np.random.default_rng(1000 * n_particles + seed)
    for name, sample in large_samples(network, positions, rng, n_particles):
        found[name] = [position_error(sample, positions), *measure(sample)]
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
    if find_spec("numpyro") is None:
        print("not run: pip install 'skcircuits[jax]'")
        return
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    {"small": small, "large": large}[arguments.what](arguments)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
