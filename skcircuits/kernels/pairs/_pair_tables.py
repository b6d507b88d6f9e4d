"""Regions of few discrete states: the values of their units at all states.

Such a region is not paired unit by unit. Both sides list their values at all states, and one
matrix product with the kernel between states does the rest.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Literal

import numpy as np

from skcircuits.circuits.inputs import DiscreteLayer
from skcircuits.circuits.structure.units import Scope
from skcircuits.kernels.families._terms import KernelTerm
from skcircuits.kernels.pairs._circuit_batch import CircuitBatch
from skcircuits.kernels.pairs._pair_mixing import mix_left, mix_right, right_sums, take
from skcircuits.kernels.pairs._pair_regions import BasePairing, Mixing, PairPlan, Region
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["kernel_of_states", "pair_tables", "tabulate", "tabulated_scopes"]

# Up to this many states a table is smaller than the values of most pairs of units.
TABLE_STATES = 16


def tabulated_scopes(pairs: PairPlan, term: KernelTerm) -> set[Scope]:
    """Find the regions that are given by tables of states.

    Parameters
    ----------
    pairs : PairPlan
        The compiled pair of structures.
    term : KernelTerm
        The kernel term; tables serve product kernels.

    Returns
    -------
    set of tuple of int
        Scopes of few discrete states.
    """
    if not term.is_product:
        return set()
    few = (region for region in pairs.regions if region.states)
    # Python's integers: 2^64 joint states are none in those of NumPy
    return {region.scope for region in few if prod(region.states) <= TABLE_STATES}


def kernel_of_states(region: Region, term: KernelTerm) -> FloatArray:
    """Evaluate a product kernel at all pairs of states of a region.

    Parameters
    ----------
    region : Region
        A discrete region.
    term : KernelTerm
        The kernel term.

    Returns
    -------
    ndarray of shape (n_states, n_states)
        Products of the factors, states of the first variable slowest.
    """
    factors = [
        term.factor(variable)(np.arange(size, dtype=float)[:, None], np.arange(size, dtype=float))
        for variable, size in zip(region.scope, region.states, strict=True)
    ]
    return reduce(lambda a, b: np.asarray(np.kron(a, b), dtype=np.float64), factors)


def pair_tables(left: FloatArray, right: FloatArray) -> FloatArray:
    """Pair units given by their values at all states.

    Parameters
    ----------
    left : ndarray of shape (A, P, n_states)
        Values of the left units times the kernel between states.
    right : ndarray of shape (B, n_states, Q)
        Values of the right units.

    Returns
    -------
    ndarray of shape (A, P, B, Q)
        Expected kernels.
    """
    return right_sums(right, left[:, :, None])


def tabulate(
    region: Region,
    batch: CircuitBatch,
    side: Literal["left", "right"],
    matrices: list[FloatArray],
    tables: dict[Scope, FloatArray],
) -> FloatArray:
    """Compute the values of the keys of a region at all its states.

    Parameters
    ----------
    region : Region
        A discrete region.
    batch : CircuitBatch
        The circuits of one side.
    side : {"left", "right"}
        Which side.
    matrices : list of ndarray
        Weights of each level of its sums, as that side has them.
    tables : dict of tuple of int to ndarray
        Tables of all regions below.

    Returns
    -------
    ndarray of shape (batch or 1, n_keys, n_states)
        States of the first variable slowest.
    """
    mixing: Mixing = getattr(region, side)
    bases = _base_tables(region, batch, side, tables)
    if side == "left":
        return mix_left(bases[..., None], mixing, matrices)[..., 0]
    return mix_right(bases.transpose(2, 0, 1), mixing, matrices).transpose(1, 2, 0)


def _base_tables(
    region: Region, batch: CircuitBatch, side: str, tables: dict[Scope, FloatArray]
) -> FloatArray:
    """Values of the bases of a region at all its states, shape (batch or 1, n_bases, n_states)."""
    parts = {}
    for pairing in region.pairings:
        numbers: IntArray = getattr(pairing, side)
        if numbers.tobytes() not in parts:
            tabulate = _input_table if pairing.inputs is not None else _product_table
            parts[numbers.tobytes()] = numbers, tabulate(region, pairing, batch, side, tables)
    if len(parts) == 1:
        return next(iter(parts.values()))[1]
    n_circuits = max(len(table) for _, table in parts.values())
    n_bases = getattr(region, side).n_bases
    result = np.empty((n_circuits, n_bases, prod(region.states)))
    for numbers, table in parts.values():
        result[:, numbers] = table
    return result


def _input_table(
    region: Region,
    pairing: BasePairing,
    batch: CircuitBatch,
    side: str,
    tables: dict[Scope, FloatArray],
) -> FloatArray:
    """Masses of input units; all mass on the state where it is observed."""
    assert pairing.inputs is not None
    number, units = pairing.inputs[:2] if side == "left" else pairing.inputs[2:]
    layer = batch.plan.inputs[number][1]
    assert isinstance(layer, DiscreteLayer)
    states = np.arange(region.states[0])
    masses = np.zeros((1, len(units), len(states)))
    own = layer.masses[units][:, : len(states)]
    masses[0, :, : own.shape[1]] = own
    cells = batch.X[:, region.scope[0]]
    if np.isnan(cells).all():
        return masses
    observed = (cells[:, None] == states)[:, None, :]
    return np.where(np.isnan(cells)[:, None, None], masses, observed)


def _product_table(
    region: Region,
    pairing: BasePairing,
    batch: CircuitBatch,
    side: str,
    tables: dict[Scope, FloatArray],
) -> FloatArray:
    """Outer products of the tables of the factors, states in the order of the variables."""
    variables: list[int] = []
    values = np.ones((1, 1, 1))
    for factor in pairing.factors:
        table = take(tables[factor.scope], getattr(factor, side), 1)
        values = values[..., :, None] * table[..., None, :]
        values = values.reshape(*values.shape[:2], -1)
        variables += factor.scope
    sizes = [region.states[region.scope.index(variable)] for variable in variables]
    apart = values.reshape(*values.shape[:2], *sizes)
    order = [2 + variables.index(variable) for variable in region.scope]
    return apart.transpose(0, 1, *order).reshape(values.shape)
