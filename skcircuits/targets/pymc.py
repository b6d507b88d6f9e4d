"""Targets from PyMC models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray
from skcircuits.targets._target import SiteTarget, import_extra

__all__ = ["from_pymc"]


def from_pymc(model: Any) -> SiteTarget:
    """Make a target of a PyMC model, in unconstrained coordinates.

    Parameters
    ----------
    model : pymc.Model
        The model with its data; its free variables continuous.

    Returns
    -------
    target : object
        With ``grad_log_prob(X)``, ``log_prob_unnormalized(X)``, ``draw_start(n, rng)``,
        ``to_sites(X)``, which gives rows as a dict of constrained values by variable name, and
        ``from_sites(values)``, the way back.

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
    try:
        import pymc  # noqa: F401
    except ImportError as error:
        raise import_extra("pymc", "pymc") from error
    if model.discrete_value_vars:
        raise ValueError(
            must(
                "free variables of a PyMC model",
                "be continuous",
                "Sum discrete ones out, by pymc_extras.marginalize or by hand.",
                discrete=[variable.name for variable in model.discrete_value_vars],
            )
        )
    density = model.logp_dlogp_function(ravel_inputs=True)
    density.set_extra_values({})
    shapes = [np.shape(model.initial_point()[v.name]) for v in model.value_vars]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    names = [variable.name for variable in (*model.free_RVs, *model.deterministics)]
    to_sites = _compile_constrain(model)
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


def _compile_constrain(model: Any) -> Any:
    """Compile values in unconstrained coordinates -> free variables and deterministic ones."""
    outputs = model.replace_rvs_by_values([*model.free_RVs, *model.deterministics])
    return model.compile_fn(outputs, inputs=model.value_vars, point_fn=False)


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
