"""Figures that nobody sees, and a density to display."""

import numpy as np
import pandas as pd
import pytest

from skcircuits import MoATDensity


@pytest.fixture
def headless():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    yield
    plt.close("all")


@pytest.fixture(scope="session")
def density():
    X = pd.DataFrame(np.random.default_rng(0).integers(2, size=(80, 4)), columns=list("abcd"))
    return MoATDensity(n_components=2, max_iter=3, random_state=0).fit(X)
