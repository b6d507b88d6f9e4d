"""Fit times and test log-likelihoods beside deeprob-kit and SPFlow.

Peers run in the interpreter named by ``$SKCIRCUITS_PEERS`` (a Python that has deeprob-kit and
spflow)::

    SKCIRCUITS_PEERS=/path/to/python python -m benchmarks.fit_times nltcs plants

Wall-clock seconds; nats per test row. Ours choose on the validation split, whose rows are not
used for anything else.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks._data import data_path
from skcircuits import ChowLiuDensity, HiddenChowLiuDensity, StrudelDensity

OURS = {
    "ChowLiuDensity": ChowLiuDensity(),
    "ChowLiuDensity, 16 trees": ChowLiuDensity(n_components=16),
    "StrudelDensity": StrudelDensity(),
    "HiddenChowLiuDensity": HiddenChowLiuDensity(),
    "HiddenChowLiuDensity, 32": HiddenChowLiuDensity(n_latent_states=32),
}
PEERS = {"deeprob": "deeprob-kit LearnSPN", "spflow": "SPFlow HCLT, 16"}


def fit_ours(density, splits):
    """Seconds of the fit and test score."""
    density = density.set_params(random_state=0)
    arguments = {"X_val": splits["valid"]} if "validation_fraction" in density.get_params() else {}
    began = time.perf_counter()
    density.fit(splits["train"], **arguments)
    return time.perf_counter() - began, density.score(splits["test"])


def fit_peer(peer, path):
    """Seconds of the fit and test score, or None where the peer is not there."""
    python = os.environ.get("SKCIRCUITS_PEERS")
    if not python:
        return None
    script = Path(__file__).with_name("_learning_peers.py")
    done = subprocess.run([python, script, peer, path], capture_output=True, text=True)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1])
        return None
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return found["seconds"], found["score"]


def main():
    for name in sys.argv[1:] or ["nltcs", "plants"]:
        path = data_path("twenty", f"{name}.npz")
        with np.load(path) as archive:
            splits = {key: archive[key].astype(float) for key in ("train", "valid", "test")}
        print(f"{name:28s} seconds   test")
        for label, density in OURS.items():
            seconds, score = fit_ours(density, splits)
            print(f"{label:28s} {seconds:7.1f} {score:8.3f}", flush=True)
        for peer, label in PEERS.items():
            found = fit_peer(peer, path)
            line = "not installed (set SKCIRCUITS_PEERS)" if found is None else None
            print(f"{label:28s} {line or f'{found[0]:7.1f} {found[1]:8.3f}'}", flush=True)


if __name__ == "__main__":
    main()
