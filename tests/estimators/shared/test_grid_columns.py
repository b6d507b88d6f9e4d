"""Columns that were recorded on a grid: probability at its points, and nowhere else to speak of."""

import numpy as np
import pandas as pd
import pytest

from skcircuits import HiddenChowLiuDensity, WMISPNDensity

POINTS = np.round(np.arange(31) * 0.05, 2)


@pytest.fixture(
    scope="module",
    params=[WMISPNDensity(), HiddenChowLiuDensity(n_latent_states=4, max_iter=8, random_state=0)],
    ids=lambda density: type(density).__name__,
)
def fitted(request):
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=2000)
    length = np.clip(np.round((0.5 + 0.5 * kind + rng.normal(0.0, 0.15, 2000)) / 0.05), 0, 30)
    # Odd points are rare, as where people round
    length -= (length % 2 == 1) & (rng.random(2000) < 0.8)
    table = pd.DataFrame(
        {"length": POINTS[length.astype(int)], "kind": np.where(kind, "long", "short")}
    )
    return table, request.param.fit(table)


def test_draws_are_points_of_the_grid(fitted):
    table, density = fitted
    drawn = density.sample(2000, random_state=0)["length"]
    # The rest that new numbers have is of the order of one row
    assert np.isin(drawn, POINTS).mean() > 0.99
    odd = np.isin(table["length"], POINTS[1::2]).mean()
    assert np.isin(drawn, POINTS[1::2]).mean() == pytest.approx(odd, abs=0.03)


def test_scores_are_log_probabilities_of_points(fitted):
    table, density = fitted
    point = table["length"].iloc[0]
    # Beyond the greatest number that fit has seen there is density
    points = POINTS[table["length"].max() >= POINTS]
    rows = pd.DataFrame({"length": points, "kind": [None] * len(points)})
    masses = np.exp(density.score_samples(rows))
    assert 0.99 < masses.sum() <= 1.0
    at = int(np.flatnonzero(point == points)[0])
    assert density.probability({"length": [point, point]}) == pytest.approx(masses[at])
    below = density.probability(f"length < {point}")
    assert density.probability(f"length <= {point}") - below == pytest.approx(masses[at])
    assert density.probability("length < .52") == pytest.approx(masses[:11].sum(), abs=2e-3)


def test_points_that_are_rare_everywhere_are_rare_in_each_kind(fitted):
    table, density = fitted
    odd = " or ".join(f"length == {point}" for point in POINTS[1::2])
    for kind in ("long", "short"):
        seen = np.isin(table["length"][table["kind"] == kind], POINTS[1::2]).mean()
        assert density.probability(odd, given={"kind": kind}) == pytest.approx(seen, abs=0.04)
