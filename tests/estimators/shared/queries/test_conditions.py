"""Answers under conditions of all forms: against draws, against each other, and their labels."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.base import clone

from skcircuits import (
    ChowLiuDensity,
    CircuitImputer,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    MoATDensity,
    WMISPNDensity,
    col,
)
from skcircuits.exceptions import CircuitPropertyError, ZeroProbabilityError

N_DRAWS = 20_000
DENSITIES = {
    "gaussian": GaussianMixtureDensity(n_components=2, covariance_type="full", random_state=0),
    "polynomial": WMISPNDensity(),
    "tree": ChowLiuDensity(),
}
CONDITIONS = {
    "age < 40 and x > .5 and job != 'pilot'": lambda T: (
        (T.age < 40) & (T.x > 0.5) & (T.job != "pilot")
    ),
    "x > 1 or (y < -1 and member) or size >= 'M' and job in ('cook', 'pilot')": lambda T: (
        (T.x > 1) | ((T.y < -1) & T.member) | ((T["size"] >= "M") & T.job.isin(["cook", "pilot"]))
    ),
    "not (0 <= x <= 1) and age between 30 and 50": lambda T: (
        ~T.x.between(0, 1) & T.age.between(30, 50)
    ),
}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 800
    job = rng.choice(["cook", "nurse", "pilot"], n, p=[0.5, 0.3, 0.2])
    x = rng.normal(size=n) + (job == "nurse") * 2
    sizes = pd.Categorical(rng.choice(["S", "M", "L"], n), ["S", "M", "L"], ordered=True)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 60, n),
            "x": x,
            "y": 0.7 * x + rng.normal(size=n) * 0.5,
            "job": job,
            "member": rng.random(n) < 0.3 + 0.4 * (x > 0),
            "size": sizes,
        }
    )


@pytest.fixture(scope="module", params=DENSITIES)
def density(request, table):
    return DENSITIES[request.param].fit(table)


@pytest.fixture(scope="module", params=CONDITIONS)
def condition(request, density):
    drawn = density.sample(N_DRAWS, random_state=0)
    return request.param, drawn[CONDITIONS[request.param](drawn)]


def close(values, expected, deviations, n):
    """Whether values lie within four standard errors."""
    return (np.abs(np.asarray(values) - expected) <= 4 * np.asarray(deviations) / np.sqrt(n)).all()


def test_probabilities_and_moments(density, condition):
    text, kept = condition
    fraction = len(kept) / N_DRAWS
    assert close(density.probability(text), fraction, np.sqrt(fraction), N_DRAWS)
    names = ["x", "y", "age"]
    mean = density.expectation(text, columns=names)
    assert mean.columns.tolist() == names
    covariance = density.covariance(text, columns=names)
    assert covariance.index.tolist() == covariance.columns.tolist() == names
    deviations = np.sqrt(np.diag(covariance))
    # Integers are rounded in draws alone, which moves their means by less than a half
    assert close(mean.to_numpy()[0], kept[names].mean(), deviations * [1, 1, 1.5], len(kept))
    sampled = kept[names].cov().to_numpy()
    scale = deviations[:, None] * deviations
    assert (np.abs(sampled - covariance.to_numpy()) < 0.12 * scale + 1e-9).all()
    masses = density.expectation(text, columns="job")
    assert masses.columns.tolist() == ["job_cook", "job_nurse", "job_pilot"]
    for category in ("cook", "nurse", "pilot"):
        observed = (kept.job == category).mean()
        assert close(masses[f"job_{category}"][0], observed, 0.5, len(kept))
        one = density.probability({"job": category}, given=text)
        assert masses[f"job_{category}"][0] == pytest.approx(one, abs=1e-9)


def test_draws_under_a_condition(density, condition):
    text, kept = condition
    drawn = density.sample(2000, random_state=1, given=text)
    assert CONDITIONS[text](drawn).all()
    pd.testing.assert_series_equal(drawn.dtypes, kept.dtypes)
    for name in ("x", "y"):
        assert stats.ks_2samp(drawn[name], kept[name]).pvalue > 1e-4
    for name in ("job", "member", "size"):
        counts = pd.DataFrame(
            {"drawn": drawn[name].value_counts(), "kept": kept[name].value_counts()}
        )
        counts = counts.fillna(0)
        counts = counts[counts.sum(axis=1) > 0]
        if len(counts) > 1:
            assert stats.chi2_contingency(counts.T).pvalue > 1e-4
    pd.testing.assert_frame_equal(drawn, density.sample(2000, random_state=1, given=text))


@pytest.mark.parametrize("kind", [WMISPNDensity, HiddenChowLiuDensity])
def test_quantiles_end_on_point_masses_and_inside_the_mass(kind):
    rng = np.random.default_rng(0)
    z = rng.normal(size=400)
    x = np.where(rng.random(400) < 0.4, 0.0, np.where(rng.random(400) < 0.3, 3.7, z))
    density = kind(**({} if kind is WMISPNDensity else {"n_latent_states": 3, "random_state": 0}))
    density.fit(np.column_stack([x, z]))
    assert density.quantile([0.5, 0.88], 0).tolist() == [0.0, 3.7]
    assert density.marginal([0]).quantile(0.5, 0) == 0.0
    for how in ("central", "highest_density"):
        assert density.probability({0: tuple(density.interval(0.2, 0, kind=how))}) >= 0.2
    for column, level in ((0, 1.0 - 2e-16), (1, 1.0 - 2e-16)):
        highest = density.quantile([0.999, level], column)
        assert highest[1] >= highest[0]


def test_shortest_intervals_of_huge_integers():
    density = HiddenChowLiuDensity(n_latent_states=2, random_state=0).fit(np.full((5, 1), 1e100))
    low, high = density.interval(0.8, 0, kind="highest_density")
    assert low == high == pytest.approx(1e100)


@pytest.mark.parametrize("start", [10**14, 10**15, 9 * 10**15])
@pytest.mark.parametrize("model", [GaussianMixtureDensity(n_components=1), WMISPNDensity()])
def test_quantiles_of_far_integers_are_the_least(model, start):
    z = np.random.default_rng(0).normal(size=300)
    table = pd.DataFrame({"k": start + np.round(1000.0 * z).astype(int), "high": z > 0.5})
    density = clone(model).fit(table)
    levels = np.linspace(0.01, 0.99, 23)
    for given in (None, "high"):
        found = density.quantile(levels, "k", given)
        at_most = density.probabilities([col("k") <= k for k in found], given)
        below = density.probabilities([col("k") < k for k in found], given)
        assert (at_most >= levels - 1e-9).all()
        assert (below < levels).all()


def test_quantiles_and_intervals(density, table):
    given = {"job": "nurse"}
    levels = [0.1, 0.5, 0.9]
    quantiles = density.quantile(levels, "y", given)
    reached = [density.probability({"y": (None, q)}, given) for q in quantiles]
    np.testing.assert_allclose(reached, levels, atol=1e-10)
    assert density.quantile(0.5, "y", given) == pytest.approx(quantiles[1])
    age = density.quantile(0.3, "age", given)
    assert age == int(age)
    assert density.probability(col("age") <= age, given) >= 0.3 - 1e-9
    assert density.probability(col("age") < age, given) < 0.3
    central = density.interval(0.8, "y", given)
    np.testing.assert_allclose(central, quantiles[[0, 2]], rtol=1e-9)
    shortest = density.interval(0.8, "y", given, kind="highest_density")
    assert np.diff(shortest) <= np.diff(central) + 1e-12
    mass = density.probability({"y": tuple(shortest)}, given)
    assert mass == pytest.approx(0.8, abs=1e-9)
    for level in (0.1, 0.5, 0.9):  # integers: against all pairs of ends
        low, high = density.interval(level, "age", given, kind="highest_density")
        ages = np.arange(15, 66)
        reached = density.probabilities([{"age": (None, age)} for age in ages], given)
        enough = reached[None] - np.append(0, reached[:-1])[:, None] >= level - 1e-12
        lengths = np.where(enough, ages[None] - ages[:, None], np.inf)
        assert high - low == lengths.min()
        assert density.probability({"age": (low, high)}, given) >= level - 1e-9
    first, last = density.interval(0.4, "size", given, kind="highest_density")
    assert density.probability(f"{first!r} <= size <= {last!r}", given) >= 0.4
    for level in (0.2, 0.9):  # numbers: against a grid of lower ends
        low, high = density.interval(level, "x", kind="highest_density")
        levels = (1 - level) * np.linspace(1e-3, 1 - 1e-3, 300)
        ends = density.quantile(np.append(levels, levels + level), "x")
        assert high - low <= (ends[300:] - ends[:300]).min() * (1 + 1e-3)
    size = density.quantile([0.01, 0.99], "size")
    assert size.tolist() == ["S", "L"]
    with pytest.raises(ValueError, match="numerical or have ordered categories"):
        density.quantile(0.5, "job")
    with pytest.raises(ValueError, match="levels between 0 and 1"):
        density.quantile(1.0, "y")


def test_marginals_are_densities_again(density):
    given = "x > 0 and member"
    marginal = density.marginal(["y", "job"], given=given)
    text = "job == 'nurse' and y > 0"
    assert marginal.probability(text) == pytest.approx(density.probability(text, given), rel=1e-12)
    more = density.probability(text, given=f"{given} and y < 2")
    assert marginal.probability(text, given="y < 2") == pytest.approx(more, rel=1e-12)
    # The density integrates to the probabilities of its categories
    grid = np.linspace(-12, 14, 4001)
    for job in ("cook", "nurse"):
        rows = pd.DataFrame({"y": grid, "job": job})
        mass = np.trapezoid(np.exp(marginal.score_samples(rows)), grid)
        assert mass == pytest.approx(marginal.probability({"job": job}), rel=5e-3)
    alone = marginal.score_samples(pd.DataFrame({"y": [np.nan], "job": ["cook"]}))
    assert np.exp(alone[0]) == pytest.approx(marginal.probability("job == 'cook'"), rel=1e-12)
    drawn = marginal.sample(3, random_state=0)
    assert drawn.columns.tolist() == ["y", "job"]
    assert marginal.marginal("y").expectation().columns.tolist() == ["y"]
    expected = density.expectation(given, columns=["y"])
    pd.testing.assert_frame_equal(marginal.expectation(columns=["y"]), expected)
    with pytest.raises(ValueError, match="columns of the table"):
        marginal.probability("x > 0")


def test_most_probable_rows_satisfy_the_condition(density, condition):
    text, kept = condition
    best = density.mpe(text)
    assert CONDITIONS[text](best).all()
    pd.testing.assert_series_equal(best.dtypes, kept.dtypes)


@pytest.mark.parametrize("given", ["x > 0", "y < 0 or member", None])
def test_most_probable_rows_of_marginals_sum_the_others_out(density, given):
    marginal = density.marginal(["size", "job"], given=given)
    cells = [{"size": size, "job": job} for size in "SML" for job in ("cook", "nurse", "pilot")]
    best = marginal.mpe()
    found = marginal.probability({"size": best["size"][0], "job": best.job[0]})
    assert found == pytest.approx(marginal.probabilities(cells).max(), rel=1e-12)
    several = marginal.mpe([{"job": "pilot"}, {"size": {"S", "M"}}])
    assert several.job[0] == "pilot" and several["size"][1] in "SM"
    numbers = density.marginal(["x", "job"], given=given)
    row = numbers.mpe()
    assert np.isfinite(numbers.score_samples(row)[0])
    # Max-product finds the best row of one choice of components, which is a good one
    others = numbers.score_samples(numbers.sample(500, random_state=0))
    assert numbers.score_samples(row)[0] >= np.quantile(others, 0.8)


def test_most_probable_rows_of_marginals_of_mixtures():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(0, [1, 0.1], (300, 2)), rng.normal(5, [0.5, 3], (300, 2))])
    for kind in ("full", "diag"):
        density = GaussianMixtureDensity(n_components=2, covariance_type=kind, random_state=0).fit(
            X
        )
        best = density.marginal([0]).mpe()
        grid = np.linspace(-4, 8, 4001)[:, None]
        scores = density.marginal([0]).score_samples(grid)
        # The joint mode lies in the other component
        assert abs(best[0] - grid[scores.argmax()]) < 0.05 and abs(density.mpe()[0]) < 1


@pytest.mark.parametrize("given", [None, "x0 > 1", "x0 < -2 or 4 <= x1 <= 6"])
@pytest.mark.parametrize(
    ("n_columns", "density"),
    [
        (2, WMISPNDensity()),
        (3, WMISPNDensity()),
        (2, GaussianMixtureDensity(n_components=1)),
        (3, GaussianMixtureDensity(n_components=1)),
        (2, GaussianMixtureDensity(n_components=2, random_state=0)),
    ],
)
def test_most_probable_integers_are_those_of_enumeration(n_columns, density, given):
    rng = np.random.default_rng(2 + (n_columns == 3))
    z, noise, other = rng.normal(size=(3, 60))
    X = np.column_stack([np.round(3 * (z + noise)), np.round(3 * (other - z))])
    # Integers next to the best real numbers need not add up to the third
    X = np.column_stack([X, X.sum(axis=1)])[:, :n_columns]
    ranges = [np.arange(low - 1, high + 2) for low, high in zip(X.min(axis=0), X.max(axis=0))]
    rows = np.stack(np.meshgrid(*ranges), axis=-1).reshape(-1, n_columns)
    density = clone(density).fit(X)
    inside = {
        None: np.full(len(rows), True),
        "x0 > 1": rows[:, 0] > 1,
        "x0 < -2 or 4 <= x1 <= 6": (rows[:, 0] < -2) | ((rows[:, 1] >= 4) & (rows[:, 1] <= 6)),
    }[given]
    best = density.mpe(given=given)
    assert (rows[inside] == best).all(axis=1).any()
    scores = density.score_samples(rows[inside])
    assert density.score_samples([best])[0] == pytest.approx(scores.max(), abs=1e-9)


@pytest.mark.parametrize("seed", [15, 21, 24, 35])
@pytest.mark.parametrize("density", [GaussianMixtureDensity(n_components=1), ChowLiuDensity()])
def test_most_probable_integers_that_depend_on_each_other_are_those_of_enumeration(density, seed):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(80, 4)) @ rng.normal(size=(4, 4)))
    X[:, 3] = np.round(0.6 * X[:, 0] + X[:, 1])
    density = clone(density).fit(X)
    ranges = [np.arange(low - 1, high + 2) for low, high in zip(X.min(axis=0), X.max(axis=0))]
    rows = np.stack(np.meshgrid(*ranges), axis=-1).reshape(-1, 4)
    scores = density.score_samples(rows)
    for given, inside in [(None, rows[:, 0] == rows[:, 0]), ("x0 > 1", rows[:, 0] > 1)]:
        best = density.mpe(given=given)
        assert density.score_samples([best])[0] == pytest.approx(scores[inside].max(), abs=1e-9)


@pytest.mark.parametrize("given", [None, "job == 'cook'", "visits > 3"])
def test_the_most_probable_integer_of_transformed_components(given):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"visits": rng.poisson(np.exp(rng.normal(1.0, 1.0, 150)))})
    table["job"] = rng.choice(["cook", "pilot"], 150)
    density = GaussianMixtureDensity(n_components=3, transformation="johnson", random_state=0)
    density.fit(table)
    rows = pd.DataFrame({"visits": np.tile(np.arange(-3, 200), 2)})
    rows["job"] = np.repeat(["cook", "pilot"], 203)
    inside = rows if given is None else rows.query(given)
    best = density.score_samples(density.mpe(given=given))[0]
    assert best == pytest.approx(density.score_samples(inside).max(), abs=1e-9)


def test_integers_of_zero_have_no_sign():
    X = np.round(np.random.default_rng(0).normal(-0.2, 2.0, size=(100, 2)))
    density = GaussianMixtureDensity(n_components=1).fit(X)
    for found in (density.mpe(), density.sample(100, random_state=0)):
        assert (found == 0.0).any()
        assert not np.signbit(found[found == 0.0]).any()


def test_numbers_beside_most_probable_integers_are_the_best_for_them():
    x = np.random.default_rng(0).normal(0.4, 2, 500)
    table = pd.DataFrame({"count": np.round(x).astype(int)})
    table["x"] = table["count"] + np.random.default_rng(1).normal(0, 0.01, 500)
    density = GaussianMixtureDensity(n_components=1).fit(table)
    best = density.mpe()
    expected = density.expectation({"count": best["count"][0]}, columns=["x"])
    scores = density.score_samples(table)
    assert density.score_samples(best)[0] >= scores.max()
    assert best["x"][0] == pytest.approx(expected["x"][0], abs=0.02)


@pytest.mark.parametrize("density", [WMISPNDensity(), ChowLiuDensity()])
def test_most_probable_floats_of_32_bits_satisfy_strict_bounds(density):
    wages = np.random.default_rng(0).normal(1, 0.3, 100).astype(np.float32)
    density = clone(density).fit(pd.DataFrame({"wage": wages}))
    for bound in wages[:5].tolist():
        assert density.mpe(given=f"wage < {bound!r}")["wage"][0] < bound
        assert density.mpe(given=f"wage > {bound!r}")["wage"][0] > bound


def test_draws_of_floats_of_32_bits_satisfy_strict_bounds():
    wages = np.random.default_rng(0).normal(1, 0.3, 100).astype(np.float32)
    density = WMISPNDensity().fit(pd.DataFrame({"wage": wages}))
    bound = float(np.float32(1.01))
    drawn = density.sample(50, given=f"wage < {bound!r} and wage > {bound - 4e-7!r}")["wage"]
    assert drawn.dtype == np.float32
    drawn = drawn.astype(float)
    assert (drawn < bound).all() and (drawn > bound - 4e-7).all()


def test_columns_of_arrays_have_the_names_of_texts():
    X = np.random.default_rng(0).normal(size=(50, 2))
    density = GaussianMixtureDensity(n_components=1).fit(X)
    for own, other in (("x1", 1), (["x1", "x0"], [1, 0])):
        expected = density.expectation({0: 1.0}, columns=other)
        np.testing.assert_array_equal(density.expectation("x0 == 1", columns=own), expected)
    with pytest.raises(ValueError, match="x2"):
        density.expectation(columns="x2")


def test_columns_are_names_and_indices_of_numpy_too(density, table):
    for column in (np.str_("y"), np.int64(table.columns.get_loc("y"))):
        pd.testing.assert_frame_equal(
            density.expectation(columns=column), density.expectation(columns="y")
        )
    with pytest.raises(ValueError, match="columns must be a name, an index or a list of them"):
        density.expectation(columns=np.array(0))


@pytest.mark.parametrize("density", [WMISPNDensity(), GaussianMixtureDensity(n_components=1)])
def test_empty_columns_of_integers_are_integers(density):
    table = pd.DataFrame({"x": np.random.default_rng(0).normal(size=40)})
    table["empty"] = pd.array([pd.NA] * 40, dtype="Int64")
    density = clone(density).fit(table)
    assert density.sample(5, random_state=0)["empty"].dtype == "Int64"
    assert density.mpe(given="x > 0")["empty"].dtype == "Int64"
    assert np.isfinite(density.score_samples(table)).all()


def test_rows_may_have_two_levels_of_column_names():
    rng = np.random.default_rng(0)
    names = pd.MultiIndex.from_product([["site", "lower"], ["lower", "mean"]])
    table = pd.DataFrame(rng.normal(size=(60, 4)), columns=names)
    density = GaussianMixtureDensity(n_components=1).fit(table)
    rows = table[:3].mask(rng.random((3, 4)) < 0.5)
    plain = GaussianMixtureDensity(n_components=1).fit(table.to_numpy())
    np.testing.assert_allclose(density.mpe(rows), plain.mpe(rows.to_numpy()), rtol=1e-9)


def test_tables_of_conditions_answer_row_by_row(density):
    rows = pd.DataFrame(
        {"x": [1.0, np.nan, 0.3], "job": ["cook", "nurse", None]}, index=list("abc")
    )
    answer = density.expectation(rows, columns=["y", "member"])
    assert answer.index.tolist() == ["a", "b", "c"]
    assert answer.columns.tolist() == ["y", "member_False", "member_True"]
    single = [
        density.expectation(row.dropna().to_dict(), columns=["y"]) for _, row in rows.iterrows()
    ]
    np.testing.assert_allclose(answer["y"], [one["y"][0] for one in single], rtol=1e-9)
    bounds = pd.DataFrame(
        {
            ("x", "lower"): [0.0, 1, -1],
            ("x", "upper"): [1.0, 2, np.nan],
            ("age", "lower"): [30, 40, np.nan],
        }
    )
    texts = ["0 <= x <= 1 and age >= 30", "1 <= x <= 2 and age >= 40", "x >= -1"]
    cells = pd.DataFrame(
        {"x": [(0.0, 1), (1, 2), (-1, None)], "age": [(30, None), (40, None), None]}
    )
    dicts = [{"x": (0, 1), "age": (30, None)}, {"x": (1, 2), "age": (40, None)}, {"x": (-1, None)}]
    objects = [
        col("x").between(0, 1) & (col("age") >= 30),
        (col("x") >= 1) & (col("x") <= 2) & ~(col("age") < 40),
        col("x") >= -1,
    ]
    expected = [density.probability("y > 0.5", text) for text in texts]
    for given in (texts, bounds, cells, dicts, objects):
        np.testing.assert_allclose(density.probability("y > 0.5", given), expected, rtol=1e-12)
    both = density.probabilities(["y > 0.5", "job == 'cook'"], texts)
    assert both.shape == (3, 2)
    np.testing.assert_allclose(both[:, 0], expected, rtol=1e-12)
    assert density.covariance(texts, columns=["x", "y"]).shape == (3, 2, 2)
    assert density.sample(4, given=texts).shape == (4, 3, 6)
    assert len(density.mpe(texts)) == 3


def test_single_numbers_are_no_bounds_of_a_gaussian():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        rng.normal(size=(200, 6)) @ rng.normal(size=(6, 6)), columns=list("abcdef")
    )
    density = GaussianMixtureDensity(n_components=2, covariance_type="full", random_state=0)
    density.fit(table)
    cells = {"a": 0.3, "b": -0.2, "c": 0.1, "d": 0.4, "e": 0.0}
    row = pd.DataFrame([cells | {"f": np.nan}])
    assert density.expectation(given=cells)["f"][0] == pytest.approx(
        density.expectation(given=row)["f"][0], rel=1e-10
    )
    some = {"a": 0.3, "b": -0.2, "c": 0.1, "d": (0.0, 1.0), "e": (0.0, np.inf)}
    ends = [density.probability("f > 0", given=some | {"d": (0.0, 0.5)})]
    ends.append(density.probability("f > 0", given=some | {"d": (0.5, 1.0)}))
    assert min(ends) <= density.probability("f > 0", given=some) <= max(ends)


def test_single_numbers_of_continuous_columns_are_observed(density):
    at = density.expectation({"x": 0.3}, columns="y")
    pd.testing.assert_frame_equal(at, density.expectation("x == 0.3", columns="y"))
    near = density.expectation("x between 0.29999 and 0.30001", columns="y")
    np.testing.assert_allclose(at, near, atol=1e-4)
    # Beside an interval a number has no probability
    either = density.expectation("x == 0.3 or x > 1", columns="y")
    pd.testing.assert_frame_equal(either, density.expectation("x > 1", columns="y"))


def test_missingness_is_no_condition(density):
    plain = density.expectation("job == 'cook'", columns="y")
    for text in ("job == 'cook' and x is missing", "x is not missing and job == 'cook'"):
        pd.testing.assert_frame_equal(density.expectation(text, columns="y"), plain)
    with pytest.raises(ValueError, match="occur only in a condition"):
        density.expectation("x is missing or job == 'cook'")


def test_impossible_conditions_are_named(density):
    with pytest.raises(ZeroProbabilityError, match="A condition must have positive probability"):
        density.expectation("x > 1 and x < 0")
    with pytest.raises(ZeroProbabilityError, match=r"rows=\[1\]") as caught:
        density.sample(2, given=["x > 0", "x > 1 and x < 0"])
    assert caught.value.rows == [1]


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "factor"])
@pytest.mark.filterwarnings("error")
def test_numbers_whose_squares_overflow(covariance_type):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 2)), columns=["x", "y"])
    density = GaussianMixtureDensity(
        n_components=2, covariance_type=covariance_type, random_state=0
    )
    density.fit(1e-6 * X)
    for given in ({"x": 1e300}, {"x": -1e150}, "x == 1e160"):
        with pytest.raises(ZeroProbabilityError):
            density.probability("y > 0", given)
    np.testing.assert_allclose(
        density.expectation("x > -1e150"), density.expectation("x > -1"), rtol=1e-9
    )


@pytest.mark.filterwarnings("error")
def test_tails_reach_beyond_numbers_whose_squares_overflow():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["x", "y"])
    density = WMISPNDensity().fit(X)
    for ask in (density.expectation, density.mpe):
        near, far = ask("x > 1e5"), ask("x > 1e300")
        assert far["x"].item() == pytest.approx(1e300)
        assert far["y"].item() == pytest.approx(near["y"].item())
    assert density.probability("x > 1e308") == 0.0


@pytest.mark.filterwarnings("error")
def test_averages_over_events_of_next_to_no_probability():
    # Their logarithms, near -1e150, say nothing about the sum of a few of them
    z = np.random.default_rng(0).normal(size=(200, 1))
    X = pd.DataFrame(z + 0.1 * np.random.default_rng(1).normal(size=(200, 2)), columns=["x", "y"])
    density = WMISPNDensity().fit(X)
    for condition in ("x + y > 1e150", "x > 1e150 or y > 1e150"):
        mean = density.expectation(condition).to_numpy()
        assert (np.abs(mean) < 1.01e150).all()
    assert density.expectation("x + y > 1e150").to_numpy().sum() == pytest.approx(1e150)
    covariance = density.covariance("x + y > 1e300").to_numpy()
    assert not np.isnan(covariance).any()
    # A product of next to nothing, where columns end
    assert np.isfinite(density.expectation("1e300 * x + y > 3")).all(axis=None)


def test_rows_with_missing_dates():
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(60) % 7, unit="D")
    X = pd.DataFrame({"when": days, "x": np.arange(60) % 7 + 0.5})
    density = GaussianMixtureDensity(n_components=1, random_state=0).fit(X)
    given = X.iloc[:2].astype({"when": object})
    for missing in (np.nan, None, pd.NaT):
        rows = given.copy()
        rows.loc[0, "when"] = missing
        alone = density.expectation([{"x": 0.5}, {"when": days[1], "x": 1.5}])
        pd.testing.assert_frame_equal(density.expectation(rows), alone)


@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_expectations_of_dates_are_dates(zone):
    when = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(41), unit="D")
    X = pd.DataFrame({"when": when.tz_localize(zone), "x": np.arange(41) % 7 + 0.5})
    density = GaussianMixtureDensity(n_components=1, random_state=0).fit(X)
    mean = density.expectation(columns=["when", "x"])
    # In local time, as quantiles are
    assert abs(mean["when"][0] - pd.Timestamp("2020-01-21")) < pd.Timedelta(1, "s")
    assert abs(mean["when"][0] - density.quantile(0.5, "when")) < pd.Timedelta(1, "D")
    assert mean["x"].dtype == float
    days = density.covariance(columns=["when"]).loc["when", "when"]
    assert days == pytest.approx(41**2 / 12, rel=0.1)


@pytest.mark.parametrize("zone", [None, "Europe/Paris"])
@pytest.mark.filterwarnings("error:no explicit representation of timezones")
def test_rows_of_frequent_dates(zone):
    # Half of the cells are one day, to which Gaussians give less
    days = np.where(np.arange(60) % 2, 0, np.arange(60))
    when = (pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")).tz_localize(zone)
    X = pd.DataFrame({"when": when, "x": np.arange(60) % 7 + 0.5})
    density = GaussianMixtureDensity(n_components=1, random_state=0).fit(X)
    alone = density.expectation([{"when": day} for day in when[:3]], columns="x")
    density.fit(X)
    pd.testing.assert_frame_equal(density.expectation(X[["when"]].head(3), columns="x"), alone)
    with pytest.warns(
        UserWarning, match=r"column 'when' \(0.5. of its cells are 2020-01-01 00:00:00"
    ):
        density.probability({"when": (when[1], None)})


@pytest.mark.parametrize("number", [Decimal("0.5"), Fraction(1, 2), np.float32(0.5)], ids=repr)
def test_numbers_of_any_type_in_queries(density, number):
    expected = density.probability({"x": (0.5, None)})
    assert density.probability({"x": (number, None)}) == expected
    assert density.probability(col("x") >= number) == expected


def test_mutual_information_of_discrete_columns(density):
    groups = ["job", "member"], ["size"]
    table = density.probabilities(
        [
            f"job == '{j}' and member == {m} and size == '{s}'"
            for j in ("cook", "nurse", "pilot")
            for m in (True, False)
            for s in "SML"
        ],
        given="x > 0",
    ).reshape(6, 3)
    independent = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
    expected = (table * np.log(table / independent)).sum()
    found = density.mutual_information(*groups, given="x > 0")
    assert found == pytest.approx(expected, abs=1e-10)
    with pytest.raises(ValueError, match="disjoint"):
        density.mutual_information("job", ["size", "job"])


def test_arrays_answer_with_arrays():
    X = np.random.default_rng(0).multivariate_normal([0, 1], [[1, 0.8], [0.8, 2]], 500)
    density = GaussianMixtureDensity(n_components=1, covariance_type="full").fit(X)
    assert density.expectation("x0 > 0").shape == (2,)
    assert density.expectation(["x0 > 0", None]).shape == (2, 2)
    row = np.array([0.5, np.nan])
    slope = density.covariance()[0, 1] / density.covariance()[0, 0]
    mean = density.expectation()
    np.testing.assert_allclose(density.expectation(row)[1], mean[1] + slope * (0.5 - mean[0]))
    np.testing.assert_allclose(density.expectation({0: 0.5}), density.expectation(row))
    assert density.mpe(row).shape == (2,)
    with pytest.raises(ValueError, match="a row of 2 cells"):
        density.expectation(np.zeros(3))


def test_polars_answers_with_polars(table):
    frame = pl.DataFrame(table[["x", "y", "job"]].to_dict("list"))
    density = ChowLiuDensity().fit(frame)
    answer = density.expectation(frame[:3, ["x", "job"]], columns="y")
    assert isinstance(answer, pl.DataFrame) and answer.shape == (3, 1)
    assert isinstance(density.sample(3, given="x > 0"), pl.DataFrame)


def test_density_of_the_imputer_answers(table):
    incomplete = table[["x", "y", "job"]].copy()
    incomplete.loc[::5, "y"] = np.nan
    density = CircuitImputer(density=ChowLiuDensity()).fit(incomplete).density_
    nurses, others = density.expectation(["job == 'nurse'", "job != 'nurse'"], columns="x")["x"]
    assert nurses > others + 1


def test_mixtures_of_all_trees_say_what_they_answer(table):
    density = MoATDensity(max_iter=2, random_state=0).fit(table[["x", "job", "member"]])
    with pytest.raises(CircuitPropertyError, match=r"to_circuit\(n_trees\)"):
        density.covariance(given="member")
    with pytest.raises(CircuitPropertyError, match=r"to_circuit\(n_trees\)"):
        density.expectation("count(member, x > 0) >= 1")
    given = density.probability("member", given={"job": "nurse"})
    joint = density.probability("member and job == 'nurse'") / density.probability("job == 'nurse'")
    assert given == pytest.approx(joint)


def test_mutual_information_of_numbers():
    rng = np.random.default_rng(0)
    covariance = np.array([[1.0, 0.6, 0.3], [0.6, 1.0, 0.5], [0.3, 0.5, 1.0]])
    X = pd.DataFrame(rng.multivariate_normal(np.zeros(3), covariance, 400), columns=list("abc"))
    density = GaussianMixtureDensity(n_components=1, covariance_type="full").fit(X)
    S = density.covariance().to_numpy()
    expected = -0.5 * np.log(1 - S[0, 1] ** 2 / S[0, 0] / S[1, 1])
    assert density.mutual_information("a", "b") == pytest.approx(expected, rel=1e-9)
    partial = S[:2, :2] - np.outer(S[:2, 2], S[:2, 2]) / S[2, 2]
    expected = -0.5 * np.log(1 - partial[0, 1] ** 2 / partial[0, 0] / partial[1, 1])
    assert density.mutual_information("a", "b", given={"c": 0.3}) == pytest.approx(expected)
    marginal = density.marginal(["a", "b"], given={"c": 0.3})
    assert marginal.mutual_information("a", "b") == pytest.approx(expected)
    with pytest.raises(CircuitPropertyError, match="method='estimate'"):
        density.mutual_information("a", "b", given="c > 0")
    options = {"method": "estimate", "n_samples": 4000, "random_state": 0}
    found, error = density.mutual_information("a", ["c", "b"], **options)
    assert 0 < error < 0.02
    exact = density.mutual_information("a", ["c", "b"])
    assert abs(found - exact) < 4 * error


def test_estimated_mutual_information_of_categories_and_numbers(density):
    options = {"method": "estimate", "n_samples": 3000, "random_state": 0, "given": "x > 0"}
    found, error = density.mutual_information("job", "size", **options)
    exact = density.mutual_information("job", "size", given="x > 0")
    assert abs(found - exact) < 4 * error + 1e-3
    found, error = density.mutual_information(["job", "x"], "y", **options)
    assert found > 4 * error  # y follows x


def test_columns_whose_names_have_several_levels():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)))
    X.columns = pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")])
    density = GaussianMixtureDensity(n_components=1).fit(X)
    expected = density.probability({("a", "x"): (0.0, None)})
    assert density.probability(col(("a", "x")) >= 0) == expected
    assert density.probability("`('a', 'x')` >= 0") == expected
    with pytest.raises(TypeError, match="must be a name or an index"):
        col(["a", "x"])
    with pytest.raises(ValueError, match=r"columns of the table; got column=\('a', 'z'\)"):
        density.probability(col(("a", "z")) >= 0)


@pytest.mark.parametrize("kind", ["gaussian", "polynomial", "trees"])
def test_no_condition_has_no_answer(kind, table):
    density = MoATDensity(max_iter=1, random_state=0) if kind == "trees" else DENSITIES[kind]
    density = clone(density).fit(table[["age", "x", "job"]][:200])
    none = density.mpe(table[["age", "x", "job"]][:2])[:0]
    assert density.probability("x > 0", given=none).shape == (0,)
    assert density.probabilities(["x > 0", "age < 30"], given=none).shape == (0, 2)
    assert density.quantile([0.1, 0.9], "x", given=none).shape == (0, 2)
    assert density.interval(0.5, "x", given=none).shape == (0, 2)
    assert density.expectation(given=none).shape == (0, 2)
    assert density.sample(3, given=none, random_state=0).shape == (3, 0, 3)
    if kind != "trees":
        assert density.covariance(given=none).shape[0] == 0
