"""Stein discrepancies variable by variable: exact parts, calibrated and adjusted p-values."""

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.circuits import Circuit, Gaussian
from skcircuits.graphical import BayesianNetwork, FactorGraph, GaussianMRF, IsingModel
from skcircuits.kernels import RBF, Hamming
from skcircuits.stein import InverseMultiquadric, stein_diagnosis, stein_discrepancy, stein_test


@pytest.fixture
def field():
    return GaussianMRF.from_moments([1.0, -1.0, 0.0], np.eye(3) + 0.4)


@pytest.fixture
def model():
    return IsingModel.grid(2, 3, couplings=0.4, fields=0.2)


@pytest.mark.parametrize("kernel", [RBF(0.3), InverseMultiquadric(2.0)])
def test_parts_add_up_to_the_whole(field, kernel):
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[5] = X[9]
    found = stein_diagnosis(X, field, kernel, n_bootstrap=50, random_state=0)
    whole = stein_test(X, field, kernel, n_bootstrap=50, random_state=0)
    assert_allclose(found.statistics.sum(), whole.statistic, rtol=1e-10)
    assert found.pvalue == pytest.approx(whole.pvalue)
    parts = {"ends": [0, 2], "middle": [1]}
    grouped = stein_diagnosis(X, field, kernel, parts=parts, n_bootstrap=50, random_state=0)
    assert grouped.names == ("ends", "middle")
    assert_allclose(grouped.statistics[0], found.statistics[[0, 2]].sum())


def test_coordinate_terms_are_those_of_the_formula(field):
    X = np.random.default_rng(0).normal(size=(5, 3))
    found = stein_diagnosis(X, field, RBF(0.3), n_bootstrap=2, random_state=0)
    scores = field.grad_log_prob(X)
    for j in range(3):
        delta = X[:, None] - X[None]
        k = np.exp(-0.3 * (delta**2).sum(axis=2))
        s, x = scores[:, j], X[:, j]
        difference = x[:, None] - x[None]
        terms = k * (
            np.outer(s, s)
            + 0.6 * difference * (s[:, None] - s[None])
            + 0.6
            - (0.6 * difference) ** 2
        )
        expected = (terms.sum() - np.trace(terms)) / 20
        assert_allclose(found.statistics[j], expected, rtol=1e-9)


@pytest.mark.parametrize("kernel", [Hamming(4.0), lambda X, Y: Hamming(4.0)(X, Y)])
def test_discrete_parts_add_up(model, kernel):
    X = np.random.default_rng(0).integers(2, size=(50, 6)).astype(float)
    found = stein_diagnosis(X, model, kernel, n_bootstrap=20, random_state=0)
    whole = stein_test(X, model, kernel, n_bootstrap=20, random_state=0)
    assert_allclose(found.statistics.sum(), whole.statistic, rtol=1e-10)


def test_pvalues_are_calibrated_over_all_parts(model):
    least = [
        stein_diagnosis(
            model.sample(60, random_state=seed), model, n_bootstrap=99, random_state=seed
        ).pvalues.min()
        for seed in range(40)
    ]
    assert np.mean(np.array(least) <= 0.1) < 0.25
    assert np.mean(least) > 0.3


def test_it_names_the_part_that_has_not_mixed(field):
    X = field.sample(200, np.random.default_rng(0))
    X[:, 2] = 0.3 * X[:, 2]
    found = stein_diagnosis(X, field, random_state=0)
    assert found.pvalues[2] < 0.05 and found.excess.argmax() == 2
    assert found.pvalue < 0.05


def test_names_and_columns():
    network = BayesianNetwork([[], [0]], [[0.9, 0.1], np.eye(2)], variable_names=["rain", "wet"])
    rows = np.array([[0, 0], [1, 1]] * 5)
    with pytest.warns(UserWarning, match=r"variables \['rain', 'wet'\] have no other"):
        found = stein_diagnosis(rows, network, n_bootstrap=5, random_state=0)
    assert found.names == found.unmoved == ("rain", "wet")
    # A circuit that leaves a column out.
    circuit = Circuit(Gaussian(0, 0.0, 1.0) * Gaussian(2, 0.0, 1.0))
    X = np.random.default_rng(0).normal(size=(40, 3)) * [1.0, 1.0, 3.0]
    found = stein_diagnosis(X, circuit, n_bootstrap=50, random_state=0)
    assert found.names == ("0", "2") and found.pvalues[1] < 0.05


def test_jobs_do_not_change_a_diagnosis(model):
    X = model.sample(40, random_state=0)
    one = stein_diagnosis(X, model, n_bootstrap=10, random_state=0)
    test, discrepancy = stein_test(X, model, random_state=0), stein_discrepancy(X, model, Hamming())
    with parallel_config("threading"):
        two = stein_diagnosis(X, model, n_bootstrap=10, n_jobs=2, random_state=0)
        assert stein_test(X, model, n_jobs=2, random_state=0) == test
        assert stein_discrepancy(X, model, Hamming(), n_jobs=2) == discrepancy
    assert_array_equal(one.statistics, two.statistics)
    assert_array_equal(one.pvalues, two.pvalues)


def test_wrong_parts_are_refused():
    graph = FactorGraph([((0,), [1.0, 2.0])], [2])
    rows = np.zeros((3, 1))
    for parts in ({"a": [1]}, {"a": [0.5]}, {"a": []}):
        with pytest.raises(ValueError, match="variables of part 'a' must be indices below 1"):
            stein_diagnosis(rows, graph, parts=parts)
    with pytest.raises(ValueError, match="parts must be a dict"):
        stein_diagnosis(rows, graph, parts=[0])
    with pytest.raises(ValueError, match="must be complete"):
        stein_diagnosis(np.full((3, 1), np.nan), graph)
