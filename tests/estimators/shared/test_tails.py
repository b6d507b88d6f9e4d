"""Numbers beyond the observed range: improbable, the more so the further, and never impossible."""

import warnings
from itertools import pairwise

import numpy as np
import pytest

import skcircuits
from skcircuits import ChowLiuDensity, MoATDensity, StrudelDensity
from skcircuits.tabular import compile_queries
from tests.reliability.estimators import SMALL

DENSITIES = sorted(name for name in SMALL if name.endswith("Density"))
BINNED = {
    "tree": ChowLiuDensity(random_state=0),
    "strudel": StrudelDensity(max_iter=5, random_state=0),
    "all trees": MoATDensity(max_iter=2, random_state=0),
}


def skewed(n_rows=300, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_rows)
    return np.column_stack([x, np.exp(0.5 * x + rng.normal(size=n_rows)), rng.random(n_rows)])


def fit(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X)


@pytest.mark.parametrize("name", DENSITIES)
def test_scores_far_outside_are_finite_and_fall(name):
    X = skewed()
    density = fit(getattr(skcircuits, name)(**SMALL[name]), X)
    distances = np.array([10.0, 100.0, 1e3, 1e4, 1e5, 1e6])
    for column in range(X.shape[1]):
        for sign in (-1.0, 1.0):
            rows = np.tile(np.median(X, axis=0), (len(distances), 1))
            rows[:, column] += sign * X[:, column].std() * distances
            alone = np.full(rows.shape, np.nan)
            alone[:, column] = rows[:, column]
            for table in (rows, alone):
                scores = density.score_samples(table)
                assert np.isfinite(scores).all()
                assert (np.diff(scores) < 0.0).all()


@pytest.mark.parametrize("name", BINNED)
def test_densities_over_bins_integrate_to_the_probabilities_of_intervals(name):
    X = skewed()
    density = fit(BINNED[name], X)
    for column in range(X.shape[1]):
        edges, other = density.bin_edges_[column], (column + 1) % X.shape[1]
        bins = density._states.discretizer.bins[column]
        # Between these the density is uniform, beyond them exponential
        ends = edges[[0, -1]] + [-40, 40] * bins.tail_scales
        pieces = np.concatenate([ends[:1], edges, ends[1:]])
        rows = np.full((0, X.shape[1]), np.nan)
        weights = []
        for low, high in pairwise(pieces):
            nodes, own = np.polynomial.legendre.leggauss(40)
            part = np.full((len(nodes), X.shape[1]), np.nan)
            part[:, column] = (low + high) / 2 + (high - low) / 2 * nodes
            part[:, other] = X[0, other]
            rows, weights = np.vstack([rows, part]), [*weights, *(own * (high - low) / 2)]
        masses = np.exp(density.score_samples(rows)) * weights
        row = np.full((1, X.shape[1]), np.nan)
        row[0, other] = X[0, other]
        assert masses.sum() == pytest.approx(np.exp(density.score_samples(row)[0]), rel=1e-9)
        given = {other: X[0, other]}
        for low, high in ((ends[0], edges[0]), (edges[1], edges[2]), (edges[-1], ends[1])):
            inside = (rows[:, column] > low) & (rows[:, column] < high)
            found = density.probability({column: (low, high)}, given=given)
            assert found == pytest.approx(masses[inside].sum() / masses.sum(), rel=1e-9)


CONDITIONS = [
    None,
    {0: (None, -3.5)},
    {0: (3.5, 3.75), 1: (0.5, None)},
    {1: (15.0, None)},
    {0: (-5.0, 5.0), 1: (None, 0.01)},
    "x0 == 4.0",
]


@pytest.fixture(scope="module")
def two_columns():
    return fit(MoATDensity(max_iter=2, random_state=0), skewed()[:, :2])


@pytest.mark.parametrize("given", CONDITIONS, ids=str)
def test_trees_of_two_columns_answer_as_their_only_circuit(two_columns, given):
    """Two columns have one spanning tree."""
    tree = fit(ChowLiuDensity(), skewed()[:, :2])
    tree.circuit_ = two_columns.to_circuit(1, random_state=0)
    X = skewed(50, seed=1)[:, :2]
    X[::7] *= 10.0
    np.testing.assert_allclose(two_columns.score_samples(X), tree.score_samples(X), rtol=1e-9)
    queries = [{0: (None, -4.0)}, {0: (2.9, 3.6)}, {1: (30.0, None)}, {0: (0, 1), 1: (1, 2)}]
    found, expected = (d.probabilities(queries, given=given) for d in (two_columns, tree))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-15)
    mean = two_columns.expectation(given=given)
    np.testing.assert_allclose(mean, tree.expectation(given=given), rtol=1e-8)
    covariance = tree.covariance(given=given)
    levels = [1e-4, 0.3, 0.9999]
    found, expected = (d.quantile(levels, 1, given=given) for d in (two_columns, tree))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    best, expected = (d.mpe(given=given).reshape(1, 2) for d in (two_columns, tree))
    assert two_columns.score_samples(best) == pytest.approx(tree.score_samples(expected), rel=1e-9)
    drawn = two_columns.sample(4000, random_state=0, given=given)
    error = np.sqrt(np.diag(covariance) / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - mean) <= 5 * error + 1e-12).all()
    if isinstance(given, dict):
        boxes = compile_queries([given], two_columns._schema)
        _, variances = two_columns._restricted(boxes, np.full((1, 2), np.nan)).moments()
        np.testing.assert_allclose(variances[0], np.diag(covariance), rtol=1e-8)
        for column, (low, high) in given.items():
            assert low is None or (drawn[:, column] >= low).all()
            assert high is None or (drawn[:, column] <= high).all()


def test_rows_far_outside_are_conditions_of_trees(two_columns):
    # Densities this far out are below the smallest float
    rows = np.array([[1e5, np.nan], [np.nan, -1e4]])
    tree = fit(ChowLiuDensity(), skewed()[:, :2])
    tree.circuit_ = two_columns.to_circuit(1, random_state=0)
    for ask in (lambda density: density.mpe(rows), lambda density: density.expectation(given=rows)):
        np.testing.assert_allclose(ask(two_columns), ask(tree), rtol=1e-8)
    # The same of conditions that hold in one of two boxes
    either = [f"x0 == {1e5} and (x1 > 20 or x1 < 1)"]
    found, expected = (density.mpe(either) for density in (two_columns, tree))
    np.testing.assert_allclose(
        two_columns.score_samples(found), tree.score_samples(expected), rtol=1e-9
    )
