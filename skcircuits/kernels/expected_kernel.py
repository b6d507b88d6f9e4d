"""The expected kernel of two circuits, and the distance of distributions made from it."""

from __future__ import annotations

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.structure.compatibility import are_compatible, require_compatible
from skcircuits.exceptions import CircuitPropertyError, IncompatibleCircuitsError, require
from skcircuits.kernels.families.base import Kernel, structure_of
from skcircuits.kernels.pairs._evaluation import expected_kernels, require_closed_forms
from skcircuits.kernels.pairs._plan import compile_pairs, split_kernel
from skcircuits.kernels.pairs._sides import CircuitBatch
from skcircuits.parallel import Parallel, delayed

__all__ = ["expected_kernel", "is_kernel_compatible", "mmd2"]


def expected_kernel(p: Circuit, q: Circuit, kernel: Kernel) -> float:
    """M_k(p, q) = E[k(X, Y)] for independent X ~ p and Y ~ q, exactly.

    Parameters
    ----------
    p, q : Circuit
        Compatible circuits over the same variables; unnormalised ones give the integral.
    kernel : Kernel
        The kernel.

    Returns
    -------
    float
        The expected kernel.

    Raises
    ------
    IncompatibleCircuitsError
        If the circuits do not decompose their variables alike; the message names two
        products that do not fit.
    CircuitPropertyError
        If a pair of input units has no closed-form expectation of the kernel.

    Notes
    -----
    Li, Zeng, Vergari, Van den Broeck, "Tractable Computation of Expected Kernels", UAI 2021,
    Theorem 4.3 and Algorithm 1: one pass over pairs of units with the same scope and the parts
    of the kernel there. The cost is the product of the sizes of p, of q and of the kernel.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.kernels import Delta, expected_kernel
    >>> round(expected_kernel(Circuit(Bernoulli(0, 0.5)), Circuit(Bernoulli(0, 0.2)), Delta()), 12)
    0.5
    """
    require("root", "a circuit", p=p, q=q)
    structure = structure_of(kernel, p.variables)
    require_compatible(p, q)
    pairs = compile_pairs(p.plan, q.plan, structure.variable_order)
    parts = split_kernel(pairs, structure)
    return float(expected_kernels(pairs, parts, _single(p.plan), _single(q.plan))[0, 0])


def mmd2(p: Circuit, q: Circuit, kernel: Kernel, *, n_jobs: int | None = None) -> float:
    """Squared maximum mean discrepancy M(p, p) - 2 M(p, q) + M(q, q), exactly.

    Parameters
    ----------
    p, q : Circuit
        Compatible circuits over the same variables, each compatible with itself.
    kernel : Kernel
        The kernel.
    n_jobs : int, default=None
        Number of parallel jobs (see joblib). The result does not depend on it.

    Returns
    -------
    float
        Zero for equal distributions; rounding errors below zero are cut off for kernels
        that are certified to be positive definite.

    Raises
    ------
    IncompatibleCircuitsError
        If the circuits do not decompose their variables alike.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.kernels import Delta, mmd2
    >>> round(mmd2(Circuit(Bernoulli(0, 0.5)), Circuit(Bernoulli(0, 0.2)), Delta()), 12)
    0.18
    """
    require("root", "a circuit", p=p, q=q)
    own, across, other = Parallel(n_jobs=n_jobs)(
        delayed(expected_kernel)(*pair, kernel) for pair in ((p, p), (p, q), (q, q))
    )
    value: float = own - 2.0 * across + other
    return max(value, 0.0) if kernel.is_positive_definite() else value


def is_kernel_compatible(kernel: Kernel, p: Circuit, q: Circuit) -> bool:
    """Tell whether the expected kernel of two circuits can be computed exactly.

    Decided from the structure, without computing it: the circuits must be compatible, the kernel
    must not fall into too many terms where they split their variables, and every pair of input
    units must have a closed form.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    p, q : Circuit
        The circuits.

    Returns
    -------
    bool
        True if ``expected_kernel(p, q, kernel)`` works.

    Examples
    --------
    >>> from skcircuits.circuits import Circuit, Gaussian
    >>> from skcircuits.kernels import RBF, Hamming, is_kernel_compatible
    >>> p = Circuit(Gaussian(0, 0.0, 1.0))
    >>> is_kernel_compatible(RBF(), p, p), is_kernel_compatible(Hamming(), p, p)
    (True, False)
    """
    require("root", "a circuit", p=p, q=q)
    if not are_compatible(p, q):
        return False
    structure = structure_of(kernel, p.variables)
    try:
        pairs = compile_pairs(p.plan, q.plan, structure.variable_order)
        require_closed_forms(pairs, split_kernel(pairs, structure))
    except (CircuitPropertyError, IncompatibleCircuitsError):
        return False
    return True


def _single(plan: Plan) -> CircuitBatch:
    """One circuit without evidence."""
    return CircuitBatch(plan, plan.weights, np.full((1, plan.n_columns), np.nan))
