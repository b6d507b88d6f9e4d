"""Peers of graphical SVGD: its twin in blackjax, NUTS of numpyro, and particle max-product."""

import time

import numpy as np

try:
    import blackjax
    import jax
    import jax.numpy as jnp
    import optax
except ImportError:
    blackjax = None

__all__ = [
    "blackjax_svgd",
    "chain_quality",
    "have_blackjax",
    "nuts_chains",
    "nuts_sampler",
    "particle_max_product",
    "score_of_field",
]

_NEIGHBOR_SHARE = 0.75  # of the proposals; the others are random walks of that variance
_RANDOM_WALK_VARIANCE = 0.05
_ROUNDS, _DAMPING = 10, 0.5  # of messages on a graph with loops


def have_blackjax():
    """Tell whether blackjax is there; say so where it is not."""
    if blackjax is None:
        print("blackjax: peer not installed")
    return blackjax is not None


def blackjax_svgd(score, start, n_steps, step_size=0.05):
    """Run blackjax.svgd (RMSprop, its own median rule).

    ``score``: gradient of the log density at one point, in JAX.

    Returns
    -------
    particles : ndarray of shape (n_particles, n_coordinates)
    seconds_per_step : float
        Processor time, compilation excluded.
    """
    svgd = blackjax.svgd(score, optax.rmsprop(step_size))
    state = svgd.init(jnp.asarray(start), {"length_scale": 1.0})
    step = jax.jit(svgd.step)
    state = jax.block_until_ready(step(state))
    began = time.process_time()
    for _ in range(n_steps):
        state = step(state)
    jax.block_until_ready(state)
    return np.asarray(state.particles), (time.process_time() - began) / n_steps


def score_of_field(field):
    """Give the gradient of the log density of a Gaussian field, single precision."""
    precision = jnp.asarray(field.precision, dtype=jnp.float32)
    linear = jnp.asarray(field.linear, dtype=jnp.float32)
    return lambda x: linear - precision @ x


def nuts_sampler(log_density, n_warmup, n_draws, n_chains=1, **kernel):
    """Make a run of numpyro's NUTS for a log density in JAX; chains move in one vector."""
    from numpyro.infer import MCMC, NUTS

    return MCMC(
        NUTS(potential_fn=lambda x: -log_density(x), **kernel),
        num_warmup=n_warmup,
        num_samples=n_draws,
        num_chains=n_chains,
        chain_method="vectorized",
        progress_bar=False,
    )


def nuts_chains(log_density, start, n_warmup, n_draws, seed=0, **kernel):
    """Run one NUTS chain from every row of `start`, in double precision.

    Returns
    -------
    draws : ndarray of shape (n_chains, n_draws, n_coordinates)
    n_divergent : int
    """
    import jax
    import numpyro

    numpyro.enable_x64()
    sampler = nuts_sampler(log_density, n_warmup, n_draws, len(start), **kernel)
    sampler.run(jax.random.PRNGKey(seed), init_params=start, extra_fields=("diverging",))
    draws = np.asarray(sampler.get_samples(group_by_chain=True))
    return draws, int(sampler.get_extra_fields()["diverging"].sum())


def chain_quality(draws, n_divergent):
    """Largest split R-hat and effective sample sizes of chains (n_chains, n_draws, n)."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    sizes = effective_sample_size(draws)
    return {
        "chains": len(draws),
        "draws": draws.shape[1],
        "R-hat": float(split_gelman_rubin(draws).max()),
        "smallest ESS": float(sizes.min()),
        "median ESS": float(np.median(sizes)),
        "divergent": n_divergent,
    }


def particle_max_product(network, start, rng, *, diverse, n_steps=30):
    """Run particle max-product on a sensor network, from a cloud of starts.

    Every step adds as many proposals as there are particles, passes max-product messages
    between all of them and keeps half: the largest max-marginals (T-PMP; Besse et al. 2014), or
    those that keep the messages as they are (D-PMP; Pacheco and Sudderth 2015). Of the proposals
    three quarters lie on circles around neighbours and a quarter around the particles, as there.

    Returns
    -------
    ndarray of shape (n_particles, 2 * n_sensors)
        Per sensor its particles by falling max-marginal: the first row is the mode.
    """
    x = start.reshape(len(start), -1, 2).transpose(1, 0, 2).copy()
    select = _keep_messages if diverse else _keep_largest
    for _ in range(n_steps):
        x = np.concatenate([x, _proposals(network, x, rng)], axis=1)
        graph = _MaxProduct(network, x)
        kept = select(graph, len(start))
        x = np.take_along_axis(x, kept[:, :, None], axis=1)
    return x.transpose(1, 0, 2).reshape(len(start), -1)


def _proposals(network, x, rng):
    """As many new positions (n_sensors, n_particles, 2) as there are particles."""
    n_sensors, n_particles, _ = x.shape
    fixed = np.broadcast_to(network.anchors[:, None], (len(network.anchors), n_particles, 2))
    nodes = np.concatenate([x, fixed])
    ends = np.concatenate([network.pairs, network.pairs[:, ::-1]])
    lengths = np.tile(network.distances, 2)
    proposed = x + np.sqrt(_RANDOM_WALK_VARIANCE) * rng.normal(size=x.shape)
    for sensor in range(n_sensors):
        measured = np.flatnonzero(ends[:, 0] == sensor)
        if len(measured):
            n_around = round(_NEIGHBOR_SHARE * n_particles)
            chosen = rng.choice(measured, n_around)
            centres = nodes[ends[chosen, 1], rng.integers(n_particles, size=n_around)]
            radius = lengths[chosen] + network.noise * rng.normal(size=n_around)
            angle = rng.uniform(0, 2 * np.pi, n_around)
            around = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
            proposed[sensor, :n_around] = centres + around
    return proposed


class _MaxProduct:
    """Max-product messages between particles (n_sensors, n_particles, 2), in logarithms.

    `messages` (n_directed, n_particles): from `sources` to `targets`; `largest` (n_sensors,
    n_particles): log max-marginals; pair (e, e + n_pairs) are the two directions of a distance.
    """

    def __init__(self, network, x):
        n_sensors = network.n_sensors
        inner = np.all(network.pairs < n_sensors, axis=1)
        first, second = network.pairs[inner].T
        gaps = x[first][:, :, None] - x[second][:, None]
        between = self._misfit(network, gaps, network.distances[inner, None, None])
        self.between = np.concatenate([between, between.transpose(0, 2, 1)]).astype(np.float32)
        self.sources, self.targets = np.concatenate([[first, second], [second, first]], axis=1)
        single = self._own(network, x, inner)
        n_pairs = len(first)
        self.messages = np.zeros((2 * n_pairs, x.shape[1]), np.float32)
        for _ in range(_ROUNDS):
            self._collect(single, n_pairs)
            new = (self.between + self.without[:, :, None]).max(axis=1)
            new -= new.max(axis=1, keepdims=True)
            self.messages += (1 - _DAMPING) * (new - self.messages)
        self._collect(single, n_pairs)

    def _collect(self, single, n_pairs):
        """Max-marginals, and what a source knows without its target."""
        self.largest = single.copy()
        np.add.at(self.largest, self.targets, self.messages)
        self.without = self.largest[self.sources] - np.roll(self.messages, n_pairs, axis=0)

    @staticmethod
    def _misfit(network, gaps, distances):
        return -0.5 * ((np.linalg.norm(gaps, axis=-1) - distances) / network.noise) ** 2

    def _own(self, network, x, inner):
        """Distances to anchors and the box: (n_sensors, n_particles)."""
        outside = (x - np.clip(x, *network.box)) / network.noise
        single = -0.5 * np.sum(outside**2, axis=-1)
        sensor, anchor = np.sort(network.pairs[~inner], axis=1).T
        gaps = x[sensor] - network.anchors[anchor - network.n_sensors][:, None]
        np.add.at(single, sensor, self._misfit(network, gaps, network.distances[~inner, None]))
        return single.astype(np.float32)


def _keep_largest(graph, n_kept):
    """Indices (n_sensors, n_kept) of the largest max-marginals."""
    return np.argsort(-graph.largest, axis=1, kind="stable")[:, :n_kept]


def _keep_messages(graph, n_kept):
    """Indices (n_sensors, n_kept), chosen greedily so that sent messages lose least (L1)."""
    order = _keep_largest(graph, graph.largest.shape[1])
    kept = np.empty((len(order), n_kept), dtype=np.int64)
    for sensor, ranked in enumerate(order):
        sent = np.flatnonzero(graph.sources == sensor)
        terms = graph.between[sent] + graph.without[sent, :, None]
        terms = np.exp(terms - terms.max(axis=(1, 2), keepdims=True))
        # (n_particles, n_messages * n_particles): what each particle offers each message
        terms = terms.transpose(1, 0, 2).reshape(len(ranked), -1)
        chosen, free = [ranked[0]], np.ones(len(ranked), dtype=bool)
        while len(chosen) < n_kept:
            free[chosen[-1]] = False
            terms = np.maximum(terms, terms[chosen[-1]])
            gains = terms[ranked].sum(axis=1)  # equal gains: by max-marginal
            chosen.append(ranked[np.argmax(np.where(free[ranked], gains, -1.0))])
        kept[sensor] = np.sort(np.argsort(ranked)[chosen])
        kept[sensor] = ranked[kept[sensor]]
    return kept
