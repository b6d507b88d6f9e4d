"""Every density on every table of the benchmarks: what real learners make of real tables.

Random circuits do not have the shapes that learners give theirs. Each density is fitted small, then
scored whole and in batches, with and without missing cells, sampled and completed.
"""

import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import skcircuits
from tests.reference.enumeration import unit_values
from tests.reliability.estimators import SMALL

DATA = Path(os.environ.get("SKCIRCUITS_DATA", Path(__file__).parents[3] / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs the data of the benchmarks")
DENSITIES = [name for name in sorted(SMALL) if name.endswith("Density")]
N_TRAINING, N_TEST, MAX_COLUMNS = 200, 60, 24


def table_of(path):
    """Training and test rows of a file, of some of its columns."""
    if path.suffix == ".npz":
        parts = np.load(path)
        training, test = (
            (parts["train"], parts["test"])
            if "train" in parts
            else (parts["X_train"], parts["X_test"])
        )
        training, test = (pd.DataFrame(part.astype(float)) for part in (training, test))
    else:
        frame = pd.read_csv(path).sample(frac=1.0, random_state=0)
        frame = frame.drop(columns=frame.columns[frame.columns.str.contains("split")])
        training, test = frame[: len(frame) // 2], frame[len(frame) // 2 :]
    # The first columns of some are nearly constant
    columns = np.linspace(0, training.shape[1] - 1, min(training.shape[1], MAX_COLUMNS)).astype(int)
    training, test = training.iloc[:N_TRAINING, columns], test.iloc[:N_TEST, columns]
    return training.set_axis(map(str, columns), axis=1), test.set_axis(map(str, columns), axis=1)


def paths():
    kinds = [
        "twenty/*.npz",
        "hybrid/*.csv.gz",
        "missing/*.csv.gz",
        "svr/*_raw.csv.gz",
        "crowd/*.csv",
    ]
    models = [path for path in DATA.glob("svr/*.npz") if "model" not in path.name]
    return sorted([*models, *(path for kind in kinds for path in DATA.glob(kind))])


def check(name, path):
    training, test = table_of(path)
    model = getattr(skcircuits, name)(**SMALL[name], random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(training)
        rng = np.random.default_rng(0)
        for rows in (test, test.mask(rng.random(test.shape) < 0.3)):
            whole = model.score_samples(rows)
            assert not np.isnan(whole).any()
            parts = [model.score_samples(rows[:25]), model.score_samples(rows[25:])]
            assert_allclose(np.concatenate(parts), whole, rtol=1e-10, atol=1e-10)
            assert_allclose(model.score_samples(rows[:1]), whole[:1], rtol=1e-10, atol=1e-10)
        nothing = test[:1].mask(np.ones((1, test.shape[1]), dtype=bool))
        assert_allclose(model.score_samples(nothing), 0.0, atol=1e-6)
        assert not model.sample(20, random_state=0).isna().any(axis=None)
        possible = rows[~np.isneginf(whole)][:10]
        drawn = model.sample(2, X=possible, random_state=0)
        known = possible.notna().to_numpy()
        assert drawn.shape == (2, *possible.shape)
        cells = np.asarray(drawn, dtype=object)[1]
        assert_array_equal(cells[known], possible.to_numpy(dtype=object)[known])
        assert not pd.isna(cells).any()
    if hasattr(model, "circuit_"):
        drawn = model.circuit_.sample(3, random_state=0)
        with np.errstate(divide="ignore"):
            expected = np.log(unit_values(model.circuit_, drawn))
        assert_allclose(model.circuit_.log_prob(drawn), expected, rtol=1e-9, atol=1e-9)


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", DENSITIES)
def test_every_density_on_every_table(name, tally):
    for path in paths():
        tally.check(f"{name} on {path.parent.name}/{path.name}", check, name, path)


@needs_data
@pytest.mark.slow
def test_products_that_tables_put_out_are_kept(tally):
    parts = np.load(DATA / "twenty" / "jester.npz")
    model = skcircuits.StrudelDensity(n_components=4, max_iter=300, random_state=0)
    model.fit(parts["train"][:3000, :60])
    rows = parts["test"][:, :60]
    whole = model.score_samples(rows)
    assert np.isfinite(whole).all()
    assert_allclose(model.score_samples(rows[:500]), whole[:500], rtol=1e-12)
