"""Probabilistic sentential decision diagrams and their vtrees."""

import gzip

import numpy as np
import pytest

from skcircuits.circuits import (
    Bernoulli,
    Circuit,
    is_deterministic,
    is_structured_decomposable,
)
from skcircuits.exceptions import CircuitFileError

# Over two variables: x1 decides between two distributions of x2.
PSDD = f"""c a comment
psdd 5
L 0 0 1
L 1 0 -1
T 2 2 2 {np.log(0.3)}
T 3 2 -2 {np.log(0.9)}
D 4 1 2 0 2 {np.log(0.6)} 1 3 {np.log(0.4)}
"""
VTREE = "c comment\nvtree 3\nL 0 1\nL 2 2\nI 1 0 2\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="circuit.psdd"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_values_of_a_small_diagram(write):
    circuit = Circuit.from_psdd(write(PSDD), write(VTREE, "circuit.vtree"))
    # Literal 1 is column 0; "T id vtree -v log p" is the probability of the negative literal.
    X = [[1, 1], [1, 0], [0, 1], [0, 0]]
    np.testing.assert_allclose(np.exp(circuit.log_prob(X)), [0.18, 0.42, 0.04, 0.36])
    assert is_deterministic(circuit)
    assert is_structured_decomposable(circuit)


def test_gzip(write):
    circuit = Circuit.from_psdd(write(gzip.compress(PSDD.encode()), "circuit.psdd.gz"))
    assert circuit.log_partition == pytest.approx(0.0, abs=1e-12)


def test_quirks_of_writers(write):
    """Wrong counts in the header, comments in the middle, decisions with one element."""
    text = PSDD.replace("psdd 5", "psdd 1353").replace("T 2", "c middle\nT 2")
    text += "D 5 1 1 4 6 0.0\n"
    text = text.replace("D 5", "T 6 4 3 -1.0\nD 5")
    circuit = Circuit.from_psdd(write(text))
    np.testing.assert_allclose(
        np.exp(circuit.log_prob([[1, 1, 1]])), [0.18 * np.exp(-1.0)], rtol=1e-12
    )


def test_log_probabilities_of_one_and_zero(write):
    """Rounding of writers may put log p a little above 0; -inf is a probability of zero."""
    circuit = Circuit.from_psdd(write("psdd 1\nT 0 0 1 1e-17\n"))
    np.testing.assert_array_equal(circuit.log_prob([[1.0], [0.0]]), [0.0, -np.inf])
    circuit = Circuit.from_psdd(write("psdd 1\nT 0 0 1 1e-9\n"))
    np.testing.assert_array_equal(circuit.log_prob([[1.0], [0.0]]), [0.0, -np.inf])
    circuit = Circuit.from_psdd(write("psdd 1\nT 0 0 1 -inf\n"))
    np.testing.assert_array_equal(circuit.log_prob([[1.0], [0.0]]), [-np.inf, 0.0])


@pytest.mark.parametrize("literal", [1, -1])
@pytest.mark.parametrize("log_probability", [-1e-20, -50.0, -740.0, -2000.0, np.log(0.3)])
def test_small_probabilities_of_either_state(write, literal, log_probability):
    circuit = Circuit.from_psdd(write(f"psdd 1\nT 0 0 {literal} {float(log_probability)!r}\n"))
    expected = [log_probability, np.log(-np.expm1(log_probability))][::literal]
    found = circuit.log_prob([[1.0], [0.0]])
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize(
    "line",
    [
        "X 9 0 1",
        "L 9",
        "L 9 0 zero",
        "L 9 0 0",
        "T 9 0 1 nan",
        "T 9 0 1 0.5",
        "T 9 0 1 1e-5",
        "T 9 0 1",
        "D 9 1 2 0 2 -1.0",
        "D 9 1 1 0 77 -1.0",
        "D 9 1 1 0 2 nan",
        "D 9 1 1 0 2 1e5",
        "D 9 1 0",
        "D 9 1 -1",
    ],
)
def test_bad_lines_are_named(write, line):
    with pytest.raises(CircuitFileError, match=r"Line 8 of .* must be a PSDD node"):
        Circuit.from_psdd(write(PSDD + line + "\n"))


def test_comments_may_hold_any_text(write):
    expected = str(Circuit.from_psdd(write(PSDD)))
    marked = "\ufeffc by José\n" + PSDD
    assert str(Circuit.from_psdd(write(marked.encode()))) == expected


def test_ids_that_are_unknown_or_taken_are_named(write):
    with pytest.raises(CircuitFileError, match="no line above has the id 77"):
        Circuit.from_psdd(write(PSDD + "D 9 1 1 0 77 -1.0\n"))
    with pytest.raises(CircuitFileError, match="another node has its id"):
        Circuit.from_psdd(write(PSDD + "L 0 0 1\n"))


def test_files_of_another_kind(write):
    with pytest.raises(CircuitFileError, match="must hold at least one node"):
        Circuit.from_psdd(write("psdd 0\n"))
    with pytest.raises(CircuitFileError, match="must be a text file"):
        Circuit.from_psdd(write(b"\xff\xfe\x00"))
    with pytest.raises(CircuitFileError, match="must be a text file"):
        Circuit.from_psdd(write(gzip.compress(PSDD.encode())[:-10]))
    with pytest.raises(FileNotFoundError):
        Circuit.from_psdd("does-not-exist.psdd")


def test_the_vtree_must_fit(write):
    other = "vtree 3\nL 0 1\nL 2 3\nI 1 0 2\n"
    with pytest.raises(CircuitFileError, match="not the scope of any vtree node"):
        Circuit.from_psdd(write(PSDD), write(other, "other.vtree"))
    for bad in ("X 0 1", "L 0", "I 1 0 2"):
        with pytest.raises(CircuitFileError, match=r"Line 2 of .* must be a vtree node"):
            Circuit.from_psdd(write(PSDD), write(f"vtree 1\n{bad}\n", "bad.vtree"))


def test_a_vtree_node_with_one_child_twice_is_refused(write):
    """Forty lines that double the scope would take gigabytes."""
    lines = [f"I {i + 1} {i} {i}" for i in range(40)]
    vtree = "\n".join(["vtree 41", "L 0 1", *lines])
    with pytest.raises(CircuitFileError, match=r"Line 3 .* share a variable"):
        Circuit.from_psdd(write(PSDD), write(vtree, "bomb.vtree"))


def test_log_weights_that_no_float_holds(write):
    circuit = Circuit.from_psdd(write(PSDD.replace(f"{np.log(0.6)}", "-900.0")))
    np.testing.assert_allclose(
        circuit.log_prob([[1, 1], [0, 1]]), np.log([0.3, 0.1 * 0.4]) - [900.0, 0.0], rtol=1e-12
    )


@pytest.mark.parametrize("name", ["circuit.psdd", "circuit.psdd.gz", "circuit.vtree"])
def test_files_of_other_programs_are_not_written(name, tmp_path):
    circuit = Circuit(Bernoulli(0, 0.3))
    with pytest.raises(ValueError, match=r"must be that of an \.npz file.*Circuit\.load reads"):
        circuit.save(tmp_path / name)
    assert not (tmp_path / name).exists()
