import numpy as np
import pytest

from skcircuits.inspection import EdgeMarginalsDisplay

plt = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.usefixtures("headless")


@pytest.mark.parametrize("kind", ["heatmap", "graph"])
def test_edges(density, kind):
    _, ax = plt.subplots()
    display = EdgeMarginalsDisplay.from_estimator(density, kind=kind, ax=ax)
    assert display.ax_ is ax and display.figure_ is ax.figure
    assert display.edge_marginals.sum() == pytest.approx(6)
    assert display.feature_names == list("abcd")


def test_a_misspelt_kind_draws_nothing(density):
    with pytest.raises(ValueError, match="kind must be 'heatmap' or 'graph'; got kind='grahp'"):
        EdgeMarginalsDisplay.from_estimator(density, kind="grahp")
    with pytest.raises(ValueError, match="kind must be"):
        EdgeMarginalsDisplay(np.zeros((2, 2)), ["a", "b"]).plot("tree")
    assert not plt.get_fignums()


def test_keywords_style_heat_map_and_graph(density):
    heat_map = EdgeMarginalsDisplay.from_estimator(density, cmap="Reds")
    assert heat_map.ax_.images[0].get_cmap().name == "Reds"
    graph = EdgeMarginalsDisplay.from_estimator(density, kind="graph", color="red")
    assert {line.get_color() for line in graph.ax_.lines} == {"red"}


def test_edges_need_a_probability_for_each_pair():
    with pytest.raises(ValueError, match=r"edge_marginals must .* 3 columns; got shape=\(2, 2\)"):
        EdgeMarginalsDisplay(np.zeros((2, 2)), ["a", "b", "c"])
