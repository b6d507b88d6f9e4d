"""Circuits in files: round trips, and everything a bad file may be."""

import contextlib
import io
import json
import pickle
import tracemalloc
import zipfile

import joblib
import numpy as np
import pytest

from skcircuits.circuits import Bernoulli, Circuit, Gaussian, Indicator, Sum, _formats
from skcircuits.exceptions import CircuitFileError
from tests.reference.case import for_seeds
from tests.reference.random_circuits import random_circuit


@pytest.fixture
def path(tmp_path):
    return tmp_path / "circuit.npz"


@pytest.fixture
def arrays(path):
    """The arrays of a good file, to be spoiled and written again."""
    Circuit(
        0.3 * Bernoulli(0, 0.2) * Gaussian(1, 0.0, 1.0)
        + 0.7 * Indicator(0, 1, 2) * Gaussian(1, 1, 2)
    ).save(path)
    with np.load(path) as archive:
        return dict(archive)


def write(path, arrays, **changes):
    with open(path, "wb") as file:
        np.savez(file, **{**arrays, **changes})


def header(**changes):
    families = ["Bernoulli", "Gaussian", "Indicator"]
    content = {"format": "skcircuits circuit", "version": 1, "families": families}
    return np.frombuffer(json.dumps({**content, **changes}).encode(), dtype=np.uint8)


@for_seeds(40)
def test_round_trips_keep_every_digit(seed, path):
    circuit = random_circuit(seed)
    circuit.save(path)
    loaded = Circuit.load(path)
    X = circuit.sample(20, random_state=0)
    np.testing.assert_array_equal(loaded.log_prob(X), circuit.log_prob(X))
    assert (loaded.n_units, loaded.n_edges) == (circuit.n_units, circuit.n_edges)
    for other in (pickle.loads(pickle.dumps(circuit)), _through_joblib(circuit)):
        np.testing.assert_array_equal(other.log_prob(X), circuit.log_prob(X))


def test_one_sum_over_all_other_units(path):
    circuit = Circuit(Sum([Bernoulli(0, p) for p in (0.1, 0.2, 0.7)], weights=[0.2, 0.3, 0.5]))
    circuit.save(path)
    np.testing.assert_array_equal(Circuit.load(path).log_prob([[1.0]]), circuit.log_prob([[1.0]]))


def _through_joblib(circuit):
    buffer = io.BytesIO()
    joblib.dump(circuit, buffer)
    buffer.seek(0)
    return joblib.load(buffer)


def test_the_name_is_taken_as_given(tmp_path):
    path = tmp_path / "model.circuit"
    Circuit(Bernoulli(0, 0.5)).save(str(path))
    assert path.exists()
    assert Circuit.load(str(path)).n_units == 1


def test_missing_files_are_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        Circuit.load(tmp_path / "nothing.npz")


def test_files_that_cannot_be_opened_are_not_damaged(tmp_path):
    with pytest.raises(IsADirectoryError):
        Circuit.load(tmp_path)


def test_errors_of_the_program_are_no_damage(path, monkeypatch):
    def fail(*arguments):
        raise AttributeError("a slip")

    random_circuit(3).save(path)
    monkeypatch.setattr(_formats, "_check_graph", fail)
    with pytest.raises(AttributeError, match="a slip"):
        Circuit.load(path)


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_truncated_files(path, arrays, fraction):
    content = path.read_bytes()
    path.write_bytes(content[: int(fraction * len(content))])
    with pytest.raises(CircuitFileError, match="damaged or something else"):
        Circuit.load(path)


def test_flipped_bytes_never_load_as_another_circuit(path, arrays):
    """Archives carry checksums: a changed byte is noticed or does not matter."""
    content = path.read_bytes()
    expected = Circuit.load(path).log_prob([[1.0, 0.5]])
    for position in range(0, len(content), 41):
        spoiled = bytearray(content)
        spoiled[position] ^= 0xFF
        path.write_bytes(bytes(spoiled))
        with contextlib.suppress(CircuitFileError):
            np.testing.assert_array_equal(Circuit.load(path).log_prob([[1.0, 0.5]]), expected)


class Bomb:
    """Would run code when unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("code of a file was run",))


def test_pickles_are_never_run(path, arrays):
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CircuitFileError):
        Circuit.load(path)
    hostile = np.array([Bomb()], dtype=object)
    with open(path, "wb") as file:
        np.savez(file, **{**arrays, "weights": hostile})
    with pytest.raises(CircuitFileError, match="allow_pickle=False"):
        Circuit.load(path)


def test_other_archives_are_refused(path, arrays):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "not a circuit")
    with pytest.raises(CircuitFileError):
        Circuit.load(path)
    with open(path, "wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(CircuitFileError, match=r"must be an \.npz archive"):
        Circuit.load(path)
    write(path, {"x": np.arange(3)})
    with pytest.raises(CircuitFileError):
        Circuit.load(path)


def test_newer_versions_name_the_way_out(path, arrays):
    write(path, arrays, header=header(version=2))
    with pytest.raises(CircuitFileError, match="Install a newer skcircuits"):
        Circuit.load(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"header": header(format="something")},
        {"header": header(version="1")},
        {"header": header(version=True)},
        {"header": header(version=0)},
        {"header": header(families=["Circuit"])},
        {"header": header(families=["os.system"])},
        {"header": header(families=7)},
        {"header": header(families=[["Bernoulli"]])},
        {"header": np.frombuffer(b"[1, 2", dtype=np.uint8)},
        {"header": np.frombuffer(b"[" * 100_000, dtype=np.uint8)},
        {"header": np.frombuffer(b"\xff\xfe", dtype=np.uint8)},
        {"kinds": np.array([], dtype=np.int16)},
        {"kinds": np.array([7, 7, 7, 7, 1, 1, 0], dtype=np.int16)},
        {"kinds": np.array([-1, 2, 3, 4, 1, 1, 0], dtype=np.int16)},
        {"kinds": np.array([0.5] * 7)},
        {"kinds": np.zeros((7, 2), dtype=np.int16)},
        {"n_children": np.array([0, 0, 2, 0, 0, 2, -2])},
        {"n_children": np.array([0, 0, 2, 0, 0, 6, -2])},
        {"n_children": np.array([0, 0, 0, 2, 0, 2, 2])},
        {"n_children": np.array([0, 0, 2, 0, 0, 2, 200])},
        {"n_children": np.array([0, 0, 2**62, 2**62, 2**62, 2**62, 2])},
        {"n_children": np.array([0, 0, 2**62, 2**62, 2**62, 2**62, 6])},
        {"children": np.array([0, 1, 3, 4, 6, 6])},
        {"children": np.array([0, 1, 3, 4, -1, 5])},
        {"children": np.array([0.0, 1.5, 3.0, 4.0, 2.0, 5.0])},
        {"weights": np.array([0.3])},
        {"weights": np.array([0.3, -0.7])},
        {"weights": np.array([0.3, np.nan])},
        {"weights": np.array(["a", "b"])},
        {"Gaussian.std.values": np.array([1.0, -2.0])},
        {"Gaussian.std.values": np.array([1.0])},
        {"Gaussian.mean.values": np.array([np.nan, 0.0])},
        {"Gaussian.mean.values": np.array([1j, 0.0])},
        {"Gaussian.mean.values": np.array(["0", "1"])},
        {"weights": np.array([0.3j, 0.7])},
        {"Gaussian.variable.values": np.array([1.5, 1.0])},
        {"Gaussian.std.shapes": np.array([[2], [-1]])},
    ],
)
def test_spoiled_arrays(path, arrays, changes):
    write(path, arrays, **changes)
    with pytest.raises(CircuitFileError, match=r"circuit\.npz"):
        Circuit.load(path)


@pytest.mark.parametrize("name", ["header", "kinds", "weights", "Gaussian.mean.values"])
@pytest.mark.parametrize(
    "content", [b"", b"no array", b"\x93NUMPY\x01\x00\x02\x00{(", b"\x93NUMPY\x09\x00"]
)
def test_members_that_are_no_arrays(path, arrays, name, content):
    del arrays[name]
    write(path, arrays)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{name}.npy", content)
    with pytest.raises(CircuitFileError, match=r"circuit\.npz"):
        Circuit.load(path)


@pytest.mark.parametrize("name", ["header", "kinds", "n_children", "children", "weights"])
def test_missing_arrays(path, arrays, name):
    del arrays[name]
    write(path, arrays)
    with pytest.raises(CircuitFileError):
        Circuit.load(path)


def test_an_archive_that_promises_too_much_memory(path, arrays):
    """A tiny file whose array header announces a petabyte."""
    raw = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        raw, {"descr": "<f8", "fortran_order": False, "shape": (2**47,)}
    )
    write(path, {name: array for name, array in arrays.items() if name != "weights"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("weights.npy", raw.getvalue())
    with pytest.raises(CircuitFileError):
        Circuit.load(path)


def test_families_without_arrays(path, arrays):
    kept = {name: array for name, array in arrays.items() if not name.startswith("Gaussian.")}
    write(path, kept)
    with pytest.raises(CircuitFileError, match="the parameters of every Gaussian"):
        Circuit.load(path)


@pytest.mark.parametrize("name", ["anything", "Gaussian.anything.values", "Indicator.p.values"])
def test_members_that_no_header_announces_are_not_unpacked(path, arrays, name):
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        raw = io.BytesIO()
        np.save(raw, np.zeros(4_000_000))
        archive.writestr(f"{name}.npy", raw.getvalue())
    tracemalloc.start()
    assert Circuit.load(path).n_units == 7
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
