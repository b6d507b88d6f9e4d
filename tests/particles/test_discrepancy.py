import numpy as np
import pytest

from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._steps import coordinate_discrepancies
from skcircuits.particles.directions import centred_rows


def brute_force(particles, scores, scopes, bandwidths):
    """mean u_i over all pairs, written out."""
    n, d = particles.shape
    values = np.zeros(d)
    for i in range(d):
        h = bandwidths[i]
        for x, s in zip(particles, scores[:, i]):
            for y, t in zip(particles, scores[:, i]):
                kernel = np.exp(-np.sum((x[scopes[i]] - y[scopes[i]]) ** 2) / h)
                gap = x[i] - y[i]
                values[i] += kernel * (s * t + 2 / h * gap * (s - t) + 2 / h - 4 * gap**2 / h**2)
    return values / n**2


@pytest.fixture
def cloud():
    rng = np.random.default_rng(0)
    return rng.normal(-2.0, 1.5, (11, 5)), rng.normal(size=(11, 5))


def test_equals_the_v_statistic(cloud):
    particles, scores = cloud
    scopes = [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3], [4]]
    bandwidths = np.array([1.0, 2.0, 0.5, 4.0, 3.0])
    graph = Neighborhoods.from_scopes(scopes, merge=False)
    found = coordinate_discrepancies(
        centred_rows(np.ascontiguousarray(particles.T)),
        np.ascontiguousarray(scores.T),
        graph,
        bandwidths,
    )
    np.testing.assert_allclose(
        found, brute_force(particles, scores, scopes, bandwidths), rtol=0, atol=1e-12
    )


def test_a_node_has_the_sum_of_its_block(cloud):
    particles, scores = cloud
    rows, scores = centred_rows(np.ascontiguousarray(particles.T)), scores.T.copy()
    graph = Neighborhoods.from_graph([[1], [], []], blocks=[[0, 4], [1], [3, 2]])
    bandwidths = np.full(graph.n_kernels, 2.0)
    by_coordinate = coordinate_discrepancies(rows, scores, graph, bandwidths)
    by_node = graph.sum_by_node(by_coordinate)
    expected = [by_coordinate[[0, 4]].sum(), by_coordinate[1], by_coordinate[[2, 3]].sum()]
    np.testing.assert_allclose(by_node, expected, rtol=1e-14)


def test_exact_draws_are_closer_than_shifted_ones():
    rng = np.random.default_rng(2)
    sample = rng.normal(size=(3, 400))
    graph = Neighborhoods.from_graph([[1], [2], []])
    bandwidths = np.full(graph.n_kernels, 3.0)

    def total(points):
        return coordinate_discrepancies(centred_rows(points), -points, graph, bandwidths).sum()

    assert total(sample) < 0.1 * total(sample + 0.5) < total(sample + 1.0)


def test_never_negative_at_extreme_scales():
    particles = np.array([[1e8, 1e8 + 1e-3, -1e8]])
    graph = Neighborhoods.complete(1)
    assert coordinate_discrepancies(centred_rows(particles), 0 * particles, graph, np.ones(1)) >= 0
