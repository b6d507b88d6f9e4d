"""Moments under conditions are those of what draws are rounded to."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from skcircuits import ChowLiuDensity, GaussianMixtureDensity, HiddenChowLiuDensity, WMISPNDensity

DENSITIES = [
    GaussianMixtureDensity(n_components=2, random_state=0),
    GaussianMixtureDensity(n_components=3, covariance_type="diag", random_state=0),
    WMISPNDensity(),
    HiddenChowLiuDensity(n_latent_states=3, random_state=0),
    ChowLiuDensity(),
]
CONDITIONS = ["k == 4", "k >= 4", "k < 2 or k == 5", "k >= 3 and m > 1", "m <= 2 and x > 0"]
COLUMNS = ["k", "m", "x"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    k = np.round(3.0 + x + 0.5 * rng.normal(size=300)).astype(int)
    m = rng.poisson(np.exp(1.0 + 0.5 * x))
    return pd.DataFrame({"k": k, "m": m, "x": x, "c": -1e6, "always": 7})


@pytest.mark.parametrize("density", DENSITIES, ids=lambda one: type(one).__name__)
@pytest.mark.filterwarnings("ignore:Conditions on column")
def test_moments_of_integers_are_those_of_draws(density, table):
    density.fit(table)
    drawn = density.sample(40_000, random_state=0)
    for given in CONDITIONS:
        mean = density.expectation(given, columns=COLUMNS).iloc[0].to_numpy(float)
        covariance = density.covariance(given, columns=COLUMNS).to_numpy(float)
        inside = drawn.query(given)[COLUMNS].to_numpy(float)
        error = inside.std(axis=0) / np.sqrt(len(inside))
        assert (np.abs(mean - inside.mean(axis=0)) <= 4.5 * error + 1e-9).all()
        bounded = [j for j, name in enumerate(COLUMNS) if name in given]
        spread = np.cov(inside.T)
        fourth = ((inside - inside.mean(axis=0)) ** 4).mean(axis=0)
        tolerance = 5.0 * np.sqrt(fourth / len(inside)) + 1e-9
        off = np.abs(np.diag(covariance) - np.diag(spread))
        assert (off <= tolerance)[bounded].all()


def test_a_truncated_normal_is_rounded():
    k = np.round(np.random.default_rng(0).normal(20.0, 1.5, size=400))
    density = GaussianMixtureDensity(n_components=1).fit(k[:, None])
    mean, std = density.means_[0, 0], np.sqrt(density.covariance())[0, 0]
    integers = np.arange(21, 60)
    ends = norm.cdf((integers[:, None] + [-0.5, 0.5] - mean) / std)
    mass = np.diff(ends, axis=1)[:, 0]
    expected = mass @ integers / mass.sum()
    assert_allclose(density.expectation("x0 > 20"), [expected], rtol=1e-9)
    variance = mass @ (integers - expected) ** 2 / mass.sum()
    assert_allclose(density.covariance("x0 > 20"), [[variance]], rtol=1e-7)


@pytest.mark.parametrize("density", DENSITIES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("given", [None, "k == 4", "x > 0"])
def test_what_is_constant_does_not_vary(density, given, table):
    density.fit(table)
    names = ["c", "always", "x"]
    assert_allclose(density.expectation(given, columns=names).iloc[0, :2], [-1e6, 7.0], rtol=1e-14)
    covariance = density.covariance(given, columns=names).to_numpy(float)
    assert_allclose(covariance[:2], 0.0, atol=1e-15)
    assert covariance[2, 2] > 0.0
    marginal = density.marginal(["x", "c"], given="m > 1")
    assert_allclose(marginal.covariance().to_numpy(float)[1], 0.0, atol=1e-15)


def test_moments_under_conditions_of_many_integers_take_little_time(table, monkeypatch):
    from skcircuits.circuits.inputs.restriction._normal import TruncatedNormals

    calls = []
    moments = TruncatedNormals.moments
    monkeypatch.setattr(TruncatedNormals, "moments", lambda own: calls.append(1) or moments(own))
    density = GaussianMixtureDensity(n_components=2, random_state=0).fit(table[COLUMNS])
    density.covariance("k >= 3 and m > 1", columns=COLUMNS)
    # Truncated moments are found for all boxes at once, and not for all of them in each
    assert len(calls) < 20


SUMS = {
    "2 * k + m > 8": lambda k, m: 2 * k + m > 8,
    "m - k <= 0.5": lambda k, m: m - k <= 0.5,
    "k + m == 6": lambda k, m: k + m == 6,
    "abs(m - k) >= 2 and k <= 4": lambda k, m: (abs(m - k) >= 2) & (k <= 4),
    "count(k > 3, m > 2) == 1": lambda k, m: (k > 3) ^ (m > 2),
}


@pytest.mark.parametrize(
    ("density", "reach"),
    list(zip(DENSITIES[:3], [(12, 28), (14, 35), (23, 50)])),
    ids=["full", "diag", "polynomials"],
)
def test_moments_of_integers_in_sums_against_enumeration(density, reach, table):
    density.fit(table)
    ranges = [np.arange(3 - own, 4 + own) for own in reach]
    k, m = (grid.ravel() for grid in np.meshgrid(*ranges))
    cells = density.probabilities([{"k": i, "m": j} for i, j in zip(k.tolist(), m.tolist())])
    states = np.stack([k, m], axis=1).astype(float)
    for text, inside in SUMS.items():
        if "count" in text and density is DENSITIES[0]:  # refused, since columns are joint
            continue
        weights = np.where(inside(k, m), cells, 0.0) / cells[inside(k, m)].sum()
        mean = weights @ states
        covariance = (states - mean).T @ (weights[:, None] * (states - mean))
        found = density.expectation(text, columns=["k", "m"]).to_numpy()[0]
        assert_allclose(found, mean, rtol=1e-9, err_msg=text)
        found = density.covariance(text, columns=["k", "m"])
        assert_allclose(found, covariance, rtol=1e-8, atol=1e-9, err_msg=text)
        # Beside other columns, rows of evidence have moments of their own
        found = density.covariance(text, columns=["k", "x", "m"]).to_numpy()[np.ix_([0, 2], [0, 2])]
        assert_allclose(found, covariance, rtol=1e-8, atol=1e-9, err_msg=text)


def test_an_integer_beside_a_sum_of_another_is_rounded():
    rng = np.random.default_rng(0)
    k = rng.normal(2.0, 1.2, size=400)
    m = np.round(k + rng.normal(size=400))
    table = pd.DataFrame({"k": np.round(k), "m": m, "few": pd.Categorical(rng.integers(0, 3, 400))})
    density = GaussianMixtureDensity(n_components=1).fit(table)
    given = "few + k > 3 and m >= 2"
    values = np.arange(2, 16)
    mass = np.array([density.probability(f"few + k > 3 and m == {own}") for own in values])
    mean = density.expectation(given, columns="m").to_numpy()[0]
    assert_allclose(mean, mass @ values / mass.sum(), rtol=1e-9)
