import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skcircuits import (
    AutomaticDensity,
    CircuitImputer,
    ExpectedPredictionSVR,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    WMISPNDensity,
)
from skcircuits.estimators.automatic import _experts
from skcircuits.estimators.automatic import density as automatic_density
from skcircuits.estimators.automatic._experts import Trials, experts_for
from skcircuits.learning.gaussian_mixture import _candidates
from skcircuits.learning.gaussian_mixture import _held_out as held_out
from skcircuits.learning.gaussian_mixture._table import MixtureTable


def curved(n_rows=130, seed=0):
    """A number that bends with another, and a category that tells which branch."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, n_rows)
    branch = rng.choice(["up", "down"], n_rows)
    y = np.where(branch == "up", x**2, -(x**2)) + 0.1 * rng.normal(size=n_rows)
    return pd.DataFrame({"x": x, "y": y, "branch": branch})


@pytest.fixture(scope="module")
def fitted():
    return AutomaticDensity(random_state=0).fit(curved())


def test_the_mixture_is_that_of_its_members(fitted):
    rows = curved(50, seed=1)
    rows.loc[::3, "y"] = np.nan
    joint = np.stack([density.score_samples(rows) for density in fitted.densities_])
    expected = np.log(fitted.weights_ @ np.exp(joint))
    np.testing.assert_allclose(fitted.score_samples(rows), expected)
    assert fitted.weights_.sum() == pytest.approx(1.0)


def test_every_family_is_compared(fitted):
    assert {row["family"] for row in fitted.selection_} == {
        "gaussian_mixture",
        "latent_tree",
        "wmispn",
    }
    chosen = [row for row in fitted.selection_ if row["weight"]]
    assert fitted.selection_[: len(chosen)] == chosen


def test_the_best_of_all_families_is_as_good_as_that_of_one(fitted):
    gains = []
    for seed in range(2):
        learned, rows = curved(seed=seed), curved(1000, seed=100 + seed)
        best = AutomaticDensity(random_state=0).fit(learned) if seed else fitted
        mixture = GaussianMixtureDensity(random_state=0).fit(learned)
        gains.append(best.score(rows) - mixture.score(rows))
    # A table of 130 rows may mislead by more, two of them on average do not
    assert np.mean(gains) > -0.02


def test_mass_is_one_where_numbers_repeat():
    rng = np.random.default_rng(0)
    amounts = np.where(rng.random(150) < 0.5, 0.0, rng.gamma(2.0, size=150))
    table = pd.DataFrame({"amount": amounts, "kind": rng.choice(["a", "b"], 150)})
    density = AutomaticDensity(families=["latent_tree"], random_state=0).fit(table)
    both = [density.probability({"kind": kind}) for kind in "ab"]
    assert sum(both) == pytest.approx(1.0)
    assert density.probability("-1 < amount < 0.02") == pytest.approx(0.5, abs=0.08)


def test_proper_imputations_keep_the_choice():
    table = curved(60)
    table.loc[::4, "y"] = np.nan
    density = AutomaticDensity(families=["wmispn"], selection="cells")
    imputer = CircuitImputer(density=density, random_state=0).fit(table)
    again = imputer.density_._clone_for_draw()
    again._fit_encoded(*imputer._training[:1], imputer._schema)
    assert [type(d) for d in again.densities_] == [type(d) for d in imputer.density_.densities_]
    assert len(imputer.set_output(transform="pandas").sample_imputations(table, 2)) == 2


def test_an_imputer_averages_the_densities_by_their_weights():
    table = curved(120)
    table.loc[::4, "y"] = np.nan
    imputer = CircuitImputer(random_state=0).set_output(transform="pandas").fit(table)
    assert len(imputer.density_.densities_) > 1
    rows = curved(20, seed=3).assign(y=np.nan)
    encoded = imputer._schema.encode(rows)
    own = [density.circuit_.expectation(encoded)[:, 1] for density in imputer.density_.densities_]
    weights = imputer.density_._column_weights[:, 1]
    assert weights.sum() == pytest.approx(1.0)
    expected = weights @ np.stack(own)
    imputer.density_._forests = None  # which the average includes, too
    np.testing.assert_allclose(imputer.transform(rows)["y"], expected)


def test_trees_do_not_blur_numbers_that_another_column_determines():
    rng = np.random.default_rng(100)
    z, noise, other = rng.normal(size=(3, 300))
    table = np.column_stack([z + noise, 2.2 * (z + noise), z, other])
    hidden = rng.random(table.shape) < 0.1
    imputer = CircuitImputer(random_state=0)
    imputed = imputer.fit_transform(np.where(hidden, np.nan, table))
    known = hidden[:, 0] & ~hidden[:, 1]
    np.testing.assert_allclose(imputed[known, 0], table[known, 0], atol=1e-3)
    assert not {0, 1} & imputer.density_.forest_weights_.keys()


@pytest.mark.parametrize("sigma", [0.0, 1.5])
def test_skewed_tables_of_numbers_are_transformed_if_cells_are_predicted(sigma):
    rng = np.random.default_rng(7)
    factor = rng.normal(size=(150, 1))
    X = factor + 0.5 * rng.normal(size=(150, 3))
    X[:, 0] = np.exp(sigma * X[:, 0]) if sigma else X[:, 0]
    density = AutomaticDensity(selection="cells", random_state=0).fit(X)
    tried = [row for row in density.selection_ if "transformation" in row]
    assert bool(tried) == bool(sigma)


@pytest.mark.parametrize("constant", [3.7, 2.0])
def test_columns_of_one_value_are_no_reason_to_try_trees(constant):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 4)) + 0.4 * rng.normal(size=(200, 4))
    density = AutomaticDensity(selection="cells", random_state=0)
    density.fit(np.column_stack([X, np.full(200, constant)]))
    assert {row["family"] for row in density.selection_} == {"gaussian_mixture"}


def test_unknown_families_are_named():
    with pytest.raises(ValueError, match=r"families must be some of .*got families=\['kde'\]"):
        AutomaticDensity(families=["kde"]).fit(curved(20))


def test_a_clone_chooses_again(fitted):
    assert clone(fitted)._given_weights is None


def test_no_mixture_is_fitted_twice_to_the_same_rows(monkeypatch):
    tried = []

    def noted(part, candidate, *args, begun=None, fit=_candidates.try_candidate, **kwargs):
        if begun is None:
            tried.append((candidate, part.scale.tobytes()))  # in the columns or transformed ones
        return fit(part, candidate, *args, begun=begun, **kwargs)

    for module in (_candidates, _experts):
        monkeypatch.setattr(module, "try_candidate", noted)
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(size=(300, 2)) @ rng.normal(size=(2, 5)))
    X[rng.random(X.shape) < 0.2] = np.nan
    density = AutomaticDensity(selection="cells", random_state=0).fit(X)
    assert len(density.selection_) > 4  # one Gaussian was not enough
    assert len(tried) == len(set(tried))


def decided(n_rows, seed, noise=0.0):
    """Whether children weigh less than 2500 grams."""
    rng = np.random.default_rng(seed)
    mother = np.round(rng.lognormal(4.84, 0.2, n_rows))
    weight = np.round(3150 + 8 * (mother - 130) + 600 * rng.normal(size=n_rows))
    is_low = (weight < 2500) ^ (rng.random(n_rows) < noise)
    table = pd.DataFrame({"low": np.where(is_low, "yes", "no"), "mother": mother, "weight": weight})
    return table.assign(smokes=rng.choice(["yes", "no"], n_rows))


# Thresholds are found before families are compared
@pytest.mark.parametrize(
    ("n_rows", "noise", "families"),
    [
        (190, 0.0, ["latent_tree"]),
        (190, 0.04, "all"),
        (600, 0.0, ["wmispn"]),
        (600, 0.04, ["latent_tree"]),
    ],
)
def test_categories_that_a_number_decides_have_the_frequencies_of_the_table(
    n_rows, noise, families
):
    table = decided(n_rows, 0, noise)
    density = AutomaticDensity(families=families, random_state=0).fit(table)
    ((number, cuts),) = density.thresholds_.values()
    assert list(density.thresholds_) == [0]
    assert number == 2
    assert abs(cuts[0] - 2500) < 30
    is_low, is_light = table["low"] == "yes", table["weight"] < 2500
    for given, side in (("weight < 2500", is_light), ("weight >= 2500", ~is_light)):
        model = density.probability("low == 'yes'", given=given)
        assert model == pytest.approx(is_low[side].mean(), abs=0.02)
        model = density.probability(given, given="low == 'yes'")
        assert model == pytest.approx(side[is_low].mean(), abs=0.02)
    draws = density.sample(2000, random_state=0)
    assert list(draws.columns) == list(table.columns)
    wrong = (draws["low"] == "yes") != (draws["weight"] < cuts[0])
    assert wrong.mean() == pytest.approx((is_low != is_light).mean(), abs=0.015)
    assert density.probability({"smokes": "yes"}) == pytest.approx(0.5, abs=0.1)


def test_few_numbers_that_another_decides_have_the_frequencies_of_the_table():
    table = decided(300, 0)
    table = table.assign(
        low=(table["weight"] < 2500).astype(int),
        grade=np.array([1, 2, 5])[np.digitize(table["weight"], [2500, 3500])],
    )
    density = AutomaticDensity(families=["gaussian_mixture"], random_state=0).fit(table)
    assert {column: number for column, (number, _) in density.thresholds_.items()} == {0: 2, 4: 2}
    assert density.probability({"low": 1}, given={"weight": (None, 2499)}) > 0.98
    assert density.probability({"low": 1}, given={"weight": (2500, None)}) < 0.02
    mean = table["grade"][table["low"] == 0].mean()
    assert density.expectation(given={"low": 0})["grade"].item() == pytest.approx(mean, abs=0.02)
    draws = density.sample(500, random_state=0)
    assert (draws["low"] == (draws["grade"] == 1)).mean() > 0.98
    assert set(draws["grade"]) <= {1, 2, 3, 4, 5}
    # 3 and 4 are new, but have a probability, as other numbers have
    scores = density.score_samples(pd.concat([table[:1].assign(grade=grade) for grade in range(7)]))
    assert np.isfinite(scores).all()
    integers = np.arange(-1000, 1000)
    masses = np.exp(density.marginal("grade").score_samples(integers[:, None]))
    assert masses.sum() == pytest.approx(1.0, abs=1e-3)


def test_thresholds_are_left_out_where_cells_are_predicted():
    density = AutomaticDensity(selection="cells", random_state=0).fit(decided(190, 0))
    assert density.thresholds_ == {}
    assert len(density.densities_[0].categories_) == 4


def test_more_rows_try_more_components_to_predict_cells():
    rng = np.random.default_rng(0)

    def most_components(n_rows, criterion, **more):
        table = MixtureTable.prepare(rng.normal(size=(n_rows, 3)), np.zeros(3, int))
        experts = experts_for(table, ["gaussian_mixture"], criterion, **more)
        found = [dict(expert.parameters) for expert in experts]
        return max(own["n_components"] for own in found if own["covariance_type"] == "shrunk")

    assert [most_components(n, "cells") for n in (5000, 1500)] == [48, 25]
    # Queries of a joint density take longer with each component
    assert most_components(5000, "log_likelihood") == 32
    assert most_components(5000, "log_likelihood", may_transform=False) == 8


@pytest.mark.parametrize(("n_rows", "n_columns"), [(5000, 8), (5001, 1), (2001, 20)])
def test_only_as_many_rows_as_a_kernel_density_may_have_are_its_components(n_rows, n_columns):
    numbers = np.random.default_rng(0).normal(size=(n_rows, n_columns))
    table = MixtureTable.prepare(numbers, np.zeros(n_columns, int))
    experts = experts_for(table, ["gaussian_mixture"], "cells")
    by_rows = [e for e in experts if dict(e.parameters)["n_components"] == "rows"]
    assert len(by_rows) == (n_rows == 5000)


def test_predictions_of_cells_are_averaged_on_large_tables_too(monkeypatch):
    table = curved()
    few = AutomaticDensity(selection="cells", random_state=0).fit(table)
    monkeypatch.setattr(_candidates, "_POOL_CELLS", 1)
    # As many as without the limit of the pool, up to four
    large = AutomaticDensity(selection="cells", random_state=0).fit(table)
    assert 1 < len(large.densities_) == min(4, len(few.densities_))


def tables():
    rng = np.random.default_rng(0)
    labels = pd.DataFrame({"a": rng.choice(list("xyz"), 60), "b": rng.choice(["u", "v"], 60)})
    whole = rng.integers(4, size=(60, 3)).astype(float)
    numbers = rng.normal(size=(60, 3))
    mixed = labels.assign(size=numbers[:, 0])
    many = np.column_stack([whole[:, 0], np.arange(60.0)])
    few_rows = whole[:8]
    incomplete = np.where(rng.random(whole.shape) < 0.2, np.nan, whole)
    return {
        "categories": (labels, AutomaticDensity),
        "integers": (whole, HiddenChowLiuDensity),
        "incomplete integers": (incomplete, HiddenChowLiuDensity),
        "numbers": (numbers, AutomaticDensity),
        "mixed": (mixed, AutomaticDensity),
        "many whole": (many, AutomaticDensity),
        "few rows": (few_rows, AutomaticDensity),
    }


@pytest.mark.parametrize("name", tables())
def test_the_choice_is_visible(name):
    X, expected = tables()[name]
    imputer = CircuitImputer(random_state=0).fit(X)
    assert isinstance(imputer.density_, expected)


@pytest.mark.parametrize("name", ["categories", "integers", "incomplete integers"])
def test_discrete_tables_are_predicted_and_completed(name):
    X, _ = tables()[name]
    y = np.random.default_rng(1).normal(size=60)
    incomplete = pd.DataFrame(X).astype(object)
    incomplete.iloc[::3, 0] = None
    model = ExpectedPredictionSVR(random_state=0).fit(X, y)
    values = incomplete if name == "categories" else incomplete.astype(float).to_numpy()
    assert np.isfinite(model.predict(values)).all()
    _, std = model.predict(values, return_std=True)
    assert (std[::3] > 0).all()
    completed = CircuitImputer(random_state=0, strategy="mpe").fit(X).transform(values)
    assert not pd.isna(completed).any(axis=None)


def test_few_rows_of_independent_columns_are_not_taken_for_dependent():
    X = np.random.default_rng(0).normal(size=(60, 30))
    missing = np.random.default_rng(1).random(X.shape) < 0.1
    completed = CircuitImputer(random_state=0).fit_transform(np.where(missing, np.nan, X))
    assert np.sqrt(((completed - X)[missing] ** 2).mean()) < 1.15  # their deviation is 1


def test_few_rows_of_dependent_columns_keep_their_covariances():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 12)) + 0.1 * rng.normal(size=(60, 12))
    missing = rng.random(X.shape) < 0.2
    completed = CircuitImputer(random_state=0).fit_transform(np.where(missing, np.nan, X))
    assert np.sqrt(((completed - X)[missing] ** 2).mean()) < 0.2  # noise alone leaves 0.13


@pytest.mark.parametrize(
    "name, expected",
    [
        ("gaussian_mixture", "GaussianMixtureDensity"),
        ("latent_tree", "HiddenChowLiuDensity"),
        ("wmispn", "WMISPNDensity"),
        ("chow_liu", "ChowLiuDensity"),
        ("strudel", "StrudelDensity"),
    ],
)
def test_densities_by_name(name, expected):
    X = tables()["integers"][0]
    imputer = CircuitImputer(density=name, random_state=0).fit(X)
    assert type(imputer.density_).__name__ == expected


def test_parameters_of_a_density_that_is_a_name():
    imputer = CircuitImputer()
    with pytest.raises(ValueError, match=r"Write density=GaussianMixtureDensity\(n_components=3\)"):
        imputer.set_params(density__n_components=3)
    imputer.set_params(density=GaussianMixtureDensity(), density__n_components=3)
    assert imputer.density.n_components == 3


def test_several_families_pooled_give_one_circuit():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.exp(rng.normal(size=(150, 3))), rng.integers(0, 3, 150)])
    X[:, 0] += 4.0 * (X[:, 3] == 1)
    y = X[:, 0] + X[:, 1]
    X[rng.random(X.shape) < 0.2] = np.nan
    X[:30] = np.nan_to_num(X[:30])
    model = ExpectedPredictionSVR(categorical_features=[3], random_state=0)
    assert np.isfinite(model.fit(X, y).predict(X)).all()


def test_rows_without_weight_do_not_choose():
    rng = np.random.default_rng(0)
    whole = np.vstack([rng.integers(4, size=(60, 3)), rng.normal(size=(60, 3))])
    weight = np.repeat([1.0, 0.0], 60)
    model = ExpectedPredictionSVR(random_state=0).fit(whole, whole[:, 0], sample_weight=weight)
    assert isinstance(model.density_, HiddenChowLiuDensity)


@pytest.mark.parametrize("selection", ["cells", "log_likelihood"])
def test_weights_that_are_no_counts_may_have_any_sum(selection):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 150)
    X = np.column_stack([rng.normal(codes, 0.5), codes, (codes == 1) ^ (rng.random(150) < 0.1)])
    X[rng.random(X.shape) < 0.2] = np.nan
    weight = rng.random(150)
    one, other = (
        AutomaticDensity(selection=selection, categorical_features=[1, 2], random_state=0).fit(
            X, sample_weight=unit * weight
        )
        for unit in (1.0, 2.0**-20)
    )
    assert other.forest_weights_ == one.forest_weights_
    np.testing.assert_array_equal(other.score_samples(X), one.score_samples(X))


def test_integer_weights_do_not_outweigh_the_prior_of_forests():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (200, 2))
    X = np.column_stack([rng.normal(size=200), codes, codes.sum(axis=1) % 3])
    X[rng.random(X.shape) < 0.2] = np.nan
    once, often = (
        AutomaticDensity(selection="cells", categorical_features=[1, 2, 3], random_state=0)
        .fit(X, sample_weight=np.full(200, weight))
        .forest_weights_
        for weight in (1.0, 1e6)
    )
    assert once.keys() & often.keys() >= {1, 2, 3}


def test_fits_to_some_of_the_rows_are_not_kept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 6)) + rng.normal(size=(300, 6))
    density = AutomaticDensity(selection="cells", random_state=0).fit(X)
    # Attributes of a fit are its parameters: the comparison has weighed ten times as much
    assert len(pickle.dumps(density)) < 2 * len(pickle.dumps(density.densities_))


def test_means_of_heavy_tails_stay_near_what_was_seen():
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 4)) + 0.5 * rng.normal(size=(300, 4))
    X = np.column_stack([np.exp(2.0 * factors[:, :2]), factors[:, 2:], rng.choice(3, 300)])
    hidden = rng.random(X.shape) < 0.3
    hidden[:, 4] = False
    masked = np.where(hidden, np.nan, X)
    train, test = masked[:200], masked[200:]
    imputer = CircuitImputer(categorical_features=[4], random_state=0).fit(train)
    assert len(imputer.density_.densities_) > 1
    filled = imputer.transform(test)
    spread = np.nanstd(train, axis=0)
    assert (filled >= np.nanmin(train, axis=0) - 1.001 * spread)[hidden[200:]].all()
    assert (filled <= np.nanmax(train, axis=0) + 1.001 * spread)[hidden[200:]].all()


def shared_numbers(has_categories):
    rng = np.random.default_rng(3)
    group = rng.random(600) < 0.4
    debts = np.where(rng.random(600) < np.where(group, 0.9, 0.3), 0.0, rng.exponential(size=600))
    size = rng.normal(group * 2.0)
    table = pd.DataFrame({"debts": debts, "size": size, "other": rng.normal(size)})
    return table.assign(group=np.where(group, "a", "b")) if has_categories else table


def test_densities_with_reported_parameters_are_those_of_the_mixture():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 200))
    table = pd.DataFrame({"x": np.where(y > 0.3, 0.0, x), "y": y, "k": rng.integers(0, 5, 200)})
    density = AutomaticDensity(random_state=0).fit(table)
    chosen = [row for row in density.selection_ if row["weight"]]
    names = {
        "gaussian_mixture": GaussianMixtureDensity,
        "latent_tree": HiddenChowLiuDensity,
        "wmispn": WMISPNDensity,
    }
    assert {"latent_tree", "gaussian_mixture"} <= {row["family"] for row in chosen}
    for row in chosen:
        scored = {"loss", "standard_error", "weight", "misfit"}
        own = {key: row[key] for key in row.keys() - scored}
        alone = names[own.pop("family")](**own).fit(table)
        scores = alone.score_samples(table)
        fitted = [member.score_samples(table) for member in density.densities_]
        assert any(np.allclose(scores, known) for known in fitted)


@pytest.mark.parametrize("has_categories", [True, False])
def test_numbers_that_many_rows_share_have_their_probabilities(has_categories):
    table = shared_numbers(has_categories)
    density = AutomaticDensity(random_state=0).fit(table)
    is_zero = table["debts"] == 0
    for query, rows in (
        ("debts <= 0", is_zero),
        ("debts > 0", ~is_zero),
        ("debts == 0 and size > 1", is_zero & (table["size"] > 1)),
    ):
        assert density.probability(query) == pytest.approx(rows.mean(), abs=0.03)
    drawn = density.sample(500, random_state=0)["debts"] == 0
    assert drawn.mean() == pytest.approx(is_zero.mean(), abs=0.08)
    families = {row["family"] for row in density.selection_}
    assert families == {"gaussian_mixture", "latent_tree", "wmispn"}
    assert all(row["point_masses"] == "frequent" for row in density.selection_)


@pytest.mark.parametrize("families", ["all", ["gaussian_mixture"]])
@pytest.mark.parametrize("is_large", [True, False])
def test_integers_that_many_rows_share_have_their_probabilities(families, is_large, monkeypatch):
    rng = np.random.default_rng(0)
    gain = np.where(rng.random(600) < 0.8, 0.0, np.exp(rng.normal(8.0, 1.0, size=600)).round())
    table = pd.DataFrame({"gain": gain, "size": rng.normal(gain > 0)})
    if is_large:
        monkeypatch.setitem(automatic_density._MAX_CELLS, "log_likelihood", 100)
    density = AutomaticDensity(families=families, random_state=0).fit(table)
    for query in ("gain == 0", "gain <= 0", "gain > 100"):
        assert density.probability(query) == pytest.approx(len(table.query(query)) / 600, abs=0.01)


def test_levels_have_their_probabilities():
    table = shared_numbers(has_categories=False)
    table["level"] = np.digitize(table["size"], [-1.0, 0.5, 2.0]).astype(float)
    density = AutomaticDensity(random_state=0).fit(table[["size", "other", "level"]])
    for level, frequency in table["level"].value_counts(normalize=True).items():
        assert density.probability(f"level == {level}") == pytest.approx(frequency, abs=0.01)


def test_cells_are_predicted_without_point_masses():
    density = AutomaticDensity(selection="cells", random_state=0).fit(shared_numbers(True)[:200])
    assert not any(row.get("point_masses") for row in density.selection_)


@pytest.mark.parametrize("selection", ["log_likelihood", "cells"])
def test_weights_of_a_mixture_are_learned_from_many_rows(selection, monkeypatch):
    monkeypatch.setattr(held_out, "_TRAINING_ROWS", (60, 60))
    seen, run = [], Trials.run

    def counted(trials, experts):
        seen.append(trials.n_rows)
        run(trials, experts)

    monkeypatch.setattr(Trials, "run", counted)
    families = ["latent_tree", "wmispn"] if selection == "log_likelihood" else "all"
    density = AutomaticDensity(families=families, selection=selection, random_state=0)
    density.fit(shared_numbers(True)[:300])
    # Short trials and others are on the same rows
    assert list(dict.fromkeys(seen)) == [60, 210]


@pytest.mark.parametrize(("selection", "n_left"), [("log_likelihood", 5), ("cells", 4)])
def test_candidates_that_are_behind_drop_out_early(selection, n_left, monkeypatch):
    seen, run = [], Trials._run_within

    def counted(trials, limits, experts, splits):
        seen.append((len(splits), len(experts)))
        run(trials, limits, experts, splits)

    monkeypatch.setattr(Trials, "_run_within", counted)
    table = shared_numbers(True)[:100]
    density = AutomaticDensity(selection=selection, random_state=0).fit(table)
    n_candidates = len(density.selection_)
    assert seen == [(1, n_candidates), (2, n_left)]
    assert n_candidates > 5
    assert np.isfinite([row["loss"] for row in density.selection_]).all()
    assert sum(row["weight"] > 0 for row in density.selection_) == len(density.densities_) <= 5


def test_one_column_with_a_shared_number():
    debts = shared_numbers(has_categories=False)[["debts"]]
    density = AutomaticDensity(random_state=0).fit(debts)
    assert density.probability("debts == 0") == pytest.approx((debts == 0).mean().item(), abs=0.03)


@pytest.mark.parametrize("n_rows", [30, 200])
def test_integers_and_constants_beside_shared_numbers(n_rows):
    rng = np.random.default_rng(0)
    debts = np.where(rng.random(n_rows) < 0.5, 0.0, rng.exponential(size=n_rows))
    children = rng.integers(0, 4, n_rows)
    scale = rng.integers(-2, 3, n_rows)
    table = pd.DataFrame({"debts": debts, "children": children, "scale": scale, "one": 3})
    density = AutomaticDensity(random_state=0).fit(table)
    assert len(density.densities_) >= 2
    # What one density gives a mass and another a density has none
    drawn = density.sample(2000, random_state=0)
    assert np.isfinite(density.score_samples(drawn)).all()
    for query, given in (("children == 2", "scale > 0"), ("scale <= -1", "debts <= 0")):
        probability = density.probability(query, given=given)
        rows = drawn.query(given)
        frequency = len(rows.query(query)) / len(rows)
        assert probability == pytest.approx(frequency, abs=5 / np.sqrt(len(rows)) / 2)
    assert density.probability("one == 3") == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(2))
def test_values_that_only_all_rows_show_often_enough_have_masses_in_all_densities(seed):
    rng = np.random.default_rng(seed)
    number = rng.permutation(np.arange(120) % 9)  # ten rows per value, too few in the trials
    label = np.where(rng.random(120) < 0.5, "a", "b")
    table = pd.DataFrame({"k": number, "label": label, "x": number + rng.normal(size=120)})
    density = AutomaticDensity(random_state=0).fit(table)
    assert density.probability("k == 3") == pytest.approx((number == 3).mean(), abs=0.03)


def answers(numbers=(0.0, 1.0), n_rows=160):
    """Two numbers that depend on an answer, itself one of two numbers, and on a category."""
    rng = np.random.default_rng(0)
    kind = rng.choice(["a", "b", "c"], n_rows)
    says_yes = rng.random(n_rows) < np.where(kind == "a", 0.8, 0.3)
    x = 1.5 * says_yes + rng.normal(size=n_rows)
    y = x + 2.0 * (kind == "b") + rng.normal(size=n_rows)
    table = pd.DataFrame({"answer": np.where(says_yes, *numbers[::-1]), "x": x, "y": y})
    return table.mask(rng.random((n_rows, 3)) < 0.2).assign(kind=kind)


@pytest.fixture(scope="module")
def of_answers():
    return CircuitImputer(random_state=0).set_output(transform="pandas").fit(answers())


def test_means_of_two_numbers_are_their_conditional_probabilities(of_answers):
    rows = answers(n_rows=400)[160:].assign(answer=np.nan)
    density = of_answers.density_
    assert len(density.densities_) > 1
    both = np.stack([of_answers._schema.encode(rows.assign(answer=own)) for own in (0.0, 1.0)])
    expected = 0.0
    for weight, (_, circuit) in zip(density._column_weights[:, 0], density._experts(), strict=True):
        no, yes = np.exp(circuit.log_prob(both[0])), np.exp(circuit.log_prob(both[1]))
        expected += weight * yes / (no + yes)
    np.testing.assert_allclose(of_answers.transform(rows)["answer"], expected, rtol=1e-9)


def test_two_numbers_have_one_measure_in_all_members(of_answers):
    rows, density = answers(n_rows=400)[160:], of_answers.density_
    scores = [density.score_samples(rows.assign(answer=own)) for own in (0.0, 1.0)]
    marginal = density.score_samples(rows.assign(answer=np.nan))
    np.testing.assert_allclose(np.logaddexp(*scores), marginal, rtol=1e-12)
    assert density.probability("answer in [0, 1]") == pytest.approx(1.0)
    # As categories that no training row has
    new = rows.assign(answer=0.5)
    assert (density.score_samples(new) < marginal - 3.0).all()
    absent = rows.assign(x=np.nan)
    pd.testing.assert_series_equal(
        of_answers.transform(absent.assign(answer=0.5))["x"],
        of_answers.transform(absent.assign(answer=np.nan))["x"],
    )


@pytest.mark.parametrize("numbers", [(1.0, 2.0), (-3.25, 0.5)])
def test_which_two_numbers_stand_for_an_answer_does_not_matter(of_answers, numbers):
    rows = answers(n_rows=400)[160:]
    rows[["answer", "y"]] = np.nan
    low, high = numbers
    imputer = clone(of_answers).set_output(transform="pandas").fit(answers(numbers))
    found, expected = imputer.transform(rows), of_answers.transform(rows)
    np.testing.assert_allclose(found["answer"], low + (high - low) * expected["answer"], rtol=1e-6)
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-6)
    for proper in (False, True):
        for drawn in imputer.sample_imputations(rows, 2, proper=proper):
            assert set(drawn["answer"]) == set(numbers)


def test_two_numbers_of_too_many_columns_stay_numbers():
    rng = np.random.default_rng(0)
    trait = rng.normal(size=(120, 1))
    answers = (trait + rng.normal(size=(120, 9)) > 0).astype(float)
    X = np.hstack([answers, trait + rng.normal(size=(120, 1))])
    density = AutomaticDensity(families=["gaussian_mixture"], selection="cells", random_state=0)
    assert not clone(density).fit(X)._new_states.numbers
    assert list(clone(density).fit(X[:, 6:])._new_states.numbers) == [0, 1, 2]


def questionnaire(n_rows, is_ordered, seed=0):
    """Answers on scales by two attitudes, a group, and an age, some cells missing; the truth."""
    rng = np.random.default_rng(seed)
    attitudes = rng.normal(size=(n_rows, 2))
    loads = np.array([[1.2, 0.0], [1.0, 0.3], [-1.1, 0.2], [0.0, 1.2], [0.3, 1.0], [0.0, -1.1]])
    values = attitudes @ loads.T + 0.6 * rng.normal(size=(n_rows, len(loads)))
    codes = np.digitize(values, [-1.5, -0.5, 0.5, 1.5])
    levels = ["never", "rarely", "at times", "often", "always"]
    truth = pd.DataFrame(
        {
            f"item {j}": pd.Categorical.from_codes(column, levels, ordered=is_ordered)
            for j, column in enumerate(codes.T)
        }
    )
    truth["group"] = np.where(attitudes[:, 0] + rng.normal(size=n_rows) > 0, "a", "b")
    truth["age"] = 40 + 8 * attitudes[:, 1] + 6 * rng.normal(size=n_rows)
    hidden = rng.random(truth.shape) < 0.3
    return truth.mask(hidden), truth, hidden


def wrong_answers(table, truth, hidden):
    items = [name for name in truth if name.startswith("item")]
    is_wrong = (table[items].astype(str) != truth[items].astype(str)).to_numpy()
    return is_wrong[hidden[:, : len(items)]].mean()


@pytest.fixture(scope="module")
def of_ordinal():
    rows, *_ = questionnaire(250, is_ordered=True)
    return CircuitImputer(random_state=0).set_output(transform="pandas").fit(rows)


def test_order_tells_more_than_names_of_categories(of_ordinal):
    rows, *_ = questionnaire(250, is_ordered=False)
    nominal = CircuitImputer(random_state=0).set_output(transform="pandas").fit(rows)
    errors = []
    for imputer, is_ordered in [(of_ordinal, True), (nominal, False)]:
        table, truth, hidden = questionnaire(1500, is_ordered, seed=1)
        errors.append(wrong_answers(imputer.transform(table), truth, hidden))
    assert errors[0] < 0.97 * errors[1]


def test_queries_are_about_categories_that_one_density_has_as_numbers(of_ordinal):
    density = of_ordinal.density_
    is_over_numbers = [row.get("ordered_as_numbers", False) for row in density.selection_]
    weights = [row["weight"] for row in density.selection_]
    assert weights[is_over_numbers.index(True)] > 0.5
    assert density.weights_.sum() == pytest.approx(1.0)
    assert density.circuit_.cardinalities == dict.fromkeys(range(6), 5) | {6: 2}
    masses = [density.probability({"item 0": own}) for own in density.categories_[0]]
    assert sum(masses) == pytest.approx(1.0)


@pytest.mark.parametrize("proper", [False, True])
def test_draws_of_ordinal_columns_are_categories(of_ordinal, proper):
    table, truth, hidden = questionnaire(60, is_ordered=True, seed=2)
    first, second = of_ordinal.sample_imputations(table, 2, proper=proper)
    assert not first.isna().any(axis=None) and not first.equals(second)
    assert first["item 0"].dtype == truth["item 0"].dtype
    pd.testing.assert_frame_equal(first.mask(hidden), table, check_dtype=False)


@pytest.mark.parametrize("n_rows", [3, 30])
def test_few_rows_of_ordinal_columns_alone(n_rows):
    table, truth, _ = questionnaire(n_rows, is_ordered=True)
    items = [name for name in truth if name.startswith("item")]
    completed = CircuitImputer(random_state=0, keep_empty_features=True).fit_transform(table[items])
    assert completed.shape == (n_rows, len(items))


def test_imputers_of_categories_know_many_classes():
    rng = np.random.default_rng(0)
    prototypes = rng.integers(4, size=(30, 10))
    X = prototypes[rng.integers(30, size=700)]
    X = np.where(rng.random(X.shape) < 0.1, rng.integers(4, size=X.shape), X).astype(float)
    hidden = rng.random(X.shape) < 0.2
    rows = np.where(hidden, np.nan, X)
    settings = {"categorical_features": list(range(10)), "random_state": 0}
    errors = []
    for density in ("auto", HiddenChowLiuDensity(n_latent_states=32)):
        imputer = CircuitImputer(density=density, **settings).fit(rows[:300])
        errors.append(np.mean(imputer.transform(rows[300:])[hidden[300:]] != X[300:][hidden[300:]]))
    assert errors[0] < 1.1 * errors[1]


def test_many_columns_of_categories_have_latent_trees():
    rng = np.random.default_rng(0)
    # A chain: components of a mixture would have to tell all its parts apart
    X = np.empty((400, 70), dtype=int)
    X[:, 0] = rng.integers(2, size=400)
    for j in range(1, 70):
        X[:, j] = X[:, j - 1] ^ (rng.random(400) < 0.1)
    table = pd.DataFrame(X).astype("category").rename(columns=str)
    density = AutomaticDensity(random_state=0).fit(table[:300])
    mixture = GaussianMixtureDensity(random_state=0).fit(table[:300])
    assert density.score(table[300:]) > mixture.score(table[300:]) + 5.0
    assert density.selection_[0]["family"] == "latent_tree"
