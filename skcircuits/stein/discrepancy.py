"""Squared Stein discrepancies: of weighted samples, and exactly between circuits."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.circuits import (
    Circuit,
    Product,
    Sum,
    cyclic_shift,
    divide,
    is_deterministic,
    multiply,
)
from skcircuits.circuits.inputs.discrete import DiscreteUnit
from skcircuits.circuits.structure.units import topological_order
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.kernels import expected_kernel
from skcircuits.kernels.families.base import Kernel
from skcircuits.numerics._arrays import float_array
from skcircuits.parallel import Parallel, delayed
from skcircuits.stein.gram import collapse_cells, distinct_gram


def kdsd(q: Circuit, p: Circuit, kernel: Kernel, *, n_jobs: int | None = None) -> float:
    """Compute the kernelized discrete Stein discrepancy of two circuits exactly.

    With ``u_i = q r_i - q∘¬_i`` and ``r_i = (p∘¬_i) / p``, where ¬_i moves variable i to
    its next state, it is ``sum_i <u_i, K u_i>``: the expectation of the Stein kernel of the
    published difference operator under two independent draws of q (Li et al. 2021,
    Corollary 4.7).

    Parameters
    ----------
    q : Circuit
        The distribution that is compared.
    p : Circuit
        The target: categorical, deterministic and positive everywhere, compatible with q
        and with itself.
    kernel : Kernel
        The base kernel.
    n_jobs : int, default=None
        Workers over the variables; the result is the same for any.

    Returns
    -------
    float
        The squared discrepancy, zero where q equals p.

    Raises
    ------
    CircuitPropertyError
        Where p is not deterministic, has zeros, lacks states of q, or does not fit to q.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.kernels import Delta
    >>> from skcircuits.stein import kdsd
    >>> fair, loaded = Circuit(Bernoulli(0, 0.5)), Circuit(Bernoulli(0, 0.8))
    >>> round(kdsd(fair, fair, Delta()), 9), round(kdsd(loaded, fair, Delta()), 9)
    (0.0, 0.72)
    """
    for circuit in (q, p):
        if not isinstance(circuit, Circuit):
            raise TypeError(
                must(
                    "q and p of kdsd",
                    "be circuits",
                    "Graphical models have compile().",
                    kind=type(circuit).__name__,
                )
            )
    # Each term is <u, K u> for u = forward - moved, by bilinearity of M_k.
    _check_positive(p)
    _check_states(q, p)
    terms = Parallel(n_jobs=n_jobs)(
        delayed(_moved_term)(q, p, kernel, variable) for variable in p.variables
    )
    # What cancels where q is near p leaves rounding, also below zero.
    return max(0.0, sum(terms))


def _moved_term(q: Circuit, p: Circuit, kernel: Kernel, variable: int) -> float:
    """``<u_i, K u_i>`` of one variable."""
    forward = multiply(q, divide(cyclic_shift(p, variable), p))
    # Around the cycle of p, of which q may know a part
    moved = cyclic_shift(q, variable, n_states=p.cardinalities[variable])
    return (
        expected_kernel(forward, forward, kernel)
        - 2.0 * expected_kernel(forward, moved, kernel)
        + expected_kernel(moved, moved, kernel)
    )


def _check_positive(p: Circuit) -> None:
    """Compare the size of the support with the number of states."""
    if len(p.cardinalities) < len(p.variables):
        raise CircuitPropertyError(
            must("target of kdsd", "be over categorical variables", variables=p.variables)
        )
    n_states = prod(p.cardinalities.values())
    # Others are refused when they are divided
    if is_deterministic(p) and _support_size(p) < n_states:
        raise CircuitPropertyError(
            must(
                "target of kdsd",
                "be positive everywhere",
                "The ratios p(¬x) / p(x) are not defined otherwise: smooth its parameters.",
                n_states=n_states,
            )
        )


def _support_size(p: Circuit) -> int:
    """Number of possible states of a deterministic circuit, exact however many there are."""
    sizes: dict[int, int] = {}
    for unit in topological_order(p.root):
        below = [sizes[id(child)] for child in unit.children]
        if isinstance(unit, Sum):
            sizes[id(unit)] = sum(n for n, w in zip(below, unit.weights, strict=True) if w > 0)
        elif isinstance(unit, Product):
            sizes[id(unit)] = prod(below)
        else:
            assert isinstance(unit, DiscreteUnit)
            sizes[id(unit)] = int(np.count_nonzero(unit.probabilities))
    return sizes[id(p.root)]


def _check_states(q: Circuit, p: Circuit) -> None:
    """The ratios of p are defined for its own states only."""
    wider = [v for v, k in q.cardinalities.items() if k > p.cardinalities.get(v, k)]
    if wider:
        raise CircuitPropertyError(
            must(
                "q of kdsd",
                "have no more states than its target",
                "Give the target a positive probability of each of them.",
                variables=wider,
            )
        )


def stein_discrepancy(
    X: ArrayLike,
    target: Any,
    kernel: Any,
    weights: ArrayLike | None = None,
    *,
    operator: str | None = None,
    collapse: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> float:
    """Compute the squared Stein discrepancy of weighted samples.

    It is the V-statistic ``sum_ij w_i w_j k_p(x_i, x_j)``: zero in expectation under the
    target only, and never negative.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Samples; NaN where collapsed.
    target : object
        The target.
    kernel : kernel object
        The base kernel.
    weights : array-like of shape (n,), default=None
        Weights of the samples; equal by default.
    operator : {"barker", "difference", "langevin"}, default=None
        The Stein operator; by default "barker" or "langevin", by the kind of target.
    collapse : array-like, default=None
        Variables that are summed out, as in :func:`stein_gram`.
    n_jobs : int, default=None
        Workers for blocks of the Gram matrix; the result is the same for any.

    Returns
    -------
    float
        The squared discrepancy.

    Examples
    --------
    >>> from skcircuits.graphical import IsingModel
    >>> from skcircuits.kernels import Hamming
    >>> from skcircuits.stein import stein_discrepancy
    >>> model = IsingModel.grid(1, 2, couplings=0.5)
    >>> samples = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> round(stein_discrepancy(samples, model, Hamming(scale=2.0)), 3)
    0.017
    >>> p = [0.3656, 0.1344, 0.1344, 0.3656]
    >>> round(stein_discrepancy(samples, model, Hamming(scale=2.0), p), 3)
    0.0
    """
    rows = collapse_cells(X, collapse)
    if not len(rows):
        raise ValueError(must("X", "have at least one row", shape=rows.shape))
    w = np.full(len(rows), 1 / len(rows)) if weights is None else float_array(weights, "weights")
    if w.shape != (len(rows),) or not np.isfinite(w).all():
        raise ValueError(must("weights", f"be {len(rows)} finite numbers", shape=w.shape))
    K, which = distinct_gram(rows, target, kernel, operator=operator, n_jobs=n_jobs)
    # Rows that are equal act as one with the sum of their weights.
    totals = np.bincount(which, weights=w, minlength=len(K))
    return max(0.0, float(totals @ K @ totals))
