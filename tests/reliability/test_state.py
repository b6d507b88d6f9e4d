"""After a fit that fails, wherever it fails, an estimator is the old model in full, or unfitted.

Failures are injected: an exception is raised at a line of the package, chosen by counting the
lines that a fit runs.
"""

import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted

import skcircuits.parallel

N_FAILURES = 8
PACKAGE = skcircuits.__path__[0]
# The moment when a ``with`` lets go of its lock is a line, too; no code can outlive a failure there
LOCKS = skcircuits.parallel.__file__


class InjectedError(Exception):
    """Raised in the middle of a fit."""


class LineTracer:
    """Count the lines of the package that run; raise at one of them."""

    def __init__(self, fail_at=None):
        self.fail_at = fail_at
        self.n_lines = 0

    def __enter__(self):
        self.previous = sys.gettrace()
        sys.settrace(self._enter_frame)
        return self

    def __exit__(self, *_):
        sys.settrace(self.previous)

    def _enter_frame(self, frame, event, arg):
        path = frame.f_code.co_filename
        return self._line if path.startswith(PACKAGE) and path != LOCKS else None

    def _line(self, frame, event, arg):
        if event == "line":
            self.n_lines += 1
            if self.n_lines == self.fail_at:
                raise InjectedError
        return self._line


def tables():
    """Two tables of other columns, widths and kinds."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(40, 1))
    old = pd.DataFrame(base + 0.5 * rng.normal(size=(40, 2)), columns=["a", "b"]).round(1)
    new = pd.DataFrame(base + 0.5 * rng.normal(size=(40, 3)), columns=["x", "y", "z"]).round(1)
    return old, new


ESTIMATORS = {
    "chow_liu": (skcircuits.ChowLiuDensity(random_state=0), "score_samples"),
    "strudel": (
        skcircuits.StrudelDensity(max_iter=5, random_state=0),
        "score_samples",
    ),
    "latent_tree": (
        skcircuits.HiddenChowLiuDensity(n_latent_states=2, max_iter=3, random_state=0),
        "score_samples",
    ),
    "moat": (skcircuits.MoATDensity(max_iter=2, random_state=0), "score_samples"),
    "wmispn": (skcircuits.WMISPNDensity(random_state=0), "score_samples"),
    "gaussian_mixture": (
        skcircuits.GaussianMixtureDensity(n_components=2, random_state=0),
        "score_samples",
    ),
    "imputer": (skcircuits.CircuitImputer(random_state=0), "transform"),
    "svr": (skcircuits.ExpectedPredictionSVR(random_state=0), "predict"),
    "continuous_mixture": (
        skcircuits.ContinuousMixtureDensity(n_components=2, max_iter=2, random_state=0),
        "score_samples",
    ),
    "automatic": (
        skcircuits.AutomaticDensity(families=["gaussian_mixture"], random_state=0),
        "score_samples",
    ),
    "regressor": (
        skcircuits.ExpectedPredictionRegressor(density="gaussian_mixture", random_state=0),
        "predict",
    ),
    "classifier": (
        skcircuits.ExpectedPredictionClassifier(density="gaussian_mixture", random_state=0),
        "predict_proba",
    ),
    "weighter": (skcircuits.BBISWeighter(random_state=0), "transform"),
    "sampler": (
        skcircuits.GraphicalSVGDSampler(n_particles=5, max_iter=5, random_state=0),
        "score_samples",
    ),
}


def fit(estimator, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = X.iloc[:, 0]
        return estimator.fit(X, y > y.median() if is_classifier(estimator) else y)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_failed_refit_leaves_the_old_model(name):
    prototype, method = ESTIMATORS[name]
    old, new = tables()
    probe = old.where(np.arange(80).reshape(40, 2) % 7 > 0) if name == "imputer" else old

    def refit(fail_at=None):
        estimator = fit(type(prototype)(**prototype.get_params(deep=False)), old)
        before = np.asarray(getattr(estimator, method)(probe))
        with LineTracer(fail_at) as tracer:
            try:
                fit(estimator, new)
            except InjectedError:
                pass
            else:
                assert fail_at is None
        return estimator, before, tracer.n_lines

    _, _, n_lines = refit()
    # Half of the failures among the first lines, where tables are read
    places = {*range(1, 400, 100), *np.linspace(400, n_lines - 1, N_FAILURES // 2).astype(int)}
    for place in sorted(places):
        estimator, before, _ = refit(int(place))
        assert estimator.feature_names_in_.tolist() == ["a", "b"], place
        np.testing.assert_array_equal(getattr(estimator, method)(probe), before)


def test_every_estimator_is_tried():
    tried = {type(prototype) for prototype, _ in ESTIMATORS.values()}
    public = map(vars(skcircuits).get, skcircuits.__all__)
    assert tried == {
        one for one in public if isinstance(one, type) and issubclass(one, BaseEstimator)
    }


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_refused_first_fit_leaves_nothing(name):
    prototype, _ = ESTIMATORS[name]
    estimator = type(prototype)(**prototype.get_params(deep=False))
    old, _ = tables()
    with pytest.raises(ValueError, match="infin"):
        fit(estimator, old.replace(old.iloc[3, 1], np.inf))
    assert not [attribute for attribute in vars(estimator) if attribute.endswith("_")]
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(estimator)
