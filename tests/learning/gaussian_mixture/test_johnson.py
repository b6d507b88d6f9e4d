"""Columns that Gaussian mixtures see as hyperbolic sines of normal variables."""

import numpy as np
import pytest
from scipy.stats import skew

from skcircuits import AutomaticDensity, GaussianMixtureDensity
from skcircuits.circuits import JohnsonGaussian
from skcircuits.learning.gaussian_mixture._table import fit_sinh_map


def skewed(n_rows=400, seed=0):
    """A lognormal column, one with heavy tails, a normal one and a category."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.normal(size=(3, n_rows))
    X = np.column_stack([np.exp(a), np.sinh(1.5 * (0.8 * a + 0.6 * b)), 0.5 * b + c, a > b])
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


def one_johnson(**parameters):
    return GaussianMixtureDensity(
        n_components=1, covariance_type="tied", transformation="johnson", **parameters
    )


def test_maps_straighten_columns():
    X = skewed()[:, :3]
    found = fit_sinh_map(X, np.ones(len(X)))
    normal = found.normal(X)
    assert found.curvatures[:2].min() > 0.0
    assert found.curvatures[2] == 0.0
    assert np.abs(skew(normal, nan_policy="omit")).max() < 0.4
    np.testing.assert_allclose(found.cells(normal), X)
    assert (fit_sinh_map(np.round(X), np.zeros(len(X)) + 2.0).curvatures >= 0.0).all()


@pytest.mark.parametrize("sigma", [2.0, 3.0])
def test_maps_of_tails_that_are_many_times_as_long_as_most_cells(sigma):
    cells = np.exp(sigma * np.random.default_rng(4).normal(size=(500, 1)))
    found = fit_sinh_map(cells, np.ones(500))
    normal, logs = found.normal(cells)[:, 0], np.log(cells[:, 0])
    assert np.corrcoef(normal, logs)[0, 1] > 0.99
    # Many equal cells would be concentrated ever more
    spikes = np.where(np.arange(500)[:, None] % 3 == 0, cells, 0.0)
    assert fit_sinh_map(spikes, np.ones(500)).curvatures[0] * spikes.std() < 30.0


def test_rows_without_weight_and_scales_of_weights_do_not_matter():
    X = skewed()[:, :3]
    weights = np.r_[np.ones(300), np.zeros(100)]
    own, other = fit_sinh_map(X, weights), fit_sinh_map(X[:300], np.full(300, 7.0))
    np.testing.assert_allclose(own.centers, other.centers)
    np.testing.assert_allclose(own.curvatures, other.curvatures)


def test_densities_are_those_of_the_columns_themselves():
    X = skewed()
    density = one_johnson(categorical_features=[3]).fit(X)
    assert any(isinstance(unit, JohnsonGaussian) for unit in density.circuit_.root.children)
    plain = GaussianMixtureDensity(
        n_components=1, covariance_type="tied", categorical_features=[3]
    ).fit(X)
    held_out = skewed(seed=1)
    assert density.score(held_out) > plain.score(held_out) + 1.0
    x = np.linspace(-3.0, 60.0, 60_000)
    rows = np.full((len(x), 4), np.nan)
    rows[:, 0] = x
    mass = np.exp(density.score_samples(rows)).sum() * (x[1] - x[0])
    assert mass == pytest.approx(1.0, abs=1e-3)
    assert density.probability({0: (None, 1.0)}) == pytest.approx(0.5, abs=0.06)


def test_batches_keep_the_map_of_the_first():
    density = one_johnson()
    for seed in range(3):
        density.partial_fit(skewed(seed=seed)[:, :3])
    whole = one_johnson().fit(np.vstack([skewed(seed=seed)[:, :3] for seed in range(3)]))
    held_out = skewed(seed=5)[:, :3]
    assert density.score(held_out) == pytest.approx(whole.score(held_out), abs=0.05)


@pytest.mark.parametrize(
    ("selection", "n_columns"), [("cells", 4), ("log_likelihood", 4), ("log_likelihood", 3)]
)
def test_they_are_tried_for_cells_and_for_log_densities(selection, n_columns):
    density = AutomaticDensity(
        families=["gaussian_mixture"],
        selection=selection,
        categorical_features=list(range(3, n_columns)),
        random_state=0,
    )
    tried = density.fit(skewed(150)[:, :n_columns]).selection_
    assert any(row.get("transformation") == "johnson" for row in tried)


def test_they_are_not_tried_where_kernels_need_log_densities():
    density = AutomaticDensity(families=["gaussian_mixture"], random_state=0)
    density._may_transform = False
    tried = density.fit(skewed(150)[:, :3]).selection_
    assert not any("transformation" in row for row in tried)


def test_components_are_not_wider_than_their_moments_can_be_computed():
    rng = np.random.default_rng(3)
    X = np.exp(8.0 * rng.normal(size=(200, 3)))
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    X = X[~np.isnan(X).all(axis=1)]
    weights = rng.integers(0, 3, len(X)).astype(float)
    density = GaussianMixtureDensity(transformation="johnson", random_state=0)
    density.fit(X, sample_weight=weights)
    assert np.isfinite(density.score_samples(X[weights > 0])).all()
    assert np.isfinite(density.circuit_.expectation(X)).all()


def test_means_are_those_of_the_table_where_components_are_narrow_in_other_columns():
    # Components without rows had, in the skewed columns, variances of many rows of such components
    rng = np.random.default_rng(0)
    clusters = 3.0 * rng.normal(size=(30, 5))[rng.integers(30, size=500)]
    skewed_columns = np.exp(1.5 * rng.normal(size=(500, 2)))
    X = np.hstack([clusters + 0.01 * rng.normal(size=clusters.shape), skewed_columns])
    density = GaussianMixtureDensity(
        covariance_type="shrunk", n_components=16, transformation="johnson", random_state=0
    ).fit(X)
    means = density.expectation(np.full((1, 7), np.nan))[0]
    assert np.abs((means - X.mean(axis=0)) / X.std(axis=0)).max() < 0.5
