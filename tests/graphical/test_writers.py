"""What is written is read again, by this package and by pgmpy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.graphical import BayesianNetwork, Factor, FactorGraph, IsingModel


@pytest.fixture
def network():
    rng = np.random.default_rng(0)
    parents = [[], [0], [1, 0], [2]]
    tables = [rng.dirichlet([0.5] * 3, [3] * len(given)) for given in parents]
    tables[3][0] = [0.0, 1.0, 0.0]
    names = ["plain", "two words", "semi;colon", "b-4"]
    states = [["a", "b", "c"], ["0", "1", "2"], ["x y", "{", ")"], ["no", "may be", "yes"]]
    return BayesianNetwork(parents, tables, variable_names=names, state_names=states)


@pytest.mark.parametrize("form", ["bif", "xmlbif"])
def test_round_trips_keep_every_digit(network, tmp_path, form):
    getattr(network, f"to_{form}")(tmp_path / "n")
    again = getattr(BayesianNetwork, f"from_{form}")(tmp_path / "n")
    assert again.parents == network.parents
    assert again.variable_names == network.variable_names
    assert again.state_names == network.state_names
    for mine, other in zip(network.factors, again.factors):
        assert_allclose(np.exp(other.log_table), np.exp(mine.log_table), rtol=1e-15)


def test_nameless_networks_get_names(tmp_path):
    BayesianNetwork([[], [0]], [[0.3, 0.7], np.eye(2)]).to_bif(tmp_path / "n.bif")
    again = BayesianNetwork.from_bif(tmp_path / "n.bif")
    assert again.variable_names == ("x0", "x1")
    assert again.state_names[1] == ("s0", "s1")


@pytest.mark.parametrize("name", ["a & <b>", "é", '"'])
def test_marks_of_xml_may_be_names(tmp_path, name):
    network = BayesianNetwork(
        [[]], [[0.5, 0.5]], variable_names=[name], state_names=[[name, "]]>"]]
    )
    network.to_xmlbif(tmp_path / "n.xml")
    again = BayesianNetwork.from_xmlbif(tmp_path / "n.xml")
    assert (again.variable_names, again.state_names) == (
        network.variable_names,
        network.state_names,
    )


@pytest.mark.parametrize("name", ["", " a", "a\nb", "a\x00"])
def test_names_that_xml_cannot_hold(tmp_path, name):
    network = BayesianNetwork([[]], [[0.5, 0.5]], variable_names=[name])
    with pytest.raises(ValueError, match="Choose other variable_names"):
        network.to_xmlbif(tmp_path / "n.xml")
    assert not (tmp_path / "n.xml").exists()


def test_names_that_cannot_be_written(tmp_path):
    network = BayesianNetwork([[]], [[0.5, 0.5]], variable_names=['say "x"'])
    with pytest.raises(ValueError, match="hold no quotes"):
        network.to_bif(tmp_path / "n.bif")


@pytest.mark.parametrize("kind", ["MARKOV", "BAYES"])
def test_uai_round_trip(network, tmp_path, kind):
    model = network if kind == "BAYES" else IsingModel.grid(2, 3, couplings=0.3, fields=-0.7)
    model.to_uai(tmp_path / "m.uai")
    assert (tmp_path / "m.uai").read_text().startswith(kind)
    again = FactorGraph.from_uai(tmp_path / "m.uai")
    assert_array_equal(again.cardinalities, model.cardinalities)
    rows = model.sample(20, random_state=0)
    expected = model.log_prob_unnormalized(rows)
    assert_allclose(again.log_prob_unnormalized(rows), expected, rtol=1e-13, atol=1e-13)


def test_energies_that_plain_numbers_cannot_hold(tmp_path):
    for energy in (800.0, -800.0):
        graph = FactorGraph([Factor((0,), np.array([energy, 0.0]))], [2])
        with pytest.raises(ValueError, match="plain numbers can hold"):
            graph.to_uai(tmp_path / "m.uai")


def test_pgmpy_reads_what_is_written(tmp_path):
    readwrite = pytest.importorskip("pgmpy.readwrite")
    inference = pytest.importorskip("pgmpy.inference")
    rng = np.random.default_rng(1)
    parents = [[], [0], [1, 0], [2]]
    tables = [rng.dirichlet([1.0, 1.0], [2] * len(given)) for given in parents]
    network = BayesianNetwork(
        parents, tables, variable_names=list("abcd"), state_names=[["no", "yes"]] * 4
    )
    network.to_bif(tmp_path / "n.bif")
    theirs = readwrite.BIFReader(str(tmp_path / "n.bif")).get_model()
    query = inference.VariableElimination(theirs).query
    expected = network.marginals({"d": "yes"})
    for variable, name in enumerate("abc"):
        found = query([name], evidence={"d": "yes"}, show_progress=False)
        probabilities = [found.get_value(**{name: state}) for state in ("no", "yes")]
        assert_allclose(expected[variable], probabilities, rtol=1e-9)
    # And back as an object.
    again = BayesianNetwork.from_pgmpy(theirs)
    order = [again.variable_names.index(name) for name in "abcd"]
    for variable, column in enumerate(order):
        states = [again.state_names[column].index(state) for state in ("no", "yes")]
        assert_allclose(again.marginals()[column][states], network.marginals()[variable], rtol=1e-9)


def test_small_numbers_are_written_without_exponents(tmp_path):
    """Readers such as that of UAI files in pgmpy refuse "1e-05"."""
    tables = [[1e-5, 1 - 1e-5], [[0.1 + 0.2, 0.7], [1e-17, 1.0]]]
    network = BayesianNetwork([[], [0]], tables)
    network.to_uai(tmp_path / "m.uai")
    network.to_bif(tmp_path / "n.bif")
    assert "e-" not in (tmp_path / "m.uai").read_text() + (tmp_path / "n.bif").read_text()
    for again in (
        FactorGraph.from_uai(tmp_path / "m.uai"),
        BayesianNetwork.from_bif(tmp_path / "n.bif"),
    ):
        for found, factor in zip(again.factors, network.factors):
            assert_allclose(found.log_table, factor.log_table, rtol=1e-15)


def test_markov_networks_of_pgmpy():
    models = pytest.importorskip("pgmpy.models")
    factors = pytest.importorskip("pgmpy.factors.discrete")
    theirs = models.DiscreteMarkovNetwork([("a", "b"), ("b", "c")])
    theirs.add_factors(
        factors.DiscreteFactor(["a", "b"], [2, 3], np.arange(1.0, 7.0)),
        factors.DiscreteFactor(["c", "b"], [2, 3], np.arange(6.0, 0.0, -1.0)),
    )
    graph = FactorGraph.from_pgmpy(theirs)
    assert_allclose(graph.log_partition(), np.log(theirs.get_partition_function()), rtol=1e-12)


def test_attributes_of_networkx_that_are_no_numbers():
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    for value in ("strong", 1j):
        graph.add_edge(0, 1, weight=value)
        with pytest.raises((TypeError, ValueError), match="weight of the edges must be an array"):
            IsingModel.from_networkx(graph)


def test_graphs_of_networkx():
    networkx = pytest.importorskip("networkx")
    grid = networkx.grid_2d_graph(3, 3)
    networkx.set_edge_attributes(grid, 0.4, "weight")
    networkx.set_node_attributes(grid, 0.1, "field")
    expected = IsingModel.grid(3, 3, couplings=0.4, fields=0.1)
    found = IsingModel.from_networkx(grid)
    assert_array_equal(found.couplings, expected.couplings)
    assert_allclose(found.log_partition(), expected.log_partition())
