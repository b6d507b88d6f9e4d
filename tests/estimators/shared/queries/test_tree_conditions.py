"""Mixtures of all trees under conditions: against probabilities, which are sums over all states."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from skcircuits import MoATDensity
from skcircuits.exceptions import CircuitPropertyError


@pytest.fixture(scope="module")
def density():
    rng = np.random.default_rng(0)
    job, n = rng.choice(["cook", "nurse", "pilot"], 300), 300
    table = pd.DataFrame(
        {"job": job, "k": rng.integers(0, 3, n) + (job == "cook"), "z": rng.normal(size=n)}
    )
    table["z"] += table.k
    return MoATDensity(max_iter=2, random_state=0).fit(table)


# Boxes, rows and points; the interval of z cuts bins
CONDITIONS = ["k >= 1 and -0.3 < z < 1.1", "job != 'cook'", {"z": 0.5}, "k == 2 or z < 0"]


@pytest.mark.parametrize("given", CONDITIONS, ids=str)
def test_moments_and_draws_agree_with_probabilities(density, given):
    means = density.expectation(given=given, columns=["job", "k", "z"])
    jobs = {name: f"job == '{name}'" for name in ("cook", "nurse", "pilot")}
    for name, query in jobs.items():
        expected = density.probability(query, given=given)
        assert means[f"job_{name}"][0] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    chances = density.probabilities([{"k": value} for value in range(4)], given=given)
    assert means["k"][0] == pytest.approx(chances @ np.arange(4), rel=1e-9)
    drawn = density.sample(4000, random_state=0, given=given)
    error = drawn.z.std() / np.sqrt(len(drawn))
    assert abs(drawn.z.mean() - means["z"][0]) < 4 * error + 1e-12
    assert abs((drawn.job == "cook").mean() - means["job_cook"][0]) < 0.035
    if isinstance(given, str):
        assert len(drawn.query(given)) == len(drawn)
        median = density.quantile(0.5, "z", given=given)
        assert density.probability(f"z <= {median}", given=given) == pytest.approx(0.5, abs=1e-6)


def test_what_trees_cannot_answer_names_the_way_out(density):
    with pytest.raises(CircuitPropertyError, match="of draws"):
        density.covariance(given="k >= 1")
    with pytest.raises(CircuitPropertyError, match="method='estimate'"):
        density.expectation(given="count(k > 1, z > 0) == 1")
    with pytest.raises(CircuitPropertyError, match=r"mpe\(given"):
        density.marginal(["k", "z"], given="k >= 1").mpe()


BEST = [*CONDITIONS, "k == 1 and z > 1 or job == 'pilot'", {"job": ["cook", "nurse"]}, None]


@pytest.mark.parametrize("given", BEST, ids=str)
def test_most_probable_rows_are_the_highest_of_all(density, given):
    best = density.mpe(given=given)
    edges = density.bin_edges_[2]
    # The density is uniform in bins: their parts on both sides of all bounds stand for all rows
    ends = np.unique(np.concatenate([edges, [-0.3, 1.1, 0.0, 1.0, 0.5]]))
    middles = np.append((ends[:-1] + ends[1:]) / 2, 0.5)
    rows = pd.DataFrame(
        product(["cook", "nurse", "pilot"], range(4), middles), columns=["job", "k", "z"]
    )
    if isinstance(given, str):
        rows = rows.query(given)
        assert len(best.query(given)) == 1
    elif given is not None and "z" in given:
        rows = rows[rows.z == given["z"]]
    elif given is not None:
        rows = rows[rows.job.isin(given["job"])]
    highest = density.score_samples(rows).max()
    assert density.score_samples(best)[0] == pytest.approx(highest, abs=1e-12)


def test_most_probable_rows_of_many_conditions(density):
    given = pd.DataFrame({"job": ["cook", None], "z": [np.nan, 1.3]}, index=["a", "b"])
    best = density.mpe(given)
    assert best.index.tolist() == ["a", "b"] and best.z["b"] == 1.3 and best.job["a"] == "cook"
    row = density.mpe({"z": 1.3})
    pd.testing.assert_frame_equal(best.loc[["b"]].reset_index(drop=True), row)
    with pytest.raises(ValueError, match="n_starts"):
        density.mpe(n_starts=0)
