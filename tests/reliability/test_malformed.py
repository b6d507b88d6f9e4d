"""Whatever is passed to whatever is public: an answer, or an error that a user can act on."""

import warnings

import numpy as np
import polars as pl
import pytest

from skcircuits import BBISWeighter
from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    FactorGaussian,
    Indicator,
    MultivariateGaussian,
    PiecewisePolynomial,
    Sum,
)
from skcircuits.graphical import GaussianMRF, IsingModel
from skcircuits.kernels import RBF
from skcircuits.learning import fit_parameters
from skcircuits.parallel import Parallel
from skcircuits.particles import svgd_direction
from skcircuits.stein import InverseMultiquadric, simplex_weights, stein_gram, stein_test
from tests.reliability.public_callables import (
    arguments,
    fingerprint,
    instances,
    public_functions,
    public_methods,
)

ALLOWED = (ValueError, TypeError, MemoryError)
# Besides names of arguments: the package's own messages name a thing; scikit-learn's and NumPy's
# generators; classes that cannot be built; verbose, which is asked whether it is true
OF_THINGS = (
    " must ",
    "cells of",
    "probability zero",
    "Seed",
    "RandomState",
    "abstract",
    "truth value",
)


def call(function, given):
    before = {name: fingerprint(value) for name, value in given.items()}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            function(**given)
    except ALLOWED as error:
        names = [*given, *(name.removesuffix("s") for name in given), *OF_THINGS]
        # What a function of the caller's raises is passed on
        is_named = any(name in str(error) for name in names) or any(
            value is int for value in given.values()
        )
        assert is_named, f"{type(error).__name__} names nothing: {error}"
    changed = [name for name, value in given.items() if fingerprint(value) != before[name]]
    assert not changed, f"changed its arguments {changed}"


def described(name, given):
    words = ", ".join(f"{key}={value!r:.60}" for key, value in given.items())
    return f"{name}({words})"


def try_all(tally, callables, n_cases):
    for name, function in callables:
        for seed in tally.seeds(n_cases, name):
            given = arguments(function, np.random.default_rng(seed))
            if given is not None:
                tally.check(f"[{seed}] {described(name, given)}", call, function, given)


def methods():
    for name, thing in instances().items():
        for method in public_methods(thing):
            yield f"{name}.{method}", getattr(thing, method)


def test_functions_and_constructors(tally):
    try_all(tally, public_functions(), 4)


def test_methods(tally):
    try_all(tally, methods(), 4)


@pytest.mark.slow
def test_many_more(tally):
    try_all(tally, [*public_functions(), *methods()], 90)


HUGE = 10**400


@pytest.mark.parametrize(
    "call",
    [
        lambda: MultivariateGaussian([0], [0.0], [[HUGE]]),
        lambda: FactorGaussian([0], [0.0], [[HUGE]], [1.0]),
        lambda: PiecewisePolynomial(0, [0, HUGE], [[1.0]]),
        lambda: Categorical(0, [HUGE, 1]),
        lambda: Sum([Bernoulli(0, 0.5)], weights=[HUGE]),
        lambda: Circuit(Bernoulli(0, 0.5)).sample(HUGE),
        lambda: GaussianMRF([[HUGE]], [0.0]),
        lambda: GaussianMRF([[1.0]], [0.0]).grad_log_prob([[HUGE]]),
        lambda: GaussianMRF([[1.0]], [0.0]).mmd2([[0.0]], HUGE),
        lambda: svgd_direction([[HUGE]], [[0.0]], [[0]], 1.0),
        lambda: simplex_weights(np.eye(1), counts=[HUGE]),
        lambda: fit_parameters(Circuit(Bernoulli(0, 0.5)), [[0.0]], pseudo_count=HUGE),
        lambda: stein_gram([[HUGE]], GaussianMRF([[1.0]], [0.0]), RBF(gamma=1.0)),
    ],
)
def test_integers_beyond_floats_are_refused(call):
    with pytest.raises(
        ValueError, match=r"float can hold|finite non-negative|below 2\*\*31|positive and finite"
    ):
        call()


def test_methods_are_words():
    # Comparisons with columns of a dataframe raise errors of its library
    with pytest.raises(ValueError, match="method must be 'exact', 'search' or 'max_product'"):
        Circuit(Bernoulli(0, 0.5)).mpe([[np.nan]], method=pl.Series([1.0]))
    with pytest.raises(ValueError, match="method must be"):
        BBISWeighter().fit_resample([[0.0], [1.0]], method=pl.Series([1.0]))


TABLE = pl.DataFrame({"a": [1.0, None], "b": ["u", "v"]})  # compares with an error of its own


@pytest.mark.parametrize(
    "call",
    [
        lambda: Indicator(0, TABLE, 2),
        lambda: InverseMultiquadric(scale=TABLE),
        lambda: InverseMultiquadric(exponent=TABLE),
        lambda: stein_test([[0.0]] * 2, GaussianMRF([[1.0]], [0.0]), change_probability=TABLE),
        lambda: fit_parameters(Circuit(Bernoulli(0, 0.5)), [[0.0]], tol=TABLE),
        lambda: IsingModel.grid(2, 2).compile(max_edges=TABLE),
    ],
)
def test_tables_are_no_numbers(call):
    with pytest.raises((ValueError, TypeError), match="must be"):
        call()


def test_sets_of_states_are_dicts():
    with pytest.raises(TypeError, match="states must be a dict"):
        Circuit(Bernoulli(0, 0.5)).log_prob_box([[0]], [[1]], states=b"bytes")


@pytest.mark.parametrize("n_jobs", [np.inf, 0.5, True, 10**30, "two"])
def test_numbers_of_jobs_are_integers(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be an integer"):
        Parallel(n_jobs=n_jobs)
