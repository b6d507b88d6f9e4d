"""The algebra of kernels and how they are taken apart."""

import numpy as np
import pytest

from skcircuits.circuits.structure.properties import mask_of
from skcircuits.circuits.structure.units import Product
from skcircuits.kernels import RBF, Delta, Hamming, Laplacian, Linear, Polynomial
from skcircuits.kernels.families.base import KernelCircuit, structure_of, value_of

BASE = RBF(0.5, variables=[0])


def value_by_splitting(kernel, X, Y):
    """Evaluate a kernel from its parts on single variables, splitting one variable at a time."""
    structure = structure_of(kernel, range(X.shape[1]))
    rows = np.concatenate([X, Y])

    def value(part, variables):
        if len(variables) == 1:
            (v,) = variables
            x = rows[:, v]
            return value_of(structure.on_variable(part, v), x[:, None], x)
        masks = mask_of(variables[:1]), mask_of(variables[1:])
        return sum(
            weight * value(own, variables[:1]) * value(other, variables[1:])
            for weight, own, other in structure.split(part, *masks)
        )

    return value(structure.root, list(range(X.shape[1])))[: len(X), len(X) :]


KERNELS = [
    BASE * Hamming(1.0, variables=[2]) + 0.5 * Delta(),
    2.0 * (RBF(0.1) + Laplacian(0.2, variables=[1])) * RBF(0.3),
    Polynomial(2, 0.5) * RBF(0.2, variables=[1]) + Linear(variables=[0]),
    Polynomial(2, 0.5) * Polynomial(1, 2.0),
    Polynomial(1, 0.5, variables=[0, 1]) * Polynomial(2, 0.1, variables=[1, 2]),
    (BASE + Delta(variables=[0])) * (RBF(variables=[1]) + 0.3 * Hamming(variables=[1])),
    BASE * Laplacian(1.0, variables=[0]) * Linear(variables=[0]),
]


@pytest.fixture
def rows():
    rng = np.random.default_rng(1)
    return rng.integers(3, size=(6, 3)).astype(float), rng.integers(3, size=(5, 3)).astype(float)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_parts_of_single_variables_add_up_to_the_kernel(kernel, rows):
    np.testing.assert_allclose(value_by_splitting(kernel, *rows), kernel(*rows), rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_kernel_of_states_is_its_value(kernel, rows):
    X, Y = rows
    structure = structure_of(kernel, range(3))
    value = structure.value(structure.root, np.concatenate(rows), range(3))
    np.testing.assert_allclose(value[: len(X), len(X) :], kernel(X, Y), rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_products_of_functions_of_one_variable_add_up_to_the_kernel(kernel, rows):
    terms = structure_of(kernel, range(3)).product_terms()
    if terms is None:
        assert "Polynomial" in repr(kernel) or "Linear" in repr(kernel)
        return
    X, Y = rows
    total = 0.0
    for weight, functions in terms:
        values = [value_of(functions[v], X[:, v, None], Y[:, v]) for v in range(3)]
        total += weight * np.prod(values, axis=0)
    np.testing.assert_allclose(total, kernel(X, Y), rtol=1e-12)


def test_sums_and_products_are_pointwise(rows):
    left, right = RBF(0.5), Hamming(1.0)
    np.testing.assert_allclose((left * right)(*rows), left(*rows) * right(*rows))
    np.testing.assert_allclose((left + 2 * right)(*rows), left(*rows) + 2 * right(*rows))
    np.testing.assert_allclose((0.5 * left)(*rows), 0.5 * left(*rows))


def test_products_of_univariate_sums_stay_one_term():
    # (1 + k) over ten variables: multiplied out it would have 1024 terms.
    factors = [(RBF(variables=[v]) + Delta(variables=[v])) for v in range(10)]
    kernel = KernelCircuit(Product([factor.root for factor in factors]))
    assert len(structure_of(kernel, range(10)).product_terms()) == 1


def test_constants_count():
    nowhere = 0.5 * RBF(variables=[]) + 0.25 * Linear(variables=[0])
    kernel = nowhere * Polynomial(2, 3.0, variables=[])
    X = np.array([[1.0, 2.0], [0.0, 1.0]])
    np.testing.assert_allclose(kernel(X), 9.0 * (0.5 + 0.25 * np.outer(X[:, 0], X[:, 0])))
    np.testing.assert_allclose(value_by_splitting(kernel, X, X), kernel(X))


def test_negative_weights_are_refused():
    with pytest.raises(ValueError, match="finite and non-negative"):
        -1.0 * RBF()


def test_shows_its_formula():
    assert repr(BASE * Delta()) == ("RBF(gamma=0.5, variables=(0,)) * Delta(variables=None)")
    assert repr(0.5 * Delta()) == "0.5 * Delta(variables=None)"
    shown = "(2 * Delta(variables=None) + RBF(gamma=0.5, variables=None))"
    assert repr(2.0 * Delta() + RBF(0.5)) == shown
    assert repr((2.0 * Delta() + RBF(0.5)) * Delta([0])) == f"{shown} * Delta(variables=(0,))"


def test_other_parameters_make_another_kernel():
    kernel = RBF(0.5, variables=[0])
    assert kernel.with_params(gamma=2.0) == RBF(2.0, variables=[0])
    assert kernel == RBF(0.5, variables=[0])
    with pytest.raises(ValueError, match=r"of RBF must be among .*; got unknown=\['scale'\]"):
        kernel.with_params(scale=2.0)
    with pytest.raises(ValueError, match="must be a positive number"):
        kernel.with_params(gamma=-1.0)


def test_other_operands_are_refused():
    with pytest.raises(TypeError):
        RBF() * "two"
    with pytest.raises(TypeError):
        RBF() + 1.0


@pytest.mark.parametrize("kernel", [RBF(1.0), Delta(), RBF(1.0) * Hamming(1.0) + Delta()], ids=repr)
def test_tables_of_different_widths_are_refused(kernel):
    with pytest.raises(ValueError, match=r"have the same columns; got n_columns=\(3, 2\)"):
        kernel(np.zeros((4, 3)), np.zeros((5, 2)))
    assert RBF(1.0, variables=[1])(np.zeros((4, 3)), np.zeros((5, 2))).shape == (4, 5)
