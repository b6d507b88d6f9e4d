"""Low-rank Gaussian units against full ones with the same covariance."""

import pickle

import numpy as np
import pytest

from skcircuits.circuits import (
    Categorical,
    Circuit,
    FactorGaussian,
    MultivariateGaussian,
    Sum,
    entropy,
    multiply,
)
from skcircuits.kernels import RBF, expected_kernel, expected_kernel_matrix
from tests.numerics.conftest import random_rows

N_COLUMNS = 6


def random_unit(rng, n_factors=2, shared=None, scale=1.0):
    loadings = scale * rng.normal(size=(N_COLUMNS, n_factors))
    noise = scale**2 * rng.uniform(0.1, 2.0, size=N_COLUMNS)
    loadings, noise = shared or (loadings, noise)
    return FactorGaussian(range(N_COLUMNS), scale * rng.normal(size=N_COLUMNS), loadings, noise)


def dense(unit):
    return MultivariateGaussian(unit.variables, unit.mean, unit.covariance)


def mixture(kind, as_unit=lambda unit: unit):
    rng = np.random.default_rng(3)
    if kind == "one":
        return Circuit(as_unit(random_unit(rng)))
    if kind == "no factors":
        return Circuit(as_unit(random_unit(rng, 0)))
    first = random_unit(rng)
    shared = (first.loadings, first.noise_variances) if kind == "tied" else None
    units = [first, random_unit(rng, 2, shared), random_unit(rng, 2, shared), random_unit(rng)]
    terms = [
        as_unit(unit) * Categorical(N_COLUMNS, p)
        for unit, p in zip(units, rng.dirichlet(np.ones(3), 4), strict=True)
    ]
    return Circuit(Sum(terms, weights=rng.dirichlet(np.ones(4))))


def table(circuit, fraction=0.4, n_rows=40):
    X = random_rows(n_rows, N_COLUMNS, fraction)
    if len(circuit.variables) > N_COLUMNS:
        codes = np.random.default_rng(0).integers(0, 3, n_rows).astype(float)
        codes[::4] = np.nan
        X = np.column_stack([X, codes])
    return X


KINDS = ["one", "no factors", "own", "tied"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fraction", [0.0, 0.4, 0.9])
def test_queries_equal_those_of_full_covariances(kind, fraction):
    low_rank, full = mixture(kind), mixture(kind, dense)
    X = table(full, fraction)
    for query in ("log_prob", "expectation", "variance"):
        np.testing.assert_allclose(
            getattr(low_rank, query)(X), getattr(full, query)(X), rtol=1e-9, atol=1e-11
        )
    np.testing.assert_allclose(
        low_rank.mpe(X, "max_product"), full.mpe(X, "max_product"), rtol=1e-9, atol=1e-11
    )
    marginal, own = full.marginalize([1, 4]), low_rank.marginalize([1, 4])
    np.testing.assert_allclose(own.log_prob(X), marginal.log_prob(X), rtol=1e-9)
    x = np.where(np.arange(X.shape[1]) == 2, np.nan, X[3])
    np.testing.assert_allclose(
        low_rank.condition(x).log_prob(X), full.condition(x).log_prob(X), rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize("kind", ["one", "no factors"])
def test_gradients(kind):
    X = table(mixture(kind))
    np.testing.assert_allclose(
        mixture(kind).grad_log_prob(X), mixture(kind, dense).grad_log_prob(X), rtol=1e-9
    )


@pytest.mark.parametrize("kind", ["one", "own"])
def test_boxes(kind):
    lower, upper = np.full((2, N_COLUMNS + 1, 1), np.nan).transpose(0, 2, 1)
    lower[0, 0], upper[0, 2], upper[0, 3] = -0.5, 0.7, 1.0
    full = mixture(kind, dense)
    lower, upper = lower[:, : len(full.variables)], upper[:, : len(full.variables)]
    np.testing.assert_allclose(
        mixture(kind).log_prob_box(lower, upper), full.log_prob_box(lower, upper), rtol=1e-9
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fraction", [0.0, 0.4, 0.9])
def test_expected_kernels(kind, fraction):
    low_rank, full = mixture(kind), mixture(kind, dense)
    X = table(full, fraction)
    points = np.nan_to_num(table(full, 0.0, 15))
    kernel = RBF(gamma=0.3, variables=[0, 1, 2, 4]) * RBF(gamma=0.05, variables=[3])
    for targets in (points, X[:4]):
        np.testing.assert_allclose(
            expected_kernel_matrix(X, targets, circuit=low_rank, kernel=kernel),
            expected_kernel_matrix(X, targets, circuit=full, kernel=kernel),
            rtol=1e-9,
            atol=1e-14,
        )
    assert expected_kernel(low_rank, low_rank, kernel) == pytest.approx(
        expected_kernel(full, full, kernel), rel=1e-9
    )


def test_small_noise_and_extreme_scales():
    for scale in (1e-6, 1e6):
        unit = random_unit(np.random.default_rng(0), 3, scale=scale)
        X = scale * random_rows(30, N_COLUMNS, 0.4)
        expected = Circuit(dense(unit)).log_prob(X)
        np.testing.assert_allclose(Circuit(unit).log_prob(X), expected, rtol=1e-9)
    # Two columns that differ by noise of 1e-7: the dense covariance has no digits left
    unit = FactorGaussian([0, 1], [0.0, 0.0], [[1.0], [1.0]], [1e-14, 1e-14])
    x = np.array([[0.5, 0.5 + 1e-7]])
    # the mean of both is N(0, 1), their difference N(0, 2e-14)
    by_hand = -0.5 * (0.5 + 0.5e-7) ** 2 - 0.5 * 1e-14 / 2e-14
    by_hand -= 0.5 * np.log(2e-14) + np.log(2 * np.pi)
    by_hand += 0.5 * np.log(2e-14 * 1.0) - 0.5 * np.log(2.0 * 1e-14)
    assert Circuit(unit).log_prob(x)[0] == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize("kind", ["one", "own"])
def test_draws(kind):
    circuit = mixture(kind)
    x = table(circuit)[5:6]
    drawn = circuit.sample(40_000, X=x, random_state=0)[:, 0]
    mean, variance = circuit.expectation(x)[0], circuit.variance(x)[0]
    numbers = slice(0, N_COLUMNS)
    error = 5 * np.sqrt(variance[numbers] / 40_000) + 1e-12
    assert (abs(drawn.mean(axis=0) - mean)[numbers] < error).all()
    np.testing.assert_allclose(drawn.var(axis=0)[numbers], variance[numbers], rtol=0.05, atol=1e-12)


def test_rows_apart_and_together_and_in_blocks():
    circuit = mixture("tied")
    X = table(circuit, 0.3, 3000)
    together = circuit.log_prob(X)
    apart = np.concatenate([circuit.log_prob(X[i : i + 1]) for i in range(0, 3000, 100)])
    np.testing.assert_allclose(together[::100], apart, rtol=1e-12)


def test_files_pickles_and_clones(tmp_path):
    circuit = mixture("tied")
    circuit.save(tmp_path / "circuit.npz")
    X = table(circuit)
    for copy in (Circuit.load(tmp_path / "circuit.npz"), pickle.loads(pickle.dumps(circuit))):
        np.testing.assert_array_equal(copy.log_prob(X), circuit.log_prob(X))
        assert copy.n_parameters == circuit.n_parameters


def test_parameters_are_counted_once():
    # means, loadings up to a rotation, noise
    own = N_COLUMNS + (N_COLUMNS * 2 - 1) + N_COLUMNS
    assert mixture("one").n_parameters == own
    # one of the four has a covariance of its own; three tables of two, three weights
    assert mixture("tied").n_parameters == 2 * own + 2 * N_COLUMNS + 4 * 2 + 3


def test_algebra_by_dense_covariances():
    one, other = mixture("one"), Circuit(random_unit(np.random.default_rng(9)))
    expected = multiply(mixture("one", dense), Circuit(dense(other.root)))
    X = table(one)
    np.testing.assert_allclose(multiply(one, other).log_prob(X), expected.log_prob(X), rtol=1e-9)
    assert entropy(one) == pytest.approx(entropy(mixture("one", dense)), rel=1e-9)


def test_variables_are_sorted_and_parameters_frozen():
    unit = FactorGaussian([3, 1], [1.0, 2.0], [[0.5], [0.1]], [1.0, 2.0])
    assert unit.scope == (1, 3)
    assert unit.mean.tolist() == [2.0, 1.0]
    assert unit.loadings.ravel().tolist() == [0.1, 0.5]
    for array in (unit.mean, unit.loadings, unit.noise_variances, unit.covariance):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([0, 0], [0, 0], [[1], [1]], [1, 1]), "distinct"),
        (([0, 1], [0, 0], [[1]], [1, 1]), "shapes"),
        (([0, 1], [0], [[1], [1]], [1, 1]), "shapes"),
        (([0, 1], [0, 0], [[1], [1]], [1]), "shapes"),
        (([0, 1], [0, np.inf], [[1], [1]], [1, 1]), "finite"),
        (([0, 1], [0, 0], [[1], [1]], [1, 0]), "be positive; got smallest=0.0"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        FactorGaussian(*arguments)
