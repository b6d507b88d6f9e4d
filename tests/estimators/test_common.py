"""What every public estimator must do: scikit-learn's checks and those it does not have.

A new estimator gets one line in `ESTIMATORS`: a cheap instance, and a grid to search over.
"""

import pickle
import warnings
from dataclasses import is_dataclass
from functools import cache, partial
from numbers import Integral

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import skcircuits
from skcircuits import (
    AutomaticDensity,
    BBISWeighter,
    ChowLiuDensity,
    CircuitImputer,
    ContinuousMixtureDensity,
    ExpectedPredictionClassifier,
    ExpectedPredictionRegressor,
    ExpectedPredictionSVR,
    GaussianMixtureDensity,
    GraphicalSVGDSampler,
    HiddenChowLiuDensity,
    MoATDensity,
    StackingDensity,
    StrudelDensity,
    WMISPNDensity,
)
from skcircuits.estimators._base import Interval

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*unique values:UserWarning"
)


class StandardNormal:
    """A target of any width."""

    def __repr__(self):
        # names of tests may not hold an address: parallel runs compare them
        return "StandardNormal()"

    @staticmethod
    def grad_log_prob(X):
        return -X

    @staticmethod
    def log_prob_unnormalized(X):
        return -0.5 * (X**2).sum(axis=1)


# Chooses nothing: densities that do are checked themselves
FIXED = GaussianMixtureDensity(n_components=2, covariance_type="full")
ESTIMATORS = {
    "AutomaticDensity": (
        AutomaticDensity(families=["wmispn"]),
        {"selection": ["cells", "log_likelihood"]},
    ),
    "BBISWeighter": (BBISWeighter(target=StandardNormal()), {"regularization": [0.0, 0.1]}),
    "ChowLiuDensity": (ChowLiuDensity(), {"n_components": [1, 2]}),
    "CircuitImputer": (CircuitImputer(), {"strategy": ["mean", "mpe"]}),
    "ContinuousMixtureDensity": (
        ContinuousMixtureDensity(n_components=4, max_iter=5, n_hidden_units=8),
        {"n_components": [1, 2], "n_latent_states": [None, 2]},
    ),
    "ExpectedPredictionClassifier": (
        ExpectedPredictionClassifier(LogisticRegression(), density=FIXED),
        {"estimator__C": [1.0, 10.0], "density__n_components": [1, 2]},
    ),
    "ExpectedPredictionRegressor": (
        ExpectedPredictionRegressor(Ridge(), density=FIXED),
        {"estimator__alpha": [1.0, 10.0], "density__n_components": [1, 2]},
    ),
    "ExpectedPredictionSVR": (
        ExpectedPredictionSVR(density=FIXED),
        {"C": [1.0, 10.0], "density__n_components": [1, 2]},
    ),
    "GaussianMixtureDensity": (
        GaussianMixtureDensity(max_components=2),
        {"n_components": [1, 2]},
    ),
    "GraphicalSVGDSampler": (GraphicalSVGDSampler(max_iter=10), {"linear_weight": [0.0, 0.1]}),
    "WMISPNDensity": (WMISPNDensity(), {"alpha": [0.01, 0.1], "leaf": ["polynomial", "gaussian"]}),
    "HiddenChowLiuDensity": (
        HiddenChowLiuDensity(n_latent_states=2, max_iter=20, validation_fraction=None),
        {"n_latent_states": [2, 3]},
    ),
    "MoATDensity": (MoATDensity(max_iter=5, n_tree_samples=32), {"n_components": [1, 2]}),
    "StackingDensity": (
        StackingDensity(
            [("one", ChowLiuDensity()), ("two", ChowLiuDensity(n_components=2, max_iter=10))]
        ),
        {"two__n_components": [2, 3], "validation_fraction": [0.2, None]},
    ),
    "StrudelDensity": (StrudelDensity(max_iter=10), {"n_components": [1, 2]}),
}
# What scikit-learn's checks fit instead, again and again
ONE = GaussianMixtureDensity(n_components=1, covariance_type="full")
CHECKED = {
    "CircuitImputer": CircuitImputer(density=ONE),
    "ExpectedPredictionClassifier": ExpectedPredictionClassifier(LogisticRegression(), density=ONE),
    "ExpectedPredictionRegressor": ExpectedPredictionRegressor(Ridge(), density=ONE),
    "ExpectedPredictionSVR": ExpectedPredictionSVR(density=ONE),
    "GaussianMixtureDensity": GaussianMixtureDensity(max_components=1),
    "GraphicalSVGDSampler": GraphicalSVGDSampler(max_iter=3),
    "HiddenChowLiuDensity": HiddenChowLiuDensity(
        n_latent_states=2, max_iter=5, validation_fraction=None
    ),
    "MoATDensity": MoATDensity(max_iter=2, n_tree_samples=8),
    "StackingDensity": StackingDensity(
        [("one", ChowLiuDensity()), ("two", ChowLiuDensity(n_components=2, max_iter=2))]
    ),
    "StrudelDensity": StrudelDensity(max_iter=3),
}
# Checks that scikit-learn lists as failing for its own estimator of the same kind
EXPECTED_FAILURES = {
    "ExpectedPredictionSVR": {
        "check_sample_weight_equivalence_on_dense_data": "sample weights change the SVR solver",
    },
}
EXTRA_CHECKS = [
    "check_param_validation",
    "check_dataframe_column_names_consistency",
    "check_inplace_ensure_writeable",
]
EXTRA_TRANSFORMER_CHECKS = [
    "check_transformer_get_feature_names_out",
    "check_transformer_get_feature_names_out_pandas",
    "check_set_output_transform",
    "check_set_output_transform_pandas",
    "check_set_output_transform_polars",
    "check_global_output_transform_pandas",
    "check_global_set_output_transform_polars",
]
NAN = np.nan


def names_where(predicate):
    return [name for name, (estimator, _) in ESTIMATORS.items() if predicate(estimator)]


def make(name, instead=None):
    estimator = clone((instead or {}).get(name, ESTIMATORS[name][0]))
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    return estimator


def make_for_categories(name, instead=None):
    """As `make`; models that read numbers only give way to the default, which reads both."""
    estimator = make(name, instead)
    return estimator.set_params(estimator=None) if hasattr(estimator, "estimator") else estimator


every_estimator = pytest.mark.parametrize("name", list(ESTIMATORS))
every_tolerant = pytest.mark.parametrize(
    "name", names_where(lambda estimator: get_tags(estimator).input_tags.allow_nan)
)
every_density = pytest.mark.parametrize(
    "name", names_where(lambda e: get_tags(e).estimator_type == "density_estimator")
)


def rows_of_numbers():
    generator = np.random.default_rng(0)
    shared = generator.normal(size=(80, 1))
    return shared + generator.normal(size=(80, 3))


def classes():
    # Numbers for regressors, classes for classifiers
    return np.digitize(rows_of_numbers().sum(axis=1), [-1.0, 1.0]).astype(float)


def rows_with_labels():
    X = rows_of_numbers()
    job = np.where(X[:, 0] > 0, "nurse", "cook").astype(object)
    return pd.DataFrame({"age": X[:, 1], "size": X[:, 2], "job": job})


X = pytest.fixture(rows_of_numbers, name="X")
y = pytest.fixture(classes, name="y")
frame = pytest.fixture(rows_with_labels, name="frame")


@cache
def fitted(name, columns=None):
    """Fitted to the numbers, or to columns of the mixed table; tests share it and only ask."""
    table = rows_with_labels()[list(columns)] if columns else rows_of_numbers()
    return make(name).fit(table, classes())


def answer(estimator, X):
    """The per-row answer of an estimator, as one array with one row per row of X."""
    for method in ("predict", "transform", "score_samples"):
        if hasattr(estimator, method):
            return np.asarray(getattr(estimator, method)(X))
    raise AssertionError("no method answers per row")


def assert_no_silent_nan(values):
    assert len(values) > 0
    assert not pd.isna(values).any()


def test_every_public_estimator_is_tested():
    public = {name: getattr(skcircuits, name) for name in skcircuits.__all__}
    estimators = {
        name
        for name, value in public.items()
        if isinstance(value, type) and issubclass(value, BaseEstimator)
    }
    assert set(ESTIMATORS) == estimators
    assert skcircuits.__all__ == sorted(skcircuits.__all__)


def test_estimators_are_more_than_their_parameters():
    # Dask tells dataclasses apart by their fields alone, and takes one result for that of another
    assert not any(is_dataclass(estimator) for estimator, _ in ESTIMATORS.values())


every_scikit_learn_check_of = partial(
    parametrize_with_checks,
    expected_failed_checks=lambda e: EXPECTED_FAILURES.get(type(e).__name__, {}),
)


@every_scikit_learn_check_of(
    [clone(CHECKED.get(name, estimator)) for name, (estimator, _) in ESTIMATORS.items()]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@every_scikit_learn_check_of(
    [
        CircuitImputer(),
        GaussianMixtureDensity(),
        *(
            clone(ESTIMATORS[name][0]).set_params(density=GaussianMixtureDensity(max_components=2))
            for name in ESTIMATORS
            if name.startswith("ExpectedPrediction")
        ),
    ]
)
def test_scikit_learn_checks_around_densities_that_choose(estimator, check):
    check(estimator)


@every_estimator
@pytest.mark.parametrize("check", EXTRA_CHECKS)
def test_checks_that_scikit_learn_leaves_out(name, check):
    getattr(estimator_checks, check)(name, make(name, CHECKED))


@pytest.mark.parametrize("name", names_where(lambda e: hasattr(e, "transform")))
@pytest.mark.parametrize("check", EXTRA_TRANSFORMER_CHECKS)
def test_transformer_checks_that_scikit_learn_leaves_out(name, check):
    getattr(estimator_checks, check)(name, make(name, CHECKED))


@every_tolerant
def test_missing_cells_at_fit_and_at_predict(name, X, y):
    incomplete = X.copy()
    incomplete[np.random.default_rng(1).random(X.shape) < 0.3] = NAN
    for estimator in (fitted(name), make(name).fit(incomplete, y)):
        assert_no_silent_nan(answer(estimator, incomplete))


@pytest.mark.parametrize(
    "name", names_where(lambda estimator: not get_tags(estimator).input_tags.allow_nan)
)
def test_missing_cells_are_refused_where_they_have_no_meaning(name, X, y):
    X[3, 1] = NAN
    with pytest.raises(ValueError, match=r"NaN|missing"):
        make(name).fit(X, y)


@every_tolerant
def test_rows_and_columns_without_any_cell(name, X, y):
    X[:2] = NAN
    X[:, 2] = NAN
    estimator = make(name).fit(X, y)
    assert_no_silent_nan(answer(estimator, X))
    full = np.where(np.isnan(X), 0.5, X)
    assert_no_silent_nan(answer(estimator, full))


@every_tolerant
def test_tables_without_any_cell(name, X, y):
    X[:] = NAN
    try:
        estimator = make(name).fit(X, y)
    except ValueError as error:
        assert "observed" in str(error)  # a clear refusal is as good
    else:
        values = answer(estimator, X)
        assert not pd.isna(values).any()


@every_density
def test_weights_of_observed_rows_must_not_all_be_zero(name, X):
    X[0] = NAN
    weight = np.zeros(len(X))
    with pytest.raises(ValueError, match="non-zero"):
        make(name).fit(X, sample_weight=weight)
    weight[0] = 1.0
    with pytest.raises(ValueError, match="rows of positive weight must have an observed cell"):
        make(name).fit(X, sample_weight=weight)


@every_estimator
def test_columns_with_a_single_value(name, X, y):
    X[:, 1] = 7.25
    estimator = make(name).fit(X, y)
    assert_no_silent_nan(answer(estimator, X))


@every_estimator
def test_a_single_row(name, X, y):
    try:
        estimator = make(name).fit(X[:1], y[:1])
    except ValueError as error:
        assert "sample" in str(error)
    else:
        assert_no_silent_nan(answer(estimator, X[:1]))


@every_estimator
def test_one_row_at_predict(name, X):
    estimator = fitted(name)
    np.testing.assert_allclose(answer(estimator, X[5:6]), answer(estimator, X)[5:6], rtol=1e-9)


@every_estimator
@pytest.mark.parametrize("scale", [1e-100, 1e-8, 1e8, 1e100])
def test_extreme_scales(name, X, y, scale):
    estimator = make(name).fit(X * scale, y)
    assert_no_silent_nan(answer(estimator, X * scale))


@every_tolerant
@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_labels_and_unseen_labels(name, frame, y, library):
    cells = {column: frame[column].tolist() for column in frame}
    table = library.DataFrame(cells)
    estimator = make_for_categories(name).fit(table, y)
    assert_no_silent_nan(answer(estimator, table))
    new = {column: values[:4] for column, values in cells.items()}
    unseen = answer(estimator, library.DataFrame({**new, "job": ["pilot", "cook", None, "nurse"]}))
    missing = answer(estimator, library.DataFrame({**new, "job": [None, "cook", None, "nurse"]}))
    assert_no_silent_nan(unseen)
    if name == "CircuitImputer":  # the observed cell stays
        assert unseen[0, 2] == "pilot" != missing[0, 2]
        unseen[0, 2] = missing[0, 2]
    if get_tags(estimator).estimator_type == "density_estimator":  # a new category is rare
        assert unseen[0] < missing[0]
        unseen[0] = missing[0]
    np.testing.assert_array_equal(unseen, missing)
    assert estimator.is_categorical_.tolist() == [False, False, True]
    assert estimator.categories_[2].tolist() == ["cook", "nurse"]


@pytest.mark.parametrize("name", names_where(lambda e: "handle_unknown" in e.get_params()))
def test_unseen_labels_can_be_refused(name, frame, y):
    estimator = make_for_categories(name, CHECKED).set_params(handle_unknown="error")
    estimator.fit(frame, y)
    with pytest.raises(ValueError, match=r"column 'job'.*value='pilot'"):
        answer(estimator, frame.iloc[:1].assign(job="pilot"))


@every_estimator
def test_wrong_width(name, X):
    estimator = fitted(name)
    with pytest.raises(ValueError, match=r"X has 2 features, but .* is expecting 3 features"):
        answer(estimator, X[:, :2])


@every_estimator
def test_wrong_names_and_wrong_order(name, frame):
    numbers = frame[["age", "size"]]
    estimator = fitted(name, tuple(numbers))
    with pytest.raises(ValueError, match="feature names should match"):
        answer(estimator, numbers.rename(columns={"age": "years"}))
    with pytest.raises(ValueError, match="must be in the same order"):
        answer(estimator, numbers[["size", "age"]])


@every_estimator
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_cells(name, X, y, value):
    bad = X.copy()
    bad[3, 1] = value
    with pytest.raises(ValueError, match=r"(?i)infinity"):
        make(name).fit(bad, y)
    with pytest.raises(ValueError, match=r"(?i)infinity"):
        answer(fitted(name), bad)


@every_estimator
def test_words_among_numbers(name, frame):
    numbers = frame[["age", "size"]]
    estimator = fitted(name, tuple(numbers))
    bad = numbers.astype(object)
    bad.loc[3, "size"] = "large"
    with pytest.raises(ValueError, match=r"large"):
        answer(estimator, bad)


@every_estimator
def test_clone_and_pickle(name, X, y):
    estimator = fitted(name)
    again = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(answer(again, X), answer(estimator, X))
    copy = clone(estimator)
    assert not hasattr(copy, "n_features_in_")
    np.testing.assert_array_equal(answer(copy.fit(X, y), X), answer(estimator, X))


@every_estimator
def test_fit_leaves_its_arguments_alone(name, X, y):
    before, target = X.copy(), y.copy()
    estimator = make(name).fit(X, y)
    answer(estimator, X)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(y, target)


@every_estimator
def test_pipelines(name, X, y):
    pipeline = make_pipeline(FunctionTransformer(), make(name)).fit(X, y)
    np.testing.assert_array_equal(answer(pipeline, X), answer(fitted(name), X))


def imputed_mean(imputer, X, y):
    """Score of a transformer, which has none of its own."""
    return float(np.mean(imputer.transform(X)))


@every_estimator
def test_grid_search(name, X, y):
    grid = ESTIMATORS[name][1]
    scoring = None if hasattr(make(name), "score") else imputed_mean
    search = GridSearchCV(make(name), grid, cv=2, scoring=scoring, error_score="raise").fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert_no_silent_nan(answer(search, X))


@every_estimator
def test_jobs_do_not_change_the_result(name, X, y):
    if "n_jobs" not in make(name).get_params():
        pytest.skip("has no n_jobs")
    X[::3, 1] = NAN if get_tags(make(name)).input_tags.allow_nan else 0.0
    one = make(name).set_params(n_jobs=1).fit(X, y)
    two = make(name).set_params(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(answer(one, X), answer(two, X))


# ---------------------------------------------------------------------- densities


@every_density
def test_queries_do_not_change_what_is_pickled(name, X):
    """Else joblib.Memory would take a density that was asked something for another one."""
    pickled = pickle.dumps(fitted(name))
    density, other = pickle.loads(pickled), pickle.loads(pickled)
    density.score_samples(X)
    density.sample(3)
    if hasattr(density, "mpe"):
        density.mpe(X[:3])
        density.expectation(X[:3])
        density.probability({0: (0.0, None)})
    assert joblib.hash(density) == joblib.hash(other)


@every_density
def test_score_is_the_mean_log_density(name, X):
    density = fitted(name)
    assert density.score(X) == pytest.approx(density.score_samples(X).mean(), rel=1e-12)


@every_density
def test_densities_integrate_to_one(name, X):
    density = make(name).fit(X[:, :1])
    spread = X[:, 0].max() - X[:, 0].min()
    grid = np.linspace(X[:, 0].min() - 3 * spread, X[:, 0].max() + 3 * spread, 20_001)
    total = np.trapezoid(np.exp(density.score_samples(grid[:, None])), grid)
    assert total == pytest.approx(1.0, abs=2e-3)


@every_density
def test_discrete_densities_sum_to_one(name):
    generator = np.random.default_rng(0)
    codes = generator.integers(0, [2, 3], size=(60, 2))
    table = pd.DataFrame({"a": codes[:, 0] == 1, "b": np.array(["x", "y", "z"])[codes[:, 1]]})
    density = make(name).fit(table)
    everything = pd.DataFrame([(a, b) for a in (False, True) for b in "xyz"], columns=["a", "b"])
    assert np.exp(density.score_samples(everything)).sum() == pytest.approx(1.0, abs=1e-9)


@every_density
def test_missing_values_are_marginalised(name, X):
    density = make(name).fit(X[:, :2])
    empty = density.score_samples(np.full((2, 2), NAN))
    np.testing.assert_allclose(empty, 0.0, atol=1e-9)
    spread = X[:, 1].max() - X[:, 1].min()
    grid = np.linspace(X[:, 1].min() - 3 * spread, X[:, 1].max() + 3 * spread, 10_001)
    rows = np.column_stack([np.full(len(grid), X[0, 0]), grid])
    integral = np.trapezoid(np.exp(density.score_samples(rows)), grid)
    marginal = np.exp(density.score_samples([[X[0, 0], NAN]]))
    assert integral == pytest.approx(marginal[0], rel=5e-3)


@every_density
def test_samples_follow_the_density(name, X):
    density = fitted(name)
    drawn = density.sample(4000, random_state=0)
    np.testing.assert_array_equal(drawn, density.sample(4000, random_state=0))
    assert drawn.shape == (4000, 3)
    # Marginal distribution functions of the draws against exact interval probabilities
    for column in range(3):
        for bound in np.quantile(X[:, column], [0.25, 0.5, 0.75]):
            fraction = (drawn[:, column] <= bound).mean()
            assert fraction == pytest.approx(density.probability({column: (None, bound)}), abs=0.04)


@every_density
def test_completions_keep_what_is_known(name, X):
    density = fitted(name)
    rows = X[:5].copy()
    rows[:, 1] = NAN
    completed = density.sample(7, random_state=0, X=rows)
    assert completed.shape == (7, 5, 3)
    assert (completed[..., [0, 2]] == rows[:, [0, 2]]).all()
    assert np.isfinite(completed).all()


@every_density
def test_samples_of_dataframes_are_dataframes(name, frame):
    density = fitted(name, tuple(frame))
    drawn = density.sample(50, random_state=0)
    assert list(drawn.columns) == list(frame.columns)
    assert list(drawn.dtypes) == list(frame.dtypes)
    assert not drawn.isna().any(axis=None)
    assert set(drawn["job"]) == {"cook", "nurse"}


@every_density
def test_probabilities_add_up(name):
    density = fitted(name, ("age", "size", "job"))
    parts = density.probabilities([{"job": "cook"}, {"job": "nurse"}])
    assert parts.sum() == pytest.approx(1.0, abs=1e-9)
    given = {"age": (0, None)}
    conditional = density.probabilities([{"job": "cook"}, {"job": "nurse"}], given=given)
    assert conditional.sum() == pytest.approx(1.0, abs=1e-9)
    assert conditional[1] >= parts[1] - 1e-9  # age and job go together, if at all


@every_density
def test_criteria_punish_parameters(name, X):
    density = fitted(name)
    n_parameters = (density.aic(X) + 2 * len(X) * density.score(X)) / 2
    assert n_parameters >= 1
    expected = -2 * len(X) * density.score(X) + n_parameters * np.log(len(X))
    assert density.bic(X) == pytest.approx(expected, rel=1e-9)


@every_density
def test_weights_may_count_as_many_rows_as_floats_tell_apart(name, X):
    few, many = np.full(len(X), 9e11 / len(X)), np.full(len(X), 1e16)
    with pytest.raises(ValueError, match=r"sample_weight must sum to less than 1e\+12"):
        make(name).fit(X, sample_weight=many)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert np.isfinite(make(name).fit(X, sample_weight=few).score_samples(X)).all()


@every_density
def test_weights_count_rows(name, X):
    weight = np.random.default_rng(0).integers(0, 3, len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ones = make(name).fit(X, sample_weight=np.ones(len(X)))
        weighted = make(name).fit(X, sample_weight=weight)
    none = fitted(name)
    np.testing.assert_allclose(ones.score_samples(X), none.score_samples(X), rtol=1e-6)
    assert np.average(weighted.score_samples(X), weights=weight) > np.average(
        none.score_samples(X), weights=weight
    )


# Learned from random batches of rows, as their documentation says, or with drawn components
BY_CHANCE = {
    ("ContinuousMixtureDensity", 1),
    ("ContinuousMixtureDensity", 2),
    ("HiddenChowLiuDensity", 1),
    ("MoATDensity", 2),
}


@every_density
@pytest.mark.parametrize("n_components", [1, 2])
def test_weights_are_repeated_rows_though_cells_are_missing(name, n_components):
    rng = np.random.default_rng(0)
    cause = rng.integers(3, size=100)
    X = np.column_stack([(cause + (rng.random(100) < 0.2)) % 3, rng.normal(cause), cause > 0])
    X = np.column_stack([X, rng.random(100) < 0.5])
    X[rng.random(X.shape) < 0.25] = np.nan
    weight = rng.integers(0, 4, len(X))
    density = make(name)
    # Rows are held out one by one, whatever they weigh
    settings = {"n_components": n_components, "validation_fraction": None, "random_state": 0}
    known = {key: value for key, value in settings.items() if key in density.get_params()}
    if (name, n_components) in BY_CHANCE or n_components > known.get("n_components", 1):
        pytest.skip("learned by chance, or without components")
    density.set_params(categorical_features=[0, 2, 3], **known)
    weighted = clone(density).fit(X, sample_weight=weight).score_samples(X)
    repeated = density.fit(np.repeat(X, weight, axis=0)).score_samples(X)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-9)


def numbers_of(estimator):
    """Names of the parameters that are numbers of an interval."""
    return [
        name
        for name, constraints in estimator._parameter_constraints.items()
        if any(isinstance(one, Interval) for one in constraints)
    ]


@pytest.mark.parametrize("name", skcircuits.__all__)
@pytest.mark.parametrize("value", [True, np.True_, 10**30], ids=["True", "np.True_", "10**30"])
def test_counts_are_integers_that_arrays_have(name, value):
    cls = getattr(skcircuits, name)
    for parameter in numbers_of(cls) if hasattr(cls, "_parameter_constraints") else []:
        constraints = cls._parameter_constraints[parameter]
        is_count = any(getattr(one, "type", 0) is Integral for one in constraints)
        if not isinstance(value, bool | np.bool_) and not is_count:
            continue
        with pytest.raises(ValueError, match=f"'{parameter}' parameter of {name} must be"):
            make(name).set_params(**{parameter: value})._validate_params()
