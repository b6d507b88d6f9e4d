"""After a fit that fails, wherever it fails, an estimator is the old model in full, or unfitted.

Failures are injected: an exception is raised at a line of the package, chosen by counting the
lines that a fit or a question runs. A user's interrupt may also keep the best model so far.
"""

import contextlib
import functools
import pickle
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.exceptions import NotFittedError
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

    def __init__(self, fail_at=None, error=InjectedError):
        self.fail_at, self.error = fail_at, error
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
                raise self.error
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
        skcircuits.GaussianMixtureDensity(n_components=2, covariance_type="full", random_state=0),
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
    "stacking": (
        skcircuits.StackingDensity(
            [("one", skcircuits.GaussianMixtureDensity(n_components=1))], random_state=0
        ),
        "score_samples",
    ),
    "regressor": (
        skcircuits.ExpectedPredictionRegressor(
            density=skcircuits.GaussianMixtureDensity(n_components=1), random_state=0
        ),
        "predict",
    ),
    "classifier": (
        skcircuits.ExpectedPredictionClassifier(
            density=skcircuits.GaussianMixtureDensity(n_components=1), random_state=0
        ),
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


@functools.cache
def packed(name):
    """An estimator that knows the old table, pickled."""
    return pickle.dumps(fit(clone(ESTIMATORS[name][0]), tables()[0]))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_failed_refit_leaves_the_old_model(name):
    method = ESTIMATORS[name][1]
    old, new = tables()
    probe = old.where(np.arange(80).reshape(40, 2) % 7 > 0) if name == "imputer" else old

    def refit(estimator, fail_at=None):
        with LineTracer(fail_at) as tracer:
            try:
                fit(estimator, new)
            except InjectedError:
                pass
            else:
                assert fail_at is None
        return tracer.n_lines

    # One model outlives all failures
    estimator = pickle.loads(packed(name))
    before = np.asarray(getattr(estimator, method)(probe))
    # The first fit of a process fills caches, and runs a few lines more
    fit(pickle.loads(packed(name)), new)
    n_lines = refit(pickle.loads(packed(name)))
    # Half of the failures among the first lines, where tables are read
    places = {*range(1, 400, 100), *np.linspace(400, n_lines - 1, N_FAILURES // 2).astype(int)}
    for place in sorted(places):
        refit(estimator, int(place))
        assert estimator.feature_names_in_.tolist() == ["a", "b"], place
        np.testing.assert_array_equal(getattr(estimator, method)(probe), before)


def try_seeds(tally, n_seeds, check, name):
    """Check an estimator with some seeds."""
    for seed in tally.seeds(n_seeds, f"{check.__name__} {name}"):
        tally.check(f"{check.__name__}({name!r}, {seed})", check, name, seed)


def check_interrupted(name, seed):
    """Interrupt a refit anywhere: the old model, or one of the new table; both answer."""
    method = ESTIMATORS[name][1]
    old, new = tables()
    estimator = pickle.loads(packed(name))
    before = np.asarray(getattr(estimator, method)(old))
    counted = pickle.loads(packed(name))
    with LineTracer() as tracer:
        fit(counted, new)
    place = int(np.random.default_rng(seed).integers(1, tracer.n_lines))
    interrupted = False
    with LineTracer(place, KeyboardInterrupt):
        try:
            fit(estimator, new)
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        assert estimator.feature_names_in_.tolist() == ["a", "b"]
        np.testing.assert_array_equal(getattr(estimator, method)(old), before)
    else:
        assert estimator.feature_names_in_.tolist() == ["x", "y", "z"]
        assert np.isfinite(np.asarray(getattr(estimator, method)(new), dtype=float)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_interrupted_refit_leaves_a_model(name, tally):
    try_seeds(tally, 6, check_interrupted, name)


@functools.cache
def packed_before_batch(name):
    """An estimator that knows the first batch, pickled; the second; how many lines that runs."""
    first, _ = tables()
    batch = first + 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed = pickle.dumps(clone(ESTIMATORS[name][0]).partial_fit(first))
    with LineTracer() as tracer:
        pickle.loads(packed).partial_fit(batch)
    return packed, batch, tracer.n_lines


def check_failed_batch(name, seed):
    """Fail anywhere in a later batch: the model of the batches before, or none."""
    method = ESTIMATORS[name][1]
    old, _ = tables()
    packed, batch, n_lines = packed_before_batch(name)
    estimator = pickle.loads(packed)
    before = np.asarray(getattr(estimator, method)(old))
    place = int(np.random.default_rng(seed).integers(1, n_lines))
    with LineTracer(place), pytest.raises(InjectedError):
        estimator.partial_fit(batch)
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return
    np.testing.assert_array_equal(getattr(estimator, method)(old), before)


LEARN_BATCHES = [name for name, (one, _) in ESTIMATORS.items() if hasattr(one, "partial_fit")]


@pytest.mark.parametrize("name", LEARN_BATCHES)
def test_a_failed_batch_leaves_the_model_before_or_none(name, tally):
    try_seeds(tally, 4, check_failed_batch, name)


def check_failed_question(name, seed):
    """Fail anywhere in an answer, the first one that fills caches: the next is as ever."""
    method = ESTIMATORS[name][1]
    old, _ = tables()
    incomplete = old if name in COMPLETE else old.where(np.arange(80).reshape(40, 2) % 7 > 0)
    rng = np.random.default_rng(seed)
    model = pickle.loads(packed(name))
    with LineTracer() as tracer:
        expected = np.asarray(getattr(model, method)(incomplete))
    model = pickle.loads(packed(name))
    place = int(rng.integers(1, tracer.n_lines))
    error = rng.choice([KeyboardInterrupt, MemoryError])
    with LineTracer(place, error), contextlib.suppress(error, AttributeError):
        # A method that cannot be looked up raises AttributeError
        getattr(model, method)(incomplete)
    np.testing.assert_array_equal(getattr(model, method)(incomplete), expected)


# Their points have no missing cells
COMPLETE = ("weighter", "sampler")


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_failed_question_changes_nothing(name, tally):
    try_seeds(tally, 6, check_failed_question, name)


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


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_refused_refit_leaves_the_old_columns(name):
    """A table of other columns with an infinite cell: its names once stood on the old model."""
    method = ESTIMATORS[name][1]
    old, new = tables()
    estimator = pickle.loads(packed(name))
    before = np.asarray(getattr(estimator, method)(old))
    for refused in (new, new.rename(columns={"x": "a", "y": "b"})):
        with pytest.raises(ValueError, match="infin"):
            fit(estimator, refused.replace(refused.iloc[3, 1], np.inf))
        assert estimator.feature_names_in_.tolist() == ["a", "b"]
        assert estimator.n_features_in_ == 2
        np.testing.assert_array_equal(getattr(estimator, method)(old), before)
        if name != "weighter":  # gives the weights of the rows that it saw
            with pytest.raises(ValueError, match="feature names"):
                getattr(estimator, method)(new)
