import numpy as np
import pytest

from skcircuits.circuits import (
    Categorical,
    Circuit,
    Gaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Product,
    Sum,
)
from skcircuits.kernels import RBF, Delta, Hamming, Laplacian, expected_kernel_matrix
from skcircuits.kernels import _points as points
from skcircuits.kernels._points import PointTables, Restriction, multiply_by_kernel
from skcircuits.kernels.expected_kernels import expected_kernel_dot
from skcircuits.kernels.families.base import structure_of
from tests.reference.random_circuits import RandomCircuit, random_rows


def make(seed, cardinalities, n_rows=20, n_points=60):
    circuit = RandomCircuit(seed, cardinalities, joint=False, zeros=0.0).circuit()
    rng = np.random.default_rng(seed)
    X = random_rows(rng, circuit, n_rows, 0.5)
    S = random_rows(rng, circuit, n_points, 0.0)
    return circuit, X, np.round(S)


def without_tables(monkeypatch, **arguments):
    with monkeypatch.context() as patch:
        patch.setattr(points, "MAX_FRACTION", 0.0)
        return expected_kernel_matrix(**arguments)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cardinalities", [[2] * 6, [2, 3, 0, 2, 4], [2]])
def test_tables_agree_with_the_plain_pass(monkeypatch, seed, cardinalities):
    circuit, X, S = make(seed, cardinalities)
    labels = [v for v, size in enumerate(cardinalities) if size > 2]
    numbers = [v for v, size in enumerate(cardinalities) if size <= 2]
    kernel = RBF(gamma=0.3, variables=numbers)
    if labels:
        kernel = kernel * Hamming(scale=0.7, variables=labels)
    arguments = {"X": X, "Y": S, "circuit": circuit, "kernel": kernel}
    plain = without_tables(monkeypatch, **arguments)
    np.testing.assert_allclose(expected_kernel_matrix(**arguments), plain, rtol=1e-10)


def test_blocks_of_sums_agree_with_the_plain_pass(monkeypatch):
    from skcircuits import HiddenChowLiuDensity

    rng = np.random.default_rng(0)
    X = (rng.random((200, 8)) < rng.random((200, 1))).astype(float)
    model = HiddenChowLiuDensity(n_latent_states=5, max_iter=3, random_state=0).fit(X)
    assert any(layer.block_shape for layer in model.circuit_.plan.sum_layers)
    rows = X[:30].copy()
    rows[rng.random(rows.shape) < 0.5] = np.nan
    arguments = {"X": rows, "Y": X, "circuit": model.circuit_, "kernel": RBF(gamma=0.2)}
    plain = without_tables(monkeypatch, **arguments)
    np.testing.assert_allclose(expected_kernel_matrix(**arguments), plain, rtol=1e-10)


def test_few_columns_are_left_where_points_repeat():
    circuit = RandomCircuit(0, [2] * 8, joint=False).circuit()
    S = np.random.default_rng(0).integers(2, size=(500, 8)).astype(float)
    plan = multiply_by_kernel(circuit.plan, structure_of(Hamming(), circuit.variables))
    assert PointTables(plan, S).fraction < 0.2


def test_continuous_points_are_left_to_the_plain_pass(monkeypatch):
    circuit = RandomCircuit(1, [0, 0, 0], joint=False).circuit()
    monkeypatch.setattr(points, "PointTables", None)  # would fail if it were used
    X = np.array([[0.1, np.nan, 0.3]])
    S = np.random.default_rng(0).normal(size=(10, 3))
    assert isinstance(circuit, Circuit)
    assert expected_kernel_matrix(X, S, circuit=circuit, kernel=RBF(gamma=1.0)).shape == (1, 10)


@pytest.mark.parametrize("seed", range(5))
def test_combined_is_the_restriction_to_all_columns(seed):
    X = np.random.default_rng(seed).integers(3, size=(30, 3))
    whole = Restriction.of(np.unique(X, axis=0, return_inverse=True)[1].ravel())
    combined = Restriction.combined([Restriction.of(x) for x in X.T])
    assert combined.size == whole.size
    for restriction in (whole, combined):
        np.testing.assert_array_equal(X[restriction.first][restriction.inverse], X)


def test_restrictions_are_numbered_in_the_order_of_the_labels():
    restriction = Restriction.of(np.array([5, 2, 5]))
    np.testing.assert_array_equal(restriction.inverse, [1, 0, 1])
    np.testing.assert_array_equal(restriction.first, [1, 0])


def test_joint_units_at_points_of_few_values():
    """Tables by column are for units of one column: joint ones need the points as they are."""
    pairs = [MultivariateGaussian([0, 1], [m, -m], [[1.0, 0.6], [0.6, 2.0]]) for m in (0.0, 1.5)]
    circuit = Circuit(
        0.4 * pairs[0] * Gaussian(2, 0.0, 1.0) + 0.6 * pairs[1] * Gaussian(2, 1.0, 2.0)
    )
    S = np.stack(np.meshgrid([-1.0, 0.0, 2.0], [-1.0, 1.0], [0.0, 0.5, 3.0]), axis=-1).reshape(
        -1, 3
    )
    X = np.array([[np.nan, 0.3, np.nan], [0.5, np.nan, 1.0], [np.nan] * 3])
    found = expected_kernel_matrix(X, S, circuit=circuit, kernel=RBF(gamma=0.3))
    # Single points have no values in common
    alone = [expected_kernel_matrix(X, s[None], circuit=circuit, kernel=RBF(gamma=0.3)) for s in S]
    np.testing.assert_allclose(found, np.hstack(alone), rtol=1e-10)


def _mixture(seed, kinds, n_components=3, *, shares=False):
    """A mixture of products: a joint Gaussian of two columns, then a column of each kind."""
    rng = np.random.default_rng(seed)
    components = []
    for k in range(n_components):
        spread = rng.normal(size=(2, 2))
        units = [MultivariateGaussian([0, 1], rng.normal(size=2), spread @ spread.T + np.eye(2))]
        for j, kind in enumerate(kinds, 2):
            if kind == "category":
                units.append(Categorical(j, rng.dirichlet(np.ones(3))))
            elif kind == "polynomial" and k % 2:
                units.append(PiecewisePolynomial(j, [-3.0, 0.0, 2.0], [0.5, 0.5]))
            else:
                units.append(Gaussian(j, rng.normal(), 0.5 + rng.random()))
        if shares and k:
            units[-1] = components[0].children[-1]
        components.append(Product(units))
    if n_components == 1:
        return Circuit(components[0])
    return Circuit(Sum(components, weights=rng.dirichlet(np.ones(n_components))))


def _agrees_with_the_plain_pass(monkeypatch, circuit, kernel, X, S, *, is_mixture=True):
    plan = multiply_by_kernel(circuit.plan, structure_of(kernel, circuit.variables))
    assert (points._Mixture.of(plan, X, S) is not None) == is_mixture
    coefficients = np.random.default_rng(0).normal(size=(len(S), 2))
    arguments = {"circuit": circuit, "kernel": kernel}
    own = expected_kernel_matrix(X, S, **arguments)
    product = expected_kernel_dot(X, S, coefficients, **arguments)
    monkeypatch.setattr(points._Mixture, "of", lambda *_: None)
    plain = expected_kernel_matrix(X, S, **arguments)
    np.testing.assert_allclose(own, plain, rtol=1e-10)
    np.testing.assert_allclose(product, plain @ coefficients, rtol=1e-10, atol=1e-12)


def _rows(seed, kinds, n, rate):
    rng = np.random.default_rng(seed)
    is_category = np.array([False, False, *(kind == "category" for kind in kinds)])
    X = np.where(is_category, rng.integers(3, size=(n, 2 + len(kinds))), 1.0)
    X[:, ~is_category] = rng.uniform(-2.9, 1.9, size=(n, np.count_nonzero(~is_category)))
    X[rng.random(X.shape) < rate] = np.nan
    return X


@pytest.mark.parametrize("n_components", [1, 3])
@pytest.mark.parametrize(
    "kinds", [["category"] * 2, ["number"] * 3, ["category", "number", "polynomial"]]
)
def test_mixtures_of_products_agree_with_the_plain_pass(monkeypatch, kinds, n_components):
    circuit = _mixture(0, kinds, n_components)
    X, S = _rows(1, kinds, 40, 0.4), _rows(2, kinds, 30, 0.0)
    X[0] = np.nan
    labels = [j for j, kind in enumerate(kinds, 2) if kind == "category"]
    kernel = RBF(0.3, variables=[j for j in range(2 + len(kinds)) if j not in labels])
    if labels:
        kernel = kernel * Hamming(0.7, variables=labels)
    _agrees_with_the_plain_pass(monkeypatch, circuit, kernel, X, S)


def test_components_that_share_units_and_kernels_of_some_columns(monkeypatch):
    kinds = ["number", "category", "category"]
    circuit = _mixture(3, kinds, shares=True)
    X, S = _rows(4, kinds, 30, 0.5), _rows(5, kinds, 20, 0.0)
    # The kernel is zero between most rows, and does not look at the first category
    kernel = RBF(0.4, variables=[0, 1]) * Delta(variables=[4])
    _agrees_with_the_plain_pass(monkeypatch, circuit, kernel, X, S)


def test_weights_of_rows_that_hardly_any_component_explains(monkeypatch):
    kinds = ["number", "category"]
    circuit, kernel = _mixture(6, kinds), RBF(1e-3, variables=[0, 1, 2]) * Hamming(variables=[3])
    X, S = _rows(7, kinds, 20, 0.4), _rows(8, kinds, 20, 0.0)
    X[:, 2] = np.where(np.arange(20) % 2, 300.0, X[:, 2])
    _agrees_with_the_plain_pass(monkeypatch, circuit, kernel, X, S)


@pytest.mark.parametrize(
    "kernel", [Laplacian(0.3, variables=[2]), RBF(1.0, variables=[2])], ids=repr
)
def test_factors_that_no_product_gives_are_left_to_the_plain_pass(monkeypatch, kernel):
    circuit = _mixture(9, ["number"])
    X, S = _rows(10, ["number"], 10, 0.4), _rows(11, ["number"], 10, 0.0)
    if isinstance(kernel, RBF):
        X[0], S[0] = [0.0, np.nan, 1e6], [0.0, 0.0, 1e6 + 0.5]  # squares would lose the difference
    whole = RBF(0.2, variables=[0, 1]) * kernel
    _agrees_with_the_plain_pass(monkeypatch, circuit, whole, X, S, is_mixture=False)


def test_mixtures_of_categories_agree_with_enumeration():
    rng = np.random.default_rng(0)
    masses = rng.dirichlet(np.ones(3), size=(4, 2))
    masses[0, 0] = [0.0, 0.5, 0.5]
    weights = rng.dirichlet(np.ones(4))
    components = [Categorical(0, first) * Categorical(1, second) for first, second in masses]
    circuit = Circuit(Sum(components, weights=weights))
    states = np.array(list(np.ndindex(3, 3)), dtype=float)
    X = np.array([[0.0, np.nan], [np.nan, 2.0], [np.nan, np.nan]])
    for kernel in (Hamming(0.6), Delta(), RBF(0.4)):
        for row, found in zip(X, expected_kernel_matrix(X, states, circuit=circuit, kernel=kernel)):
            fits = np.all(np.isnan(row) | (states == row), axis=1)
            p = np.exp(circuit.log_prob(states[fits]))
            np.testing.assert_allclose(
                found, p @ kernel(states[fits], states) / p.sum(), rtol=1e-12
            )
