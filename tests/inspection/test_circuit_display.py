"""Drawings of circuits."""

from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from skcircuits import GaussianMixtureDensity
from skcircuits.circuits import Bernoulli, Circuit, Gaussian, Product
from skcircuits.circuits._formats import layered_positions
from skcircuits.inspection import CircuitDisplay
from tests.reference.latent_trees import latent_tree


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def small():
    shared = Gaussian(1, 0.0, 1.0)
    return Circuit(0.25 * Bernoulli(0, 0.1) * shared + 0.75 * Bernoulli(0, 0.9) * shared)


def texts(display):
    return [text.get_text() for text in display.ax_.texts]


def test_small_circuits_show_every_unit(small):
    display = CircuitDisplay.from_circuit(small)
    shown = texts(display)
    assert shown.count("+") == 1 and shown.count("×") == 2
    assert "0.25" in shown and "0.75" in shown
    # The shared unit is one node.
    assert sum("Gaussian" in text for text in shown) == 1
    assert display.ax_.get_title() == "2 variables, 6 units"
    assert len(display.ax_.lines) == small.n_edges


def test_large_circuits_show_their_regions():
    circuit = latent_tree(np.random.default_rng(0), 8, 6)
    display = CircuitDisplay.from_circuit(circuit)
    # 8 variables and 7 inner regions of a balanced tree
    assert len(display.ax_.collections[0].get_offsets()) == 15
    assert len(display.ax_.lines) == 14
    assert any("(8)" in text and "7 units" in text for text in texts(display))


def test_many_regions_are_not_labelled():
    circuit = latent_tree(np.random.default_rng(0), 30, 3)
    assert texts(CircuitDisplay.from_circuit(circuit)) == []


def test_detail_can_be_chosen(small):
    _, ax = plt.subplots()
    display = CircuitDisplay.from_circuit(small, detail="regions", ax=ax)
    assert display.ax_ is ax and display.figure_ is ax.figure
    assert len(ax.collections[0].get_offsets()) == 3
    with pytest.raises(ValueError, match="detail must be 'auto', 'units' or 'regions'"):
        CircuitDisplay(small, detail="all")


def boxes_on_screen(display):
    display.figure_.draw_without_rendering()
    renderer = display.figure_.canvas.get_renderer()
    shown = [text for text in display.ax_.texts if text.get_visible()]
    return shown, [text.get_bbox_patch().get_window_extent(renderer) for text in shown]


@pytest.mark.parametrize("size", [None, (7.0, 5.0), (3.0, 2.0)])
def test_no_label_covers_another(size):
    circuit = latent_tree(np.random.default_rng(0), 4, 3)
    ax = None if size is None else plt.subplots(figsize=size, layout="constrained")[1]
    for detail in ("units", "regions"):
        display = CircuitDisplay.from_circuit(circuit, detail=detail, ax=ax)
        shown, boxes = boxes_on_screen(display)
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
        assert all(text.get_fontsize() >= 4.5 for text in shown)
        # A figure of its own has room for all units
        if size is None and detail == "units":
            assert len(shown) >= circuit.n_units
        display.ax_.clear()


def test_long_names_do_not_cover_each_other():
    circuit = latent_tree(np.random.default_rng(0), 4, 3)
    names = [f"a rather long name of column {j}" for j in range(4)]
    display = CircuitDisplay.from_circuit(circuit, detail="units", feature_names=names)
    _, boxes = boxes_on_screen(display)
    assert boxes and not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_columns_have_their_names():
    X = pd.DataFrame({"age": [0.0, 1.0, 2.0, 3.0], "job": ["a", "b", "a", "b"]})
    density = GaussianMixtureDensity(n_components=1).fit(X)
    shown = "".join(texts(CircuitDisplay.from_estimator(density)))
    assert "age" in shown and "job" in shown and "x0" not in shown
    with pytest.raises(ValueError, match="feature_names must name all variables up to 1"):
        CircuitDisplay(density.circuit_, feature_names=["age"])


def test_only_circuits_are_drawn(small):
    for drawn, way_out in [
        (3, r"got circuit=3\. Circuit\(unit\) makes one"),
        (small.root, r"Circuit\(unit\) makes one"),
        (SimpleNamespace(circuit_=small), "Pass its circuit_"),
    ]:
        with pytest.raises(TypeError, match=f"circuit must be a Circuit; .*{way_out}"):
            CircuitDisplay.from_circuit(drawn)


def test_one_unit_is_a_drawing():
    display = CircuitDisplay.from_circuit(Circuit(Bernoulli(3, 0.5)))
    assert texts(display) == ["Bernoulli\nx3"]


def test_unstructured_circuits_have_regions_too():
    a, b, c = (Bernoulli(v, 0.5) for v in range(3))
    circuit = Circuit(0.5 * Product([a, Product([b, c])]) + 0.5 * Product([Product([a, b]), c]))
    display = CircuitDisplay.from_circuit(circuit, detail="regions")
    assert len(display.ax_.collections[0].get_offsets()) == 6


def test_positions_put_parents_above_children():
    graph = {"r": ["a", "b"], "b": ["c"], "a": ["d"], "c": ["d"], "d": []}
    places = layered_positions(graph)
    assert all(places[node][1] > places[child][1] for node in graph for child in graph[node])
    assert len(set(places.values())) == len(graph)
