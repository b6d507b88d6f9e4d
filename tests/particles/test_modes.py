from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import logsumexp

from skcircuits.graphical import GaussianMRF
from skcircuits.numerics._optimization import Modes, ascend
from skcircuits.particles._diagnosis import draw_from_modes
from skcircuits.particles._metric import DiagonalMetric, HessianProbe, TransformedTarget
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._problem import SVGDProblem, points_around


class Mixture:
    """Normal distributions with diagonal covariances."""

    def __init__(self, weights, means, scales):
        self.weights, self.means, self.scales = map(np.asarray, (weights, means, scales))

    def parts(self, X):
        z = (X[:, None] - self.means) / self.scales
        return np.log(self.weights) - np.log(self.scales).sum(axis=1) - 0.5 * (z**2).sum(axis=2)

    def log_prob(self, X):
        return logsumexp(self.parts(X), axis=1)

    def score(self, X):
        shares = np.exp(self.parts(X) - self.log_prob(X)[:, None])
        return np.einsum("nk,nkd->nd", shares, (self.means - X[:, None]) / self.scales**2)

    def mean_and_variance(self):
        mean = self.weights @ self.means
        return mean, self.weights @ (self.scales**2 + (self.means - mean) ** 2)


THREE = Mixture(
    [0.5, 0.3, 0.2],
    [[0.0, 0.0, 0.0], [12.0, 0.0, -9.0], [-20.0, 15.0, 0.0]],
    [[1.0, 1.0, 1.0], [0.5, 2.0, 1.0], [1.0, 1.0, 3.0]],
)


def modes_of(score, particles):
    probe = HessianProbe(score, Neighborhoods.complete(particles.shape[1], None))
    metric = DiagonalMetric.of_particles(particles)
    starts = points_around(particles, metric, np.random.default_rng(0))
    return TransformedTarget(score, probe, metric).modes(starts)


def draws_of(score, log_prob, particles):
    modes = modes_of(score, particles)
    return draw_from_modes(score, log_prob, modes, particles, np.random.default_rng(0))


def normal_particles(d, n=100):
    return np.random.default_rng(0).normal(size=(n, d))


def test_all_modes_are_found_from_one():
    found = modes_of(THREE.score, normal_particles(3))
    order = np.argsort(found.centers[:, 0])
    np.testing.assert_allclose(found.centers[order], THREE.means[[2, 0, 1]], atol=1e-3)
    covariances = found.roots @ found.roots.transpose(0, 2, 1)
    for covariance, scales in zip(covariances[order], THREE.scales[[2, 0, 1]]):
        np.testing.assert_allclose(covariance, np.diag(scales**2), atol=1e-3 * scales.max() ** 2)


def test_ascents_arrive_from_heavy_tails():
    # Steps that grow in a tail may end in the opposite one, where slopes are as small
    d, rng = 10, np.random.default_rng(0)
    starts = 10.0 ** rng.uniform(0.0, 2.0, (200, 1)) * rng.normal(size=(200, d))
    found = ascend(lambda X: -(5.0 + d) * X / (5.0 + (X**2).sum(axis=1, keepdims=True)), starts)
    assert found.arrived.mean() > 0.8
    np.testing.assert_allclose(found.ends[found.arrived], 0.0, atol=1e-2)


def test_ascents_follow_narrow_ridges():
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    precision = (rotation * np.logspace(-3, 3, 5)) @ rotation.T
    field = GaussianMRF(precision, precision @ np.full(5, 7.0))
    found = modes_of(field.grad_log_prob, normal_particles(5))
    assert len(found.centers) == 1
    distance = found.centers[0] - 7.0
    assert distance @ precision @ distance < 1e-4


@pytest.mark.parametrize("d", [1, 3])
def test_plateaus_around_modes_do_not_hide_them(d):
    means = np.outer([-6.0, 6.0], np.eye(d)[0])
    pair = Mixture([0.5, 0.5], means, np.ones((2, d)))

    def score(X):  # a density of exp(-30) everywhere else
        return pair.score(X) / (1.0 + np.exp(-30.0 - pair.log_prob(X)))[:, None]

    found = modes_of(score, means[0] + normal_particles(d))
    np.testing.assert_allclose(np.sort(found.centers[:, 0]), [-6.0, 6.0], atol=1e-3)


def test_a_density_that_rises_for_ever_has_no_mode():
    assert modes_of(np.ones_like, normal_particles(3)) is None


def test_ridges_are_no_modes_that_draws_represent():
    def score(X):  # a circle of radius 3
        radius = np.hypot(*X.T)[:, None]
        return 25.0 * (3.0 / radius - 1.0) * X

    def log_prob(X):
        return -12.5 * (np.hypot(*X.T) - 3.0) ** 2

    modes = modes_of(score, normal_particles(2))
    rng = np.random.default_rng(0)
    particles = normal_particles(2)
    assert modes is None or not draw_from_modes(score, log_prob, modes, particles, rng).is_even


@pytest.mark.parametrize("with_density", [True, False])
def test_moments_of_draws_agree_with_the_truth_within_their_errors(with_density):
    draws = draws_of(THREE.score, THREE.log_prob if with_density else None, normal_particles(3))
    assert draws.is_even
    masses = np.sort(draws.fractions)
    np.testing.assert_allclose(masses, [0.2, 0.3, 0.5], atol=0.02 if with_density else 0.06)
    np.testing.assert_allclose(np.sort(draws.particle_fractions), [0.0, 0.0, 1.0])
    found = draws.moments(THREE.score)
    mean, variance = THREE.mean_and_variance()
    assert (np.abs(found.mean - mean) < 4 * found.mean_error).all()
    assert (np.abs(found.variance - variance) < 4 * found.variance_error).all()
    assert (found.mean_error < 0.06 * np.sqrt(variance)).all()
    assert (found.variance_error < 0.06 * variance).all()


UNEQUAL = Mixture([0.3, 0.7], [[0.0, 0.0], [40.0, 30.0]], [[1.0, 0.01], [0.05, 2.0]])
UNEQUAL_MODES = Modes(UNEQUAL.means, np.array([np.diag(scales) for scales in UNEQUAL.scales]))


def test_masses_by_scores_of_modes_of_different_widths():
    rng = np.random.default_rng(0)
    particles = normal_particles(2, n=2000)
    draws = draw_from_modes(UNEQUAL.score, None, UNEQUAL_MODES, particles, rng)
    np.testing.assert_allclose(draws.fractions, UNEQUAL.weights, atol=0.01)


def test_modes_without_scores_in_between_are_not_compared():
    def score(X):
        return np.where(np.abs(X[:, :1] - 20.0) < 1.0, np.nan, UNEQUAL.score(X))

    rng = np.random.default_rng(0)
    assert draw_from_modes(score, None, UNEQUAL_MODES, normal_particles(2), rng) is None


def test_moments_of_a_normal_target_are_nearly_exact():
    precision = 2 * np.eye(5) - np.eye(5, k=1) - np.eye(5, k=-1)
    field = GaussianMRF(precision, precision @ np.full(5, 5.0))
    draws = draws_of(field.grad_log_prob, field.log_prob_unnormalized, normal_particles(5))
    found = draws.moments(field.grad_log_prob)
    np.testing.assert_allclose(found.mean, field.mean_, atol=0.003)
    np.testing.assert_allclose(found.variance, np.diag(field.covariance_), rtol=0.01)


def test_draws_reach_heavy_tails():
    freedom = 3.0  # of a t distribution of variance 3 in every coordinate

    def log_prob(X):
        return -0.5 * (freedom + 2) * np.log1p((X**2).sum(axis=1) / freedom)

    def score(X):
        return -(freedom + 2) * X / (freedom + (X**2).sum(axis=1, keepdims=True))

    found = draws_of(score, log_prob, normal_particles(2)).moments(score)
    np.testing.assert_allclose(found.variance, 3.0, rtol=0.15)
    assert (np.abs(found.variance - 3.0) < 4 * found.variance_error).all()


def test_draws_are_chosen_by_their_weights():
    draws = draws_of(THREE.score, THREE.log_prob, normal_particles(3))
    chosen = draws.resampled(200, np.random.default_rng(0))
    found = np.bincount(THREE.parts(chosen).argmax(axis=1)) / 200
    np.testing.assert_allclose(found, [0.5, 0.3, 0.2], atol=0.03)


def test_a_score_of_another_density_is_refused():
    draws = draws_of(lambda X: -5.0 * X, lambda X: -0.5 * (X**2).sum(axis=1), normal_particles(2))
    assert draws.moments(lambda X: -5.0 * X) is None


def test_draws_do_not_represent_particles_of_unknown_density():
    draws = draws_of(THREE.score, THREE.log_prob, normal_particles(3))
    assert draws.is_even
    assert not replace(draws, log_excess=np.full(100, np.nan)).is_even


def test_draws_that_miss_a_part_are_refused():
    def log_prob(X):  # a banana, bent much more than its curvature at the mode tells
        return -0.5 * X[:, 0] ** 2 - 2.0 * (X[:, 1] - 2.0 * X[:, 0] ** 2) ** 2

    def score(X):
        rest = 4.0 * (X[:, 1] - 2.0 * X[:, 0] ** 2)
        return np.column_stack([4.0 * rest * X[:, 0] - X[:, 0], -rest])

    assert not draws_of(score, log_prob, normal_particles(2)).is_even


class Row:
    """A narrow mode between wide ones, which ascents from around these do not reach."""

    def __init__(self, d):
        way = np.eye(d)[0]
        means = np.outer([-8.0, 0.0, 8.0], way)
        scales = np.ones((3, d)) * [[1.0], [0.3], [1.0]]
        self.mixture = Mixture([0.4, 0.2, 0.4], means, scales)

    def log_prob_unnormalized(self, X):
        return self.mixture.log_prob(X)

    def grad_log_prob(self, X):
        return self.mixture.score(X)


def test_a_narrow_mode_between_others_is_found():
    row = Row(20)
    way = 8.0 * np.eye(20)[0]
    noise = normal_particles(20)
    particles = np.concatenate([noise[:50] - way, noise[50:] + way])
    assert len(modes_of(row.grad_log_prob, particles).centers) == 2
    found = SVGDProblem(row, 20).diagnose(particles, None, False)
    np.testing.assert_allclose(np.sort(found.draws.fractions), [0.2, 0.4, 0.4], atol=0.03)
    assert found.is_wrong


class Pair:
    """A wide mode at zero and a narrower one, to which few directions lead."""

    def __init__(self, d, width):
        self.center = np.full(d, 10.0 / np.sqrt(d))
        self.mixture = Mixture([0.5, 0.5], [np.zeros(d), self.center], [[1.0] * d, [width] * d])

    def log_prob_unnormalized(self, X):
        return self.mixture.log_prob(X)

    def grad_log_prob(self, X):
        return self.mixture.score(X)


def test_ascents_do_not_jump_away_from_narrow_modes():
    pair = Pair(4, 0.5)
    ends = ascend(pair.grad_log_prob, 1.4 * pair.center[None]).ends
    np.testing.assert_allclose(ends, pair.center[None], atol=1e-2)


@pytest.mark.parametrize(("d", "width"), [(12, 0.6), (14, 0.65), (17, 0.75), (20, 0.85)])
def test_a_mode_that_few_of_many_points_lead_to_is_found(d, width):
    pair, particles = Pair(d, width), normal_particles(d)
    assert len(modes_of(pair.grad_log_prob, particles).centers) == 1
    problem = SVGDProblem(pair, d)
    assert problem.gaussian(particles) is None
    found = problem.diagnose(particles, None, False)
    np.testing.assert_allclose(found.draws.fractions, 0.5, atol=0.03)
    assert found.is_wrong


class Wells:
    """Coordinates around -1 and 1, which agree with those beside them."""

    def log_prob_unnormalized(self, X):
        own = -10.0 * (X**2 - 1.0) ** 2 + 0.1 * X
        return own.sum(axis=1) + 0.4 * (X[:, 1:] * X[:, :-1]).sum(axis=1)

    def grad_log_prob(self, X):
        scores = -40.0 * X * (X**2 - 1.0) + 0.1
        scores[:, 1:] += 0.4 * X[:, :-1]
        scores[:, :-1] += 0.4 * X[:, 1:]
        return scores


def enumerated_wells(d):
    """Mean of every coordinate by a sum over its grid, one coordinate after another."""
    grid = np.linspace(-2.0, 2.0, 801)
    own = np.exp(-10.0 * (grid**2 - 1.0) ** 2 + 0.1 * grid)
    passed = np.exp(0.4 * np.outer(grid, grid))
    before, after = [np.ones(801)], [np.ones(801)]
    for _ in range(d - 1):
        before.append(passed @ (own * before[-1]))
        after.append(passed @ (own * after[-1]))
    masses = [own * first * last for first, last in zip(before, after[::-1])]
    return np.array([mass @ grid / mass.sum() for mass in masses])


def test_chains_jump_between_more_modes_than_draws_can_hold():
    d = 7
    rng = np.random.default_rng(0)
    # Nearly all in one of 128 modes, which no trajectory leaves.
    particles = np.where(rng.random((100, d)) < 0.9, 1.0, -1.0)
    particles += 0.05 * rng.normal(size=(100, d))
    found = SVGDProblem(Wells(), d).diagnose(particles, None, True)
    assert found.draws is None and found.is_connected and not found.n_closed
    np.testing.assert_allclose(found.moments.mean, enumerated_wells(d), atol=0.12)
    assert found.grossly_wrong.all()


def test_chains_that_leave_no_mode_are_counted():
    rng = np.random.default_rng(0)
    particles = np.where(rng.random((60, 7)) < 0.5, 1.0, -1.0) + 0.05 * rng.normal(size=(60, 7))
    score = SimpleNamespace(grad_log_prob=Wells().grad_log_prob)
    found = SVGDProblem(score, 7).diagnose(particles, None, False)
    assert found.n_closed > 10 and not found.is_connected
