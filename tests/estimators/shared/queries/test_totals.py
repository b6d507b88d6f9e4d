"""Counts, sums and linear comparisons: against enumeration, closed forms and estimates."""

from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chisquare, ks_2samp, norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skcircuits import (
    ChowLiuDensity,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    WMISPNDensity,
    col,
    count,
)
from skcircuits.estimators.shared.queries import _quantiles
from skcircuits.exceptions import CircuitPropertyError, ZeroProbabilityError


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 500
    z = rng.integers(0, 3, n)
    table = pd.DataFrame({f"c{i}": rng.random(n) < 0.2 + 0.2 * z for i in range(3)})
    table["k"] = rng.poisson(2, n).clip(0, 6)
    table["m"] = rng.integers(0, 4, n) + z
    return table


@pytest.fixture(scope="module")
def tree(table):
    return ChowLiuDensity().fit(table)


@pytest.fixture(scope="module")
def every_row(table, tree):
    names = table.columns.tolist()
    values = [[False, True]] * 3 + [range(7), range(6)]
    rows = pd.DataFrame(list(product(*values)), columns=names).astype(table.dtypes)
    return rows, np.exp(tree.score_samples(rows))


DIAGONAL = GaussianMixtureDensity(n_components=3, covariance_type="diag", random_state=0)
QUESTIONS = {
    "count(c0, c1, c2) >= 2": lambda T: T[["c0", "c1", "c2"]].sum(axis=1) >= 2,
    "count(c0, c1, c2, k > 2, m == 3) in (1, 4)": lambda T: (
        T[["c0", "c1", "c2"]].sum(axis=1) + (T.k > 2) + (T.m == 3)
    ).isin([1, 4]),
    "count(c0, c1, k == k, m != m, c2 or not c2) == 3": lambda T: T.c0 ^ T.c1,
    # Floats would decide otherwise: 0.1 * 1 + 0.2 * 1 > 0.3
    "0.1 * k + 0.2 * m <= 0.3": lambda T: T.k + 2 * T.m <= 3,
    "-0.2 * k - 0.2 * m < -1.4": lambda T: T.k + T.m > 7,
    "abs(0.7 * k - 0.7 * m) < 2.1": lambda T: (T.k - T.m).abs() < 3,
    "0.1 * m + 0.1 * count(c0, c1) > 0.6": lambda T: T.m + T.c0 + T.c1 > 6,
    "k + m <= 3": lambda T: T.k + T.m <= 3,
    "sum(k, m) in [2, 5) and c0": lambda T: (T.k + T.m).between(2, 4) & T.c0,
    "2 * k - 3 * m > 1": lambda T: 2 * T.k - 3 * T.m > 1,
    "k > m": lambda T: T.k > T.m,
    "k == m or count(c0, c1) == 1": lambda T: (T.k == T.m) | (T.c0 ^ T.c1),
    "abs(k - m) <= 1 and not count(c0, c1, c2) >= 1": lambda T: (
        ((T.k - T.m).abs() <= 1) & ~(T.c0 | T.c1 | T.c2)
    ),
    "k + count(c0, c1) / 2 >= 2.5": lambda T: T.k + (T.c0.astype(int) + T.c1) / 2 >= 2.5,
    "count(k > 1, k > 3, m > 2) == 2": lambda T: (T.k > 1).astype(int) + (T.k > 3) + (T.m > 2) == 2,
}


@pytest.mark.parametrize("text", QUESTIONS)
def test_sums_and_counts_against_enumeration(tree, every_row, text):
    rows, mass = every_row
    inside = QUESTIONS[text](rows).to_numpy()
    assert tree.probability(text) == pytest.approx(mass[inside].sum(), rel=1e-9)
    given = (rows.c2 & (rows.m >= 2)).to_numpy()
    expected = mass[inside & given].sum() / mass[given].sum()
    assert tree.probability(text, given="c2 and m >= 2") == pytest.approx(expected, rel=1e-9)
    if mass[inside].sum() > 0:
        back = mass[inside & given].sum() / mass[inside].sum()
        assert tree.probability("c2 and m >= 2", given=text) == pytest.approx(back, rel=1e-9)


def test_objects_count_and_add(tree):
    assert tree.probability(count(col("c0"), col("c1"), col("k") > 2) >= 2) == tree.probability(
        "count(c0, c1, k > 2) >= 2"
    )
    assert tree.probability(col("k") + col("m") <= 3) == tree.probability("k + m <= 3")


def test_rare_totals_keep_their_digits():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.random((200, 12)) < 0.05, columns=[f"c{i}" for i in range(12)])
    density = ChowLiuDensity().fit(X)
    names = ", ".join(X.columns)
    every = density.probability(f"count({names}) == 12")
    row = pd.DataFrame(np.ones((1, 12), dtype=bool), columns=X.columns)
    assert every < 1e-10
    assert every == pytest.approx(np.exp(density.score_samples(row)[0]), rel=1e-9)


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    y = 0.5 * x + rng.normal(size=600)
    return pd.DataFrame({"x": x, "y": y, "w": rng.normal(size=600) - y, "c": rng.random(600) < 0.4})


def test_linear_comparisons_of_one_gaussian(numbers):
    table = numbers[["x", "y", "w"]]
    density = GaussianMixtureDensity(n_components=1, covariance_type="full").fit(table)
    mean = density.expectation().to_numpy()[0]
    covariance = density.covariance().to_numpy()
    for text, factors, bound in [
        ("x + y <= 1", [1, 1, 0], 1),
        ("x > 2 * y", [-1, 2, 0], 0),
        ("x + y - 3 * w < .5", [1, 1, -3], 0.5),
    ]:
        a = np.array(factors)
        expected = norm.cdf(bound, a @ mean, np.sqrt(a @ covariance @ a))
        assert density.probability(text) == pytest.approx(expected, rel=1e-9)
    # Given a value, the rest is Gaussian again
    conditional = density.marginal(["y", "w"], given={"x": 0.3})
    assert density.probability("x + y <= 1", given={"x": 0.3}) == pytest.approx(
        conditional.probability("y <= 0.7"), rel=1e-9
    )


def test_linear_comparisons_of_independent_gaussians(numbers):
    density = GaussianMixtureDensity(n_components=2, covariance_type="diag", random_state=0).fit(
        numbers
    )
    expected = 0.0
    for weight, product_ in zip(density.circuit_.root.weights, density.circuit_.root.children):
        units = {unit.variable: unit for unit in product_.children}
        mean = units[0].mean - 2 * units[1].mean
        deviation = np.hypot(units[0].std, 2 * units[1].std)
        near = norm.cdf(0.5, mean, deviation) - norm.cdf(-0.5, mean, deviation)
        expected += weight * (1 - (1 - near) * units[3].probabilities[0])
    text = "abs(x - 2 * y) <= 0.5 or c"
    assert density.probability(text) == pytest.approx(expected, rel=1e-9)


def test_linear_comparisons_of_polynomials(numbers):
    density = WMISPNDensity().fit(numbers)
    # Between neighbouring lines of a fine grid both are nearly boxes
    edges = np.linspace(-6, 6, 4001)
    queries = [{"x": (a, b), "y": (None, 1 - (a + b) / 2)} for a, b in pairwise(edges)]
    expected = density.probabilities(queries).sum()
    found = density.probability("x + y <= 1 and -6 <= x <= 6")
    assert found == pytest.approx(expected, abs=2e-5)
    parts = density.probabilities(["x + y <= 1 and x > 0", "x + y <= 1 and not x > 0"])
    assert parts.sum() == pytest.approx(density.probability("x + y <= 1"), rel=1e-9)
    both = density.probabilities(["x > y and c", "x <= y and c"]).sum()
    assert both == pytest.approx(density.probability("c"), rel=1e-9)


def test_estimates_only_when_asked(numbers):
    density = WMISPNDensity().fit(numbers.assign(v=numbers.x.rolling(2, 1).mean()))
    with pytest.raises(CircuitPropertyError, match="method='estimate'"):
        density.probability("x + y + w + v <= 1")
    options = {"method": "estimate", "n_samples": 4000, "random_state": 0}
    estimate, error = density.probability("x + y + w + v <= 1", given="c", **options)
    draws = density.sample(20_000, given="c", random_state=0)[["x", "y", "w", "v"]]
    fraction = (draws.sum(axis=1) <= 1).mean()
    assert 0 < error < 0.01 and abs(estimate - fraction) < 5 * error
    exact = density.probability("x + y <= 1 and w > 0 or c")
    estimate, error = density.probability("x + y <= 1 and w > 0 or c", **options)
    assert abs(estimate - exact) < 4 * error


@pytest.mark.slow
def test_three_columns_add_up(numbers):
    # Densities of few rows have few pieces, whose lines cross less than the limit allows
    density = WMISPNDensity(leaf="histogram", n_bins=2).fit(numbers[:100])
    parts = density.probabilities(["x + y > w and c", "x + y <= w and c"])
    assert parts.sum() == pytest.approx(density.probability("c"), rel=1e-9)
    options = {"method": "estimate", "n_samples": 20_000, "random_state": 0}
    estimate, error = density.probability("x + y > w and c", **options)
    assert abs(estimate - parts[0]) < 4 * error


@pytest.mark.parametrize("text", QUESTIONS)
def test_moments_and_draws_under_sums_and_counts_against_enumeration(tree, every_row, text):
    rows, mass = every_row
    mass = np.where(QUESTIONS[text](rows), mass, 0.0)
    mass /= mass.sum()
    columns = ["k", "m", "c0", "c2"]
    means = mass @ rows[columns].astype(float)
    both = tree.expectation(given=[text, "k >= 0"], columns=["k", "m"])
    assert both.loc[0].tolist() == pytest.approx(means[:2].tolist(), rel=1e-9)
    chances = tree.expectation(given=text, columns="c0")
    assert chances["c0_True"][0] == pytest.approx(means["c0"], rel=1e-9, abs=1e-15)
    quantile = tree.quantile(0.5, "k", given=text)
    assert mass[rows.k <= quantile].sum() >= 0.5 - 1e-12 > mass[rows.k < quantile].sum()
    covariance = tree.covariance(given=text, columns=["k", "m"]).to_numpy()
    expected = np.cov(rows[["k", "m"]].to_numpy().T.astype(float), aweights=mass, ddof=0)
    assert_allclose(covariance, expected, rtol=1e-8, atol=1e-11)
    best = (rows == tree.mpe(given=text).loc[0]).all(axis=1)
    assert mass[best].tolist() == pytest.approx([mass.max()], rel=1e-9)
    drawn = tree.sample(4000, random_state=0, given=text)
    assert QUESTIONS[text](drawn).all()
    seen = drawn.value_counts().reindex(pd.MultiIndex.from_frame(rows), fill_value=0).to_numpy()
    often = mass > 5 / 4000
    expected = np.append(4000 * mass[often], 4000 * mass[~often].sum() + 1e-9)
    counts = np.append(seen[often], seen[~often].sum())
    assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4


def test_rarest_counts_keep_their_digits():
    X = np.zeros((40, 30))
    X[0] = 1
    density = ChowLiuDensity(pseudo_count=1e-9).fit(X)
    text = f"count({', '.join(f'x{j} == 1' for j in range(30))}) == 15"
    assert density.probability(text) < 1e-8
    drawn = density.sample(50, random_state=0, given=text)
    assert (drawn.sum(axis=1) == 15).all()
    means = density.expectation(given=text)
    assert means.sum() == pytest.approx(15, rel=1e-9)


@pytest.mark.parametrize("density", [WMISPNDensity(), DIAGONAL], ids=["polynomials", "diag"])
def test_best_rows_and_covariances_under_sums_of_integers(density):
    rng = np.random.default_rng(3)
    group = rng.random(200) < 0.4
    T = pd.DataFrame({"a": rng.poisson(3 + 4 * group), "b": rng.poisson(9 - 5 * group)})
    T["z"] = rng.normal(size=200) + 2 * group
    density = clone(density).fit(T)
    given = "a + b == 9"
    best = density.mpe(given=given)
    assert best["a"][0] + best["b"][0] == 9
    covariance = density.covariance(given=given)
    # One is nine minus the other; not to the last digit: inside a model integers are intervals
    assert covariance.loc["a", "b"] == pytest.approx(-covariance.loc["a", "a"], rel=0.05)
    drawn = density.sample(4000, random_state=0, given=given)
    error = drawn.a.std() * drawn.z.std() / np.sqrt(len(drawn))
    assert abs(covariance.loc["a", "z"] - np.cov(drawn.a, drawn.z)[0, 1]) < 5 * error


@pytest.mark.parametrize("density", [WMISPNDensity(), DIAGONAL], ids=["polynomials", "diag"])
def test_best_rows_satisfy_sums_where_the_density_is_highest_between_two_integers(density):
    rng = np.random.default_rng(7)
    X = np.rint(rng.normal(size=(400, 2)) @ [[8, 5], [0, 6]])
    density = clone(density).fit(X)
    rows = np.array(list(product(range(-40, 41), repeat=2)))
    scores = density.score_samples(rows)
    for bound in range(-19, 20, 6):  # halves round to even integers, whose sum is even
        for text, inside in (
            (f"x0 + x1 == {bound}", rows.sum(axis=1) == bound),
            (f"x0 + x1 <= {bound}", rows.sum(axis=1) <= bound),
            (f"abs(x0 - x1) >= {abs(bound)}", abs(rows[:, 0] - rows[:, 1]) >= abs(bound)),
        ):
            best = density.mpe(given=text)
            assert inside[(rows == best).all(axis=1)].all(), text
            assert density.score_samples([best])[0] >= scores[inside].max() - 0.2


@pytest.mark.parametrize("density", [WMISPNDensity(), DIAGONAL], ids=["polynomials", "diag"])
@pytest.mark.parametrize("scale", [8, 300])  # few integers are parts of their own
def test_best_rows_satisfy_counts_of_integers(density, scale):
    rng = np.random.default_rng(7)
    X = np.rint(scale * rng.standard_t(2, size=(400, 2)) @ [[1.0, 0.5], [0.0, 0.7]])
    density = clone(density).fit(X)
    for bound in range(-2 * scale - 1, scale, scale // 2):
        last = bound + scale
        best = density.mpe(given=f"count(x0 > {bound}, x0 <= {last}, x1 < 0) == 3")
        assert bound < best[0] <= last and best[1] < 0
        best = density.mpe(given=f"count(x0 >= {bound}, x1 <= {last}) == 1")
        assert (best[0] >= bound) != (best[1] <= last)


@pytest.mark.parametrize("density", [ChowLiuDensity(), WMISPNDensity(), DIAGONAL], ids=type)
def test_best_rows_under_counts_lie_within_the_bounds_of_the_condition(density):
    """Events that a bound makes certain leave intervals without mass, which have no best point."""
    rng = np.random.default_rng(0)
    T = pd.DataFrame(rng.normal(size=(300, 2)), columns=["x", "y"]).assign(a=rng.poisson(2, 300))
    density = clone(density).fit(T)
    given = "y > 1 and count(x > -1, a <= 3, y > 0.05) <= 2"
    best = density.mpe(given=given)
    assert best.y[0] >= 1 and (best.x[0] <= -1) + (best.a[0] > 3) >= 1
    drawn = density.sample(300, random_state=0, given=given)
    assert density.score_samples(best)[0] >= density.score_samples(drawn).max() - 0.2


LINEAR = {
    "x > y": lambda T: T.x > T.y,
    "abs(x - y) < 0.5": lambda T: (T.x - T.y).abs() < 0.5,
    "x + 2 * y > 1 and x < 1": lambda T: (T.x + 2 * T.y > 1) & (T.x < 1),
    "abs(x + y) > 1 and c": lambda T: ((T.x + T.y).abs() > 1) & T.c.astype(bool),
}
DENSITIES = {
    "polynomials": WMISPNDensity(),
    "diag": DIAGONAL,
    "full": GaussianMixtureDensity(n_components=2, covariance_type="full", random_state=0),
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (name, text) if name == "full" else pytest.param(name, text, marks=pytest.mark.slow)
        for name in DENSITIES
        for text in LINEAR
    ],
)
def test_moments_and_draws_under_linear_comparisons_against_rejection(numbers, name, text):
    density = clone(DENSITIES[name]).fit(numbers)
    plain = density.sample(20_000, random_state=0)
    kept = plain[LINEAR[text](plain)]
    assert density.probability(text) == pytest.approx(len(kept) / 20_000, abs=0.015)
    drawn = density.sample(3000, random_state=1, given=text)
    assert LINEAR[text](drawn).all()
    means = density.expectation(given=text)
    covariance = density.covariance(given=text).to_numpy()
    for column in "xyw":
        error = kept[column].std() / np.sqrt(len(kept))
        assert abs(means[column][0] - kept[column].mean()) < 4 * error
        assert ks_2samp(drawn[column], kept[column]).pvalue > 1e-4
    variances = np.diag(covariance)
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / len(kept))
    assert (np.abs(covariance - np.cov(kept[list("xyw")].T)) < 5 * error).all()


@pytest.mark.parametrize("covariance_type", ["full", "diag"])  # forms of a joint one; slices
def test_moments_under_a_half_plane_in_closed_form(covariance_type):
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal([0.0, 1.0], [[1.0, 0.6], [0.6, 2.0]], 500)
    density = GaussianMixtureDensity(n_components=1, covariance_type=covariance_type).fit(X)
    mean, covariance = density.expectation(), density.covariance()
    direction = np.array([1.0, -2.0])
    centre, scale = direction @ mean, np.sqrt(direction @ covariance @ direction)
    hazard = norm.pdf(-centre / scale) / norm.sf(-centre / scale)
    expected = mean + covariance @ direction / scale * hazard
    assert density.expectation("x0 > 2 * x1") == pytest.approx(expected, rel=1e-9)
    spread = 1 - hazard * (hazard + centre / scale)
    pulled = covariance @ direction / scale
    expected = covariance - (1 - spread) * np.outer(pulled, pulled)
    assert_allclose(density.covariance("x0 > 2 * x1"), expected, rtol=1e-8)
    if covariance_type == "diag":
        with pytest.raises(CircuitPropertyError, match="joint Gaussian"):
            density.mpe("x0 > 2 * x1 + 1")
        return
    best = density.mpe("x0 > 2 * x1 + 1")
    assert best[0] == pytest.approx(2 * best[1] + 1)
    assert_allclose(best, mean + pulled * (1 - centre) / scale, rtol=1e-8)


INTEGERS = {
    "a == b": lambda a, b: a == b,
    "a > b": lambda a, b: a > b,
    "abs(a - b) <= 2": lambda a, b: abs(a - b) <= 2,
    "2 * a - 3 * b >= 1 and a < 9": lambda a, b: (2 * a - 3 * b >= 1) & (a < 9),
    "0.1 * a + 0.2 * b == 1.1": lambda a, b: a + 2 * b == 11,
}


@pytest.mark.parametrize(
    "name", ["polynomials", "diag", pytest.param("full", marks=pytest.mark.slow)]
)
def test_integers_of_continuous_models_compare_as_what_they_round_to(name):
    rng = np.random.default_rng(0)
    z = rng.integers(0, 6, 400)
    table = pd.DataFrame({"a": z + rng.integers(0, 8, 400), "b": z + rng.integers(0, 8, 400)})
    table["w"] = rng.normal(size=400) + z
    density = clone(DENSITIES[name]).fit(table)
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(-25, 40), np.arange(-25, 40)))
    cells = density.probabilities([{"a": i, "b": j} for i, j in zip(a.tolist(), b.tolist())])
    beyond = 1.0 - cells.sum() + 1e-10  # tails outside of the grid
    assert beyond < 1e-6
    for text, inside in INTEGERS.items():
        weights = np.where(inside(a, b), cells, 0.0)
        total = weights.sum()
        assert density.probability(text) == pytest.approx(total, rel=1e-9, abs=beyond), text
        if total > 0:
            drawn = density.sample(60, random_state=0, given=text)
            assert inside(drawn.a, drawn.b).all(), text
    kept = density.probabilities([{"a": i, "w": (0.5 * i, None)} for i in range(-25, 40)]).sum()
    assert density.probability("w >= 0.5 * a") == pytest.approx(kept, rel=1e-9, abs=beyond)


BOUNDED = ["x > y", "x + 2 * y > 1 and x < 1", "abs(x + y) > 1 and c", "x > y or c"]


@pytest.mark.parametrize("name", ["polynomials", "diag"])
@pytest.mark.parametrize("text", BOUNDED)
def test_bounds_hold_what_is_exact(numbers, name, text):
    density = clone(DENSITIES[name]).fit(numbers)
    exact = density.probability(text, given="w > 0")
    low, high = density.probability(text, given="w > 0", method="bounds", tol=0.01)
    assert low - 1e-9 <= exact <= high + 1e-9
    assert high - low <= 0.01 + 1e-9


def test_bounds_of_three_columns_and_of_integers(numbers, monkeypatch):
    table = numbers.assign(k=np.random.default_rng(0).integers(0, 30, len(numbers)))
    density = GaussianMixtureDensity(n_components=2, covariance_type="diag").fit(table)
    text = "x + y + w <= 1"
    low, high = density.probability(text, method="bounds", tol=0.1)
    drawn = density.sample(20_000, random_state=0)
    fraction = (drawn[["x", "y", "w"]].sum(axis=1) <= 1).mean()
    assert high - low <= 0.1 and low - 0.015 <= fraction <= high + 0.015
    low, high = density.probability("k > 10 * x", method="bounds", tol=0.01)
    assert low - 1e-9 <= density.probability("k > 10 * x") <= high + 1e-9
    assert high - low <= 0.01
    with pytest.raises(ValueError, match="'exact', 'bounds' or 'estimate'"):
        density.probability(text, method="guess")
    monkeypatch.setattr(_quantiles, "MAX_EVALUATED", 1000)
    with pytest.warns(ConvergenceWarning, match="bounds differ"):
        density.probability(text, method="bounds", tol=1e-9)


@pytest.mark.parametrize("density", [ChowLiuDensity(), HiddenChowLiuDensity(max_iter=2)], ids=str)
def test_comparisons_of_integers_with_numbers_sum_over_the_integers(density):
    rng = np.random.default_rng(0)
    k = rng.integers(0, 4, 400)
    table = pd.DataFrame({"k": k, "x": k + rng.normal(size=400)})
    table["c"] = pd.Categorical(rng.choice([10, 20], 400))
    density = clone(density).set_params(random_state=0).fit(table)
    expected = sum(density.probability(f"k == {v} and x > {0.3 * v!r}") for v in range(4))
    assert density.probability("x > 0.3 * k") == pytest.approx(expected, rel=1e-9)
    inside = [f"k == {v} and c == {c} and x + {v} < {c / 10!r}" for v in range(4) for c in (10, 20)]
    expected = density.probabilities(inside).sum()
    assert density.probability("x + k < c / 10") == pytest.approx(expected, rel=1e-9)
    both = density.probabilities([f"{text} and k >= 1" for text in inside]).sum()
    found = density.probability("k >= 1", given="x + k < c / 10")
    assert found == pytest.approx(both / expected, rel=1e-9)
    row = {"c": 20, "k": 1}
    alone = density.probability("x < 1", given=row)
    assert density.probability("x + k < c / 10", given=row) == pytest.approx(alone, rel=1e-9)
    observed = pd.DataFrame({"c": [20], "k": [1]})
    assert density.probability("x + k < c / 10", given=observed) == pytest.approx([alone], rel=1e-9)
    drawn = density.sample(300, given="x > k + 0.5", random_state=0)
    assert (drawn.x > drawn.k + 0.5).all()
    assert density.expectation("x > k + 0.5", columns="x").x[0] > 0.5


@pytest.mark.parametrize("density", [DIAGONAL, HiddenChowLiuDensity(random_state=0)], ids=str)
def test_strict_comparisons_of_integers_exclude_ties(density):
    rng = np.random.default_rng(0)
    k = rng.poisson(2, 400)
    table = pd.DataFrame({"k": k, "n": np.rint(3.0 * rng.normal(size=400) + k), "two": 2})
    ask = clone(density).fit(table).probability
    # Among the parts that are known first are frequent integers, and constants
    inside = [ask(f"k == {v} and n > {v}") for v in range(-20, 30)]
    assert ask("n > k") == pytest.approx(sum(inside), rel=1e-6)
    assert ask("n > two") == pytest.approx(ask("n > 2"), rel=1e-9)
    assert ask("k + two < 2 * n") + ask("k + two >= 2 * n") == pytest.approx(1.0, rel=1e-6)
    assert ask("3 * n < k") + ask("3 * n == k") + ask("3 * n > k") == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    "density", [WMISPNDensity(), HiddenChowLiuDensity(random_state=0)], ids=["polynomials", "tree"]
)
def test_ties_of_decimals_are_not_decided_by_rounding(density):
    rng = np.random.default_rng(0)
    tenths = np.clip(np.round(3.0 * rng.normal(size=400) + 10.0), 0, 20)
    table = pd.DataFrame({"b": tenths / 10.0, "i": rng.integers(0, 5, 400)})
    density = clone(density).fit(table)
    # 0.1 * 3 + 0.9 > 1.2 in floats; bounds beside the points of the grid have no ties
    at_most, less = (
        sum(density.probability(f"i == {k} and b < {1.2 - 0.1 * k + shift}") for k in range(-9, 15))
        for shift in (1e-9, -1e-9)
    )
    queries = [
        "0.1 * i + b <= 1.2",
        "0.1 * i + b < 1.2",
        "0.1 * i + b >= 1.2",
        "0.1 * i + b > 1.2",
        "0.1 * i + b == 1.2",
        "0.1 * i + b != 1.2",
        "0.3 * i + 3 * b < 3.6",
    ]
    found = density.probabilities(queries)
    equal = at_most - less
    expected = [at_most, less, 1.0 - less, 1.0 - at_most, equal, 1.0 - equal, less]
    assert_allclose(found, expected, rtol=1e-9)
    assert equal > 0.05
    drawn = density.sample(50, random_state=0, given="0.1 * i + b == 1.2")
    assert_allclose(0.1 * drawn.i + drawn.b, 1.2, rtol=1e-12)
    assert density.probability("3 * b == 0.3") == pytest.approx(density.probability("b == 0.1"))
    assert density.probability("3 * b <= 0.3") == pytest.approx(density.probability("b <= 0.1"))


def test_sums_equal_a_number_at_point_masses_only():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(400, 3))
    table = pd.DataFrame({"x": noise[:, 0], "b": noise[:, 1], "c": noise[:, 2]})
    table.loc[rng.random(400) < 0.3, "b"] = 0.7
    table.loc[rng.random(400) < 0.2, "b"] = 0.4
    table.loc[rng.random(400) < 0.4, "c"] = 0.1
    density = WMISPNDensity().fit(table)
    # 0.7 + 0.1 < 0.8 in floats
    expected = density.probability("b == 0.7 and c == 0.1")
    assert expected > 0.05
    assert density.probability("b + c == 0.8") == pytest.approx(expected, rel=1e-9)
    assert density.probability("b + c != 0.8") == pytest.approx(1.0 - expected, rel=1e-9)
    drawn = density.sample(20, random_state=0, given="b + c == 0.8")
    assert (drawn.b == 0.7).all() and (drawn.c == 0.1).all()
    for query in ("x + c == 0.8", "b + c == 0.9", "x + b + c == 0.8"):
        assert density.probability(query) == 0.0
    with pytest.raises(ZeroProbabilityError, match="positive probability"):
        density.expectation(given="x + c == 0.8")


def test_states_that_a_linear_comparison_excludes_have_no_moments():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(159, 3)) @ rng.normal(size=(3, 3))
    zeros = np.where(z[:, 1] < -0.2, 0.0, np.exp(z[:, 1]))
    table = pd.DataFrame({"amount": zeros, "i": np.round(3.0 * z[:, 2] + 10)})
    density = ChowLiuDensity(n_components=2, random_state=0).fit(table)
    # The greatest integers leave no amount that is not negative
    given = "amount between 0 and 60 and i + 0.32 * amount < 11.04"
    drawn = density.sample(20_000, random_state=0, given=given)
    error = 5.0 * drawn.std() / np.sqrt(len(drawn))
    found = density.expectation(given=given)
    assert (np.abs(found.squeeze() - drawn.mean()) < error).all()
    covariance = density.covariance(given=given)
    assert_allclose(covariance, drawn.cov(), atol=0.1 * drawn.var().max())
    median = density.quantile(0.5, "i", given=given)
    assert (drawn["i"] < median).mean() < 0.51 and (drawn["i"] <= median).mean() > 0.49


def test_sums_that_are_refused_as_conditions_have_a_way_out_there():
    table = np.random.default_rng(0).integers(0, 2000, size=(100, 3))
    density = WMISPNDensity().fit(table)
    given = "x0 + x1 + x2 > 3000"
    with pytest.raises(
        CircuitPropertyError, match=r"method='estimate' for an average over draws\.$"
    ):
        density.probability(given)
    with pytest.raises(CircuitPropertyError, match=r"keep the rows of sample\(n\) that satisfy it"):
        density.expectation(given)
