"""
Calibration of classifiers on rows with missing values
======================================================

Half of the cells of every test row are missing. If values are missing at random and the forest is
right about complete rows, the expected probability of a class *is* its probability given the
observed cells (stacking corrects errors of the forest). The probability that a forest predicts
after imputation is a different quantity. The curves compare predicted probabilities with
frequencies.
"""

# %%
# Three treatments of the missing values of the same test rows
# ------------------------------------------------------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.metrics import brier_score_loss
from sklearn.model_selection import StratifiedKFold

from skcircuits import ExpectedPredictionClassifier

X, y = load_breast_cancer(return_X_y=True)
X = X[:, :10]
rng = np.random.default_rng(0)
probabilities = {
    "expected prediction": np.empty(len(y)),
    "iterative imputation": np.empty(len(y)),
    "mean imputation": np.empty(len(y)),
}
for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(X, y):
    rows = np.where(rng.random(X[test].shape) < 0.5, np.nan, X[test])
    forest = RandomForestClassifier(100, min_samples_leaf=3, random_state=0)
    model = ExpectedPredictionClassifier(forest, tol=0.05, random_state=0).fit(X[train], y[train])
    probabilities["expected prediction"][test] = model.predict_proba(rows)[:, 1]
    for name, imputer in [
        ("iterative imputation", IterativeImputer(random_state=0)),
        ("mean imputation", SimpleImputer()),
    ]:
        filled = imputer.fit(X[train]).transform(rows)
        probabilities[name][test] = model.estimator_.predict_proba(filled)[:, 1]

# %%
# Reliability curves
# ------------------
figure, ax = plt.subplots(figsize=(6, 5), layout="constrained")
for (name, p), marker in zip(probabilities.items(), "os^"):
    label = f"{name}, Brier score {brier_score_loss(y, p):.3f}"
    CalibrationDisplay.from_predictions(
        y, p, n_bins=6, strategy="quantile", name=label, ax=ax, marker=marker
    )
ax.legend(loc="upper left")
ax.set(xlabel="predicted probability of a benign tumour", ylabel="fraction that is benign")
plt.show()
