"""What an installed wheel must do with its declared dependencies alone: `make dist` runs it."""

import importlib.metadata
import warnings

import numpy as np
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import skcircuits
from skcircuits.circuits import Bernoulli, Circuit
from skcircuits.stein import simplex_weights


def main():
    files = [str(file) for file in importlib.metadata.files("skcircuits")]
    assert not [f for f in files if f.startswith(("tests/", "doc/", "benchmarks/", "examples/"))]
    assert "skcircuits/py.typed" in files
    X, y = load_iris(return_X_y=True)
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        completed = skcircuits.CircuitImputer(random_state=0).fit_transform(X)
        model = skcircuits.ExpectedPredictionClassifier(LogisticRegression(max_iter=1000))
        probabilities = model.fit(X, y).predict_proba(X)
    assert np.isfinite(completed).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.exp(Circuit(Bernoulli(0, 0.3)).log_prob([[1.0]])), 0.3)
    np.testing.assert_allclose(simplex_weights(np.diag([1.0, 1.0])), 0.5, atol=1e-6)
    skcircuits.show_versions()


if __name__ == "__main__":
    main()
