import numpy as np
import pandas as pd
import pytest

from skcircuits import MoATDensity
from skcircuits.inspection import EdgeMarginalsDisplay

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def headless():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def density():
    X = pd.DataFrame(np.random.default_rng(0).integers(2, size=(80, 4)), columns=list("abcd"))
    return MoATDensity(n_components=2, max_iter=3, random_state=0).fit(X)


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
