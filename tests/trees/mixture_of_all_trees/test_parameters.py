import numpy as np
import pytest

from skcircuits.trees._chow_liu import PairStatistics
from skcircuits.trees._trees import StateLayout
from skcircuits.trees.mixture_of_all_trees import _learning
from skcircuits.trees.mixture_of_all_trees._learning import (
    Parameterization,
    from_contrasts,
    sum_contrasts,
    to_contrasts,
)
from skcircuits.trees.mixture_of_all_trees._model import LaplacianUpdates
from tests.trees.conftest import all_states, random_model


@pytest.mark.parametrize("cardinalities", [[2] * 6, [3] * 4, [2, 4, 3, 2], [2, 1, 3], [4]])
def test_gradient_equals_finite_differences(cardinalities):
    rng = np.random.default_rng(0)
    parameterization = Parameterization(StateLayout(cardinalities))
    vector = rng.normal(size=parameterization.size)
    states = all_states(cardinalities)
    codes = states[rng.integers(len(states), size=20)]
    weight = rng.random(20)
    weight /= weight.sum()

    def value(v):
        return weight @ parameterization.model(v).log_prob(codes)

    log_likelihood, gradient = parameterization.gradient(
        parameterization.model(vector), codes, weight
    )
    assert log_likelihood == pytest.approx(value(vector), rel=1e-12)
    step = 1e-4
    numeric = np.empty_like(vector)
    for i, unit in enumerate(step * np.eye(len(vector))):
        near = value(vector + unit) - value(vector - unit)
        far = value(vector + 2 * unit) - value(vector - 2 * unit)
        numeric[i] = (8 * near - far) / (12 * step)  # fourth order
    np.testing.assert_allclose(gradient, numeric, atol=1e-7)


@pytest.fixture
def wide_case(monkeypatch):
    """A model of few variables that counts as wide: arguments of a gradient, and the exact one."""
    model = random_model([2] * 12, seed=4)
    rng = np.random.default_rng(4)
    codes, weight = (rng.random((50, 12)) < 0.3).astype(np.int64), rng.random(50)
    parameterization = Parameterization(model.layout)
    exact = parameterization.gradient(model, codes, weight)
    monkeypatch.setattr(_learning, "_WIDE", 10)
    return parameterization, (model, codes, weight), exact


@pytest.mark.parametrize("most_changed", [0.0, 0.5, 2.0])
def test_gradients_of_wide_models_share_inverses(monkeypatch, wide_case, most_changed):
    parameterization, arguments, (exact_value, exact) = wide_case
    monkeypatch.setattr(_learning, "_MAX_CHANGED", most_changed)
    value, gradient = parameterization.gradient(*arguments)
    assert value == pytest.approx(exact_value, rel=1e-4)
    error = np.linalg.norm(gradient - exact) / np.linalg.norm(exact)
    assert 0 < error < 0.05  # neither the exact computation nor far from it


def test_few_rows_get_no_inverses_of_their_own(monkeypatch, wide_case):
    parameterization, (model, codes, weight), _ = wide_case
    exact = model.log_prob(codes[:5])
    monkeypatch.setattr(_learning, "_MAX_CHANGED", 0.0)
    monkeypatch.setattr(
        type(model), "laplacians", lambda model, dtype=None: pytest.fail("inverted alone")
    )
    value, gradient = parameterization.gradient(model, codes[:5], weight[:5])
    assert value == pytest.approx(weight[:5] @ exact, rel=1e-4)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("factor", [np.nan, 1.1])
def test_counts_that_miss_their_sum_are_computed_exactly(monkeypatch, wide_case, factor):
    parameterization, arguments, (exact_value, exact) = wide_case
    edge_counts = LaplacianUpdates.edge_counts

    def wrong(*arguments, **options):
        log_sums, counts = edge_counts(*arguments, **options)
        return log_sums, counts * factor

    monkeypatch.setattr(LaplacianUpdates, "edge_counts", wrong)
    monkeypatch.setattr(_learning, "_MAX_CHANGED", 2.0)
    value, gradient = parameterization.gradient(*arguments)
    assert value == pytest.approx(exact_value, rel=1e-12)
    np.testing.assert_allclose(gradient, exact, atol=1e-12)


def test_vector_and_model_are_inverse():
    model = random_model([2, 3, 3, 2], seed=7)
    parameterization = Parameterization(model.layout)
    statistics = PairStatistics(model.nodes, model.pairs)
    back = parameterization.model(parameterization.vector(model.weights, statistics))
    np.testing.assert_allclose(back.nodes, model.nodes, rtol=1e-12)
    np.testing.assert_allclose(back.pairs, model.pairs, rtol=1e-11)
    # Only ratios of edge weights matter.
    off = ~np.eye(4, dtype=bool)
    ratio = back.weights[off] / model.weights[off]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)


def test_threads_do_not_change_a_bit():
    parameterization = Parameterization(StateLayout([2] * 30))
    rng = np.random.default_rng(1)
    model = parameterization.model(rng.normal(size=parameterization.size))
    codes, weight = rng.integers(2, size=(600, 30)), rng.random(600)
    alone = parameterization.gradient(model, codes, weight)
    threads = parameterization.gradient(model, codes, weight, n_jobs=2)
    assert alone[0] == threads[0]
    np.testing.assert_array_equal(alone[1], threads[1])


def test_bounds():
    parameterization = Parameterization(StateLayout([2, 2, 2]))
    vector = 100 * np.random.default_rng(0).normal(size=parameterization.size)
    parameterization.bounded(vector)
    model = parameterization.model(vector)
    weights = model.weights[~np.eye(3, dtype=bool)]
    assert weights.max() / weights.min() <= np.exp(18) * (1 + 1e-12)
    assert np.isfinite(model.log_prob(all_states([2, 2, 2]))).all()


@pytest.mark.parametrize("cardinalities", [[2, 2, 2], [3, 3, 3], [4, 2, 5, 3]])
def test_extreme_parameters_still_have_their_margins(cardinalities):
    parameterization = Parameterization(StateLayout(cardinalities))
    rng = np.random.default_rng(0)
    owner = parameterization.layout.owner
    for scale in (1, 10, 100):
        vector = parameterization.bounded(scale * rng.normal(size=parameterization.size))
        model = parameterization.model(vector)
        for i, j in zip(*parameterization.layout.pairs, strict=True):
            table = model.pairs[owner == i][:, owner == j]
            np.testing.assert_allclose(table.sum(axis=1), model.nodes[owner == i], rtol=1e-12)


SHAPES = [(2, 2), (3, 2), (5, 4), (1, 3), (1, 1)]


@pytest.fixture(params=SHAPES)
def contrasts(request):
    n_rows, n_columns = request.param
    return np.random.default_rng(0).normal(size=(6, n_rows - 1, n_columns - 1)), request.param


def test_every_table_without_margins_has_its_contrasts(contrasts):
    contrasts, shape = contrasts
    tables = from_contrasts(contrasts, shape)
    np.testing.assert_allclose(tables.sum(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(tables.sum(axis=2), 0, atol=1e-14)
    np.testing.assert_allclose(to_contrasts(tables), contrasts, atol=1e-14)


def test_functions_of_the_row_or_column_do_not_count(contrasts):
    contrasts, shape = contrasts
    rng = np.random.default_rng(1)
    marginals = rng.normal(size=(6, shape[0], 1)) + rng.normal(size=(6, 1, shape[1]))
    tables = from_contrasts(contrasts, shape) + marginals
    np.testing.assert_allclose(to_contrasts(tables), contrasts, atol=1e-14)


def test_the_sum_is_the_adjoint(contrasts):
    contrasts, shape = contrasts
    tables = np.random.default_rng(1).normal(size=(6, *shape))
    there = (from_contrasts(contrasts, shape) * tables).sum()
    back = (contrasts * sum_contrasts(tables)).sum()
    assert there == pytest.approx(back, abs=1e-13)


def test_a_coordinate_moves_no_cell_further_than_itself():
    for shape in SHAPES:
        n_contrasts = (shape[0] - 1) * (shape[1] - 1)
        units = np.eye(n_contrasts).reshape(n_contrasts, shape[0] - 1, shape[1] - 1)
        assert np.abs(from_contrasts(units, shape)).max(initial=0) <= 1 + 1e-15
