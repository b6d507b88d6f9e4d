"""Circuits as text."""

import re

from skcircuits.circuits import Bernoulli, Categorical, Circuit, Gaussian, Product, Sum
from tests.reference.random_circuits import random_circuit

SHARED = Bernoulli(1, 0.5)
SMALL = Circuit(0.25 * Categorical(0, [0.5, 0.5]) * SHARED + 0.75 * Bernoulli(0, 0.1) * SHARED)


def test_small_circuits_are_shown_unit_by_unit():
    lines = str(SMALL).splitlines()
    assert lines[0].startswith("Circuit over 2 variables: 2 Bernoulli, 1 Categorical, 2 Product")
    assert lines[1].startswith("Sum  #")
    assert lines[2].startswith("  0.25 * Product")
    assert sum("Bernoulli(variable=1, p=0.5)" in line for line in lines) == 1
    # The shared unit is referred to by its number the second time.
    number = re.search(r"Bernoulli\(variable=1, p=0.5\)  (#\d+)", str(SMALL)).group(1)
    assert any(line.strip() == number for line in lines)


def test_large_circuits_are_shown_by_their_sizes():
    circuit = random_circuit(4)
    assert circuit.n_units > 100
    assert len(str(circuit).splitlines()) == 2
    assert re.search(r"\d+ inner layers", str(circuit))


def test_repr_is_one_line():
    expected = "Circuit(n_variables=2, n_units=6, n_edges=6, n_parameters=4)"
    assert repr(SMALL) == expected


def test_dot_has_every_unit_and_edge():
    for circuit in (SMALL, random_circuit(3)):
        dot = circuit.to_dot()
        assert dot.startswith("digraph") and dot.endswith("}")
        assert len(re.findall(r"^  \d+ \[", dot, flags=re.M)) == circuit.n_units
        assert dot.count("->") == circuit.n_edges
    assert '[label="0.25"]' in SMALL.to_dot()


def test_dot_escapes_labels():
    class Quoted(Gaussian):
        def __repr__(self):
            return 'a "b" \\ c'

    dot = Circuit(Sum([Product([Quoted(0, 0.0, 1.0)])])).to_dot()
    assert r'label="a \"b\" \\ c"' in dot


def test_wide_sums_are_described_by_their_sizes():
    wide = Circuit(Sum([Bernoulli(0, 0.5)] * 1000, weights=[1e-3] * 1000))
    assert len(str(wide)) < 200
    assert len(wide._repr_html_()) < 2000
