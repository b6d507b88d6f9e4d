"""Every density with a circuit serves regression and imputation, on the tables it is for."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVR

from skcircuits import (
    ChowLiuDensity,
    CircuitImputer,
    ExpectedPredictionSVR,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    StrudelDensity,
    WMISPNDensity,
)
from skcircuits.circuits import Circuit, Gaussian, Product
from skcircuits.estimators.automatic import _inner_density
from skcircuits.protocols import Density

DISCRETE = [
    ChowLiuDensity(),
    ChowLiuDensity(n_components=2, random_state=0),
    HiddenChowLiuDensity(n_latent_states=4, max_iter=5, random_state=0),
    StrudelDensity(max_iter=20, random_state=0),
]
MIXED = [
    GaussianMixtureDensity(n_components=2, random_state=0),
    GaussianMixtureDensity(n_components=2, covariance_type="diag", random_state=0),
    WMISPNDensity(random_state=0),
    WMISPNDensity(leaf="multivariate", random_state=0),
]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def labels(n_rows, seed=0):
    """A chain of labels: neighbours tell about each other."""
    rng = np.random.default_rng(seed)
    states = [rng.integers(3, size=n_rows)]
    for _ in range(3):
        stays = rng.random(n_rows) < 0.85
        states.append(np.where(stays, states[-1], rng.integers(3, size=n_rows)))
    return pd.DataFrame(np.array(list("abc"))[np.transpose(states)], columns=list("wxyz"))


def mixed(n_rows, seed=0):
    """Numbers whose means depend on a label."""
    rng = np.random.default_rng(seed)
    table = labels(n_rows, seed)[["w", "x"]]
    shift = 2.0 * (table["w"] == "a").to_numpy()
    table["u"] = shift + rng.normal(size=n_rows)
    table["v"] = table["u"] + 0.3 * rng.normal(size=n_rows)
    return table


def target(table):
    number = table["v"] if "v" in table else 2.0 * (table["z"] == "b")
    return (3.0 * (table["w"] == "a") + number).to_numpy(dtype=float)


def with_missing_values(table, seed=1):
    missing = np.random.default_rng(seed).random(table.shape) < 0.3
    return table.astype(
        {name: object for name in table.columns if table[name].dtype != float}
    ).mask(missing)


CASES = [(density, labels) for density in DISCRETE] + [(density, mixed) for density in MIXED]
every_case = pytest.mark.parametrize(
    "density, make", CASES, ids=[f"{density!r}-{make.__name__}" for density, make in CASES]
)


@every_case
def test_regression(density, make):
    X, X_test = make(250), make(120, seed=5)
    y, y_test = target(X), target(X_test)
    model = ExpectedPredictionSVR(C=10, density=density).fit(X, y)
    incomplete = with_missing_values(X_test)
    error = root_mean_squared_error(y_test, model.predict(incomplete))
    nothing = incomplete.mask(np.ones(X_test.shape, dtype=bool))
    constant = root_mean_squared_error(y_test, model.predict(nothing))
    assert error < 0.8 * constant
    complete = SVR(C=10, gamma=model.gamma_, tol=model.tol)
    encoded = model._one_hot(model._read_table(X))
    complete.fit(encoded, y)
    np.testing.assert_allclose(
        model.predict(X_test),
        complete.predict(model._one_hot(model._read_table(X_test))),
        rtol=1e-8,
    )


@every_case
def test_imputation(density, make):
    X = make(250)
    incomplete = with_missing_values(X)
    imputer = CircuitImputer(density=density, random_state=0)
    imputer.set_output(transform="pandas").fit(incomplete)
    observed = incomplete.notna().to_numpy()
    for strategy in ("mean", "mpe", "sample"):
        completed = imputer.set_params(strategy=strategy).transform(incomplete)
        assert completed.notna().to_numpy().all()
        same = completed.astype(object).to_numpy() == incomplete.to_numpy()
        assert same[observed].all()
        if strategy != "sample":
            hidden = ~observed[:, 0]
            hits = np.mean(completed["w"][hidden] == X["w"][hidden])
            assert hits > 0.5  # one in three by chance


class IndependentNormals(BaseEstimator):
    """A density of one's own, with no more than `protocols.Density` asks for."""

    def fit(self, X, y=None):
        cells = np.asarray(X, dtype=float)
        moments = zip(np.nanmean(cells, axis=0), np.nanvar(cells, axis=0))
        self.circuit_ = Circuit(Product([Gaussian(j, *m) for j, m in enumerate(moments)]))
        return self

    def score_samples(self, X):
        return self.circuit_.log_prob(X)


def mean_log_density(density, X, y=None):
    return density.score_samples(X).mean()


@pytest.mark.parametrize(
    "density",
    [IndependentNormals(), GridSearchCV(IndependentNormals(), {}, scoring=mean_log_density)],
    ids=["alone", "searched"],
)
def test_a_density_of_ones_own(density):
    X = np.random.default_rng(0).normal([1.0, -2.0], size=(60, 2))
    y = X.sum(axis=1)
    assert isinstance(IndependentNormals().fit(X), Density)
    incomplete = [[np.nan, 0.0], [3.0, np.nan]]
    completed = CircuitImputer(density=density).fit(X).transform(incomplete)
    np.testing.assert_allclose(completed, [[X[:, 0].mean(), 0.0], [3.0, X[:, 1].mean()]])
    predicted = ExpectedPredictionSVR(density=density, C=10).fit(X, y).predict(incomplete)
    np.testing.assert_allclose(predicted, [1.0, 1.0], atol=0.5)


def test_no_convergence_says_what_to_set_on_the_object_in_hand():
    table = mixed(60)
    imputer = CircuitImputer(density=GaussianMixtureDensity(n_components=2, max_iter=1, tol=0.0))
    with pytest.warns(ConvergenceWarning, match="Increase density__max_iter or density__tol"):
        imputer.fit(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CircuitImputer(random_state=0).fit(table)


@pytest.mark.parametrize("is_weighted", [False, True], ids=["equal", "weighted"])
def test_the_automatic_density_learns_from_so_many_rows(is_weighted, monkeypatch):
    """Rows beyond those teach it nothing; those without weight are none of them."""
    monkeypatch.setattr(_inner_density, "_MAX_ROWS", 80)
    X = np.random.default_rng(0).normal(size=(400, 3))
    X[:200] += 100.0
    weights = np.repeat([0.0, 1.0], 200) if is_weighted else None
    seen = []

    class Watched(GaussianMixtureDensity):
        def _fit_encoded(self, X, schema, sample_weight=None):
            seen.append((X, sample_weight))
            return super()._fit_encoded(X, schema, sample_weight)

    named = CircuitImputer(density=Watched(n_components=1)).fit(X, sample_weight=weights)
    assert len(seen.pop()[0]) == len(X)
    monkeypatch.setattr(
        CircuitImputer, "_automatic_density", lambda *_: Watched(n_components=1, random_state=0)
    )
    sampled = CircuitImputer(random_state=0).fit(X, sample_weight=weights)
    rows, own = seen.pop()
    assert rows.shape == (80, 3)
    assert len(np.unique(rows, axis=0)) == 80
    assert np.isin(rows[:, 0], X[:, 0]).all()
    assert (own is None) != is_weighted
    assert ((rows > 50).any()) != is_weighted
    means = [imputer.circuit_.expectation(np.full((1, 3), np.nan)) for imputer in (named, sampled)]
    np.testing.assert_allclose(*means, atol=20.0 if not is_weighted else 0.5)


@pytest.mark.parametrize("density", ["gaussian_mixture", "wmispn", "latent_tree", *DISCRETE])
def test_weights_that_are_no_counts_may_have_any_sum(density):
    """Priors are in rows: weights of a small sum left the densities nothing but these."""
    X = mixed(60).mask(np.random.default_rng(0).random((60, 4)) < 0.1)
    weights = np.random.default_rng(1).random(60)

    def answers(weights):
        imputer = CircuitImputer(density=density, strategy="sample", random_state=0)
        imputer.fit(X, sample_weight=weights)
        # Proper imputations learn the density again
        return imputer.density_.score_samples(X), imputer.sample_imputations(X, 1)[0, :, 2:]

    for found, expected in zip(answers(1e-6 * weights), answers(weights), strict=True):
        np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=1e-6)
