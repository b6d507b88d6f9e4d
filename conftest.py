"""What passes here passes elsewhere: no test depends on the clock or on a draw without a seed."""

import gc

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Spare the garbage collector the thousands of tests: they stay until the end.

    To search them again and again took a fifth of the time of collection, and much of that of
    tests with many objects of their own.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup():
    """Seed what ``random_state=None`` draws from, before the fixtures of the test are made."""
    np.random.seed(0)  # noqa: NPY002
