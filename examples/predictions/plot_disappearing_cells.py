"""
Error bars of predictions as values go missing
==============================================

A forest was trained on complete records of the progression of diabetes. The cells of new records
are hidden one after another. The expected prediction averages the forest over the conditional
distribution of the missing cells, and has a standard deviation. Error bars grow as information is
lost, and the prediction approaches that of an unknown patient. To show the forest alone, its
expectation is not stacked with other models (``stacking=False``).
"""

# %%
# Learn
# -----
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from skcircuits import ExpectedPredictionRegressor

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
forest = RandomForestRegressor(min_samples_leaf=5, random_state=0)
model = ExpectedPredictionRegressor(forest, stacking=False, tol=0.05, random_state=0)
model.fit(X_train, y_train)

# %%
# Three patients
# --------------
# Cells are hidden from the least to the most important one.
order = np.argsort(model.estimator_.feature_importances_)
patients = X_test.iloc[np.argsort(model.predict(X_test))[[5, 66, 127]]]
records = patients.loc[patients.index.repeat(len(order) + 1)].reset_index(drop=True)
for step, column in enumerate(X.columns[order], start=1):
    records.loc[records.index % (len(order) + 1) >= step, column] = np.nan
means, stds = (a.reshape(3, -1) for a in model.predict(records, return_std=True))

# %%
# All patients
# ------------
# Cells are hidden at random in all test rows. For comparison, the same forest predicts after
# imputation.
rates = (0.1, 0.3, 0.5, 0.7, 0.9)
imputers = {
    "iterative imputation": IterativeImputer(random_state=0),
    "mean imputation": SimpleImputer(),
}
imputers = {n: i.set_output(transform="pandas").fit(X_train) for n, i in imputers.items()}
rng = np.random.default_rng(0)
errors = []
for rate in np.repeat(rates, 3):
    incomplete = X_test.mask(rng.random(X_test.shape) < rate)
    predictions = {"expected prediction": model.predict(incomplete)}
    for name, imputer in imputers.items():
        predictions[name] = model.estimator_.predict(imputer.transform(incomplete))
    losses = {name: root_mean_squared_error(y_test, p) for name, p in predictions.items()}
    errors.append({"missing": 100 * rate, **losses})
errors = pd.DataFrame(errors).groupby("missing").mean()

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
steps = np.arange(len(order) + 1)
for shift, name, mean, std in zip((-0.12, 0.0, 0.12), ("mild", "average", "severe"), means, stds):
    left.errorbar(steps + shift, mean, std, marker="o", capsize=3, label=name)
left.set_xticks(steps, ["nothing", *X.columns[order]], rotation=45, ha="right")
left.set(
    xlabel="hidden, from left to right", ylabel="predicted progression", title="Three patients"
)
left.set_ylim(top=350)
left.legend(title="patient", loc="upper center", ncols=3)
errors.plot(ax=right, style=["o-", "s-", "^-"])
right.set(xlabel="missing cells (%)", ylabel="RMSE of the progression", title="All test patients")
plt.show()
