"""
Predicting from rows with missing cells
=======================================

A model was trained on complete rows; in production some cells are missing. How much does
the prediction suffer, and what is the best one can do without retraining?

We hide cells of the test rows completely at random and compare the exact expected
prediction with the same support vector regression after three imputers, and with gradient
boosting, which has its own way with missing values. All models see the same masks.

The dashed line is the constant E[f]: what is left to say when nothing is known.
"""

# %%
# The models
# ----------
import argparse
import time
from pathlib import Path

import matplotlib
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from skcircuits import ExpectedPredictionSVR

RATES = (0.1, 0.3, 0.5, 0.7, 0.9)
N_SEEDS = 5


def make_models():
    """One regression, four ways to meet missing cells, and a rival."""
    imputers = {
        "SimpleImputer + SVR": SimpleImputer(),
        "KNNImputer + SVR": KNNImputer(),
        "IterativeImputer + SVR": IterativeImputer(random_state=0),
    }
    models = {
        "ExpectedPredictionSVR": make_pipeline(
            StandardScaler(), ExpectedPredictionSVR(C=100, random_state=0)
        )
    }
    for name, imputer in imputers.items():
        models[name] = make_pipeline(StandardScaler(), imputer, SVR(C=100))
    models["HistGradientBoosting"] = HistGradientBoostingRegressor(random_state=0)
    return models


# %%
# The experiment
# --------------
# Errors and prediction times by model, missing rate and seed.


def run():
    """Root mean squared errors and seconds, shape (n_models, n_rates, n_seeds)."""
    X, y = load_diabetes(return_X_y=True)
    names = list(make_models())
    errors = np.empty((len(names), len(RATES), N_SEEDS))
    seconds = np.empty_like(errors)
    constants = np.empty((len(RATES), N_SEEDS))
    for seed in range(N_SEEDS):
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=seed)
        models = {name: model.fit(X_train, y_train) for name, model in make_models().items()}
        nothing = np.full((1, X.shape[1]), np.nan)
        constant = models["ExpectedPredictionSVR"].predict(nothing)
        for r, rate in enumerate(RATES):
            holes = np.random.default_rng(seed).random(X_test.shape) < rate
            X_holes = np.where(holes, np.nan, X_test)
            constants[r, seed] = root_mean_squared_error(y_test, np.repeat(constant, len(y_test)))
            for m, model in enumerate(models.values()):
                start = time.perf_counter()
                predicted = model.predict(X_holes)
                seconds[m, r, seed] = time.perf_counter() - start
                errors[m, r, seed] = root_mean_squared_error(y_test, predicted)
    return names, errors, seconds, constants


names, errors, seconds, constants = run()

# %%
# The table
# ---------
at = RATES.index(0.3)
print(f"diabetes, 30 % of the test cells missing, {N_SEEDS} seeds")
print(f"{'':24s}{'RMSE':>8s}{'predict':>12s}")
for name, error, second in zip(names, errors, seconds, strict=True):
    print(f"{name:24s}{np.mean(error[at]):8.2f}{1e3 * np.median(second[at]):9.1f} ms")
print(f"{'constant E[f]':24s}{np.mean(constants[at]):8.2f}")

# %%
# The picture
# -----------
arguments = argparse.ArgumentParser(description="Error against missing rate on the diabetes data")
arguments.add_argument("--output", type=Path, help="folder to write the picture to")
output = arguments.parse_known_args()[0].output
if output is not None:
    matplotlib.use("Agg")

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
for name, error in zip(names, errors, strict=True):
    ours = name == "ExpectedPredictionSVR"
    style = {"linewidth": 2.5, "color": "black", "zorder": 3} if ours else {"linewidth": 1.3}
    axes.plot(100 * np.array(RATES), error.mean(axis=1), marker="o", label=name, **style)
axes.axhline(constants.mean(), linestyle="--", color="gray", label="constant E[f]")
axes.set(xlabel="missing cells (%)", ylabel="RMSE", title="Diabetes: error against missing rate")
axes.legend(frameon=False, fontsize="small")
if output is None:
    plt.show()
else:
    output.mkdir(parents=True, exist_ok=True)
    figure.savefig(output / "missing_cells.png", dpi=120)
    print(f"\npicture: {output / 'missing_cells.png'}")
