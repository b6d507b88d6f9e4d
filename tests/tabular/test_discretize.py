"""Columns as states: which are cut, where, and densities that stay densities."""

import numpy as np
import pytest

from skcircuits.tabular import Discretizer, TableSchema, compile_queries


@pytest.fixture
def X():
    generator = np.random.default_rng(0)
    n = 400
    columns = [
        generator.gamma(2.0, size=n),  # continuous
        generator.integers(-3, 4, n).astype(float),  # few integers
        generator.integers(0, 3, n).astype(float),  # codes of labels
        np.full(n, 2.5),  # constant
        generator.integers(0, 1000, n).astype(float),  # many integers
        np.full(n, np.nan),  # nothing
    ]
    table = np.column_stack(columns)
    table[generator.random(table.shape) < 0.1] = np.nan
    return table


CARDINALITIES = np.array([0, 0, 3, 0, 0, 0])


@pytest.fixture
def discretizer(X):
    return Discretizer.fit(X, CARDINALITIES, n_bins=5)


def test_columns_are_cut_where_states_would_be_many(discretizer):
    assert discretizer.is_categorical.tolist() == [False, True, True, True, False, True]
    assert discretizer.cardinalities.tolist() == [6, 7, 3, 1, 5, 1]
    np.testing.assert_array_equal(discretizer.values[1], np.arange(-3, 4))
    np.testing.assert_array_equal(discretizer.values[3], [2.5])
    np.testing.assert_array_equal(discretizer.values[5], [0.0])


def test_training_rows_fill_the_bins_evenly(X, discretizer):
    states = discretizer.encode(X)
    np.testing.assert_array_equal(np.isnan(states), np.isnan(X))
    counts = np.bincount(states[~np.isnan(states[:, 0]), 0].astype(int), minlength=6)
    # The column is skewed: the outermost bin on the right is divided
    quantiles = np.append(counts[:4], counts[4] + counts[5])
    assert np.ptp(quantiles) <= 5


def test_outermost_bins_are_divided_where_the_density_falls():
    rng = np.random.default_rng(0)
    columns = np.stack(
        [rng.random(2000), rng.exponential(size=2000), -np.exp(1.5 * rng.normal(size=2000))], axis=1
    )
    discretizer = Discretizer.fit(columns, np.zeros(3, dtype=int))
    n_uniform, n_exponential, n_lognormal = discretizer.cardinalities
    assert n_uniform == 8 < min(n_exponential, n_lognormal)
    assert max(n_exponential, n_lognormal) < 18
    # Rows that are spread evenly over their bins keep the mean
    middles = discretizer.decode(discretizer.encode(columns), None)
    np.testing.assert_allclose(middles.mean(axis=0), columns.mean(axis=0), rtol=0.05)
    integers = np.floor(100 * columns[:, 1])[:, None]
    edges = Discretizer.fit(integers, np.zeros(1, dtype=int)).bin_edges[0]
    np.testing.assert_array_equal(edges % 1, 0.5)


def test_log_volume_makes_bins_integrate_to_one(discretizer):
    # One bin has probability 1: its density over a grid of the column must integrate to 1
    edges = discretizer.bin_edges[0]
    grid = np.linspace(edges[3], edges[4], 1001)[:-1]
    rows = np.full((1000, 6), np.nan)
    rows[:, 0] = grid
    density = np.exp(-discretizer.log_volume(rows))
    assert np.all(discretizer.encode(rows)[:, 0] == 3)
    assert density.mean() * (edges[4] - edges[3]) == pytest.approx(1.0, rel=1e-12)


def test_rows_decode_into_their_own_cells(X, discretizer):
    states = np.nan_to_num(discretizer.encode(X))
    generator = np.random.default_rng(1)
    decoded = discretizer.decode(states, generator)
    np.testing.assert_array_equal(discretizer.encode(decoded), states)
    assert discretizer.decode(np.stack([states, states]), generator).shape == (2, *X.shape)


def test_draws_are_uniform_inside_a_bin(discretizer):
    states = np.zeros((20_000, 6))
    states[:, 0] = 2
    drawn = discretizer.decode(states, np.random.default_rng(0))[:, 0]
    low, high = discretizer.bin_edges[0][2:4]
    assert drawn.min() >= low and drawn.max() <= high
    assert drawn.mean() == pytest.approx((low + high) / 2, abs=0.01 * (high - low))


def test_numbers_out_of_range_are_the_less_probable_the_further(X, discretizer):
    numbers = X[~np.isnan(X[:, 0]), 0]
    steps = np.array([1e-9, 0.1, 1.0, 1e6, 1e150])
    for beyond, state in ((numbers.max() + steps, 5), (numbers.min() - steps, 0)):
        rows = np.full((len(steps), 6), np.nan)
        rows[:, 0] = beyond
        assert (discretizer.encode(rows)[:, 0] == state).all()
        volume = discretizer.log_volume(rows)
        assert np.isfinite(volume).all() and (np.diff(volume) > 0).all()
    # The lower end of the column is steep, the upper one is not
    scales = discretizer.bins[0].tail_scales
    assert scales[0] < 0.3 * scales[1]


@pytest.mark.parametrize("n_rows", [20, 400])
def test_new_rows_lie_out_of_range_as_often_as_exchangeable_ones(n_rows):
    rng = np.random.default_rng(n_rows)
    beyond = []
    for _ in range(40):
        numbers = rng.normal(size=(n_rows, 1))
        bins = Discretizer.fit(numbers, np.zeros(1, dtype=int)).bins[0]
        rows = np.bincount(bins.encode(numbers[:, 0]).astype(int))
        beyond.append(rows[[0, -1]] / n_rows * bins.tail_fractions)
    assert np.mean(beyond) == pytest.approx(1.0 / (n_rows + 1), rel=0.25)


@pytest.mark.parametrize("kind", ["bins", "one bin", "point masses", "integers"])
def test_states_have_mass_one_with_their_tails(kind):
    rng = np.random.default_rng(0)
    numbers = {
        "bins": rng.normal(size=100),
        "one bin": np.array([0.1, 0.1 + 1e-9, 3.0]),
        "point masses": debts(),
        "integers": rng.poisson(300, size=500).astype(float),
    }[kind]
    discretizer = Discretizer.fit(
        numbers[:, None], np.zeros(1, dtype=int), n_bins=1 if kind == "one bin" else 8
    )
    bins = discretizer.bins[0]
    inside = np.isnan(bins.points)
    masses = np.where(inside, np.diff(bins.edges), 1.0) / bins.volumes
    for state, edge, scale, sign in zip((0, -1), bins.edges[[0, -1]], bins.tail_scales, (-1, 1)):
        # In units of the scale, by the trapezoidal rule: its error is (1/2000)^2 / 12
        distance = np.linspace(1e-9, 40.0, 80_001)
        x = edge + sign * scale * distance
        own = np.full(len(x), state % len(bins))
        height = np.exp(-bins.log_volumes(x, own)) * scale
        masses[state] += np.trapezoid(height, distance)
        # Intervals in the tail have the mass of their density, however far out
        ends = edge + sign * scale * np.array([0.5, 1.25])
        low, high = np.sort(ends)
        (covered,) = bins.coverage(*np.array([[low], [high], [high]]))
        expected = np.exp(-0.5) - np.exp(-1.25)
        assert covered[state] == pytest.approx(bins.tail_fractions[state] * expected, rel=1e-6)
        assert np.delete(covered, state).sum() == 0.0
        drawn = bins.draw(np.full(50_000, state % len(bins)), rng)
        is_beyond = sign * (drawn - edge) > 0
        part = bins.tail_fractions[state]
        assert is_beyond.mean() == pytest.approx(part, abs=5 * np.sqrt(part / 50_000))
    np.testing.assert_allclose(masses, 1.0, rtol=1e-6)
    everything = np.array([-np.inf]), np.array([np.inf]), np.array([np.inf])
    np.testing.assert_allclose(bins.coverage(*everything), 1.0, rtol=1e-15)


def test_bounds_that_many_rows_share_leave_little_beyond():
    bins = Discretizer.fit(debts()[:, None], np.zeros(1, dtype=int)).bins[0]
    assert bins.points[0] == 0.0 and bins.points[-1] == 8.0
    assert (bins.tail_fractions < 1e-5).all()
    np.testing.assert_allclose(bins.tail_scales, debts().std(), rtol=1e-9)


def test_integers_that_are_no_state_are_missing(discretizer):
    row = np.full((1, 6), np.nan)
    row[0, 1] = 17.0
    assert np.isnan(discretizer.encode(row)).all()
    assert discretizer.log_volume(row) == [0.0]


def test_repeated_numbers_do_not_make_empty_bins():
    column = np.concatenate([np.zeros(900), np.linspace(0.1, 1, 100)])[:, None]
    discretizer = Discretizer.fit(column, np.zeros(1, dtype=int), n_bins=8)
    assert (np.diff(discretizer.bin_edges[0]) > 0).all()
    assert np.isfinite(discretizer.log_volume(column)).all()


def test_weights_act_like_repeated_rows(X):
    weight = np.random.default_rng(2).integers(0, 3, len(X)).astype(float)
    weighted = Discretizer.fit(X, CARDINALITIES, sample_weight=weight)
    repeated = Discretizer.fit(np.repeat(X, weight.astype(int), axis=0), CARDINALITIES)
    for left, right in zip(weighted.bin_edges, repeated.bin_edges, strict=True):
        np.testing.assert_array_equal(left, right)


def test_coverage_is_the_fraction_of_each_state_inside_a_box(X, discretizer):
    schema = TableSchema.learn(X, categorical_features=[2])
    queries = [{0: (0.5, 2.0), 1: (-1, 2), 2: {0.0, 2.0}}, {1: 3, 4: (None, 500)}, {}]
    boxes = compile_queries(queries, schema)
    fractions = discretizer.coverage(boxes)
    np.testing.assert_array_equal(fractions[1], [[0, 0, 1, 1, 1, 1, 0], [0] * 6 + [1], [1] * 7])
    np.testing.assert_array_equal(fractions[2], [[1, 0, 1], [1, 1, 1], [1, 1, 1]])
    # Shares are what a fine sample of each state says
    generator = np.random.default_rng(0)
    states = np.zeros((20_000, 6))
    for state in range(6):
        states[:, 0] = state
        drawn = discretizer.decode(states, generator)[:, 0]
        inside = ((drawn >= 0.5) & (drawn <= 2.0)).mean()
        assert fractions[0][0, state] == pytest.approx(inside, abs=0.02)
    assert fractions[4][2].tolist() == [1.0] * 5


def test_bins_are_wide_enough_for_a_density():
    """Heavy values that differ by less than the inverse of any float share a bin."""
    cells = np.repeat([0.0, 1e-310, 2e-310, 1.0, 1.0 + 1e-15, 3.0], 50)[:, None]
    edges = Discretizer.fit(cells, np.zeros(1, dtype=np.int64)).bin_edges[0]
    assert (np.diff(edges) >= 1e-150).all()
    codes = np.searchsorted(edges, np.unique(cells), side="right")
    assert codes[0] == codes[1] == codes[2] < codes[3] <= codes[4] < codes[5]
    assert edges[0] == 0.0 and edges[-1] == np.nextafter(3.0, 4.0)


@pytest.mark.parametrize("tie", [0.0, 3.7, 30.0])
def test_a_number_in_many_rows_has_a_narrow_bin_to_itself(tie):
    numbers = np.random.default_rng(0).uniform(0.0, 30.0, 2000)
    numbers[::2] = tie
    discretizer = Discretizer.fit(numbers[:, None], np.zeros(1, dtype=np.int64))
    edges, codes = discretizer.bin_edges[0], discretizer.encode(numbers[:, None])[:, 0]
    own = int(discretizer.encode(np.array([[tie]]))[0, 0])
    assert edges[own + 1] - edges[own] <= 2e-3 * 30
    assert (codes == own).mean() == pytest.approx(0.5, abs=0.01)
    others = np.bincount(codes.astype(int))
    others[own] = 0
    assert others.max() < 0.2 * len(numbers)


def test_bins_of_integers_end_between_them():
    numbers = np.random.default_rng(0).integers(0, 50, 3000).astype(float)
    edges = Discretizer.fit(numbers[:, None], np.zeros(1, dtype=np.int64)).bin_edges[0]
    assert (edges % 1 == 0.5).all() and edges[0] == -0.5 and edges[-1] == 49.5
    sparse = np.repeat([0.0, 100.0, 101.0, 250.0, *range(300, 340)], [400, *[10] * 43])
    edges = Discretizer.fit(sparse[:, None], np.zeros(1, dtype=np.int64)).bin_edges[0]
    assert {-0.5, 0.5} <= set(edges)


def debts(n=2000, seed=0):
    """Numbers of which many rows share the least, one in the middle and the greatest."""
    rng = np.random.default_rng(seed)
    numbers = np.minimum(np.exp(rng.normal(size=n)), 7.9)
    return np.select(
        [rng.random(n) < 0.4, rng.random(n) < 0.3, rng.random(n) < 0.5], [0, 1, 8], numbers
    )


def test_numbers_of_many_rows_are_point_masses_among_the_bins():
    numbers = debts()
    discretizer = Discretizer.fit(numbers[:, None], np.zeros(1, dtype=np.int64))
    edges, points = discretizer.bins[0].edges, discretizer.bins[0].points
    assert points[~np.isnan(points)].tolist() == [0.0, 1.0, 8.0]
    assert (np.diff(edges) > 0).all() and len(points) == discretizer.cardinalities[0]
    states = discretizer.encode(numbers[:, None])
    is_shared = np.isin(numbers, [0.0, 1.0, 8.0])
    np.testing.assert_array_equal(~np.isnan(points[states[:, 0].astype(int)]), is_shared)
    for generator in (None, np.random.default_rng(1)):
        decoded = discretizer.decode(states.astype(int), generator)[:, 0]
        np.testing.assert_array_equal(decoded[is_shared], numbers[is_shared])
        assert not np.isin(decoded[~is_shared], [0.0, 1.0, 8.0]).any()
    # A mass counts as it is, beside densities in bins
    volume = discretizer.log_volume(numbers[:, None])
    assert (np.abs(volume[is_shared]) < 1e-5).all() and (np.abs(volume[~is_shared]) > 0.01).all()


def test_numbers_beside_a_point_mass_count_as_it():
    discretizer = Discretizer.fit(debts()[:, None], np.zeros(1, dtype=np.int64))
    beside = np.array([np.nextafter(1.0, 0.0), 1.0, 1e-300, -1e-300, 0.5, np.nan])[:, None]
    np.testing.assert_array_equal(discretizer.known(beside)[:, 0], [1, 1, 0, 0, 0.5, np.nan])
    row = np.array([[1.0]])
    np.testing.assert_array_equal(discretizer.encode(beside[:2]), discretizer.encode(row)[[0, 0]])


@pytest.mark.parametrize("point", [0.0, 1.0, 8.0])
def test_boxes_hold_point_masses_or_not(point):
    X = debts()[:, None]
    discretizer = Discretizer.fit(X, np.zeros(1, dtype=np.int64))
    signs = ["<", "<=", "==", ">=", ">"]
    boxes = compile_queries([f"x0 {sign} {point}" for sign in signs], TableSchema.learn(X))
    (fractions,) = discretizer.coverage(boxes)
    own = int(discretizer.encode(np.array([[point]]))[0, 0])
    below, above = 0.0, 0.0  # parts of the outermost states in the tails
    if own == 0:
        below = discretizer.bins[0].tail_fractions[0]
    elif own == fractions.shape[1] - 1:
        above = discretizer.bins[0].tail_fractions[1]
    inside = 1.0 - below - above
    expected = [below, below + inside, inside, inside + above, above]
    np.testing.assert_allclose(fractions[:, own], expected, rtol=1e-9)
    # Bins end at a point mass: what lies on either side of it is told apart
    others = np.delete(fractions, own, axis=1)
    assert set(others.ravel()) == {0.0, 1.0} and not others[2].any()
    np.testing.assert_array_equal(others[0], others[1])
    np.testing.assert_array_equal(others[3], others[4])
    np.testing.assert_array_equal(others[0] + others[4], 1.0)


def test_numbers_too_near_others_are_no_point_masses():
    rng = np.random.default_rng(0)
    twins = np.where(rng.random(1000) < 0.6, 0.3, rng.normal(size=1000))
    twins[::7] = np.nextafter(0.3, 1.0)
    discretizer = Discretizer.fit(twins[:, None], np.zeros(1, dtype=np.int64))
    assert np.isnan(discretizer.bins[0].points).all()


def test_more_numbers_may_be_named_that_many_rows_share():
    numbers = np.random.default_rng(0).normal(size=1000)
    numbers[:80] = 0.0
    for shared, found in ((None, []), (lambda *column: np.zeros(1), [0.0])):
        discretizer = Discretizer.fit(numbers[:, None], np.zeros(1, dtype=np.int64), shared=shared)
        points = discretizer.bins[0].points
        assert points[~np.isnan(points)].tolist() == found


def test_known_numbers_are_those_of_their_states():
    rng = np.random.default_rng(0)
    columns = [rng.normal(size=300), np.where(rng.random(300) < 0.4, 0.0, rng.normal(size=300))]
    columns += [rng.integers(0, 3, size=300) * 5.0, rng.integers(0, 4, size=300)]
    X = np.column_stack(columns)
    discretizer = Discretizer.fit(X, np.array([0, 0, 0, 4]))
    rows = np.array([[0.3, np.nextafter(0.0, 1.0), 5.0, 3.0], [np.nan, 0.2, 7.0, np.nan]])
    expected = [[0.3, 0.0, 5.0, 3.0], [np.nan, 0.2, np.nan, np.nan]]
    np.testing.assert_array_equal(discretizer.known(rows), expected)
