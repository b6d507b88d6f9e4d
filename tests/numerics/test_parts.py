"""Parts of a density that valleys separate."""

import numpy as np
import pytest

from skcircuits.circuits import Circuit, MultivariateGaussian
from skcircuits.graphical import GaussianMRF
from skcircuits.numerics._optimization import separate_parts


def two_modes(distance, d=2):
    center = np.zeros(d)
    center[0] = distance
    return Circuit(
        0.3 * MultivariateGaussian(range(d), np.zeros(d), np.eye(d))
        + 0.7 * MultivariateGaussian(range(d), center, np.eye(d))
    )


@pytest.mark.parametrize("d", [1, 2, 10])
def test_rows_belong_to_the_mode_they_ascend_to(d):
    model = two_modes(7.0, d)
    X = model.sample(300, random_state=0)
    spread = X.std()
    parts = separate_parts(lambda Z: spread * model.grad_log_prob(spread * Z), X / spread)
    right = X[:, 0] > 3.5
    assert parts.max() == 1
    assert np.mean(parts == parts[right.argmax()]) == pytest.approx(right.mean(), abs=0.02)
    assert np.mean((parts == parts[right.argmax()]) == right) > 0.98


def test_components_without_a_valley_are_one_part():
    model = two_modes(2.0)
    assert separate_parts(model.grad_log_prob, model.sample(200, random_state=0)).max() == 0


def test_one_mode_is_one_part_however_its_coordinates_correlate():
    field = GaussianMRF([[1.0, -0.999], [-0.999, 1.0]], [0.0, 0.0])
    X = field.sample(200, np.random.default_rng(0))
    assert separate_parts(field.grad_log_prob, X).max() == 0


def test_a_curved_ridge_and_heavy_tails_are_one_part():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    X[:, 1] = 0.3 * X[:, 1] - X[:, 0] ** 2

    def score(Z):
        above = (Z[:, 1] + Z[:, 0] ** 2) / 0.09
        return np.column_stack([-Z[:, 0] - 2.0 * Z[:, 0] * above, -above])

    assert separate_parts(score, X).max() == 0
    heavy = rng.standard_t(3, size=(300, 3))
    assert separate_parts(lambda Z: -4.0 * Z / (3.0 + Z**2), heavy).max() == 0


def test_scores_that_are_no_numbers_separate_nothing():
    X = np.random.default_rng(0).normal(size=(50, 2))
    assert separate_parts(lambda Z: np.full_like(Z, np.nan), X).max() == 0
