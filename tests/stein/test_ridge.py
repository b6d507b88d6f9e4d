"""The ridge of Stein weights: leave-one-out errors, and what zeros and noise make of them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.stein._ridge import (
    MAX_PRODUCTS,
    RIDGES,
    _leave_groups_out,
    _leave_one_out,
    _Spectrum,
    coordinate_functions,
    learn_model,
    reach,
    reliance,
    similar_rows,
    squared_change,
    state_functions,
)


@pytest.fixture
def gram():
    factor = np.random.default_rng(0).normal(size=(12, 4))
    K = factor @ factor.T
    return K / K.diagonal().mean()


def test_errors_are_those_of_rows_left_out(gram):
    rng = np.random.default_rng(1)
    counts, functions = rng.integers(1, 4, size=12), rng.normal(size=(12, 2))
    found = _leave_one_out(_Spectrum.of(gram, counts), counts, functions)
    for index, ridge in [(8, RIDGES[8]), (14, RIDGES[14])]:
        covariance = gram + np.diag(ridge / counts)
        errors, log_variances = np.empty((12, 2)), np.empty(12)
        for row in range(12):
            others = np.delete(np.arange(12), row)
            inverse = np.linalg.inv(covariance[np.ix_(others, others)])
            # Generalised least squares for the constant, then the conditional mean.
            constant = inverse.sum(axis=0) @ functions[others] / inverse.sum()
            known = functions[others] - constant
            errors[row] = functions[row] - constant - gram[row, others] @ inverse @ known
            left = 1.0 - gram[row, others] @ inverse.sum(axis=1)
            variance = covariance[row, row] - gram[row, others] @ inverse @ gram[row, others]
            log_variances[row] = np.log(variance + left**2 / inverse.sum())
        assert_allclose(found.squares[index], (errors**2).mean(axis=0), rtol=1e-8)
        scales = (errors**2 / np.exp(log_variances)[:, None]).mean(axis=0)
        assert_allclose(found.scales[index], scales, rtol=1e-8)
        deviances = scales * np.exp(log_variances.mean())
        assert_allclose(found.deviances[index], deviances, rtol=1e-8)


def test_errors_of_groups_left_out(gram):
    rng = np.random.default_rng(1)
    counts, functions = rng.integers(1, 4, size=12), rng.normal(size=(12, 2))
    groups = [np.array([0, 5, 7]), np.array([1]), np.array([2, 3, 4, 6, 8, 9, 10, 11])]
    found = _leave_groups_out(_Spectrum.of(gram, counts), functions, groups)
    alone = _leave_groups_out(_Spectrum.of(gram, counts), functions, list(np.arange(12)[:, None]))
    assert_allclose(
        alone, _leave_one_out(_Spectrum.of(gram, counts), counts, functions).squares, rtol=1e-7
    )
    for index, ridge in [(8, RIDGES[8]), (14, RIDGES[14])]:
        covariance = gram + np.diag(ridge / counts)
        errors = np.empty((12, 2))
        for group in groups:
            others = np.setdiff1d(np.arange(12), group)
            inverse = np.linalg.inv(covariance[np.ix_(others, others)])
            constant = inverse.sum(axis=0) @ functions[others] / inverse.sum()
            predicted = gram[np.ix_(group, others)] @ inverse @ (functions[others] - constant)
            errors[group] = functions[group] - constant - predicted
        assert_allclose(found[index], (errors**2).mean(axis=0), rtol=1e-8)


def test_groups_are_of_similar_rows_and_of_equal_size():
    rng = np.random.default_rng(0)
    corners = np.repeat(10.0 * np.array([[0, 0, 0], [5, 0, 0], [0, 2, 0], [5, 2, 0]]), 7, axis=0)
    order = rng.permutation(28)
    groups = similar_rows((corners + rng.normal(size=(28, 3)))[order], 4)
    assert sorted(sorted((order[group] // 7).tolist()) for group in groups) == [
        [corner] * 7 for corner in range(4)
    ]
    everyone = np.sort(np.concatenate(similar_rows(rng.normal(size=(50, 2)))))
    assert_allclose(everyone, np.arange(50))
    assert sorted(len(group) for group in similar_rows(np.zeros((3, 1)))) == [1, 1, 1]


def test_rows_of_one_chain_do_not_vouch_for_weights_of_the_chain():
    # Each of sixteen chains stays where it is: its rows tell of one another, and of no other chain.
    rng = np.random.default_rng(0)
    corners = np.repeat(np.arange(16), 6)
    lengths = rng.exponential(size=16)
    factor = np.hstack([np.diag(lengths)[corners], 0.1 * rng.normal(size=(96, 3))])
    K, counts = factor @ factor.T, np.ones(96, dtype=np.int64)
    places = np.array([8.0, 4.0, 2.0, 1.0]) * (corners[:, None] >> np.arange(4) & 1)
    functions = places + 0.01 * rng.normal(size=(96, 4))
    options = {"prior": 0.3, "is_smooth": False}
    found = _leave_one_out(_Spectrum.of(K / K.diagonal().mean(), counts), counts, functions)
    expected = (found.squares / found.squares[-1]).mean(axis=1) * found.inflation
    free, held = (
        learn_model(K, counts, [functions], is_broken=is_broken, **options).ridge
        for is_broken in (False, True)
    )
    # With one row left out at a time a small ridge promises much.
    promising = expected.argmin()
    assert expected[promising] < 0.5
    assert held >= 100.0 * RIDGES[promising] >= free


def test_noise_wants_a_large_ridge_and_what_the_kernel_explains_a_small_one():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(100, 3))
    K, counts = factor @ factor.T, np.ones(100, dtype=np.int64)
    noise, explained = rng.normal(size=(100, 5)), 1.0 + factor @ rng.normal(size=(3, 5))
    assert learn_model(K, counts, [noise], prior=0.3).ridge >= 10.0
    assert learn_model(K, counts, [explained], prior=0.3).ridge <= 0.01
    assert learn_model(1e6 * K, counts, [explained], prior=0.3).ridge <= 0.01


def test_indicators_take_the_ridge_of_the_least_errors(gram):
    indicators = (np.random.default_rng(0).random((12, 5)) < 0.4).astype(float)
    counts = np.ones(12, dtype=np.int64)
    found = _leave_one_out(_Spectrum.of(gram, counts), counts, indicators)
    errors = (found.squares / found.squares[-1]).mean(axis=1)
    model = learn_model(gram, counts, [indicators], prior=0.3, is_smooth=False)
    assert errors[model.ridge == RIDGES] <= 1.1 * errors.min()
    assert model.error(1.0, np.full(12, 1 / 12), counts) == 0.0


def test_a_broken_target_may_not_lose_a_family():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(60, 3)) ** 3
    K, counts = factor @ factor.T, np.ones(60, dtype=np.int64)
    families = [factor + 0.3 * rng.normal(size=(60, 3)), rng.normal(size=(60, 3))]
    whole = learn_model(K, counts, families, prior=0.3).ridge
    broken = learn_model(K, counts, families, prior=0.3, is_broken=True).ridge
    assert broken > whole

    def variance_of_noise(ridge):
        weights = np.linalg.solve(K / K.diagonal().mean() + ridge * np.eye(60), np.ones(60))
        weights = np.maximum(weights, 0.0) / np.maximum(weights, 0.0).sum()
        return 60 * (weights**2).sum()

    assert variance_of_noise(broken) < 1.1 < variance_of_noise(whole)


def test_uneven_weights_count_where_a_target_is_broken():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(60, 3)) ** 3
    K, counts = factor @ factor.T, np.ones(60, dtype=np.int64)
    functions = factor + 4.0 * rng.normal(size=(60, 3))
    options = {"prior": 0.3, "is_smooth": False}
    whole = learn_model(K, counts, [functions], **options).ridge
    broken = learn_model(K, counts, [functions], is_broken=True, **options).ridge
    found = _leave_one_out(_Spectrum.of(K / K.diagonal().mean(), counts), counts, functions)
    variances = (found.squares / found.squares[-1]).mean(axis=1) * found.inflation
    at_whole, at_broken = (variances[np.isclose(RIDGES, ridge)] for ridge in (whole, broken))
    assert broken > whole and at_broken < 0.99 * at_whole


def test_too_little_to_see_leaves_the_prior(gram):
    constant = np.ones((12, 1))
    assert learn_model(gram, np.ones(12), [constant], prior=0.17).ridge == 0.17
    assert learn_model(gram[:2, :2], np.ones(2), [np.eye(2)], prior=0.17).ridge == 0.17
    assert learn_model(np.zeros((4, 4)), np.ones(4), [np.eye(4)], prior=0.17).ridge == 0.17


def test_functions_are_marginals_and_products():
    tables = [np.array([[0.2, 0.8], [1.0, 0.0]]), np.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]])]
    singles, products = state_functions(tables)
    assert_allclose(singles, [[0.2, 0.5, 0.3], [1.0, 0.0, 1.0]])
    assert products.shape == (2, 6)
    assert_allclose(np.sort(products[1]), [0, 0, 0, 1, 1, 1])
    singles, products = coordinate_functions(np.array([[1.0, 2.0], [3.0, 8.0], [2.0, 5.0]]))
    assert_allclose(singles, [[-1, -1], [1, 1], [0, 0]])
    assert_allclose(products, [[1, 1, 1], [1, 1, 1], [0, 0, 0]])


def test_products_of_neighbours_come_first():
    rng = np.random.default_rng(0)
    first = (rng.random((5, 40)) < 0.5).astype(float)
    tables = [np.column_stack([column, 1.0 - column]) for column in first.T]
    neighbors = [[1], [0, 2], [1], *[[]] * 37]
    products = state_functions(tables, neighbors)[1]
    assert products.shape == (5, MAX_PRODUCTS)
    along = [first[:, 0] * first[:, 1], first[:, 1] * first[:, 2]]
    assert_allclose(np.sort(products[:, :2], axis=1), np.sort(np.transpose(along), axis=1))


def test_expected_errors_are_those_of_draws_from_the_model():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(150, 4))
    K, counts = factor @ factor.T, np.ones(150, dtype=np.int64)
    functions = 2.0 + factor @ rng.normal(size=(4, 40)) + 0.5 * rng.normal(size=(150, 40))
    model = learn_model(K, counts, [functions], prior=0.06)
    weights = rng.dirichlet(np.ones(150))
    value = weights @ K @ weights / K.diagonal().mean()
    errors = (weights @ functions - 2.0) ** 2 / functions.var(axis=0)
    assert model.error(value, weights, counts) == pytest.approx(errors.mean(), rel=0.5)


def test_weights_are_relied_on_where_their_error_is_the_smaller_one():
    assert reliance(0.0) == 1.0
    assert reliance(1e-4) > 0.99
    assert reliance(2.0) < 0.05
    # A change no larger than noise: both errors add up to it.
    assert reliance(0.002, 0.008, 100) == pytest.approx(0.75)
    assert reliance(0.009, 0.008, 100) == 0.0
    # Beyond noise only what no error explains tells that uniform weights are worse than usual.
    assert reliance(0.002, 0.03, 100) == reliance(0.002)
    assert reliance(0.1, 4.0, 100) > 0.95 > 0.6 > reliance(0.1)


def test_weights_reach_as_far_as_independent_samples_would():
    assert reach(0.0, 100) == reach(0.01, 100) == 1.0
    assert reach(0.04, 100) == pytest.approx(0.25)
    assert reach(0.04, 400) == pytest.approx(0.0625)


def test_change_is_that_of_all_functions(monkeypatch):
    rng = np.random.default_rng(0)
    X, weights, counts = rng.normal(size=(50, 3)), rng.dirichlet(np.ones(50)), np.ones(50)
    X[:, 2] = 1.0
    changes = []
    for functions in coordinate_functions(X):
        varying = functions[:, functions.std(axis=0) > 0]
        difference = weights @ varying - varying.mean(axis=0)
        changes.append((difference**2 / varying.var(axis=0)).mean())
    assert_allclose(squared_change(X, weights, counts), np.mean(changes))
    monkeypatch.setattr("skcircuits.stein._ridge.CHUNK_ROWS", 7)
    assert_allclose(squared_change(X, weights, counts), np.mean(changes))
    assert squared_change(np.ones((5, 2)), np.full(5, 0.2), np.ones(5)) == 0.0
