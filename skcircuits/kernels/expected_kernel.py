"""The expected kernel of two circuits, and the distance of distributions made from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.structure.compatibility import are_compatible, require_compatible
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.kernels.families._terms import KernelTerm
from skcircuits.kernels.families.base import Kernel
from skcircuits.kernels.pairs._circuit_batch import CircuitBatch
from skcircuits.kernels.pairs._pair_pass import expected_term_of_pairs
from skcircuits.kernels.pairs._pair_plan import compile_pairs

__all__ = ["check_kernel", "expected_kernel", "is_kernel_compatible", "mmd2"]


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
    Theorem 3.4: one pass over pairs of units with the same scope.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.kernels import Delta, expected_kernel
    >>> round(expected_kernel(Circuit(Bernoulli(0, 0.5)), Circuit(Bernoulli(0, 0.2)), Delta()), 12)
    0.5
    """
    terms = check_kernel(kernel, p.variables)
    require_compatible(p, q)
    pairs = compile_pairs(p.plan, q.plan)
    left, right = _single(p.plan), _single(q.plan)
    return float(sum(expected_term_of_pairs(pairs, term, left, right)[0, 0] for term in terms))


def mmd2(p: Circuit, q: Circuit, kernel: Kernel) -> float:
    """Squared maximum mean discrepancy M(p, p) - 2 M(p, q) + M(q, q), exactly.

    Parameters
    ----------
    p, q : Circuit
        Compatible circuits over the same variables, each compatible with itself.
    kernel : Kernel
        The kernel.

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
    value = (
        expected_kernel(p, p, kernel)
        - 2.0 * expected_kernel(p, q, kernel)
        + expected_kernel(q, q, kernel)
    )
    return max(value, 0.0) if kernel.is_positive_definite() else value


def is_kernel_compatible(kernel: Kernel, p: Circuit, q: Circuit) -> bool:
    """Tell whether the expected kernel of two circuits can be computed exactly.

    All kernels of this package split along any partition of the variables, so what counts
    is that the circuits are compatible and that every pair of input units has a closed form.

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
    if not are_compatible(p, q):
        return False
    try:
        expected_kernel(p, q, kernel)
    except CircuitPropertyError:
        return False
    return True


def check_kernel(kernel: Kernel, variables: Sequence[int]) -> list[KernelTerm]:
    """Check that a kernel looks only at known variables; gives its terms.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    variables : sequence of int
        Variables of the circuit or table.

    Returns
    -------
    list of KernelTerm
        Terms of the kernel over the variables.

    Raises
    ------
    ValueError
        If the kernel looks at other variables.
    TypeError
        If it is no kernel of this package.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(
            must(
                "kernel",
                "be a kernel object of skcircuits.kernels",
                "Use for example RBF(gamma=0.5).",
                kernel=kernel,
            )
        )
    terms = kernel.terms(variables)
    _refuse_unknown(terms, variables)
    return terms


def _refuse_unknown(terms: list[KernelTerm], variables: Sequence[int]) -> None:
    """Refuse kernels over variables the circuit does not have."""
    looked_at = {variable for term in terms for variable in term.factors}
    looked_at |= {v for term in terms for power in term.power_sums for v in power.variables}
    unknown = looked_at - set(variables)
    if unknown:
        raise ValueError(
            must(
                "variables of a kernel",
                f"belong to the circuit, which has {list(variables)}",
                variables=sorted(unknown),
            )
        )


def _single(plan: Plan) -> CircuitBatch:
    """One circuit without evidence."""
    return CircuitBatch(plan, plan.weights, np.full((1, plan.n_columns), np.nan))
