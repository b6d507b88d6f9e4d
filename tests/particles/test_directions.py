import numpy as np
import pytest

from skcircuits.particles import svgd_direction
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles.directions import centred_rows, kernel_direction, linear_direction

RING = [[(i - 1) % 7, (i + 1) % 7] for i in range(7)]


def double_loop(particles, scores, scopes, bandwidths):
    """Equation (8) of the paper, written out."""
    n, d = particles.shape
    direction = np.zeros((n, d))
    for i in range(d):
        scope = sorted({i, *scopes[i]})
        for target in range(n):
            for source in range(n):
                gap = particles[source, scope] - particles[target, scope]
                kernel = np.exp(-np.sum(gap**2) / bandwidths[i])
                pull = scores[source, i] * kernel
                push = -2 / bandwidths[i] * (particles[source, i] - particles[target, i]) * kernel
                direction[target, i] += (pull + push) / n
    return direction


def linear_double_loop(particles, scores, scopes):
    """The direction of the kernel 1 + z_C·z'_C, written out."""
    n, d = particles.shape
    deviation = particles.std(axis=0)
    z = (particles - particles.mean(axis=0)) / deviation
    direction = np.zeros((n, d))
    for i in range(d):
        scope = sorted({i, *scopes[i]})
        for target in range(n):
            for source in range(n):
                kernel = 1 + z[source, scope] @ z[target, scope]
                direction[target, i] += scores[source, i] * kernel / n
            direction[target, i] += z[target, i] / deviation[i]
    return direction


@pytest.fixture
def cloud():
    rng = np.random.default_rng(0)
    return rng.normal(3.0, 2.0, (13, 7)), rng.normal(size=(13, 7)), rng.uniform(0.5, 9.0, 7)


@pytest.mark.parametrize(
    "scopes",
    [
        RING,
        [[]] * 7,
        [[1, 2, 3, 4, 5, 6], [0], [], [1, 5], [4], [2, 3, 4], [0, 6]],
        [list(range(7))] * 7,
    ],
    ids=["ring", "isolated", "asymmetric", "complete"],
)
def test_direction_equals_the_double_loop(cloud, scopes):
    particles, scores, bandwidths = cloud
    expected = double_loop(particles, scores, scopes, bandwidths)
    found = svgd_direction(particles, scores, scopes, bandwidths)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_blocks_share_the_kernel_of_their_node(cloud):
    particles, scores, _ = cloud
    blocks, neighbors = [[0, 3], [1], [2, 4, 6], [5]], [[1], [2], [3], []]
    graph = Neighborhoods.from_graph(neighbors, blocks)
    # Coordinates seen by each coordinate: those of its own and the neighbouring blocks.
    seen = {0: [0, 1, 3], 3: [0, 1, 3], 1: [0, 1, 2, 3, 4, 6], 5: [2, 4, 5, 6]}
    seen |= {i: [1, 2, 4, 5, 6] for i in (2, 4, 6)}
    expected = double_loop(particles, scores, [seen[i] for i in range(7)], np.full(7, 2.5))
    found = svgd_direction(particles, scores, graph, 2.5)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_everything_in_the_neighborhood_is_vanilla_svgd(cloud):
    particles, scores, _ = cloud
    gaps = particles[:, None] - particles[None]
    kernel = np.exp(-np.sum(gaps**2, axis=2) / 4.0)
    vanilla = (kernel @ scores + 0.5 * np.einsum("lk,lkd->ld", kernel, gaps)) / len(particles)
    found = svgd_direction(particles, scores, [list(range(7))] * 7, 4.0)
    np.testing.assert_allclose(found, vanilla, rtol=0, atol=1e-12)
    single = svgd_direction(particles, scores, Neighborhoods.complete(7), 4.0)
    np.testing.assert_allclose(single, vanilla, rtol=0, atol=1e-12)


def test_one_particle_climbs_the_gradient(cloud):
    particles, scores, bandwidths = cloud
    found = svgd_direction(particles[:1], scores[:1], RING, bandwidths)
    np.testing.assert_allclose(found, scores[:1], rtol=0, atol=1e-12)


def test_singleton_neighborhoods_run_every_coordinate_alone(cloud):
    particles, _, bandwidths = cloud
    joint = svgd_direction(particles, -particles, [[]] * 7, bandwidths)
    for i in range(7):
        alone = svgd_direction(particles[:, [i]], -particles[:, [i]], [[0]], bandwidths[i])
        np.testing.assert_allclose(joint[:, [i]], alone, rtol=0, atol=1e-12)


def test_a_callable_score_is_evaluated_at_the_particles(cloud):
    particles, _, bandwidths = cloud
    np.testing.assert_array_equal(
        svgd_direction(particles, np.negative, RING, bandwidths),
        svgd_direction(particles, -particles, RING, bandwidths),
    )


def test_single_precision_stays_and_agrees(cloud):
    particles, scores, bandwidths = cloud
    found = svgd_direction(particles.astype(np.float32), scores, RING, bandwidths)
    assert found.dtype == np.float32
    exact = svgd_direction(particles, scores, RING, bandwidths)
    np.testing.assert_allclose(found, exact, rtol=0, atol=2e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_outliers_and_duplicates_stay_finite(dtype):
    particles = np.array([[0.0, 0.0], [0.0, 0.0], [1e-3, 0.0], [1e9, -1e9]], dtype=dtype)
    direction = svgd_direction(particles, -np.sign(particles), [[1], [0]], 1e-3)
    assert np.all(np.isfinite(direction))
    assert direction[0] == pytest.approx(direction[1])


def test_many_particles_are_summed_in_tiles():
    rng = np.random.default_rng(3)
    particles, scores = rng.normal(size=(700, 2)), rng.normal(size=(700, 2))
    kernel = np.exp(-np.sum((particles[:, None] - particles[None]) ** 2, axis=2) / 2.0)
    pull = kernel @ scores - kernel @ particles + particles * kernel.sum(axis=1, keepdims=True)
    found = svgd_direction(particles, scores, [[1], [0]], 2.0)
    np.testing.assert_allclose(found, pull / 700, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_do_not_change_a_bit(n_threads):
    rng = np.random.default_rng(1)
    particles, scores = rng.normal(size=(60, 90)), rng.normal(size=(90, 60))
    rows = centred_rows(np.ascontiguousarray(particles.T))
    graph = Neighborhoods.from_graph([[(i + 1) % 90, (i * 7) % 90] for i in range(90)])
    bandwidths = rng.uniform(1, 2, graph.n_kernels)
    one = kernel_direction(rows, scores, graph, bandwidths)
    many = kernel_direction(rows, scores, graph, bandwidths, n_threads)
    np.testing.assert_array_equal(one, many)
    np.testing.assert_array_equal(
        linear_direction(rows, scores, graph), linear_direction(rows, scores, graph, n_threads)
    )


@pytest.mark.parametrize("scopes", [RING, [[]] * 7, [list(range(7))] * 7])
def test_linear_direction_equals_the_double_loop(cloud, scopes):
    particles, scores, _ = cloud
    found = linear_direction(
        centred_rows(np.ascontiguousarray(particles.T)),
        np.ascontiguousarray(scores.T),
        Neighborhoods.from_scopes(scopes),
    )
    expected = linear_double_loop(particles, scores, scopes)
    np.testing.assert_allclose(found.T, expected, rtol=0, atol=1e-12)


def test_linear_direction_vanishes_where_gaussian_moments_match():
    rng = np.random.default_rng(5)
    precision = np.array([[2.0, 0.7, 0.0], [0.7, 1.5, -0.4], [0.0, -0.4, 1.0]])
    sample = rng.normal(size=(40, 3))
    sample -= sample.mean(axis=0)
    # Whiten, then colour: the sample's own covariance is exactly the inverse precision.
    whitener = np.linalg.inv(np.linalg.cholesky(sample.T @ sample / 40))
    sample = sample @ whitener.T @ np.linalg.cholesky(np.linalg.inv(precision)).T
    graph = Neighborhoods.from_graph([[1], [2], []])
    rows = centred_rows(np.ascontiguousarray(sample.T))
    found = linear_direction(rows, -precision @ sample.T, graph)
    np.testing.assert_allclose(found, 0.0, atol=1e-12)


def test_linear_direction_of_a_constant_coordinate_is_its_mean_score():
    rows = centred_rows(np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 5.0]]))
    scores = np.array([[1.0, 2.0, 6.0], [0.0, 0.0, 0.0]])
    found = linear_direction(rows, scores, Neighborhoods.from_scopes([[], []]))
    np.testing.assert_allclose(found[0], 3.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(3), np.ones(3), [[0]], 1.0), "particles must be a table"),
        ((np.ones((0, 2)), np.ones((0, 2)), [[0], [1]], 1.0), "at least one row"),
        ((np.ones((2, 2)), np.ones((2, 3)), [[0], [1]], 1.0), "shape of the particles"),
        ((np.ones((2, 2)), np.ones((2, 2)), [[0]], 1.0), "cover every coordinate"),
        ((np.ones((2, 2)), np.ones((2, 2)), [[0], [2]], 1.0), "scopes must lie in 0..1"),
        ((np.ones((2, 2)), np.ones((2, 2)), [[0], [1]], 0.0), "bandwidths must be positive"),
        ((np.ones((2, 2)), np.ones((2, 2)), [[0], [1]], np.nan), "bandwidths must be positive"),
    ],
)
def test_wrong_arguments_say_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        svgd_direction(*arguments)


def test_a_shared_kernel_has_one_bandwidth():
    shared = Neighborhoods.from_graph([[1], [0]])
    with pytest.raises(ValueError, match="merge=False"):
        svgd_direction(np.ones((2, 2)), np.ones((2, 2)), shared, [1.0, 2.0])
