"""Closed forms of columns of integers, whose draws are rounded before a model sees them."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.ensemble import AdaBoostRegressor, ExtraTreesRegressor, GradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, SplineTransformer, StandardScaler

from skcircuits import ExpectedPredictionRegressor
from skcircuits.circuits import Circuit, MultivariateGaussian

MEAN, STD = 3.2, 1.4
COVARIANCE = np.array([[STD**2, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(KBinsDiscretizer(3, encode="onehot-dense"), Ridge()),
        make_pipeline(SplineTransformer(n_knots=4), Ridge()),
        make_pipeline(StandardScaler(), ExtraTreesRegressor(7, max_depth=3, random_state=0)),
        GradientBoostingRegressor(n_estimators=5, random_state=0),
        AdaBoostRegressor(n_estimators=5, random_state=0),
    ],
    ids=lambda model: type(model).__name__ if not hasattr(model, "steps") else model.steps[0][0],
)
def test_closed_forms_sum_over_the_integers_that_draws_are_rounded_to(model, sign):
    rng = np.random.default_rng(0)
    X = np.column_stack([sign * np.rint(rng.normal(MEAN, STD, 80)), rng.normal(size=80)])
    X[:, 0] = np.where(X[:, 0] == sign * 4, sign * 5, X[:, 0])  # trees split at 4 itself
    y = np.square(X[:, 0]) + X[:, 1]
    circuit = Circuit(MultivariateGaussian((0, 1), np.array([sign * MEAN, 0.0]), COVARIANCE))
    frozen = FrozenEstimator(model.fit(X, y))
    expected = ExpectedPredictionRegressor(frozen, density=circuit, method="exact").fit(X, y)
    integers = np.arange(-60.0, 61.0)
    completed = np.column_stack([integers, np.full(len(integers), 0.3)])
    masses = np.diff(norm.cdf(np.append(integers - 0.5, 60.5), sign * MEAN, STD))
    value = masses @ model.predict(completed)
    np.testing.assert_allclose(expected.predict([[np.nan, 0.3]]), [value], rtol=1e-9)


def test_bins_of_many_integers_are_few_steps():
    rng = np.random.default_rng(0)
    X = np.rint(rng.normal(0.0, 300.0, (200, 1)))
    model = make_pipeline(KBinsDiscretizer(3, encode="onehot-dense"), Ridge()).fit(X, X[:, 0])
    expected = ExpectedPredictionRegressor(
        FrozenEstimator(model),
        density=Circuit(MultivariateGaussian((0,), [0.0], [[300.0**2]])),
        method="exact",
    ).fit(X, X[:, 0])
    integers = np.arange(-3000.0, 3001.0)
    masses = np.diff(norm.cdf(np.append(integers - 0.5, 3000.5), 0.0, 300.0))
    value = masses @ model.predict(integers[:, None])
    np.testing.assert_allclose(expected.predict([[np.nan]]), [value], rtol=1e-9, atol=1e-9)
