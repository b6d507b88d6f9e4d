"""Circuits in notebooks."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from skcircuits.circuits import Bernoulli, Circuit, Gaussian
from tests.reference.latent_trees import latent_tree


def shapes(circuit, tag):
    html = circuit._repr_html_()
    svg = ElementTree.fromstring(re.search(r"<svg.*</svg>", html, re.S)[0])
    return svg.findall(f"{{http://www.w3.org/2000/svg}}{tag}")


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
    boxes = [
        [float(r.get(k)) for k in ("x", "y", "width", "height")] for r in shapes(circuit, "rect")
    ]
    x, y, width, height = np.transpose(boxes)
    apart = (x[:, None] + width[:, None] <= x) | (y[:, None] + height[:, None] <= y)
    np.fill_diagonal(apart, True)
    assert (apart | apart.T).all()
    assert (x >= 0).all() and (y >= 0).all()


def test_a_circuit_beyond_drawing_is_told_in_words():
    circuit = latent_tree(np.random.default_rng(0), 128, 2)
    assert "<svg" not in circuit._repr_html_()
    assert "n_variables=128" in circuit._repr_html_()
