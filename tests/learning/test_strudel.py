from itertools import islice

import numpy as np
import pytest

from skcircuits.circuits import is_deterministic, is_smooth, is_structured_decomposable
from skcircuits.learning import fit_parameters
from skcircuits.learning._strudel import (
    GrowthLimits,
    SharedStructure,
    StrudelLearner,
    SumNode,
    _information_sums,
    bottom_up,
    grow,
    learn_mixture,
    learn_shared_mixture,
    route,
)
from skcircuits.trees._chow_liu import chow_liu_tree, mutual_information, pair_statistics
from skcircuits.trees._trees import StateLayout


def make_codes(seed, cardinalities, n_rows):
    """Rows with dependence that one tree cannot hold: two groups with different chains."""
    rng = np.random.default_rng(seed)
    codes = np.empty((n_rows, len(cardinalities)), dtype=np.int64)
    group = rng.integers(2, size=n_rows)
    shifts = rng.integers(0, 3, size=(2, len(cardinalities)))
    codes[:, 0] = rng.integers(cardinalities[0], size=n_rows)
    for v, size in enumerate(cardinalities[1:], start=1):
        copied = (codes[:, v - 1] + shifts[group, v]) % size
        codes[:, v] = np.where(rng.random(n_rows) < 0.8, copied, rng.integers(size, size=n_rows))
    return codes


def all_rows(cardinalities):
    return np.stack([g.ravel() for g in np.meshgrid(*map(np.arange, cardinalities))], axis=1)


def make_learner(cardinalities=(2, 3, 2, 2, 3, 2), seed=0, **kwargs):
    codes = make_codes(seed, cardinalities, 400)
    return StrudelLearner(codes[:300], StateLayout(cardinalities), codes[300:], **kwargs)


@pytest.fixture(scope="module", params=[(2, 2, 2, 2, 2), (2, 3, 2, 4, 2)])
def run(request):
    learner = make_learner(request.param)
    return learner, list(zip(learner.steps(), range(25)))


def test_every_split_keeps_the_properties(run):
    _, steps = run
    assert len(steps) > 10
    for step, n_splits in steps:
        assert step.n_splits == n_splits
        circuit = step.circuit
        assert is_smooth(circuit)
        assert is_structured_decomposable(circuit)
        assert is_deterministic(circuit)


def test_every_split_is_a_distribution(run):
    learner, steps = run
    rows = all_rows(learner.layout.cardinalities).astype(float)
    for step, _ in steps:
        log_prob = step.circuit.log_prob(rows)
        assert np.isfinite(log_prob).all()  # smoothing keeps every row possible
        assert np.exp(log_prob).sum() == pytest.approx(1.0, rel=1e-10)


def test_followed_likelihoods_are_those_of_the_circuit(run):
    learner, steps = run
    training = learner.weights[:, 0] > 0
    rows = learner.codes.astype(float)
    for step, _ in steps:
        log_prob = step.circuit.log_prob(rows)
        assert step.log_density == pytest.approx(log_prob[training].mean(), rel=1e-10)
        assert step.validation_log_density == pytest.approx(log_prob[~training].mean(), rel=1e-10)


def test_splits_raise_the_training_likelihood(run):
    _, steps = run
    trace = [step.log_density for step, _ in steps]
    assert trace[-1] > trace[0] + 0.05
    # Smoothing may cost a little at a single split.
    assert np.all(np.diff(trace) > -0.01)


def test_rows_of_a_sum_are_the_rows_that_lead_to_it():
    learner = make_learner()
    for step, _ in zip(learner.steps(), range(30)):
        arriving = {learner.root: np.arange(len(learner.codes))}
        nodes = [n for n in bottom_up(learner.root, step.n_splits) if isinstance(n, SumNode)]
        for node in nodes:
            for edge in node.edges:
                for factor in edge.child.factors:
                    before = arriving.get(factor, np.empty(0, dtype=np.int64))
                    arriving[factor] = np.concatenate([before, edge.rows])
        for node in nodes:
            own = np.concatenate([edge.rows for edge in node.edges])
            assert len(np.unique(own)) == len(own)
            np.testing.assert_array_equal(np.sort(own), np.sort(arriving[node]))


def test_routing_finds_the_rows_again():
    learner = make_learner()
    for _ in zip(range(20), learner.steps()):
        pass
    for node, taken in route(learner.root, learner.n_splits, learner.codes):
        for edge, rows in zip(node.edges, taken):
            np.testing.assert_array_equal(edge.rows, rows)


def test_earlier_circuits_stay_available():
    learner = make_learner()
    rows = learner.codes.astype(float)
    steps, before = [], []
    for step, _ in zip(learner.steps(), range(12)):
        steps.append(step)
        before.append(_fresh_log_prob(step, rows))
    for step, expected in zip(steps, before):
        np.testing.assert_array_equal(_fresh_log_prob(step, rows), expected)


def _fresh_log_prob(step, rows):
    """Log probabilities by a circuit that is built now."""
    vars(step).pop("circuit", None)
    return step.circuit.log_prob(rows)


def test_weights_are_the_maximum_likelihood_ones():
    learner = make_learner(pseudo_count=1e-9)
    *_, last = zip(learner.steps(), range(15))
    circuit = last[0].circuit
    rows = learner.codes[:300].astype(float)
    fitted = fit_parameters(circuit, rows, pseudo_count=1e-9, max_iter=1)
    np.testing.assert_allclose(fitted.log_prob(rows), circuit.log_prob(rows), rtol=1e-6)


def test_starts_from_the_chow_liu_tree():
    codes = make_codes(1, [2, 3, 2, 2], 200)
    layout = StateLayout([2, 3, 2, 2])
    start = next(StrudelLearner(codes, layout, codes, pseudo_count=1e-9).steps())
    tree = chow_liu_tree(codes, layout, pseudo_count=1e-9)
    np.testing.assert_allclose(start.circuit.log_prob(codes.astype(float)), tree.log_prob(codes))


def test_information_sums_match_mutual_information():
    sizes = np.array([2, 3, 2, 4])
    codes, layout = make_codes(2, sizes, 100), StateLayout(sizes)
    expected = mutual_information(pair_statistics(codes, layout, pseudo_count=1.0), layout)
    indicators = layout.one_hot(codes)
    starts = np.cumsum(sizes) - sizes
    actual = _information_sums(indicators.T @ indicators, starts, 1.0, sizes)
    np.testing.assert_allclose(actual, expected.sum(axis=1), atol=1e-12)


def test_weights_repeat_rows():
    codes = make_codes(3, [2, 2, 3, 2], 120)
    layout = StateLayout([2, 2, 3, 2])
    weight = np.random.default_rng(0).integers(0, 3, 120).astype(float)
    repeated = np.repeat(codes, weight.astype(int), axis=0)
    kept = weight > 0
    one = StrudelLearner(codes[kept], layout, codes, weight=weight[kept])
    two = StrudelLearner(repeated, layout, codes)
    for left, right, _ in zip(one.steps(), two.steps(), range(8)):
        assert left.log_density == pytest.approx(right.log_density, rel=1e-10)


def test_growth_stops_at_its_limits():
    steps = list(grow(make_learner(), GrowthLimits(7, 1000, 10_000)))
    assert [step.n_splits for step in steps] == list(range(8))
    small = list(grow(make_learner(), GrowthLimits(1000, 1000, 40)))
    assert small[-1].n_parameters > 40 >= small[-2].n_parameters
    patient = list(grow(make_learner(), GrowthLimits(1000, 5, 10_000)))
    scores = [step.validation_log_density for step in patient]
    assert len(scores) - 1 - int(np.argmax(scores)) == 5


def test_growth_ends_when_all_is_decided():
    codes = np.array([[0, 0, 0], [1, 1, 1]] * 5)
    learner = StrudelLearner(codes, StateLayout([2, 2, 2]), codes)
    steps = list(learner.steps())
    assert len(steps) < 5
    assert steps[-1].log_density < np.log(0.51)


def test_growth_ends_where_weights_lose_digits_in_single_precision():
    codes, weight = make_codes(0, [2, 3, 2, 2], 4000), np.full(4000, 0.9)
    weight[0] = 2.0**24
    learner = StrudelLearner(codes, StateLayout([2, 3, 2, 2]), codes, weight=weight)
    assert len(list(islice(learner.steps(), 300))) < 300


@pytest.mark.parametrize("cardinalities", [(2,), (1, 2, 1), (2, 2)])
def test_few_variables(cardinalities):
    codes = np.random.default_rng(0).integers(0, cardinalities, size=(30, len(cardinalities)))
    learner = StrudelLearner(codes, StateLayout(cardinalities), codes)
    rows = all_rows(cardinalities).astype(float)
    for step, _ in zip(learner.steps(), range(5)):
        assert np.exp(step.circuit.log_prob(rows)).sum() == pytest.approx(1.0)


# ------------------------------------------------------------------- mixtures


def test_mixture_is_the_one_that_plain_expectation_maximisation_learns():
    learner = make_learner((2, 2, 3, 2))
    *_, (step, _) = zip(learner.steps(), range(6))
    rng = np.random.default_rng(0)
    steps = learn_shared_mixture(
        SharedStructure(step), rng.dirichlet(np.ones(3), len(learner.codes)), shrinkage=1e-9
    )
    first, second = next(steps), next(steps)
    rows = learner.codes[:300].astype(float)
    assert first.log_density == pytest.approx(first.circuit.log_prob(rows).mean(), rel=1e-10)
    by_flows = fit_parameters(first.circuit, rows, pseudo_count=1e-9, max_iter=1)
    np.testing.assert_allclose(second.circuit.log_prob(rows), by_flows.log_prob(rows), atol=2e-3)


def test_mixture_is_a_distribution_and_beats_the_single_circuit():
    learner = make_learner((2, 2, 3, 2))
    *_, (step, _) = zip(learner.steps(), range(3))
    *_, mixture = learn_mixture(step, 3, np.random.default_rng(0), shrinkage=1.0)
    rows = all_rows((2, 2, 3, 2)).astype(float)
    assert np.exp(mixture.circuit.log_prob(rows)).sum() == pytest.approx(1.0)
    assert mixture.log_density > step.log_density
    assert is_structured_decomposable(mixture.circuit)
    held_out = learner.codes[300:].astype(float)
    expected = mixture.circuit.log_prob(held_out).mean()
    assert mixture.validation_log_density == pytest.approx(expected, rel=1e-10)


def test_mixture_likelihood_never_falls():
    learner = make_learner()
    *_, (step, _) = zip(learner.steps(), range(10))
    start = np.random.default_rng(1).dirichlet(np.ones(4), len(learner.codes))
    steps = learn_shared_mixture(SharedStructure(step), start, shrinkage=1e-9)
    trace = [mixture.log_density for mixture, _ in zip(steps, range(20))]
    assert np.all(np.diff(trace) > -1e-4)


def test_runs_are_reproducible():
    def scores():
        learner = make_learner()
        *_, (step, _) = zip(learner.steps(), range(10))
        mixtures = learn_mixture(step, 2, np.random.default_rng(0), shrinkage=1.0)
        return [mixture.log_density for mixture in mixtures]

    assert scores() == scores()
