"""blackjax on our targets, where it is installed."""

import time

import numpy as np

try:
    import blackjax
    import jax
    import jax.numpy as jnp
    import optax
except ImportError:
    blackjax = None

__all__ = ["blackjax_nuts", "blackjax_svgd", "have_blackjax"]


def have_blackjax():
    """Tell whether blackjax is there; say so where it is not."""
    if blackjax is None:
        print("blackjax: peer not installed")
    return blackjax is not None


def blackjax_svgd(field, start, n_steps, step_size=0.05):
    """Run blackjax.svgd (RMSprop, its own median rule) on a Gaussian field.

    Returns
    -------
    particles : ndarray of shape (n_particles, n_coordinates)
    seconds_per_step : float
        Processor time, compilation excluded.
    """
    precision = jnp.asarray(field.precision, dtype=jnp.float32)
    linear = jnp.asarray(field.linear, dtype=jnp.float32)
    svgd = blackjax.svgd(lambda x: linear - precision @ x, optax.rmsprop(step_size))
    state = svgd.init(jnp.asarray(start, dtype=jnp.float32), {"length_scale": 1.0})
    step = jax.jit(svgd.step)
    state = jax.block_until_ready(step(state))
    began = time.process_time()
    for _ in range(n_steps):
        state = step(state)
    jax.block_until_ready(state)
    return np.asarray(state.particles), (time.process_time() - began) / n_steps


def blackjax_nuts(log_density, start, n_draws, seed=0, n_warmup=500):
    """Run one NUTS chain with window adaptation from every row of `start`.

    Returns
    -------
    draws : ndarray of shape (n_chains * n_draws, n_coordinates)
    seconds : float
        Compilation included.
    """
    began = time.perf_counter()
    keys = jax.random.split(jax.random.PRNGKey(seed), len(start))

    def chain(key, position):
        warm_key, key = jax.random.split(key)
        warmup = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, parameters), _ = warmup.run(warm_key, position, num_steps=n_warmup)
        kernel = blackjax.nuts(log_density, **parameters)

        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, n_draws))[1]

    draws = [np.asarray(jax.jit(chain)(key, jnp.asarray(x))) for key, x in zip(keys, start)]
    return np.concatenate(draws), time.perf_counter() - began
