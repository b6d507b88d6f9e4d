"""Completions against closed forms and enumeration; containers, options, invariances."""

import itertools
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import kstest, norm
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV

from skcircuits import ChowLiuDensity, CircuitImputer, GaussianMixtureDensity, MoATDensity
from skcircuits.circuits import (
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    MultivariateGaussian,
    PiecewisePolynomial,
    Poisson,
    Product,
    Sum,
)
from skcircuits.estimators.shared import _completion
from skcircuits.estimators.shared._completion import averages, predict_in_turns
from skcircuits.exceptions import CircuitPropertyError

NAN = np.nan
MEAN = np.array([1.0, -1.0, 0.5])
COVARIANCE = np.array([[2.0, 0.8, 0.3], [0.8, 1.0, -0.2], [0.3, -0.2, 1.5]])
ONE = GaussianMixtureDensity(n_components=1, covariance_type="full", random_state=0)


@pytest.fixture
def gaussian():
    return Circuit(MultivariateGaussian([0, 1, 2], MEAN, COVARIANCE))


@pytest.fixture
def deterministic():
    """Two states of the first variable decide over the distributions of the others."""
    return Circuit(
        0.4 * Indicator(0, 0, 2) * Categorical(1, [0.9, 0.1, 0.0]) * Categorical(2, [0.3, 0.7])
        + 0.6 * Indicator(0, 1, 2) * Categorical(1, [0.1, 0.3, 0.6]) * Categorical(2, [0.8, 0.2])
    )


@pytest.fixture
def frame():
    generator = np.random.default_rng(0)
    n = 60
    group = generator.integers(0, 2, n)
    table = pd.DataFrame(
        {
            "length": generator.normal(4.0 * group, 1.0),
            "count": pd.array(3 * group + generator.integers(0, 2, n), dtype="Int32"),
            "colour": pd.Categorical.from_codes(group, ["red", "blue"]),
            "tame": group == 1,
        },
        index=np.arange(100, 100 + n),
    )
    table.loc[generator.random(n) < 0.2, "length"] = NAN
    table.loc[generator.random(n) < 0.2, "count"] = pd.NA
    table.loc[generator.random(n) < 0.2, "colour"] = None
    return table


def with_missing_values(X, fraction=0.4, seed=0):
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < fraction] = NAN
    return X


def test_mean_is_the_conditional_expectation(gaussian):
    X = np.array([[2.0, NAN, NAN], [NAN, 0.0, 1.0], [NAN, NAN, NAN], [1.0, 2.0, 3.0]])
    completed = CircuitImputer(density=gaussian).fit_transform(X)
    np.testing.assert_allclose(
        completed[0, 1:], MEAN[1:] + COVARIANCE[1:, 0] / 2.0 * (2.0 - MEAN[0])
    )
    gain = np.linalg.solve(COVARIANCE[1:, 1:], COVARIANCE[1:, 0])
    assert completed[1, 0] == pytest.approx(MEAN[0] + gain @ (X[1, 1:] - MEAN[1:]), rel=1e-12)
    np.testing.assert_allclose(completed[2], MEAN)
    np.testing.assert_array_equal(completed[3], X[3])


def all_completions(row, n_states=(2, 3, 2)):
    choices = [range(k) if np.isnan(x) else [x] for x, k in zip(row, n_states, strict=True)]
    return np.array(list(itertools.product(*choices)), dtype=float)


ROWS = np.array(list(itertools.product([NAN, 0, 1], [NAN, 0, 1, 2], [NAN, 0, 1])))


def possible_rows(circuit):
    return ROWS[np.isfinite(circuit.log_prob(ROWS))]


def test_mpe_is_the_most_probable_completion(deterministic):
    X = possible_rows(deterministic)
    completed = CircuitImputer(density=deterministic, strategy="mpe").fit_transform(X)
    for row, found in zip(X, completed, strict=True):
        best = deterministic.log_prob(all_completions(row)).max()
        assert deterministic.log_prob(found[None])[0] == pytest.approx(best, rel=1e-12)
        assert (found[~np.isnan(row)] == row[~np.isnan(row)]).all()


def test_mean_takes_the_most_probable_label_of_each_cell(deterministic):
    X = possible_rows(deterministic)
    completed = CircuitImputer(density=deterministic).fit_transform(X)
    for row, found in zip(X, completed, strict=True):
        table = all_completions(row)
        probability = np.exp(deterministic.log_prob(table))
        for j in np.flatnonzero(np.isnan(row)):
            marginal = np.bincount(table[:, j].astype(int), probability)
            assert marginal[int(found[j])] == pytest.approx(marginal.max(), rel=1e-12)


def test_samples_have_the_conditional_distribution(gaussian):
    x = np.array([[NAN, 0.3, -0.7]])
    imputer = CircuitImputer(density=gaussian, keep_empty_features=True, random_state=0).fit(x)
    drawn = imputer.sample_imputations(x, 4000)[:, 0, 0]
    gain = np.linalg.solve(COVARIANCE[1:, 1:], COVARIANCE[1:, 0])
    conditional = norm(
        MEAN[0] + gain @ (x[0, 1:] - MEAN[1:]), np.sqrt(COVARIANCE[0, 0] - gain @ COVARIANCE[1:, 0])
    )
    assert kstest(drawn, conditional.cdf).pvalue > 1e-3


def test_draws_of_whole_numbers_are_whole():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 1000, size=200).astype(float)
    X = np.column_stack([counts, counts + rng.normal(size=200)])
    X[::4, 0] = np.nan
    X[1::4, 1] = np.nan
    density = GaussianMixtureDensity(n_components=1, covariance_type="full", random_state=0)
    imputer = CircuitImputer(density=density, strategy="sample", random_state=0).fit(X)
    # A fraction where fit has seen integers only: it was observed and stays
    rows = np.vstack([X, [[7.5, np.nan]]])
    tables = imputer.sample_imputations(rows, 3, proper=False)
    np.testing.assert_array_equal(tables[0], imputer.transform(rows))
    assert (tables[:, :-1, 0] == np.round(tables[:, :-1, 0])).all()
    assert (tables[:, 1::4, 1] != np.round(tables[:, 1::4, 1])).all()
    assert (tables[:, -1, 0] == 7.5).all()


@pytest.mark.parametrize(
    ("strategy", "rounds", "dtype"),
    [("sample", False, "Int64"), ("mean", False, "float64"), ("mean", True, "Int64")],
)
def test_integers_of_a_frame_stay_integers_when_drawn_or_rounded(strategy, rounds, dtype):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 1000, size=200)
    X = pd.DataFrame({"n": counts, "x": counts + rng.normal(size=200)}).astype({"n": "Int64"})
    X.loc[::4, "n"] = pd.NA
    density = GaussianMixtureDensity(n_components=1, covariance_type="full", random_state=0)
    settings = {"strategy": strategy, "round_integers": rounds}
    imputer = CircuitImputer(density=density, random_state=0, **settings)
    completed = imputer.set_output(transform="pandas").fit_transform(X)
    assert completed["n"].dtype.name == dtype


def test_samples_of_different_rows_are_independent(gaussian):
    X = np.column_stack([np.full(4000, NAN), np.zeros(4000), np.linspace(0, 1e-9, 4000)])
    imputer = CircuitImputer(density=gaussian, strategy="sample", keep_empty_features=True)
    drawn = imputer.set_params(random_state=0).fit_transform(X)[:, 0]
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.06
    assert drawn.std() > 0.5


@pytest.mark.parametrize("strategy", ["mean", "mpe", "sample"])
def test_order_subset_and_jobs_do_not_matter(gaussian, strategy):
    X = with_missing_values(gaussian.sample(4500, random_state=0))
    X = X[~np.isnan(X).all(axis=1)]  # the order tells equal rows apart
    imputer = CircuitImputer(density=gaussian, strategy=strategy, random_state=0).fit(X)
    expected = imputer.transform(X)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(imputer.transform(X[order]), expected[order], rtol=1e-9)
    np.testing.assert_allclose(imputer.transform(X[100:103]), expected[100:103], rtol=1e-9)
    np.testing.assert_array_equal(imputer.set_params(n_jobs=2).transform(X), expected)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_equal_rows_are_drawn_one_by_one(n_jobs):
    rng = np.random.default_rng(0)
    X = (rng.random((5000, 2)) < [0.5, 0.3]).astype(float)
    is_missing = np.r_[np.zeros(2000, dtype=bool), np.ones(3000, dtype=bool)]
    X[is_missing, 1] = np.nan
    imputer = CircuitImputer(
        strategy="sample", density=ChowLiuDensity(), random_state=0, n_jobs=n_jobs
    )
    drawn = imputer.fit_transform(X)[is_missing]
    for state in (0.0, 1.0):
        fractions = drawn[drawn[:, 0] == state, 1].mean()
        assert fractions == pytest.approx(0.3, abs=0.06)
    means = imputer.sample_imputations(X, 20)[:, is_missing, 1].mean(axis=1)
    assert 0.003 < means.std() < 0.02  # sqrt(.21 / 3000) = .008


def test_numbers_never_seen_count_as_missing_and_stay():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.integers(3, size=(500, 1)), 3, axis=1).astype(float)
    imputer = CircuitImputer(density=ChowLiuDensity(), strategy="mpe").fit(X)
    completed = imputer.transform([[2.0, np.nan, 7.0], [2.0, np.nan, np.nan]])
    np.testing.assert_array_equal(completed, [[2, 2, 7], [2, 2, 2]])


def test_transform_is_the_first_imputation(gaussian):
    X = with_missing_values(gaussian.sample(50, random_state=0))
    imputer = CircuitImputer(density=gaussian, strategy="sample", random_state=1).fit(X)
    tables = imputer.sample_imputations(X, 3)
    assert tables.shape == (3, 50, 3)
    np.testing.assert_array_equal(tables[0], imputer.transform(X))
    is_missing = np.isnan(X)
    assert (tables[0][is_missing] != tables[1][is_missing]).all()
    assert (tables[:, ~is_missing] == X[~is_missing]).all()


def test_fits_of_one_seed_agree(gaussian):
    X = with_missing_values(gaussian.sample(50, random_state=0))
    make = CircuitImputer(density=gaussian, strategy="sample", random_state=3)
    np.testing.assert_array_equal(clone(make).fit_transform(X), clone(make).fit_transform(X))
    other = clone(make).set_params(random_state=4).fit_transform(X)
    assert (other[np.isnan(X)] != clone(make).fit_transform(X)[np.isnan(X)]).all()


@pytest.mark.parametrize("strategy", ["mean", "mpe", "sample"])
def test_dataframes_get_their_dtypes_back(independent_density, frame, strategy):
    imputer = CircuitImputer(density=independent_density, strategy=strategy, random_state=0)
    completed = imputer.set_output(transform="pandas").fit_transform(frame)
    assert not completed.isna().any(axis=None)
    assert completed.index.equals(frame.index)
    assert list(completed.columns) == list(frame.columns)
    for name in ["length", "colour", "tame"]:
        assert completed[name].dtype == frame[name].dtype
    # Conditional means of counts are no counts
    assert str(completed["count"].dtype) in ("Int32", "float64")
    observed = frame["colour"].notna()
    assert (completed["colour"][observed] == frame["colour"][observed]).all()


def test_integer_columns_stay_integers_where_they_can(independent_density, frame):
    complete = frame[frame["count"].notna()]
    imputer = CircuitImputer(density=independent_density).set_output(transform="pandas")
    assert imputer.fit(frame).transform(complete)["count"].dtype == frame["count"].dtype


def _plain_cells(series):
    return series.astype(object).where(series.notna(), None).tolist()


def test_polars_in_and_out(independent_density, frame):
    table = pl.DataFrame({name: _plain_cells(frame[name]) for name in frame})
    imputer = CircuitImputer(density=independent_density).set_output(transform="polars")
    completed = imputer.fit_transform(table)
    assert isinstance(completed, pl.DataFrame)
    assert sum(completed.null_count().row(0)) == 0
    assert completed.schema["tame"] == pl.Boolean
    across = imputer.set_output(transform="pandas").transform(table)
    assert isinstance(across, pd.DataFrame)
    assert across["colour"].tolist() == completed["colour"].to_list()


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_samples_and_completed_tables_of_arrays_have_the_same_names(gaussian, container):
    X = np.array([[1.0, NAN, 2.0], [0.5, 1.0, NAN]])
    imputer = CircuitImputer(density=gaussian, random_state=0).set_output(transform=container)
    names = list(imputer.fit_transform(X).columns)
    assert names == ["x0", "x1", "x2"]
    for table in imputer.sample_imputations(X, 2, proper=False):
        assert list(table.columns) == names


def test_samples_of_numbered_columns_keep_their_dtypes(gaussian):
    X = pd.DataFrame({5: [1.0, NAN], 7: [0.5, 1.0], 9: pd.array([1, 2], dtype="Int64")})
    imputer = CircuitImputer(density=gaussian, random_state=0).set_output(transform="pandas")
    for table in imputer.fit(X).sample_imputations(X, 2, proper=False):
        assert table.dtypes.to_dict() == X.dtypes.to_dict()


def test_samples_of_numbered_columns_have_names_in_polars(gaussian):
    X = pd.DataFrame({5: [1.0, NAN], 7: [0.5, 1.0], 9: [1.0, 2.0]})
    imputer = CircuitImputer(density=gaussian, random_state=0).set_output(transform="polars")
    names = imputer.fit_transform(X).columns
    for table in imputer.sample_imputations(X, 2, proper=False):
        assert table.columns == names
        np.testing.assert_array_equal(table.to_numpy()[~X.isna()], X.to_numpy()[~X.isna()])


def test_arrays_by_default_even_from_dataframes(independent_density, frame):
    completed = CircuitImputer(density=independent_density).fit_transform(frame)
    assert isinstance(completed, np.ndarray)
    assert completed.dtype == object
    assert set(completed[:, 2]) == {"red", "blue"}


def test_unseen_categories_are_observed_and_stay(independent_density, frame):
    imputer = CircuitImputer(density=independent_density, add_indicator=True).fit(frame)
    new = frame.iloc[:3].assign(colour=["green", "red", None], length=[np.nan, 1.0, 2.0])
    completed = imputer.transform(new)
    assert completed[:2, 2].tolist() == ["green", "red"] and completed[2, 2] in ("red", "blue")
    assert np.isfinite(completed[0, 0])
    names = imputer.get_feature_names_out().tolist()
    assert completed[:, names.index("missingindicator_colour")].tolist() == [0.0, 0.0, 1.0]
    table = imputer.set_output(transform="pandas").transform(new)
    assert table["colour"].tolist()[:2] == ["green", "red"]
    assert all(t["colour"].tolist()[0] == "green" for t in imputer.sample_imputations(new, 2))


@pytest.mark.parametrize("dtype", ["int64", "Int64", "uint64", "object"])
def test_observed_integers_that_floats_round_stay(dtype):
    first = 2**63 if dtype == "uint64" else 2**53
    keys = pd.Series([first + i for i in range(20)], dtype=dtype)
    if dtype == "Int64":
        keys[4] = pd.NA
    X = pd.DataFrame({"key": keys, "length": np.linspace(0.0, 1.0, 20)})
    X.loc[3, "length"] = np.nan
    imputer = CircuitImputer(density=ONE, random_state=0)
    table = imputer.set_output(transform="pandas").fit_transform(X)
    observed = keys.notna()
    assert table["key"][observed].tolist() == keys[observed].tolist()
    assert table["key"].dtype == keys.dtype and not table.isna().any(axis=None)


def test_observed_integers_that_floats_round_stay_in_polars():
    keys = [2**53 + i for i in range(20)]
    X = pl.DataFrame({"key": [*keys, None], "length": np.linspace(0.0, 1.0, 21)})
    imputer = CircuitImputer(density=ONE, random_state=0)
    table = imputer.set_output(transform="polars").fit_transform(X)
    assert table["key"].to_list()[:20] == keys and table["key"].null_count() == 0


def test_large_integers_are_categories_of_their_own():
    X = pd.DataFrame({"key": [2**53, 2**53 + 1] * 10, "length": np.arange(20.0)})
    density = GaussianMixtureDensity(n_components=1, categorical_features=["key"]).fit(X)
    assert density.categories_[0].tolist() == [2**53, 2**53 + 1]


def test_unseen_categories_can_be_refused(independent_density, frame):
    imputer = CircuitImputer(density=independent_density, handle_unknown="error").fit(frame)
    with pytest.raises(ValueError, match=r"colour.*green"):
        imputer.transform(frame.iloc[:2].assign(colour=["green", "red"]))


def counts_with_missing_values(seed=0):
    rng = np.random.default_rng(seed)
    level = rng.normal(size=300)
    counts = np.maximum(0, np.round(1.5 * level + rng.normal(size=300)))
    X = np.column_stack([counts, level + 0.3 * rng.normal(size=300), rng.normal(size=300)])
    X[rng.random(X.shape) < 0.3] = np.nan
    return X


def test_bounds_confine_what_is_imputed():
    X = counts_with_missing_values()
    density = GaussianMixtureDensity(n_components=1, covariance_type="full", random_state=0)
    free = CircuitImputer(density=density, random_state=0).fit_transform(X)
    assert free[:, 0].min() < 0
    for low in (0.0, [0.0, np.nan, np.nan], {0: 0.0}):
        bounded = CircuitImputer(density=density, random_state=0, min_value=low).fit_transform(X)
        np.testing.assert_array_equal(bounded[:, 0], np.maximum(free[:, 0], 0.0))
    observed = CircuitImputer(
        density=density, strategy="sample", min_value="observed", max_value="observed"
    ).fit(X)
    for table in observed.sample_imputations(X, 3):
        assert (table.min(axis=0) >= np.nanmin(X, axis=0)).all()
        assert (table.max(axis=0) <= np.nanmax(X, axis=0)).all()


@pytest.mark.parametrize("strategy", ["sample", "mpe"])
def test_integers_stay_integers_within_bounds_that_are_none(strategy):
    X = counts_with_missing_values()
    bounds = {"min_value": {0: -0.5}, "max_value": {0: 1.5}}
    free = CircuitImputer(density=ONE, strategy=strategy, random_state=0).fit_transform(X)
    bounded = CircuitImputer(density=ONE, strategy=strategy, random_state=0, **bounds)
    is_missing = np.isnan(X[:, 0])
    np.testing.assert_array_equal(
        bounded.fit_transform(X)[is_missing, 0], np.clip(free[is_missing, 0], 0, 1)
    )
    # Where no integer is within the bounds, these hold
    fractions = clone(bounded).set_params(min_value={0: 0.2}, max_value={0: 0.8}).fit_transform(X)
    assert ((fractions[is_missing, 0] >= 0.2) & (fractions[is_missing, 0] <= 0.8)).all()


def test_dates_are_bounded_by_dates():
    X = pd.DataFrame(counts_with_missing_values()[:, :2], columns=["count", "day"])
    X["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(10 * X["day"], unit="D")

    def imputed(**bounds):
        imputer = CircuitImputer(density=ONE, random_state=0, **bounds)
        return imputer.set_output(transform="pandas").fit_transform(X)

    # Numbers would be days since 1970
    pd.testing.assert_series_equal(imputed(max_value=2.0)["day"], imputed()["day"])
    first = pd.Timestamp("2020-01-03")
    for bound in ({"day": first}, {"day": "2020-01-03"}, [None, first]):
        own = imputed(min_value=bound)["day"][X["day"].isna()]
        expected = imputed()["day"][X["day"].isna()].clip(lower=first)
        pd.testing.assert_series_equal(own, expected)
    with pytest.raises(ValueError, match=r"'day' .* must be a date; got value=3"):
        imputed(min_value={"day": 3})
    for bound in ({"day": pd.NaT}, [pd.NA, pd.NaT]):
        pd.testing.assert_series_equal(imputed(min_value=bound)["day"], imputed()["day"])
    with pytest.raises(ValueError, match=r"min_value must be a number or have shape \(2,\)"):
        imputed(min_value=[[0], [0, 1], [2]])


def test_means_of_integers_are_rounded_when_asked():
    X = counts_with_missing_values()
    density = GaussianMixtureDensity(n_components=1, covariance_type="full", random_state=0)
    rounded = CircuitImputer(density=density, round_integers=True).fit_transform(X)
    assert (rounded[:, 0] == np.round(rounded[:, 0])).all()
    assert (rounded[np.isnan(X[:, 2]), 2] % 1 > 0).all()


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"min_value": [0.0, 1.0]}, "have shape"),
        (
            {"max_value": {"age": 1.0}},
            r"be columns; got unknown=\['age'\]. Columns are \[0, 1, 2\]",
        ),
        ({"max_value": [10**400] * 3}, "max_value must be numbers that a float"),
        ({"min_value": 2.0, "max_value": 1.0}, "not exceed max_value in column 0"),
    ],
)
def test_bounds_must_fit_the_table(bounds, message):
    density = GaussianMixtureDensity(n_components=1, covariance_type="full")
    with pytest.raises(ValueError, match=message):
        CircuitImputer(density=density, **bounds).fit(counts_with_missing_values())


def test_weights_reach_the_density():
    X = counts_with_missing_values()
    density = GaussianMixtureDensity(n_components=1, covariance_type="full", random_state=0)
    half = CircuitImputer(density=density).fit(X, sample_weight=np.arange(300) < 150)
    alone = CircuitImputer(density=density).fit(X[:150])
    np.testing.assert_allclose(half.transform(X), alone.transform(X), rtol=1e-6)


def test_proper_imputations_vary_more():
    X = counts_with_missing_values()[:40]
    density = GaussianMixtureDensity(n_components=1, random_state=0)
    imputer = CircuitImputer(density=density, random_state=0).fit(X)
    spread = {
        proper: imputer.sample_imputations(X, 60, proper=proper)[..., 1].mean(axis=1).var()
        for proper in (True, False)
    }
    assert spread[True] > 1.3 * spread[False]


def test_the_first_proper_imputations_do_not_depend_on_their_number():
    X = counts_with_missing_values()[:40]
    imputer = CircuitImputer(density=ONE, random_state=0, n_jobs=2).fit(X)
    np.testing.assert_array_equal(
        imputer.sample_imputations(X, 3)[:2],
        imputer.set_params(n_jobs=1).sample_imputations(X, 2),
    )


def test_proper_imputations_need_a_density_to_learn_again(independent_density):
    X = counts_with_missing_values()
    frozen = FrozenEstimator(GaussianMixtureDensity(n_components=1, covariance_type="full").fit(X))
    imputer = CircuitImputer(density=frozen).fit(X)
    with pytest.raises(ValueError, match="fitted again"):
        imputer.sample_imputations(X)
    assert imputer.sample_imputations(X, proper=False).shape == (5, 300, 3)


def test_columns_that_only_rows_of_weight_zero_have_are_dropped():
    X = counts_with_missing_values()
    X[:, 1] = np.where(np.arange(len(X)) < 5, 1.0, NAN)
    weights = (np.arange(len(X)) >= 5).astype(float)
    density = GaussianMixtureDensity(n_components=1, covariance_type="full")
    with pytest.warns(UserWarning, match=r"Columns \[1\] have no observed value in fit"):
        imputer = CircuitImputer(density=density).fit(X, sample_weight=weights)
    assert imputer.get_feature_names_out().tolist() == ["x0", "x2"]


def test_names_of_the_output(independent_density):
    X = np.array([[NAN, 1.0, NAN], [NAN, 2.0, 3.0]])
    message = r"Columns \[0\] have no observed value in fit: .* dropped"
    with pytest.warns(UserWarning, match=message) as caught:
        imputer = CircuitImputer(density=independent_density, add_indicator=True).fit(X)
    assert [warning.filename for warning in caught] == [__file__]
    assert imputer.get_feature_names_out().tolist() == [
        "x1",
        "x2",
        "missingindicator_x0",
        "missingindicator_x2",
    ]
    assert imputer.get_feature_names_out(["a", "b", "c"])[-1] == "missingindicator_c"
    kept = clone(imputer).set_params(keep_empty_features=True, add_indicator=False).fit(X)
    assert kept.get_feature_names_out().tolist() == ["x0", "x1", "x2"]
    assert np.isfinite(kept.transform(X)).all()


@pytest.mark.parametrize("strategy", ["mean", "mpe", "sample"])
@pytest.mark.parametrize("dtype", ["datetime64[ns]", "datetime64[us, Europe/Paris]"])
def test_dates_of_a_column_without_any_stay_missing(strategy, dtype):
    X = pd.DataFrame({"x": [1.0, 2.0, np.nan, 4.0], "day": pd.Series([pd.NaT] * 4, dtype=dtype)})
    imputer = CircuitImputer(strategy=strategy, keep_empty_features=True, random_state=0)
    imputer.set_output(transform="pandas").fit(X)
    known = X.assign(day=pd.Series(["2024-03-01", None, None, None]).astype(dtype))
    for table in [imputer.transform(known), *imputer.sample_imputations(known, 2, proper=False)]:
        pd.testing.assert_series_equal(table["day"], known["day"])
        assert table["x"].notna().all()


def test_marked_cells_count_as_missing_beside_nan(independent_density):
    X = np.array([[-1.0, 2.0], [3.0, NAN], [5.0, 4.0]])
    completed = CircuitImputer(density=independent_density, missing_values=-1).fit_transform(X)
    np.testing.assert_allclose(completed, [[4.0, 2.0], [3.0, 3.0], [5.0, 4.0]])
    words = np.array([["?", 1.0], ["a", 2.0], ["a", 3.0], ["b", 2.0]], dtype=object)
    completed = CircuitImputer(density=independent_density, missing_values="?").fit_transform(words)
    assert completed[0].tolist() == ["a", 1.0]


def test_impossible_rows_are_completed_from_the_marginal(deterministic):
    X = np.array([[0.0, 2.0, NAN], [1.0, 2.0, NAN]])
    imputer = CircuitImputer(density=deterministic).fit(ROWS)
    with pytest.warns(UserWarning, match="1 rows have probability zero"):
        completed = imputer.transform(X)
    marginal = 0.4 * np.array([0.3, 0.7]) + 0.6 * np.array([0.8, 0.2])
    np.testing.assert_array_equal(completed, [[0, 2, marginal.argmax()], [1, 2, 0]])


def test_densities_of_every_kind(independent_density, frame):
    expected = CircuitImputer(density=independent_density).fit_transform(frame)
    fitted = clone(independent_density).fit(frame)
    search = GridSearchCV(independent_density, {"random_state": [0, 1]}, cv=2)
    for density in (FrozenEstimator(fitted), search):
        imputer = CircuitImputer(density=density).fit(frame)
        assert imputer.transform(frame).tolist() == expected.tolist()
        assert imputer.categories_[2].tolist() == ["red", "blue"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dtypes_come_back_from_a_search(independent_density, library):
    cells = {"member": [True, None, False, True] * 3, "n": [1, 2, None, 4] * 3}
    if library == "pandas":
        X = pd.DataFrame({"member": pd.array(cells["member"]), "n": pd.array(cells["n"])})
    else:
        X = pl.DataFrame(cells)
    search = GridSearchCV(independent_density, {"random_state": [0, 1]}, cv=2)
    imputer = CircuitImputer(density=search, strategy="mpe").set_output(transform=library)
    completed = imputer.fit_transform(X)
    assert completed["member"].dtype == X["member"].dtype
    alone = clone(imputer).set_params(density=independent_density).fit_transform(X)
    assert completed["n"].dtype == alone["n"].dtype


def test_indicators_need_names_of_their_own(independent_density):
    X = pd.DataFrame({"a": [1.0, NAN, 2.5], "missingindicator_a": [0.5, 1.0, 0.0]})
    imputer = CircuitImputer(density=independent_density, add_indicator=True).fit(X)
    assert imputer.transform(X).shape == (3, 3)
    with pytest.raises(ValueError, match=r"unique; got repeated=\['missingindicator_a'\]"):
        imputer.set_output(transform="pandas").transform(X)


def test_choice_of_categories_reaches_the_density(independent_density):
    X = np.array([[3.0, 0.1], [3.0, 0.2], [8.0, 0.3], [NAN, 0.4]])
    imputer = CircuitImputer(density=independent_density, categorical_features=[0]).fit(X)
    assert imputer.circuit_.cardinalities == {0: 2}
    assert imputer.density_.categories_[0].tolist() == [3.0, 8.0]
    assert imputer.transform(X)[3, 0] == 3.0
    # The same choice, made on the density
    density = GaussianMixtureDensity(categorical_features=[0], n_components=1, random_state=0)
    imputer = CircuitImputer(density=density).fit(X)
    assert imputer.is_categorical_.tolist() == [True, False]
    assert imputer.transform(X)[3, 0] in (3.0, 8.0)


def test_circuits_must_fit_the_table(gaussian, frame):
    with pytest.raises(ValueError, match="one variable per column, 2 in all"):
        CircuitImputer(density=gaussian).fit(np.eye(2))
    discrete = Circuit(Categorical(0, [0.2, 0.3, 0.5]) * Gaussian(1, 0.0, 1.0))
    X = frame[["colour", "length"]]
    with pytest.raises(ValueError, match=r"column 'colour' must have 2 states.*n_states=3"):
        CircuitImputer(density=discrete).fit(X)


def test_densities_must_have_a_circuit():
    from sklearn.neighbors import KernelDensity

    with pytest.raises(ValueError, match="must have a circuit_ after fit"):
        CircuitImputer(density=KernelDensity()).fit(np.eye(3))
    with pytest.raises(ValueError, match=r"pass what its to_circuit\(\) gives"):
        CircuitImputer(density=MoATDensity(max_iter=1)).fit(np.eye(3))


def test_auto_density_beats_column_means():
    X, _ = load_iris(return_X_y=True)
    hidden = with_missing_values(X, 0.25)
    completed = CircuitImputer(random_state=0).fit_transform(hidden)
    is_missing = np.isnan(hidden)
    means = np.broadcast_to(np.nanmean(hidden, axis=0), X.shape)
    errors = ((completed - X)[is_missing], (means - X)[is_missing])
    error = np.mean(errors[0] ** 2) / np.mean(errors[1] ** 2)
    assert error < 0.35


class Recorder:
    """A callback that follows the fit into the density."""

    max_propagation_depth = None

    def __init__(self):
        self.tasks = []

    def setup(self, estimator, context):
        self.tasks.append("setup")

    def teardown(self, estimator, context):
        self.tasks.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.tasks.append(f"{context.estimator_name} {context.task_name}")

    def on_fit_task_end(self, estimator, context):
        pass


def test_callbacks_reach_the_density(gaussian):
    recorder = Recorder()
    imputer = CircuitImputer(random_state=0).set_callbacks(recorder)
    imputer.fit(with_missing_values(gaussian.sample(60, random_state=0)))
    assert recorder.tasks[:3] == ["setup", "CircuitImputer fit", "AutomaticDensity fit"]
    assert recorder.tasks[3:5] == ["GaussianMixtureDensity fit", "GaussianMixtureDensity iteration"]
    assert recorder.tasks[-1] == "teardown"


def test_a_frozen_density_is_not_fitted_again(independent_density, frame):
    fitted = clone(independent_density).fit(frame)
    imputer = CircuitImputer(density=FrozenEstimator(fitted)).fit(frame.iloc[:3])
    assert imputer.circuit_ is fitted.circuit_
    assert imputer.categories_[2].tolist() == ["red", "blue"]


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_do_not_matter(gaussian, scale):
    X = with_missing_values(gaussian.sample(100, random_state=0))
    factors = np.array([scale, 1.0, 1.0 / scale])
    plain = CircuitImputer(random_state=0).fit_transform(X)
    scaled = CircuitImputer(random_state=0).fit_transform(X * factors)
    np.testing.assert_allclose(scaled / factors, plain, rtol=1e-6, atol=1e-6)


def self_masked(mechanism, seed=0, n_rows=250):
    """Three numbers and two categories of one factor, and the same with cells hidden."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(n_rows, 1))
    complete = factor + 0.7 * rng.normal(size=(n_rows, 5))
    complete[:, 3:] = complete[:, 3:] > 0.3
    odds = {"own": 2.0 * complete - 1.0, "random": np.full(complete.shape, -0.7)}[mechanism]
    hidden = rng.random(complete.shape) < 1.0 / (1.0 + np.exp(-odds))
    return complete, np.where(hidden, np.nan, complete)


def test_cells_that_are_missing_because_of_their_values_are_imputed_as_such():
    complete, X = self_masked("own")
    given = {"categorical_features": [3, 4], "random_state": 0}
    imputer = CircuitImputer(**given).fit(X)
    at_random = CircuitImputer(self_masking=False, **given).fit(X)
    hidden = np.isnan(X)
    assert imputer.is_self_masked_.all()
    assert not at_random.is_self_masked_.any()

    def error(fitted, columns):
        off = (fitted.transform(X) - complete)[:, columns]
        return np.sqrt(np.mean(np.square(off[hidden[:, columns]])))

    assert error(imputer, slice(3)) < 0.85 * error(at_random, slice(3))
    assert error(imputer, slice(3, 5)) <= error(at_random, slice(3, 5))
    np.testing.assert_array_equal(imputer.transform(X)[~hidden], X[~hidden])
    backwards = CircuitImputer(**given).fit(X[::-1])
    np.testing.assert_allclose(backwards.transform(X), imputer.transform(X), rtol=1e-6)


def test_cells_that_are_missing_at_random_are_imputed_as_if_nothing_else_was_possible():
    X = self_masked("random")[1]
    given = {"categorical_features": [3, 4], "random_state": 0}
    imputer = CircuitImputer(**given).fit(X)
    assert not imputer.is_self_masked_.any()
    at_random = CircuitImputer(self_masking=False, **given).fit(X)
    np.testing.assert_allclose(imputer.transform(X), at_random.transform(X), atol=0.05)


def test_kernels_do_not_predict_the_training_rows_that_they_consist_of(monkeypatch):
    asked = []

    def recorded(experts, *arguments):
        asked.extend(circuit for _, circuit in experts)
        return predict_in_turns(experts, *arguments)

    monkeypatch.setattr("skcircuits.estimators.imputer.predict_in_turns", recorded)
    rng = np.random.default_rng(0)
    angle = rng.uniform(0.0, 2.0 * np.pi, 100)
    curve = np.column_stack([np.cos(angle), np.sin(angle), np.sin(2.0 * angle), angle > 3.0])
    curve[:, :3] += 0.05 * rng.normal(size=(100, 3))
    X = np.where(rng.random(curve.shape) < 1.0 / (1.0 + np.exp(2.0 - 2.0 * curve)), np.nan, curve)
    imputer = CircuitImputer(categorical_features=[3], random_state=0).fit(X)
    n_components = [getattr(own, "n_components", None) for own in imputer.density_.densities_]
    assert "rows" in n_components
    expected = [
        own.circuit_
        for own, number in zip(imputer.density_.densities_, n_components, strict=True)
        if number != "rows"
    ]
    assert asked == expected


def test_draws_and_given_densities_do_not_depend_on_why_cells_are_missing():
    X = self_masked("own", n_rows=80)[1]
    density = GaussianMixtureDensity(n_components=1, covariance_type="full")
    for given in ({"density": density}, {"strategy": "sample"}):
        imputed = [
            CircuitImputer(self_masking=own, random_state=0, **given).fit_transform(X)
            for own in (False, True)
        ]
        np.testing.assert_array_equal(*imputed)


@pytest.mark.parametrize("zone", [None, "Europe/Oslo"])
def test_observed_dates_keep_their_nanoseconds(zone):
    when = pd.date_range("2020-01-01", periods=40, freq="h", tz=zone)
    when += pd.to_timedelta(1237 * np.arange(40), "ns")
    X = pd.DataFrame({"when": when, "x": np.arange(40.0)})
    X.loc[::7, "when"] = pd.NaT
    completed = CircuitImputer(density=ONE, random_state=0).set_output(transform="pandas")
    found = completed.fit_transform(X)["when"]
    observed = X["when"].notna()
    assert found.dtype == X["when"].dtype
    assert found[observed].equals(X["when"][observed])
    assert found.notna().all()
    assert abs(found[7] - when[7]) < pd.Timedelta("30min")
    array = CircuitImputer(density=ONE, random_state=0).fit_transform(X)
    assert array[1, 0] == X["when"][1].tz_localize(None).floor("us") - (
        pd.Timedelta("1h") if zone else pd.Timedelta(0)
    )


def test_observed_decimals_stay():
    prices = [Decimal(f"{k}.{k:02}") for k in range(1, 41)]
    X = pd.DataFrame({"price": prices, "x": np.arange(40.0)})
    X.loc[::7, "price"] = None
    imputer = CircuitImputer(density=ONE, random_state=0).set_output(transform="pandas")
    found = imputer.fit_transform(X)["price"]
    observed = X["price"].notna()
    assert found[observed].tolist() == X["price"][observed].tolist()
    assert abs(float(found[7]) - 8.08) < 0.5


@pytest.mark.parametrize("far", [[1e6], [9999.0, 9999.0, 9999.0], [-800.0, 2500.0]])
def test_numbers_far_off_predict_nothing_and_stay(far):
    rng = np.random.default_rng(0)
    complete = rng.normal(size=(200, 1)) + 0.3 * rng.normal(size=(200, 4))
    X = complete[:100].copy()
    X[np.arange(len(far)), 0] = far
    X[50:60, 1] = np.nan
    imputer = CircuitImputer(random_state=0).fit(X)
    np.testing.assert_array_equal(imputer.transform(X)[: len(far)], X[: len(far)])
    hidden = complete[100:].copy()
    hidden[:, 1] = np.nan
    errors = imputer.transform(hidden)[:, 1] - complete[100:, 1]
    assert np.sqrt(np.mean(errors**2)) < 0.45
    # A cell that is far off tells as little as one that is missing
    rows = np.array([[far[0], np.nan, 1.0, 1.0], [np.nan, np.nan, 1.0, 1.0]])
    assert np.ptp(imputer.transform(rows)[:, 1]) < 1e-12


def test_numbers_far_off_in_money_alone_do_not_limit_means_on_the_scale_of_logarithms():
    """Taxes of large incomes were cut off: the only larger one seen is far off in its units."""
    rng = np.random.default_rng(0)
    income = np.round(np.exp(9.5 + 0.6 * rng.normal(size=400)))
    income[0] = 1e7
    tax = np.round(0.2 * income * np.exp(0.1 * rng.normal(size=400)))
    job = (np.log(income) + rng.normal(size=400) > 9.5).astype(float)
    X = np.column_stack([income, tax, job])
    X[rng.random(X.shape) < 0.1] = np.nan
    X[0, :2] = income[0], tax[0]
    imputer = CircuitImputer(categorical_features=[2], random_state=0).fit(X)
    imputed = imputer.transform(np.array([[6e5, np.nan, 1.0]]))[0, 1]
    near = np.sort(X[~np.isnan(X[:, 1]), 1])[:-1]
    beyond = near.max() + near.std()
    assert 1.2 * beyond < imputed < 2.4e5
    density = imputer.density_
    highest = [ends[1] for ends in density._mean_bounds[1]]
    is_mapped = [getattr(own, "transformation", None) == "johnson" for own in density.densities_]
    assert any(is_mapped)
    # Others have no scale on which such a row is ordinary
    assert all((high > tax[0]) == own for high, own in zip(highest, is_mapped, strict=True))


def test_averaged_means_stay_within_their_bounds():
    experts = [(1.0, Circuit(Gaussian(0, 3.0, 1.0)))] * 6
    weights = np.array([[0.3], [0.1], [0.1], [0.2], [0.2], [0.1]])
    bounds = np.full((2, 6, 1), 3.0)
    means, _ = averages(experts, np.array([[np.nan]]), np.array([False]), bounds, weights)
    assert means.item() == 3.0


def test_most_probable_integers_are_those_of_enumeration():
    """Real modes were rounded: up to 4.5 percent less probable than the best integer."""
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=300)
    few, many = rng.poisson(np.where(z, 0.7, 6.0)), np.round(rng.normal(3.0 * z, 0.4))
    X = np.column_stack([few, many, rng.poisson(1.0 + 2.0 * z)]).astype(float)
    hidden = np.arange(60), rng.integers(3, size=60)
    X[hidden] = np.nan
    density = GaussianMixtureDensity(n_components=3, random_state=0)
    imputer = CircuitImputer(density=density, strategy="mpe").fit(X)
    trials = np.repeat(X[:60, None], 28, axis=1)
    trials[hidden[0], :, hidden[1]] = np.arange(-3.0, 25.0)
    best = imputer.circuit_.log_prob(trials.reshape(-1, 3)).reshape(60, 28).max(axis=1)
    found = imputer.circuit_.log_prob(imputer.transform(X)[:60])
    np.testing.assert_allclose(found, best, rtol=1e-12)


def test_most_probable_integers_are_not_worse_than_rounded_modes():
    """Searches among integers alone were up to 0.2 nats below them."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 6))
    units = [
        MultivariateGaussian([0, 1, 2, 3], 4.0 * rng.normal(size=4), root @ root.T)
        for _ in range(40)
    ]
    circuit = Circuit(Sum(units, weights=rng.dirichlet(np.ones(40))))
    X = circuit.sample(300, random_state=1)
    X[:, :3] = np.round(X[:, :3])
    X[rng.random(X.shape) < 0.4] = np.nan
    rounded = circuit.mpe(X, method="search")
    rounded[:, :3] = np.round(rounded[:, :3])
    completed = CircuitImputer(density=circuit, strategy="mpe").fit_transform(X)
    assert (completed[:, :3] == np.round(completed[:, :3])).all()
    gains = circuit.log_prob(completed) - circuit.log_prob(rounded)
    assert gains.min() > -1e-9
    assert gains.max() > 0.01


@pytest.mark.filterwarnings("error")
def test_most_probable_completions_of_densities_between_integers():
    """Nothing observed is impossible, yet no integer is possible in the last row."""
    units = [
        Product([PiecewisePolynomial(0, x, [1.0]), PiecewisePolynomial(1, y, [1.0])])
        for x, y in [([-0.5, 5.5], [0.0, 1.0]), ([0.2, 0.8], [2.0, 3.0])]
    ]
    circuit = Circuit(Sum(units, weights=[0.5, 0.5]))
    X = np.array([[1.0, 0.5], [3.0, 0.25], [np.nan, 0.4], [np.nan, 2.5]])
    completed = CircuitImputer(density=circuit, strategy="mpe").fit_transform(X)
    assert set(completed[2:, 0]) <= {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}
    np.testing.assert_array_equal(completed[:, 1], X[:, 1])


@pytest.mark.parametrize("is_known", [True, False])
def test_most_probable_completions_of_counts(monkeypatch, is_known):
    """Families of one's own cannot be restricted to integers: the real search is rounded."""
    if not is_known:
        monkeypatch.setattr(_completion, "RestrictedCircuit", refuse)
    units = [Product([Poisson(0, rate), Gaussian(1, rate, 1.0)]) for rate in (2.5, 8.5)]
    circuit = Circuit(Sum(units, weights=[0.5, 0.5]))
    X = np.array([[1.0, np.nan], [np.nan, 8.0], [3.0, 2.0], [np.nan, 3.0], [np.nan, 5.4]])
    completed = CircuitImputer(density=circuit, strategy="mpe").fit_transform(X)
    counts = np.arange(40.0)
    for row in (1, 3, 4):
        among = circuit.log_prob(np.column_stack([counts, np.full(40, X[row, 1])]))
        assert completed[row, 0] == among.argmax()
    np.testing.assert_array_equal(completed[[0, 2], 0], [1.0, 3.0])


def refuse(plan, evidence):
    raise CircuitPropertyError("a family of one's own")


@pytest.mark.parametrize("density", ["gaussian_mixture", "chow_liu", "latent_tree", "wmispn"])
@pytest.mark.parametrize("constant", [0.1, 1234.567, -1e6, 7.0])
def test_constants_are_imputed_as_they_are(density, constant):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    X[:, 2] = constant
    X[rng.random(X.shape) < 0.3] = np.nan
    completed = CircuitImputer(density=density, random_state=0).fit_transform(X)
    assert (completed[:, 2] == constant).all()
