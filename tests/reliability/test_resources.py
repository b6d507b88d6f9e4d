"""Too little memory: an answer in smaller batches, or a MemoryError; never a crash."""

import contextlib
import resource
import time
import warnings

import numpy as np
import pandas as pd
import pytest

# Modules are loaded before memory is limited: libraries cannot be mapped later
import skcircuits
from skcircuits import ChowLiuDensity, CircuitImputer, GaussianMixtureDensity
from skcircuits.estimators._base import MEMORY_ADVICE
from skcircuits.graphical import IsingModel
from tests.reference.random_circuits import random_circuit
from tests.reliability.child import run_limited
from tests.reliability.estimators import SMALL, answer, build
from tests.reliability.public_callables import mixed_circuit

FITTED = [ChowLiuDensity, GaussianMixtureDensity, CircuitImputer]


def score_many_rows():
    circuit = random_circuit(4)
    X = np.tile(circuit.sample(1000, random_state=0), (300, 1))
    assert np.isfinite(circuit.log_prob(X)).all()
    print("done")


def fit_under_pressure(name):
    warnings.simplefilter("ignore")
    model, data = build(name)
    try:
        model.fit(*data)
    except MemoryError as error:
        assert MEMORY_ADVICE in error.__notes__
    else:
        with contextlib.suppress(MemoryError):
            answer(model, data[0])
    print("done")


def numbers_of(found):
    """What a method gives, as numbers."""
    return pd.DataFrame(found).replace({"no": "0", "yes": "1"}).to_numpy(dtype=float)


def answer_a_million_rows(name, method):
    """What a fit of few rows answers about 10^6, in chunks of the working memory."""
    warnings.simplefilter("ignore")
    model, data = build(name)
    X = data[0]
    model.fit(*data)
    ask = getattr(model, method)
    few = numbers_of(ask(X))
    n_copies = -(-(10**6) // len(X))
    rows = np.tile(X, (n_copies, 1)) if isinstance(X, np.ndarray) else pd.concat([X] * n_copies)
    # Equal rows would be answered once
    noise = 0.1 * np.random.default_rng(0).normal(size=len(rows))
    noise[-len(X) :] = 0.0
    if isinstance(X, np.ndarray) and name != "BBISWeighter":
        rows[:, 0] += noise
    elif not isinstance(X, np.ndarray):
        rows = rows.assign(a=rows["a"] + noise)
    start = time.process_time()
    many = ask(rows)
    assert len(many) >= 10**6
    np.testing.assert_allclose(numbers_of(many[-len(X) :]), few, rtol=1e-9, atol=1e-9)
    tell(f"{name}.{method}", start)


def ask_a_circuit_about_a_million_rows(method):
    """Queries of a mixed circuit about 10^6 rows, most of them distinct, with missing cells."""
    circuit = mixed_circuit()
    few = circuit.sample(1000, random_state=0)
    rows = np.tile(few, (1000, 1))
    rng = np.random.default_rng(0)
    rows[:-1000, 1] += rng.normal(size=len(rows) - 1000)
    rows[rng.random(rows.shape) < 0.3] = np.nan
    start = time.process_time()
    if method == "log_prob_box":
        many, alone = (circuit.log_prob_box(x - 0.5, x + 0.5) for x in (rows, rows[-100:]))
    else:
        many, alone = getattr(circuit, method)(rows), getattr(circuit, method)(rows[-100:])
    if method == "marginals":
        many, alone = many[0], alone[0]
    assert len(many) == len(rows)
    np.testing.assert_allclose(many[-100:], alone, rtol=1e-10, atol=1e-12)
    tell(method, start)


def tell(name, start):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{name}: {time.process_time() - start:.1f} s, peak {peak} MiB")
    print("done")


def infer_under_pressure():
    model = IsingModel.grid(22, 22, couplings=0.1)
    try:
        model.log_partition()
    except MemoryError as error:
        print(str(error)[:60])
    print("done")


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", [400, 1500])
@pytest.mark.parametrize("function", ["score_many_rows", "infer_under_pressure"])
def test_large_questions_in_little_memory(function, mebibytes):
    code, output = run_limited(__name__, function, mebibytes=mebibytes, seconds=100)
    assert code == 0, output[-1500:]
    assert "done" in output


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", [30, 60, 120])
@pytest.mark.parametrize("name", [one.__name__ for one in FITTED])
def test_fits_in_little_memory(name, mebibytes):
    code, output = run_limited(
        __name__, "fit_under_pressure", name, mebibytes=mebibytes, seconds=200
    )
    assert code == 0, output[-1500:]
    assert "done" in output


CLASSIFIER = "ExpectedPredictionClassifier"
LEFT_OUT = {
    (CLASSIFIER, "predict"),  # the largest of the probabilities
    ("BBISWeighter", "transform"),  # weights belong to the whole sample
    ("ContinuousMixtureDensity", "mpe"),  # a search for each row: minutes
    ("WMISPNDensity", "mpe"),
}
PER_ROW = [
    *(
        (name, method)
        for name in sorted(SMALL)
        for method in ("predict_proba", "predict", "score_samples", "transform", "mpe")
        if hasattr(getattr(skcircuits, name), method) and (name, method) not in LEFT_OUT
    ),
    (CLASSIFIER, "decision_function"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method"), PER_ROW)
def test_a_million_rows_in_bounded_memory(name, method):
    """Whatever the rows, temporary arrays stay within scikit-learn's working memory."""
    seconds = 120 if method in ("predict", "score_samples", "transform") else 240
    code, output = run_limited(
        __name__, "answer_a_million_rows", name, method, mebibytes=3000, seconds=seconds
    )
    assert code == 0, output[-1500:]
    assert "done" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["log_prob", "log_prob_box", "expectation", "variance", "marginals"]
)
def test_a_circuit_and_a_million_rows(method):
    code, output = run_limited(
        __name__, "ask_a_circuit_about_a_million_rows", method, mebibytes=2000, seconds=120
    )
    assert code == 0, output[-1500:]
    assert "done" in output
