import numpy as np
import pytest
from scipy.spatial.distance import pdist

from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles.directions import centred_rows, median_bandwidths


def bandwidth_of_each_node(particles, graph, **options):
    rows = centred_rows(np.ascontiguousarray(particles.T))
    return median_bandwidths(rows, graph, **options)[graph.kernel_of_node]


@pytest.mark.parametrize("n_particles", [2, 3, 20, 31])
def test_median_of_all_pairs(n_particles):
    particles = np.random.default_rng(n_particles).normal(2.0, 3.0, (n_particles, 6))
    graph = Neighborhoods.from_graph([[1, 2], [2], [3], [4], [], []])
    scopes = [[0, 1, 2], [0, 1, 2], [0, 1, 2, 3], [2, 3, 4], [3, 4], [5]]
    expected = [np.median(pdist(particles[:, scope])) ** 2 for scope in scopes]
    np.testing.assert_allclose(bandwidth_of_each_node(particles, graph), expected, rtol=1e-12)


def test_factor_scales():
    particles = np.random.default_rng(0).normal(size=(9, 2))
    graph = Neighborhoods.from_graph([[1], []])
    np.testing.assert_allclose(
        bandwidth_of_each_node(particles, graph, factor=2.0),
        2 * bandwidth_of_each_node(particles, graph),
    )


@pytest.mark.parametrize("ordered", [False, True])
def test_many_particles_use_a_representative_subset(ordered):
    particles = np.random.default_rng(1).normal(size=(400, 4))
    if ordered:
        particles = particles[np.argsort(particles[:, 0])]
    graph = Neighborhoods.from_graph([[1], [2], [3], []])
    exact = [np.median(pdist(particles[:, s])) ** 2 for s in ([0, 1], [0, 1, 2], [1, 2, 3], [2, 3])]
    np.testing.assert_allclose(bandwidth_of_each_node(particles, graph), exact, rtol=0.1)


def test_scopes_wider_than_one_slice():
    particles = np.random.default_rng(2).normal(size=(12, 1300))
    found = bandwidth_of_each_node(particles, Neighborhoods.complete(1300))
    np.testing.assert_allclose(found, np.median(pdist(particles)) ** 2, rtol=1e-12)


def test_coinciding_particles_keep_a_positive_bandwidth():
    graph = Neighborhoods.from_graph([[], []])
    particles = np.zeros((10, 2))
    particles[0, 1] = 3.0  # 9 of 45 pairs differ: the median distance is zero
    np.testing.assert_allclose(bandwidth_of_each_node(particles, graph), [1.0, 9.0 * 9 / 45])


def test_one_particle():
    graph = Neighborhoods.from_graph([[]])
    np.testing.assert_array_equal(bandwidth_of_each_node(np.ones((1, 1)), graph, factor=3.0), 3.0)
