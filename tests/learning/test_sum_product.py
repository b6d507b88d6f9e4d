"""Structures on tables whose structure is known, and what must hold on any table."""

import numpy as np
import pytest

from skcircuits.circuits import is_decomposable, is_smooth
from skcircuits.learning._columns import PSEUDO_ROWS, describe_column
from skcircuits.learning._sum_product import (
    LeafSettings,
    MixedTable,
    SplitSettings,
    _fit_categories,
    held_out_scores,
    learn_circuit,
    learn_structure,
    split_rows,
    structure_to_circuit,
)


def mixed_table(X, cardinalities, weights=None):
    weights = np.ones(len(X)) if weights is None else weights
    return MixedTable.describe(X, weights, cardinalities)


def learn(table, leaves=None, **settings):
    splits, rng = SplitSettings(**settings), np.random.default_rng(0)
    return learn_circuit(table, splits, leaves or LeafSettings(), rng)


def hybrid_rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    category = rng.integers(0, 2, n)
    X = np.column_stack(
        [
            category,
            rng.normal(4.0 * category, 1.0),
            np.where(rng.random(n) < 0.3, 0.0, rng.gamma(2.0, size=n)),
        ]
    ).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


def test_independent_columns_make_a_product():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=400), rng.integers(0, 3, 400), rng.exponential(size=400)])
    root, circuit = learn(mixed_table(X, [0, 3, 0]))
    assert root.kind == "product" and len(root.parts) == 3
    assert circuit.n_units == 4


@pytest.mark.parametrize("independence", ["g_test", "rdc"])
def test_dependent_groups_stay_together(independence):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 500))
    X = np.column_stack([a, b, a + 0.3 * rng.normal(size=500), b > 0]).astype(float)
    root, _ = learn(mixed_table(X, [0, 0, 0, 2]), independence=independence)
    assert {part.variables for part in root.parts} == {(0, 2), (1, 3)}


def test_rows_are_cut_into_their_groups():
    X = hybrid_rows()
    root, circuit = learn(mixed_table(X, [2, 0, 0]))
    group = next(part for part in root.parts if part.variables == (0, 1))
    assert group.kind == "sum"
    categories = [np.nanmean(X[part.rows, 0]) for part in group.parts]
    assert min(categories) < 0.1 and max(categories) > 0.9
    assert is_smooth(circuit) and is_decomposable(circuit)


@pytest.mark.parametrize("family", ["polynomial", "histogram", "gaussian", "multivariate"])
def test_circuits_are_normalised_and_finite(family):
    X = hybrid_rows()
    _, circuit = learn(mixed_table(X, [2, 0, 0]), LeafSettings(family))
    assert circuit.log_partition == pytest.approx(0.0, abs=1e-12)
    far = np.array([[0, 1e3, -50.0], [1, -1e3, 1e4], [np.nan, np.nan, np.nan]])
    assert np.isfinite(circuit.log_prob(np.vstack([X, far]))).all()


def test_every_step_is_a_complete_structure():
    table = mixed_table(hybrid_rows(), [2, 0, 0])
    scores = []
    for root in learn_structure(table, SplitSettings(), np.random.default_rng(0)):
        circuit = structure_to_circuit(table, root, LeafSettings())
        assert circuit.log_partition == pytest.approx(0.0, abs=1e-10)
        scores.append(circuit.log_prob(table.X).mean())
    assert scores[-1] > scores[0]


def test_order_of_rows_and_columns_does_not_matter():
    X = hybrid_rows()
    rng = np.random.default_rng(5)
    rows, columns = rng.permutation(len(X)), np.array([2, 0, 1])
    _, plain = learn(mixed_table(X, [2, 0, 0]))
    _, shuffled = learn(mixed_table(X[rows][:, columns], np.array([2, 0, 0])[columns]))
    np.testing.assert_allclose(
        shuffled.log_prob(X[:, columns]), plain.log_prob(X), rtol=1e-6, atol=1e-6
    )


def test_weights_are_numbers_of_rows():
    X = hybrid_rows(120)
    weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    _, weighted = learn(mixed_table(X, [2, 0, 0], weights))
    _, repeated = learn(mixed_table(np.repeat(X, weights.astype(int), axis=0), [2, 0, 0]))
    np.testing.assert_allclose(weighted.log_prob(X), repeated.log_prob(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "X",
    [
        np.array([[1.0, 2.0, 0.0]]),
        np.array([[1.0, np.nan, np.nan]] * 30),
        np.full((25, 3), np.nan),
        np.array([[1e-100, 1e100, 1.0], [2e-100, -1e100, 0.0]] * 20),
    ],
)
def test_edge_tables_give_densities(X):
    _, circuit = learn(mixed_table(X, [0, 0, 2]))
    assert circuit.log_partition == pytest.approx(0.0, abs=1e-9)
    assert np.isfinite(circuit.log_prob(X)).all()


def test_point_masses_and_resolution():
    rng = np.random.default_rng(0)
    few = describe_column(0, rng.integers(0, 4, 200) * 1.5, np.ones(200), 0)
    np.testing.assert_array_equal(few.atoms, [0.0, 1.5, 3.0, 4.5])
    zeros = np.where(rng.random(300) < 0.5, 0.0, np.round(rng.gamma(2.0, 30.0, size=300), 1))
    lumpy = describe_column(0, zeros, np.ones(300), 0)
    np.testing.assert_array_equal(lumpy.atoms, [0.0])
    assert lumpy.resolution == pytest.approx(0.1)
    rounded = describe_column(0, np.round(rng.normal(50, 10, size=300)), np.ones(300), 0)
    assert rounded.is_smooth and rounded.resolution == 1.0
    assert few.fractions.sum() == pytest.approx(1.0) and (few.fractions > 0).all()


def test_clusters_with_missing_cells_and_categories():
    rng = np.random.default_rng(0)
    truth = rng.random(200) < 0.4
    z = rng.normal(np.where(truth, 1.5, -1.5)[:, None], 0.7, size=(200, 3))
    z[rng.random(z.shape) < 0.3] = np.nan
    category = (rng.random(200) < np.where(truth, 0.9, 0.1)).astype(int)
    group = split_rows(z, [np.eye(2)[category]], np.ones(200))
    agreement = (group == truth).mean()
    assert max(agreement, 1 - agreement) > 0.93


def test_few_rows_are_tested_by_ranks():
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    dependent = np.column_stack([x, x + rng.normal(scale=0.8, size=30)])
    alone = np.column_stack([x, rng.normal(size=30)])
    *_, of_dependent = learn_structure(mixed_table(dependent, [0, 0]), SplitSettings(), rng)
    *_, of_alone = learn_structure(mixed_table(alone, [0, 0]), SplitSettings(), rng)
    assert (of_dependent.kind, of_alone.kind) == ("sum", "product")


def test_dependence_wins_where_there_is_some():
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    dependent = np.column_stack([x, x + 0.1 * rng.normal(size=300)])
    independent = rng.normal(size=(300, 2))
    candidates = [(SplitSettings(alpha), LeafSettings()) for alpha in (0.0, 1.0)]
    gains = []
    for X in (dependent, independent):
        scores = held_out_scores(mixed_table(X, [0, 0]), candidates, 3, rng)
        gains.append(scores[1] - scores[0])
    assert gains[0] > 0.5
    assert gains[1] < 0.0


def test_rows_of_weight_zero_count_nowhere():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    weights = np.r_[np.ones(30), np.zeros(10)]
    other = np.where(weights[:, None] > 0, X, 1e6)
    candidates = [(SplitSettings(), LeafSettings())]
    one, two = (
        held_out_scores(
            mixed_table(table, [0, 0], weights), candidates, 3, np.random.default_rng(0)
        )
        for table in (X, other)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("impurity", [0.0, 0.3])
def test_pseudo_rows_of_categories_make_left_out_rows_likeliest(impurity):
    rng = np.random.default_rng(0)
    region = np.repeat(np.arange(12), 10)
    codes = np.where(rng.random(120) < impurity, rng.integers(2, size=120), region % 2)
    table = mixed_table(codes[:, None].astype(float), [2])
    prior = np.array([0.6, 0.4])
    places = [(np.flatnonzero(region == number), prior) for number in range(12)]
    units = _fit_categories(table, table.columns[0], places, 1.0)
    masses = np.array([unit.probabilities for unit in units])

    def left_out(n_pseudo_rows):
        total = 0.0
        for row, code in enumerate(codes):
            others = codes[(region == region[row]) & (np.arange(120) != row)]
            counts = np.bincount(others, minlength=2) + n_pseudo_rows * prior
            total += np.log(counts[code] / counts.sum())
        return total

    best = max(PSEUDO_ROWS, key=left_out)
    counts = np.array([np.bincount(codes[region == n], minlength=2) for n in range(12)])
    np.testing.assert_allclose(masses, (counts + best * prior) / (10 + best), rtol=1e-12)
    assert (best == PSEUDO_ROWS[0]) == (impurity == 0.0)
