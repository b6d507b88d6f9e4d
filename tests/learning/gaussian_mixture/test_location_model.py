import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import dirichlet_multinomial, multinomial

from skcircuits import GaussianMixtureDensity
from skcircuits.learning.gaussian_mixture._categories import (
    PRIOR_ROWS,
    Cells,
    dependence_gains,
    fit_marginals,
)
from skcircuits.learning.gaussian_mixture._full_gaussians import FullGaussians
from skcircuits.learning.gaussian_mixture._learner import EMSettings, learn_gaussian_mixture
from skcircuits.learning.gaussian_mixture._table import MixtureTable

CARDINALITIES = np.array([0, 3, 0, 4, 2])


def additive_table(n_rows=300, missing=0.2, seed=0):
    """Two numbers whose means are sums of effects of two of three categorical columns."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, size, n_rows) for size in (3, 4, 2)], axis=1)
    means = np.array([0.0, 3.0, -2.0])[codes[:, 0]] + np.array([0.0, 1.0, 2.0, 5.0])[codes[:, 1]]
    noise = rng.normal(size=(n_rows, 2)) @ np.array([[0.5, 0.4], [0.0, 0.3]])
    numbers = np.stack([means, -means], axis=1) + noise
    X = np.stack([numbers[:, 0], codes[:, 0], numbers[:, 1], codes[:, 1], codes[:, 2]], axis=1)
    complete = X.astype(float)
    return np.where(rng.random(X.shape) < missing, np.nan, complete), complete


def learn(X, n_classes=1, **settings):
    table = MixtureTable.prepare(X, CARDINALITIES)
    settings = EMSettings(covariance_type="tied", by_cells=True, **settings)
    return table, list(learn_gaussian_mixture(table, n_classes, settings, np.random.default_rng(0)))


@pytest.mark.parametrize("n_classes", [1, 2])
def test_the_lower_bound_never_falls(n_classes):
    _, states = learn(additive_table()[0], n_classes, tol=1e-9, max_iter=60)
    # the prior is learned in the first iterations
    bounds = np.array([state.lower_bound for state in states])[26:]
    assert (np.diff(bounds) > -1e-9).all()
    assert states[-1].n_components == 24 * n_classes


def test_effects_are_learned_from_few_rows_of_each_combination():
    X, _ = additive_table(n_rows=120)
    density = GaussianMixtureDensity(
        n_components=1, location_model=True, categorical_features=[1, 3, 4], random_state=0
    ).fit(X)
    _, new = additive_table(n_rows=200, seed=1)
    hidden = new.copy()
    hidden[:, [0, 2]] = np.nan
    errors = density.circuit_.expectation(hidden)[:, [0, 2]] - new[:, [0, 2]]
    # the standard deviation given both categories is sqrt(.41) and .3
    assert np.sqrt(np.mean(errors**2, axis=0)) == pytest.approx([0.5, 0.5], rel=0.25)
    assert density.n_components_ == 24
    assert density.score(new) > GaussianMixtureDensity(
        n_components=8, covariance_type="tied", categorical_features=[1, 3, 4], random_state=0
    ).fit(X).score(new)


def test_a_combination_that_no_row_has_is_possible():
    X, _ = additive_table(missing=0.0)
    X = X[(X[:, 1] != 2) | (X[:, 3] != 3)]
    density = GaussianMixtureDensity(
        n_components=1, location_model=True, categorical_features=[1, 3, 4], random_state=0
    ).fit(X)
    row = np.array([[np.nan, 2.0, np.nan, 3.0, np.nan]])
    assert -20.0 < density.score_samples(row)[0] < -3.0
    assert density.circuit_.log_prob(np.full((1, 5), np.nan))[0] == pytest.approx(0.0, abs=1e-12)


def test_columns_outside_the_cells_depend_on_them(monkeypatch):
    monkeypatch.setattr("skcircuits.learning.gaussian_mixture._categories._MAX_CELLS", 12)
    X, _ = additive_table(missing=0.0)
    X[:, 4] = X[:, 1] > 0.5
    _, states = learn(X)
    cells = states[-1].categories.cells
    assert len(cells.levels) <= 12
    (outside,) = set(range(3)) - set(cells.columns)
    tables = np.exp(states[-1].categories.log_probabilities[outside])
    assert tables.sum(axis=1) == pytest.approx(np.ones(len(tables)))
    sure = tables.max(axis=1)
    assert sure.mean() > 0.9 if outside != 1 else sure.mean() < 0.9


def test_given_a_covariance_type_of_its_own_it_is_refused():
    density = GaussianMixtureDensity(location_model=True, covariance_type="diag")
    with pytest.raises(ValueError, match="location model must have one covariance"):
        density.fit(np.zeros((20, 2)))


def test_margins_are_fitted_as_the_likelihood_asks():
    rng = np.random.default_rng(0)
    levels = np.stack(np.unravel_index(np.arange(12), (2, 3, 2)), axis=1)
    counts = rng.integers(1, 9, 12).astype(float)
    marginals = [levels[:, 0] * 3 + levels[:, 1], levels[:, 1] * 2 + levels[:, 2]]
    fitted = fit_marginals(counts, marginals, np.ones(12), 50)

    design = np.hstack(
        [(marginal[:, None] == np.arange(6)).astype(float) for marginal in marginals]
    )
    best = minimize(lambda b: np.exp(design @ b).sum() - counts @ design @ b, np.zeros(12))
    assert fitted == pytest.approx(np.exp(design @ best.x), rel=1e-4)


def test_cells_stay_within_the_work(monkeypatch):
    table = MixtureTable.prepare(additive_table()[0], CARDINALITIES)
    assert len(Cells.span(table, 1).levels) == 24
    monkeypatch.setattr("skcircuits.learning.gaussian_mixture._categories._MAX_WORK", 600 * 4)
    # the column that says most about the numbers stays
    assert Cells.span(table, 1).columns == (0,)


@pytest.mark.parametrize(("correlation", "n_rows"), [(0.0, 200), (0.99, 50)])
def test_one_covariance_is_shrunk_as_much_as_chance_makes_correlations(correlation, n_rows):
    rng = np.random.default_rng(0)
    covariance = np.full((4, 4), correlation) + (1.0 - correlation) * np.eye(4)
    single = FullGaussians.guess(np.eye(4), np.zeros(4))
    strengths = []
    for _ in range(50):
        X = rng.multivariate_normal(np.zeros(4), covariance, n_rows)
        mean = X.mean(axis=0)
        sums = np.full(1, float(n_rows)), mean[None], (X - mean).T @ (X - mean)
        strengths.append(single.adapt(sums, 1.0).strength)
    if correlation:  # columns that are nearly one another: what differs must not be drowned
        assert np.median(strengths) < 0.1 * n_rows * (1.0 - correlation) + 1.0
    else:
        assert np.median(strengths) > n_rows


def test_evidence_for_dependence_is_that_of_a_dirichlet_prior():
    counts = np.array([[12.0, 3.0, 1.0], [2.0, 9.0, 8.0]])
    rows, columns = counts.sum(axis=1) + 1.0 / 2.0, counts.sum(axis=0) + 1.0 / 3.0
    independent = (np.outer(rows, columns) / rows.sum() ** 2).ravel()
    expected = [
        dirichlet_multinomial.logpmf(counts.ravel().astype(int), rows_of_prior * independent, 35)
        - multinomial.logpmf(counts.ravel().astype(int), 35, independent)
        for rows_of_prior in PRIOR_ROWS
    ]
    assert dependence_gains(counts) == pytest.approx(expected, rel=1e-9)


def test_only_columns_that_depend_on_each_other_interact():
    X, _ = additive_table(missing=0.1)
    X[:, 4] = X[:, 1] > 0.5
    cells = Cells.span(MixtureTable.prepare(X, CARDINALITIES), 1)
    assert cells.associated.tolist() == [[False, False, True], [False] * 3, [True, False, False]]
    # three one-way marginals, that of the only latent class, one for each column with it, one pair
    assert len(cells.marginal_entries()) == 4 + 3 + 1
