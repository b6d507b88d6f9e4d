"""Expected kernels of rows with holes against complete points: one feedforward pass.

The probability of the observed cells is pushed into the sum weights, so every value of the
pass is an expectation under a normalised conditional distribution.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from skcircuits.circuits.evaluation import log_values
from skcircuits.circuits.inputs import InputLayer, MultivariateGaussianLayer
from skcircuits.circuits.layers import SumWeights
from skcircuits.circuits.moments import require_possible
from skcircuits.circuits.passes import feedforward, input_buffer
from skcircuits.circuits.plan import Plan
from skcircuits.kernels.expectations import no_closed_form, univariate_points
from skcircuits.kernels.terms import KernelTerm
from skcircuits.kernels.univariate import ConstantFactor, RBFFactor
from skcircuits.numerics.gaussian_kernels import log_expected_rbf
from skcircuits.protocols import FloatArray

__all__ = ["expected_term_at_points", "posterior_weights", "rbf_scales"]


def expected_term_at_points(
    plan: Plan, term: KernelTerm, X: FloatArray, points: FloatArray
) -> FloatArray:
    """Integrate a product kernel over the missing cells of rows.

    Parameters
    ----------
    plan : Plan
        A smooth and decomposable circuit.
    term : KernelTerm
        A term without power sums.
    X : ndarray of shape (n, n_columns)
        Rows with NaN.
    points : ndarray of shape (m, n_columns)
        Complete rows.

    Returns
    -------
    ndarray of shape (n, m)
        E[k(x, s) | observed cells of x].

    Raises
    ------
    ZeroProbabilityError
        If the observed cells of a row are impossible.
    CircuitPropertyError
        If an input unit has no closed-form expectation of the kernel.
    """
    weights = posterior_weights(plan, X)
    shared = SumWeights(weights.log[:, :, None])
    batch = (len(X), len(points))
    values = input_buffer(plan, lambda layer: _input_values(layer, term, X, points), batch)
    result = feedforward(plan, values, "linear", shared)[plan.root]
    return result * term.coefficients


def posterior_weights(plan: Plan, X: FloatArray) -> SumWeights:
    """Weights of the conditional circuits of rows: θ_c p_c(x_o) / p_n(x_o).

    Parameters
    ----------
    plan : Plan
        A smooth and decomposable circuit.
    X : ndarray of shape (n, n_columns)
        Rows with NaN.

    Returns
    -------
    SumWeights
        A batch of weights, one set per row: shape (n_edges, n).

    Raises
    ------
    ZeroProbabilityError
        If the observed cells of a row are impossible.
    """
    if not plan.sum_layers and not any(layer.is_discrete for _, layer in plan.inputs):
        # Nothing to choose from, and a density is positive everywhere.
        return SumWeights(np.empty((0, len(X))))
    values = log_values(plan, X)
    require_possible(values[plan.root])
    return SumWeights(_stack_edges(plan, values))


def _stack_edges(plan: Plan, values: FloatArray) -> FloatArray:
    """Log posterior of all edges in the order of the plan's weights."""
    n_rows = values.shape[1]
    posteriors = np.empty((len(plan.weights.log), n_rows))
    for layer in plan.sum_layers:
        posteriors[layer.edges] = layer.posteriors(values, plan.weights)
    with np.errstate(divide="ignore"):
        return np.log(posteriors, out=posteriors)


def rbf_scales(layer: InputLayer, term: KernelTerm) -> FloatArray:
    """Scales of the variables of joint units under an RBF kernel.

    Parameters
    ----------
    layer : InputLayer
        A layer of units with one joint scope.
    term : KernelTerm
        The kernel.

    Returns
    -------
    ndarray of shape (scope_size,)
        γ of each variable; 0 where the kernel does not look at it.

    Raises
    ------
    CircuitPropertyError
        If a factor is not RBF.
    """
    scales = []
    for variable in layer.scopes[0]:
        factor = term.factor(int(variable))
        if isinstance(factor, RBFFactor):
            scales.append(factor.gamma)
        elif isinstance(factor, ConstantFactor):
            scales.append(0.0)
        else:
            raise no_closed_form(layer, factor)
    return np.array(scales)


@singledispatch
def _input_values(
    layer: InputLayer, term: KernelTerm, X: FloatArray, points: FloatArray
) -> FloatArray:
    """Expected factor of each unit at each row and point, shape (n_units, n, m).

    Univariate units: the factor at the observed value, or its expectation where NaN.
    """
    values = np.empty((len(layer), len(X), len(points)))
    for variable in np.unique(layer.scopes):
        units = np.flatnonzero(layer.scopes[:, 0] == variable)
        factor = term.factor(int(variable))
        cells, targets = X[:, variable], points[:, variable]
        missing = np.isnan(cells)
        if missing.any():
            expected = univariate_points(layer, units, factor, targets)
            values[np.ix_(units, missing)] = expected[:, None, :]
        if not missing.all():
            values[np.ix_(units, ~missing)] = factor(cells[~missing, None], targets)
    return values


@_input_values.register
def _(
    layer: MultivariateGaussianLayer, term: KernelTerm, X: FloatArray, points: FloatArray
) -> FloatArray:
    values = log_expected_rbf(
        layer.gaussians, layer.cells(X), layer.cells(points), rbf_scales(layer, term)
    )
    return np.exp(values, out=values)
