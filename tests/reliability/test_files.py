"""Broken files of every format: an error that names the fault, in bounded time and memory."""

import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from skcircuits.circuits import Circuit
from skcircuits.graphical import BayesianNetwork, FactorGraph, IsingModel
from tests.reference.random_circuits import random_circuit
from tests.reliability.child import run_limited

PSDD = """c a small one
psdd 6
T 0 0 1 -0.5
L 1 0 1
L 2 0 -1
T 3 2 2 -1.2
L 4 2 2
D 5 1 2 1 3 -0.4 2 4 -1.1
"""
WORDS = [
    *("{", "}", "(", ")", ";", "|", '"', "/*", "//", "-1", "0", "1e400", "nan", "99999999999"),
    *("L", "T", "D", "é", "\x00", "variable", "probability", "default", "table", "MARKOV"),
    *("psdd", "vtree"),
]


def originals(folder):
    """A good file of each format, and what reads it."""
    network = BayesianNetwork([[], [0]], [[0.8, 0.2], [[0.9, 0.1], [0.4, 0.6]]])
    network.to_bif(folder / "a.bif")
    network.to_xmlbif(folder / "a.xmlbif")
    IsingModel.grid(2, 2).to_uai(folder / "a.uai")
    random_circuit(3).save(folder / "a.npz")
    (folder / "a.psdd").write_text(PSDD)
    return {
        "bif": BayesianNetwork.from_bif,
        "xmlbif": BayesianNetwork.from_xmlbif,
        "uai": FactorGraph.from_uai,
        "npz": Circuit.load,
        "psdd": Circuit.from_psdd,
    }


def mutated(content, rng):
    """Change, cut, repeat or insert bytes or words, a few times."""
    for _ in range(rng.integers(1, 5)):
        place = int(rng.integers(len(content) + 1))
        end = min(len(content), place + int(rng.integers(1, 40)))
        kind = rng.integers(5)
        if kind == 0:
            content = (
                content[:place] + bytes(rng.integers(256, size=3, dtype=np.uint8)) + content[end:]
            )
        elif kind == 1:
            content = content[:place] + content[end:]
        elif kind == 2:
            content = content[:end] + content[place:end] * int(rng.integers(1, 50)) + content[end:]
        elif kind == 3:
            word = WORDS[rng.integers(len(WORDS))].encode()
            content = content[:place] + b" " + word + b" " + content[place:]
        else:
            content = content[:place]
    return content


def read_broken_files(seed, n_cases):
    """Read mutated files; anything but ValueError and its like ends the process."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for format_name, reader in originals(folder).items():
            content = (folder / f"a.{format_name}").read_bytes()
            for case in range(int(n_cases)):
                rng = np.random.default_rng([int(seed), case])
                path = folder / f"broken.{format_name}"
                path.write_bytes(mutated(content, rng))
                start = time.process_time()
                try:
                    reader(path)
                except (ValueError, TypeError) as error:
                    assert str(error)
                except Exception:
                    print(f"{format_name}: default_rng([{seed}, {case}])")
                    raise
                assert time.process_time() - start < 5, (
                    f"{format_name}: default_rng([{seed}, {case}])"
                )
    print("all refused or read")


def check(seed, n_cases):
    code, output = run_limited(
        __name__, "read_broken_files", seed, n_cases, mebibytes=512, seconds=500
    )
    assert code == 0, output[-1500:]
    assert "all refused or read" in output


def test_a_few(tally):
    (seed,) = tally.seeds(1, "files")
    tally.check(f"read_broken_files({seed}, 30)", check, seed, 30)
    tally.n_cases += 4 * 30 - 1


@pytest.mark.slow
def test_many(tally):
    for seed in tally.seeds(4, "many files"):
        tally.check(f"read_broken_files({seed}, 300)", check, seed, 300)
        tally.n_cases += 4 * 300 - 1
