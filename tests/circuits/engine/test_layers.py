"""Inner layers one by one, each move against a sum written out."""

import numpy as np
import pytest
from scipy.special import logsumexp

from skcircuits.circuits.engine._layers import ProductLayer, SumLayer, SumWeights

# Six units below, then the layer's own: three sums of two, three and one children.
CHILDREN = np.array([0, 3, 1, 2, 5, 4])
LENGTHS = np.array([2, 3, 1])
WEIGHTS = np.array([0.25, 0.75, 0.5, 0.0, 0.5, 1.0])
IRREGULAR = SumLayer(slice(6, 9), slice(0, 6), CHILDREN, LENGTHS)
# Two blocks of two sums over two and the same two children.
BLOCKS = SumLayer(
    slice(6, 10), slice(0, 8), np.array([0, 1, 0, 1, 4, 2, 4, 2]), np.full(4, 2), (2, 2, 2)
)


def log_weights(weights):
    with np.errstate(divide="ignore"):
        return SumWeights(np.log(weights))


@pytest.fixture
def values():
    rng = np.random.default_rng(0)
    values = np.zeros((10, 5))
    values[:6] = rng.normal(scale=3.0, size=(6, 5))
    values[2, 0] = -np.inf
    values[4, 1] = -np.inf
    return values


def layers():
    rng = np.random.default_rng(1)
    return [(IRREGULAR, WEIGHTS), (BLOCKS, rng.random(8)), (BLOCKS, np.repeat([0.0, 1.0], 4))]


def terms_of(layer, weights, values):
    """Log terms of each sum, written out."""
    log = log_weights(weights).log[:, None] + values[layer.children]
    return np.split(log, layer.starts[1:])


@pytest.mark.parametrize(("layer", "weights"), layers())
def test_moves_of_sums(layer, weights, values):
    own = layer.units
    terms = terms_of(layer, weights, values)
    layer.forward_log(values, log_weights(weights))
    with np.errstate(divide="ignore"):
        expected = [logsumexp(t, axis=0) for t in terms]
    np.testing.assert_allclose(values[own], expected, rtol=1e-13)
    layer.forward_max(values, log_weights(weights))
    np.testing.assert_array_equal(values[own], [t.max(axis=0) for t in terms])
    linear = np.exp(values)
    layer.forward_linear(linear, log_weights(weights))
    np.testing.assert_allclose(linear[own], [np.exp(t).sum(axis=0) for t in terms], rtol=1e-13)


@pytest.mark.parametrize(("layer", "weights"), layers())
def test_posteriors_and_flows(layer, weights, values):
    layer.forward_log(values, log_weights(weights))
    posteriors = layer.posteriors(values, log_weights(weights))
    totals = np.add.reduceat(posteriors, layer.starts, axis=0)
    possible = np.isfinite(values[layer.units])
    np.testing.assert_allclose(totals, possible.astype(float), rtol=1e-12)
    flows = np.zeros_like(values)
    flows[layer.units] = possible * [[0.5]]
    counts = np.zeros_like(weights)
    layer.backward_log(flows, values, log_weights(weights), counts)
    expected = np.zeros_like(values)
    np.add.at(expected, layer.children, 0.5 * posteriors)
    np.testing.assert_allclose(flows[:6], expected[:6], rtol=1e-12)
    np.testing.assert_allclose(counts, 0.5 * posteriors.sum(axis=1), rtol=1e-12)


def test_flows_that_would_overflow_take_the_plain_way():
    """A sum 700 nats below the largest child of its block, which it does not see."""
    weights = np.array([1.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.5, 0.5])
    values = np.zeros((10, 1))
    values[0], values[1] = -1000.0, 0.0
    BLOCKS.forward_log(values, log_weights(weights))
    assert values[6, 0] == -1000.0
    flows = np.zeros_like(values)
    flows[6:8] = 1.0
    counts = np.zeros(8)
    BLOCKS.backward_log(flows, values, log_weights(weights), counts)
    np.testing.assert_allclose(flows[:2, 0], [1.0, 1.0])
    np.testing.assert_allclose(counts, [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("far", [-1e8, -1e16, -1e100, 1e16])
@pytest.mark.parametrize(("layer", "weights"), layers()[:2])
def test_flows_of_hardly_possible_rows_are_divided_without_loss(layer, weights, values, far):
    values[:6] += far
    log = log_weights(weights)
    layer.forward_log(values, log)
    flows = np.zeros_like(values)
    flows[layer.units] = 1.0
    layer.backward_log(flows, values, log)
    n_possible = np.isfinite(values[layer.units]).sum(axis=0)
    np.testing.assert_allclose(flows[:6].sum(axis=0), n_possible, rtol=1e-12)


def test_edges_are_listed_sum_by_sum():
    edges, first = IRREGULAR.edges_of(np.array([2, 0, 0, 1]))
    np.testing.assert_array_equal(edges, [5, 0, 1, 0, 1, 2, 3, 4])
    np.testing.assert_array_equal(first, [0, 1, 3, 5])
    np.testing.assert_array_equal(IRREGULAR.sum_of_edge, [6, 6, 7, 7, 7, 8])


def test_products():
    layer = ProductLayer(slice(3, 5), np.array([[0, 1], [1, 2]]))
    values = np.arange(15.0).reshape(5, 3)
    layer.forward_log(values, log_weights(np.ones(0)))
    np.testing.assert_array_equal(values[3:], [values[0] + values[1], values[1] + values[2]])
    layer.forward_linear(values, log_weights(np.ones(0)))
    np.testing.assert_array_equal(values[3:], [values[0] * values[1], values[1] * values[2]])
    flows = np.zeros((5, 3))
    flows[3], flows[4] = 0.25, 0.5
    layer.backward_log(flows, values, log_weights(np.ones(0)))
    np.testing.assert_array_equal(flows[:3, 0], [0.25, 0.75, 0.5])


@pytest.mark.parametrize("shape", [(5,), (4, 5)])
def test_a_batch_of_weights_belongs_to_the_batch_of_values(values, shape):
    rng = np.random.default_rng(2)
    batch = rng.random((8, *shape))
    wide = np.broadcast_to(values.reshape(10, *[1] * (len(shape) - 1), 5), (10, *shape)).copy()
    BLOCKS.forward_log(wide, log_weights(batch))
    for index in np.ndindex(shape):
        one = values[:, [index[-1]]].copy()
        BLOCKS.forward_log(one, log_weights(batch[:, *index]))
        np.testing.assert_allclose(wide[6:, *index], one[6:, 0], rtol=1e-12)
