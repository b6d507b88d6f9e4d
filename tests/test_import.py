"""What importing the package costs."""

import os
import subprocess
import sys

import pytest

import skcircuits


def cpu_seconds(statement):
    """Least processor time of three fresh interpreters that run a statement."""
    program = f"import time\n{statement}\nprint(time.process_time())"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            env=environment,
            text=True,
        )
        for _ in range(3)
    ]
    return min(float(run.stdout) for run in runs)


def test_names_are_loaded_when_they_are_asked_for():
    program = "import skcircuits, sys; print('sklearn' in sys.modules, 'numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == ["False", "False"], run.stderr
    assert {*skcircuits.__all__, "circuits", "kernels", "stein"} <= set(dir(skcircuits))
    for name in dir(skcircuits):
        assert getattr(skcircuits, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'CircuitImpute'"):
        skcircuits.CircuitImpute  # noqa: B018


@pytest.mark.slow
def test_the_import_of_estimators_costs_little_beside_scikit_learn(tmp_path, monkeypatch):
    # Byte code as an installed package has it
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    peer = cpu_seconds("import sklearn.svm, sklearn.mixture")
    assert cpu_seconds("import skcircuits") <= 1.3 * peer
    # An estimator brings all others and the base models they recognise
    assert cpu_seconds("from skcircuits import CircuitImputer") <= 1.5 * peer
