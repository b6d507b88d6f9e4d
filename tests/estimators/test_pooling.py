"""Rubin's rules against numbers by hand, and the coverage that they promise."""

import sys

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression

from skcircuits import CircuitImputer, GaussianMixtureDensity, pool, pool_models


def test_numbers_by_hand():
    pooled = pool([1.0, 2.0, 3.0], [0.5, 0.5, 2.0], complete_degrees_of_freedom=20)
    # Within 1, between 1, total 1 + 4/3, fraction from missing values 4/7
    assert pooled.estimate[0] == pytest.approx(2.0)
    assert pooled.within[0] == pytest.approx(1.0) and pooled.between[0] == pytest.approx(1.0)
    assert pooled.variance[0] == pytest.approx(7 / 3)
    large = 2 * (7 / 4) ** 2
    observed = 21 / 23 * 20 * 3 / 7
    assert pooled.degrees_of_freedom[0] == pytest.approx(1 / (1 / large + 1 / observed))
    half = stats.t.ppf(0.975, pooled.degrees_of_freedom[0]) * np.sqrt(7 / 3)
    np.testing.assert_allclose(pooled.interval(), [[2 - half, 2 + half]])


def test_equal_estimates_leave_the_complete_analysis():
    pooled = pool([[1.0, 2.0]] * 4, [[0.3, 0.4]] * 4)
    np.testing.assert_array_equal(pooled.variance, [0.3, 0.4])
    assert np.isinf(pooled.degrees_of_freedom).all()
    np.testing.assert_allclose(
        pooled.interval(0.9)[0], 1 + np.sqrt(0.3) * stats.norm.ppf([0.05, 0.95])
    )
    np.testing.assert_allclose(pooled.p_value(1.0)[0], 1.0)


@pytest.mark.parametrize(
    ("estimates", "variances", "message"),
    [
        ([1.0], [1.0], "m >= 2"),
        (np.empty((3, 0)), np.empty((3, 0)), "k >= 1"),
        ([1.0, 2.0], [[1.0], [2.0]], "one shape"),
        ([1.0, 2.0], [1.0, 0.0], "positive"),
        ([1.0, np.nan], [1.0, 1.0], "finite"),
    ],
)
def test_bad_input_is_refused(estimates, variances, message):
    with pytest.raises(ValueError, match=message):
        pool(estimates, variances)


def test_names_that_are_no_sequence_are_refused():
    with pytest.raises(TypeError, match=r"^names must be a sequence of strings; got names=3"):
        pool([1.0, 2.0], [1.0, 1.0], names=3)


def test_complete_tables_give_the_usual_standard_errors():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = X @ [1.0, -1.0] + rng.normal(size=80)
    pooled = pool_models([LinearRegression().fit(X, y)] * 2, [X, X], y)
    design = np.column_stack([np.ones(80), X])
    beta, rss = np.linalg.lstsq(design, y)[:2]
    covariance = np.linalg.inv(design.T @ design) * rss[0] / 77
    np.testing.assert_allclose(pooled.estimate, beta)
    np.testing.assert_allclose(pooled.standard_error, np.sqrt(np.diag(covariance)))
    assert pooled.names == ("intercept", "x0", "x1")
    table = pytest.importorskip("pandas") and pooled.summary(0.9)
    assert list(table.index) == ["intercept", "x0", "x1"]
    np.testing.assert_array_equal(table[["lower", "upper"]], pooled.interval(0.9))
    np.testing.assert_array_equal(table["p_value"], pooled.p_value())


def test_logistic_models_pool_their_information():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    y = rng.random(400) < 1 / (1 + np.exp(-X[:, 0]))
    model = LogisticRegression(C=np.inf).fit(X, y)
    pooled = pool_models([model, model], [X, X], y)
    p = model.predict_proba(X)[:, 1]
    design = np.column_stack([np.ones(400), X])
    information = design.T @ (design * (p * (1 - p))[:, None])
    np.testing.assert_allclose(pooled.variance, np.diag(np.linalg.inv(information)))
    with pytest.raises(ValueError, match="LogisticRegression with C"):
        pool_models([LogisticRegression().fit(X, y)] * 2, [X, X], y)


@pytest.mark.slow
def test_intervals_cover_the_truth():
    covered = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(150, 2)) @ [[1.0, 0.6], [0.0, 0.8]]
        table = np.column_stack([X, X @ [1.0, -0.5] + rng.normal(size=150)])
        table[rng.random((150, 3)) < 0.25] = np.nan
        density = GaussianMixtureDensity(n_components=1, covariance_type="full")
        imputer = CircuitImputer(density=density, random_state=seed).fit(table)
        tables = imputer.sample_imputations(table, 15)
        models = [LinearRegression().fit(t[:, :2], t[:, 2]) for t in tables]
        low, high = pool_models(models, tables[..., :2], tables[..., 2]).interval().T
        covered.append((low[1:] < [1.0, -0.5]) & (high[1:] > [1.0, -0.5]))
    # 300 intervals: three standard errors around .95
    assert 0.91 < np.mean(covered) < 0.985


def test_no_models_are_refused_by_name():
    with pytest.raises(ValueError, match="models must hold one fitted model"):
        pool_models([], [], [])


@pytest.fixture
def analysis():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) * [1.0, 100.0]
    return X, X @ [1.0, 0.02] + rng.normal(size=60)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_models_of_other_rows_weights_or_columns_are_refused(analysis, kind):
    X, y = analysis
    weights = np.where(y > 0, 10.0, 1.0)
    y = y if kind == "linear" else np.where(y > 0, "yes", "no")
    model = LinearRegression() if kind == "linear" else LogisticRegression(C=np.inf, max_iter=1000)
    model.fit(X, y)
    assert np.isfinite(pool_models([model] * 2, [X] * 2, y).standard_error).all()
    weighted = clone(model).fit(X, y, sample_weight=weights)
    for models, tables in [(model, X[:, ::-1]), (model, X[::-1]), (weighted, X)]:
        with pytest.raises(ValueError, match="Every model must maximise the likelihood"):
            pool_models([models] * 2, [tables] * 2, y)


def test_tables_that_do_not_determine_the_coefficients_are_refused(analysis):
    X, y = analysis
    for table in (np.column_stack([X, X[:, 0]]), np.column_stack([X, np.full(60, 3.0)])):
        model = LinearRegression().fit(table, y)
        with pytest.raises(ValueError, match="Columns of X must be linearly independent"):
            pool_models([model] * 2, [table] * 2, y)
    few = LinearRegression().fit(X[:3], y[:3])
    with pytest.raises(ValueError, match=r"fewer than the rows; got n_rows=3"):
        pool_models([few] * 2, [X[:3]] * 2, y[:3])
    with pytest.raises(ValueError, match="Every table of X must be the 60 rows"):
        pool_models([LinearRegression().fit(X, y)] * 2, [X[:, :1]] * 2, y)


def test_targets_may_be_columns(analysis):
    X, y = analysis
    expected = pool_models([LinearRegression().fit(X, y)] * 2, [X] * 2, y)
    model = LinearRegression().fit(X, y[:, None])
    pooled = pool_models([model] * 2, [X] * 2, [y[:, None]] * 2)
    np.testing.assert_allclose(pooled.standard_error, expected.standard_error)


def test_degrees_of_freedom_and_names_are_checked():
    known = pool([1.0, 2.0], [1.0, 1.0])
    infinite = pool([1.0, 2.0], [1.0, 1.0], complete_degrees_of_freedom=np.inf)
    np.testing.assert_array_equal(infinite.interval(), known.interval())
    for freedom in (0, -3, np.nan):
        with pytest.raises(ValueError, match="complete_degrees_of_freedom must be positive"):
            pool([1.0, 2.0], [1.0, 1.0], complete_degrees_of_freedom=freedom)
    assert pool([1.0, 2.0], [1.0, 1.0], names="slope").names == ("slope",)
    with pytest.raises(ValueError, match="names must be one for each of 2"):
        pool([[1.0, 2.0]] * 2, [[1.0, 1.0]] * 2, names=["a"])


def test_summaries_say_how_to_install_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pandas must be installed; .* pip install 'skcircuits"):
        pool([1.0, 2.0], [1.0, 1.0]).summary()
