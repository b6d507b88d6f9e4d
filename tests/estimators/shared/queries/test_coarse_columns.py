"""Columns that floats hardly resolve: an event and its complement add up to one everywhere."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import skcircuits
from skcircuits.tabular import TableSchema
from skcircuits.tabular._columns import FLOATS, INTEGERS, NUMBERS
from tests.reliability.estimators import SMALL

DENSITIES = sorted(name for name in SMALL if name.endswith("Density"))
N_ROWS = 120
RNG = np.random.default_rng(0)
NORMAL, COIN = RNG.normal(size=N_ROWS), RNG.integers(2, size=N_ROWS)
# Few distinct numbers, so that all densities but mixtures of Gaussians count them
COUNTED = {
    "constant": np.full(N_ROWS, 3.7),
    "neighbours": np.where(COIN, 0.3, np.nextafter(0.3, 1.0)),
    "few floats": 1e8 + 1e-8 * NORMAL,
    "below zero": -1e8 + 1e-8 * NORMAL,
    "around 2^53": 2.0**53 + RNG.integers(-6, 6, N_ROWS),
    "around 2^52": 2.0**52 + RNG.integers(-3, 3, N_ROWS),
}
MEASURED = {
    "some floats": 1e8 + 1e-7 * NORMAL,
    "many floats": 1e8 + 1e-4 * NORMAL,
    "huge": 1e149 * NORMAL,
    "tiny": 1e-140 * NORMAL,
    "zeros": np.where(COIN, 0.0, np.exp(NORMAL)),
    "cluster": np.where(NORMAL > 1.5, 0.0, 1e8 + 1e-8 * NORMAL),
}
COLUMNS = COUNTED | MEASURED
SIGNS = ("<", "<=", "==", "!=", ">=", ">")


@pytest.fixture(scope="module", params=DENSITIES)
def density(request):
    model = getattr(skcircuits, request.param)(**SMALL[request.param])
    if request.param == "MoATDensity":
        model.set_params(n_tree_samples=64)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return model.fit(np.column_stack(list(COLUMNS.values())))


def cuts(numbers):
    """Some numbers of a column, and the floats beside its ends."""
    known = np.unique(numbers)
    some = known[np.linspace(0, len(known) - 1, min(len(known), 3)).astype(int)]
    return [np.nextafter(known[0], -np.inf), *some, np.nextafter(known[-1], np.inf)]


@pytest.mark.parametrize("given", [None, "x9 > -1e-140"])
def test_complements_add_up(density, given):
    if given is not None and type(density).__name__ == "MoATDensity":
        pytest.skip("Where many joint states are possible, it averages over draws of trees.")
    for j, numbers in enumerate(COLUMNS.values()):
        points = cuts(numbers)
        texts = [f"x{j} {sign} {point!r}" for point in map(float, points) for sign in SIGNS]
        found = density.probabilities(texts, given=given).reshape(len(points), len(SIGNS))
        below, at_most, equal, other, at_least, above = found.T
        for total in (below + at_least, at_most + above, equal + other, below + equal + above):
            assert_allclose(total, 1.0, rtol=1e-9)
        assert (np.diff(at_most) >= -1e-12).all()


def test_all_numbers_have_probability_one(density):
    for j, numbers in enumerate(COLUMNS.values()):
        size = 1e4 * np.abs(numbers).max()
        everything = {j: (-size, size)}
        assert_allclose(density.probability({j: (None, None)}), 1.0, rtol=1e-12)
        assert_allclose(density.probability(everything), 1.0, rtol=1e-9)


def test_point_masses_are_counted(density):
    if type(density).__name__ == "GaussianMixtureDensity":
        pytest.skip("Gaussians have no point masses.")
    drawn = density.sample(4000, random_state=0)
    for j, numbers in enumerate(COUNTED.values()):
        for point in map(float, np.unique(numbers)):
            found = density.probability(f"x{j} <= {point!r}")
            assert_allclose(found, (numbers <= point).mean(), atol=0.08)
            assert_allclose(found, (drawn[:, j] <= point).mean(), atol=0.06)
    assert_allclose(density.probability("x0 == 3.7"), 1.0, rtol=1e-4)


def test_a_number_that_many_rows_share_is_counted(density):
    if type(density).__name__ == "GaussianMixtureDensity":
        pytest.skip("Gaussians have no point masses.")
    drawn = density.sample(4000, random_state=0)
    column = list(COLUMNS).index("zeros")
    signs = {"<": np.less, "<=": np.less_equal, "==": np.equal, ">": np.greater}
    for sign, compare in signs.items():
        found = density.probability(f"x{column} {sign} 0")
        assert_allclose(found, compare(COLUMNS["zeros"], 0.0).mean(), atol=0.08)
        assert_allclose(found, compare(drawn[:, column], 0.0).mean(), atol=0.03)
    assert density.quantile(0.3, column) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.filterwarnings("ignore:.*too many completions")
def test_a_constant_is_certain(density):
    texts = [f"x0 {sign} 3.7" for sign in SIGNS]
    # Sum-product networks smooth a little beyond what they have seen
    assert_allclose(density.probabilities(texts), [0, 1, 1, 0, 1, 0], rtol=0, atol=1e-8)
    assert (density.sample(100, random_state=0)[:, 0] == 3.7).all()
    assert (density.sample(20, given="x0 >= 3.7", random_state=0)[:, 0] == 3.7).all()
    assert density.quantile([0.01, 0.5, 0.99], 0).tolist() == [3.7] * 3
    for kind in ("central", "highest_density"):
        assert density.interval(0.9, 0, kind=kind).tolist() == [3.7, 3.7]
    assert density.mpe(given="x0 <= 3.7 and x2 > 1e8")[0] == 3.7
    assert density.expectation(given="x0 <= 3.7")[0] == pytest.approx(3.7)
    assert density.probability("x0 < 3.7 or x0 > 3.71") == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize("constant", [-1e-9, 0.3, 7.0, 1e8, 1e8 + 0.3, -1e100])
@pytest.mark.parametrize("n_rows", [1, 5, 200])
def test_constants_of_any_size_are_certain(constant, n_rows):
    X = np.column_stack([np.full(n_rows, constant), NORMAL[np.arange(n_rows) % N_ROWS]])
    density = skcircuits.GaussianMixtureDensity(n_components=1, random_state=0).fit(X)
    texts = [f"x0 {sign} {constant!r}" for sign in SIGNS]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_allclose(density.probabilities(texts), [0, 1, 1, 0, 1, 0], rtol=0, atol=1e-9)
    assert (density.sample(100, random_state=0)[:, 0] == constant).all()
    assert density.quantile(0.2, 0) == constant
    # Scores know the spread that the column was given
    assert np.isfinite(density.score_samples(X)).all()


def test_constants_are_numbers_of_counts_and_sums():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.full(200, 3.7), rng.poisson(3, 200), rng.normal(size=200)])
    mixture = skcircuits.GaussianMixtureDensity(
        n_components=2, covariance_type="diag", random_state=0
    )
    for density in (mixture.fit(X), skcircuits.WMISPNDensity().fit(X)):
        ask = density.probability
        for text, same in {
            "count(x0 <= 3.7, x2 > 0) == 2": "x2 > 0",
            "count(x0 == 3.7, x1 > 3, x2 > 0) >= 2": "x1 > 3 or x2 > 0",
            "count(x0 > 3.7, x0 >= 3.7, x1 > 3) == 2": "x1 > 3",
            "x0 + x1 <= 6.7": "x1 <= 3",
            "x0 + x1 > 6.7": "x1 > 3",
            "x2 > x0 - 3.7": "x2 > 0",
            "abs(x0 + x2 - 3.7) > 1": "abs(x2) > 1",
            "2 * x0 < 7.5 and x2 > 0": "x2 > 0",
        }.items():
            assert_allclose(ask(text), ask(same), rtol=1e-9)
            assert_allclose(ask("x1 > 2", given=text), ask("x1 > 2", given=same), rtol=1e-9)
        assert ask("x0 + x0 > 7.5") == pytest.approx(0.0, abs=1e-8)
        low, high = density.probability("x0 + x1 <= 6.7", method="bounds", tol=1e-3)
        assert low - 1e-9 <= ask("x1 <= 3") <= high + 1e-9
        # A new number of the column is taken as it is
        row = np.array([4.2, np.nan, np.nan])
        assert_allclose(ask("x0 + x2 > 5", given=row), ask("x2 > 0.8", given=row), rtol=1e-9)


@pytest.mark.parametrize("name", ["ChowLiuDensity", "GaussianMixtureDensity", "WMISPNDensity"])
def test_counts_hold_the_numbers_that_queries_hold(name):
    model = getattr(skcircuits, name)(**SMALL[name])
    if name == "GaussianMixtureDensity":
        model.set_params(covariance_type="diag")
    coin = np.random.default_rng(1).normal(size=N_ROWS)
    density = model.fit(np.column_stack([*COLUMNS.values(), coin]))
    last = len(COLUMNS)
    for j in (0, 2, 4, 7):
        numbers = list(COLUMNS.values())[j]
        # Between integers no number is
        points = [np.sort(numbers)[N_ROWS // 3], np.median(numbers) + 0.5]
        texts = [f"x{j} {sign} {point!r}" for point in map(float, points) for sign in SIGNS]
        found = density.probabilities([f"count({text}, x{last} > 0) == 2" for text in texts])
        expected = density.probabilities([f"{text} and x{last} > 0" for text in texts])
        # Sum-product networks smooth a little beyond what they have seen
        assert_allclose(found, expected, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("scale", [1e300, 1e-300, 5e-324])
@pytest.mark.parametrize("name", DENSITIES)
def test_scales_beyond_squares_are_refused(name, scale):
    column = scale * np.round(3.0 * NORMAL)
    with pytest.raises(ValueError, match=r"Rescale the column\.$"):
        getattr(skcircuits, name)(**SMALL[name]).fit(np.column_stack([column, NORMAL]))


def test_kinds_of_numbers():
    kinds = TableSchema.learn(np.column_stack(list(COLUMNS.values()))).grids
    expected = dict.fromkeys(COLUMNS, NUMBERS)
    expected |= dict.fromkeys(("neighbours", "few floats", "below zero"), FLOATS)
    expected |= dict.fromkeys(("some floats", "many floats", "cluster"), FLOATS)
    expected |= dict.fromkeys(("around 2^53", "around 2^52", "huge"), INTEGERS)
    assert dict(zip(COLUMNS, kinds.tolist())) == expected
