import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skcircuits import AutomaticDensity, CircuitImputer, GaussianMixtureDensity
from skcircuits.estimators.automatic import _experts
from skcircuits.estimators.automatic._experts import experts_for
from skcircuits.learning.gaussian_mixture import _candidates
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


def test_the_best_of_all_families_is_as_good_as_that_of_one():
    gains = []
    for seed in range(3):
        learned, rows = curved(seed=seed), curved(1000, seed=100 + seed)
        scores = [
            own(random_state=0).fit(learned).score(rows)
            for own in (AutomaticDensity, GaussianMixtureDensity)
        ]
        gains.append(scores[0] - scores[1])
    # A table of 130 rows may mislead by more, three of them on average do not
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
    np.testing.assert_allclose(imputer.transform(rows)["y"], expected)


def test_unknown_families_are_named():
    with pytest.raises(ValueError, match=r"families must be some of .*got families=\['kde'\]"):
        AutomaticDensity(families=["kde"]).fit(curved(20))


def test_a_clone_chooses_again(fitted):
    assert clone(fitted)._given_weights is None


def test_no_mixture_is_fitted_twice_to_the_same_rows(monkeypatch):
    tried = []

    def noted(part, candidate, settings, seed, fit=_candidates.try_candidate):
        tried.append(candidate)
        return fit(part, candidate, settings, seed)

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


@pytest.mark.parametrize("noise", [0.0, 0.04])
@pytest.mark.parametrize("n_rows", [190, 600])
def test_categories_that_a_number_decides_have_the_frequencies_of_the_table(n_rows, noise):
    table = decided(n_rows, 0, noise)
    density = AutomaticDensity(random_state=0).fit(table)
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


def test_thresholds_are_left_out_where_cells_are_predicted():
    density = AutomaticDensity(selection="cells", random_state=0).fit(decided(190, 0))
    assert density.thresholds_ == {}
    assert len(density.densities_[0].categories_) == 4


def test_more_rows_try_more_components_to_predict_cells():
    rng = np.random.default_rng(0)

    def most_components(n_rows, criterion):
        table = MixtureTable.prepare(rng.normal(size=(n_rows, 3)), np.zeros(3, int))
        experts = experts_for(table, ["gaussian_mixture"], criterion)
        found = [dict(expert.parameters) for expert in experts]
        return max(own["n_components"] for own in found if own["covariance_type"] == "shrunk")

    assert [most_components(n, "cells") for n in (5000, 1500)] == [48, 25]
    # Queries of a joint density take longer with each component
    assert most_components(5000, "log_likelihood") == 8


def test_predictions_of_cells_are_averaged_on_large_tables_too(monkeypatch):
    table = curved()
    few = AutomaticDensity(selection="cells", random_state=0).fit(table)
    monkeypatch.setattr(_candidates, "_POOL_CELLS", 1)
    # As many as without the limit of the pool, up to four
    large = AutomaticDensity(selection="cells", random_state=0).fit(table)
    assert 1 < len(large.densities_) == min(4, len(few.densities_))
