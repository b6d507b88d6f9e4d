"""Figures 4 and 5 of the paper: sensors localised by noisy distances.

``small``: nine sensors and three anchors, one sensor can lie on either side of a line. How
many particles each method leaves in both modes, and a picture beside long Langevin chains
(and NUTS where blackjax is installed).

``large``: a hundred sensors. Localisation error (root mean square per coordinate) of the
particles' mean, from different starts; errors of posterior moments against long adjusted
Langevin chains started at the true positions.

    python benchmarks/svgd_sensors.py small|large [--trials 3] [--picture out.png]
"""

import argparse
import time
import warnings

import numpy as np
from _svgd_peers import blackjax_nuts, have_blackjax
from _svgd_targets import SampleErrors, langevin, print_table

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

# The published method.
PURE = {"linear_weight": 0.0, "preconditioner": None}


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


def small(arguments):
    positions, network = small_layout()
    mirror = mirror_image(network, positions, AMBIGUOUS_SENSOR)
    samples = {}
    for name, options in {
        "graphical SVGD": {},
        "graphical SVGD, pure": PURE,
        "vanilla SVGD": {"kernel": "global", **PURE},
    }.items():
        # Without annealing the cloud moves into one mode before it can split.
        sampler = GraphicalSVGDSampler(
            target=network, annealing=0.5, random_state=0, **options
        ).fit()
        samples[name] = sampler.particles_
    rng = np.random.default_rng(1)
    start = network.draw_start(400, rng)
    samples["long Langevin"] = langevin(
        network, start, rng, n_steps=10_000, step=1e-4, adjusted=True
    )
    if have_blackjax():
        samples["NUTS"], seconds = blackjax_nuts(jax_log_density(network), start[:20], 200)
        print(f"NUTS: 20 chains of 200 draws in {seconds:.0f} s")
    rows = {}
    for name, sample in samples.items():
        at = sample.reshape(-1, 9, 2)[:, AMBIGUOUS_SENSOR]
        shares = [
            np.mean(np.linalg.norm(at - mode, axis=1) < 0.25)
            for mode in (positions[AMBIGUOUS_SENSOR], mirror)
        ]
        rows[name] = [[*shares, network.log_prob_unnormalized(sample).mean()]]
    columns = ("share at truth", "share at mirror", "mean log density")
    print_table("nine sensors, one of them ambiguous", columns, rows)
    if arguments.picture:
        draw_clouds(samples, positions, mirror, arguments.picture)


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
    errors, moments = {}, {}
    for seed in range(arguments.trials):
        positions, network = large_layout(seed)
        rng = np.random.default_rng(seed)
        truth = np.tile(positions.ravel(), (300, 1))
        truth = langevin(network, truth, rng, n_steps=2000, step=1e-4, adjusted=True)
        measure = SampleErrors(truth, edges=np.arange(200).reshape(-1, 2))
        for name, sample in large_samples(network, positions, rng).items():
            gap = sample.mean(axis=0) - positions.ravel()
            errors.setdefault(name, []).append([np.sqrt(np.mean(gap**2))])
            moments.setdefault(name, []).append(np.take(measure(sample), [0, 1, 4]))
    print_table("100 sensors, localisation error", ("RMSE",), errors)
    columns = ("mean", "second moment", "MMD")
    print_table("100 sensors, posterior against long chains (log10)", columns, moments)
    if arguments.picture:
        draw_bars(errors, moments, columns, arguments.picture)


def large_samples(network, positions, rng, n_particles=50):
    """Give the particles of every method and start."""
    near_guess, near_truth = (
        centre + 0.05 * rng.normal(size=(n_particles, 200))
        for centre in (network.estimate_positions(), positions.ravel())
    )
    runs = {
        "uniform start": (network.draw_start(n_particles, rng), {}),
        "uniform start, annealing .6": (network.draw_start(n_particles, rng), {"annealing": 0.6}),
        "graph distances, default": (near_guess, {}),
        "graph distances, pure": (near_guess, PURE),
        "graph distances, vanilla": (
            near_guess,
            {"kernel": "global", **PURE},
        ),
        "near truth, default": (near_truth, {}),
        "near truth, pure": (near_truth, PURE),
        "near truth, vanilla": (
            near_truth,
            {"kernel": "global", **PURE},
        ),
    }
    samples = {"graph distances alone": network.estimate_positions()[None]}
    for name, (start, options) in runs.items():
        sampler = GraphicalSVGDSampler(target=network, random_state=0, max_iter=2000, **options)
        samples[name] = sampler.fit(start).particles_
    samples["near truth, Langevin"] = langevin(network, near_truth, rng, n_steps=2000, step=2e-5)
    return samples


def draw_bars(errors, moments, columns, picture):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(14, 3.4), sharey=True, layout="constrained")
    names = list(errors)
    axes[0].barh(names, [np.mean(errors[name]) for name in names])
    axes[0].set(xlabel="localisation error (RMSE per coordinate)")
    for j, (ax, column) in enumerate(zip(axes[1:], columns)):
        ax.barh(names, [np.mean(moments[name], axis=0)[j] for name in names])
        ax.set(xlabel=f"log10 error of {column}")
    figure.savefig(picture, dpi=120)


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
