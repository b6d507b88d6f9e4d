"""
Four models with increasing numbers of missing values
=====================================================

A linear model, a support vector machine, a forest and gradient boosting were trained on complete
rows. Cells of the test rows are missing completely at random. For each model, expected predictions
are compared with predictions after iterative and after mean imputation, and for boosting also with
its native support for missing values. The density is given, so that expectations are not stacked
with other models. All methods have the same masks; bands show the spread over three splits.
"""

# %%
# Models and methods
# ------------------
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from skcircuits import ExpectedPredictionClassifier, GaussianMixtureDensity

X, y = load_breast_cancer(return_X_y=True)
X = X[:, :10]
models = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "support vector machine": make_pipeline(
        StandardScaler(), CalibratedClassifierCV(SVC(), ensemble=False)
    ),
    "random forest": RandomForestClassifier(50, min_samples_leaf=3, random_state=0),
    "gradient boosting": HistGradientBoostingClassifier(max_iter=50, random_state=0),
}
RATES = (0.1, 0.3, 0.5, 0.7)


def losses(model, seed):
    """Log loss of every method at every rate."""
    train, test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=seed)
    density = GaussianMixtureDensity(n_components=4, random_state=0)
    expected = ExpectedPredictionClassifier(clone(model), density=density, tol=0.1, random_state=0)
    expected.fit(train, y_train)
    base = expected.estimator_
    imputers = {
        "iterative imputation": IterativeImputer(random_state=0),
        "mean imputation": SimpleImputer(),
    }
    for imputer in imputers.values():
        imputer.fit(train)
    for rate in RATES:
        rows = np.where(np.random.default_rng(seed).random(test.shape) < rate, np.nan, test)
        answers = {"expected prediction": expected.predict_proba(rows)}
        answers |= {n: base.predict_proba(i.transform(rows)) for n, i in imputers.items()}
        if isinstance(base, HistGradientBoostingClassifier):
            answers["native missing values"] = base.predict_proba(rows)
        yield {"missing": 100 * rate, **{n: log_loss(y_test, p) for n, p in answers.items()}}


# %%
# Curves
# ------
# Models treat imputed cells like measured ones. The more cells are missing, the larger is the loss.
figure, axes = plt.subplots(2, 2, figsize=(9.5, 7), sharex=True, layout="constrained")
for ax, (title, model) in zip(axes.flat, models.items()):
    table = pd.DataFrame([line for seed in range(3) for line in losses(model, seed)])
    means, spreads = table.groupby("missing").mean(), table.groupby("missing").std()
    for name, marker in zip(means, "os^D"):
        ax.plot(means.index, means[name], marker=marker, label=name)
        lower, upper = means[name] - spreads[name], means[name] + spreads[name]
        ax.fill_between(means.index, lower, upper, alpha=0.15)
    ax.set(title=title, xlabel="missing cells (%)", ylabel="log loss (nats)")
    ax.legend()
plt.show()
