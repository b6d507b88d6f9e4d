"""Few samples for many: greedy choices, with rewards, and from batches."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.stein import InverseMultiquadric, stein_gram, stein_thinning
from skcircuits.stein.discrepancy import positive_curvatures, thin_columns
from skcircuits.stein.simplex import SteinColumns
from skcircuits.targets import from_function

CENTRES = np.array([[-3.0, 0.0], [3.0, 0.0]])
LOG_WEIGHTS = np.log([0.2, 0.8])


def log_terms(X):
    return LOG_WEIGHTS - 0.5 * ((X[:, None] - CENTRES) ** 2).sum(axis=2)


def score(X):
    terms = log_terms(X)
    parts = np.exp(terms - terms.max(axis=1, keepdims=True))
    parts /= parts.sum(axis=1, keepdims=True)
    return parts @ CENTRES - X


MIXTURE = from_function(lambda X: np.logaddexp.reduce(log_terms(X), axis=1), score)
KERNEL = InverseMultiquadric(scale=2.0)


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    return CENTRES[rng.integers(2, size=400)] + rng.normal(size=(400, 2))


def test_columns_are_those_of_the_matrix(samples):
    rows = np.concatenate([samples, samples[:5]])
    gram = SteinColumns.of(rows, MIXTURE, KERNEL)
    K = stein_gram(samples, MIXTURE, KERNEL)
    assert_allclose(gram.columns([3, 7]), K[:, [3, 7]], atol=1e-12)
    assert_allclose(gram.columns([3, 7], np.array([1, 0])), K[np.ix_([1, 0], [3, 7])], atol=1e-12)
    assert_allclose(gram.diagonal(), K.diagonal(), atol=1e-12)
    assert_array_equal(gram.which[400:], np.arange(5))


def test_choices_from_columns_are_those_from_the_matrix(samples):
    gram = SteinColumns.of(samples, MIXTURE, KERNEL)
    K = stein_gram(samples, MIXTURE, KERNEL)
    assert_array_equal(thin_columns(gram, 30), stein_thinning(K, 30))
    given = {
        "log_prob": MIXTURE.log_prob_unnormalized(samples),
        "curvature": positive_curvatures(MIXTURE, samples, np.eye(2)),
    }
    assert_array_equal(thin_columns(gram, 30, **given), stein_thinning(K, 30, **given))
    # Batches of all samples are no batches.
    assert_array_equal(thin_columns(gram, 30, batch_size=400), stein_thinning(K, 30))


def test_regularised_choices_weigh_modes(samples):
    """Half of the samples are in the mode of a fifth; scores cannot tell, densities can."""
    K = stein_gram(samples, MIXTURE, KERNEL)
    given = {
        "log_prob": MIXTURE.log_prob_unnormalized(samples),
        "curvature": positive_curvatures(MIXTURE, samples, np.eye(2)),
    }

    def left(rows):
        return (samples[rows, 0] < 0).mean()

    assert left(stein_thinning(K, 60)) > 0.4
    assert left(stein_thinning(K, 60, **given)) == pytest.approx(0.2, abs=0.08)


def test_batches_of_samples_are_nearly_as_good(samples):
    K = stein_gram(samples, MIXTURE, KERNEL)
    gram = SteinColumns.of(samples, MIXTURE, KERNEL)

    def discrepancy(rows):
        return K[np.ix_(rows, rows)].mean()

    batched = thin_columns(gram, 40, batch_size=40, rng=np.random.default_rng(0))
    drawn = np.random.default_rng(0).choice(400, 40, replace=False)
    assert discrepancy(batched) < 2.0 * discrepancy(stein_thinning(K, 40))
    assert discrepancy(batched) < 0.2 * discrepancy(drawn)


def test_curvatures_are_the_positive_second_derivatives():
    # Between the modes the log density is convex along the first coordinate.
    point = np.array([[np.log(0.25) / 6.0, 0.3]])
    curvature = positive_curvatures(MIXTURE, np.concatenate([point, CENTRES]), np.eye(2))
    # At equal responsibilities the second derivative is 3² - 1.
    assert_allclose(curvature[0], 8.0, rtol=1e-6)
    assert_allclose(curvature[1:], 0.0, atol=1e-6)
    scaled = positive_curvatures(MIXTURE, point, np.diag([2.0, 1.0]))
    assert_allclose(scaled, 32.0, rtol=1e-6)


def test_refuses_vectors_of_other_lengths():
    with pytest.raises(ValueError, match="log_prob must be 2 finite numbers"):
        stein_thinning(np.eye(2), 1, log_prob=[0.0, np.inf])
