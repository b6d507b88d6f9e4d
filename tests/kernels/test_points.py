import numpy as np
import pytest

from skcircuits.circuits import Circuit, Gaussian, MultivariateGaussian
from skcircuits.kernels import RBF, Hamming, expected_kernel_matrix
from skcircuits.kernels import _points as points
from skcircuits.kernels._points import PointTables, Restriction, multiply_by_kernel
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
