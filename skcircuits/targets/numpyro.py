"""Targets from numpyro models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.protocols import FloatArray
from skcircuits.targets._target import FunctionTarget, import_extra
from skcircuits.targets.jax import from_jax

__all__ = ["from_numpyro"]


class NumpyroTarget(FunctionTarget):
    """The posterior of a model in unconstrained coordinates, and the way back to its sites."""

    def __init__(
        self, target: FunctionTarget, n_coordinates: int, constrain: Callable[[Any], dict[str, Any]]
    ) -> None:
        super().__init__(target._log_prob, target._grad_log_prob)
        self.n_coordinates = n_coordinates
        self._constrain = constrain

    def draw_start(self, n_particles: int, rng: np.random.Generator) -> FloatArray:
        """Draw starting particles as numpyro does, from U(-2, 2)."""
        return rng.uniform(-2.0, 2.0, (n_particles, self.n_coordinates))

    def to_sites(self, X: ArrayLike) -> dict[str, FloatArray]:
        """Give rows as constrained values by site name, each of shape (n, ...)."""
        return {name: np.asarray(values) for name, values in self._constrain(X).items()}


def from_numpyro(model: Callable[..., Any], *args: Any, **kwargs: Any) -> NumpyroTarget:
    """Make a target of a numpyro model, in unconstrained coordinates.

    Parameters
    ----------
    model : callable
        A numpyro model, its latent sites continuous.
    *args, **kwargs : object
        Its arguments, with the data.

    Returns
    -------
    target : object
        With ``grad_log_prob(X)``, ``log_prob_unnormalized(X)``, ``draw_start(n, rng)`` and
        ``to_sites(X)``, which gives rows as a dict of constrained values by site name.

    Raises
    ------
    ImportError
        If numpyro is not installed.

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
        from numpyro.infer.util import initialize_model
    except ImportError as error:
        raise import_extra("numpyro", "jax") from error

    with jax.enable_x64(True):
        # Discrete latent sites are refused here, by numpyro's own error.
        information = initialize_model(
            jax.random.PRNGKey(0), model, model_args=args, model_kwargs=kwargs
        )
        flat, unravel = ravel_pytree(information.param_info.z)

    def constrain(X: ArrayLike) -> dict[str, Any]:
        with jax.enable_x64(True):
            rows = jax.numpy.asarray(np.asarray(X, dtype=np.float64))
            sites: dict[str, Any] = jax.vmap(lambda x: information.postprocess_fn(unravel(x)))(rows)
            return sites

    target = from_jax(lambda x: -information.potential_fn(unravel(x)))
    return NumpyroTarget(target, flat.size, constrain)
