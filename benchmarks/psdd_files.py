"""Published decision diagrams: mean log likelihoods beside those recorded with the data.

::

    python -m benchmarks.psdd_files
"""

import time

import numpy as np
from _data import data_path

from skcircuits.circuits import Circuit, is_deterministic, is_structured_decomposable

_RECORDED = {
    "abalone": (-9.085133006387, -9.560896268629),
    "delta-ailerons": (-9.317547175111, -9.512379675555),
    "elevators": (-27.169588713768, -27.156040927375),
    "insurance": (-9.711659566629, -10.528821127613),
}


def main():
    """Load the four diagrams, check them and print the largest difference."""
    for name, recorded in _RECORDED.items():
        start = time.process_time()
        circuit = Circuit.from_psdd(
            data_path("svr", f"{name}.psdd.gz"), data_path("svr", f"{name}.vtree")
        )
        spent = time.process_time() - start
        with np.load(data_path("svr", f"{name}.npz")) as archive:
            found = [circuit.log_prob(archive[f"X_{part}"]).mean() for part in ("train", "valid")]
        difference = np.abs(np.subtract(found, recorded)).max()
        properties = is_deterministic(circuit) and is_structured_decomposable(circuit)
        print(f"{name:15s} {circuit!r}")
        print(f"  loaded in {spent:.2f} s; deterministic and structured: {properties}")
        print(f"  mean log likelihoods {found[0]:.12f} {found[1]:.12f}, off by {difference:.1e}")


if __name__ == "__main__":
    main()
