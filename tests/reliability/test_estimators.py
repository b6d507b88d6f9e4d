"""Every public method of every estimator, with tables and arguments that nobody means.

An answer, or an error that names what is wrong; no argument and no fitted attribute changed. The
same table in another container has the same answer.
"""

import copy
import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

import skcircuits
from tests.reliability.estimators import SMALL, answer, build
from tests.reliability.public_callables import fingerprint, hostile_values, public_methods
from tests.reliability.tables import hostile_table, other_form

QUICK = {"ChowLiuDensity", "GaussianMixtureDensity"}
# Fitting is what takes time; fits are tried apart from questions
LEARNS = {"fit", "partial_fit", "fit_transform", "fit_predict", "fit_resample"}
TABLES = {"X", "X_val"}
# What is right for parameters of this name, so that one thing at a time is wrong
VALID = {
    "level": 0.5, "q": [0.1, 0.5], "column": "a", "columns": ["a"], "others": ["c"],
    "query": "a > 0", "queries": ["a > 0", {"c": "yes"}], "n_samples": 5, "random_state": 0,
    "n_imputations": 2, "n_trees": 2, "n_starts": 1, "f": lambda rows: rows[:, 0],
}  # fmt: skip
# Words by which messages name a table, those of scikit-learn included
OF_TABLES = (
    *("X", "array", "column", "cell", "feature", "row", "dataframe", "input"),
    *("string to float", "argument must be", "complex data"),
)
OF_CONDITIONS = ("condition", "query", *OF_TABLES)
OF_OTHERS = (
    *("column", "query", "condition", "weights", "Seed", "RandomState", "samples", "X must"),
    *("truth value", "dimension", "integers", "complex data"),
)


def fitted(name):
    model, data = build(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*data), data


def draw_arguments(function, data, rng):
    """Valid keyword arguments by name, one of them hostile; None where nothing is taken."""
    table = data[0] if isinstance(data[0], pd.DataFrame) else pd.DataFrame(data[0])
    named = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if not named:
        return None, None
    given = {}
    for parameter in named:
        if parameter.name == "X" and (parameter.default is parameter.empty or rng.random() < 0.5):
            given["X"] = data[0]
        elif parameter.name == "y" and len(data) > 1:
            given["y"] = data[1]
        elif parameter.name in VALID and parameter.default is parameter.empty:
            given[parameter.name] = VALID[parameter.name]
    wrong = named[rng.integers(len(named))].name
    is_table = wrong in TABLES or (wrong == "given" and rng.random() < 0.5)
    given[wrong] = hostile_table(table, rng) if is_table else hostile_values(rng)
    return given, wrong


def state_of(model):
    return {
        key: fingerprint(value) for key, value in vars(model).items() if not key.startswith("_")
    }


def has_changed(model, state):
    """Tell whether an attribute is another; what is made when asked for is new, not changed."""
    now = state_of(model)
    return any(now.get(name) != value for name, value in state.items())


def ask(model, state, method, given, wrong):
    """One call: an answer, or an error that says what is wrong and leaves the state."""
    before = {name: fingerprint(value) for name, value in given.items()}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            getattr(model, method)(**given)
    except (ValueError, TypeError, NotFittedError) as error:
        words = OF_TABLES if wrong in TABLES else OF_CONDITIONS if wrong == "given" else OF_OTHERS
        # What a model cannot answer at all is named by its method
        if not any(word.lower() in str(error).lower() for word in (wrong, method, *words)):
            raise AssertionError(f"names nothing: {error}") from error
        if has_changed(model, state):
            raise AssertionError("changed the model and raised") from error
    changed = [name for name, value in given.items() if fingerprint(value) != before[name]]
    if changed:
        raise AssertionError(f"changed its arguments {changed}")


def described(name, method, given):
    words = ", ".join(f"{key}={value!r:.80}" for key, value in given.items())
    return f"{name}.{method}({words})"


def try_methods(tally, name, n_cases, n_fits):
    model, data = fitted(name)
    state = state_of(model)
    for method in public_methods(model):
        if not hasattr(model, method) or getattr(model, method).__module__.startswith("sklearn"):
            continue
        for seed in tally.seeds(n_fits if method in LEARNS else n_cases, f"{name}.{method}"):
            given, wrong = draw_arguments(getattr(model, method), data, np.random.default_rng(seed))
            if given is None:
                break
            case = f"[{seed}] {described(name, method, given)}"
            own = copy.deepcopy(model) if method in LEARNS else model
            tally.check(case, ask, own, state, method, given, wrong)
    assert not has_changed(model, state), "questions changed the model"


@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_few(name, tally):
    try_methods(tally, name, 3, 5)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SMALL))
def test_many(name, tally):
    try_methods(tally, name, 40, 15)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(SMALL) - {"BBISWeighter", "GraphicalSVGDSampler"}))
def test_other_containers_have_the_same_answers(name, tally):
    model, data = fitted(name)
    expected = answer(model, data[0])

    def compare(seed):
        table, _ = other_form(data[0], np.random.default_rng(seed))
        np.testing.assert_allclose(answer(model, table), expected, rtol=1e-12)

    for seed in tally.seeds(20, f"{name} containers"):
        done = other_form(data[0], np.random.default_rng(seed))[1]
        tally.check(f"[{seed}] {name}{done}", compare, seed)


def test_every_public_estimator_is_tried():
    public = {
        name
        for name in skcircuits.__all__
        if inspect.isclass(own := getattr(skcircuits, name)) and issubclass(own, BaseEstimator)
    }
    assert public == set(SMALL)


def test_integers_beyond_floats_are_no_points():
    model, (X,) = fitted("GraphicalSVGDSampler")
    rows = X.astype(object)
    rows[0, 0] = 10**400
    for function in (model.fit, model.score, model.score_samples):
        with pytest.raises(ValueError, match="X must hold numbers that a float can hold"):
            function(rows)


def test_one_number_is_no_list_of_queries():
    model, _ = fitted("ChowLiuDensity")
    with pytest.raises(ValueError, match="queries must be a list"):
        model.probabilities(np.array(1.0))
