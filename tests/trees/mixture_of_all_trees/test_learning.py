import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from skcircuits.trees._chow_liu import complete_rows
from skcircuits.trees._trees import StateLayout
from skcircuits.trees.mixture_of_all_trees._learning import (
    Schedule,
    learn_all_trees,
    start_training,
)
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture, sample_rows
from tests.trees.conftest import all_states, random_model

SCHEDULE = Schedule(15, 0.05, 100)


def _learn(codes, cardinalities, n_components=1, seed=0, schedule=SCHEDULE, **options):
    rng = np.random.default_rng(seed)
    n_jobs = options.pop("n_jobs", None)
    weight = options.get("sample_weight")
    layout = StateLayout(cardinalities)
    (rows,) = complete_rows([codes], layout)
    training = start_training(rows, layout, n_components, rng, **options)
    return list(learn_all_trees(training, rows, rng, schedule, sample_weight=weight, n_jobs=n_jobs))


@pytest.fixture
def codes():
    mixture = AllTreesMixture(np.zeros(1), [random_model([2, 3, 2, 2, 4], seed=11)])
    return sample_rows(mixture, 600, np.random.default_rng(0))


CARDINALITIES = [2, 3, 2, 2, 4]


@pytest.mark.parametrize("n_components", [1, 3])
def test_loss_falls_and_the_model_stays_normalised(codes, n_components):
    epochs = _learn(codes, CARDINALITIES, n_components)
    assert len(epochs) == 15
    assert [epoch.converged for epoch in epochs] == [False] * 14 + [True]
    assert epochs[-1].loss < epochs[0].loss
    mixture = epochs[-1].mixture
    assert np.exp(mixture.log_prob(all_states(CARDINALITIES))).sum() == pytest.approx(1, abs=1e-12)
    assert np.exp(mixture.log_weights).sum() == pytest.approx(1)


def test_approaches_the_true_likelihood():
    truth = AllTreesMixture(np.zeros(1), [random_model([2] * 6, seed=12, scale=1.5)])
    codes = sample_rows(truth, 5000, np.random.default_rng(0))
    epochs = _learn(codes, [2] * 6, schedule=Schedule(30, 0.05, 256))
    states = all_states([2] * 6)
    log_truth, log_model = truth.log_prob(states), epochs[-1].mixture.log_prob(states)
    divergence = (np.exp(log_truth) * (log_truth - log_model)).sum()
    assert 0 <= divergence < 0.01


def test_mixture_beats_one_component():
    groups = AllTreesMixture(
        np.log([0.5, 0.5]), [random_model([2] * 8, seed=s, scale=2.0) for s in (13, 14)]
    )
    codes = sample_rows(groups, 2000, np.random.default_rng(10))
    fresh = sample_rows(groups, 2000, np.random.default_rng(11))
    one, two = (_learn(codes, [2] * 8, k)[-1].mixture for k in (1, 2))
    assert two.log_prob(fresh).mean() > one.log_prob(fresh).mean() + 0.02


def test_incomplete_rows_are_learned_by_their_probable_completions(codes):
    incomplete = np.where(np.random.default_rng(5).random(codes.shape) < 0.2, -1, codes)
    schedule = Schedule(15, 0.05, len(codes))
    mixture = _learn(incomplete, CARDINALITIES, schedule=schedule)[-1].mixture
    complete = _learn(codes, CARDINALITIES, schedule=schedule)[-1].mixture
    states = all_states(CARDINALITIES)
    log_found, log_best = mixture.log_prob(states), complete.log_prob(states)
    assert (np.exp(log_best) * (log_best - log_found)).sum() < 0.03


@pytest.mark.parametrize("n_components", [1, 2])
def test_threads_do_not_change_a_bit(codes, n_components):
    short = Schedule(4, 0.05, 100)
    one, two = (
        _learn(codes, CARDINALITIES, n_components, schedule=short, n_jobs=n) for n in (1, 2)
    )
    np.testing.assert_array_equal(one[-1].vectors, two[-1].vectors)
    assert [epoch.loss for epoch in one] == [epoch.loss for epoch in two]


def test_seeds_matter_and_repeat(codes):
    short = Schedule(4, 0.05, 100)
    one, again, other = (
        _learn(codes, CARDINALITIES, seed=s, schedule=short)[-1].vectors for s in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_random_start(codes):
    epochs = _learn(codes, CARDINALITIES, init="random")
    informed = _learn(codes, CARDINALITIES)
    assert informed[0].loss < epochs[0].loss
    assert epochs[-1].loss < epochs[0].loss


def test_published_start_weighs_edges_by_mutual_information(codes):
    layout = StateLayout(CARDINALITIES)
    (rows,) = complete_rows([codes], layout)
    training = start_training(
        rows, layout, 1, np.random.default_rng(0), pseudo_count=1e-9, init="published"
    )
    weights = training.mixture.components[0].weights
    first, second = np.triu_indices(len(CARDINALITIES), 1)
    expected = [mutual_info_score(codes[:, u], codes[:, v]) for u, v in zip(first, second)]
    found = weights[first, second] / weights.max()
    np.testing.assert_allclose(found, expected / np.max(expected), rtol=1e-6, atol=1e-3)


def test_integer_weights_give_the_start_of_repeated_rows(codes):
    weight = np.random.default_rng(3).integers(1, 4, size=len(codes))
    layout = StateLayout(CARDINALITIES)
    rows, repeats = complete_rows([codes, np.repeat(codes, weight, axis=0)], layout)
    weighted = start_training(
        rows, layout, 1, np.random.default_rng(0), sample_weight=weight.astype(float)
    )
    repeated = start_training(repeats, layout, 1, np.random.default_rng(0))
    np.testing.assert_allclose(weighted.vectors, repeated.vectors, atol=1e-12)


def test_zero_weights_are_as_good_as_absent(codes):
    weight = np.ones(len(codes))
    weight[200:] = 0
    epochs = _learn(codes, CARDINALITIES, sample_weight=weight)
    assert np.isfinite([epoch.loss for epoch in epochs]).all()


def test_difficult_columns():
    # Duplicate, opposite, constant, all-zero columns and one with a single one.
    rng = np.random.default_rng(0)
    column = rng.integers(2, size=300)
    codes = np.column_stack([column, column, 1 - column, np.ones(300), np.zeros(300), column])
    codes = np.column_stack([codes, np.arange(300) == 0]).astype(int)
    epochs = _learn(codes, [2] * 7, schedule=Schedule(40, 0.2, 64))
    assert np.isfinite([epoch.loss for epoch in epochs]).all()
    mixture = epochs[-1].mixture
    assert np.isfinite(mixture.log_prob(all_states([2] * 7))).all()
    assert np.exp(mixture.log_prob(all_states([2] * 7))).sum() == pytest.approx(1, abs=1e-11)
    # Independent column bits cost log 2; everything else is nearly free.
    assert epochs[-1].loss < np.log(2) + 0.1


@pytest.mark.parametrize("cardinalities", [[2], [1, 1], [3, 1], [2, 2]])
def test_tiny_tables(cardinalities):
    codes = np.random.default_rng(0).integers(cardinalities, size=(20, len(cardinalities)))
    for n_components in (1, 2):
        mixture = _learn(codes, cardinalities, n_components, schedule=Schedule(3, 0.05, 8))[
            -1
        ].mixture
        total = np.exp(mixture.log_prob(all_states(cardinalities))).sum()
        assert total == pytest.approx(1, abs=1e-12)


def test_training_can_be_restored(codes):
    rng = np.random.default_rng(0)
    layout = StateLayout(CARDINALITIES)
    (rows,) = complete_rows([codes], layout)
    training = start_training(rows, layout, 1, rng)
    epochs = list(learn_all_trees(training, rows, rng, Schedule(3, 0.05, 100)))
    training.restore(epochs[0])
    np.testing.assert_array_equal(
        training.mixture.log_prob(codes), epochs[0].mixture.log_prob(codes)
    )


def test_steps_get_shorter_to_the_end(codes):
    def moves(last_rate):
        epochs = _learn(codes, CARDINALITIES, schedule=Schedule(8, 0.05, 50, last_rate))
        vectors = np.concatenate([epoch.vectors for epoch in epochs])
        return np.abs(np.diff(vectors, axis=0)).mean(axis=1)

    falling, constant = moves(0.02), moves(1.0)
    assert falling[-1] < 0.1 * falling[0]
    assert constant[-1] > 0.2 * constant[0]


def test_large_steps_stay_within_what_can_be_computed():
    rng = np.random.default_rng(0)
    column = rng.integers(2, size=200)
    codes = np.column_stack([column, column, 1 - column, rng.integers(2, size=(200, 2))])
    mixture = _learn(codes, [2] * 5, schedule=Schedule(15, 1.5, 50))[-1].mixture
    weights = mixture.components[0].weights[~np.eye(5, dtype=bool)]
    assert weights.max() / weights.min() < np.exp(18) * (1 + 1e-9)
    assert np.exp(mixture.log_prob(all_states([2] * 5))).sum() == pytest.approx(1, abs=1e-11)
