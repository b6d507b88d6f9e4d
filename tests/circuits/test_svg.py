"""Circuits in notebooks."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from skcircuits.circuits import Bernoulli, Circuit, Gaussian, Product, Sum
from skcircuits.circuits._formats import layered_positions
from tests.reference.latent_trees import latent_tree


def drawn(circuit):
    return ElementTree.fromstring(re.search(r"<svg.*</svg>", circuit._repr_html_(), re.S)[0])


def shapes(circuit, tag):
    return drawn(circuit).findall(f"{{http://www.w3.org/2000/svg}}{tag}")


def numbers(shape, *names):
    return np.array([float(shape.get(name)) for name in names])


def test_units_edges_and_weights():
    shared = Gaussian(1, 0.0, 1.0)
    circuit = Circuit(0.25 * Bernoulli(0, 0.1) * shared + 0.75 * Bernoulli(0, 0.9) * shared)
    assert len(shapes(circuit, "rect")) == circuit.n_units
    assert len(shapes(circuit, "line")) == circuit.n_edges
    words = [text.text for text in shapes(circuit, "text")]
    assert {"0.25", "0.75", "Gaussian", "x1"} <= set(words)


@pytest.mark.parametrize("n_variables, n_states", [(1, 2), (4, 3), (8, 6), (30, 3)])
def test_boxes_do_not_overlap(n_variables, n_states):
    circuit = latent_tree(np.random.default_rng(0), n_variables, n_states)
    boxes = [numbers(r, "x", "y", "width", "height") for r in shapes(circuit, "rect")]
    x, y, width, height = np.transpose(boxes)
    apart = (x[:, None] + width[:, None] <= x) | (y[:, None] + height[:, None] <= y)
    np.fill_diagonal(apart, True)
    assert (apart | apart.T).all()
    assert (x >= 0).all() and (y >= 0).all()


@pytest.mark.parametrize("n_variables, n_states", [(2, 2), (30, 3)])
def test_words_lie_in_their_boxes_and_boxes_in_the_drawing(n_variables, n_states):
    svg = drawn(latent_tree(np.random.default_rng(0), n_variables, n_states))
    font = float(svg.get("font-size"))
    shapes = list(svg)
    words = [i for i, shape in enumerate(shapes) if shape.get("fill") == "#111"]
    assert words
    for i in words:
        box = max(j for j in range(i) if shapes[j].tag.endswith("rect"))
        (left, top), (width, height) = (
            numbers(shapes[box], *names) for names in (("x", "y"), ("width", "height"))
        )
        x, baseline = numbers(shapes[i], "x", "y")
        assert abs(x - left - width / 2) < 0.2
        assert len(shapes[i].text) * 0.6 * font < width
        # Letters reach about .8 above and .2 below their line, and lines do not touch
        assert top < baseline - 0.8 * font and baseline + 0.2 * font < top + height
        if i - 1 > box:
            assert baseline - numbers(shapes[i - 1], "y")[0] > font
        ends = [left, top, left + width, top + height]
        assert min(ends) >= 0 and (np.array(ends[2:]) <= numbers(svg, "width", "height")).all()


def test_edges_join_the_middles_of_boxes_from_above():
    circuit = latent_tree(np.random.default_rng(0), 3, 2)
    boxes = [numbers(r, "x", "y", "width", "height") for r in shapes(circuit, "rect")]
    middles = np.array([box[:2] + box[2:] / 2 for box in boxes])
    for line in shapes(circuit, "line"):
        upper, lower = numbers(line, "x1", "y1"), numbers(line, "x2", "y2")
        assert upper[1] < lower[1]
        for end in (upper, lower):
            assert np.abs(middles - end).max(axis=1).min() < 0.2


def test_weights_stand_on_their_edges_and_cover_no_other():
    circuit = latent_tree(np.random.default_rng(0), 3, 4)
    font = float(drawn(circuit).get("font-size"))
    ends = [(numbers(e, "x1", "y1"), numbers(e, "x2", "y2")) for e in shapes(circuit, "line")]
    titles = [float(edge[0].text) if len(edge) else None for edge in shapes(circuit, "line")]
    assert [title for title in titles if title is not None]
    written = [text for text in shapes(circuit, "text") if text.get("fill") == "#333"]
    places = np.array([numbers(text, "x", "y") for text in written])
    for text, place in zip(written, places):
        # Nearer to the lower end
        near = [
            title
            for (upper, lower), title in zip(ends, titles)
            if np.abs(upper + 0.6 * (lower - upper) - place).max() < 0.2
        ]
        assert any(f"{title:.2g}" == text.text for title in near if title is not None)
    x, y = np.abs(places[:, None] - places).T
    is_apart = (x > 3 * font) | (y > font)
    np.fill_diagonal(is_apart, True)
    assert is_apart.all()
    # A weight that is left out would have covered one that is written
    for (upper, lower), title in zip(ends, titles):
        x, y = np.abs(places - upper - 0.6 * (lower - upper)).T
        assert title is None or ((x < 4 * font) & (y < 1.5 * font)).any()


@pytest.mark.parametrize("n_units", [60, 61])
def test_up_to_sixty_units_are_drawn_one_by_one(n_units):
    shared = Product([Bernoulli(v, 0.5) for v in range(1, 30)])
    parts = [Product([Bernoulli(0, (i + 1) / 32), shared]) for i in range((n_units - 31) // 2)]
    root = Sum(parts, weights=np.full(len(parts), 1.0 / len(parts)))
    circuit = Circuit(root if n_units % 2 else Sum([root]))
    assert circuit.n_units == n_units
    # Scopes: every variable, all but the first, all
    assert len(shapes(circuit, "rect")) == (n_units if n_units <= 60 else 30 + 2)


@pytest.mark.parametrize("seed", range(10))
def test_nodes_stand_below_their_parents_in_the_order_of_these(seed):
    rng = np.random.default_rng(seed)
    n = 14
    children = {
        i: rng.choice(np.arange(i + 1, n), min(n - 1 - i, int(rng.integers(4))), False).tolist()
        for i in range(n)
    }
    parents = {i: [j for j in range(n) if i in children[j]] for i in range(n)}

    def depth(node):
        return max((1 + depth(parent) for parent in parents[node]), default=0)

    places = layered_positions(children)
    for level in {depth(i) for i in range(n)}:
        row = sorted((places[i][0], i) for i in range(n) if depth(i) == level)
        assert {places[i][1] for _, i in row} == {-level}
        np.testing.assert_allclose([x for x, _ in row], (np.arange(len(row)) + 0.5) / len(row))
        if level:
            means = [np.mean([places[parent][0] for parent in parents[i]]) for _, i in row]
            assert (np.diff(means) > -1e-9).all()


def test_siblings_keep_their_order():
    places = layered_positions({"r": ["c", "a", "b"], "a": [], "b": [], "c": []})
    assert places["c"] < places["a"] < places["b"]


def test_a_circuit_beyond_drawing_is_told_in_words():
    circuit = latent_tree(np.random.default_rng(0), 128, 2)
    assert "<svg" not in circuit._repr_html_()
    assert "n_variables=128" in circuit._repr_html_()
