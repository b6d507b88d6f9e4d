"""What passes here passes elsewhere: no test depends on the clock or on a draw without a seed."""

import numpy as np
from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


def pytest_runtest_setup():
    """Seed what ``random_state=None`` draws from, before the fixtures of the test are made."""
    np.random.seed(0)  # noqa: NPY002
