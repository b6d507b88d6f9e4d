"""Targets from numpyro models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray
from skcircuits.targets._target import SiteTarget, import_extra
from skcircuits.targets.jax import from_jax

__all__ = ["from_numpyro"]


def from_numpyro(model: Callable[..., Any], *args: Any, **kwargs: Any) -> SiteTarget:
    """Make a target of a numpyro model, in unconstrained coordinates.

    Parameters
    ----------
    model : callable
        A numpyro model. Discrete latent sites with finitely many values are summed out where
        funsor is installed.
    *args, **kwargs : object
        Its arguments, with the data.

    Returns
    -------
    target : object
        With ``grad_log_prob(X)``, ``log_prob_unnormalized(X)``, ``draw_start(n, rng)``,
        ``to_sites(X)``, which gives rows as a dict of constrained values by site name, and
        ``from_sites(values)``, the way back.

    Raises
    ------
    ImportError
        If numpyro is not installed.
    ValueError
        If discrete latent sites cannot be summed out.

    Examples
    --------
    >>> from skcircuits.targets import from_numpyro
    >>> target = from_numpyro(model, data)  # doctest: +SKIP
    >>> sampler = GraphicalSVGDSampler(target=target).fit(start)  # doctest: +SKIP
    >>> target.to_sites(sampler.particles_)["scale"]  # doctest: +SKIP
    """
    try:
        import jax
        from jax.flatten_util import ravel_pytree
        from numpyro.infer.util import initialize_model, unconstrain_fn
    except ImportError as error:
        raise import_extra("numpyro", "jax") from error

    with jax.enable_x64(True):
        # As arrays of JAX: of NumPy's it caches programs that do not tell the precisions apart,
        # and a run in single precision after this one would fail.
        args, kwargs = jax.tree.map(_as_jax, (args, kwargs))
        if _has_discrete_sites(model, args, kwargs):
            from numpyro.contrib.funsor import config_enumerate

            model = config_enumerate(model)
        information = initialize_model(
            jax.random.PRNGKey(0), model, model_args=args, model_kwargs=kwargs
        )
        flat, unravel = ravel_pytree(information.param_info.z)

    def constrain(X: FloatArray) -> dict[str, Any]:
        with jax.enable_x64(True):
            rows = jax.numpy.asarray(X)
            sites: dict[str, Any] = jax.vmap(lambda x: information.postprocess_fn(unravel(x)))(rows)
            return sites

    def unconstrain(values: Mapping[str, FloatArray]) -> FloatArray:
        with jax.enable_x64(True):
            sites = {
                name: jax.numpy.asarray(values[name], float) for name in information.param_info.z
            }
            flat_rows = jax.vmap(
                lambda row: ravel_pytree(unconstrain_fn(model, args, kwargs, row))[0]
            )
            return np.asarray(flat_rows(sites))

    target = from_jax(lambda x: -information.potential_fn(unravel(x)))
    return SiteTarget(target._log_prob, target._grad_log_prob, flat.size, constrain, unconstrain)


def _as_jax(value: Any) -> Any:
    """Turn NumPy arrays into arrays of JAX."""
    from jax import numpy as jnp

    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


def _has_discrete_sites(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Tell whether there are discrete latent sites; refuse those that numpyro cannot sum out."""
    from jax.random import PRNGKey
    from numpyro import handlers

    trace = handlers.trace(handlers.seed(model, PRNGKey(0))).get_trace(*args, **kwargs)
    discrete = {
        name: site["fn"]
        for name, site in trace.items()
        if site["type"] == "sample" and not site["is_observed"] and site["fn"].support.is_discrete
    }
    endless = [name for name, fn in discrete.items() if not fn.has_enumerate_support]
    if endless:
        way_out = "Sum them out by hand, or bound them."
    elif discrete and find_spec("funsor") is None:
        way_out = "pip install funsor: numpyro sums discrete sites out with it."
    else:
        return bool(discrete)
    raise ValueError(
        must("latent sites", "be continuous", way_out, discrete=endless or sorted(discrete))
    )
