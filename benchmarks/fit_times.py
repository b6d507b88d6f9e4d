"""Fit times and test log-likelihoods beside deeprob-kit and SPFlow.

Peers run in the interpreter named by ``$SKCIRCUITS_PEERS`` (a Python that has deeprob-kit and
spflow)::

    SKCIRCUITS_PEERS=/path/to/python python -m benchmarks.fit_times nltcs plants

Wall-clock and processor seconds (which depend little on other processes), and nats per test row.
The validation split is used only to choose among our models.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from _data import data_path

from skcircuits import ChowLiuDensity, HiddenChowLiuDensity, StrudelDensity

OURS = {
    "ChowLiuDensity": ChowLiuDensity(),
    "ChowLiuDensity, 16 trees": ChowLiuDensity(n_components=16),
    "StrudelDensity": StrudelDensity(),
    "HiddenChowLiu, 12, 15 passes": HiddenChowLiuDensity(n_latent_states=12, max_iter=15),
    "HiddenChowLiu, 16, 40 passes": HiddenChowLiuDensity(n_latent_states=16, max_iter=40),
    "HiddenChowLiuDensity": HiddenChowLiuDensity(),
    "HiddenChowLiuDensity, 32": HiddenChowLiuDensity(n_latent_states=32),
}
PEERS = {"deeprob": "deeprob-kit LearnSPN", "spflow": "SPFlow HCLT, 16"}


def fit_ours(density, splits):
    """Wall-clock and processor seconds of the fit, and the test score."""
    density = density.set_params(random_state=0)
    arguments = {"X_val": splits["valid"]} if "validation_fraction" in density.get_params() else {}
    began = time.perf_counter(), time.process_time()
    density.fit(splits["train"], **arguments)
    seconds = time.perf_counter() - began[0], time.process_time() - began[1]
    return *seconds, density.score(splits["test"])


def fit_peer(peer, path):
    """The same of a peer, or None where it is not there."""
    python = os.environ.get("SKCIRCUITS_PEERS")
    if not python:
        return None
    script = Path(__file__).with_name("_learning_peers.py")
    done = subprocess.run([python, script, peer, path], capture_output=True, text=True)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1])
        return None
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return found["wall"], found["processor"], found["score"]


def line_of(found):
    """Seconds and score as columns."""
    wall, processor, score = found
    return f"{wall:7.1f} {processor:6.1f} {score:8.3f}"


def main():
    for name in sys.argv[1:] or ["nltcs", "plants"]:
        path = data_path("twenty", f"{name}.npz")
        with np.load(path) as archive:
            splits = {key: archive[key].astype(float) for key in ("train", "valid", "test")}
        print(f"{name:28s}    wall    cpu     test")
        for label, density in OURS.items():
            print(f"{label:28s} {line_of(fit_ours(density, splits))}", flush=True)
        for peer, label in PEERS.items():
            found = fit_peer(peer, path)
            line = "not installed (set SKCIRCUITS_PEERS)" if found is None else line_of(found)
            print(f"{label:28s} {line}", flush=True)


if __name__ == "__main__":
    main()
