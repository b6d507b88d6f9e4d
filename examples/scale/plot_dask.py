"""
The same fit on threads, processes and Dask
===========================================

All parallel work uses joblib, so that a context manager around a call determines where it runs.
Work is divided into tasks that do not depend on the number of workers, so that results are
identical to the last bit with every backend.
"""

# %%
# A grid search and a Gram matrix
# -------------------------------
# The cluster of this example runs in this process; `Client("scheduler:8786")` connects to a cluster
# of many machines.
import time

import joblib
import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import scale

from skcircuits import GaussianMixtureDensity
from skcircuits.kernels import RBF, expected_kernel_matrix

X = scale(load_breast_cancer().data[:, :6])
X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
density = GaussianMixtureDensity(n_components=3, covariance_type="full", random_state=0).fit(X)


def search(X, n_jobs):
    """Choose a density by cross-validation."""
    grid = {"n_components": [1, 3], "covariance_type": ["full", "tied"]}
    model = GridSearchCV(GaussianMixtureDensity(random_state=0), grid, cv=3, n_jobs=n_jobs).fit(X)
    return model.cv_results_["mean_test_score"]


def gram(X, n_jobs):
    """Exact kernels between incomplete rows."""
    return expected_kernel_matrix(X, circuit=density.circuit_, kernel=RBF(0.1), n_jobs=n_jobs)


# %%
# Three backends
# --------------
client = Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None)
seconds, answers = {}, {}
for backend, n_jobs in [("one thread", None), ("processes", 2), ("Dask", 2)]:
    name = {"one thread": "sequential", "processes": "loky", "Dask": "dask"}[backend]
    with joblib.parallel_config(backend=name):
        for task in (search, gram):
            task(X[:60], n_jobs)  # workers start, and load what they need
            start = time.perf_counter()
            answers[backend, task.__name__] = task(X, n_jobs)
            seconds[backend, task.__name__] = time.perf_counter() - start
client.close()
for (backend, task), answer in answers.items():
    print(f"{backend:10s} {task:6s} equal: {np.array_equal(answer, answers['one thread', task])}")

# %%
# Sending a task takes some ten milliseconds, so that work of less than a second is faster locally.
# Times were measured on the machine that built this page.
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
places = np.arange(3)
for shift, task in ((-0.2, "search"), (0.2, "gram")):
    bars = [seconds[backend, task] for backend in ("one thread", "processes", "Dask")]
    label = {"search": "grid search, 12 fits", "gram": "Gram matrix, 569 rows"}[task]
    ax.barh(places + shift, bars, height=0.35, label=label)
ax.set_yticks(places, ["one thread", "two processes", "Dask, two workers"])
ax.set(xlabel="seconds on the wall, workers running")
ax.legend()
plt.show()
