"""Small settings of every public estimator, and tables to fit them on."""

import numpy as np
import pandas as pd

import skcircuits
from skcircuits.graphical import IsingModel

SMALL = {
    "AutomaticDensity": {"families": ["gaussian_mixture"]},
    "ChowLiuDensity": {},
    "ContinuousMixtureDensity": {"n_components": 4, "max_iter": 5},
    # Kinds of mixtures are chosen by the others
    "GaussianMixtureDensity": {"n_components": 2, "covariance_type": "full"},
    "HiddenChowLiuDensity": {"n_latent_states": 3},
    "StackingDensity": {
        "estimators": [
            ("tree", skcircuits.ChowLiuDensity()),
            ("trees", skcircuits.ChowLiuDensity(n_components=2)),
        ]
    },
    "StrudelDensity": {"max_iter": 5},
    "MoATDensity": {"max_iter": 3},
    "WMISPNDensity": {},
    "CircuitImputer": {"density": "gaussian_mixture"},
    "ExpectedPredictionSVR": {"density": "gaussian_mixture"},
    "ExpectedPredictionRegressor": {"density": "gaussian_mixture"},
    "ExpectedPredictionClassifier": {"density": "gaussian_mixture"},
    "BBISWeighter": {"target": IsingModel.grid(2, 2, couplings=0.3)},
    "GraphicalSVGDSampler": {"n_particles": 12, "max_iter": 15},
}


def table(n_rows=60, seed=0):
    """A mixed table with missing cells."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n_rows)
    frame = pd.DataFrame(
        {
            "a": (base + 0.5 * rng.normal(size=n_rows)).round(1),
            "b": (base - 0.5 * rng.normal(size=n_rows)).round(1),
            "c": np.where(base + 0.3 * rng.normal(size=n_rows) > 0, "yes", "no"),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.1)


def build(name, **options):
    """The estimator, and what its fit takes."""
    model = getattr(skcircuits, name)(**{**SMALL[name], **options})
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    X, rng = table(), np.random.default_rng(1)
    if name == "BBISWeighter":
        return model, (rng.integers(2, size=(40, 4)).astype(float),)
    if name == "GraphicalSVGDSampler":
        return model, (rng.normal(size=(60, 3)),)
    if name == "ExpectedPredictionClassifier":
        return model, (X, rng.integers(2, size=len(X)))
    if name.startswith("Expected"):
        return model, (X[["a", "b"]], X["a"].fillna(0.0) + rng.normal(size=len(X)))
    return model, (X,)


def answer(model, X):
    """Numbers that say what was learned."""
    for method in ("predict_proba", "predict", "score_samples", "transform"):
        if hasattr(model, method) and not (method == "transform" and hasattr(model, "weights_")):
            result = getattr(model, method)(X)
            numbers = pd.DataFrame(result).replace({"no": "0", "yes": "1"})
            return numbers.to_numpy(dtype=float)
    return np.asarray(model.weights_)
