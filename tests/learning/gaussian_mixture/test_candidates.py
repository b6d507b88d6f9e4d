import numpy as np
import pytest

from skcircuits import CircuitImputer
from skcircuits.learning.gaussian_mixture._candidates import is_wide
from skcircuits.learning.gaussian_mixture._table import MixtureTable


def table_of(n_rows, n_columns, fraction_missing=0.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    X[rng.random(X.shape) < fraction_missing] = np.nan
    return MixtureTable.prepare(X, np.zeros(n_columns, dtype=int))


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "fraction_missing", "expected"),
    [
        (3000, 40, 0.3, False),
        (300, 60, 0.3, False),
        (1000, 100, 0.0, False),
        (5000, 100, 0.3, True),
        (100, 300, 0.3, True),
    ],
)
def test_dense_covariances_are_tried_where_they_take_little_work(
    n_rows, n_columns, fraction_missing, expected
):
    assert is_wide(table_of(n_rows, n_columns, fraction_missing)) is expected


def test_clusters_of_many_columns_are_imputed_by_covariances_of_their_own():
    rng = np.random.default_rng(0)
    centers, loadings = rng.normal(size=(4, 45)), rng.normal(size=(4, 45, 5))
    cluster = rng.integers(4, size=700)
    factors = rng.normal(size=(700, 5))
    X = centers[cluster] + np.einsum("nde,ne->nd", loadings[cluster], factors)
    X += 0.3 * rng.normal(size=X.shape)
    test = X[400:]
    is_hidden = rng.random(test.shape) < 0.3
    imputed = (
        CircuitImputer(random_state=0).fit(X[:400]).transform(np.where(is_hidden, np.nan, test))
    )
    # .56 of the standard deviation with eight factors, which are the same in all clusters
    error = np.sqrt(np.mean(np.square(imputed - test)[is_hidden]))
    assert error < 0.3 * X.std()
