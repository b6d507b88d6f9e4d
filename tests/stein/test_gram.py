"""Stein Gram matrices of categorical targets against enumeration."""

import time
from itertools import product

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.circuits import Circuit, Gaussian
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.graphical import BayesianNetwork, FactorGraph, IsingModel
from skcircuits.kernels import RBF, Delta, Hamming, Polynomial
from skcircuits.stein import _measures as expected_tables
from skcircuits.stein import stein_discrepancy, stein_gram, stein_test
from skcircuits.stein.gram import collapse_cells

STATES = [(3, 3, 3), (2, 2, 2, 2), (3, 2, 4)]
KERNELS = [Hamming(scale=1.5), RBF(gamma=0.3), 0.5 * Delta() + 0.5 * Hamming(scale=3.0)]
OPERATORS = ["barker", "difference"]

every_states = pytest.mark.parametrize("cardinalities", STATES, ids=str)
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=["hamming", "rbf", "sum"])
every_operator = pytest.mark.parametrize("operator", OPERATORS)


def random_target(cardinalities, seed=0):
    rng = np.random.default_rng(seed)
    d = len(cardinalities)
    pairs = [(i, (i + 1) % d) for i in range(d)]
    return FactorGraph(
        [(pair, rng.uniform(0.1, 1, [cardinalities[v] for v in pair])) for pair in pairs],
        cardinalities,
    )


def enumerate_target(target):
    states = np.array(list(product(*map(range, target.cardinalities))), dtype=float)
    return states, np.exp(target.log_prob_unnormalized(states) - target.log_partition())


def difference_kernel(target, kernel):
    """The published kernel, written out term by term."""
    states, p = enumerate_target(target)
    position = {tuple(state): index for index, state in enumerate(states.astype(int).tolist())}
    base = kernel(states, states)
    total = np.zeros_like(base)
    for i, k in enumerate(target.cardinalities):
        moved = states.astype(int)
        moved[:, i] = (moved[:, i] + 1) % k
        forward = [position[tuple(state)] for state in moved.tolist()]
        moved[:, i] = (moved[:, i] - 2) % k
        backward = [position[tuple(state)] for state in moved.tolist()]
        ratio = p[forward] / p
        total += np.outer(ratio, ratio) * base - ratio[:, None] * base[:, backward]
        total += base[np.ix_(backward, backward)] - base[backward] * ratio
    return total


def barker_kernel(target, kernel):
    """The Barker kernel as a sum over all pairs of moves."""
    states, p = enumerate_target(target)
    n = len(states)
    generator = np.zeros((len(target.cardinalities), n, n))
    for i in range(len(generator)):
        others = np.delete(states, i, axis=1)
        same = (others[:, None] == others[None]).all(axis=-1) & ~np.eye(n, dtype=bool)
        generator[i] = np.where(same, p / (p + p[:, None]), 0.0)
        generator[i] -= np.diag(generator[i].sum(axis=1))
    return sum(rates @ kernel(states, states) @ rates.T for rates in generator)


@every_states
@every_kernel
@every_operator
def test_stein_identity_and_definition(cardinalities, kernel, operator):
    target = random_target(cardinalities)
    states, p = enumerate_target(target)
    K = stein_gram(states, target, kernel, operator=operator)
    reference = {"barker": barker_kernel, "difference": difference_kernel}[operator]
    assert_allclose(K, reference(target, kernel), rtol=1e-10, atol=1e-10)
    assert np.abs(p @ K).max() < 1e-10
    assert_array_equal(K, K.T)
    assert np.linalg.eigvalsh(K).min() > -1e-10 * np.abs(K).max()


@every_operator
def test_kernels_without_product_form_take_the_plain_path(operator):
    target = random_target((3, 2, 4))
    states, p = enumerate_target(target)

    def plain(X, Y):
        return RBF(gamma=0.3)(X, Y)

    K = stein_gram(states, target, plain, operator=operator)
    assert_allclose(K, stein_gram(states, target, RBF(gamma=0.3), operator=operator), atol=1e-10)
    K = stein_gram(states, target, Polynomial(degree=2), operator=operator)
    assert np.abs(p @ K).max() < 1e-9


@every_operator
def test_a_target_may_be_any_object(operator):
    graph = random_target((3, 2, 4))
    states, _ = enumerate_target(graph)

    class Plain:
        cardinalities = (3, 2, 4)

        @staticmethod
        def log_prob_unnormalized(X):
            return graph.log_prob_unnormalized(X) + 7.0

    kernel = Hamming(scale=2.0)
    expected = stein_gram(states, graph, kernel, operator=operator)
    assert_allclose(stein_gram(states, Plain(), kernel, operator=operator), expected, rtol=1e-9)
    circuit = graph.compile()
    assert_allclose(stein_gram(states, circuit, kernel, operator=operator), expected, rtol=1e-9)


def test_default_operator_is_barker():
    target = random_target((2, 2, 2, 2))
    states, _ = enumerate_target(target)
    K = stein_gram(states, target, Hamming())
    assert_array_equal(K, stein_gram(states, target, Hamming(), operator="barker"))


def test_equal_rows_have_equal_entries_and_order_does_not_matter():
    target = random_target((3, 3, 3))
    rows = np.random.default_rng(0).integers(3, size=(60, 3)).astype(float)
    K = stein_gram(rows, target, Hamming())
    shuffled = np.random.default_rng(1).permutation(60)
    assert_allclose(stein_gram(rows[shuffled], target, Hamming()), K[shuffled][:, shuffled])
    assert_array_equal(
        stein_gram(np.repeat(rows[:2], 2, axis=0), target, Hamming())[:2, :2], K[0, 0]
    )


def test_variables_with_one_state_change_nothing():
    wide = FactorGraph([((0, 2), [[1.0, 2.0], [3.0, 1.0]])], [2, 1, 2])
    narrow = FactorGraph([((0, 1), [[1.0, 2.0], [3.0, 1.0]])], [2, 2])
    rows = np.array([[0, 0], [0, 1], [1, 1.0]])
    assert_allclose(
        stein_gram(np.insert(rows, 1, 0, axis=1), wide, Hamming()),
        stein_gram(rows, narrow, Hamming()),
    )


def test_no_rows_and_numbers_of_workers_that_are_none():
    model = FactorGraph([((0, 1), np.ones((2, 3)))], [2, 3])
    assert stein_gram(np.zeros((0, 2)), model, Hamming(), n_jobs=2).shape == (0, 0)
    for n_jobs in (0, 1.5, True):
        with pytest.raises(ValueError, match="n_jobs"):
            stein_gram(np.zeros((3, 2)), model, Hamming(), n_jobs=n_jobs)


def test_blocks_do_not_depend_on_workers():
    rng = np.random.default_rng(0)
    model = IsingModel.grid(4, 4, couplings=rng.normal(size=24))
    rows = rng.integers(2, size=(600, 16)).astype(float)
    kernel = Hamming(scale=16.0)
    one = stein_gram(rows, model, kernel)
    with parallel_config("threading"):
        assert_array_equal(stein_gram(rows, model, kernel, n_jobs=2), one)
    # As tasks of processes, whatever their number.
    with parallel_config("loky", n_jobs=1):
        assert_array_equal(stein_gram(rows, model, kernel), one)
    assert_array_equal(one, one.T)


def test_zeros_of_the_target():
    network = BayesianNetwork(
        [[], [0], [1]],
        [[0.3, 0.7], np.eye(2), [[0.9, 0.1], [0.2, 0.8]]],
    )
    states, p = enumerate_target(network)
    with pytest.raises(ValueError, match=r"positive everywhere.*barker.*soften"):
        stein_gram(states, network, Hamming(), operator="difference")
    with pytest.warns(UserWarning, match="the target is zero next to the samples"):
        K = stein_gram(states, network, Hamming())
    assert np.isfinite(K).all()
    assert np.abs(p @ K)[p > 0].max() < 1e-12
    soft = stein_gram(states, network.soften(0.01), Hamming(), operator="difference")
    assert np.isfinite(soft).all()


def test_wrong_operators_and_tables():
    target = random_target((2, 2, 2, 2))
    with pytest.raises(ValueError, match="operator for a categorical target must be one of"):
        stein_gram([[0, 0, 0, 0]], target, Hamming(), operator="langevin")
    with pytest.raises(ValueError, match="operator for a categorical target must be one of"):
        stein_gram([[0, 0, 0, 0]], target, Hamming(), operator=pd.DataFrame({"a": [0.0]}))
    with pytest.raises(ValueError, match="have the 4 columns of the target"):
        stein_gram([[0, 0, 0]], target, Hamming())
    with pytest.raises(ValueError, match="X must be two-dimensional"):
        stein_gram([0, 0, 0, 0], target, Hamming())
    with pytest.raises(TypeError, match="target must have log_prob_unnormalized"):
        stein_gram([[0.0]], object(), Hamming())


# ------------------------------------------------------------------------ collapsed rows


def conditionals(target, rows):
    """The conditional distribution of each collapsed row, over all states."""
    states, p = enumerate_target(target)
    agree = ((states[None] == rows[:, None]) | np.isnan(rows)[:, None]).all(axis=-1)
    weights = agree * p
    return weights / weights.sum(axis=1, keepdims=True)


def collapsed_rows(target, hidden):
    shape = [1 if v in hidden else k for v, k in enumerate(target.cardinalities)]
    rows = np.array(list(product(*map(range, shape))), dtype=float)
    rows[:, list(hidden)] = np.nan
    return rows


@every_states
@every_kernel
@pytest.mark.parametrize("hidden", [(1,), (0, 2)], ids=str)
def test_collapsed_difference_kernel_is_the_expected_stein_kernel(cardinalities, kernel, hidden):
    target = random_target(cardinalities)
    states, _ = enumerate_target(target)
    rows = collapsed_rows(target, hidden)
    W = conditionals(target, rows)
    expected = W @ stein_gram(states, target, kernel, operator="difference") @ W.T
    K = stein_gram(rows, target, kernel, operator="difference")
    assert_allclose(K, expected, rtol=1e-10, atol=1e-10)


@every_states
@every_kernel
@pytest.mark.parametrize("hidden", [(1,), (0, 2)], ids=str)
def test_collapsed_barker_kernel_is_that_of_the_marginal(cardinalities, kernel, hidden):
    target = random_target(cardinalities)
    states, _ = enumerate_target(target)
    rows = collapsed_rows(target, hidden)
    W = conditionals(target, rows)

    def expected_base(X, Y):
        # X and Y are rows of the marginal target: the collapsed columns are constant.
        return W @ kernel(states, states) @ W.T

    marginal = target.marginalize(hidden)
    expected = barker_kernel(marginal, expected_base)
    assert_allclose(stein_gram(rows, target, kernel), expected, rtol=1e-10, atol=1e-12)


@every_operator
@every_kernel
def test_every_row_may_collapse_its_own_variables(operator, kernel):
    target = random_target((3, 2, 4))
    states, _ = enumerate_target(target)
    rng = np.random.default_rng(0)
    mask = rng.random(states.shape) < 0.4
    mask[:3] = [[True] * 3, [False] * 3, [True, False, False]]
    K = stein_gram(states, target, kernel, operator=operator, collapse=mask)
    rows = np.where(mask, np.nan, states)
    if operator == "difference":
        W = conditionals(target, rows)
        expected = W @ stein_gram(states, target, kernel, operator=operator) @ W.T
        assert_allclose(K, expected, rtol=1e-10, atol=1e-10)
    # Rows with the same pattern agree with the path for one shared subset.
    shared = (mask == mask[2]).all(axis=1)
    assert_allclose(
        K[np.ix_(shared, shared)],
        stein_gram(rows[shared], target, kernel, operator=operator),
        rtol=1e-10,
        atol=1e-12,
    )
    assert_array_equal(K, K.T)
    assert np.linalg.eigvalsh(K).min() > -1e-10 * K.max()


@every_operator
def test_collapse_by_indices(operator):
    target = random_target((3, 2, 4))
    states, _ = enumerate_target(target)
    rows = states.copy()
    rows[:, [0]] = np.nan
    by_index = stein_gram(states, target, Hamming(), operator=operator, collapse=[0])
    assert_array_equal(by_index, stein_gram(rows, target, Hamming(), operator=operator))


@pytest.mark.parametrize(
    "hidden", [[0, 2, 4, 6, 8], [0, 1, 2, 4], [3, 4, 5, 7, 8]], ids=["single", "arm", "block"]
)
def test_components_and_the_pass_over_pairs_of_buckets(hidden, monkeypatch):
    rng = np.random.default_rng(0)
    model = IsingModel.grid(3, 3, couplings=rng.normal(size=12), fields=rng.normal(size=9))
    kernel = Hamming(scale=4.0)
    rows = collapsed_rows(model, hidden)
    W = conditionals(model, rows)
    states, _ = enumerate_target(model)
    expected = barker_kernel(
        model.marginalize(hidden), lambda X, Y: W @ kernel(states, states) @ W.T
    )
    assert_allclose(stein_gram(rows, model, kernel), expected, rtol=1e-10, atol=1e-12)
    monkeypatch.setattr(expected_tables, "EMBEDDED_STATES", 0)
    assert_allclose(stein_gram(rows, model, kernel), expected, rtol=1e-10, atol=1e-12)


def test_long_chains_are_collapsed_without_enumeration():
    rng = np.random.default_rng(0)
    couplings = np.diag(rng.normal(size=39), 1)
    model = IsingModel(couplings + couplings.T, rng.normal(size=40))
    rows = rng.integers(2, size=(5, 40)).astype(float)
    K = stein_gram(rows, model, Hamming(scale=40.0), collapse=np.arange(1, 39))
    # The ends see each other through the chain only; brute force over the four end states.
    ends = model.marginalize(np.arange(1, 39))
    p = np.exp(ends.log_prob_unnormalized(collapsed_ends(0)) - model.log_partition())
    everything = stein_gram(collapsed_ends(np.nan), model, Hamming(scale=40.0))
    assert np.abs(p @ everything).max() < 1e-12
    assert np.linalg.eigvalsh(K).min() > -1e-12


def collapsed_ends(middle):
    rows = np.full((4, 40), middle, dtype=float)
    rows[:, [0, 39]] = [[0, 0], [0, 1], [1, 0], [1, 1]]
    return rows


def test_collapsed_rows_that_cannot_be_served():
    target = random_target((2, 2, 2, 2))
    rows = np.zeros((2, 4))
    with pytest.raises(TypeError, match="target of collapsed samples must be a FactorGraph"):
        stein_gram(rows, target.compile(), Hamming(), collapse=[0])
    with pytest.raises(CircuitPropertyError, match="sum of products over the variables"):
        stein_gram(rows, target, Polynomial(degree=2), collapse=[0])
    with pytest.raises(ValueError, match="indices of variables or a boolean mask"):
        stein_gram(rows, target, Hamming(), collapse=[0.5])
    wide = IsingModel.grid(6, 6)
    mask = np.eye(2, 36, dtype=bool)
    with pytest.raises(CircuitPropertyError, match="collapse the same variables"):
        stein_gram(np.zeros((2, 36)), wide, Hamming(), collapse=mask)


@pytest.mark.slow
@pytest.mark.parametrize("collapse", [None, [0, 5, 6]], ids=["complete", "collapsed"])
def test_processes_and_a_dask_cluster_give_equal_entries(collapse):
    distributed = pytest.importorskip("dask.distributed")
    rng = np.random.default_rng(0)
    model = IsingModel.grid(3, 4, couplings=rng.normal(size=17))
    rows = rng.integers(2, size=(300, 12)).astype(float)
    kernel = Hamming(scale=48.0)
    one = stein_gram(rows, model, kernel, collapse=collapse)
    with parallel_config("loky"):
        assert_array_equal(stein_gram(rows, model, kernel, collapse=collapse, n_jobs=2), one)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
        parallel_config("dask"),
    ):
        assert_array_equal(stein_gram(rows, model, kernel, collapse=collapse, n_jobs=2), one)


class Odd:
    """A target whose answers are whatever they are told to be."""

    cardinalities = (2, 2)

    def __init__(self, answer):
        self.answer = answer

    def log_prob_unnormalized(self, X):
        return self.answer(len(X))


STATES = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda n: np.full(n, np.nan), r"be numbers, -inf where impossible.*value=nan"),
        (lambda n: np.full(n, np.inf), r"be numbers, -inf where impossible.*value=inf"),
        (lambda n: np.zeros((n, 1)), r"log_prob_unnormalized of the target must give .* \(6,\)"),
    ],
)
def test_targets_that_give_no_log_probabilities(answer, message):
    with pytest.raises(ValueError, match=message):
        stein_gram(STATES, Odd(answer), Hamming(2.0))


def test_score_functions_that_give_no_scores():
    class Field:
        def __init__(self, scores):
            self.grad_log_prob = lambda X: scores

    with pytest.raises(ValueError, match=r"grad_log_prob of the target must give .* \(3, 2\)"):
        stein_gram(STATES, Field(np.zeros(3)), RBF(1.0))
    scores = np.zeros((3, 2))
    scores[2, 0] = np.nan
    with pytest.raises(ValueError, match=r"Stein kernel must be finite.*row=\[1.0, 1.0\]"):
        stein_gram(STATES, Field(scores), RBF(1.0))
    with pytest.raises(ValueError, match="be complete and finite"):
        stein_gram([[np.inf, 0.0]], Field(scores[:1]), RBF(1.0))


def test_kernels_that_give_no_matrix():
    target = Odd(np.zeros)
    with pytest.raises(ValueError, match=r"kernel\(X, Y\) must have shape \(6, 6\)"):
        stein_gram(STATES, target, lambda X, Y: np.ones(len(X)))


@pytest.mark.parametrize("collapse", [[2], [-1], [0, 7]])
def test_collapsed_variables_exist(collapse):
    with pytest.raises(ValueError, match="collapse must be below 2, from 0"):
        collapse_cells(STATES, collapse)


def test_nothing_to_collapse():
    assert_array_equal(collapse_cells(STATES, []), STATES)


def test_discrepancy_of_no_samples():
    with pytest.raises(ValueError, match="X must have at least one row"):
        stein_discrepancy(STATES[:0], Odd(np.zeros), Hamming(2.0))


def test_columns_of_other_variables_are_ignored():
    rng = np.random.default_rng(0)
    model = IsingModel.grid(2, 2, couplings=0.4).compile().marginalize([1])
    states = rng.integers(2, size=(30, 4)).astype(float)
    expected = stein_gram(states * [1, 0, 1, 1], model, Hamming(3.0))
    for other in (0.0, 7.0, np.nan):
        states[:, 1] = other
        assert_allclose(stein_gram(states, model, Hamming(3.0)), expected, rtol=1e-12)
        assert 0 <= stein_test(states, model, random_state=0).pvalue <= 1
    dense = Circuit(Gaussian(0, 0.0, 1.0) * Gaussian(1, 1.0, 2.0))
    sparse = Circuit(Gaussian(0, 0.0, 1.0) * Gaussian(3, 1.0, 2.0))
    points = rng.normal(size=(20, 4))
    expected = stein_gram(points[:, [0, 3]], dense, RBF(0.5))
    for other in (0.0, 7.0 * points[:, [1, 2]], np.nan):
        points[:, [1, 2]] = other
        assert_allclose(stein_gram(points, sparse, RBF(0.5)), expected, rtol=1e-12)


def test_what_takes_too_long_is_refused_before_it_starts():
    model = IsingModel.grid(8, 8, couplings=0.2)
    X = np.random.default_rng(0).integers(2, size=(400, 64)).astype(float)
    started = time.process_time()
    with pytest.raises(CircuitPropertyError, match=r"cheap to sum out.*estimated_seconds="):
        stein_gram(X, model, Hamming(scale=64.0), collapse=np.arange(56))
    assert time.process_time() - started < 20
