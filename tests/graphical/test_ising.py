"""Ising models against their definition."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.graphical import IsingModel
from skcircuits.graphical.ising import grid_edges


def test_log_prob_is_the_definition():
    rng = np.random.default_rng(0)
    couplings = np.triu(rng.normal(size=(4, 4)), 1)
    couplings[0, 3] = 0.0
    couplings, fields = couplings + couplings.T, rng.normal(size=4)
    model = IsingModel(couplings, fields)
    states = np.array(list(product([0, 1], repeat=4)), dtype=float)
    spins = 2 * states - 1
    expected = 0.5 * np.einsum("ni,ij,nj->n", spins, couplings, spins) + spins @ fields
    assert_allclose(model.log_prob_unnormalized(states), expected, rtol=1e-12, atol=1e-12)
    assert 3 not in model.neighbors[0]


def test_two_spins_in_closed_form():
    model = IsingModel([[0, 0.7], [0.7, 0]])
    assert_allclose(model.log_partition(), np.log(4 * np.cosh(0.7)))


def test_grid_edges_and_couplings():
    assert grid_edges(2, 3).tolist() == [[0, 1], [1, 2], [3, 4], [4, 5], [0, 3], [1, 4], [2, 5]]
    model = IsingModel.grid(2, 2, couplings=[1.0, 2.0, 3.0, 4.0], fields=0.5)
    assert_allclose(model.couplings[[0, 2, 0, 1], [1, 3, 2, 3]], [1, 2, 3, 4])
    assert_allclose(model.fields, 0.5)


def test_large_couplings_do_not_overflow():
    model = IsingModel.grid(3, 3, couplings=800.0, fields=[1.0] + [0.0] * 8)
    assert_allclose(model.log_partition(), 12 * 800.0 + np.log(2 * np.cosh(1.0)))


def test_from_networkx_like_graph():
    class Nodes(list):
        def __call__(self, data, default):
            return [(node, {"a": 0.3}.get(node, default)) for node in self]

    class Graph:
        nodes = Nodes(["a", "b", "c"])

        @staticmethod
        def edges(data, default):
            assert data == "weight"
            return [("a", "b", 0.5), ("b", "c", default)]

    model = IsingModel.from_networkx(Graph())
    assert_allclose(model.couplings, [[0, 0.5, 0], [0.5, 0, 1], [0, 1, 0]])
    assert_allclose(model.fields, [0.3, 0, 0])


def test_bad_models():
    with pytest.raises(ValueError, match="couplings must be a symmetric matrix"):
        IsingModel([[0.0, 1.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="zero diagonal"):
        IsingModel([[1.0]])
    with pytest.raises(ValueError, match="fields must have one entry"):
        IsingModel(np.zeros((2, 2)), [1.0])
