import numpy as np
import pytest

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    MultivariateGaussian,
    Product,
    Sum,
)
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.kernels import RBF, Hamming, Laplacian, Polynomial
from skcircuits.predictions.models import _mercer
from skcircuits.predictions.models._kernel_expansions import KernelExpansion, _pairs_of_points
from tests.reference.enumeration import Completions
from tests.reference.random_circuits import RandomCircuit, random_rows


def expansion_variance(X, points, coefficients, *, circuit, kernel, n_jobs=None):
    points, intercept = np.asarray(points), np.zeros(1)
    form = KernelExpansion(points, coefficients[:, None], intercept, kernel, circuit, n_jobs)
    return form.variance(np.asarray(X))[:, 0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cardinalities", [[2, 3, 2, 4], [0, 2, 0], [0, 0]])
def test_agrees_with_enumeration(seed, cardinalities):
    circuit = RandomCircuit(seed, cardinalities).circuit()
    rng = np.random.default_rng(seed)
    X = random_rows(rng, circuit, 6, 0.6)
    points = random_rows(rng, circuit, 7, 0.0)
    coefficients = rng.normal(size=7)
    labels = [v for v, size in enumerate(cardinalities) if size]
    numbers = [v for v, size in enumerate(cardinalities) if not size]
    kernel = Hamming(scale=0.8, variables=labels) if labels else RBF(gamma=0.05)
    if labels and numbers:
        kernel = kernel * RBF(gamma=0.05, variables=numbers)

    def f(rows):
        return kernel(rows, points) @ coefficients

    expected = []
    for row in X:
        completions = Completions(circuit, row)
        mean = completions.expectation(f)
        expected.append(completions.expectation(lambda rows, mean=mean: (f(rows) - mean) ** 2))
    actual = expansion_variance(X, points, coefficients, circuit=circuit, kernel=kernel)
    np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-12)


def mixture(with_categories):
    """Joint Gaussians over columns 0-2 beside a Gaussian and, or not, a category."""
    rng = np.random.default_rng(0)
    products = []
    for _ in range(3):
        factor = rng.normal(size=(3, 3))
        joint = MultivariateGaussian(range(3), rng.normal(size=3), factor @ factor.T + np.eye(3))
        parts = [joint, Gaussian(3, rng.normal(), 0.7)]
        if with_categories:
            parts = [*parts[:1], Product([parts[1], Categorical(4, rng.dirichlet(np.ones(3)))])]
        products.append(Product(parts))
    return Circuit(Sum(products, weights=[0.2, 0.5, 0.3]))


@pytest.mark.parametrize("with_categories", [False, True])
@pytest.mark.parametrize("gamma", [0.02, 0.5, 20.0])
def test_shared_patterns_agree_with_pairs_of_points(monkeypatch, with_categories, gamma):
    circuit = mixture(with_categories)
    X, points = circuit.sample(30, random_state=0), circuit.sample(40, random_state=1)
    rng = np.random.default_rng(2)
    X[rng.random(X.shape) < 0.5] = np.nan
    kernel = 0.5 * RBF(gamma, variables=[0, 2, 3])
    if with_categories:
        kernel = kernel * Hamming(1.5, variables=[4])
    arguments = {"circuit": circuit, "kernel": kernel}
    coefficients = rng.normal(size=40)
    shared = expansion_variance(X, points, coefficients, **arguments)
    monkeypatch.setattr(KernelExpansion, "_mixture_expansion", lambda *arguments: None)
    plain = expansion_variance(X, points, coefficients, **arguments)
    np.testing.assert_allclose(shared, plain, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("gamma", [0.01, 0.1, 20.0])
@pytest.mark.parametrize("with_categories", [False, True])
def test_eigenfunctions_agree_with_pairs_of_points(monkeypatch, gamma, with_categories):
    circuit = mixture(with_categories)
    X, points = circuit.sample(25, random_state=0), circuit.sample(300, random_state=1)
    rng = np.random.default_rng(2)
    X[rng.random(X.shape) < 0.5] = np.nan
    coefficients = rng.normal(size=300)
    kernel = RBF(gamma, variables=[0, 2, 3])
    if with_categories:
        kernel = kernel * Hamming(1.5, variables=[4])
    arguments = {"circuit": circuit, "kernel": kernel}
    ways = []
    halves = _mercer._halves
    monkeypatch.setattr(_mercer, "_halves", lambda *a: ways.append(halves(*a)) or ways[-1])
    found = expansion_variance(X, points, coefficients, **arguments)
    assert all(way is None for way in ways) is (gamma > 1.0)
    monkeypatch.setattr(_mercer, "_halves", lambda *arguments: None)
    exact = expansion_variance(X, points, coefficients, **arguments)
    np.testing.assert_allclose(found, exact, rtol=_mercer.TOLERANCE, atol=1e-12)


def test_what_is_left_out_is_bounded_by_the_tolerance(monkeypatch):
    circuit = mixture(False)
    X, points = circuit.sample(25, random_state=3), circuit.sample(300, random_state=4)
    X[np.random.default_rng(5).random(X.shape) < 0.6] = np.nan
    coefficients = np.random.default_rng(6).normal(size=300)
    arguments = {"circuit": circuit, "kernel": RBF(0.05)}
    monkeypatch.setattr(_mercer, "_halves", lambda *arguments: None)
    exact = expansion_variance(X, points, coefficients, **arguments)
    monkeypatch.undo()
    monkeypatch.setattr(_mercer, "PAIR_COST", np.inf)
    for tolerance in (1e-2, 1e-8):
        monkeypatch.setattr(_mercer, "TOLERANCE", tolerance)
        found = expansion_variance(X, points, coefficients, **arguments)
        assert (np.abs(found - exact) <= tolerance * exact + 1e-12).all()


@pytest.mark.parametrize("gamma", [0.02, 0.1])
@pytest.mark.parametrize("with_categories", [False, True])
def test_blocks_of_products_change_nothing(monkeypatch, gamma, with_categories):
    circuit = mixture(with_categories)
    X, points = circuit.sample(25, random_state=3), circuit.sample(300, random_state=4)
    X[np.random.default_rng(5).random(X.shape) < 0.6] = np.nan
    coefficients = np.random.default_rng(6).normal(size=300)
    kernel = RBF(gamma, variables=[0, 1, 2, 3])
    if with_categories:
        kernel = kernel * Hamming(1.5, variables=[4])
    found = []
    for waste in (-1, 10, 10**9):  # from a block for each function to one for all
        _mercer._kept.clear()
        monkeypatch.setattr(_mercer, "WASTE", waste)
        arguments = {"circuit": circuit, "kernel": kernel}
        found.append(expansion_variance(X, points, coefficients, **arguments))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-11)
    np.testing.assert_allclose(found[0], found[2], rtol=1e-11)


@pytest.mark.parametrize("with_categories", [False, True])
def test_either_division_of_directions_agrees_with_pairs_of_points(monkeypatch, with_categories):
    circuit = mixture(with_categories)
    X, points = circuit.sample(25, random_state=3), circuit.sample(300, random_state=4)
    X[np.random.default_rng(5).random(X.shape) < 0.7] = np.nan
    coefficients = np.random.default_rng(6).normal(size=300)
    kernel = RBF(0.05, variables=[0, 1, 2, 3])
    if with_categories:
        kernel = kernel * Hamming(1.5, variables=[4])
    arguments = {"circuit": circuit, "kernel": kernel}
    halves, smaller = _mercer._halves, []
    monkeypatch.setattr(_mercer, "_halves", lambda *arguments: None)
    exact = expansion_variance(X, points, coefficients, **arguments)

    def recorded(*arguments):
        found = halves(*arguments)
        smaller[-1].append(min(len(half.directions) for half in found.both))
        return found

    monkeypatch.setattr(_mercer, "_halves", recorded)
    monkeypatch.setattr(_mercer, "PAIR_COST", np.inf)
    for function_cost in (0.0, 1.0):  # few products, then few functions
        _mercer._kept.clear()
        smaller.append([])
        monkeypatch.setattr(_mercer, "FUNCTION_COST", function_cost)
        monkeypatch.setattr(_mercer, "PRODUCT_COST", 1.0 - function_cost)
        found = expansion_variance(X, points, coefficients, **arguments)
        np.testing.assert_allclose(found, exact, rtol=_mercer.TOLERANCE)
    _mercer._kept.clear()
    assert max(smaller[0]) < max(smaller[1])


def test_categories_of_many_states_agree_with_pairs_of_points(monkeypatch):
    rng = np.random.default_rng(0)
    joint = MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.3], [0.3, 1.0]])
    n_states = 2 * _mercer.MAX_ORDERS
    circuit = Circuit(Product([joint, Categorical(2, rng.dirichlet(np.ones(n_states)))]))
    X, points = circuit.sample(10, random_state=0), circuit.sample(600, random_state=1)
    X[:, 2] = X[::2, 0] = np.nan
    kernel = RBF(0.05, variables=[0, 1]) * Hamming(1.0, variables=[2])
    arguments = {"circuit": circuit, "kernel": kernel}
    coefficients = rng.normal(size=600)
    found = expansion_variance(X, points, coefficients, **arguments)
    monkeypatch.setattr(_mercer, "_halves", lambda *arguments: None)
    exact = expansion_variance(X, points, coefficients, **arguments)
    np.testing.assert_allclose(found, exact, rtol=_mercer.TOLERANCE)


def test_sets_of_eigenfunctions_are_kept_within_bounds(monkeypatch):
    circuit = mixture(False)
    X, points = circuit.sample(40, random_state=3), circuit.sample(300, random_state=4)
    X[np.random.default_rng(5).random(X.shape) < 0.6] = np.nan
    arguments = {"circuit": circuit, "kernel": RBF(0.05)}
    _mercer._kept.clear()
    found = expansion_variance(X, points, np.ones(300), **arguments)
    sizes = [own.n_bytes for (own,) in _mercer._kept.values() if own is not None]
    for bound, n_sets in ((np.median(sizes), 1024), (np.inf, 3)):
        monkeypatch.setattr(_mercer, "MAX_KEPT_BYTES", bound)
        monkeypatch.setattr(_mercer, "MAX_KEPT", n_sets)
        _mercer._kept.clear()
        again = expansion_variance(X, points, np.ones(300), **arguments)
        np.testing.assert_array_equal(again, found)
        kept = [own.n_bytes for (own,) in _mercer._kept.values() if own is not None]
        assert 0 < len(kept) < len(sizes) and len(kept) <= n_sets and max(kept) <= bound


def test_support_points_with_missing_cells_are_estimated():
    circuit = RandomCircuit(3, [2, 3, 2], zeros=0.0).circuit()
    rng = np.random.default_rng(0)
    X, points = random_rows(rng, circuit, 5, 0.6), random_rows(rng, circuit, 6, 0.4)
    coefficients, kernel = rng.normal(size=6), Hamming(1.0)
    embeddings = [Completions(circuit, point) for point in points]

    def f(rows):
        values = [kernel(rows, e.nodes) @ (e.mass / e.total) for e in embeddings]
        return coefficients @ np.array(values)

    expected = []
    for row in X:
        completions = Completions(circuit, row)
        mean = completions.expectation(f)
        expected.append(completions.expectation(lambda rows, mean=mean: (f(rows) - mean) ** 2))
    with pytest.warns(UserWarning, match=r"estimated from 100 draws, .* about 7%"):
        actual = expansion_variance(X, points, coefficients, circuit=circuit, kernel=kernel)
    np.testing.assert_allclose(np.sqrt(actual), np.sqrt(expected), rtol=0.3, atol=1e-12)


def test_large_coefficients_that_cancel():
    circuit = Circuit(Bernoulli(0, 0.3) * Bernoulli(1, 0.6))
    points = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    X = np.array([[np.nan, 1.0], [np.nan, np.nan]])
    kernel = RBF(gamma=0.5)
    plain = expansion_variance(X, points[1:], np.array([1.0, 1.0]), circuit=circuit, kernel=kernel)
    coefficients = np.array([1e4, 1.0 - 1e4, 1.0])
    actual = expansion_variance(X, points, coefficients, circuit=circuit, kernel=kernel)
    np.testing.assert_allclose(actual, plain, atol=1e-7)


def test_complete_rows_have_none_and_results_ignore_jobs():
    circuit = RandomCircuit(5, [2, 2, 3]).circuit()
    rng = np.random.default_rng(5)
    X = random_rows(rng, circuit, 130, 0.5)
    X[::2] = random_rows(rng, circuit, 65, 0.0)
    points, coefficients = random_rows(rng, circuit, 5, 0.0), rng.normal(size=5)
    arguments = {"circuit": circuit, "kernel": Hamming(scale=1.0)}
    one = expansion_variance(X, points, coefficients, **arguments)
    two = expansion_variance(X, points, coefficients, n_jobs=2, **arguments)
    np.testing.assert_array_equal(one, two)
    assert (one[::2] == 0).all()
    assert (one >= 0).all()


def test_pairs_are_complete():
    found = np.concatenate([np.stack(pair) for pair in _pairs_of_points(140, 3)], axis=1)
    np.testing.assert_array_equal(found, np.stack(np.triu_indices(140)))


@pytest.mark.parametrize("kernel", [Laplacian(gamma=1.0), Polynomial(degree=2)])
def test_other_kernels_are_refused(kernel):
    with pytest.raises(CircuitPropertyError, match="product of RBF and Hamming"):
        expansion_variance(
            [[np.nan]], [[0.0]], np.ones(1), circuit=Circuit(Bernoulli(0, 0.5)), kernel=kernel
        )
