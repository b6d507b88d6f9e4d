"""What must not matter does not: order, batches, memory, processes, threads, units, names."""

import copy
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal

from tests.reliability.estimators import SMALL, answer, build, table

QUICK = {"ChowLiuDensity", "GaussianMixtureDensity", "BBISWeighter"}
NAMES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(SMALL)
]


def fitted(name, **options):
    model, data = build(name, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*data), data[0]


def rows_of(X, index):
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


@pytest.mark.parametrize("name", NAMES)
def test_answers_do_not_depend_on_batches_order_or_memory(name):
    model, X = fitted(name)
    if name == "BBISWeighter":
        pytest.skip("weights belong to the whole sample")
    whole = answer(model, X)
    order = np.random.default_rng(0).permutation(len(X))
    assert_allclose(answer(model, rows_of(X, order)), whole[order], rtol=1e-9, atol=1e-9)
    alone = np.concatenate([answer(model, rows_of(X, [i])) for i in range(0, len(X), 10)])
    assert_allclose(alone, whole[::10], rtol=1e-9, atol=1e-9)
    twice = np.concatenate([np.arange(len(X)), np.arange(len(X))])
    assert_allclose(
        answer(model, rows_of(X, twice)), np.concatenate([whole, whole]), rtol=1e-9, atol=1e-9
    )
    with sklearn.config_context(working_memory=1):
        assert_allclose(answer(model, X), whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_fits_repeat_bit_by_bit(name):
    first, X = fitted(name)
    second, _ = fitted(name)
    assert_array_equal(answer(first, X), answer(second, X))
    if "n_jobs" in first.get_params():
        parallel, _ = fitted(name, n_jobs=2)
        assert_array_equal(answer(parallel, X), answer(first, X))


@pytest.mark.parametrize("name", NAMES)
def test_threads_may_share_an_estimator(name):
    model, X = fitted(name)
    alone = answer(copy.deepcopy(model), X)
    # Nobody asked this one before: the threads fill its caches
    with ThreadPoolExecutor(4) as pool:
        found = [one.result() for one in [pool.submit(answer, model, X) for _ in range(4)]]
    for one in found:
        assert_array_equal(one, alone)


# Predictors see folds of rows, and models that have units
LEARN_TABLES = [
    name if name == "ChowLiuDensity" else pytest.param(name, marks=pytest.mark.slow)
    for name in sorted(SMALL)
    if name.endswith(("Density", "Imputer"))
]


def learned(name, X, probe):
    """Fit a table and answer about another."""
    model = build(name)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return answer(model.fit(X), probe)


@pytest.mark.parametrize("name", LEARN_TABLES)
def test_the_order_of_training_rows_does_not_matter(name):
    X = table()
    order = np.random.default_rng(3).permutation(len(X))
    assert_allclose(learned(name, X.iloc[order], X), learned(name, X, X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LEARN_TABLES)
def test_a_row_of_weight_two_is_that_row_twice(name):
    X = table()
    weight = np.random.default_rng(4).integers(3, size=len(X)).astype(float)
    model = build(name)[0]
    if "n_components" in model.get_params():
        model.set_params(n_components=3)
    twice = X.iloc[np.repeat(np.arange(len(X)), weight.astype(int))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = answer(model.fit(X, sample_weight=weight), X)
        assert_allclose(found, answer(model.fit(twice), X), rtol=1e-9, atol=1e-9)


# Of these, all numbers of a column of few integers are states or point masses
STATES = {
    "AutomaticDensity": {"families": "all"},
    "GaussianMixtureDensity": {"n_components": 2, "point_masses": "frequent"},
}


@pytest.mark.parametrize(
    "name", [own for own in LEARN_TABLES if "Imputer" not in str(own)], ids=str
)
@pytest.mark.parametrize("as_array", [False, True])
def test_new_integers_divide_the_probability_of_new_states(name, as_array):
    rng = np.random.default_rng(5)
    level = rng.choice([0, 1, 2, 4], size=120)
    X = pd.DataFrame({"level": level, "x": level + rng.normal(size=120)})
    asked = pd.DataFrame({"level": np.arange(-100.0, 101.0), "x": np.nan})
    if as_array:
        X, asked = X.to_numpy(dtype=float), asked.to_numpy()
    model = build(name, **STATES.get(name, {}))[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mass = np.exp(model.fit(X).score_samples(asked))
    is_new = ~np.isin(np.arange(-100, 101), level)
    # A third of it lies among four numbers and one that is new
    assert 0.7 * 0.5 / 121 < mass[is_new].sum() < 0.5 / 121
    # Circuits know the one between them
    known = ~is_new
    known[100 + 3] = model.probability({0 if as_array else "level": (3, 3)}) > 0.0
    assert mass[known].sum() == pytest.approx(1.0, abs=1e-3)
    assert mass[is_new].max() < mass[~is_new].min()


@pytest.mark.parametrize("name", LEARN_TABLES)
@pytest.mark.parametrize("factor", [2.0**-40, 1024.0])
def test_units_do_not_matter(name, factor):
    # Powers of two: the cells are the same, bit by bit
    X, plain = table(), learned(name, table(), table())
    scaled = X.assign(a=X["a"] * factor)
    found = learned(name, scaled, scaled)
    if name == "CircuitImputer":
        found = found / [factor, 1.0, 1.0]
    else:
        found = found + np.where(X["a"].notna(), np.log(factor), 0.0)[:, None]
    assert_allclose(found, plain, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", LEARN_TABLES)
def test_origins_do_not_matter(name):
    X, plain = table(), learned(name, table(), table())
    shifted = X.assign(a=X["a"] + 64.0)
    found = learned(name, shifted, shifted)
    if name == "CircuitImputer":
        found = found - [64.0, 0.0, 0.0]
    assert_allclose(found, plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["ChowLiuDensity", "WMISPNDensity"])
@pytest.mark.parametrize("is_complete", [False, True])
def test_a_column_without_any_cell_does_not_matter(name, is_complete):
    """Elsewhere one more column is like another seed."""
    X = table().dropna() if is_complete else table()
    more = X.assign(d=np.nan)
    assert_allclose(learned(name, more, more), learned(name, X, X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LEARN_TABLES)
def test_names_do_not_matter(name):
    X = table()
    other = X.rename(columns={"a": "zz", "b": "q"})
    assert_array_equal(learned(name, other, other), learned(name, X, X))
    # Another order of the categories is like another order of columns
    words = X.assign(c=X["c"].map({"no": "A", "yes": "B"}))
    if name != "CircuitImputer":
        assert_array_equal(learned(name, words, words), learned(name, X, X))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CircuitImputer", "WMISPNDensity"])
def test_the_order_of_columns_does_not_matter(name):
    """Elsewhere random numbers belong to columns: another order is like another seed."""
    X = table()
    found = learned(name, X.iloc[:, ::-1], X.iloc[:, ::-1])
    assert_allclose(found, learned(name, X, X)[:, ::-1], rtol=1e-9, atol=1e-9)
