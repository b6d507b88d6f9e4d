import numpy as np
import pytest

from skcircuits.trees.mixture_of_all_trees._model import LaplacianUpdates
from tests.trees.conftest import all_states, random_model


def _case(cardinalities, seed):
    model = random_model(cardinalities, seed=seed)
    rng = np.random.default_rng(seed)
    states = all_states(cardinalities)
    codes = states[rng.integers(len(states), size=40)]
    return model, codes, rng.random(40)


@pytest.mark.parametrize("cardinalities", [[2] * 7, [3, 2, 4, 1, 2, 3], [2, 1, 1], [1, 1]])
def test_without_tolerance_inverses_are_those_of_the_rows(cardinalities):
    model, codes, weight = _case(cardinalities, seed=3)
    log_sums, counts = model.laplacians().edge_counts(codes, weight)
    own_sums, own_counts = model.updates(0.0).edge_counts(codes, weight)
    np.testing.assert_allclose(own_sums, log_sums, atol=1e-10)
    np.testing.assert_allclose(own_counts, counts, atol=1e-4 * counts.max())  # single precision


def test_usual_states_are_the_most_probable():
    model, _, _ = _case([3, 2, 4, 1], seed=4)
    usual = [
        int(model.nodes[model.layout.owner == variable].argmax())
        for variable in range(model.layout.n_variables)
    ]
    assert model.updates(0.0).usual.tolist() == usual


def test_any_row_can_be_usual():
    model, codes, weight = _case([3, 2, 2, 3], seed=5)
    _, counts = model.laplacians().edge_counts(codes, weight)
    for usual in codes[:5]:
        updates = LaplacianUpdates(model.affinities(), model.layout, usual, 0.0)
        _, own_counts = updates.edge_counts(codes, weight)
        np.testing.assert_allclose(own_counts, counts, atol=1e-4 * counts.max())


def test_errors_fall_with_the_tolerance():
    model, codes, weight = _case([2] * 12, seed=6)
    log_sums, counts = model.laplacians().edge_counts(codes, weight)
    errors = []
    for tolerance in (10.0, 0.3, 0.03):
        own_sums, own_counts = model.updates(tolerance).edge_counts(codes, weight)
        errors.append((np.abs(own_sums - log_sums).max(), np.abs(own_counts - counts).sum()))
    # Nothing but unusual states themselves, then nearly all that they change
    assert (np.diff(errors, axis=0) < 0).all()
    assert errors[-1][1] < 0.01 * counts.sum()


def test_threads_do_not_matter():
    model, codes, weight = _case([2] * 12, seed=7)
    updates = model.updates(0.1)
    one = updates.edge_counts(codes, weight, n_jobs=1)
    two = updates.edge_counts(codes, weight, n_jobs=2)
    for own, other in zip(one, two, strict=True):
        np.testing.assert_array_equal(own, other)
