"""Tables that carry next to nothing: constants, copies, outliers, empty columns, two rows.

Every estimator refuses such a table with a word, or what it learned holds: no NaN, draws are
possible, missing values are imputed, pickles and the order of rows do not matter.
"""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import skcircuits
from tests.reliability.estimators import SMALL, answer, build

TABLES = sorted(set(SMALL) - {"BBISWeighter", "GraphicalSVGDSampler"})
COLUMNS = [
    lambda x, rng: x,
    lambda x, rng: 0.0 * x,
    lambda x, rng: 1e9 + x,
    lambda x, rng: 1e-12 * x,
    lambda x, rng: 1e12 * x,
    lambda x, rng: np.round(x),
    lambda x, rng: np.where(rng.random(len(x)) < 0.9, 0.0, x),
    lambda x, rng: np.exp(5 * x),
    lambda x, rng: x**9,
    lambda x, rng: np.append(np.zeros(len(x) - 1), 1e8),
    lambda x, rng: np.arange(len(x)),
    lambda x, rng: x > 1.5,
    lambda x, rng: np.where(x > 0, "yes", "no"),
    lambda x, rng: np.full(len(x), "only"),
    lambda x, rng: np.array([f"level {i}" for i in range(len(x))]),
]


def degenerate_table(rng):
    """A few rows of such columns, some of them copied, some with hardly a cell observed."""
    n_rows, n_columns = int(rng.choice([2, 3, 5, 10, 60])), int(rng.choice([1, 2, 3, 6]))
    columns = [COLUMNS[i] for i in rng.integers(len(COLUMNS), size=n_columns)]
    frame = pd.DataFrame(
        {f"c{j}": column(rng.normal(size=n_rows), rng) for j, column in enumerate(columns)}
    )
    if rng.random() < 0.3:
        frame["copy"] = frame["c0"]
    if rng.random() < 0.3:
        frame = pd.concat([frame, frame], ignore_index=True)
    missing = rng.random(frame.shape) < rng.choice([0.0, 0.1, 0.5, 0.9])
    return frame.astype(object).mask(missing).infer_objects() if missing.any() else frame


def check(name, seed):
    rng = np.random.default_rng(seed)
    model, (X, *y) = build(name)[0], (degenerate_table(rng),)
    if name.startswith("Expected"):
        y = [rng.integers(2, size=len(X)) if "Classifier" in name else rng.normal(size=len(X))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(X, *y)
        except ValueError as error:
            assert len(str(error)) > 20
            return
        if name == "CircuitImputer":
            check_filled(model, X)
            return
        found = answer(model, X)
        assert not np.isnan(found).any() and not np.isposinf(found).any()
        assert_array_equal(answer(pickle.loads(pickle.dumps(model)), X), found)
        assert_allclose(answer(model, X[::-1])[::-1], found, rtol=1e-8, atol=1e-8)
        if name.endswith("Density"):
            check_draws(model, X)


def check_filled(model, X):
    filled = model.set_output(transform="pandas").transform(X)
    own = X[filled.columns]  # columns without a value are left out
    assert not filled.isna().any(axis=None)
    known = own.notna().to_numpy()
    assert_array_equal(filled.to_numpy(dtype=object)[known], own.to_numpy(dtype=object)[known])


def check_draws(model, X):
    # Columns whose categories nobody knows stay unknown
    known = [c for c in X if X[c].notna().any() or X[c].dtype.kind == "f"]
    drawn, best = model.sample(7, random_state=0), model.mpe(X)
    assert (model.score_samples(drawn) > -np.inf).all()
    for rows in (drawn, best):
        assert not rows[known].isna().any(axis=None)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_many(name, tally):
    for seed in tally.seeds(30, f"degenerate {name}"):
        tally.check(f"check({name!r}, {seed})", check, name, seed)


@pytest.mark.parametrize("name", ["ChowLiuDensity", "StrudelDensity"])
def test_a_few(name, tally):
    for seed in tally.seeds(10, f"degenerate {name}"):
        tally.check(f"check({name!r}, {seed})", check, name, seed)


def test_every_density_is_tried():
    assert {name for name in skcircuits.__all__ if name.endswith("Density")} <= set(TABLES)
