import numpy as np
import pytest

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    MultivariateGaussian,
    Product,
    Sum,
)
from skcircuits.circuits.structure.units import topological_order
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.learning import expectation_maximization, fit_parameters
from tests.reference.random_circuits import RandomCircuit, random_rows

MIXED = [2, 3, 0, 0, 4]


def log_densities(circuit, X, n_steps, **kwargs):
    steps = expectation_maximization(circuit, X, **kwargs)
    return [next(steps).log_density for _ in range(n_steps)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_likelihood_never_falls(seed, missing):
    circuit = RandomCircuit(seed, MIXED, structured=seed % 2 == 0).circuit()
    X = random_rows(np.random.default_rng(seed), circuit, 60, missing)
    trace = log_densities(circuit, X, 6, pseudo_count=0.0)
    # The floor under variances may cost a little, nothing else may.
    assert np.all(np.diff(trace) > -1e-4)


def test_step_matches_enumerated_responsibilities():
    rng = np.random.default_rng(0)
    weights = np.array([0.3, 0.7])
    left, right = rng.dirichlet(np.ones(3), 2), rng.dirichlet(np.ones(2), 2)
    parts = [Categorical(0, left[c]) * Categorical(1, right[c]) for c in range(2)]
    X = np.array([[0, 1], [2, np.nan], [np.nan, 0], [1, 1], [np.nan, np.nan]], dtype=float)
    w = np.array([1.0, 2.0, 0.5, 3.0, 1.0])
    fitted = fit_parameters(Circuit(Sum(parts, weights)), X, w, pseudo_count=0.0, max_iter=1)

    # Expected counts by enumerating component and both cells.
    joint = weights[:, None, None] * left[:, :, None] * right[:, None, :]
    counts = np.zeros_like(joint)
    for row, weight in zip(X, w):
        allowed = np.ones((3, 2), dtype=bool)
        if not np.isnan(row[0]):
            allowed &= (np.arange(3) == row[0])[:, None]
        if not np.isnan(row[1]):
            allowed &= np.arange(2) == row[1]
        posterior = joint * allowed
        counts += weight * posterior / posterior.sum()
    np.testing.assert_allclose(fitted.root.weights, counts.sum(axis=(1, 2)) / w.sum(), rtol=1e-12)
    for c, part in enumerate(fitted.root.children):
        first, second = part.children
        fraction = counts[c] / counts[c].sum()
        np.testing.assert_allclose(first.probabilities, fraction.sum(axis=1), rtol=1e-12)
        np.testing.assert_allclose(second.probabilities, fraction.sum(axis=0), rtol=1e-12)


def test_deterministic_circuits_take_one_step():
    rng = np.random.default_rng(1)
    branches = [Indicator(0, s, 3) * Bernoulli(1, rng.random()) for s in range(3)]
    circuit = Circuit(Sum(branches, rng.dirichlet(np.ones(3))))
    X = np.column_stack([rng.integers(3, size=50), rng.integers(2, size=50)]).astype(float)
    once = fit_parameters(circuit, X, pseudo_count=1.0, max_iter=1)
    often = fit_parameters(circuit, X, pseudo_count=1.0, max_iter=20, tol=0.0)
    np.testing.assert_array_equal(once.root.weights, often.root.weights)
    counts = np.bincount(X[:, 0].astype(int), minlength=3)
    np.testing.assert_allclose(once.root.weights, (counts + 1 / 3) / 51, rtol=1e-14)
    for state, branch in enumerate(once.root.children):
        ones = X[X[:, 0] == state, 1].sum()
        assert branch.children[1].p == pytest.approx((ones + 0.5) / (counts[state] + 1))


def test_folded_and_plain_sums_agree():
    rng = np.random.default_rng(2)
    n_states = 5
    leaves = [Categorical(0, rng.dirichlet(np.ones(4))) for _ in range(n_states)]
    sums = [Sum(leaves, rng.dirichlet(np.ones(n_states))) for _ in range(n_states)]
    factors = [Categorical(1, rng.dirichlet(np.ones(3))) for _ in range(n_states)]
    root = Sum([a * b for a, b in zip(sums, factors)], rng.dirichlet(np.ones(n_states)))
    circuit = Circuit(root)
    assert any(layer.block_shape for layer in circuit.plan.sum_layers)
    X = random_rows(rng, circuit, 40, 0.3)
    fitted = fit_parameters(circuit, X, max_iter=3, tol=-np.inf)

    plain = Circuit(_unshared_order(root))
    assert not any(layer.block_shape for layer in plain.plan.sum_layers)
    other = fit_parameters(plain, X, max_iter=3, tol=-np.inf)
    np.testing.assert_allclose(fitted.log_prob(X), other.log_prob(X), rtol=1e-10, atol=1e-12)


def _unshared_order(root):
    """The same circuit with the children of each inner sum rotated: no two lists are equal."""
    products = []
    for shift, product in enumerate(root.children):
        inner, factor = product.children
        order = np.roll(np.arange(len(inner.children)), shift)
        rotated = Sum([inner.children[i] for i in order], inner.weights[order])
        products.append(Product([rotated, factor]))
    return Sum(products, root.weights)


def test_structural_zeros_and_sharing_stay():
    shared = Bernoulli(1, 0.4)
    inner = Sum([shared, Bernoulli(1, 0.9)], [1.0, 0.0])
    circuit = Circuit(0.5 * Indicator(0, 0, 2) * shared + 0.5 * Indicator(0, 1, 2) * inner)
    X = np.array([[0, 1], [1, 1], [1, 0], [1, 0.0]])
    fitted = fit_parameters(circuit, X, pseudo_count=0.0)
    left, right = fitted.root.children
    assert right.children[1].weights.tolist() == [1.0, 0.0]
    assert right.children[1].children[0] is left.children[1]
    assert left.children[1].p == pytest.approx(0.5)


def test_unreached_units_keep_their_parameters():
    circuit = Circuit(
        0.5 * Indicator(0, 0, 2) * Gaussian(1, 7.0, 2.0)
        + 0.5 * Indicator(0, 1, 2) * Gaussian(1, 0.0, 1.0)
    )
    X = np.array([[1.0, 3.0], [1.0, 5.0]])
    fitted = fit_parameters(circuit, X, pseudo_count=0.0)
    kept, learned = (product.children[1] for product in fitted.root.children)
    assert (kept.mean, kept.std) == (7.0, 2.0)
    assert learned.mean == pytest.approx(4.0)
    assert learned.std == pytest.approx(1.0)


def test_weights_repeat_rows():
    circuit = RandomCircuit(3, MIXED).circuit()
    X = random_rows(np.random.default_rng(3), circuit, 20)
    weight = np.arange(20) % 3
    weighted = fit_parameters(circuit, X, weight, max_iter=3)
    repeated = fit_parameters(circuit, np.repeat(X, weight, axis=0), max_iter=3)
    np.testing.assert_allclose(weighted.log_prob(X), repeated.log_prob(X), rtol=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.35])
def test_multivariate_gaussian_step_is_exact(missing):
    rng = np.random.default_rng(4)
    mean, factor = rng.normal(size=3), rng.normal(size=(3, 3))
    covariance = factor @ factor.T + np.eye(3)
    X = rng.multivariate_normal([1.0, 2.0, 3.0], np.eye(3) + 0.5, size=30)
    X[rng.random(X.shape) < missing] = np.nan
    unit = MultivariateGaussian([0, 1, 2], mean, covariance)
    fitted = fit_parameters(Circuit(unit), X, pseudo_count=0.0, max_iter=1).root

    first, second = np.zeros(3), np.zeros((3, 3))
    for row in X:
        unknown = np.isnan(row)
        gain = covariance[unknown][:, ~unknown] @ np.linalg.pinv(covariance[~unknown][:, ~unknown])
        filled = row.copy()
        filled[unknown] = mean[unknown] + gain @ (row - mean)[~unknown]
        spread = np.zeros((3, 3))
        spread[np.ix_(unknown, unknown)] = (
            covariance[np.ix_(unknown, unknown)] - gain @ covariance[~unknown][:, unknown]
        )
        first += filled / len(X)
        second += (np.outer(filled, filled) + spread) / len(X)
    np.testing.assert_allclose(fitted.mean, first, rtol=1e-10)
    np.testing.assert_allclose(fitted.covariance, second - np.outer(first, first), rtol=1e-4)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_scale_of_continuous_columns_does_not_matter(scale):
    rng = np.random.default_rng(5)
    X = np.concatenate([rng.normal(0, 1, 40), rng.normal(50, 2, 60)])[:, None] * scale
    start = Circuit(
        0.5 * Gaussian(0, 10 * scale, 9 * scale) + 0.5 * Gaussian(0, 40 * scale, 9 * scale)
    )
    fitted = fit_parameters(start, X, pseudo_count=0.0)
    np.testing.assert_allclose(fitted.root.weights, [0.4, 0.6], atol=1e-6)
    low, high = fitted.root.children
    assert low.mean == pytest.approx(X[:40].mean())
    assert high.std == pytest.approx(X[40:].std(), rel=1e-4)


def test_constant_and_empty_columns_stay_finite():
    circuit = Circuit(Gaussian(0, 0.0, 1.0) * Gaussian(1, 0.0, 1.0) * Bernoulli(2, 0.5))
    X = np.array([[3.0, np.nan, np.nan], [3.0, np.nan, np.nan]])
    fitted = fit_parameters(circuit, X)
    assert np.isfinite(fitted.log_prob(X)).all()
    for unit in topological_order(fitted.root):
        if isinstance(unit, Gaussian):
            assert unit.std > 0


def test_impossible_rows_are_left_out_and_refused_when_alone():
    circuit = Circuit(0.5 * Indicator(0, 0, 3) + 0.5 * Indicator(0, 1, 3))
    fitted = fit_parameters(circuit, [[0.0], [2.0], [1.0], [1.0]], pseudo_count=0.0)
    np.testing.assert_allclose(fitted.root.weights, [1 / 3, 2 / 3])
    with pytest.raises(ValueError, match="must be possible under the circuit"):
        fit_parameters(circuit, [[2.0]])


def test_clear_errors():
    ragged = Circuit(0.5 * Bernoulli(0, 0.2) + 0.5 * Bernoulli(1, 0.2))
    with pytest.raises(CircuitPropertyError, match="smooth and decomposable"):
        fit_parameters(ragged, [[0.0, 1.0]])
    with pytest.raises(ValueError, match=r"X must be a table with at least 3 columns.*\(5, 2\)"):
        fit_parameters(Circuit(Bernoulli(2, 0.5)), np.zeros((5, 2)))
    with pytest.raises(ValueError, match="sample_weight must hold 1"):
        fit_parameters(Circuit(Bernoulli(0, 0.2)), [[0.0]], [1.0, 2.0])


def test_result_is_normalised():
    circuit = Circuit(Sum([Bernoulli(0, 0.2), Bernoulli(0, 0.7)], weights=[3.0, 5.0]))
    assert fit_parameters(circuit, [[0.0], [1.0]]).log_partition == pytest.approx(0.0, abs=1e-12)
