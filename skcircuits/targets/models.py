"""Targets from models of numpyro, PyMC or Stan, in unconstrained coordinates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from skcircuits.exceptions import invalid, must, needs_extra
from skcircuits.protocols import FloatArray
from skcircuits.targets.functions import SiteTarget, from_jax


def from_numpyro(model: Callable[..., Any], *args: Any, **kwargs: Any) -> SiteTarget:
    """Make a target from a numpyro model, in unconstrained coordinates.

    Parameters
    ----------
    model : callable
        A numpyro model. Discrete latent sites with finitely many values are summed out if funsor is
        installed.
    *args, **kwargs : object
        Arguments of the model, including the data.

    Returns
    -------
    target : object
        With ``grad_log_prob(X)``, ``log_prob_unnormalized(X)``, ``draw_start(n, rng)``,
        ``to_sites(X)``, which converts rows to a dict of constrained values by site name, and
        ``from_sites(values)``, the inverse.

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
    with needs_extra("numpyro", "jax"):
        import jax
        from jax.flatten_util import ravel_pytree
        from numpyro.infer.util import initialize_model, unconstrain_fn

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
            return jax.vmap(lambda x: information.postprocess_fn(unravel(x)))(rows)

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

    # Supports are known only once the model has run; any seed shows them
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
    raise invalid("latent sites", "be continuous", way_out, discrete=endless or sorted(discrete))


def from_pymc(model: Any) -> SiteTarget:
    """Make a target from a PyMC model, in unconstrained coordinates.

    Parameters
    ----------
    model : pymc.Model
        The model with its data, with continuous free variables.

    Returns
    -------
    target : object
        With ``grad_log_prob(X)``, ``log_prob_unnormalized(X)``, ``draw_start(n, rng)``,
        ``to_sites(X)``, which converts rows to a dict of constrained values by variable name, and
        ``from_sites(values)``, the inverse.

    Raises
    ------
    ImportError
        If PyMC is not installed.
    ValueError
        If a free variable is discrete.

    Examples
    --------
    >>> import pymc  # doctest: +SKIP
    >>> with pymc.Model() as model:  # doctest: +SKIP
    ...     scale = pymc.HalfNormal("scale")
    ...     pymc.Normal("y", 0.0, scale, observed=data)
    >>> target = from_pymc(model)  # doctest: +SKIP
    """
    with needs_extra("pymc", "pymc"):
        import pymc  # noqa: F401
    if model.discrete_value_vars:
        raise invalid(
            "free variables of a PyMC model",
            "be continuous",
            "Sum discrete ones out, by pymc_extras.marginalize or by hand.",
            discrete=[variable.name for variable in model.discrete_value_vars],
        )
    density = model.logp_dlogp_function(ravel_inputs=True)
    density.set_extra_values({})
    shapes = [np.shape(model.initial_point()[v.name]) for v in model.value_vars]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    names = [variable.name for variable in (*model.free_RVs, *model.deterministics)]
    outputs = model.replace_rvs_by_values([*model.free_RVs, *model.deterministics])
    to_sites = model.compile_fn(outputs, inputs=model.value_vars, point_fn=False)
    to_values = _compile_unconstrain(model)

    def log_prob(X: FloatArray) -> FloatArray:
        # Compiled functions of PyMC know one point at a time.
        return np.array([density(row.copy())[0] for row in X])

    def grad_log_prob(X: FloatArray) -> FloatArray:
        return np.array([density(row.copy())[1] for row in X])

    def constrain(X: FloatArray) -> dict[str, FloatArray]:
        parts = [np.split(row, ends[:-1]) for row in X]
        values = [to_sites(*(p.reshape(s) for p, s in zip(row, shapes))) for row in parts]
        return {name: np.array(column) for name, column in zip(names, zip(*values))}

    def unconstrain(values: Mapping[str, FloatArray]) -> FloatArray:
        sites = [np.asarray(values[v.name], dtype=np.float64) for v in model.free_RVs]
        rows = [to_values(*row) for row in zip(*sites)]
        return np.array([np.concatenate([np.ravel(part) for part in row]) for row in rows])

    return SiteTarget(log_prob, grad_log_prob, int(ends[-1]), constrain, unconstrain)


def _compile_unconstrain(model: Any) -> Any:
    """Compile free variables -> values in unconstrained coordinates."""
    from pytensor.graph.replace import graph_replace

    sites = [variable.type(name=variable.name) for variable in model.free_RVs]
    outputs = []
    for variable, site in zip(model.free_RVs, sites):
        transform = model.rvs_to_transforms[variable]
        # Transforms may ask for the parents: the bounds of an interval, for example.
        parents = variable.owner.inputs
        outputs.append(site if transform is None else transform.forward(site, *parents))
    replaced = graph_replace(outputs, dict(zip(model.free_RVs, sites)), strict=False)
    return model.compile_fn(replaced, inputs=sites, point_fn=False)


def from_bridgestan(model: Any) -> SiteTarget:
    """Make a target from a compiled Stan model, in unconstrained coordinates.

    Parameters
    ----------
    model : bridgestan.StanModel
        The model with its data.

    Returns
    -------
    target : object
        With ``grad_log_prob(X)``, ``log_prob_unnormalized(X)``, ``draw_start(n, rng)``,
        ``to_sites(X)``, which converts rows to a dict of constrained values by parameter name, and
        ``from_sites(values)``, the inverse.

    Raises
    ------
    TypeError
        If the model is not a ``bridgestan.StanModel``.

    Examples
    --------
    >>> import bridgestan  # doctest: +SKIP
    >>> model = bridgestan.StanModel("model.stan", data="data.json")  # doctest: +SKIP
    >>> target = from_bridgestan(model)  # doctest: +SKIP
    """
    wanted = ("log_density_gradient", "param_constrain", "param_unconstrain", "param_unc_num")
    if not all(hasattr(model, name) for name in wanted):
        raise TypeError(must("model", "be a bridgestan.StanModel", kind=type(model).__name__))
    layout = _Layout(model.param_names())

    def log_prob(X: FloatArray) -> FloatArray:
        # Stan knows one point at a time.
        return np.array([model.log_density(np.ascontiguousarray(x)) for x in X])

    def grad_log_prob(X: FloatArray) -> FloatArray:
        return np.array([model.log_density_gradient(np.ascontiguousarray(x))[1] for x in X])

    def constrain(X: FloatArray) -> dict[str, FloatArray]:
        return layout.split(np.array([model.param_constrain(row.copy()) for row in X]))

    def unconstrain(values: Mapping[str, FloatArray]) -> FloatArray:
        return np.array([model.param_unconstrain(row) for row in layout.join(values)])

    return SiteTarget(log_prob, grad_log_prob, int(model.param_unc_num()), constrain, unconstrain)


class _Layout:
    """Where Stan's numbers ``theta.1.2`` belong: counted from one, the first index fastest."""

    def __init__(self, names: list[str]) -> None:
        self._places: dict[str, list[int]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for place, full in enumerate(names):
            words = full.split(".")
            name = ".".join(word for word in words if not word.isdigit())
            self._places.setdefault(name, []).append(place)
            # The last one named has the largest indices.
            self._shapes[name] = tuple(int(word) for word in words if word.isdigit())
        self._size = len(names)

    def split(self, rows: FloatArray) -> dict[str, FloatArray]:
        """Give flat rows as arrays by name."""
        return {
            name: _reversed_axes(rows[:, places].reshape(len(rows), *self._shapes[name][::-1]))
            for name, places in self._places.items()
        }

    def join(self, values: Mapping[str, FloatArray]) -> FloatArray:
        """Give arrays by name as flat rows."""
        arrays = {name: np.asarray(values[name], dtype=np.float64) for name in self._places}
        n_rows = len(next(iter(arrays.values())))
        rows = np.empty((n_rows, self._size))
        for name, places in self._places.items():
            # Stan counts cells by columns, NumPy by rows
            rows[:, places] = _reversed_axes(arrays[name]).reshape(n_rows, -1)
        return rows


def _reversed_axes(values: FloatArray) -> FloatArray:
    """Reverse all axes but the first."""
    return values.transpose(0, *range(values.ndim - 1, 0, -1))
