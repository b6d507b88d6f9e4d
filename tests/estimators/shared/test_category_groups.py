"""Rare categories, which densities learn as one state and answer for one by one."""

import itertools
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skcircuits import (
    AutomaticDensity,
    ChowLiuDensity,
    CircuitImputer,
    ContinuousMixtureDensity,
    ExpectedPredictionRegressor,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    MoATDensity,
    StackingDensity,
    StrudelDensity,
    WMISPNDensity,
)
from skcircuits.tabular._schema import CategoryGroups

N_ROWS = 150

DENSITIES = {
    "tree": ChowLiuDensity(random_state=0),
    "trees": ChowLiuDensity(n_components=2, max_iter=5, random_state=0),
    "strudel": StrudelDensity(max_iter=5, random_state=0),
    "continuous": ContinuousMixtureDensity(n_components=8, max_iter=3, random_state=0),
    "continuous and tree": ContinuousMixtureDensity(
        n_components=4, n_latent_states=2, max_iter=3, random_state=0
    ),
    "hidden": HiddenChowLiuDensity(n_latent_states=2, max_iter=5, random_state=0),
    "all trees": MoATDensity(max_iter=2, random_state=0),
    "mixture": GaussianMixtureDensity(n_components=2, random_state=0),
    "network": WMISPNDensity(random_state=0),
    "automatic": AutomaticDensity(random_state=0),
    "stack": StackingDensity([("a", ChowLiuDensity()), ("b", WMISPNDensity())], random_state=0),
}
every_density = pytest.mark.parametrize("name", DENSITIES)


def fit(density, table, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "Most cells")
        return density.fit(table, **arguments)


def make(name, **parameters):
    density = DENSITIES[name]
    return type(density)(**{**density.get_params(deep=False), **parameters})


@pytest.fixture(scope="module")
def table():
    """A column of names, of which few occur twice, beside two dependent categories."""
    rng = np.random.default_rng(0)
    names = [f"name {i:03d}" for i in rng.permutation(N_ROWS)]
    names[:30] = ["Ann"] * 20 + ["Bob"] * 10
    kind = rng.integers(3, size=N_ROWS)
    kind[:30] = [0] * 20 + [2] * 10
    own = np.where(rng.random(N_ROWS) < 0.8, kind, rng.integers(3, size=N_ROWS))
    return pd.DataFrame(
        {"name": names, "kind": np.array(list("abc"))[kind], "own": np.array(list("xyz"))[own]}
    )


@pytest.fixture(scope="module")
def fitted(table):
    return {name: fit(make(name), table) for name in DENSITIES}


def all_rows(table):
    names = sorted(set(table["name"]))
    return pd.DataFrame(
        list(itertools.product(names, "abc", "xyz")), columns=["name", "kind", "own"]
    )


def test_only_rare_categories_of_many_share_states():
    codes = np.repeat(np.arange(60.0), [5, 1, 1, 7, *[1] * 30, *[3] * 26])
    groups = CategoryGroups.learn(np.append(codes, np.nan), 63)
    # Categories 1, 2, 4, ..., 33 have one row each, 60 to 62 none
    assert groups.n_states == 2 + 26 + 2
    assert len(set(groups.states[[1, 2, *range(4, 34)]])) == 1
    assert len(set(groups.states[60:])) == 1
    assert groups.sizes.sum() == groups.n_categories == 63
    np.testing.assert_array_equal(groups.encode(np.array([1.0, np.nan])), [1, np.nan])
    assert CategoryGroups.learn(np.arange(50.0), 50) is None
    assert CategoryGroups.learn(np.repeat(np.arange(60.0), 2), 60) is None


def test_frequent_categories_keep_their_states_in_columns_of_very_many():
    counts = np.arange(1, 401)
    groups = CategoryGroups.learn(np.repeat(np.arange(400.0), counts), 400)
    n_rows = counts.sum()
    most = max(256, int(np.sqrt(n_rows)))
    # Others share states with those that have half or twice as many rows
    assert most < groups.n_states <= most + 8
    assert (groups.sizes[groups.states[-most:]] == 1).all()
    shared = counts[groups.sizes[groups.states] > 1]
    for state in np.unique(groups.states[: len(shared)]):
        own = counts[groups.states == state]
        assert own.max() < 2 * own.min()


def test_states_are_expanded_and_summed_in_equal_parts():
    groups = CategoryGroups(np.array([0, 1, 0, 2, 1, 1]))
    probabilities = np.array([[0.2, 0.6, 0.2], [0.5, 0.0, 0.5]])
    spread = groups.spread(probabilities)
    np.testing.assert_allclose(spread[0], [0.1, 0.2, 0.1, 0.2, 0.2, 0.2])
    np.testing.assert_allclose(groups.sums(spread), probabilities)
    allowed = np.array([False, True, True, False, False, True])
    np.testing.assert_array_equal(groups.first_members(), [0, 1, 3])
    np.testing.assert_array_equal(groups.first_members(allowed), [2, 1, 0])
    drawn = groups.decode(np.ones(200, dtype=int), np.random.default_rng(0), allowed)
    assert set(drawn) == {1.0, 5.0}


@every_density
def test_probabilities_of_all_rows_sum_to_one(name, table, fitted):
    log_prob = fitted[name].score_samples(all_rows(table))
    assert np.isfinite(log_prob).all()
    assert np.exp(log_prob).sum() == pytest.approx(1.0, abs=1e-10)


@every_density
def test_queries_know_the_categories_of_the_table(name, table, fitted):
    density, rows = fitted[name], all_rows(table)
    prob = np.exp(density.score_samples(rows))
    rare = table["name"][40]

    def truth(condition, given=True):
        return prob[condition & given].sum() / (prob * given).sum()

    is_rare, is_ann = rows["name"] == rare, rows["name"] == "Ann"
    assert density.probability(f"name == '{rare}'") == pytest.approx(truth(is_rare), rel=1e-8)
    assert density.probability("kind == 'a'", given=f"name in ['Ann', '{rare}']") == pytest.approx(
        truth(rows["kind"] == "a", is_rare | is_ann), rel=1e-8
    )
    assert density.probability(f"name != '{rare}'", given={"own": "x"}) == pytest.approx(
        truth(~is_rare, rows["own"] == "x"), rel=1e-8
    )
    is_given = (rows["kind"] == "b") & ~is_rare
    found = density.expectation(columns="name", given=f"kind == 'b' and name != '{rare}'")
    expected = pd.Series(prob * is_given).groupby(rows["name"]).sum()
    np.testing.assert_allclose(found.to_numpy()[0], expected / expected.sum(), atol=1e-10)


@every_density
def test_draws_and_best_rows_have_categories_of_the_table(name, table, fitted):
    density = fitted[name]
    drawn = density.sample(4000, random_state=0)["name"]
    frequencies = drawn.value_counts(normalize=True)
    probability = density.probability("name == 'Ann'")
    assert frequencies["Ann"] == pytest.approx(probability, abs=0.03)
    assert set(frequencies.index) == set(table["name"])
    some = table["name"][40:44].tolist()
    given = density.sample(200, given=f"name in {some}", random_state=0)["name"]
    assert set(given) == set(some)
    best = density.mpe(given=f"name in {some} and kind == 'c'")
    assert best["name"][0] in some


@every_density
def test_states_are_fewer_than_categories(name, table, fitted):
    density = fitted[name]
    circuit = density.to_circuit(4) if name == "all trees" else density.circuit_
    units = [unit for unit in circuit.plan.units if getattr(unit, "variable", None) == 0]
    assert units
    for unit in units:
        assert unit.n_states == 122
        # Ann, Bob and the others
        assert len(np.unique(unit.probabilities.round(14))) <= 3
    n_states = 3
    if name in ("tree", "network"):
        assert density._n_parameters() <= (n_states * 3 * 3 - 1)


@pytest.mark.parametrize("name", ["tree", "continuous", "hidden", "all trees", "network", "stack"])
def test_weights_and_pickles(name, table, fitted):
    rows = all_rows(table)
    copy = pickle.loads(pickle.dumps(fitted[name]))
    np.testing.assert_array_equal(copy.score_samples(rows), fitted[name].score_samples(rows))
    weight = np.where(table["name"] == "Bob", 8.0, 1.0)
    weighed = fit(make(name), table, sample_weight=weight)
    assert np.exp(weighed.score_samples(rows)).sum() == pytest.approx(1.0, abs=1e-10)
    assert weighed.probability("name == 'Bob'") > 2 * fitted[name].probability("name == 'Bob'")


@pytest.mark.parametrize("name", ["mixture", "all trees"])
def test_batches_are_learned_with_the_states_of_the_first(name, table):
    density = make(name)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Most cells")
        for part in (table, table.iloc[:60], table.iloc[60:]):
            density.partial_fit(part)
    assert np.exp(density.score_samples(all_rows(table))).sum() == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("name", ["strudel", "all trees"])
def test_fits_go_on_with_the_same_states(name, table):
    density = make(name, warm_start=True)
    for _ in range(2):
        fit(density, table)
    assert np.exp(density.score_samples(all_rows(table))).sum() == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize(
    "density", ["auto", GaussianMixtureDensity(n_components=1), HiddenChowLiuDensity()]
)
def test_imputers_keep_rare_categories(density, table):
    rng = np.random.default_rng(1)
    hidden = rng.random(table.shape) < 0.15
    incomplete = table.mask(hidden)
    imputer = CircuitImputer(density=density, random_state=0).set_output(transform="pandas")
    completed = fit(imputer, incomplete).transform(incomplete)
    assert (completed.to_numpy() == table.to_numpy())[~hidden].all()
    assert set(completed["name"]) <= set(incomplete["name"].dropna())
    for drawn in imputer.sample_imputations(incomplete, 1):
        assert (drawn.to_numpy() == table.to_numpy())[~hidden].all()


def test_rows_without_weight_do_not_decide_why_categories_are_missing():
    rng, n_rows = np.random.default_rng(0), 240
    names = [f"name {i}" for i in range(80)]
    number = rng.normal(size=n_rows)
    code = np.where(number > 0, 0, 1)
    code[:60] = np.arange(60) + 2
    name = np.array(names, dtype=object)[code]
    name[rng.random(n_rows) < np.where(code == 0, 0.6, 0.05)] = None
    table = pd.DataFrame({"name": pd.Categorical(name, names), "number": number})
    # Rare categories are frequent among the rows that do not count
    others = pd.DataFrame({"name": pd.Categorical(names[2:] * 2, names), "number": 0.0})
    weight = np.repeat([1.0, 0.0], [n_rows, len(others)])
    alone, among = (
        CircuitImputer(random_state=0).fit(X, sample_weight=weight[: len(X)])
        for X in (table, pd.concat([table, others], ignore_index=True))
    )
    assert alone.is_self_masked_[0]
    np.testing.assert_array_equal(among._masking.log_odds[0], alone._masking.log_odds[0])


def test_impossible_categories_of_a_component_are_no_reason_to_warn(table):
    located = GaussianMixtureDensity(n_components=1, covariance_type="tied", location_model=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        density = fit(located, table.assign(number=np.arange(N_ROWS) % 7.0))
    assert np.isneginf(density.category_log_probs_[0]).any()
    rows = all_rows(table).assign(number=np.nan)
    assert np.exp(density.score_samples(rows)).sum() == pytest.approx(1.0, abs=1e-10)


def test_unseen_categories_have_the_mass_of_rare_ones(table, fitted):
    density = fitted["tree"]
    new = pd.DataFrame({"name": ["nobody"], "kind": ["a"], "own": ["x"]})
    missing = pd.DataFrame({"name": [None], "kind": ["a"], "own": ["x"]})
    n_single = 120
    expected = np.log((n_single + 0.5) / (N_ROWS + 1))
    gain = density.score_samples(new) - density.score_samples(missing)
    assert gain[0] == pytest.approx(expected)


def test_held_out_rows_are_no_less_likely():
    rng = np.random.default_rng(0)
    n_rows = 1200
    kind = rng.integers(3, size=n_rows)
    number = kind + rng.normal(size=n_rows)
    names = rng.integers(900, size=n_rows)
    table = pd.DataFrame(
        {"name": [f"n{i}" for i in names], "kind": np.array(list("abc"))[kind], "number": number}
    )
    train, test = table[:600], table[600:]
    test = test[test["name"].isin(train["name"])]

    class Ungrouped(ChowLiuDensity):
        def _prepare_rows(self, rows, groups=None):
            super()._prepare_rows(rows, {})

    scores = [fit(cls(), train).score(test) for cls in (ChowLiuDensity, Ungrouped)]
    assert scores[0] > scores[1]


def test_identifiers_are_named_once_by_the_estimator_that_reads_the_table():
    rng = np.random.default_rng(0)
    names = pd.DataFrame({"x": rng.normal(size=120), "name": [f"id{i}" for i in range(120)]})
    names.loc[::7, "x"] = np.nan
    columns = make_column_transformer((OneHotEncoder(), ["name"]), remainder="passthrough")
    model = ExpectedPredictionRegressor(make_pipeline(columns, Ridge()), stacking=False)
    with pytest.warns(UserWarning, match="Most cells of 1 column.*'name'") as found:
        model.fit(names, rng.normal(size=120))
    assert sum("Most cells" in str(own.message) for own in found) == 1
