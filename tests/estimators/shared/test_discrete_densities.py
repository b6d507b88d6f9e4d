"""Strudel, Chow-Liu and latent Chow-Liu densities as estimators."""

import importlib
import pickle
import tracemalloc
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skcircuits import (
    ChowLiuDensity,
    CircuitImputer,
    ContinuousMixtureDensity,
    HiddenChowLiuDensity,
    MoATDensity,
    StrudelDensity,
)
from skcircuits.circuits import (
    divide,
    entropy,
    is_deterministic,
    is_structured_decomposable,
    kl_divergence,
)
from skcircuits.estimators.shared._completion import SharedStates
from skcircuits.estimators.shared._fitting import TrainingRows

DENSITIES = {
    "tree": ChowLiuDensity(random_state=0),
    "trees": ChowLiuDensity(n_components=3, random_state=0),
    "strudel": StrudelDensity(max_iter=15, random_state=0),
    "strudels": StrudelDensity(max_iter=5, n_components=2, random_state=0),
    "continuous": ContinuousMixtureDensity(
        n_components=16, max_iter=40, batch_size=32, learning_rate=0.01, random_state=0
    ),
    "continuous and tree": ContinuousMixtureDensity(
        n_components=8, n_latent_states=3, max_iter=20, batch_size=32, random_state=0
    ),
    "hidden": HiddenChowLiuDensity(n_latent_states=3, max_iter=15, random_state=0),
}
every_density = pytest.mark.parametrize("name", DENSITIES)


def make(name, **parameters):
    density = DENSITIES[name]
    return type(density)(**{**density.get_params(), **parameters})


def fit(density, X, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return density.fit(X, **arguments)


@pytest.fixture
def X():
    """Binary columns of two groups, one of them with three states."""
    rng = np.random.default_rng(0)
    group = rng.random((300, 1)) < 0.4
    table = (rng.random((300, 6)) < np.where(group, 0.85, 0.2)).astype(float)
    table[:, 5] = rng.integers(3, size=300)
    table[group[:, 0], 5] = 2.0
    return table


@every_density
def test_beats_independent_columns(name, X):
    density = fit(make(name), X)
    fractions = [np.bincount(column.astype(int)) / len(X) for column in X.T]
    independent = sum((p[p > 0] * np.log(p[p > 0])).sum() for p in fractions)
    assert density.score(X) > independent + 0.2


@every_density
def test_circuit_speaks_original_units(name):
    rng = np.random.default_rng(1)
    signs = rng.choice([-1.0, 1.0], size=200)
    years = rng.choice([1950.0, 1960.0, 1970.0], size=200)
    codes = np.where(signs > 0, 3.0, rng.choice([0.0, 3.0], size=200))
    sizes = signs + rng.normal(size=200) + 0.5
    X = np.column_stack([signs, years, codes, sizes])
    density = fit(make(name), X)
    circuit = density.circuit_
    np.testing.assert_allclose(circuit.log_prob(X), density.score_samples(X), rtol=1e-12)
    assert np.isfinite(circuit.log_prob(X)).all()
    drawn = density.sample(300, random_state=0)
    for column in range(3):
        assert set(drawn[:, column]) <= set(X[:, column])
    mean = circuit.expectation(np.full((1, 4), np.nan))[0]
    assert (np.abs(mean - X.mean(axis=0)) < [0.15, 3.0, 0.3, 0.6]).all()
    total = density.probability({0: (0, None)}) + density.probability({0: (None, 0)})
    assert total == pytest.approx(1.0, abs=1e-9)


def test_new_integers_where_floats_are_more_than_a_unit_apart():
    X = np.column_stack([np.full(40, 2.0**60), np.arange(40.0) % 5])
    density = ChowLiuDensity().fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new, known = density.score_samples([[2.0**60 + 256.0, 1.0], [2.0**60, 1.0]])
    assert -np.inf < new < known


EXACT = [name for name, own in DENSITIES.items() if not isinstance(own, ContinuousMixtureDensity)]


@pytest.mark.parametrize("name", EXACT)
def test_scores_and_queries_agree_about_new_integers_between_known_ones(name, X):
    gaps = np.array([0.0, 1.0, 4.0, 9.0])[(X[:, 5] + X[:, 0]).astype(int)]
    table = np.column_stack([X[:, :3], gaps])
    density = fit(make(name), table)
    asked = np.full((10, 4), np.nan)
    asked[:, 3] = np.arange(10.0)
    mass = np.exp(density.score_samples(asked))
    probabilities = [density.probability({3: (k, k)}) for k in range(10)]
    # Latent trees have tails beside their points
    tails = 1e-6 if name == "hidden" else 0.0
    np.testing.assert_allclose(mass, probabilities, rtol=1e-9, atol=tails)
    assert mass.sum() == pytest.approx(1.0, abs=1e-9 + 10 * tails)
    # The third of the probability of new numbers that lies between the known ones
    new = [2, 3, 5, 6, 7, 8]
    np.testing.assert_allclose(mass[new], 0.5 / 301 / 3 / len(new), rtol=0.15)
    # They are evidence like the known integer that is nearest
    assert density.probability({1: 1.0}, given={3: 3.0}) == pytest.approx(
        density.probability({1: 1.0}, given={3: 4.0}), rel=1e-6 + 2e3 * tails
    )
    codes = np.unique(gaps, return_inverse=True)[1]
    even = fit(make(name), np.column_stack([X[:, :3], codes]))
    assert is_deterministic(density.circuit_) == is_deterministic(even.circuit_)


def test_memory_for_new_integers_does_not_grow_with_their_number_times_that_of_rows():
    cells = np.random.default_rng(0).choice([0.0, 1.0, 50.0, 150.0], 100_000)
    cells[:10] = np.nan
    known = np.unique(cells[10:])
    rows = TrainingRows.of(cells[:, None], None)
    tracemalloc.start()
    states = SharedStates.learn(known, rows, 0)
    assert tracemalloc.get_traced_memory()[1] < 60 * cells.nbytes / 8
    tracemalloc.stop()
    totals = np.bincount(np.searchsorted(known, states.owners), states.inside)
    np.testing.assert_allclose(totals, 1.0, rtol=1e-12)


@every_density
def test_numbers_that_are_no_state_count_as_new_categories(name, X):
    X = X.copy()
    X[[0, 1], 1] = [2.0, 3.0]  # once each
    density = fit(make(name), X)
    strange, incomplete = X[2:5].copy(), X[2:5].copy()
    strange[:, 1], incomplete[:, 1] = 9.0, np.nan
    # A third of their probability lies above the known ones, 0 to 3, and falls exponentially
    scale = np.std([0.0, 1.0, 2.0, 3.0])
    expected = density.score_samples(incomplete) + np.log(2.5 / 301 / 3.0 / scale) - 5.5 / scale
    np.testing.assert_allclose(density.score_samples(strange), expected, rtol=1e-12)
    # Their other cells are completed as if the cell were missing
    strange[:, 2] = incomplete[:, 2] = np.nan
    drawn = [density.sample(2, X=rows, random_state=0)[:, :, 2] for rows in (strange, incomplete)]
    np.testing.assert_array_equal(*drawn)


@every_density
def test_missing_values_in_training_rows(name, X):
    incomplete = X.copy()
    incomplete[np.random.default_rng(2).random(X.shape) < 0.3] = np.nan
    density = fit(make(name), incomplete)
    complete = fit(make(name), X)
    assert density.score(X) > complete.score(X) - 0.25
    assert density.score(incomplete) > fit(make(name), X[np.r_[:5]]).score(incomplete)


@every_density
def test_runs_are_reproducible(name, X):
    X[::7, 2] = np.nan
    one, two = (fit(make(name), X).score_samples(X) for _ in range(2))
    np.testing.assert_array_equal(one, two)


@every_density
def test_categories(name):
    rng = np.random.default_rng(3)
    job = rng.choice(["cook", "nurse"], 150)
    shift = np.where(job == "cook", "day", rng.choice(["day", "night"], 150))
    table = pd.DataFrame({"job": job, "shift": shift})
    density = fit(make(name), table)
    assert density.probability({"shift": "night"}, given={"job": "cook"}) < 0.05
    assert density.probability({"shift": "night"}, given={"job": "nurse"}) > 0.35


@pytest.mark.parametrize("name", ["tree", "strudel"])
def test_single_circuits_are_deterministic(name, X):
    X[::5, 0] = np.nan
    circuit = fit(make(name), X).circuit_
    assert is_deterministic(circuit)
    assert is_structured_decomposable(circuit)
    incomplete = np.where(np.random.default_rng(4).random(X.shape) < 0.5, np.nan, X)
    assert not np.isnan(circuit.mpe(incomplete)).any()


def regions(density, values):
    """A point of every region, with the mean log density there, and the size of the region.

    Regions are of constant density, or tails: their log densities are linear, so that the mean is
    that at the mean distance from the edge.
    """
    points, sizes, states = [], [], density._states.discretizer
    for column, known in enumerate(values):
        bins, size = states.bins[column], states.volumes(column)
        if bins is not None:
            is_bin = np.isnan(bins.points)
            middles = (bins.edges[1:] + bins.edges[:-1]) / 2
            tails = bins.edges[[0, -1]] + [-1, 1] * bins.tail_scales
            known = np.append(np.where(is_bin, middles, bins.points), tails)
            size = np.append(np.where(is_bin, np.diff(bins.edges), 1.0), np.e * bins.tail_scales)
        points.append(known)
        sizes.append(size)
    return np.array(list(product(*points))), np.prod(list(product(*sizes)), axis=1)


@pytest.mark.parametrize("name", ["tree", "strudel"])
def test_exact_queries_whatever_the_numbers(name):
    """Bins, negative and large integers: the circuit is deterministic over them, too."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    signs = np.sign(x + rng.normal(size=400))
    table = np.column_stack([signs, x, 1024.0 + (x + rng.normal(size=400) > 0)])
    density = fit(make(name), table)
    p = density.circuit_
    assert is_deterministic(p)
    X, sizes = regions(density, [np.unique(column) for column in table.T])
    log_p = p.log_prob(X)
    masses = np.exp(log_p) * sizes
    assert masses.sum() == pytest.approx(1.0)
    assert entropy(p) == pytest.approx(-masses @ log_p, rel=1e-9)
    for incomplete in ([np.nan, np.nan, np.nan], [-1.0, np.nan, 1025.0], [np.nan, 0.3, np.nan]):
        seen = [j for j in range(3) if not np.isnan(incomplete[j])]
        rows = X.copy()
        rows[:, seen] = np.array(incomplete)[seen]
        best = p.mpe([incomplete])
        assert p.log_prob(best)[0] == pytest.approx(p.log_prob(rows).max())


def zero_inflated(kind, n_rows, is_incomplete):
    """A table whose first column has numbers that many rows share, and these numbers."""
    rng = np.random.default_rng(n_rows)
    place, z = rng.random(n_rows), rng.normal(size=n_rows)
    gains = np.exp(0.7 * z)
    numbers, shared = {
        "least": (np.where(place < 0.6, 0.0, gains), [0.0]),
        "few least": (np.where(place < 0.1, 0.0, gains), [0.0]),
        "greatest": (np.where(place < 0.3, 9.5, np.minimum(gains, 9.4)), [9.5]),
        "middle": (np.where(place < 0.4, 0.0, z), [0.0]),
        "two": (np.select([place < 0.3, place < 0.55], [0.0, 1.5], gains), [0.0, 1.5]),
        "all": (np.select([place < 0.5, place < 0.8], [0.0, 0.5], 2.5), [0.0, 0.5, 2.5]),
    }[kind]
    others = numbers + rng.normal(size=n_rows), rng.random(n_rows) < 1 / (1 + np.exp(-numbers))
    table = np.column_stack([numbers, *others])
    if is_incomplete:
        table[rng.random(table.shape) < 0.1] = np.nan
    return table, shared


SHARED = {
    **{name: DENSITIES[name] for name in ("tree", "trees", "strudel", "strudels")},
    "continuous": make("continuous", max_iter=5),
    "continuous and tree": make("continuous and tree", max_iter=5),
    "all trees": MoATDensity(max_iter=3, random_state=0),
}


@pytest.mark.parametrize(
    ("kind", "is_incomplete"),
    [
        ("least", False),
        ("least", True),
        ("few least", True),
        ("greatest", False),
        ("middle", True),
        ("two", False),
        ("all", True),
    ],
)
@pytest.mark.parametrize("name", SHARED)
def test_numbers_that_many_rows_share_have_their_frequencies(name, kind, is_incomplete):
    X, shared = zero_inflated(kind, 600, is_incomplete)
    density = fit(clone(SHARED[name]), X)
    numbers = X[~np.isnan(X[:, 0]), 0]
    drawn = density.sample(4000, random_state=0)[:, 0]
    atol = 0.05 if "continuous" in name else 0.03
    for point in shared:
        below, equal = (numbers < point).mean(), (numbers == point).mean()
        texts = [f"x0 {sign} {point}" for sign in ("<", "<=", "==", "!=", ">=", ">")]
        found = density.probabilities(texts)
        expected = [below, below + equal, equal, 1 - equal, 1 - below, 1 - below - equal]
        np.testing.assert_allclose(found, expected, atol=atol)
        np.testing.assert_allclose(found[[0, 1, 2]] + found[[4, 5, 3]], 1.0, rtol=0, atol=1e-9)
        assert abs((drawn == point).mean() - found[2]) < 0.03
        levels = found[0] + found[2] * np.array([0.05, 0.5, 0.95])
        np.testing.assert_allclose(density.quantile(levels.tolist(), 0), point, atol=1e-12)
        row = [[point, np.nan, np.nan]]
        assert density.score_samples(row)[0] == pytest.approx(np.log(found[2]), abs=1e-9)
        given = density.probability(texts[2], given=texts[1])
        assert given == pytest.approx(found[2] / found[1], rel=1e-9)
        assert density.expectation(given=f"x0 == {point}")[0] == pytest.approx(point)
    assert density.expectation()[0] == pytest.approx(drawn.mean(), abs=0.08 * drawn.std())


@pytest.mark.parametrize("kind", ["least", "few least", "greatest", "middle", "two", "all"])
@pytest.mark.parametrize("name", ["tree", "strudel"])
def test_circuits_with_point_masses_among_bins_stay_deterministic(name, kind):
    X, _ = zero_inflated(kind, 600, is_incomplete=True)
    density = fit(make(name), X)
    p = density.circuit_
    assert is_deterministic(p)
    rows, sizes = regions(density, [None, None, np.arange(2)])
    log_p = p.log_prob(rows)
    assert np.exp(log_p) @ sizes == pytest.approx(1.0)
    assert entropy(p) == pytest.approx(-(np.exp(log_p) * sizes) @ log_p, rel=1e-9)
    for column in range(3):
        incomplete = np.full((1, 3), np.nan)
        incomplete[0, column] = rows[0, column]
        same = rows[rows[:, column] == rows[0, column]]
        highest = p.log_prob(same).max()
        assert p.log_prob(p.mpe(incomplete))[0] == pytest.approx(highest, rel=1e-9)


@pytest.mark.parametrize("name", ["tree", "strudel"])
def test_divergence_and_quotient_of_two_fits(name):
    rng = np.random.default_rng(0)
    tables = []
    # The outermost bins of the dividend are narrow: its tails are the shorter ones
    for shift, shape in ((0.0, 0.5), (0.5, 1.0)):
        x = rng.beta(shape, shape, 400)
        x[:2] = 0.0, 1.0  # both fits have the same range
        tables.append(np.column_stack([np.where(x + rng.normal(size=400) > shift, 1, -1), x]))
    fits = [fit(make(name), table) for table in tables]
    p, q = (density.circuit_ for density in fits)
    # Between any two knots of either the densities are constant, beyond them exponential: as in
    # `regions`, with the scales of the distribution that the mean is of
    bins = fits[0]._states.discretizer.bins[1]
    ends = np.unique(
        [
            k
            for c in (p, q)
            for u in c.plan.units
            if u.scope == (1,)
            for k in getattr(u, "knots", [])
        ]
    )
    tails = bins.edges[[0, -1]] + [-1, 1] * bins.tail_scales
    points = np.append((ends[1:] + ends[:-1]) / 2, tails)
    sizes = np.append(np.diff(ends), np.e * bins.tail_scales)
    X = np.array([[sign, x] for sign in (-1.0, 1.0) for x in points])
    log_p, log_q = p.log_prob(X), q.log_prob(X)
    expected = np.exp(log_p) * np.tile(sizes, 2) @ (log_p - log_q)
    assert kl_divergence(p, q) == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(divide(p, q).log_prob(X), log_p - log_q, rtol=1e-9, atol=1e-9)


# -------------------------------------------------------------------- validation


@pytest.mark.parametrize("name", ["strudel", "strudels", "hidden"])
def test_the_best_step_on_validation_rows_is_kept(name, X):
    train, valid = X[:200], X[200:]
    density = fit(make(name), train, X_val=valid)
    assert len(density.validation_scores_) == density.n_iter_
    assert density.score(valid) == pytest.approx(max(density.validation_scores_), abs=1e-4)


def test_patience_stops_the_growth(X):
    X = X[np.random.default_rng(0).permutation(len(X))]
    density = fit(StrudelDensity(patience=4, random_state=0), X)
    scores = density.validation_scores_
    assert len(scores) - 1 - int(np.argmax(scores)) <= 4
    assert density.n_splits_ == int(np.argmax(scores))


def test_size_stops_the_growth(X):
    density = fit(StrudelDensity(max_parameters=30, patience=1000, random_state=0), X)
    larger = fit(StrudelDensity(max_parameters=100, patience=1000, random_state=0), X)
    assert density.n_iter_ < larger.n_iter_


def test_weights_of_incomplete_rows_are_repeated_rows_under_a_tree(X):
    rng = np.random.default_rng(0)
    X = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    weight = rng.integers(0, 3, len(X))
    weighted = ChowLiuDensity(random_state=0).fit(X, sample_weight=weight)
    repeated = ChowLiuDensity(random_state=1).fit(np.repeat(X, weight, axis=0))
    np.testing.assert_allclose(weighted.score_samples(X), repeated.score_samples(X), rtol=1e-9)


def test_no_split_is_the_tree(X):
    tree = fit(ChowLiuDensity(), X)
    density = fit(StrudelDensity(max_iter=0, validation_fraction=None), X)
    np.testing.assert_allclose(density.score_samples(X), tree.score_samples(X), atol=0.05)


@every_density
def test_completions_keep_numbers_never_seen(name, X):
    density = fit(make(name), X)
    drawn = density.sample(20, random_state=0, X=[[1.0, 0.0, np.nan, 1.0, 0.0, 7.0]])
    assert (drawn[:, 0, 5] == 7).all() and set(drawn[:, 0, 2]) <= {0, 1}


# -------------------------------------------------------------------- warm start


def test_columns_of_very_many_categories_stay_categorical():
    codes = np.repeat(np.arange(1100.0), 2)
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"code": codes.astype(int).astype(str), "x": rng.normal(size=2200)})
    density = ChowLiuDensity(random_state=0).fit(X)
    assert density.circuit_.cardinalities == {0: 1100}
    assert density.probability("code == '7'") == pytest.approx(1 / 1100, rel=0.01)
    imputer = CircuitImputer(density="chow_liu", random_state=0).fit(X)
    imputed = imputer.transform(X[:2].assign(code=None))
    assert set(imputed[:, 0]) <= set(X["code"])


def test_warm_start_goes_on(X):
    density = StrudelDensity(max_iter=4, warm_start=True, patience=1000, random_state=0)
    fit(density, X)
    first = list(density.validation_scores_)
    fit(density.set_params(max_iter=10), X)
    whole = fit(StrudelDensity(max_iter=10, patience=1000, random_state=0), X)
    assert first + density.validation_scores_[1:] == pytest.approx(whole.validation_scores_)
    np.testing.assert_allclose(density.score_samples(X), whole.score_samples(X), rtol=1e-12)


@pytest.mark.parametrize("n_components", [1, 2])
def test_warm_start_keeps_the_best_of_both_fits(n_components):
    # Of noise every split learns less than nothing
    noise = np.random.default_rng(5).integers(2, size=(200, 6)).astype(float)
    parameters = {"n_components": n_components, "random_state": 0}
    density = fit(StrudelDensity(max_iter=3, warm_start=True, **parameters), noise)
    first, score = density.score_samples(noise), density.validation_scores_[0]
    fit(density.set_params(max_iter=8), noise)
    # The second fit goes on from a circuit that is worse than the first one without splits
    assert density.validation_scores_[0] < score
    np.testing.assert_allclose(density.score_samples(noise), first, rtol=1e-12)
    assert density.n_splits_ == 0
    # And so does a third one, which saw the best model only through the second
    fit(density.set_params(max_iter=12), noise)
    np.testing.assert_allclose(density.score_samples(noise), first, rtol=1e-12)


def test_warm_start_with_fewer_components_forgets_the_mixture(X):
    density = StrudelDensity(max_iter=2, n_components=3, warm_start=True, random_state=0)
    fit(density, X)
    fit(density.set_params(n_components=1), X)
    single = fit(StrudelDensity(max_iter=2, random_state=0), X)
    np.testing.assert_allclose(density.score_samples(X), single.score_samples(X), rtol=1e-12)


def test_warm_start_refuses_other_rows(X):
    density = fit(StrudelDensity(max_iter=2, warm_start=True, random_state=0), X)
    with pytest.raises(ValueError, match="must be those of the previous fit"):
        density.fit(X[:100])


def test_pickles_do_not_carry_the_training_rows(X):
    density = fit(StrudelDensity(max_iter=2, warm_start=True, random_state=0), X)
    pickled = pickle.dumps(density)
    assert len(pickled) < X.nbytes / 2
    again = pickle.loads(pickled)
    np.testing.assert_array_equal(again.score_samples(X), density.score_samples(X))
    assert np.isfinite(fit(again, X).score(X))


@pytest.mark.parametrize("name", ["tree", "strudel", "hidden"])
def test_long_chains_are_pickled(name):
    """Their circuits are deep: a level or two for every column."""
    rng = np.random.default_rng(0)
    flips = rng.random((100, 250)) < 0.1
    X = np.cumsum(flips, axis=1) % 2.0
    density = fit(make(name, **({} if name == "tree" else {"max_iter": 1})), X)
    again = pickle.loads(pickle.dumps(density))
    np.testing.assert_array_equal(again.score_samples(X), density.score_samples(X))


# ------------------------------------------------------------------ interruption


@pytest.mark.parametrize("name", ["strudel", "strudels", "hidden", "trees"])
def test_interrupt_keeps_the_best_so_far(monkeypatch, name, X):
    target, after = {
        "strudel": ("skcircuits.learning._strudel.StrudelLearner._split", 5),
        "strudels": ("skcircuits.learning._strudel._shrunken", 3),
        "hidden": ("skcircuits.learning.latent_tree._learner._maximize", 9),
        "trees": ("skcircuits.trees._chow_liu.chow_liu_tree", 7),
    }[name]
    module, _, function = target.rpartition(".")
    owner = _resolve(module)
    original = getattr(owner, function)
    calls = []

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, function, interrupted)
    density = make(name, **({"validation_fraction": None} if name == "strudel" else {}))
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        density.fit(X)
    assert np.isfinite(density.score(X))
    assert np.exp(density.circuit_.log_partition) == pytest.approx(1.0)


def _resolve(path):
    """A module, or a class in one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    "density",
    [
        ChowLiuDensity(random_state=0),
        ChowLiuDensity(n_components=2, max_iter=5, random_state=0),
        StrudelDensity(max_iter=10, random_state=0),
        StrudelDensity(n_components=2, max_iter=10, random_state=0),
        HiddenChowLiuDensity(n_latent_states=3, max_iter=5, random_state=0),
        MoATDensity(max_iter=3, random_state=0),
        MoATDensity(n_components=2, max_iter=3, random_state=0),
    ],
    ids=repr,
)
def test_the_order_of_the_rows_does_not_matter(density):
    rng = np.random.default_rng(3)
    group = rng.integers(2, size=(300, 1))
    X = np.where(rng.random((300, 5)) < 0.2, 1 - group, group).astype(float)
    X = np.column_stack([X, group[:, 0] + rng.normal(size=300)])
    X[rng.random(X.shape) < 0.1] = np.nan
    weight = rng.integers(1, 4, size=300).astype(float)
    order = rng.permutation(300)
    one = clone(density).fit(X, sample_weight=weight)
    other = clone(density).fit(X[order], sample_weight=weight[order])
    np.testing.assert_allclose(other.score_samples(X), one.score_samples(X), rtol=1e-9)


def test_the_order_of_the_columns_does_not_matter_to_a_tree_of_complete_rows():
    rng = np.random.default_rng(4)
    group = rng.integers(3, size=(400, 1))
    X = np.where(rng.random((400, 6)) < 0.3, rng.integers(3, size=(400, 6)), group).astype(float)
    order = rng.permutation(6)
    one, other = ChowLiuDensity().fit(X), ChowLiuDensity().fit(X[:, order])
    np.testing.assert_allclose(other.score_samples(X[:, order]), one.score_samples(X), rtol=1e-10)


@pytest.mark.parametrize("name", ["tree", "strudel", "hidden", "continuous", "all trees"])
@pytest.mark.parametrize("chosen", [["code"], [1], [False, True]])
def test_numbers_may_be_categories(name, chosen):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(size=60), "code": rng.integers(0, 3, 60) * 7})
    densities = {**DENSITIES, "all trees": MoATDensity(max_iter=5, random_state=0)}
    density = clone(densities[name]).set_params(categorical_features=chosen).fit(table)
    assert density.is_categorical_.tolist() == [False, True]
    assert density.categories_[1].tolist() == [0, 7, 14]
    unseen = table.assign(code=np.where(table.index < 9, 8, table.code))
    assert np.isfinite(density.score_samples(unseen)).all()
    with pytest.raises(ValueError, match="categories seen in fit"):
        density.set_params(handle_unknown="error").score_samples(unseen)


@pytest.mark.parametrize("n_rows_of_choice", [10_000, 300])
def test_latent_states_are_chosen_on_validation_rows(monkeypatch, n_rows_of_choice):
    module = importlib.import_module("skcircuits.estimators.chow_liu")
    monkeypatch.setattr(module, "_N_STATES", (1, 2, 4, 8))
    monkeypatch.setattr(module, "_MAX_CHOICE_ROWS", n_rows_of_choice)
    rng = np.random.default_rng(0)
    hidden = rng.integers(4, size=(1000, 1))
    X = np.where(rng.random((1000, 5)) < 0.1, rng.integers(4, size=(1000, 5)), hidden)
    density = HiddenChowLiuDensity(max_iter=15, random_state=0).fit(X.astype(float))
    assert density.n_latent_states_ >= 4
    assert density.score(X) > HiddenChowLiuDensity(n_latent_states=2, random_state=0).fit(X).score(
        X
    )
    alone = HiddenChowLiuDensity(max_iter=5, validation_fraction=None, random_state=0).fit(X)
    assert alone.n_latent_states_ == 1


def test_more_latent_states_have_to_gain_more_than_a_trifle(monkeypatch):
    module = importlib.import_module("skcircuits.estimators.chow_liu")
    monkeypatch.setattr(module, "_N_STATES", (2, 4, 8))
    rng = np.random.default_rng(0)
    hidden = rng.integers(8, size=(600, 1))
    X = np.where(rng.random((600, 4)) < 0.1, rng.integers(8, size=(600, 4)), hidden).astype(float)
    assert HiddenChowLiuDensity(random_state=0).fit(X).n_latent_states_ == 8
    monkeypatch.setattr(module, "_LEAST_GAIN", 10.0)
    assert HiddenChowLiuDensity(random_state=0).fit(X).n_latent_states_ == 2


@pytest.mark.parametrize("max_iter", [1, 2, 10])
def test_choices_of_latent_states_leave_the_fit_its_iterations(monkeypatch, max_iter):
    module = importlib.import_module("skcircuits.estimators.chow_liu")
    monkeypatch.setattr(module, "_N_STATES", (2, 4))
    X = np.random.default_rng(0).integers(3, size=(200, 4)).astype(float)
    density = HiddenChowLiuDensity(max_iter=max_iter, n_iter_no_change=100, random_state=0).fit(X)
    assert density.n_iter_ == len(density.validation_scores_) == max_iter


def test_few_rows_do_not_choose_more_latent_states_than_rows():
    # A single held-out row liked 256 states
    X = np.random.default_rng(0).integers(0, 2, (10, 250))[:, 200:]
    assert HiddenChowLiuDensity(random_state=0).fit(X).n_latent_states_ == 16


def test_the_weight_of_the_latent_tree_is_the_likeliest_on_validation_rows(X):
    X, validation = X[:200], X[200:]
    validation[::5, 1] = np.nan
    both = fit(make("continuous and tree"), X, X_val=validation)
    assert 0.0 < both.latent_tree_weight_ < 1.0
    alone = fit(make("continuous and tree", n_latent_states=None), X, X_val=validation)
    assert alone.latent_tree_weight_ == 0.0
    # The draws of the mixture come first: it is the same in both
    probabilities = [np.exp(density.score_samples(validation)) for density in (alone, both)]
    tree = (probabilities[1] - (1 - both.latent_tree_weight_) * probabilities[0]) / (
        both.latent_tree_weight_
    )
    by_weight = {
        weight: np.log((1 - weight) * probabilities[0] + weight * tree).mean()
        for weight in np.linspace(0.0, 1.0, 101)
    }
    best = max(by_weight, key=by_weight.get)
    assert both.latent_tree_weight_ == pytest.approx(best, abs=0.011)
    assert both.score(validation) >= max(by_weight.values()) - 1e-9
    assert both.score(validation) > alone.score(validation)


def test_a_refit_without_latent_tree_forgets_it(X):
    density = fit(make("continuous and tree"), X)
    density.circuit_  # noqa: B018, built when first asked for
    fit(density.set_params(n_latent_states=None), X)
    once = fit(make("continuous and tree", n_latent_states=None), X)
    np.testing.assert_array_equal(density.score_samples(X), once.score_samples(X))
    np.testing.assert_allclose(density.circuit_.log_prob(X), once.score_samples(X), rtol=1e-12)


def test_latent_trees_give_collinear_numbers_joint_normal_distributions_where_rows_gain():
    rng = np.random.default_rng(0)
    kind, length = rng.integers(2, size=800), rng.gamma(4.0, size=800)
    area = length**2 + kind + 0.05 * rng.normal(size=800)
    X = pd.DataFrame({"kind": kind, "length": length, "area": area, "noise": rng.random(800)})
    X.loc[:50, "area"] = np.nan
    settings = {"n_latent_states": 12, "categorical_features": ["kind"], "random_state": 0}
    train, test = X[:600], X[600:]
    joint = HiddenChowLiuDensity(**settings).fit(train)
    apart = HiddenChowLiuDensity(max_joint_columns=1, **settings).fit(train)
    assert joint.joint_columns_ == ((1, 2),)
    assert joint.parents_[2] == 1
    assert apart.joint_columns_ == ()
    assert joint.score(test) > apart.score(test) + 0.5
    box = {"length": (2, 4), "area": (5, 12), "kind": 1}
    drawn = joint.sample(40_000, random_state=1)
    inside = drawn.length.between(2, 4) & drawn.area.between(5, 12) & (drawn.kind == 1)
    assert joint.probability(box) == pytest.approx(inside.mean(), abs=0.01)
    # Independent numbers have nothing to explain, and a bend is no line
    unrelated = pd.DataFrame(rng.random((300, 2)))
    assert (
        HiddenChowLiuDensity(**settings | {"categorical_features": None})
        .fit(unrelated)
        .joint_columns_
        == ()
    )


def test_a_category_that_a_number_decides_changes_at_its_threshold():
    rng = np.random.default_rng(0)
    weight = rng.normal(3000.0, 700.0, size=1500)
    table = pd.DataFrame({"weight": weight, "low": np.where(weight < 2500, "yes", "no")})
    settings = {"n_latent_states": 16, "pseudo_count": 0.05, "random_state": 0}
    density = HiddenChowLiuDensity(**settings).fit(table)
    assert density.probability("low == 'yes'", given="weight < 2500") > 0.98
    assert density.probability("low == 'yes'", given="weight >= 2500") < 0.02


@pytest.mark.parametrize("name", ["strudel", "hidden"])
def test_held_out_rows_are_no_copies_of_training_rows(name):
    rng = np.random.default_rng(0)
    X, fresh = (rng.normal(size=(n, 1)) + rng.normal(size=(n, 4)) for n in (200, 1000))
    # Weights that are no integers are never copies
    whole, other = (fit(make(name), X, sample_weight=np.full(200, w)) for w in (5.0, 5.01))
    assert whole.score(fresh) == pytest.approx(other.score(fresh), abs=0.1)


@pytest.mark.parametrize("n_components", [1, 2])
@pytest.mark.parametrize("is_missing", [False, True])
def test_the_log_likelihood_of_trees_is_that_of_their_circuit(n_components, is_missing):
    rng = np.random.default_rng(0)
    X = rng.standard_t(2, size=(200, 1)) + rng.normal(size=(200, 3))
    X[:, 1] = np.where(rng.random(200) < 0.3, 0.0, X[:, 1])
    if is_missing:
        X[rng.random(X.shape) < 0.2] = np.nan
    weight = rng.random(200)
    density = ChowLiuDensity(n_components=n_components, max_iter=200, random_state=0)
    density.fit(X, sample_weight=weight)
    expected = np.average(density.score_samples(X), weights=weight)
    assert density.log_likelihood_ == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", ["tree", "strudel", "hidden"])
def test_parameters_are_those_of_the_last_fit(name):
    rng = np.random.default_rng(0)
    gaps = rng.choice([0.0, 1.0, 2.0, 3.0, 7.0, 9.0], size=(300, 2))  # 4 and others get masses, too
    X = rng.integers(0, 4, size=(300, 2)).astype(float)
    refitted = fit(fit(make(name), gaps), X)
    assert refitted.bic(X) == pytest.approx(fit(make(name), X).bic(X), rel=1e-12)
