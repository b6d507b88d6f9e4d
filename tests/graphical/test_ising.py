"""Ising models against their definition."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.graphical import IsingModel


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
    assert IsingModel.grid_edges(2, 3).tolist() == [
        [0, 1],
        [1, 2],
        [3, 4],
        [4, 5],
        [0, 3],
        [1, 4],
        [2, 5],
    ]
    model = IsingModel.grid(2, 2, couplings=[1.0, 2.0, 3.0, 4.0], fields=0.5)
    assert_allclose(model.couplings[[0, 2, 0, 1], [1, 3, 2, 3]], [1, 2, 3, 4])
    assert_allclose(model.fields, 0.5)


def test_large_couplings_do_not_overflow():
    model = IsingModel.grid(3, 3, couplings=800.0, fields=[1.0] + [0.0] * 8)
    assert_allclose(model.log_partition(), 12 * 800.0 + np.log(2 * np.cosh(1.0)))


def test_from_networkx():
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    graph.add_node("a", field=0.3)
    graph.add_edge("a", "b", weight=0.5)
    graph.add_edge("b", "c")
    model = IsingModel.from_networkx(graph)
    assert_allclose(model.couplings, [[0, 0.5, 0], [0.5, 0, 1], [0, 1, 0]])
    assert_allclose(model.fields, [0.3, 0, 0])
    assert [blanket.tolist() for blanket in model.neighbors] == [[1], [0, 2], [1]]


def test_other_attributes_and_parallel_edges_of_networkx():
    networkx = pytest.importorskip("networkx")
    graph = networkx.MultiGraph([(0, 1, {"J": 0.5}), (1, 0, {"J": 0.25})])
    graph.nodes[1]["h"] = -1.0
    model = IsingModel.from_networkx(graph, weight="J", field="h")
    assert_allclose(model.couplings[0, 1], 0.75)
    assert_allclose(model.fields, [0.0, -1.0])


def test_graphs_that_are_no_ising_models():
    networkx = pytest.importorskip("networkx")
    with pytest.raises(ValueError, match=r"be undirected; got graph='DiGraph'"):
        IsingModel.from_networkx(networkx.DiGraph([(0, 1)]))
    with pytest.raises(ValueError, match=r"zero diagonal; got variables=\[1\]"):
        IsingModel.from_networkx(networkx.Graph([(0, 1), (1, 1)]))
    with pytest.raises(ValueError, match="one positive integer per variable"):
        IsingModel.from_networkx(networkx.Graph())


@pytest.mark.parametrize(
    ("couplings", "message"),
    [
        ([[0.0, 1.0], [0.0, 0.0]], "couplings must be a symmetric matrix"),
        ([[1.0]], r"zero diagonal; got variables=\[0\]"),
        ([[0.0, 1.0]], "couplings must be a square matrix"),
        ([0.0, 1.0], "couplings must be a square matrix"),
        ([[0.0, np.nan], [np.nan, 0.0]], "couplings must be finite"),
        ([[0.0, np.inf], [np.inf, 0.0]], "couplings must be finite"),
    ],
)
def test_bad_couplings(couplings, message):
    with pytest.raises(ValueError, match=message):
        IsingModel(couplings)


@pytest.mark.parametrize("fields", [[1.0], [np.nan, 0.0], [[0.0, 0.0]]])
def test_bad_fields(fields):
    with pytest.raises(ValueError, match="fields must have one entry per variable, all finite"):
        IsingModel(np.zeros((2, 2)), fields)


def test_bad_grids():
    for size in (0, True, 2.0):
        with pytest.raises(ValueError, match="n_rows must be a positive integer"):
            IsingModel.grid(size, 3)
    with pytest.raises(ValueError, match="couplings of a grid must be one number or 4"):
        IsingModel.grid(2, 2, couplings=[1.0, 2.0])
    with pytest.raises(ValueError, match="fields of a grid must be one number or 4"):
        IsingModel.grid(2, 2, fields=[1.0, 2.0, 3.0])
