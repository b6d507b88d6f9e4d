"""A worker that dies: a clear error, or the result from another worker; the next call works."""

import os
import signal
from pathlib import Path

import joblib
import numpy as np
import pytest

from skcircuits.circuits import Circuit, MultivariateGaussian
from skcircuits.kernels import RBF, expected_kernel_matrix
from tests.reliability.child import run_limited


class FatalKernel(RBF):
    """Kills the process that evaluates it, until a file says that it did so before."""

    def __init__(self, main, seen):
        super().__init__(gamma=0.5)
        self.main, self.seen = main, seen

    def __call__(self, X, Y):
        if os.getpid() != self.main and not Path(self.seen).exists():
            Path(self.seen).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(X, Y)


def question(folder):
    """A Gram matrix in several tasks, without and with a kernel that kills a worker."""
    circuit = Circuit(MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]]))
    X = circuit.sample(2500, random_state=0)
    fatal = FatalKernel(os.getpid(), f"{folder}/seen")

    def ask(kernel, n_jobs=2):
        return expected_kernel_matrix(X, X[:3], circuit=circuit, kernel=kernel, n_jobs=n_jobs)

    return ask, fatal


def kill_a_loky_worker(folder):
    ask, fatal = question(folder)
    with joblib.parallel_config(backend="loky"):
        try:
            ask(fatal)
        except Exception as error:
            assert "worker" in str(error).lower(), error
        else:
            raise AssertionError("the kernel ran nowhere else")
        np.testing.assert_array_equal(ask(fatal), ask(RBF(gamma=0.5), n_jobs=1))
    print("equal")


def kill_a_dask_worker(folder):
    from dask.distributed import Client, LocalCluster

    ask, fatal = question(folder)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        try:
            ask(fatal)  # another worker takes over, unless the dead one held scattered arrays
        except Exception as error:
            assert type(error).__module__.startswith("distributed"), error
        np.testing.assert_array_equal(ask(fatal), ask(RBF(gamma=0.5), n_jobs=1))
    print("equal")


@pytest.mark.slow
@pytest.mark.parametrize("function", ["kill_a_loky_worker", "kill_a_dask_worker"])
def test_killed_workers(function, tmp_path):
    code, output = run_limited(__name__, function, tmp_path, mebibytes=8192, seconds=100)
    assert code == 0, output[-2000:]
    assert "equal" in output
    assert (tmp_path / "seen").exists()
