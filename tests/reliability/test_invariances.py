"""What must not matter does not: order of rows, batches, memory, processes, repetition."""

import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal

from tests.reliability.estimators import SMALL, answer, build

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
