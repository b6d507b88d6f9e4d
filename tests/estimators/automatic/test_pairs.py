import numpy as np
import pandas as pd
import pytest

from skcircuits import AutomaticDensity
from skcircuits.estimators.automatic._comparison import PairTables


def test_counts_by_hand():
    rows = np.array(
        [[0, 1.0, 5.0], [1, 2.0, np.nan], [1, 3.0, 7.0], [np.nan, 4.0, 8.0], [0, 4.0, 6.0]]
    )
    pairs = PairTables(rows, np.array([2, 0, 0]))
    assert pairs.n_pairs == 2
    first, second = pairs.counts(rows)
    # quartiles of the second column are 2, 3 and 4: a number on one belongs above it
    np.testing.assert_array_equal(first, [[1, 0, 0, 1], [0, 1, 1, 0]])
    assert second.sum() == 3
    answers = pairs.answers(rows, [pairs.probabilities(rows)] * 3)
    assert answers.likelihoods.shape == (16, 3)
    assert answers.log_weights.sum() == pytest.approx((4 + 3) / 2)


def test_a_density_that_loses_a_pair_shows_its_misfit():
    rng = np.random.default_rng(0)
    label = rng.integers(2, size=400).astype(float)
    rows = np.column_stack([label, label + 0.1 * rng.normal(size=400)])
    pairs = PairTables(rows, np.array([2, 0]))
    shuffled = np.column_stack([label, rng.permutation(rows[:, 1])])
    assert pairs.largest_misfit(rows, pairs.probabilities(rows)) < 0.01
    assert pairs.largest_misfit(rows, pairs.probabilities(shuffled)) > 0.1
    assert pairs.largest_misfit(rows[:10], pairs.probabilities(shuffled)) == 0.0


def test_high_wages_of_few_women():
    """The category that moves a number has one row in eight."""
    rng = np.random.default_rng(0)
    n_rows = 700
    is_female, years = rng.random(n_rows) < 0.12, rng.integers(1, 45, n_rows)
    wage = 6.0 + 0.03 * years - 0.0005 * years**2 - 0.45 * is_female
    wage += 0.35 * rng.normal(size=n_rows)
    table = pd.DataFrame(
        {"sex": np.where(is_female, "female", "male"), "years": years, "wage": wage}
    )
    density = AutomaticDensity(random_state=0).fit(table)
    for sex in ("female", "male"):
        probability = density.probability("wage > 6.6", given={"sex": sex})
        assert probability == pytest.approx((wage[table["sex"] == sex] > 6.6).mean(), abs=0.02)
    assert all(0.0 < row["misfit"] < 0.2 for row in density.selection_)


@pytest.fixture(scope="module")
def houses():
    """Lognormal areas and prices, related in another way in each district, and their ratios."""
    rng = np.random.default_rng(0)
    n_rows = 800
    district = rng.choice(3, n_rows, p=[0.6, 0.25, 0.15])
    area = np.exp(4.6 + 0.35 * rng.normal(size=n_rows))
    price = np.array([12.0, 12.5, 11.6])[district] + np.array([0.8, 1.2, 1.0])[district] * (
        np.log(area) - 4.6
    )
    price = np.exp(price + 0.2 * rng.normal(size=n_rows))
    lot = np.exp(5.5 + 0.7 * rng.normal(size=n_rows) + 0.8 * (district == 1))
    columns = {"area": area, "price": price, "per_area": price / area, "lot": lot}
    return pd.DataFrame({**columns, "district": np.array(list("abc"))[district]})


@pytest.fixture(scope="module")
def density_of_houses(houses):
    return AutomaticDensity(random_state=0).fit(houses)


def test_skewed_numbers_given_a_category(houses, density_of_houses):
    density = density_of_houses
    assert density.selection_[0]["transformation"] == "johnson"
    errors = []
    for limit in houses["lot"].quantile([0.5, 0.75, 0.9]).tolist():
        found = density.probability(f"lot > {limit}", given=[{"district": own} for own in "abc"])
        errors.append(found - (houses["lot"] > limit).groupby(houses["district"]).mean())
    assert np.abs(errors).mean() < 0.025


def test_comparisons_of_skewed_columns_are_exact(density_of_houses):
    density = density_of_houses
    drawn = density.sample(20_000, random_state=0)
    expected = (drawn["price"] > 3000 * drawn["area"]).mean()
    assert density.probability("price > 3000 * area") == pytest.approx(expected, abs=0.015)


def test_uniform_and_two_peaked_columns_beside_nearly_equal_ones():
    """The likelihood gains most from the copies, and has no components left for other columns."""
    rng = np.random.default_rng(0)
    group = rng.choice(3, 1500, p=[0.5, 0.3, 0.2])
    size = np.exp(0.6 * rng.normal(size=1500)) * (1.0 + 0.5 * group)
    columns = {"size": size, "copy": size * np.exp(0.02 * rng.normal(size=1500))}
    columns["year"] = 2000.0 + 20.0 * rng.random(1500)
    columns["fraction"] = rng.beta(0.4, 0.4 + 0.3 * group)
    table = pd.DataFrame({**columns, "group": np.array(list("abc"))[group]})
    density = AutomaticDensity(random_state=0).fit(table)
    assert density.selection_[0]["histograms"]
    for number in columns:
        for limit in table[number].quantile([0.1, 0.25, 0.5, 0.75, 0.9]).tolist():
            inside = table[number] <= limit
            for label in "abc":
                found = density.probability({number: (None, limit), "group": label})
                expected = (inside & (table["group"] == label)).mean()
                assert found == pytest.approx(expected, abs=0.02)


def test_transformed_columns_are_divided_at_thresholds():
    rng = np.random.default_rng(0)
    age = np.round(18.0 + rng.gamma(2.0, 10.0, 600))
    income = np.exp(2.0 + 0.02 * age + 0.5 * rng.normal(size=600))
    table = pd.DataFrame({"age": age, "income": income, "tax": 0.2 * income**1.2})
    table["tax"] *= np.exp(0.1 * rng.normal(size=600))
    table["old"] = np.where(age >= 45, "yes", "no")
    table["sex"] = rng.choice(["f", "m"], 600)
    density = AutomaticDensity(random_state=0).fit(table)
    assert density.thresholds_
    assert density.selection_[0]["transformation"] == "johnson"
    assert density.probability({"old": "yes"}, given="age < 45") < 1e-4
    limit = table["income"].median()
    found = density.probability(f"income > {limit}", given=[{"old": own} for own in ("no", "yes")])
    expected = (table["income"] > limit).groupby(table["old"]).mean()
    np.testing.assert_allclose(found, expected, atol=0.05)
    drawn = density.sample(2000, random_state=0)
    assert ((drawn["old"] == "yes") == (drawn["age"] >= 45)).all()
    means = density.expectation([{"old": own} for own in ("no", "yes")], columns="income")
    right = table["income"].groupby(table["old"]).mean()
    np.testing.assert_allclose(np.ravel(means), right, rtol=0.1)
