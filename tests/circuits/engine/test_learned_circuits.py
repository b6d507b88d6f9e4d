"""The optimisation passes of the engine on circuits that learners made from tables.

Random circuits share few units and have few levels; learned ones have shared products, long
chains and many tables at once.
"""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from skcircuits import (
    ChowLiuDensity,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    MoATDensity,
    StrudelDensity,
    WMISPNDensity,
)
from skcircuits.circuits.engine._passes import log_values


def binary_table():
    """Pixels of digits, on or off."""
    return (load_digits().data[:500] > 7).astype(float)


def categorical_table():
    """Coarse features of tumours: four categories each, a few of them unknown."""
    X = load_breast_cancer().data
    X = np.stack([np.searchsorted(np.quantile(x, [0.25, 0.5, 0.75]), x) for x in X.T], axis=1)
    return np.where(np.random.default_rng(0).random(X.shape) < 0.05, np.nan, X)


def mixed_table():
    """Numbers with repeated values, a rare category and a constant, and missing values."""
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=500)
    X = rng.normal(size=(500, 6)) * [1.0, 1e-6, 1e6, 1.0, 1.0, 1.0] + group[:, None]
    X[:, 3] = np.round(X[:, 3])
    X[:, 4] = rng.random(500) < 0.02
    X[:, 5] = 1.0
    return np.where(rng.random(X.shape) < 0.1, np.nan, X)


LEARNERS = [
    (StrudelDensity(n_components=4, max_iter=60), binary_table),
    (StrudelDensity(max_iter=30), categorical_table),
    (HiddenChowLiuDensity(n_latent_states=8, max_iter=3), binary_table),
    (HiddenChowLiuDensity(n_latent_states=3, max_iter=3), mixed_table),
    (ChowLiuDensity(n_components=5), binary_table),
    (ChowLiuDensity(n_components=2), categorical_table),
    (WMISPNDensity(), mixed_table),
    (WMISPNDensity(), lambda: load_wine().data),
    (WMISPNDensity(leaf="multivariate"), lambda: load_wine().data),
    (GaussianMixtureDensity(n_components=4), mixed_table),
    (GaussianMixtureDensity(n_components=3), lambda: load_wine().data),
]


@pytest.fixture(params=LEARNERS, ids=lambda case: type(case[0]).__name__, scope="module")
def learned(request):
    """A learned circuit and rows of its table, complete ones and others."""
    density, table = request.param
    X = table()
    density = density.set_params(random_state=0).fit(X)
    rows = density.circuit_.sample(200, random_state=0)
    incomplete = np.where(np.random.default_rng(1).random(rows.shape) < 0.4, np.nan, rows)
    return density.circuit_, np.concatenate([rows, incomplete, np.full_like(rows[:1], np.nan)])


def test_scores_agree_with_the_pass_in_log_space(learned):
    circuit, rows = learned
    expected = log_values(circuit.plan, rows)[circuit.plan.root]
    for n_copies in (1, 12):
        found = circuit.log_prob(np.tile(rows, (n_copies, 1)))
        np.testing.assert_allclose(found, np.tile(expected, n_copies), rtol=1e-10, atol=1e-10)
    batches = [circuit.log_prob(rows[first : first + 50]) for first in range(0, len(rows), 50)]
    np.testing.assert_allclose(np.concatenate(batches), expected, rtol=1e-10, atol=1e-10)


def test_moments_and_completions_do_not_depend_on_the_number_of_rows(learned):
    circuit, rows = learned
    many = np.tile(rows, (6, 1))
    for query in (circuit.expectation, circuit.variance):
        expected = np.concatenate([query(rows[i : i + 40]) for i in range(0, len(rows), 40)])
        scale = np.abs(expected).max(axis=0)
        scale[scale < 1e-25] = 1.0  # columns that are constant
        found = query(many)
        np.testing.assert_allclose(found[: len(rows)] / scale, expected / scale, atol=1e-9)
        # Batches of other lengths may round otherwise
        one, other = found[[-1, len(rows) - 1]] / scale
        np.testing.assert_allclose(one, other, atol=1e-12)
    expected = circuit.mpe(rows, method="max_product")
    found = circuit.mpe(many, method="max_product")[: len(rows)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_draws_are_possible_and_keep_what_was_observed(learned):
    circuit, rows = learned
    drawn = circuit.sample(3, rows, random_state=0)
    assert not np.isnan(drawn).any()
    np.testing.assert_array_equal(drawn, np.where(np.isnan(rows), drawn, rows))
    assert np.isfinite(circuit.log_prob(drawn.reshape(-1, rows.shape[1]))).all()


def test_mixtures_of_all_trees_as_circuits():
    X = binary_table()[:, 20:32]
    density = MoATDensity(max_iter=3, random_state=0).fit(X)
    circuit = density.to_circuit(20)
    rows = np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X)
    expected = log_values(circuit.plan, rows)[circuit.plan.root]
    for n_copies in (1, 10):
        found = circuit.log_prob(np.tile(rows, (n_copies, 1)))
        np.testing.assert_allclose(found, np.tile(expected, n_copies), rtol=1e-10, atol=1e-10)
