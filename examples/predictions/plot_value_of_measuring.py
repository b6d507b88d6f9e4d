"""
Which value to measure next
===========================

A forest was trained to distinguish malignant from benign tumours. Most measurements of new patients
are missing, and each measurement has a cost. How certain is the diagnosis, and which measurement
would reduce the uncertainty most?
"""

# %%
# The forest and the density
# --------------------------
# The meta-estimator trains the forest on the complete rows, and also learns the distribution of the
# rows.
# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skcircuits import ExpectedPredictionClassifier
from skcircuits.inspection import ExpectedPredictionDisplay

data = load_breast_cancer(as_frame=True)
X, y = data.data.iloc[:, :10], data.target_names[data.target]
X.columns = [name.removeprefix("mean ") for name in X]
X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
forest = RandomForestClassifier(min_samples_leaf=3, random_state=0)
model = ExpectedPredictionClassifier(forest, tol=0.05, random_state=0).fit(X, y)
print(model.method_)

# %%
# One patient
# -----------
# Values are hidden one after another, from left to right. As information is lost, the probability
# approaches the frequency of the class.
ExpectedPredictionDisplay.from_row(model, X_test.iloc[[3]])
plt.show()

# %%
# Four measurements
# -----------------
# `value_of_measuring` is the expected reduction of the entropy of the class by each missing value.
# Starting with only the texture of the tumour, it chooses the next four measurements of each of
# fifty patients, which are compared with random measurements.
start = X_test.iloc[:50].copy()
start.loc[:, start.columns != "texture"] = np.nan


def measure(rows, choose, n_steps=4):
    """Log loss after each further measurement."""
    rows, found = rows.copy(), []
    for step in range(n_steps + 1):
        found.append(log_loss(y_test[:50], model.predict_proba(rows)))
        if step < n_steps:
            scores = np.where(rows.isna(), choose(rows), -np.inf)
            columns = scores.argmax(axis=1)
            cells = np.arange(len(rows)), columns
            values = rows.to_numpy(copy=True)
            values[cells] = X_test.iloc[:50].to_numpy()[cells]
            rows = rows.__class__(values, columns=rows.columns)
    return found


chosen = measure(start, model.value_of_measuring)
rng = np.random.default_rng(0)
at_random = measure(start, lambda rows: rng.random(rows.shape))
ax = plt.subplots(layout="constrained")[1]
ax.plot(chosen, marker="o", label="by value of measuring")
ax.plot(at_random, marker="o", label="at random")
ax.set_xticks(range(5))
ax.set(xlabel="further measurements of each patient", ylabel="log loss (nats)")
ax.legend()
plt.show()
