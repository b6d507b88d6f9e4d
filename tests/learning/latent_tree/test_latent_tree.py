from dataclasses import replace

import numpy as np
import pytest

from skcircuits.circuits import is_decomposable, is_smooth, is_structured_decomposable
from skcircuits.learning import fit_parameters
from skcircuits.learning.latent_tree._emissions import (
    Emissions,
    EmissionTotals,
    LatentRows,
    collinear_columns,
)
from skcircuits.learning.latent_tree._emissions import _correlations as correlations
from skcircuits.learning.latent_tree._learner import (
    BeliefPropagation,
    LatentSchedule,
    LatentTotals,
    LatentTree,
    cluster_latent_states,
    learn_latent_tree,
)
from skcircuits.learning.latent_tree._learner import _emissions as first_emissions
from skcircuits.learning.latent_tree._learner import _maximize as maximize
from skcircuits.trees._trees import StateLayout

PARENTS = np.array([1, -1, 1, 2, 2, 1])
SIZES = np.array([2, 3, 2, 4, 2, 2])


def make_rows(seed, n_rows=60, missing=0.0, continuous=()):
    rng = np.random.default_rng(seed)
    states = rng.integers(0, SIZES, size=(n_rows, len(SIZES)))
    X = states.astype(float)
    is_categorical = np.ones(len(SIZES), dtype=bool)
    for v in continuous:
        X[:, v] = 10.0 * states[:, v] + rng.normal(size=n_rows)
        is_categorical[v] = False
    X[rng.random(X.shape) < missing] = np.nan
    return LatentRows(X, np.ones(n_rows), states, StateLayout(SIZES), is_categorical)


def make_tree(rows, n_states=3, seed=0):
    """Random parameters on a fixed tree."""
    rng = np.random.default_rng(seed)
    emissions, _ = first_emissions(rows, n_states)
    counts = 20 * rng.random(emissions.table.shape)
    emissions = replace(emissions, dtype=np.float64).maximize(EmissionTotals(counts, {}), 0.1)
    transitions = rng.dirichlet(np.ones(n_states), size=(len(PARENTS), n_states))
    return LatentTree(PARENTS, rng.dirichlet(np.ones(n_states)), transitions, emissions)


def log_widths(tree, X):
    """Log of the widths of the intervals that numbers lie in, summed over the columns."""
    total = np.zeros(len(X))
    for column, cells in tree.emissions.numerical.items():
        seen = ~np.isnan(X[:, column])
        interval = np.searchsorted(cells.edges, X[seen, column], side="right") - 1
        total[seen] += np.log(np.diff(cells.edges))[interval]
    return total


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("continuous", [(), (1, 3)])
def test_messages_agree_with_the_circuit(missing, continuous):
    rows = make_rows(0, missing=missing, continuous=continuous)
    tree = make_tree(rows)
    circuit = tree.circuit()
    assert is_smooth(circuit)
    assert is_decomposable(circuit)
    assert is_structured_decomposable(circuit)
    assert circuit.log_partition == pytest.approx(0.0, abs=1e-10)
    log_prob = BeliefPropagation(tree).log_prob(tree, tree.emissions.encode(rows.X))
    log_density = log_prob - log_widths(tree, rows.X)
    np.testing.assert_allclose(log_density, circuit.log_prob(rows.X), rtol=1e-10, atol=1e-10)


def joint_tree(rows, n_states=3, seed=0):
    """Columns 1 and 3 share a latent variable, with random normal distributions."""
    rng = np.random.default_rng(seed)
    emissions, codes = first_emissions(rows, n_states)
    responsibilities = rng.dirichlet(np.ones(n_states), size=len(rows.X)).T
    emissions = replace(emissions, dtype=np.float64)
    totals, evidence = emissions.no_totals(), emissions.evidence(codes)
    for column in (0, 1, 2, 4, 5):
        emissions.add(totals, column, responsibilities, evidence)
    emissions = emissions.maximize(totals, 0.1)
    parents = np.array([1, -1, 1, 1, 2, 1])
    transitions = rng.dirichlet(np.ones(n_states), size=(len(parents), n_states))
    return LatentTree(parents, rng.dirichlet(np.ones(n_states)), transitions, emissions)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_joint_columns_agree_with_the_circuit_and_full_steps_gain(missing):
    rows = make_rows(0, missing=missing, continuous=(1, 3))
    rows = replace(rows, joint_columns=((1, 3),))
    tree = joint_tree(rows)
    codes = tree.emissions.encode(rows.X)
    propagation = BeliefPropagation(tree)
    circuit = tree.circuit()
    assert is_structured_decomposable(circuit)
    assert circuit.log_partition == pytest.approx(0.0, abs=1e-10)
    seen = ~np.isnan(rows.X[:, [1, 3]])
    in_units = propagation.log_prob(tree, codes) - seen @ np.log(tree.emissions.joint[1].scale)
    np.testing.assert_allclose(in_units, circuit.log_prob(rows.X), rtol=1e-10, atol=1e-10)
    scores = []
    for _ in range(12):
        prior = tree.emissions.joint[1].gaussians.log_prior()
        scores.append(propagation.log_prob(tree, codes).sum() + prior)
        tree = maximize(tree, propagation.totals(tree, codes, rows.weight), 1e-12)
    assert (np.diff(scores) > -1e-6).all()
    assert scores[-1] > scores[0] + 1.0


def test_correlations_of_columns_and_their_sum_are_not_singular():
    """The regression of a column on a group that contains a sum and its terms has a solution."""
    first, second, noise = np.random.default_rng(0).normal(size=(3, 100))
    X = np.column_stack([first + second, first, second, first + 2.0 * second + 0.5 * noise])
    assert np.linalg.eigvalsh(correlations(X, np.ones(100))[0]).min() > 5e-10
    rows = LatentRows(X, np.ones(100), np.zeros(X.shape), StateLayout([2] * 4), np.zeros(4, bool))
    assert collinear_columns(rows, 8) == ((0, 1, 2, 3),)


@pytest.mark.parametrize("seed", range(5))
def test_incomplete_copies_explain_no_other_column_by_chance(seed):
    """Correlations with copies, from different rows each, differ little: by chance, not by more."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=800)
    X = np.column_stack([first, first, -first, rng.random(800), rng.random(800)])
    X[rng.random(X.shape) < 0.15] = np.nan
    layout, numbers = StateLayout([2] * 5), np.zeros(5, dtype=bool)
    rows = LatentRows(X, np.ones(800), np.zeros(X.shape), layout, numbers)
    assert collinear_columns(rows, 8) == ((0, 1, 2),)


def test_collinear_columns_leave_point_masses_and_unrelated_columns_apart():
    rng = np.random.default_rng(0)
    common, other = rng.normal(size=(2, 400))
    X = np.column_stack(
        [
            common,
            rng.integers(3, size=400),
            common + 0.1 * rng.normal(size=400),
            other,
            np.where(rng.random(400) < 0.3, 0.0, common),
            2.0 * other - common + 0.1 * rng.normal(size=400),
            -common + 0.2 * rng.normal(size=400),
        ]
    )
    X[:40, 0] = np.nan
    is_categorical = np.arange(7) == 1
    rows = LatentRows(X, np.ones(400), np.zeros(X.shape), StateLayout([2] * 7), is_categorical)
    assert collinear_columns(rows, 3) == ((0, 2, 6), (3, 5))
    assert collinear_columns(rows, 2) == ((0, 2), (3, 5))
    assert collinear_columns(rows, 1) == ()


def test_columns_on_a_fine_grid_count_per_step_of_the_grid():
    rng = np.random.default_rng(0)
    length = np.round(rng.normal(size=(2, 900)), 1)
    X = np.column_stack([length[0], np.round(2.0 * length[0] + 0.2 * length[1], 2)])
    X[:40, 1] = np.nan
    rows = LatentRows(
        X, np.ones(900), np.zeros(X.shape, int), StateLayout([2] * 2), np.zeros(2, bool)
    )
    rows = replace(rows, joint_columns=collinear_columns(rows, 2))
    assert rows.joint_columns == ((0, 1),)
    *_, last = learn_latent_tree(rows, 2, rng)
    # the second column has too many points for probabilities: its density stays as it is
    expected = last.circuit.log_prob(X).mean() + np.log(0.1)
    assert last.mean_log_density(X, rows.weight) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_full_step_is_the_step_of_the_general_mechanism(missing):
    rows = make_rows(1, missing=missing)
    tree = make_tree(rows)
    propagation = BeliefPropagation(tree)
    stepped = maximize(tree, propagation.totals(tree, rows.X, rows.weight), 1e-12)
    # The circuit merges the leaves of the tree with their emissions, so compare where both
    # have the same parameters: a tree whose leaves cannot tell (children of the root).
    assert propagation.log_prob(stepped, rows.X).sum() > propagation.log_prob(tree, rows.X).sum()
    chain = np.array([-1, 0, 1, 2, 3, 4])
    tree = replace(tree, parents=chain)
    propagation = BeliefPropagation(tree)
    stepped = maximize(tree, propagation.totals(tree, rows.X, rows.weight), 1e-12)
    fitted = fit_parameters(tree.circuit(), rows.X, pseudo_count=1e-12, max_iter=1)
    np.testing.assert_allclose(
        fitted.root.weights, stepped.prior, rtol=1e-8, err_msg="distribution of the root"
    )
    for product, row in zip(fitted.root.children, stepped.transitions[1]):
        np.testing.assert_allclose(product.children[1].weights, row, rtol=1e-7)


def test_totals_are_expected_counts():
    rows = make_rows(2, n_rows=30, missing=0.3)
    weight = np.arange(30.0)
    tree = make_tree(rows)
    totals = BeliefPropagation(tree).totals(tree, rows.X, weight)
    total = weight.sum()
    assert totals.prior.sum() == pytest.approx(total)
    for child, parent in enumerate(PARENTS):
        if parent >= 0:
            assert totals.transitions[child].sum() == pytest.approx(total)
    assert totals.emissions.counts.sum() == pytest.approx(total * len(PARENTS))


def test_blocks_do_not_change_the_totals():
    rows = make_rows(3, n_rows=700)
    tree = make_tree(rows)
    propagation = BeliefPropagation(tree)
    whole = propagation.totals(tree, rows.X, rows.weight)
    halves = LatentTotals.empty(tree)
    for part in (slice(0, 350), slice(350, 700)):
        halves.blend(propagation.totals(tree, rows.X[part], rows.weight[part]), 1.0, 1.0)
    np.testing.assert_allclose(whole.transitions, halves.transitions, rtol=1e-10)
    np.testing.assert_allclose(whole.emissions.counts, halves.emissions.counts, rtol=1e-10)


def test_stars_with_many_children_do_not_underflow():
    n_variables, n_states = 200, 4
    rng = np.random.default_rng(4)
    X = rng.integers(2, size=(40, n_variables)).astype(float)
    sizes = np.full(n_variables, 2)
    emissions = Emissions.marginals(sizes, {}, X, np.ones(40), n_states)
    counts = 1e4 * rng.integers(2, size=emissions.table.shape)
    emissions = emissions.maximize(EmissionTotals(counts, {}), 1e-3)
    parents = np.zeros(n_variables, dtype=np.int64)
    parents[0] = -1
    transitions = rng.dirichlet(np.full(n_states, 0.01), size=(n_variables, n_states))
    tree = LatentTree(parents, np.full(n_states, 0.25), transitions, emissions)
    propagation = BeliefPropagation(tree)
    assert np.isfinite(propagation.log_prob(tree, X)).all()
    totals = propagation.totals(tree, X, np.ones(40))
    assert np.isfinite(totals.transitions).all()
    assert np.isfinite(totals.emissions.counts).all()


def run(rows, n_states=4, n_epochs=12, seed=0):
    schedule = LatentSchedule(n_epochs=n_epochs)
    return list(learn_latent_tree(rows, n_states, np.random.default_rng(seed), schedule=schedule))


def dependent_rows(seed, n_rows=600, missing=0.0):
    """Two latent groups shift all columns."""
    rows = make_rows(seed, n_rows)
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=(n_rows, 1))
    noise = rng.random(rows.states.shape) < 0.2
    states = np.where(noise, rows.states, np.minimum(group, SIZES - 1))
    X = states.astype(float)
    X[rng.random(X.shape) < missing] = np.nan
    return replace(rows, X=X, states=states)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_learning_finds_the_groups(missing):
    rows = dependent_rows(5, missing=missing)
    steps = run(rows)
    assert [step.converged for step in steps] == [False] * 11 + [True]
    counts = [np.bincount(rows.states[:, v]) / len(rows.X) for v in range(len(SIZES))]
    observed = ~np.isnan(rows.X)
    entropy = sum(
        (c[c > 0] * np.log(c[c > 0])).sum() * observed[:, v].mean() for v, c in enumerate(counts)
    )
    assert steps[-1].mean_log_prob(rows.X, rows.weight) > entropy + 0.5
    rounded = steps[-1].circuit.log_prob(rows.X).mean()
    assert steps[-1].mean_log_prob(rows.X, rows.weight) == pytest.approx(rounded, abs=1e-4)


def test_runs_are_reproducible_and_seeds_differ():
    rows = dependent_rows(6, 200)
    one, two, three = (run(rows, n_epochs=4, seed=s)[-1] for s in (0, 0, 1))
    np.testing.assert_array_equal(one.tree.transitions, two.tree.transitions)
    assert (one.tree.transitions != three.tree.transitions).any()


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_learning_goes_on_with_further_rows(missing):
    rows = dependent_rows(7, missing=missing)
    *_, start = run(rows.take(np.arange(350)))
    # Blocks would be random: full passes alone are steps of expectation maximisation
    schedule = LatentSchedule(n_epochs=4, n_full_epochs=4)
    rng = np.random.default_rng(0)
    steps = list(learn_latent_tree(rows, 4, rng, schedule=schedule, start=start))
    assert [step.converged for step in steps] == [False, False, False, True]
    assert steps[0].tree is start.tree
    tree, propagation = start.tree, start.propagation
    for _ in range(2):
        tree = maximize(tree, propagation.totals(tree, rows.X, rows.weight), 0.5)
    np.testing.assert_allclose(steps[1].tree.transitions, tree.transitions, rtol=1e-6)
    scores = [step.mean_log_prob(rows.X, rows.weight) for step in steps]
    assert (np.diff(scores) > 0).all()


def test_rows_of_weight_zero_do_not_count_in_full_steps():
    rows = make_rows(7, n_rows=50)
    tree = make_tree(rows)
    propagation = BeliefPropagation(tree)
    weight = np.r_[np.ones(30), np.zeros(20)]
    some = propagation.totals(tree, rows.X, weight)
    few = propagation.totals(tree, rows.X[:30], np.ones(30))
    np.testing.assert_allclose(some.transitions, few.transitions, rtol=1e-10)


def test_single_rows_single_columns_and_constant_columns():
    states = np.zeros((1, 1), dtype=np.int64)
    rows = LatentRows(
        states.astype(float), np.ones(1), states, StateLayout([1]), np.ones(1, dtype=bool)
    )
    assert run(rows, n_epochs=2)[-1].circuit.log_prob([[0.0]])[0] == pytest.approx(0.0, abs=1e-6)
    constant = np.full((5, 2), 7.0)
    rows = LatentRows(
        constant,
        np.ones(5),
        np.zeros((5, 2), dtype=np.int64),
        StateLayout([1, 1]),
        np.zeros(2, dtype=bool),
    )
    assert np.isfinite(run(rows, n_epochs=3)[-1].circuit.log_prob(constant)).all()


def test_clusters_follow_informative_columns():
    rng = np.random.default_rng(8)
    group = rng.integers(3, size=300)
    features = np.eye(3)[group] + 0.05 * rng.normal(size=(300, 3))
    noise = rng.normal(size=(300, 1))
    points = np.hstack([features, noise])
    information = np.array([[0.0, 0.0], [0.0, 0.0]])
    hidden = cluster_latent_states(points, np.array([0, 0, 0, 1]), information, 8, rng)
    for cluster in np.unique(hidden[:, 0]):
        assert len(np.unique(group[hidden[:, 0] == cluster])) == 1
