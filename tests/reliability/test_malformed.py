"""Whatever is passed to whatever is public: an answer, or an error that a user can act on."""

import warnings

import numpy as np
import pytest

from tests.reliability.public_callables import (
    arguments,
    fingerprint,
    instances,
    public_functions,
    public_methods,
)

ALLOWED = (ValueError, TypeError, MemoryError)


def call(function, given):
    before = {name: fingerprint(value) for name, value in given.items()}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            function(**given)
    except ALLOWED as error:
        assert str(error), f"{type(error).__name__} without a message"
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
    try_all(tally, [*public_functions(), *methods()], 150)
