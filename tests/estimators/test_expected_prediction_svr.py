"""ExpectedPredictionSVR: exactness, mixed tables, searches, a real Dask cluster."""

import tracemalloc

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVR

from skcircuits import (
    AutomaticDensity,
    BBISWeighter,
    ExpectedPredictionRegressor,
    ExpectedPredictionSVR,
    GaussianMixtureDensity,
)
from skcircuits.circuits import Bernoulli, Circuit, Gaussian, MultivariateGaussian
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.kernels import RBF, Delta, Hamming, Laplacian

ONE = GaussianMixtureDensity(n_components=1, covariance_type="full", random_state=0)


@pytest.fixture(scope="module")
def table():
    X, y = load_diabetes(return_X_y=True)
    X = StandardScaler().fit_transform(X)[:200, :6]
    return X[:150], y[:150], X[150:]


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "height": rng.normal(size=80),
            "job": rng.choice(["cook", "nurse", "pilot"], size=80),
            "width": rng.normal(size=80),
            "member": rng.choice([True, False], size=80),
        }
    )
    y = X["height"] + (X["job"] == "cook") * X["width"] + rng.normal(size=80) * 0.1
    return X, y


def with_missing_values(X, fraction=0.3, seed=0):
    return np.where(np.random.default_rng(seed).random(X.shape) < fraction, np.nan, X)


@pytest.mark.parametrize("gamma", ["scale", "auto", 0.05])
def test_without_missing_values_it_is_an_svr(table, gamma):
    X, y, X_test = table
    model = ExpectedPredictionSVR(C=100, gamma=gamma, density=ONE).fit(X, y)
    svr = SVR(C=100, gamma=gamma, tol=model.tol).fit(X, y)
    assert model.gamma_ == pytest.approx(svr._gamma, rel=1e-12)
    np.testing.assert_allclose(model.predict(X_test), svr.predict(X_test), rtol=1e-10)
    np.testing.assert_array_equal(model.support_, svr.support_)
    np.testing.assert_array_equal(model.support_vectors_, svr.support_vectors_)
    np.testing.assert_array_equal(model.dual_coef_, svr.dual_coef_)


def test_a_mixed_table_is_the_svr_on_one_hot_columns(mixed):
    X, y = mixed
    labels = OneHotEncoder(sparse_output=False).fit_transform(X[["job", "member"]])
    expanded = np.hstack([X[["height", "width"]].to_numpy(), labels])
    model = ExpectedPredictionSVR(density=ONE, C=10).fit(X, y)
    svr = SVR(C=10, tol=model.tol).fit(expanded, y)
    assert model.gamma_ == pytest.approx(svr._gamma, rel=1e-12)
    np.testing.assert_allclose(model.predict(X), svr.predict(expanded), rtol=1e-10, atol=1e-10)
    assert model.circuit_.cardinalities == {1: 3, 3: 2}


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_missing_values_are_integrated_out(kernel):
    """Against 200 000 completions drawn from the circuit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    circuit = Circuit(Gaussian(0, 0, 1) * Gaussian(1, 0.5, 2) * Gaussian(2, 0, 1))
    model = ExpectedPredictionSVR(kernel=kernel, density=circuit, C=10).fit(X, y)
    row = np.array([[0.3, np.nan, np.nan]])
    completed = circuit.sample(200_000, X=row, random_state=0)[:, 0]
    predictions = model.predict(completed)
    error = predictions.std() / np.sqrt(len(predictions))
    assert model.predict(row)[0] == pytest.approx(predictions.mean(), abs=5 * error)


def test_an_interrupted_fit_leaves_what_was_there(table, monkeypatch):
    X, y, X_test = table
    fitted = ExpectedPredictionSVR(density=ONE).fit(X, y)
    before = fitted.predict(X_test)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(SVR, "fit", interrupted)
    new = ExpectedPredictionSVR(density=ONE)
    for model in (fitted, new):
        with pytest.raises(KeyboardInterrupt):
            model.fit(2 * X, y)
    np.testing.assert_array_equal(fitted.predict(X_test), before)
    with pytest.raises(NotFittedError):
        new.predict(X_test)


def test_without_any_cell_it_is_the_constant_mean(table):
    X, y, _ = table
    model = ExpectedPredictionSVR(C=100, density=ONE).fit(X, y)
    nothing = model.predict(np.full((3, 6), np.nan))
    assert len(set(nothing)) == 1
    samples = model.predict(model.circuit_.sample(100_000, random_state=0))
    assert nothing[0] == pytest.approx(samples.mean(), abs=5 * samples.std() / 300)


def test_prediction_does_not_depend_on_the_other_rows(table):
    X, y, X_test = table
    model = ExpectedPredictionSVR(C=100, density=ONE).fit(with_missing_values(X), y)
    X_test = with_missing_values(X_test)
    together = model.predict(X_test)
    apart = [model.predict(row[None])[0] for row in X_test]
    np.testing.assert_allclose(together, apart, rtol=1e-10)
    with config_context(working_memory=0.01):
        np.testing.assert_allclose(together, model.predict(X_test), rtol=1e-10)


def test_prediction_stays_within_the_working_memory():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 60))
    y = X[:, 0] + rng.normal(size=800)
    density = Circuit(MultivariateGaussian(range(60), X.mean(axis=0), np.cov(X.T)))
    model = ExpectedPredictionSVR(density=density).fit(X, y)
    incomplete = with_missing_values(np.tile(X, (2, 1)))
    with config_context(working_memory=16):
        tracemalloc.start()
        model.predict(incomplete)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    # The rows are read and encoded: a few copies of the input come on top.
    assert peak < 16 * 2**20 + 4 * incomplete.nbytes


def test_incomplete_training_rows_help(table):
    X, y, X_test = table
    _, y_all = load_diabetes(return_X_y=True)
    y_test = y_all[150:200]
    model = ExpectedPredictionSVR(C=100, density=ONE).fit(with_missing_values(X), y)
    constant = np.full(len(y_test), y.mean())
    error = root_mean_squared_error(y_test, model.predict(X_test))
    assert error < 0.95 * root_mean_squared_error(y_test, constant)
    assert np.isnan(model.support_vectors_).any()


@pytest.mark.parametrize(
    "kernel, same",
    [(RBF(0.1), "rbf"), (Laplacian(0.1), "laplacian")],
)
def test_kernel_objects(table, kernel, same):
    X, y, X_test = table
    circuit = Circuit(np.prod([Gaussian(v, 0.0, 1.0) for v in range(6)]))
    given = ExpectedPredictionSVR(kernel=kernel, density=circuit).fit(X, y)
    named = ExpectedPredictionSVR(kernel=same, gamma=0.1, density=circuit).fit(X, y)
    X_test = with_missing_values(X_test)
    np.testing.assert_allclose(given.predict(X_test), named.predict(X_test), rtol=1e-6)
    assert given.gamma_ is None
    assert named.kernel_ == type(kernel)(0.1, variables=range(6))


def test_labels_only():
    rng = np.random.default_rng(0)
    X = rng.choice(list("abc"), size=(60, 3)).astype(object)
    y = (X[:, 0] == "a") + 2.0 * (X[:, 1] == X[:, 2])
    for kernel in ("hamming", "rbf", "laplacian"):
        model = ExpectedPredictionSVR(kernel=kernel, gamma=0.4, density=ONE).fit(X, y)
        assert model.kernel_ == Hamming(1.25, variables=[0, 1, 2])
    X[:5, 1] = None
    assert np.isfinite(model.predict(X)).all()


def test_unseen_labels_count_as_missing(mixed):
    X, y = mixed
    model = ExpectedPredictionSVR(density=ONE).fit(X, y)
    missing = X.iloc[:1].astype({"job": object}).copy()
    unseen = missing.copy()
    missing.loc[0, "job"], unseen.loc[0, "job"] = None, "diver"
    np.testing.assert_array_equal(model.predict(missing), model.predict(unseen))
    model.set_params(handle_unknown="error")
    with pytest.raises(ValueError, match="diver"):
        model.predict(unseen)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"kernel": RBF(1.0), "gamma": 0.5}, "gamma must have its default value"),
        ({"kernel": "hamming"}, "All columns must hold labels for kernel='hamming'"),
        ({"kernel": Delta(variables=[9])}, "variables of a kernel must belong to the circuit"),
        ({"density": Circuit(Bernoulli(0, 0.5))}, "have one variable per column"),
        ({"density": ONE, "kernel": "rgb"}, "The 'kernel' parameter"),
    ],
)
def test_clear_errors(table, parameters, message):
    X, y, _ = table
    with pytest.raises(ValueError, match=message):
        ExpectedPredictionSVR(**parameters).fit(with_missing_values(X), y)


def test_kernels_without_closed_form_say_so(table):
    X, y, _ = table
    with pytest.raises(CircuitPropertyError, match="Laplacian on univariate ones"):
        ExpectedPredictionSVR(kernel="laplacian", density=ONE).fit(X, y)
    automatic = ExpectedPredictionSVR(kernel="laplacian", random_state=0).fit(
        with_missing_values(X), y
    )
    assert automatic.density_.covariance_type == "diag"
    assert np.isfinite(automatic.predict(with_missing_values(X, seed=1))).all()


def test_impossible_evidence_falls_back_to_the_constant():
    X = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    circuit = Circuit(1.0 * (Bernoulli(0, 0.0) * Bernoulli(1, 0.5)))
    model = ExpectedPredictionSVR(kernel=Hamming(1.0), density=circuit).fit(X, [0, 1, 1, 0])
    with pytest.warns(UserWarning, match="probability zero"):
        predicted = model.predict([[1.0, np.nan], [np.nan, np.nan]])
    assert predicted[0] == predicted[1]


def test_numbers_never_seen_count_as_missing_like_labels_do():
    X = np.random.default_rng(0).integers(4, size=(300, 3)).astype(float)
    model = ExpectedPredictionSVR(random_state=0).fit(X, X[:, 0] + X[:, 2])
    strange, missing, complete = model.predict([[3, np.nan, 7], [3, np.nan, np.nan], [3, 1, 7]])
    assert strange == missing
    expected = model.predict([[3, 1, 3]]) - complete  # complete rows need no density
    assert abs(expected[0]) > 1e-3


def test_weights_reach_the_density(table):
    X, y, _ = table
    weights = np.r_[np.ones(75), np.zeros(75)]
    density = GaussianMixtureDensity(n_components=1, covariance_type="full", random_state=0)
    weighted = ExpectedPredictionSVR(density=density).fit(X, y, sample_weight=weights)
    half = ExpectedPredictionSVR(density=density).fit(X[:75], y[:75])
    np.testing.assert_allclose(weighted.density_.means_, half.density_.means_, rtol=1e-6)


@pytest.mark.parametrize("fraction", [0.0, 0.3])
def test_rows_without_weight_do_not_exist(table, fraction):
    # The solver drops such rows and counts its support vectors among the others
    X, y, X_test = table
    X, weights = with_missing_values(X, fraction), np.resize([0.0, 1.0, 2.0], len(y))
    kept = np.flatnonzero(weights)
    X[~np.isin(np.arange(len(y)), kept)] *= 30.0  # which would change gamma="scale"
    model = ExpectedPredictionSVR(density=ONE, C=10)
    weighted = model.fit(X, y, sample_weight=weights).predict(X_test)
    assert np.isin(model.support_, kept).all()
    without = model.fit(X[kept], y[kept], sample_weight=weights[kept]).predict(X_test)
    np.testing.assert_allclose(weighted, without, rtol=1e-9)


class CountingDensity(GaussianMixtureDensity):
    """Counts its fits in a file, also those of other processes."""

    def __init__(self, *, log, n_components=1, random_state=0):
        super().__init__(n_components=n_components, random_state=random_state)
        self.log = log

    def _fit_rows(self, rows, generator):
        with open(self.log, "a") as file:
            file.write("fit\n")
        super()._fit_rows(rows, generator)


def test_memory_learns_the_density_once(table, tmp_path):
    X, y, X_test = table
    log = tmp_path / "fits"
    density = CountingDensity(log=str(log))
    predictions = []
    for C in (1.0, 10.0, 1.0):
        model = ExpectedPredictionSVR(C=C, density=density, memory=str(tmp_path / "cache"))
        predictions.append(model.fit(X, y).predict(with_missing_values(X_test)))
    assert log.read_text().count("fit") == 1
    np.testing.assert_array_equal(predictions[0], predictions[2])
    plain = ExpectedPredictionSVR(C=1.0, density=density).fit(X, y)
    np.testing.assert_allclose(
        predictions[0], plain.predict(with_missing_values(X_test)), rtol=1e-12
    )


def test_cached_densities_have_kernels_in_closed_form_too(tmp_path):
    # Their clones forgot that skewed columns must not be transformed
    rng = np.random.default_rng(0)
    X = np.exp(1.5 * rng.normal(size=(150, 3)))
    y = np.log(X[:, 0])
    density = AutomaticDensity(families=["gaussian_mixture"], random_state=0)
    plain = ExpectedPredictionSVR(density=density).fit(X, y)
    cached = clone(plain).set_params(memory=str(tmp_path)).fit(X, y)
    X = with_missing_values(X)
    np.testing.assert_allclose(cached.predict(X), plain.predict(X), rtol=1e-12)


@pytest.mark.parametrize("density", ["auto", "gaussian_mixture"])
def test_mixtures_by_name_have_few_components_and_closed_forms(density):
    rng = np.random.default_rng(0)
    X = 4.0 * rng.normal(size=(5, 4))[rng.integers(5, size=120)] + rng.normal(size=(120, 4))
    y = np.sin(X[:, 0])
    # Gram matrices of incomplete rows take all pairs of components
    model = ExpectedPredictionSVR(density=density, random_state=0).fit(with_missing_values(X), y)
    assert 2 <= model.density_.n_components_ <= 8
    laplacian = clone(model).set_params(kernel="laplacian").fit(X, y)
    assert np.isfinite(laplacian.predict(with_missing_values(X))).all()


def search(X, y):
    model = make_pipeline(
        StandardScaler(), ExpectedPredictionSVR(density=GaussianMixtureDensity(random_state=0))
    )
    grid = {
        "expectedpredictionsvr__C": [1.0, 100.0],
        "expectedpredictionsvr__gamma": ["scale", 0.05],
        "expectedpredictionsvr__density__n_components": [1, 2],
    }
    return GridSearchCV(model, grid, cv=2, n_jobs=2).fit(X, y)


@pytest.mark.slow
def test_the_same_search_on_a_dask_cluster(table):
    distributed = pytest.importorskip("distributed")
    X, y = with_missing_values(table[0])[:80, :3], table[1][:80]
    local = search(X, y)
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**settings) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        remote = search(X, y)
    scores = local.cv_results_["mean_test_score"]
    np.testing.assert_array_equal(scores, remote.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(local.predict(X), remote.predict(X))
    assert np.isfinite(scores).all()


def test_joint_units_with_extreme_scales():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2)) * [1e-8, 1e8]
    y = rng.normal(size=50)
    density = Circuit(MultivariateGaussian([0, 1], X.mean(axis=0), np.cov(X.T)))
    kernel = RBF(1e16, variables=[0]) * RBF(1e-16, variables=[1])
    model = ExpectedPredictionSVR(kernel=kernel, density=density).fit(X, y)
    scaled = X * [1e8, 1e-8]
    same = Circuit(MultivariateGaussian([0, 1], scaled.mean(axis=0), np.cov(scaled.T)))
    reference = ExpectedPredictionSVR(kernel=RBF(1.0), density=same).fit(scaled, y)
    np.testing.assert_allclose(
        model.predict(with_missing_values(X)),
        reference.predict(with_missing_values(scaled)),
        rtol=1e-6,
    )


def test_standard_deviation_is_that_of_the_completions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 3))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1]
    model = ExpectedPredictionSVR(gamma=0.2, C=10.0, random_state=0).fit(X, y)
    rows = X[:4].copy()
    rows[0, 1] = rows[1, :2] = rows[2] = np.nan
    mean, std = model.predict(rows, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(rows))
    drawn = model.density_.sample(4000, random_state=0, X=rows)
    predictions = np.stack([model.predict(drawn[:, i]) for i in range(len(rows))])
    np.testing.assert_allclose(mean, predictions.mean(axis=1), atol=5 * std.max() / 63)
    np.testing.assert_allclose(std, predictions.std(axis=1), rtol=0.1, atol=1e-12)
    assert std[3] == 0


def test_standard_deviation_after_training_rows_with_missing_cells():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 3))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1]
    model = ExpectedPredictionSVR(gamma=0.2, C=10.0, density=ONE).fit(with_missing_values(X), y)
    rows = X[:3].copy()
    rows[0, 1] = rows[1] = np.nan
    with pytest.warns(UserWarning, match="estimated from 100 draws"):
        mean, std = model.predict(rows, return_std=True)
    drawn = model.density_.sample(2000, random_state=0, X=rows)
    predictions = np.stack([model.predict(drawn[:, i]) for i in range(len(rows))])
    np.testing.assert_array_equal(mean, model.predict(rows))
    np.testing.assert_allclose(std, predictions.std(axis=1), rtol=0.3, atol=1e-9)
    assert std[2] == 0


# ------------------------------------------------ the surface of the other estimators


def test_value_of_measuring_is_that_of_the_same_model_in_another_estimator(table):
    X, y, X_test = table
    rows = with_missing_values(X_test[:20], 0.4)
    model = ExpectedPredictionSVR(gamma=0.1, C=10.0, density=ONE).fit(X, y)
    frozen = FrozenEstimator(SVR(gamma=0.1, C=10.0).fit(X, y))
    same = ExpectedPredictionRegressor(frozen, density=model.circuit_).fit(X, y)
    values = model.value_of_measuring(rows)
    np.testing.assert_allclose(values, same.value_of_measuring(rows), atol=1e-12)
    assert (values[~np.isnan(rows)] == 0).all() and values.max() > 0.01
    costs = np.arange(1.0, 7.0)
    np.testing.assert_allclose(model.value_of_measuring(rows, costs), values / costs)
    assert model.explain_method() == {"predict": same.method_}


def test_rows_that_are_impossible_have_values_of_measuring():
    X = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    circuit = Circuit(1.0 * (Bernoulli(0, 0.0) * Bernoulli(1, 0.5)))
    model = ExpectedPredictionSVR(kernel=Hamming(1.0), density=circuit).fit(X, [0, 1, 1, 0])
    with pytest.warns(UserWarning, match="probability zero"):
        values = model.value_of_measuring([[1.0, np.nan], [0.0, np.nan]])
    np.testing.assert_array_equal(values > 0, [[False, True], [False, True]])


def test_the_method_says_that_integers_are_not_rounded(table):
    X, y, _ = table
    model = ExpectedPredictionSVR(density=ONE).fit(np.rint(10.0 * X), y)
    assert model.method_ == "exact: expected kernels, integers not rounded"


# ------------------------------------------------------------ parameters of kernels


@pytest.mark.parametrize("estimator", [ExpectedPredictionSVR, BBISWeighter])
@pytest.mark.parametrize("kernel", [RBF(1.0, variables=[0]), Hamming(1.0), RBF() + Delta()])
def test_parameters_that_are_listed_can_be_set(estimator, kernel):
    model = estimator(kernel=kernel)
    assert model.set_params(**model.get_params()).kernel == kernel
    assert estimator().set_params(**model.get_params()).kernel == kernel


def test_parameters_of_kernels_replace_the_kernel():
    kernel = RBF(1.0, variables=[0])
    model = ExpectedPredictionSVR(kernel=kernel).set_params(kernel__gamma=2.0, C=3.0)
    assert (model.kernel, model.C) == (RBF(2.0, variables=[0]), 3.0)
    assert kernel.gamma == 1.0
    model.set_params(kernel__scale=4.0, kernel=Hamming(1.0))
    assert model.kernel == Hamming(4.0)
    for other in ("rbf", RBF() + Delta()):
        with pytest.raises(ValueError, match=r"single kernel object to set \['kernel__gamma'\]"):
            ExpectedPredictionSVR(kernel=other).set_params(kernel__gamma=2.0)


def test_searches_choose_parameters_of_kernels(table):
    X, y, _ = table
    model = ExpectedPredictionSVR(kernel=RBF(1.0), density=ONE, C=100.0)
    search = GridSearchCV(model, {"kernel__gamma": [1e-2, 1e2]}, cv=2).fit(X, y)
    assert search.best_estimator_.kernel == RBF(1e-2)
    assert model.kernel == RBF(1.0)


def test_a_tolerance_that_rounding_never_meets_ends():
    X, y = np.random.default_rng(0).normal(size=(2, 60, 1))
    model = ExpectedPredictionSVR(
        tol=1e-320, density=GaussianMixtureDensity(n_components=1, covariance_type="full")
    )
    with pytest.warns(ConvergenceWarning, match="early"):
        model.fit(X, y[:, 0])
    assert np.isfinite(model.predict(X)).all()
