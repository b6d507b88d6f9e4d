"""Gram matrices of incomplete rows."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from sklearn import config_context

from skcircuits.circuits import Bernoulli, Circuit, Gaussian, MultivariateGaussian, Product, Sum
from skcircuits.exceptions import (
    CircuitPropertyError,
    IncompatibleCircuitsError,
    ZeroProbabilityError,
)
from skcircuits.kernels import (
    RBF,
    Delta,
    Hamming,
    Linear,
    Polynomial,
    expected_kernel,
    expected_kernel_matrix,
)
from skcircuits.kernels.expected_kernels import expected_kernel_dot
from tests.reference.case import for_seeds
from tests.reference.enumeration import Completions
from tests.reference.latent_trees import blocks_of_any_widths
from tests.reference.random_circuits import RandomCircuit, random_rows

KERNEL = RBF(0.2, variables=[0, 1]) * Hamming(1.3, variables=[2])


def mixture(n_components=3, n_columns=4, seed=0):
    rng = np.random.default_rng(seed)
    units = []
    for _ in range(n_components):
        factor = rng.normal(size=(n_columns, n_columns))
        covariance = factor @ factor.T / n_columns + 0.3 * np.eye(n_columns)
        units.append(MultivariateGaussian(range(n_columns), rng.normal(size=n_columns), covariance))
    return Circuit(Sum(units, weights=rng.dirichlet(np.ones(n_components))))


def small_circuit(seed):
    """Three variables, two of them continuous."""
    return RandomCircuit(seed, [0, 0, 3], zeros=0.1).circuit()


def table(circuit, seed, n_rows=7):
    """Incomplete rows, a complete one, an empty one and two equal ones."""
    X = random_rows(np.random.default_rng(seed), circuit, n_rows)
    X[0] = circuit.sample(1, random_state=seed)[0]
    X[2] = X[1]
    return X


@for_seeds(30)
def test_equals_enumeration(seed):
    circuit = RandomCircuit(seed, [3, 2, 4, 2][: 1 + seed % 4]).circuit()
    X = table(circuit, seed)
    X[3] = np.nan
    gram = expected_kernel_matrix(X, circuit=circuit, kernel=Hamming(1.3) + Polynomial(2, 0.5))
    rows = [Completions(circuit, x) for x in X]
    kernel = Hamming(1.3) + Polynomial(2, 0.5)
    expected = [
        [a.mass @ kernel(a.nodes, b.nodes) @ b.mass / (a.total * b.total) for b in rows]
        for a in rows
    ]
    np.testing.assert_allclose(gram, expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_blocks_of_any_widths_equal_enumeration(seed):
    circuit = blocks_of_any_widths(seed, [2, 3, 2, 3])
    X = random_rows(np.random.default_rng(seed), circuit, 8, 0.5)
    points = circuit.sample(40, random_state=seed)
    rows = [Completions(circuit, x) for x in X]
    kernel = RBF(0.3, variables=[0, 1]) * Hamming(0.8, variables=[2, 3]) + Delta(variables=[1, 2])
    found = expected_kernel_matrix(X, points, circuit=circuit, kernel=kernel)
    expected = [row.mass @ kernel(row.nodes, points) / row.total for row in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    found = expected_kernel_matrix(X, circuit=circuit, kernel=kernel)
    expected = [
        [a.mass @ kernel(a.nodes, b.nodes) @ b.mass / (a.total * b.total) for b in rows]
        for a in rows
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    other = blocks_of_any_widths(seed + 100, [2, 3, 2, 3], structure=seed)
    left, right = (Completions(p, np.full(4, np.nan)) for p in (circuit, other))
    expected = left.mass @ kernel(left.nodes, right.nodes) @ right.mass
    np.testing.assert_allclose(expected_kernel(circuit, other, kernel), expected, rtol=1e-9)


@for_seeds(20)
def test_rows_against_points_equal_quadrature(seed):
    circuit = RandomCircuit(seed, [0, 0, 3], structured=seed % 2 == 0, zeros=0.1).circuit()
    X, points = table(circuit, seed), circuit.sample(5, random_state=seed)
    matrix = expected_kernel_matrix(X, points, circuit=circuit, kernel=KERNEL)
    expected = [Completions(circuit, x).expectation(lambda nodes: KERNEL(nodes, points)) for x in X]
    np.testing.assert_allclose(matrix, expected, rtol=1e-9)
    turned = expected_kernel_matrix(points, X, circuit=circuit, kernel=KERNEL)
    np.testing.assert_allclose(turned, matrix.T, rtol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(0.3),
        Linear(),
        Polynomial(2, 0.5) * Linear(),
        Polynomial(3, 1.0, variables=[1]),
        RBF(0.3, variables=[0]),
    ],
    ids=repr,
)
def test_joint_gaussians_equal_quadrature(kernel):
    circuit = mixture(n_components=2, n_columns=2)
    X = np.array([[np.nan, 0.3], [0.5, np.nan], [np.nan, np.nan], [0.1, 0.2]])
    gram = expected_kernel_matrix(X, circuit=circuit, kernel=kernel)
    rows = [Completions(circuit, x) for x in X]
    expected = [
        [a.mass @ kernel(a.nodes, b.nodes) @ b.mass / (a.total * b.total) for b in rows]
        for a in rows
    ]
    np.testing.assert_allclose(gram, expected, rtol=1e-9)


def test_joint_gaussians_beside_labels_take_products_of_kernels():
    gaussians = mixture(n_components=2, n_columns=2).plan.units[:2]
    labels = [Bernoulli(2, 0.2), Bernoulli(2, 0.7)]
    products = [Product(pair) for pair in zip(gaussians, labels, strict=True)]
    circuit = Circuit(Sum(products, weights=[0.4, 0.6]))
    X = np.array([[np.nan, 0.3, 1.0], [0.5, np.nan, np.nan], [0.1, 0.2, 0.0]])
    kernel = Linear(variables=[0]) * Hamming(1.0, variables=[2])
    kernel += RBF(0.3, variables=[0, 1]) * Polynomial(2, 1.0, variables=[2])
    rows = [Completions(circuit, x) for x in X]
    expected = [
        [a.mass @ kernel(a.nodes, b.nodes) @ b.mass / (a.total * b.total) for b in rows]
        for a in rows
    ]
    gram = expected_kernel_matrix(X, circuit=circuit, kernel=kernel)
    np.testing.assert_allclose(gram, expected, rtol=1e-9)
    for refused in (RBF(0.3) * Linear(), Linear() * Linear(variables=[0])):
        with pytest.raises(CircuitPropertyError, match="no products of them"):
            expected_kernel_matrix(X, circuit=circuit, kernel=refused)


def test_deep_circuits_reach_the_workers():
    """Their plans are sent along where incomplete rows meet each other."""
    root = Gaussian(0, 0.0, 1.0)
    for variable in range(1, 100):
        root = Product([Sum([root]), Gaussian(variable, 0.0, 1.0)])
    circuit = Circuit(root)
    X = np.zeros((300, 100))
    X[:, 0] = np.arange(300) / 100
    X[:, 1] = np.nan
    settings = {"circuit": circuit, "kernel": RBF(0.5)}
    gram = expected_kernel_matrix(X, **settings)
    np.testing.assert_array_equal(gram, expected_kernel_matrix(X, n_jobs=2, **settings))


@pytest.mark.parametrize("make", [mixture, lambda: small_circuit(2)], ids=["mixture", "circuit"])
def test_is_a_gram_matrix(make):
    circuit = make()
    X = table(circuit, 1, 20)
    kernel = RBF(0.2, variables=[0, 1])
    gram = expected_kernel_matrix(X, circuit=circuit, kernel=kernel)
    np.testing.assert_array_equal(
        gram, expected_kernel_matrix(X, X, circuit=circuit, kernel=kernel)
    )
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_array_equal(gram[1], gram[2])
    assert np.linalg.eigvalsh(gram).min() > -1e-12
    assert np.diag(gram).max() <= 1 + 1e-12


def test_without_missing_values_it_is_the_kernel():
    circuit = mixture()
    X = circuit.sample(6, random_state=0)
    gram = expected_kernel_matrix(X, circuit=circuit, kernel=RBF(0.5))
    np.testing.assert_allclose(gram, RBF(0.5)(X), rtol=1e-14)


def test_results_do_not_depend_on_jobs_or_memory():
    circuit = mixture()
    X = table(circuit, 3, 300)
    settings = {"circuit": circuit, "kernel": RBF(0.5)}
    gram = expected_kernel_matrix(X, **settings)
    np.testing.assert_array_equal(gram, expected_kernel_matrix(X, n_jobs=2, **settings))
    with config_context(working_memory=0.05):
        np.testing.assert_allclose(gram, expected_kernel_matrix(X, **settings), rtol=1e-10)


@pytest.mark.parametrize("make", [mixture, lambda: small_circuit(5)], ids=["mixture", "circuit"])
def test_results_do_not_depend_on_the_blocks(make, monkeypatch):
    circuit = make()
    X, Y = table(circuit, 3, 9), table(circuit, 4, 7)
    settings = {"circuit": circuit, "kernel": RBF(0.5, variables=[0, 1])}
    gram, rectangle = (
        expected_kernel_matrix(X, **settings),
        expected_kernel_matrix(X, Y, **settings),
    )
    np.testing.assert_allclose(rectangle, expected_kernel_matrix(Y, X, **settings).T, rtol=1e-10)
    for name, size in (("PAIR_ROWS", 2), ("POINT_ROWS", 1)):
        monkeypatch.setattr(f"skcircuits.kernels.expected_kernels.{name}", size)
    monkeypatch.setattr("skcircuits.kernels.expected_kernels.JOINT_COLUMNS", 3)
    for name in ("GAUSSIAN_BYTES", "PRODUCT_ROWS"):
        monkeypatch.setattr(f"skcircuits.kernels.integrals._gaussian_blocks.{name}", 2)
    np.testing.assert_allclose(expected_kernel_matrix(X, **settings), gram, rtol=1e-10)
    np.testing.assert_allclose(expected_kernel_matrix(X, Y, **settings), rectangle, rtol=1e-10)


@pytest.mark.parametrize("make", [mixture, lambda: small_circuit(5)], ids=["mixture", "circuit"])
def test_dot_is_the_matrix_times_a_vector(make):
    circuit = make()
    X, Y = table(circuit, 4, 30), table(circuit, 5, 12)
    coefficients = np.random.default_rng(0).normal(size=len(Y))
    settings = {"circuit": circuit, "kernel": RBF(0.3, variables=[0, 1])}
    expected = expected_kernel_matrix(X, Y, **settings) @ coefficients
    np.testing.assert_allclose(
        expected_kernel_dot(X, Y, coefficients, **settings), expected, rtol=1e-10, atol=1e-13
    )


def components_of(case):
    """Units and weights of a mixture: in no order, in two families, one twice, one of weight 0."""
    units = list(mixture(4).root.children)
    weights = [0.4, 0.1, 0.3, 0.2]
    if case == "two families":
        units[1] = Product([Gaussian(v, 0.3 * v, 1.1) for v in range(4)])
    if case == "one unit twice":
        units[2] = units[0]
    if case == "weight zero":
        weights = [0.5, 0.0, 0.3, 0.2]
    return units[::-1], weights


@pytest.mark.parametrize("case", ["one family", "two families", "one unit twice", "weight zero"])
@pytest.mark.parametrize("n_outputs", [None, 1, 3, 20])
def test_products_of_mixtures_average_those_of_their_components(case, n_outputs):
    units, weights = components_of(case)
    X, Y = table(mixture(), 4, 30), table(mixture(), 5, 12)
    Y = Y[~np.isnan(Y).any(axis=1)]
    shape = len(Y) if n_outputs is None else (len(Y), n_outputs)
    coefficients = np.random.default_rng(1).normal(size=shape)
    kernel = RBF(0.3, variables=[0, 2]) * RBF(1e-3, variables=[1])
    found = expected_kernel_dot(
        X, Y, coefficients, circuit=Circuit(Sum(units, weights=weights)), kernel=kernel
    )
    singles = [Circuit(unit) for unit in units]
    posterior = np.exp([own.log_prob(X) for own in singles]) * np.array(weights)[:, None]
    posterior /= posterior.sum(axis=0)
    matrices = [expected_kernel_matrix(X, Y, circuit=own, kernel=kernel) for own in singles]
    expected = np.einsum("kn,knm->nm", posterior, matrices) @ coefficients
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)


def test_columns_the_circuit_does_not_have_are_ignored():
    circuit = mixture().marginalize([1])
    X = table(mixture(), 1, 8)
    other = X.copy()
    other[:, 1] = np.nan
    settings = {"circuit": circuit, "kernel": RBF(0.5)}
    np.testing.assert_array_equal(
        expected_kernel_matrix(X, **settings), expected_kernel_matrix(other, **settings)
    )


def test_circuits_without_one_structure_serve_complete_points_only():
    leaves = [[Gaussian(v, m, 1.0) for v in range(3)] for m in (0.0, 1.0, 2.0)]
    splits = [
        Product([a[0], Sum([a[1] * a[2], b[1] * b[2]], weights=[0.5, 0.5])])
        for a, b in pairwise(leaves)
    ]
    turned = Product(
        [leaves[0][2], Sum([leaves[0][0] * leaves[0][1], leaves[1][0] * leaves[1][1]])]
    )
    circuit = Circuit(Sum([splits[0], turned], weights=[0.5, 0.25]))
    X = np.array([[0.0, np.nan, 1.0]])
    settings = {"circuit": circuit, "kernel": RBF(0.5)}
    assert expected_kernel_matrix(X, np.zeros((2, 3)), **settings).shape == (1, 2)
    with pytest.raises(
        IncompatibleCircuitsError, match=r"structured-decomposable .*two incomplete rows"
    ):
        expected_kernel_matrix(X, **settings)


def test_impossible_evidence_names_the_rows():
    circuit = Circuit(Sum([Bernoulli(0, 0.0) * Bernoulli(1, 0.5)]))
    X = np.array([[0.0, np.nan], [1.0, np.nan]])
    with pytest.raises(ZeroProbabilityError) as caught:
        expected_kernel_matrix(X, circuit=circuit, kernel=Delta())
    assert caught.value.rows == [1]


@pytest.mark.parametrize(
    "X, message",
    [
        (np.zeros((2, 3)), "X must be a table with at least 4 columns"),
        (np.zeros(4), "X must be a table"),
        (np.full((1, 4), np.inf), "cells of X must be finite or NaN"),
    ],
)
def test_clear_errors(X, message):
    with pytest.raises(ValueError, match=message):
        expected_kernel_matrix(X, circuit=mixture(), kernel=RBF())


def test_what_is_no_circuit_or_kernel_or_number_is_refused():
    circuit = mixture(n_columns=2)
    X = np.array([[0.0, np.nan]])
    with pytest.raises(TypeError, match="of a fitted density"):
        expected_kernel_matrix(X, circuit="auto", kernel=RBF())
    with pytest.raises(TypeError, match="kernel object"):
        expected_kernel_matrix(X, circuit=circuit, kernel="rbf")
    with pytest.raises(ValueError, match=r"cells must lie within ±1e\+150; got largest=1e\+200"):
        expected_kernel_matrix(X, [[1e200, 0.0]], circuit=circuit, kernel=RBF())


@pytest.mark.parametrize("other", [[-1e150, 0.0], [1e150, np.nan]])
def test_powers_beyond_floats_are_refused(other):
    circuit = Circuit(MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]]))
    tables = [[1e100, np.nan]], [other]
    with np.errstate(all="ignore"):
        with pytest.raises(ValueError, match="values of a kernel must be numbers that a float"):
            expected_kernel_matrix(*tables, circuit=circuit, kernel=Polynomial(3))
        with pytest.raises(ValueError, match="values of a kernel must be numbers that a float"):
            expected_kernel_dot(*tables, np.ones(1), circuit=circuit, kernel=Polynomial(3))


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9])
def test_kernels_of_columns_that_are_complete_do_not_lose_digits(far):
    """The cells that miss are elsewhere."""
    joint = MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]])
    circuit = Circuit(joint * Bernoulli(2, 0.5))
    kernel = RBF(gamma=1.0, variables=[0, 1])
    points = [[0.0, 0.0, 0.0], [far, far, 0.0], [far + 1.0, far, 1.0]]
    found = expected_kernel_matrix([[far, far, np.nan]], points, circuit=circuit, kernel=kernel)
    np.testing.assert_allclose(found, [[0.0, 1.0, np.exp(-1.0)]], rtol=1e-9)


@pytest.mark.parametrize("joint", [False, True])
def test_an_observed_cell_of_any_size_beside_a_narrow_kernel(joint):
    """1e100 in units of the column, under kernels that are no wider than 1e-45."""
    apart = Gaussian(0, 0.0, 1.0) * Gaussian(1, 0.0, 1.0)
    unit = MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]]) if joint else apart
    X = np.array([[1e100, np.nan], [1e150, np.nan], [0.0, np.nan], [-1e150, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = expected_kernel_matrix(X, circuit=Circuit(unit), kernel=RBF(gamma=1e90))
    np.testing.assert_array_equal(found - np.diag(np.diag(found)), 0.0)
    assert (np.diag(found) > 0.0).all()


def test_tiny_tables():
    circuit = mixture()
    assert expected_kernel_matrix(np.empty((0, 4)), circuit=circuit, kernel=RBF()).shape == (0, 0)
    single = expected_kernel_matrix(np.full((1, 4), np.nan), circuit=circuit, kernel=RBF())
    assert 0 < single[0, 0] < 1
